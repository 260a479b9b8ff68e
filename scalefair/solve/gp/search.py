"""The search for the largest evidence: L-BFGS-B with restarts, and what to say of how it ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array

Bounds = Sequence[tuple[float | None, float | None]]
Evidence = Callable[[Array], tuple[float, Array, float]]
"""Log evidence, its gradient, and the weight of all rows times the number of outputs."""

ABNORMAL = 2
"""Status of L-BFGS-B where its line search fails, as it may at a kink."""

FLAT = 1e-5
"""Slope per row, relative to the evidence per row, that rounding may hide from a line search."""

CONTINUED = 3
"""Times a search goes on from where its line search failed, with its memory of slopes wiped."""


@dataclass(frozen=True, eq=False)
class Search:
    """Where the search ended.

    Parameters
    ----------
    place : array of shape (p,)
        The best point of all starts.
    value : float
        Log evidence there.
    converged : bool
        Whether the run that found it ended by its tolerance, or where no slope is left.
    message : str
        How that run ended.
    n_iter, n_evaluations : int
        Of all runs.
    history : list of float
        Log evidence of every evaluation.
    """

    place: Array
    value: float
    converged: bool = True
    message: str = "nothing to search for"
    n_iter: int = 0
    n_evaluations: int = 0
    history: list[float] = field(default_factory=list)


@dataclass(eq=False)
class _Objective:
    """−log evidence per row; a place without a finite one is a wall to turn back from."""

    evidence: Evidence
    scale: float = 1.0
    history: list[float] = field(default_factory=list)
    walls: int = 0
    reason: str = ""

    def __call__(self, place: Array) -> tuple[float, Array]:
        try:
            value, gradient, self.scale = self.evidence(place)
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise ValueError(f"the log evidence is {value}")
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            if not self.history:
                raise ValueError(f"no finite evidence to start from: {error}") from error
            self.walls, self.reason = self.walls + 1, str(error)
            return 1.0 - min(self.history) / self.scale, np.zeros_like(place)
        self.history.append(float(value))
        return -value / self.scale, -gradient / self.scale


def maximise(
    evidence: Evidence,
    starts: Sequence[Array],
    bounds: Bounds,
    *,
    tol: float,
    max_iter: int,
    spare: Sequence[Array] = (),
) -> Search:
    """Return the largest log evidence that L-BFGS-B finds from any of the starts.

    Parameters
    ----------
    evidence : callable
        Log evidence and gradient at a place, and what they are divided by.
    starts : list of arrays of shape (p,)
    bounds : p pairs
    tol : float
        A run has converged where the largest slope per row is below it.
    max_iter : int
        Of each run.
    spare : list of arrays of shape (p,)
        Further starts for the case that the first is on a plateau, where no slope shows the way.
    """
    objective = _Objective(evidence)
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-3 * tol}
    found = Search(starts[0], -np.inf)
    iterations = 0
    for number, start in enumerate([*starts, *spare]):
        if number >= len(starts) and iterations > 0:
            break
        run, used = _run(objective, start, bounds, options)
        iterations += used
        value = -float(run.fun) * objective.scale
        if value > found.value:
            found = Search(run.x, value, *_end(run, bounds))
    if objective.walls:
        warnings.warn(
            f"the evidence was not finite at {objective.walls} places that the search turned back "
            f"from ({objective.reason}); narrow length_scale_bounds if the result looks odd",
            ConvergenceWarning,
            stacklevel=2,
        )
    history = objective.history
    return replace(found, n_iter=iterations, n_evaluations=len(history), history=history)


def _run(
    objective: _Objective, start: Array, bounds: Bounds, options: Any
) -> tuple[OptimizeResult, int]:
    """Run from one start, on and on where the line search fails but the run got somewhere."""
    used, last = 0, np.inf
    for _ in range(1 + CONTINUED):
        run = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        used += int(run.nit)
        if run.status != ABNORMAL or not run.fun < last - 1e-12 * (1 + abs(run.fun)):
            break
        start, last = run.x, float(run.fun)
    return run, used


def _end(run: OptimizeResult, bounds: Bounds) -> tuple[bool, str]:
    """Return whether a run converged, and how it ended.

    A line search also fails where rounding hides what is left to gain: then the slope is small.
    """
    if run.status != ABNORMAL:
        return run.status == 0, str(run.message)
    low, high = np.array(bounds, dtype=np.float64).T  # None: NaN, which fmin and fmax pass over
    way = run.x - np.fmin(np.fmax(run.x - run.jac, low), high)
    slope = float(np.abs(way).max(initial=0.0))
    flat = slope <= FLAT * max(1.0, abs(run.fun))
    reason = "within rounding of the evidence" if flat else "too much to be at a maximum"
    return flat, f"the line search failed at a slope of {slope:.2g} per row, {reason}"


def warn_of_end(search: Search, max_iter: int) -> None:
    """Warn where the search stopped before it converged."""
    if not search.converged:
        warnings.warn(
            f"the search for length scales stopped after {search.n_iter} iterations before it "
            f"converged ({search.message}); raise max_iter={max_iter}, or tol",
            ConvergenceWarning,
            stacklevel=2,
        )


def warn_of_bounds(place: Array, bounds: Bounds, names: Sequence[str]) -> tuple[str, ...]:
    """Warn of the length scales that ran to a bound; return the sentences."""
    hits: dict[int, list[str]] = {0: [], 1: []}
    for value, pair, name in zip(place, bounds, names, strict=False):
        for end in (0, 1):
            bound = pair[end]
            if pair[0] != pair[1] and bound is not None and abs(value - bound) < 1e-6:
                hits[end].append(name)
    meaning = (
        "the fit looks at single rows there, often for noise too small or rows that repeat",
        "such inputs hardly matter for the fit, or the fit is linear in them",
    )
    sentences = tuple(
        f"length scale of {_listed(hits[end])} ran to its {('lower', 'upper')[end]} bound: "
        f"{meaning[end]}; leave those inputs out, fix the length scale, or widen "
        "length_scale_bounds"
        for end in (0, 1)
        if hits[end]
    )
    for sentence in sentences:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return sentences


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
