"""The fit under a limit on the explained share: `unfairness=u` finds η, for every kind of path.

The share is not monotone in η for α > 0, so a path is scanned first. Where it ends above the limit (R of full rank, or
`nocco`), the optimum over all β within the limit goes on to the least share that any β reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from scalefair._linalg import factorize, positive_eigh
from scalefair._typing import Array
from scalefair.penalties import share_of_variance
from scalefair.solve.ridge.system import NULL, Directions

# η in units of 1 / (strength of the strongest direction): 12 a decade
SCAN = np.logspace(-12, 15, 325)
# Points of the scan before f is constant but for rounding, two decades, that rounding may blur
FADING = 24
ROUNDED_SHARE = 1e-12  # A share this small is rounding error
MAX_ETA = 1e6  # largest η of a descent, in its unit, before a limit counts as unreachable
LEAST_GAP = 1e-15  # least relative distance of the cone's Lagrangian from being indefinite


@dataclass(frozen=True, eq=False)
class Quadratic:
    """½βᵀAβ − cᵀβ, and how the share of β is measured; an intercept may be among p unknowns."""

    hessian: Array  # A (p, p), positive definite
    target: Array  # c (p, t)
    share_factor: Array  # R of the share (p, q); zero for an intercept
    covariance: Array  # C (p, p), of which βᵀCβ is the variance of f; zero for an intercept

    def least_share(self) -> float:
        """Least eigenvalue of C^(−1/2)RRᵀC^(−1/2) on the range of C: no β explains less."""
        values, vectors = positive_eigh(self.covariance)
        keep = values > ROUNDED_SHARE * values.max(initial=0.0)
        root = (vectors[:, keep] / np.sqrt(values[keep])).T @ self.share_factor
        if root.shape[1] < root.shape[0]:
            return 0.0
        return float(np.linalg.svd(root, compute_uv=False).min(initial=np.inf) ** 2)


class PenaltyPath(Protocol):
    """The fits at one α for every weight η of a penalty."""

    @property
    def strength(self) -> Array:
        """How strongly the penalty acts on each of its directions: RᵀA⁻¹R in its eigenbasis."""

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach: an intercept is none of them."""

    def shares(self, etas: Array) -> Array:
        """Explained share for each η; NaN where f is constant."""

    def quadratic(self) -> Quadratic:
        """Return what the fits minimise before the penalty."""


class NotAttainableError(ValueError):
    """No predictor but a constant has a share within the limit."""


class Optimum(NamedTuple):
    """The least ½βᵀAβ − cᵀβ within the limit, β of shape (p, t), and its multiplier μ."""

    coef: Array
    multiplier: float


def path_shares(share_factor: Array, deviation: Array, coef: Array) -> Array:
    """Explained shares |Rᵀβ|²/|Dβ|² of E fits along a path, after that at η = 0; C = DᵀD.

    What is left of f where the penalty reaches all of it is rounding error of the first fit.
    """
    E, p, t = coef.shape
    B = np.moveaxis(coef, 0, 1).reshape(p, -1)
    D_B = deviation[:, None] * B if deviation.ndim == 1 else deviation @ B
    explained, variance = (np.sum(part**2, axis=0).reshape(E, t).sum(axis=1) for part in (share_factor.T @ B, D_B))
    return share_of_variance(explained, variance, variance[0])[1:]


def least_eta(path: PenaltyPath, unfairness: float, *, on_path: bool = False) -> float | None:
    """Smallest η beyond which the share stays within the limit; None if there is none.

    Where f fades to rounding error, the optimum beyond the path is better; `on_path` there is none.
    """
    if not path.shares(np.array([0.0]))[0] > unfairness:  # also where the share is undefined
        return 0.0
    etas = _etas_to_scan(path)
    shares = path.shares(etas)
    constant = np.flatnonzero(np.isnan(shares))
    if len(constant):
        if not on_path:
            return None
        etas, shares = (part[: max(constant[0] - FADING, 0)] for part in (etas, shares))
    last = int(np.flatnonzero(shares > max(unfairness, ROUNDED_SHARE)).max(initial=-1))
    if last == len(etas) - 1:
        return None
    if unfairness <= ROUNDED_SHARE or not np.isfinite(etas[last + 1]):
        return np.inf if np.isinf(etas[-1]) else None
    if last < 0:  # the ridge fit exceeds the limit by rounding error only
        return float(etas[0])

    def excess(log_eta: float) -> float:
        return float(np.nan_to_num(path.shares(np.exp([log_eta]))[0] - unfairness, nan=1.0))

    # The upper end of the bracket satisfies the limit to the last bit.
    root = brentq(excess, np.log(etas[last]), np.log(etas[last + 1]), xtol=1e-13, rtol=1e-15)
    return float(np.exp(root))


def _etas_to_scan(path: PenaltyPath) -> Array:
    """η to try, up to ∞ where the penalty leaves directions free; else β fades as 1/η."""
    strength = path.strength
    etas = SCAN / strength.max()
    real = strength[strength > NULL * strength.max()]
    if len(real) < path.n_penalized:
        return np.append(etas, np.inf)
    return np.asarray(etas[etas <= 1e8 / real.min()])


def path_etas(at: PenaltyPath, limit: float, count: int = 48, reach: float = 4.0) -> Array:
    """Etas from ∞ down to a share in sample of `reach` limits, about equidistant in √share."""
    strength = at.strength.max(initial=0.0)
    grid = np.append(0.0, np.logspace(-4, 8, 481) / (strength if strength > 0 else 1.0))
    shares = np.nan_to_num(at.shares(grid), nan=0.0)
    envelope = np.maximum.accumulate(shares[::-1])[::-1]  # the share is not monotone in η
    levels = np.linspace(0.0, np.sqrt(min(envelope[0], reach * limit)), count + 1) ** 2
    first = [int(np.argmax(envelope <= level * (1 + 1e-9))) for level in levels[1:]]
    return np.append(np.inf, np.unique(grid[first])[::-1])


def optimum_within(quadratic: Quadratic, unfairness: float) -> Optimum:
    """Minimise ½βᵀAβ − cᵀβ over all β with βᵀ(RRᵀ − uC)β ≤ 0: a share of at most u.

    One quadratic constraint has no duality gap: β = (A + μ(RRᵀ − uC))⁻¹c with the μ that meets it.
    Where A = I and RRᵀ − uC = diag(ν), βᵢ = cᵢ/(1 + μνᵢ), and the excess Σνβ² falls with μ. Where
    it is still positive as the Lagrangian becomes singular, the rest goes along that direction.
    """
    check_attainable(quadratic, unfairness)
    cone = quadratic.share_factor @ quadratic.share_factor.T - unfairness * quadratic.covariance
    nu, basis = eigh(cone, quadratic.hessian)
    along = basis.T @ quadratic.target

    def fit(gap: float) -> Array:
        """Coordinates at the μ that leaves 1 + μν ≥ gap."""
        return np.asarray(along / (1 - (1 - gap) * nu / nu[0])[:, None])

    def excess(log_gap: float) -> float:
        return float(nu @ np.sum(fit(np.exp(log_gap)) ** 2, axis=1))

    least = float(np.log(LEAST_GAP))
    over = excess(least)
    if over <= 0:
        # At α = 0 rounding may put the optimum without the limit within it.
        free = excess(0.0) <= 0
        gap = 1.0 if free else float(np.exp(brentq(excess, least, 0.0, xtol=1e-14, rtol=1e-15)))
        return Optimum(basis @ fit(gap), (gap - 1) / float(nu[0]))
    at = fit(LEAST_GAP)
    first = at[0]
    size = float(np.linalg.norm(first))
    direction = first / size if size > 0 else np.eye(len(first))[0]
    at[0] = direction * np.sqrt(size**2 + over / -nu[0])
    return Optimum(basis @ at, (LEAST_GAP - 1) / float(nu[0]))


def optimum_without(quadratic: Quadratic) -> Array:
    """Minimise ½βᵀAβ − cᵀβ over all β with Rᵀβ = 0: the limit of `unfairness=0`."""
    factor = factorize(quadratic.hessian)
    coef, solved = factor.solve(quadratic.target), factor.solve(quadratic.share_factor)
    return coef - Directions.of(quadratic.share_factor, solved, coef).step(np.inf)


def check_attainable(quadratic: Quadratic, unfairness: float) -> None:
    """Raise NotAttainableError if no β has a share of at most `unfairness`."""
    least = quadratic.least_share()
    if max(unfairness, ROUNDED_SHARE) < least < np.inf:  # ∞: no feature varies
        raise NotAttainableError(
            f"unfairness={unfairness:g} cannot be reached: on these {len(quadratic.target)} "
            f"features the sensitive attributes explain at least a share of {least:.6g} of the "
            "variance of any predictor; raise the limit, or give the model more or other "
            "features"
        )


def not_on_path(path: PenaltyPath, unfairness: float) -> NotAttainableError:
    """Return the error for a limit that no η meets, and that may not be met in another way."""
    least = float(np.nanmin(path.shares(_etas_to_scan(path)), initial=np.inf))
    return NotAttainableError(
        f"unfairness={unfairness:g} is not reached by the mean of the process at any eta: the "
        f"least explained share is {least:.6g}; raise the limit, use penalty='normalized', "
        "or give the model more or other inputs"
    )


def only_a_constant(unfairness: float, alpha: float) -> NotAttainableError:
    """Return the error for a limit that leaves no prediction but a constant."""
    return NotAttainableError(
        f"unfairness={unfairness:g} leaves nothing but a constant prediction at alpha={alpha:g}; "
        "raise the limit, use a smaller alpha, or give the model more or other features"
    )


def solve_output_under_limit(
    fit: Callable[[float, Any], Any], unfairness: float, unit: float = 1.0
) -> tuple[float, Any]:
    """Return η and the fit whose share is the limit (0: the largest η), or the fit at 0."""
    if unfairness == 0:
        near = fit(float(np.sqrt(MAX_ETA)) * unit, fit(unit, None))
        return MAX_ETA * unit, fit(MAX_ETA * unit, near)
    fits: dict[float, Any] = {0.0: fit(0.0, None)}
    if fits[0.0].dependence.share <= unfairness:
        return 0.0, fits[0.0]

    def excess(log_eta: float) -> float:
        eta = float(np.exp(log_eta))
        nearest = min(fits, key=lambda other: abs(np.log(max(other, 1e-3)) - log_eta))
        if eta not in fits:
            fits[eta] = fit(eta * unit, fits[nearest] if nearest > 0 else None)
        return float(fits[eta].dependence.share) - unfairness

    low, high = np.log(1e-2), 0.0
    while excess(high) > 0:
        low, high = high, high + np.log(10.0)
        if high > np.log(MAX_ETA):
            raise ValueError(
                f"unfairness={unfairness:g} is not reached with output_kernel: at "
                f"eta={MAX_ETA * unit:g} the sensitive attributes still explain a share of "
                f"{min(fit.dependence.share for fit in fits.values()):.4g} of the distribution of "
                "the predictions; raise the limit, or give the model more features"
            )
    if excess(low) > 0:
        brentq(excess, low, high, xtol=1e-2, maxiter=20)
    within = [eta for eta, fit in fits.items() if fit.dependence.share <= unfairness]
    eta = min(within)
    return eta * unit, fits[eta]
