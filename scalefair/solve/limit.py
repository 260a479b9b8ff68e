"""The fit under a limit on the explained share: `unfairness=u` finds η.

METHOD.md section 4. The share is not monotone in η for α > 0, so the path is scanned first. Where
the path ends above the limit (R of full rank, or `nocco`), :func:`optimum_at_share` goes on to the
least share that any β reaches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.solve.path import AlphaSlice, Spectrum
from scalefair.solve.primal import NULL, solve_primal
from scalefair.solve.system import System, best_scale

SCAN = np.logspace(-12, 15, 325)
"""η in units of 1 / (strength of the strongest direction): 12 a decade."""

ROUNDING = 1e-12
"""A share this small is rounding error."""


class LimitedFit(NamedTuple):
    """β of shape (m, t), rescaled, and the η that gave its direction."""

    coef: Array
    eta: float


def solve_under_limit(system: System, alpha: float, unfairness: float) -> LimitedFit:
    """Return the fit at α whose explained share is at most `unfairness`, with the least η.

    The direction comes from the path; its length is then the best one, which is free because the
    share does not depend on it. If the ridge fit is within the limit already, it is returned as
    it is: the limit is not active. η = ∞ is reported where no η on the path is enough.
    """
    slice_ = Spectrum.of(system).at(alpha)
    eta = least_eta(slice_, unfairness)
    if eta == 0:
        return LimitedFit(slice_.ridge_coef, 0.0)
    if eta is None:
        coef = rescale(system, optimum_at_share(system, alpha, unfairness))
        if np.isnan(system.explained_share(coef)):
            raise ValueError(
                f"unfairness={unfairness:g} leaves nothing but a constant prediction at "
                f"alpha={alpha:g}; ask for more than that, use a smaller alpha, or give the model "
                "more or other features"
            )
        return LimitedFit(coef, np.inf)
    return LimitedFit(rescale(system, slice_.coef(np.array([eta]))[0]), eta)


def least_eta(slice_: AlphaSlice, unfairness: float) -> float | None:
    """Smallest η beyond which the share stays within the limit; None if there is none."""
    if not slice_.shares(np.array([0.0]))[0] > unfairness:  # also where the share is undefined
        return 0.0
    etas = _scan(slice_)
    shares = slice_.shares(etas)
    # Once f is constant but for rounding, what is left of it at the far end is rounding, too.
    shares[-1] = np.nan if np.isnan(shares).any() else shares[-1]
    # An undefined share, of an f that is constant but for rounding, is not within a limit.
    above = np.flatnonzero(~(shares <= max(unfairness, ROUNDING)))
    last = int(above.max(initial=-1))
    if last == len(etas) - 1:
        return None
    if unfairness <= ROUNDING or not np.isfinite(etas[last + 1]):
        return np.inf if np.isinf(etas[-1]) else None
    if last < 0:  # the ridge fit exceeds the limit by rounding error only
        return float(etas[0])
    low, high = etas[last], etas[last + 1]

    def excess(log_eta: float) -> float:
        return float(np.nan_to_num(slice_.shares(np.exp([log_eta]))[0] - unfairness, nan=1.0))

    # The upper end of the bracket satisfies the limit to the last bit.
    root = brentq(excess, np.log(low), np.log(high), xtol=1e-13, rtol=1e-15)
    return float(np.exp(root))


def _scan(slice_: AlphaSlice) -> Array:
    """η to try, up to ∞ where the penalty leaves directions free.

    Where it reaches every direction, β itself goes to 0 as 1/η, and far out only its rounding
    error would be left to take the share of.
    """
    strength = slice_.strength
    etas = SCAN / strength.max()
    real = strength[strength > NULL * strength.max()]
    if len(real) < len(slice_.ridge):
        return np.append(etas, np.inf)
    return np.asarray(etas[etas <= 1e8 / real.min()])


def rescale(system: System, coef: Array) -> Array:
    """β ← aβ with the scale of least error."""
    return coef * float(best_scale(system, coef))


def optimum_at_share(system: System, alpha: float, unfairness: float) -> Array:
    """Minimise 1/n|y − Φβ|² + α|β|² over all β whose explained share is at most u.

    The limit is the cone βᵀ(RRᵀ − uC)β ≤ 0. One quadratic constraint has no duality gap, so the
    optimum is β = (A + μ(RRᵀ − uC))⁻¹c with A = C + α and the μ at which the limit is met. Where
    A = I and RRᵀ − uC = diag(ν), βᵢ = gᵢ/(1 + μνᵢ), and the excess Σνβ² falls with μ.
    """
    if max(unfairness, ROUNDING) < least_share(system):
        raise ValueError(_out_of_reach(system, unfairness))
    if unfairness <= ROUNDING:  # the cone is a plane, where μ → ∞
        return solve_primal(replace(system, factor=system.share_factor), alpha, np.inf)[0]
    cov = system.moments.covariance(system.features, system.features)
    cone = system.share_factor @ system.share_factor.T - unfairness * cov
    nu, basis = eigh(cone, system.gram + alpha * np.diag(system.ridge))
    along = basis.T @ system.target

    def fit(gap: float) -> Array:
        """Coordinates at the μ that leaves 1 + μν ≥ gap."""
        return np.asarray(along / (1 - (1 - gap) * nu / nu[0])[:, None])

    def excess(log_gap: float) -> float:
        return float(nu @ np.sum(fit(np.exp(log_gap)) ** 2, axis=1))

    if nu[0] >= 0 or excess(np.log(1e-15)) > 0:
        raise ValueError(_out_of_reach(system, unfairness))
    root = brentq(excess, np.log(1e-15), 0.0, xtol=1e-14, rtol=1e-15)
    return np.asarray(basis @ fit(float(np.exp(root))))


def least_share(system: System) -> float:
    """Least eigenvalue of C^(−1/2)RRᵀC^(−1/2) on the range of C: no β explains less."""
    values, vectors = positive_eigh(system.moments.covariance(system.features, system.features))
    keep = values > ROUNDING * values.max(initial=0.0)
    root = (vectors[:, keep] / np.sqrt(values[keep])).T @ system.share_factor
    if root.shape[1] < root.shape[0]:
        return 0.0
    return float(np.linalg.svd(root, compute_uv=False).min(initial=np.inf) ** 2)


def _out_of_reach(system: System, unfairness: float) -> str:
    return (
        f"unfairness={unfairness:g} cannot be reached: on these {len(system.gram)} features the "
        "sensitive attributes explain at least a share of "
        f"{least_share(system):.6g} of the variance of any predictor; ask for more than that, or "
        "give the model more or other features"
    )
