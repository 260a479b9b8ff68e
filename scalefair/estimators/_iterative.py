"""Wide feature maps: the fit by conjugate gradients over the rows, without m×m moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._checks import check_weight_or_limit
from scalefair.estimators._data import TrainingData
from scalefair.estimators._progress import steps
from scalefair.solve.diagnostics import judged
from scalefair.solve.iterative import solve_iterative
from scalefair.solve.limited_ridge import limited
from scalefair.solve.streamed import StreamedSystem
from scalefair.statistics.products import stream_moments

WIDE = 8000
"""Features from which on the m×m eigenproblem is out of reach."""

SOLVERS = ("auto", "direct", "iterative")


def is_iterative(solver: str, width: int) -> bool:
    """Say whether to solve by conjugate gradients."""
    return solver == "iterative" or (solver == "auto" and width >= WIDE)


def solve_streamed(estimator: Any, data: TrainingData) -> None:
    """Set the coefficients of an estimator whose maps are learnt, by passes over the rows."""
    if estimator.penalty in ("nocco", "nocco_output"):
        raise ValueError(
            f"penalty={estimator.penalty!r} needs the m×m moments, which solver='iterative' does "
            "without; use solver='direct', or penalty='normalized' or 'hsic'"
        )
    if estimator.output_kernel is not None:
        raise ValueError(
            f"output_kernel={estimator.output_kernel!r} starts from the closed form, which "
            "solver='iterative' does without; use solver='direct' or fewer n_components"
        )
    row_map = estimator._row_map(None)
    moments, gram = stream_moments(data.source, row_map, rows=estimator.chunk_rows)
    estimator.moments_ = moments
    ratio, alpha = estimator._ridges()["psi"], estimator._ridges()["phi"]
    options = estimator._system_options(ratio, estimator.eps)
    system = StreamedSystem.stream(moments, gram, **options)
    with steps(estimator, "iterations", None) as tell:
        fit = solve_iterative(system, alpha, seed=data.seed, progress=lambda *_: tell())
    eta, unfairness = check_weight_or_limit(estimator.eta, estimator.unfairness)
    if unfairness is None:
        coef, found = fit.slice.coef(np.array([eta]))[0], eta
    else:
        coef, found = limited(fit.slice, unfairness)
    estimator.eta_, estimator.n_iter_ = found, fit.n_iter
    # Nobody has seen the least eigenvalue, which is at least α.
    condition = 1.0 + fit.largest / alpha
    judgement = judged(condition, None, len(system.scale), estimator._rounding())
    estimator._judge(system, alpha, judgement)
    estimator._set_solution(system.solution(coef))
    estimator.explained_share_ = system.explained_share(coef)
