"""fairlearn's reductions: a learner is refitted with new weights until the groups' decisions agree.

DemographicParity bounds |E[h|s] − E h| of decisions h for each group: differences between two
groups are up to twice as large. Groups are cells. Decisions of ExponentiatedGradient are drawn from
a mixture of models and count by their expectation; the score is the mixture's mean probability,
which the bound does not see. Frames lose their categories on the way through fairlearn: a linear
learner gets one-hot columns, trees get codes. For regression fairlearn has BoundedGroupLoss, which
bounds the error of the worst group: no rival in parity, so it is not here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.peers._task import Method, Points, Task

BOUNDS = (0.004, 0.015, 0.05)
GRID = 12


class Learner(NamedTuple):
    """What a reduction refits, and the inputs as it takes them."""

    model: Any
    Z: Any
    Z_test: Any


def linear(task: Task) -> Learner:
    # α = 1e-6 as in scikit.py: C = 1/(2nα). The reduction's weights have mean 1, so a = nα stays.
    return Learner(LogisticRegression(C=1 / (2e-6 * len(task.y)), max_iter=300), *task.arrays)


def trees(task: Task) -> Learner:
    return Learner(task.default_trees(task.categories), *task.codes)


def gradient(task: Task, make: Callable[[Task], Learner], constraint: str) -> Points:
    from fairlearn import reductions

    learner, y = make(task), task.y.astype(int)
    for bound in BOUNDS[1:2] if task.quick else BOUNDS:
        limit = getattr(reductions, constraint)(difference_bound=bound)
        steps = 3 if task.quick else 50
        model = reductions.ExponentiatedGradient(learner.model, limit, max_iter=steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(learner.Z, y, sensitive_features=task.cells[0])
        weights = np.asarray(model.weights_.reindex(range(len(model.predictors_)), fill_value=0.0))
        parts = [part for part in zip(weights, model.predictors_, strict=True) if part[0] > 0]
        f = sum(weight * probability(part, learner.Z_test) for weight, part in parts)
        chance = sum(weight * part.predict(learner.Z_test) for weight, part in parts)
        yield bound, f, chance


def grid(task: Task, make: Callable[[Task], Learner]) -> Points:
    from fairlearn.reductions import DemographicParity, GridSearch

    learner = make(task)
    # Points of a simplex over all groups: few for ten groups or more, and already as many fits.
    search = GridSearch(learner.model, DemographicParity(), grid_size=5 if task.quick else GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(learner.Z, task.y.astype(int), sensitive_features=task.cells[0])
    for number, model in enumerate(search.predictors_):
        yield float(number), probability(model, learner.Z_test)


def probability(model: Any, Z: Any) -> Any:
    """Of the positive class; where a model of the search knows one class only, that class."""
    known = hasattr(model, "predict_proba") and len(model.classes_) == 2
    return model.predict_proba(Z)[:, 1] if known else model.predict(Z).astype(float)


def _gradient(learner: Callable[[Task], Learner], constraint: str) -> Method:
    inside, odds = learner.__name__, constraint == "EqualizedOdds"
    return Method(
        f"fairlearn ExponentiatedGradient, {inside}{', odds' if odds else ''}",
        lambda task: gradient(task, learner, constraint),
        kinds=("rate",),
        needs="fairlearn",
        goal="odds" if odds else "parity",
        refits=True,
    )


METHODS = (
    _gradient(trees, "DemographicParity"),
    _gradient(linear, "DemographicParity"),
    _gradient(trees, "EqualizedOdds"),
    Method("fairlearn GridSearch, trees", lambda task: grid(task, trees), kinds=("rate",), needs="fairlearn"),
)
