"""Wide feature maps: the ridge by conjugate gradients over the rows, without m×m moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair.moments.products import CrossMoments, stream_moments
from scalefair.solve.diagnostics import digits_left, rounding_of
from scalefair.solve.fit import RidgeFit
from scalefair.solve.ridge.direct import limited, ridge_fit
from scalefair.solve.ridge.iterative import StreamedSystem, solve_iterative
from scalefair.solve.spec import Rows, Spec

WIDE = 8000
"""Features from which on the m×m eigenproblem is out of reach."""


def fit_wide(
    rows: Rows, spec: Spec, ridge: Any, *, fit_intercept: bool, seed: int
) -> tuple[CrossMoments, RidgeFit]:
    """Return the moments of all but φφᵀ, and the fit; `ridge` makes the ridges of features."""
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
    with rows.progress.steps("iterations") as step:
        result = solve_iterative(system, spec.alpha, seed=seed, progress=lambda *_: step())
    if spec.unfairness is None:
        coef, eta = result.slice.coef(np.array([spec.eta]))[0], spec.eta
    else:
        coef, eta = limited(result.slice, spec.unfairness)
    # Nobody has seen the least eigenvalue, which is at least α.
    condition = 1.0 + result.largest / spec.alpha
    rounding = rounding_of(spec.dtype, moments.n_rows)
    diagnostics = digits_left(condition, None, len(system.scale), rounding)
    return moments, ridge_fit(system, coef, eta, diagnostics, n_iter=result.n_iter)
