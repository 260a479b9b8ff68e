"""Penalties: each is a factor R of the moments, and η|Rᵀβ|² is what it adds to the objective.

Where the moments hold a control υ(c), each is conditional on it: ψ gives way to ξ(s, c) = ψ ⊗ υ,
and every covariance to what the control leaves, C_ab·υ = C_ab − C_aυ (C_υ + ε₀I)⁻¹ C_υb. A partial
covariance with ψ itself would pool the levels of c, and opposite signs would cancel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.statistics import Moments

Features = tuple[str, ...]
Names = str | Features

CONTROL_EPS = 1e-12
"""ε₀, far below the frequency of any level of a control that tells something."""

CUTOFF = {"psi": 1e-14, "xi": 1e-10}
"""Directions of C below this share of the largest are rounding error.

Under control ε₀ leaves a trace of what the control explains.
"""


def attribute(moments: Moments) -> str | None:
    """Name of the block that f must not depend on: ψ, under control ξ; None without any."""
    return "xi" if "xi" in moments.blocks else "psi" if "psi" in moments.blocks else None


def control_factor(moments: Moments, names: Names) -> Array:
    """C_aυ (C_υ + ε₀I)^(−1/2), whose products are what the control explains; no columns without.

    For the predictions, |Qᵀβ|² is the variance of f that the best function of c explains.
    """
    if "upsilon" not in moments.blocks:
        width = [moments.blocks[name] for name in ((names,) if isinstance(names, str) else names)]
        return np.zeros((sum(width), 0))
    whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
    return moments.covariance(names, "upsilon") @ whiten


def partial_covariance(moments: Moments, rows: Names, columns: Names) -> Array:
    """C_ab·υ, or C_ab where nothing is controlled for."""
    covariance = moments.covariance(rows, columns)
    if "upsilon" not in moments.blocks:
        return covariance
    left = control_factor(moments, rows)
    right = left if rows == columns else control_factor(moments, columns)
    return np.asarray(covariance - left @ right.T)


def hsic(moments: Moments, eps: float, features: Features = ("phi",)) -> Array:
    """R = C_φψ: |Rᵀβ|² is HSIC of f(x) and s with a linear kernel on f. `eps` plays no part."""
    del eps
    return partial_covariance(moments, features, attribute(moments) or "psi")


def normalized(moments: Moments, eps: float, features: Features = ("phi",)) -> Array:
    """R = C_φψ (C_ψ + εI)^(−1/2): |Rᵀβ|² is the variance of f that the best g(s) explains.

    Under control it is the variance that the best g(s, c) explains beyond the best g(c): with
    one-hots E(E[f|s, c] − E[f|c])².
    """
    name = attribute(moments) or "psi"
    own = partial_covariance(moments, name, name)
    return partial_covariance(moments, features, name) @ inverse_root(own, eps, CUTOFF[name])


def whitening(moments: Moments, eps: float) -> tuple[Features, Array]:
    """Blocks a and a matrix W with (a − E a) W the attributes of unit covariance, but for ε.

    Their covariance with Φ is the factor of `normalized`; so is that with any function of f.
    """
    name = attribute(moments) or "psi"
    root = inverse_root(partial_covariance(moments, name, name), eps, CUTOFF[name])
    if name == "psi":
        return ("psi",), root
    whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
    onto = whiten @ (whiten.T @ moments.covariance("upsilon", "xi"))
    return ("upsilon", "xi"), np.vstack([-onto @ root, root])


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
