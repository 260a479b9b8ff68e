"""Audits: every measure of how far predictions depend on sensitive attributes, in one table."""

from scalefair.auditing.result import Audit
from scalefair.auditing.run import audit

__all__ = ["Audit", "audit"]
