"""Audits and certificates: how far predictions depend on attributes, and whether a limit holds."""

from scalefair.auditing.certificate import Certificate
from scalefair.auditing.certification import certify
from scalefair.auditing.result import Audit
from scalefair.auditing.run import audit

__all__ = ["Audit", "Certificate", "audit", "certify"]
