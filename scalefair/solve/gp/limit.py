"""The weight η of a fair Gaussian process under a limit on the explained share.

The least η with

    share(ȳ + Φβ) ≤ limit,    β = (ΦᵀΦ + τI + nηRRᵀ)⁻¹Φᵀy,  τ = σ²/a².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scalefair.moments import Moments
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.profile import Profile
from scalefair.solve.limit import least_eta, not_on_path
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System

MAX_LEARNING_ETA = 1e4
"""η, relative to the penalty, that is as good as ∞ for learning: the evidence jumps at ∞."""

MAX_ROUNDS = 20
"""Times that η and the noise are found for each other at most."""


def largest_eta(penalty: str, moments: Moments) -> float:
    """Return the largest η to learn with: relative to 1, or to the variance of ψ for `hsic`."""
    if penalty == "normalized" or "psi" not in moments.blocks:
        return MAX_LEARNING_ETA
    largest = np.linalg.norm(moments.covariance("psi", "psi"), 2)
    return MAX_LEARNING_ETA / (float(largest) or 1.0)


def mean_system(moments: Moments, penalty: str, eps: float | None) -> System:
    """Return the system of the posterior mean: no intercept, y centred."""
    system = System.build(moments, penalty=penalty, eps=eps, fit_intercept=False)
    return replace(system, target=moments.covariance("phi", "y"))


def limiting_eta(point: GaussianPoint, eps: float | None, penalty: str, unfairness: float) -> float:
    """Return the least η that keeps the posterior mean within the limit, at the point's σ²/a².

    Unlike a ridge fit under a limit, the mean is not scaled up afterwards: it stays the mean of a
    posterior, to which the deviations belong.
    """
    moments = point.slice.system.moments
    spectrum = Spectrum.of(mean_system(moments, penalty, eps))
    path = spectrum.at(point.slice.ratio / moments.weight)
    eta = least_eta(path, unfairness)
    if eta is None:
        raise not_on_path(path, unfairness)
    return eta


def limited(
    profile: Callable[[float], Profile], eps: float | None, penalty: str, unfairness: float
) -> tuple[Profile, float]:
    """Return noise and amplitude at their best for the η that meets the limit at them.

    More weight leaves more of y to the noise, and the noise changes the weight that is needed: the
    two are found in turn, without a pass. The last step is the weight, so that the limit holds.
    """
    eta = 0.0
    for _ in range(MAX_ROUNDS):
        best = profile(eta)
        last, eta = eta, limiting_eta(best.point, eps, penalty, unfairness)
        if eta == last or abs(eta - last) <= 1e-8 * last:
            break
    point = best.point
    system = point.slice.system
    moved = GaussianPoint(system.slice(point.slice.ratio, eta), point.noise)
    return replace(best, point=moved), eta


def share_of(point: GaussianPoint) -> float:
    """Return the explained share of the posterior mean; NaN without sensitive attributes."""
    moments = point.slice.system.moments
    return mean_system(moments, "normalized", None).explained_share(point.coef)
