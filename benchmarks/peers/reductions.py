"""fairlearn's reductions: a learner is refitted with new weights until the groups agree.

DemographicParity bounds |E[h|s] − E h| of decisions h, for each group: its square, weighted with
the groups, is share × Var f. BoundedGroupLoss bounds the worst group's mean squared error, which
is another goal: predictions may differ between the groups as much as the target does. Groups are
cells: a continuous s is cut into bins. Predictions are the mixture's mean, which has less error
than a draw from it. Frames lose their categories on the way through fairlearn: a linear learner
gets one-hot columns, trees get codes, on which they fit several times as fast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.peers._task import Method, Points, Task

GAPS = (0.01, 0.04, 0.1)
FACTORS = (0.93, 1.0)
GRID = 12
MOST = 100_000
"""Rows for trees that ExponentiatedGradient fits most often for one model, as it does for gaps."""


@dataclass(frozen=True)
class Learner:
    """What a reduction refits, and the inputs as it takes them."""

    model: Any
    Z: Any
    Z_test: Any


def linear(task: Task) -> Learner:
    n = len(task.y)
    # α = 1e-6 as in scikit.py: C = 1/(2nα). The reduction's weights have mean 1, so a = nα stays.
    logistic = LogisticRegression(C=1 / (2e-6 * n), max_iter=300)
    return Learner(logistic if task.decides else Ridge(1e-5 * n), *task.arrays)


def trees(task: Task) -> Learner:
    return Learner(task.default_trees(task.categories), *task.codes)


def constraint(task: Task, bound: float | None) -> Any:
    from fairlearn.reductions import BoundedGroupLoss, DemographicParity, SquareLoss

    if task.decides:
        return DemographicParity(difference_bound=bound)
    return BoundedGroupLoss(SquareLoss(task.y.min(), task.y.max()), upper_bound=bound)


def bounds(task: Task, learner: Learner) -> list[float]:
    """Gaps, or worst group's losses around what the learner has by itself."""
    if task.decides:
        return list(GAPS[1:2] if task.quick else GAPS)
    error = (task.y - learner.model.fit(learner.Z, task.y).predict(learner.Z)) ** 2
    worst = pd.Series(error).groupby(task.cells[0]).mean().max()
    return [float(factor * worst) for factor in (FACTORS[:1] if task.quick else FACTORS)]


def gradient(task: Task, make: Callable[[Task], Learner]) -> Points:
    from fairlearn.reductions import ExponentiatedGradient

    learner = make(task)
    for bound in bounds(task, learner):
        model = ExponentiatedGradient(
            learner.model, constraint(task, bound), max_iter=3 if task.quick else 50
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(learner.Z, _target(task), sensitive_features=task.cells[0])
        weights = np.asarray(model.weights_.reindex(range(len(model.predictors_)), fill_value=0.0))
        parts = [part for part in zip(weights, model.predictors_, strict=True) if part[0] > 0]
        yield bound, sum(weight * part.predict(learner.Z_test) for weight, part in parts)


def grid(task: Task, make: Callable[[Task], Learner]) -> Points:
    from fairlearn.reductions import GridSearch

    learner = make(task)
    # Points of a simplex over all groups: few for ten groups or more, and already as many fits.
    search = GridSearch(learner.model, constraint(task, None), grid_size=5 if task.quick else GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(learner.Z, _target(task), sensitive_features=task.cells[0])
    for number, model in enumerate(search.predictors_):
        score = hasattr(model, "predict_proba") and task.decides
        f = model.predict_proba(learner.Z_test)[:, -1] if score else model.predict(learner.Z_test)
        yield float(number), f


def _target(task: Task) -> Any:
    return task.y.astype(int) if task.decides else task.y


def _method(how: Any, learner: Callable[[Task], Learner], decides: bool) -> Method:
    name = {gradient: "ExponentiatedGradient", grid: "GridSearch"}[how]
    goal, kind = ("DemographicParity", "rate") if decides else ("BoundedGroupLoss", "number")
    inside = "trees" if learner is trees else "linear"
    return Method(
        f"fairlearn {name} {goal}, {inside}", lambda task: how(task, learner), kinds=(kind,),
        most=MOST if how is gradient and learner is trees and decides else None,
        needs="fairlearn", reduction=True,
    )  # fmt: skip


METHODS = tuple(
    _method(how, learner, decides)
    for decides in (True, False)
    for how in (gradient, grid)
    for learner in (linear, trees)
)
