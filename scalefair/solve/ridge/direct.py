"""The fair ridge at one α, from its system: a weight, a limit, or the share itself as the penalty.

    (C + αD + ηRRᵀ) β = c

A weight takes one Cholesky factor. Under a limit the direction of β comes from the path of all η,
or from beyond it; its length is the best one, on which the share does not depend.

With `nocco_output` the penalty is η|Rᵀβ|²/D, D = βᵀCβ + ε. Its stationary points have a form:

    β = (1/k) β_normalized(α/k, h),   k = 1 − (η/D)|Rᵀβ|²/D,   h = (η/D)/k

For each h a scalar equation gives k, and η = h(v/k + εk) with v = β_nᵀCβ_n: the fits for a given η
are the roots of one function of h. Where k ≤ 0, a descent finds them. y has unit variance there.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize

from scalefair._linalg import factorize
from scalefair._typing import Array
from scalefair.moments.accumulate import Rows
from scalefair.moments.products import CrossMoments, stream_moments
from scalefair.penalties import DEFAULT_EPS
from scalefair.solve import limit
from scalefair.solve.fit import ROUNDING, Diagnostics, RidgeFit, Spec, diagnose, digits_left, of_eigenvalues
from scalefair.solve.ridge.iterative import StreamedSystem, solve_iterative
from scalefair.solve.ridge.path import AlphaSlice, Spectrum
from scalefair.solve.ridge.system import Directions, Solution, System, best_scale, spread

WIDE = 8000  # features from which on the m×m eigenproblem is out of reach
# Values of h, in units of its effect, between which η(h) may turn; beyond, η grows with h
SCAN = np.logspace(-6, 9, 46)
LEAST = 1e-9  # least k that roots are searched for
# Difference of J, in units of the variance of y, that decides between two ways to a minimum
TIE = 1e-9
LEAST_EPS = 1e-12  # least ε: without any, J has no value where f is constant


def takes_factor(spec: Spec) -> bool:
    """Return True if one Cholesky factor gives the fit, so that eigenvectors are not needed."""
    return spec.unfairness is None and spec.penalty != "nocco_output"


def fit_ridge(system: System, spec: Spec, spectrum: Spectrum | None = None) -> RidgeFit:
    """Return the fit of a system, of which a `spectrum` may be known, by a weight or a limit."""
    eta = spec.eta
    if takes_factor(spec):
        coef, diagnostics = solve_primal(system, spec.alpha, eta, spec.rounding)
        return ridge_fit(system, coef, spec.alpha, eta, diagnostics)
    spectrum = spectrum or Spectrum.of(system)
    if spec.unfairness is not None:
        coef, eta = limited(spectrum.at(spec.alpha), spec.unfairness)
    else:
        eps = DEFAULT_EPS if spec.eps is None else spec.eps
        coef = solve_output_nocco(system, spectrum, spec.alpha, eta, eps)
    diagnostics = of_eigenvalues(spectrum.values, spec.alpha, spec.rounding)
    return ridge_fit(system, coef, spec.alpha, eta, diagnostics)


def fit_wide(rows: Rows, spec: Spec, ridge: Any, *, fit_intercept: bool, seed: int) -> tuple[CrossMoments, RidgeFit]:
    """Fit by conjugate gradients over the rows; return the moments without φφᵀ, and the fit."""
    if spec.penalty in ("nocco", "nocco_output"):
        raise ValueError(
            f"penalty={spec.penalty!r} needs the m×m moments, which solver='iterative' does "
            "without; use solver='direct', or penalty='normalized' or 'hsic'"
        )
    moments, gram = stream_moments(rows.source, rows.design, rows=rows.chunk_rows)
    system = StreamedSystem.stream(
        moments, gram, penalty=spec.penalty, eps=spec.eps, fit_intercept=fit_intercept,
        features=rows.design.features, ridge=ridge(moments),
    )  # fmt: skip
    with rows.progress.steps("iterations") if rows.progress else nullcontext() as step:
        result = solve_iterative(system, spec.alpha, seed=seed, progress=step)
    if spec.unfairness is None:
        coef, eta = result.slice.coef(np.array([spec.eta]))[0], spec.eta
    else:
        coef, eta = limited(result.slice, spec.unfairness)
    # Nobody has seen the least eigenvalue, which is at least α.
    condition = 1.0 + result.largest / spec.alpha
    diagnostics = digits_left(condition, None, len(system.scale), spec.rounding)
    return moments, ridge_fit(system, coef, spec.alpha, eta, diagnostics, n_iter=result.n_iter)


def ridge_fit(
    system: System, coef: Array, alpha: float, eta: float, diagnostics: Diagnostics, *,
    n_iter: int | None = None, output_share: float | None = None,
) -> RidgeFit:  # fmt: skip
    """Return a fit from its coefficients: the intercept and the share follow."""
    intercept = system.moments.mean("y") - system.mean @ coef
    solution = Solution(coef, intercept if system.fit_intercept else np.zeros_like(intercept))
    share = system.explained_share(coef)
    return RidgeFit(solution, alpha, eta, share, diagnostics, n_iter, output_share)


def solve_primal(system: System, alpha: float, eta: float, rounding: float = ROUNDING) -> tuple[Array, Diagnostics]:
    """β (m, t) of (C + αD + ηRRᵀ) β = c by Woodbury's identity, and what rounding leaves of it."""
    A = system.gram + alpha * np.diag(system.ridge)
    factor = factorize(A)
    coef = factor.solve(system.target)
    if eta > 0 and system.factor.shape[1]:
        coef = coef - Directions.of(system.factor, factor.solve(system.factor), coef).step(eta)
    return coef, diagnose(A, system.gram, rounding=rounding, factor=factor)


def limited(path: AlphaSlice, unfairness: float) -> tuple[Array, float]:
    """Return β (m, t) at the least η that meets the limit, rescaled, and η; ∞ where none does."""
    spectrum, eta = path.spectrum, None
    if unfairness <= limit.ROUNDED_SHARE:
        at = limit.optimum_without(path.quadratic())
    elif (eta := limit.least_eta(path, unfairness)) is None:
        at = limit.optimum_within(path.quadratic(), unfairness).coef
    elif eta == 0:
        return np.asarray(spectrum.basis @ path.ridge), eta
    else:
        at = path.coordinates(np.array([eta]))[0]
    both = np.stack([path.ridge, at])
    if np.isnan(limit.path_shares(spectrum.share_factor, spectrum.deviation, both)[0]):
        limit.check_attainable(path.quadratic(), unfairness)
        raise limit.only_a_constant(unfairness, path.alpha)
    at = at * best_scale(at, spectrum.values[:, None] * at, spectrum.target)
    return np.asarray(spectrum.basis @ at), np.inf if eta is None else eta


class StationaryPoint(NamedTuple):
    """A stationary point: its coordinates in the eigenbasis, the η it belongs to, and k."""

    coordinates: Array
    eta: float
    k: float


def solve_output_nocco(system: System, spectrum: Spectrum, alpha: float, eta: float, eps: float) -> Array:
    """Minimise 1/n|y − b − Φβ|² + α|β|² + η|Rᵀβ|²/(βᵀCβ + ε Var y); return β (m, t)."""
    if not system.fit_intercept:
        raise ValueError("penalty='nocco_output' needs fit_intercept=True: it is centred throughout")
    if eta == 0 or spectrum.factor.shape[1] == 0 or not spectrum.target.any():
        return np.asarray(spectrum.basis @ spectrum.at(alpha).ridge)
    if np.isinf(eta):  # the share must vanish, which is the same limit as for `normalized`
        return np.asarray(spectrum.at(alpha).coef(np.array([np.inf]))[0])

    unit, eps = spread(system), max(eps, LEAST_EPS)
    spectrum, eta = replace(spectrum, target=spectrum.target / unit), eta / unit**2
    points = stationary_points(spectrum, alpha, eta, eps)
    ends = spectrum.at(alpha).coordinates(np.array([0.0, np.inf]))
    others = [descend(spectrum, end, alpha, eta, eps) for end in ends]
    values = [objective(spectrum, point, alpha, eta, eps)[0] for point in [*points, *others]]
    # A descent is less accurate than a root: it is taken only if it is clearly better.
    values[: len(points)] = [value - TIE for value in values[: len(points)]]
    best = [*points, *others][int(np.argmin(values))]
    return np.asarray(unit * (spectrum.basis @ best))


def descend(spectrum: Spectrum, start: Array, alpha: float, eta: float, eps: float) -> Array:
    """Return the minimum that L-BFGS reaches: the only way to points with k ≤ 0 (large ridges)."""
    scale = np.sqrt(spectrum.values + alpha)[:, None]

    def value(z: Array) -> tuple[float, Array]:
        J, slope = objective(spectrum, z.reshape(start.shape) / scale, alpha, eta, eps)
        return J, (slope / scale).ravel()

    options = {"maxiter": 500, "gtol": 1e-10, "ftol": 1e-15}
    result = minimize(  # type: ignore[call-overload]
        value, (scale * start).ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(result.x.reshape(start.shape) / scale)


def stationary_points(spectrum: Spectrum, alpha: float, eta: float, eps: float) -> list[Array]:
    """Return the coordinates of all stationary points at one η."""

    def excess(log_h: float) -> float:
        return stationary(spectrum, alpha, float(np.exp(log_h)), eps).eta - eta

    grid = _grid(spectrum, alpha, eta, eps)
    signs = np.sign([excess(h) for h in grid])
    starts = np.flatnonzero(np.diff(signs))
    roots = [float(brentq(excess, grid[i], grid[i + 1], xtol=1e-14, rtol=1e-14)) for i in starts]
    points = [stationary(spectrum, alpha, float(np.exp(root)), eps) for root in roots]
    return [point.coordinates for point in points if point.k > LEAST]


def _grid(spectrum: Spectrum, alpha: float, eta: float, eps: float) -> Array:
    """Return log h to scan: where η(h) may turn, and to h = η/D, its value far from there."""
    at = spectrum.at(alpha)
    scan = SCAN / at.strength.max()
    free, fair = (_variances(spectrum, at.coordinates(np.array([e]))[0])[1] for e in (0.0, np.inf))
    least = min(0.1 * eta / (free + eps), 0.1 * scan[0])
    most = max(10 * eta / max(fair + eps, 1e-9 * free), 10 * scan[-1])
    return np.log([least, *scan, most])


def stationary(spectrum: Spectrum, alpha: float, h: float, eps: float) -> StationaryPoint:
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
    return StationaryPoint(point / k, h * (variance / k + eps * k), k)


def objective(spectrum: Spectrum, point: Array, alpha: float, eta: float, eps: float) -> tuple[float, Array]:
    """Return J at a point, up to the variance of y, and its gradient."""
    explained, variance = _variances(spectrum, point)
    D = max(variance + eps, np.finfo(float).tiny)
    ridge = (spectrum.values + alpha)[:, None] * point
    J = float(np.sum((ridge - 2 * spectrum.target) * point)) + eta * explained / D
    factor, along = spectrum.factor, spectrum.values[:, None] * point
    share = factor @ (factor.T @ point) - explained / D * along
    return J, 2 * (ridge - spectrum.target + eta / D * share)


def _variances(spectrum: Spectrum, point: Array) -> tuple[float, float]:
    """|Rᵀβ|² and βᵀCβ."""
    explained = float(np.sum((spectrum.factor.T @ point) ** 2))
    return explained, float(np.sum(spectrum.values[:, None] * point**2))
