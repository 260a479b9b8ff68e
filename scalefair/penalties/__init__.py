"""Penalties: factors of the moments; and the explained share, which users set a limit on."""

from scalefair.penalties.factors import (
    CONTROL_EPS,
    CUTOFF,
    PENALTIES,
    Features,
    attribute,
    control_factor,
    hsic,
    nocco,
    normalized,
    partial_covariance,
    whitening,
)

__all__ = [
    "CONTROL_EPS",
    "CUTOFF",
    "PENALTIES",
    "Features",
    "attribute",
    "control_factor",
    "hsic",
    "nocco",
    "normalized",
    "partial_covariance",
    "whitening",
]
