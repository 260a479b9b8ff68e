"""The fit of a general loss: Newton's method, then L-BFGS where the penalty is no square of β."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from scalefair._typing import Array
from scalefair.features.design import PREDICT_ROWS, chunk_rows
from scalefair.moments.accumulate import FeatureCache
from scalefair.solve.fit import LossFit
from scalefair.solve.newton.descent import Goal, newton
from scalefair.solve.newton.model import Problem
from scalefair.solve.output.fit import fit_loss_with_output
from scalefair.solve.ridge.system import System
from scalefair.solve.spec import Rows, Spec


def loss_problem(rows: Rows, loss: Any, system: System, cache: FeatureCache | None) -> Problem:
    """Return the objective of a loss over rows whose moments are known."""
    size = rows.chunk_rows or chunk_rows(rows.design.blocks["phi"], rows.design.dtype)
    return Problem(rows.source, rows.design, loss, system, size, cache)


def fit_loss(  # noqa: PLR0917
    rows: Rows,
    problem: Problem,
    spec: Spec,
    output_kernel: Any,
    tol: float,
    max_iter: int,
) -> LossFit:
    """Return the fit at a weight or under a limit; `output_kernel` sees the distribution of f."""
    nonlinear = output_kernel is not None or (
        spec.penalty == "nocco_output" and spec.unfairness != 0  # the limit 0 is the linear one's
    )
    with (
        rows.progress.watched(rows.source, problem.rows or PREDICT_ROWS) as source,
        rows.progress.steps("iterations") as step,
    ):
        watched = replace(problem, source=source)
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "progress": step}
        if nonlinear and rows.design.psi is not None:
            solve = partial(newton, watched, **options)
            return fit_loss_with_output(
                rows, watched, spec, output_kernel, newton=solve, progress=step
            )
        goal = Goal(spec.alpha, spec.eta, spec.unfairness)
        return watched.fit(newton(watched, goal, **options), spec)


def loss_path(
    problem: Problem, spec: Spec, etas: Array, tol: float, max_iter: int
) -> list[LossFit]:
    """Return the fits at increasing weights, each starting where the one before ended."""
    fits, warm = [], None
    for eta in etas:
        # The limit of η → ∞ starts anew: until Rᵀβ is 0, no step can be compared with another.
        warm = None if eta == float("inf") else warm
        result = newton(problem, Goal(spec.alpha, float(eta)), warm=warm, tol=tol,
                        max_iter=max_iter)  # fmt: skip
        fits.append(problem.fit(result, spec))
        warm = result.local
    return fits
