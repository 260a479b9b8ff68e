"""NOCCO of the output itself: the penalty is the share, not the variance, that s explains.

With a linear kernel on f, Tr[R_f R_S] is the Rayleigh quotient |Rᵀβ|²/D with D = βᵀCβ + ε and R the
normalised factor. It has no closed form, but its stationary points have (METHOD.md section 1):

    β = (1/k) β_normalized(α/k, h),   k = 1 − (η/D)|Rᵀβ|²/D,   h = (η/D)/k.

For each h a scalar equation gives k, and η = h(v/k + εk) with v = β_nᵀCβ_n; so the fits for a given
η are the roots of one scalar function of h. No pass over the data, and no optimiser.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from scalefair._typing import Array
from scalefair.solve.path import Spectrum
from scalefair.solve.system import System

SCAN = np.logspace(-6, 9, 46)


LEAST = 1e-9
"""Least k that is looked for: a smaller one belongs to an h that no real problem has."""


class Stationary(NamedTuple):
    """A stationary point: its coordinates in the eigenbasis, the η it belongs to, and k."""

    coordinates: Array
    eta: float
    k: float


def solve_output_nocco(system: System, alpha: float, eta: float, eps: float) -> Array:
    """Minimise 1/n|y − b − Φβ|² + α|β|² + η|Rᵀβ|²/(βᵀCβ + ε); return β of shape (m, t)."""
    if not system.fit_intercept:
        raise ValueError(
            "penalty='nocco_output' needs fit_intercept=True: it is centred throughout"
        )
    spectrum = Spectrum.of(system)
    if eta == 0 or spectrum.factor.shape[1] == 0 or not spectrum.target.any():
        return spectrum.at(alpha).ridge_coef
    if np.isinf(eta):  # the share must vanish, which is the same limit as for `normalized`
        return np.asarray(spectrum.at(alpha).coef(np.array([np.inf]))[0])

    def excess(log_h: float) -> float:
        return stationary(spectrum, alpha, float(np.exp(log_h)), eps).eta - eta

    grid = np.log(SCAN / spectrum.at(alpha).strength.max())
    signs = np.sign([excess(h) for h in grid])
    starts = np.flatnonzero(np.diff(signs))
    roots = [float(brentq(excess, grid[i], grid[i + 1], xtol=1e-14, rtol=1e-14)) for i in starts]
    found = [stationary(spectrum, alpha, float(np.exp(root)), eps) for root in roots]
    points = [point.coordinates for point in found if point.k > LEAST]
    if not points:
        raise ValueError(
            f"eta={eta:g} is out of the range that penalty='nocco_output' can be solved for; "
            "use an eta nearer 1, or eta=inf"
        )
    best = min(points, key=lambda point: objective(spectrum, point, alpha, eta, eps))
    return np.asarray(spectrum.basis @ best)


def stationary(spectrum: Spectrum, alpha: float, h: float, eps: float) -> Stationary:
    """Return the stationary point with the ratio h, by the root of k(1 + h·r/(v + εk²)) = 1."""

    def parts(k: float) -> tuple[Array, float, float]:
        point = spectrum.at(alpha / k).coordinates(np.array([h]))[0]
        return point, *_variances(spectrum, point)

    def gap(k: float) -> float:
        _, explained, variance = parts(k)
        return k * (1 + h * explained / (variance + eps * k**2)) - 1

    k = 1.0
    if gap(1.0) > 0:
        k = LEAST if gap(LEAST) > 0 else float(brentq(gap, LEAST, 1.0, xtol=1e-15, rtol=1e-14))
    point, _, variance = parts(k)
    return Stationary(point / k, h * (variance / k + eps * k), k)


def objective(spectrum: Spectrum, point: Array, alpha: float, eta: float, eps: float) -> float:
    """J at a point, up to the variance of y."""
    explained, variance = _variances(spectrum, point)
    error = variance - 2 * float(np.sum(spectrum.target * point))
    return error + alpha * float(np.sum(point**2)) + eta * explained / (variance + eps)


def _variances(spectrum: Spectrum, point: Array) -> tuple[float, float]:
    """|Rᵀβ|² and βᵀCβ."""
    explained = float(np.sum((spectrum.share_factor.T @ point) ** 2))
    return explained, float(np.sum(spectrum.values[:, None] * point**2))
