"""Thresholds by group on the trees that ours has inside: fairlearn's ThresholdOptimizer, OxonFair.

Both need s at prediction and make decisions only: no scores. ThresholdOptimizer has no trade-off,
one point, and decides at random near its thresholds: it counts by its expectation. OxonFair takes
two groups here, those that the gap is measured for; its bound is on the gap itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from benchmarks.peers._task import Method, Points, Task
from benchmarks.peers.barycentre import predictions

GAPS = (0.0, 0.01, 0.02, 0.05, 0.1)


class Held(ClassifierMixin, BaseEstimator):
    """Predictions that are known, as a fitted classifier of their own column."""

    classes_ = np.array([0, 1])

    def fit(self, *_: Any) -> Held:
        return self

    def predict_proba(self, X: Any) -> Any:
        p = np.asarray(X)[:, 0]
        return np.column_stack([1 - p, p])


def optimizer(task: Task, constraint: str) -> Points:
    from fairlearn.postprocessing import ThresholdOptimizer

    held, h = predictions(task)
    model = ThresholdOptimizer(
        estimator=Held(), constraints=constraint, prefit=True, grid_size=2000, predict_method="predict_proba"
    )
    model.fit(held[:, None], task.y.astype(int), sensitive_features=task.cells[0])
    yield 0.0, None, model._pmf_predict(h[:, None], sensitive_features=task.cells[1])[:, 1]


def oxonfair(task: Task, constraint: str) -> Points:
    from oxonfair import FairPredictor
    from oxonfair import group_metrics as metrics

    held, h = predictions(task)
    train, test = task.two_groups
    rows = {"target": task.y.astype(int), "groups": train, "data": Held().predict_proba(held[:, None])}
    new = {"target": np.zeros(len(h), dtype=int), "groups": test, "data": Held().predict_proba(h[:, None])}
    model = FairPredictor(None, rows)
    for gap in GAPS[1:2] if task.quick else GAPS:
        model.fit(metrics.accuracy, getattr(metrics, constraint), gap)
        yield gap, None, np.asarray(model.predict(new)) > 0


def _methods() -> Any:
    for goal, parity, odds in (
        ("parity", "demographic_parity", "demographic_parity"),
        ("odds", "equalized_odds", "equalized_odds_max"),
    ):
        end = ", odds" if goal == "odds" else ""
        yield Method(
            f"fairlearn ThresholdOptimizer{end}",
            lambda task, parity=parity: optimizer(task, parity),
            hidden=False,
            kinds=("rate",),
            needs="fairlearn",
            goal=goal,
        )
        yield Method(
            f"OxonFair{end}",
            lambda task, odds=odds: oxonfair(task, odds),
            hidden=False,
            kinds=("rate",),
            needs="oxonfair",
            goal=goal,
        )


METHODS = tuple(_methods())
