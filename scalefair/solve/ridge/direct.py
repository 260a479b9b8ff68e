"""The fair ridge at one α, from its system: a weight, a limit, or the share itself as the penalty.

    (C + αD + ηRRᵀ) β = c

A weight takes one Cholesky factor. Under a limit the direction of β comes from the path of all η,
or from beyond it; its length is then the best one, which is free: the share does not depend on it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalefair._linalg import Factor, factorize
from scalefair._typing import Array
from scalefair.penalties.factors import DEFAULT_EPS
from scalefair.solve.diagnostics import Diagnostics, diagnose, rounding_of
from scalefair.solve.fit import RidgeFit
from scalefair.solve.limit import (
    ROUNDED_SHARE,
    check_attainable,
    least_eta,
    only_a_constant,
    optimum_within,
    optimum_without,
    path_shares,
)
from scalefair.solve.output.nocco import solve_output_nocco
from scalefair.solve.ridge.path import AlphaSlice, Spectrum
from scalefair.solve.ridge.system import Directions, System, best_scale
from scalefair.solve.spec import Spec


def fit_ridge(system: System, spec: Spec) -> RidgeFit:
    """Return the fit of a system at one α, with a weight or under a limit."""
    if spec.unfairness is not None:
        coef, eta = limited(Spectrum.of(system).at(spec.alpha), spec.unfairness)
    elif spec.penalty == "nocco_output":
        eps = DEFAULT_EPS if spec.eps is None else spec.eps
        coef, eta = solve_output_nocco(system, spec.alpha, spec.eta, eps), spec.eta
    else:
        rounding = rounding_of(spec.dtype, system.moments.n_rows)
        coef, diagnostics = diagnosed_primal(system, spec.alpha, spec.eta, rounding)
        return ridge_fit(system, coef, spec.eta, diagnostics)
    return ridge_fit(system, coef, eta, diagnosed(system, spec))


def ridge_fit(
    system: System,
    coef: Array,
    eta: float,
    diagnostics: Diagnostics,
    *,
    n_iter: int | None = None,
    output_share: float | None = None,
) -> RidgeFit:
    """Return a fit from its coefficients: the intercept and the share follow."""
    solution, share = system.solution(coef), system.explained_share(coef)
    return RidgeFit(solution, eta, share, diagnostics, n_iter, output_share)


def diagnosed(system: System, spec: Spec) -> Diagnostics:
    """Return what rounding leaves of solutions at α, by eigenvectors."""
    matrix = system.gram + spec.alpha * np.diag(system.ridge)
    rounding = rounding_of(spec.dtype, system.moments.n_rows)
    return diagnose(matrix, system.gram, rounding=rounding, scaled=False)


def solve_primal(system: System, alpha: float, eta: float) -> tuple[Array, float]:
    """Solve (C + αD + ηRRᵀ) β = c; return β of shape (m, t) and the relative jitter needed."""
    factor = factorize(system.gram + alpha * np.diag(system.ridge))
    return _penalized(system, factor, eta), factor.jitter


def diagnosed_primal(
    system: System, alpha: float, eta: float, rounding: float
) -> tuple[Array, Diagnostics]:
    """Return β as `solve_primal` does, and what rounding has left of it."""
    A = system.gram + alpha * np.diag(system.ridge)
    factor = factorize(A)
    coef = _penalized(system, factor, eta)
    return coef, diagnose(A, system.gram, rounding=rounding, factor=factor)


def _penalized(system: System, factor: Factor, eta: float) -> Array:
    """β by Woodbury's identity, from a factor of A = C + αD."""
    coef = factor.solve(system.target)
    if eta == 0 or system.factor.shape[1] == 0:
        return coef
    return coef - Directions.of(system.factor, factor.solve(system.factor), coef).step(eta)


class LimitedFit(NamedTuple):
    """β of shape (m, t), rescaled, and the η that gave its direction."""

    coef: Array
    eta: float


def limited(path: AlphaSlice, unfairness: float) -> LimitedFit:
    """Return the fit at α whose explained share is at most `unfairness`, with the least η.

    If the ridge fit is within the limit already, it is returned as it is: the limit is not active.
    η = ∞ is reported where no η on the path is enough, and for `unfairness=0`.
    """
    spectrum, eta = path.spectrum, None
    if unfairness <= ROUNDED_SHARE:
        at = optimum_without(path.quadratic())
    elif (eta := least_eta(path, unfairness)) is None:
        at = optimum_within(path.quadratic(), unfairness).coef
    elif eta == 0:
        return LimitedFit(np.asarray(spectrum.basis @ path.ridge), eta)
    else:
        at = path.coordinates(np.array([eta]))[0]
    both = np.stack([path.ridge, at])
    if np.isnan(path_shares(spectrum.share_factor, spectrum.deviation, both)[0]):
        check_attainable(path.quadratic(), unfairness)
        raise only_a_constant(unfairness, path.alpha)
    at = at * best_scale(at, spectrum.values[:, None] * at, spectrum.target)
    return LimitedFit(np.asarray(spectrum.basis @ at), np.inf if eta is None else eta)
