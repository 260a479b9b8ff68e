"""The fair ridge from its system: a weight, a limit, or the share itself as the penalty."""

from __future__ import annotations

from scalefair._typing import Array
from scalefair.penalties.factors import DEFAULT_EPS
from scalefair.solve.diagnostics import Diagnostics, diagnose, rounding_of
from scalefair.solve.fit import RidgeFit, Spec
from scalefair.solve.output.nocco import solve_output_nocco
from scalefair.solve.ridge.limited import solve_under_limit
from scalefair.solve.ridge.primal import judged_primal, ridged
from scalefair.solve.ridge.system import System


def fit_ridge(system: System, spec: Spec) -> RidgeFit:
    """Return the fit of a system at one α, with a weight or under a limit."""
    if spec.unfairness is not None:
        coef, eta = solve_under_limit(system, spec.alpha, spec.unfairness)
    elif spec.penalty == "nocco_output":
        eps = DEFAULT_EPS if spec.eps is None else spec.eps
        coef, eta = solve_output_nocco(system, spec.alpha, spec.eta, eps), spec.eta
    else:
        rounding = rounding_of(spec.dtype, system.moments.n_rows)
        coef, diagnostics = judged_primal(system, spec.alpha, spec.eta, rounding)
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
    matrix, rounding = ridged(system, spec.alpha), rounding_of(spec.dtype, system.moments.n_rows)
    return diagnose(matrix, system.gram, rounding=rounding, scaled=False)
