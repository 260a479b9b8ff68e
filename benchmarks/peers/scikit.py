"""scikit-learn: models that know nothing of fairness. One point each, at whatever share it has.

Our J is 1/n |y − f|² + α|β|². Conversions:
- Ridge, Nystroem + Ridge: |y − f|² + a|β|², so a = nα.
- RBF: their gamma is 1/(2θ²).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from benchmarks.peers._task import Method, Points, Task

ALPHAS = np.logspace(-7, 0, 8)
"""Our α, as relative to unit variance; theirs are n times these."""


def plain(model: Any, task: Task, frames: bool = False) -> Points:
    train, test = task.frames if frames else task.arrays
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, task.y)
    probability = hasattr(model, "predict_proba")
    yield 0.0, model.predict_proba(test)[:, 1] if probability else model.predict(test)


def gamma(Z: Any) -> float:
    """1/(2θ²) with the median heuristic on 1,000 rows."""
    some = Z[:1000]
    square = np.sum(some**2, axis=1)
    distance = square[:, None] + square - 2 * some @ some.T
    return float(0.5 / np.median(distance[distance > 1e-9]))


def ridge(task: Task) -> Points:
    return plain(RidgeCV(len(task.y) * ALPHAS), task)  # a = nα


def logistic(task: Task) -> Points:
    # C = 1/(2nα) at α = 1e-6, where more ridge no longer helps on either table.
    return plain(LogisticRegression(C=1 / (2e-6 * len(task.y)), max_iter=300), task)


def nystroem(task: Task) -> Points:
    Z, n = task.arrays[0], len(task.y)
    features = Nystroem(gamma=gamma(Z), n_components=100 if task.quick else 1000, random_state=0)  # γ = 1/(2θ²)
    search = GridSearchCV(Ridge(), {"alpha": n * ALPHAS[:6]}, cv=3)  # a = nα
    return plain(make_pipeline(features, search), task)


def trees(task: Task) -> Points:
    model = task.trees()  # of the mean of several models, which crime has, the boosted trees
    return plain(dict(getattr(model, "estimators", {})).get("boosted", model), task, frames=True)


METHODS = (
    Method("scikit-learn Ridge", ridge),
    Method("scikit-learn LogisticRegression", logistic, kinds=("rate",)),
    Method("scikit-learn Nystroem + Ridge", nystroem),
    Method("scikit-learn HistGradientBoosting", trees),
)
