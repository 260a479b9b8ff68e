"""Penalties: each is a factor R of the moments, and η|Rᵀβ|² is what it adds to the objective."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.statistics import Moments

Features = tuple[str, ...]


def hsic(moments: Moments, eps: float, features: Features = ("phi",)) -> Array:
    """R = C_φψ: |Rᵀβ|² is HSIC of f(x) and s with a linear kernel on f. `eps` plays no part."""
    del eps
    return moments.covariance(features, "psi")


def normalized(moments: Moments, eps: float, features: Features = ("phi",)) -> Array:
    """R = C_φψ (C_ψ + εI)^(−1/2): |Rᵀβ|² is the variance of f that the best g(s) explains."""
    whiten = inverse_root(moments.covariance("psi", "psi"), eps)
    return moments.covariance(features, "psi") @ whiten


def nocco(moments: Moments, eps: float, features: Features = ("phi",)) -> Array:
    """R = (C_φ + εI)^(−1/2) C_φψ (C_ψ + εI)^(−1/2): normalised on both sides.

    The root must be the symmetric one: R multiplies β from the left.
    """
    values, vectors = positive_eigh(moments.covariance(features, features))
    keep = values > 1e-14 * values.max(initial=0.0)
    root = (vectors[:, keep] / np.sqrt(values[keep] + eps)) @ vectors[:, keep].T
    return np.asarray(root @ normalized(moments, eps, features))


PENALTIES: dict[str, Callable[[Moments, float, Features], Array]] = {
    "hsic": hsic,
    "normalized": normalized,
    "nocco": nocco,
    # Of the output: its factor is the normalised one, divided by the variance of f when solved.
    "nocco_output": normalized,
}
