"""fairlearn's reductions: a learner is refitted with new weights until the groups agree.

DemographicParity bounds |E[h|s] − E h| of decisions h, for each group: its square, weighted with
the groups, is share × Var f. BoundedGroupLoss bounds the worst group's mean squared error, which
is another goal: predictions may differ between the groups as much as the target does. Groups are
cells: a continuous s is cut into bins. Predictions are the mixture's mean, which has less error
than a draw from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.peers._task import Method, Points, Task

GAPS = (0.01, 0.04, 0.1)
FACTORS = (0.93, 1.0)
GRID = 12


def linear(task: Task) -> Any:
    n = len(task.y)
    # α = 1e-6 as in scikit.py: C = 1/(2nα). The reduction's weights have mean 1, so a = nα stays.
    return LogisticRegression(C=1 / (2e-6 * n), max_iter=300) if task.decides else Ridge(1e-5 * n)


def trees(task: Task) -> Any:
    kind = HistGradientBoostingClassifier if task.decides else HistGradientBoostingRegressor
    return kind(max_iter=3 if task.quick else 100, early_stopping=False, random_state=0)


def constraint(task: Task, bound: float | None) -> Any:
    from fairlearn.reductions import BoundedGroupLoss, DemographicParity, SquareLoss

    if task.decides:
        return DemographicParity(difference_bound=bound)
    return BoundedGroupLoss(SquareLoss(task.y.min(), task.y.max()), upper_bound=bound)


def bounds(task: Task, learner: Any) -> list[float]:
    """Gaps, or worst group's losses around what the learner has by itself."""
    if task.decides:
        return list(GAPS[1:2] if task.quick else GAPS)
    error = (task.y - learner.fit(task.arrays[0], task.y).predict(task.arrays[0])) ** 2
    worst = pd.Series(error).groupby(task.cells[0]).mean().max()
    return [float(factor * worst) for factor in (FACTORS[:1] if task.quick else FACTORS)]


def gradient(task: Task, learner: Callable[[Task], Any]) -> Points:
    from fairlearn.reductions import ExponentiatedGradient

    (Z, Z_test), (cells, _) = task.arrays, task.cells
    for bound in bounds(task, learner(task)):
        model = ExponentiatedGradient(
            learner(task), constraint(task, bound), max_iter=3 if task.quick else 50
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(Z, _target(task), sensitive_features=cells)
        weights = np.asarray(model.weights_.reindex(range(len(model.predictors_)), fill_value=0.0))
        parts = zip(weights, model.predictors_, strict=True)
        yield bound, sum(weight * part.predict(Z_test) for weight, part in parts if weight > 0)


def grid(task: Task, learner: Callable[[Task], Any]) -> Points:
    from fairlearn.reductions import GridSearch

    (Z, Z_test), (cells, _) = task.arrays, task.cells
    # Points of a simplex over all groups: few for ten groups or more, and already as many fits.
    search = GridSearch(learner(task), constraint(task, None), grid_size=5 if task.quick else GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(Z, _target(task), sensitive_features=cells)
    for number, model in enumerate(search.predictors_):
        score = hasattr(model, "predict_proba") and task.decides
        yield float(number), model.predict_proba(Z_test)[:, -1] if score else model.predict(Z_test)


def _target(task: Task) -> Any:
    return task.y.astype(int) if task.decides else task.y


def _method(how: Any, learner: Any, decides: bool) -> Method:
    name = {gradient: "ExponentiatedGradient", grid: "GridSearch"}[how]
    goal, kind = ("DemographicParity", "rate") if decides else ("BoundedGroupLoss", "number")
    inside = "trees" if learner is trees else "linear"
    return Method(
        f"fairlearn {name} {goal}, {inside}", lambda task: how(task, learner), kinds=(kind,),
        most=20_000 if learner is trees else None, needs="fairlearn", reduction=True,
    )  # fmt: skip


METHODS = tuple(
    _method(how, learner, decides)
    for decides in (True, False)
    for how in (gradient, grid)
    for learner in (linear, trees)
)
