"""The search for the largest log evidence per row, −½(log|K| + yᵀK⁻¹y)/n, by L-BFGS-B."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array
from scalefair.data.progress import Progress
from scalefair.solve.fit import Search
from scalefair.solve.spec import Bounds, ProcessSpec

# Bounds of the variables; equal ones fix a variable
Box = Sequence[tuple[float | None, float | None]]
# Log evidence, its gradient, and the weight of all rows times the number of outputs
Objective = Callable[[Array], tuple[float, Array, float]]
ABNORMAL = 2  # status of L-BFGS-B where its line search fails, as it may at a kink
MAX_STRETCH = np.log(1e3)  # default bounds of a log length scale: so much below and above its start
# Slope per row, relative to the evidence per row, that rounding may hide from a line search
MAX_FLAT_SLOPE = 1e-5
# Times a search goes on from where its line search failed, with its memory of slopes wiped
MAX_CONTINUED = 3
MAX_NAMES = 8  # names that a sentence lists
# Length scales, relative to the start, to look at where the evidence shows no signal there
ELSEWHERE = np.log([0.3, 0.1, 3.0])


@dataclass(eq=False)
class _Objective:
    """−log evidence per row; where it is not finite there is a wall to turn back from."""

    evidence: Objective
    step: Callable[[], None]
    scale: float = 1.0
    history: list[float] = field(default_factory=list)
    walls: int = 0
    reason: str = ""

    def __call__(self, hyper: Array) -> tuple[float, Array]:
        try:
            value, gradient, self.scale = self.evidence(hyper)
            self.step()
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise ValueError(f"the log evidence is {value}")
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            if not self.history:
                raise ValueError(f"no finite evidence to start from: {error}") from error
            self.walls, self.reason = self.walls + 1, str(error)
            return 1.0 - min(self.history) / self.scale, np.zeros_like(hyper)
        self.history.append(float(value))
        return -value / self.scale, -gradient / self.scale


class _Evidence(Protocol):
    """The log evidence as a function of hyperparameters, its gradient, and n·t."""

    @property
    def spec(self) -> ProcessSpec: ...
    @property
    def start(self) -> Array: ...
    @property
    def bounds(self) -> Box: ...
    def learning_eta(self) -> float: ...
    def __call__(self, hyper: Array, eta: float) -> tuple[float, Array, float]: ...


def search(evidence: _Evidence, progress: Progress) -> Search:
    """Search from the start and from random ones, as far as something is free."""
    start, bounds, spec = evidence.start, evidence.bounds, evidence.spec
    if all(low is not None and low == high for low, high in bounds):
        return Search(start, np.nan)
    eta = spec.eta
    if spec.unfairness is not None or not np.isfinite(eta):
        eta = evidence.learning_eta()
    starts, spare = _starts(start, bounds, spec.n_restarts, spec.seed)
    with progress.steps("evaluations") as step:
        value = partial(evidence, eta=eta)
        return maximise(
            value, starts, bounds, tol=spec.tol, max_iter=spec.max_iter, spare=spare, step=step
        )


def scale_bounds(scales: Array, spec: ProcessSpec) -> list[Bounds]:
    """Return the bounds of log length scales that start there; equal ones are not learnt."""
    if not spec.learn_scales:
        return [(at, at) for at in scales]
    if spec.length_scale_bounds is None:
        return [(at - MAX_STRETCH, at + MAX_STRETCH) for at in scales]
    low, high = np.log(spec.length_scale_bounds)
    return [(float(low), float(high))] * len(scales)


def _starts(start: Array, bounds: Box, restarts: int, seed: int) -> tuple[list[Array], list[Array]]:
    """Return the start and random ones about it, and shorter and longer length scales."""
    low = np.array([-np.inf if pair[0] is None else pair[0] for pair in bounds])
    high = np.array([np.inf if pair[1] is None else pair[1] for pair in bounds])
    bounded = np.isfinite(low)
    rng = np.random.default_rng(seed)
    random = [bounded * rng.normal(size=len(start)) for _ in range(restarts)]
    near, spare = [np.zeros(len(start)), *random], [bounded * step for step in ELSEWHERE]
    return (
        [np.clip(start + step, low, high) for step in near],
        [np.clip(start + step, low, high) for step in spare],
    )


def maximise(
    evidence: Objective, starts: Sequence[Array], bounds: Box, *, tol: float, max_iter: int,
    spare: Sequence[Array] = (), step: Callable[[], None] = lambda: None,
) -> Search:  # fmt: skip
    """Return the largest log evidence that L-BFGS-B finds from any of the starts.

    `spare` starts are for the case that the first is on a plateau, where no slope shows the way.
    """
    objective = _Objective(evidence, step)
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-3 * tol}
    result = Search(starts[0], -np.inf)
    iterations = 0
    for number, start in enumerate([*starts, *spare]):
        if number >= len(starts) and iterations > 0:
            break
        run = _run(objective, start, bounds, options)
        iterations += run.n_iter
        if run.value > result.value:
            result = run
    if objective.walls:
        warnings.warn(
            f"the evidence was not finite at {objective.walls} points that the search turned back "
            f"from ({objective.reason}); narrow length_scale_bounds if the result looks odd",
            ConvergenceWarning,
            stacklevel=2,
        )
    history = objective.history
    return replace(result, n_iter=iterations, n_evaluations=len(history), history=history)


def _run(objective: _Objective, start: Array, bounds: Box, options: Any) -> Search:
    """Run from one start, on and on where the line search fails but the run got somewhere."""
    used, last = 0, np.inf
    for _ in range(1 + MAX_CONTINUED):
        run = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        used += int(run.nit)
        if run.status != ABNORMAL or not run.fun < last - 1e-12 * (1 + abs(run.fun)):
            break
        start, last = run.x, float(run.fun)
    value, converged, message = -float(run.fun) * objective.scale, run.status == 0, str(run.message)
    if run.status == ABNORMAL:
        low, high = np.array(bounds, dtype=np.float64).T  # None: NaN, which fmin, fmax pass over
        way = run.x - np.fmin(np.fmax(run.x - run.jac, low), high)
        slope = float(np.abs(way).max(initial=0.0))
        converged = slope <= MAX_FLAT_SLOPE * max(1.0, abs(run.fun))
        reason = "within rounding of the evidence" if converged else "too much to be at a maximum"
        message = f"the line search failed at a slope of {slope:.2g} per row, {reason}"
    return Search(run.x, value, converged, message, used)


def scale_sentences(search: Search, bounds: Box, scales: int, names: Sequence[str]) -> list[str]:
    """Return what is to be said of the length scales, the first `scales`, that ran to a bound."""
    if scales == 1:
        names = ["all inputs"]
    elif scales != len(names):
        names = [f"theta[{i}]" for i in range(scales)]
    hits: dict[int, list[str]] = {0: [], 1: []}
    for value, pair, name in zip(search.hyper[:scales], bounds, names, strict=False):
        for end in (0, 1):
            bound = pair[end]
            if pair[0] != pair[1] and bound is not None and abs(value - bound) < 1e-6:
                hits[end].append(name)
    meaning = (
        "the fit looks at single rows there, often for noise too small or rows that repeat",
        "such inputs hardly matter for the fit, or the fit is linear in them",
    )
    most = MAX_NAMES
    listed = [
        ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
        for names in hits.values()
    ]
    return [
        f"length scale of {listed[end]} ran to its {('lower', 'upper')[end]} bound: "
        f"{meaning[end]}; leave those inputs out, fix the length scale, or widen "
        "length_scale_bounds"
        for end in (0, 1)
        if hits[end]
    ]
