"""Wide feature maps: the fit by conjugate gradients over the rows, without m×m moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair.estimators._data import TrainingData
from scalefair.estimators._progress import steps
from scalefair.moments.products import CrossMoments, stream_moments
from scalefair.solve.diagnostics import judged, rounding_of
from scalefair.solve.fit import RidgeFit, Spec
from scalefair.solve.ridge.direct import ridge_fit
from scalefair.solve.ridge.iterative import solve_iterative
from scalefair.solve.ridge.limited import limited
from scalefair.solve.ridge.streamed import StreamedSystem

WIDE = 8000
"""Features from which on the m×m eigenproblem is out of reach."""

SOLVERS = ("auto", "direct", "iterative")


def is_iterative(solver: str, width: int) -> bool:
    """Return True if to solve by conjugate gradients."""
    return solver == "iterative" or (solver == "auto" and width >= WIDE)


def fit_streamed(estimator: Any, data: TrainingData, spec: Spec) -> tuple[CrossMoments, RidgeFit]:
    """Return the moments and the fit of maps that are learnt, by passes over the rows."""
    _check_streamed(estimator)
    design = estimator._row_map(None)
    moments, gram = stream_moments(data.source, design, rows=estimator.chunk_rows)
    options = estimator._system_options(moments, estimator._ridges()["psi"], spec.eps)
    system = StreamedSystem.stream(moments, gram, **options)
    with steps(estimator, "iterations", None) as progress:
        result = solve_iterative(system, spec.alpha, seed=data.seed, progress=lambda *_: progress())
    if spec.unfairness is None:
        coef, eta = result.slice.coef(np.array([spec.eta]))[0], spec.eta
    else:
        coef, eta = limited(result.slice, spec.unfairness)
    # Nobody has seen the least eigenvalue, which is at least α.
    condition = 1.0 + result.largest / spec.alpha
    rounding = rounding_of(spec.dtype, moments.n_rows)
    diagnostics = judged(condition, None, len(system.scale), rounding)
    return moments, ridge_fit(system, coef, eta, diagnostics, n_iter=result.n_iter)


def _check_streamed(estimator: Any) -> None:
    """Raise ValueError if something is asked for that needs the m×m moments."""
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
