"""scalefair: with boosted trees inside, with kernel features alone, and linear."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.frontier import FEATURES, estimator
from benchmarks.output import Classifier
from benchmarks.peers._task import Method, Points, Task
from scalefair import FairKernelClassifier, FairKernelRidgeCV

LIMITS = (0.003, 0.006, 0.009, 0.013, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 1.0)
LIMITS_OF = {
    "A": (0.005, 0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.18, 1.0),
    # 1,400 rows promise less than they keep, so the limits begin lower.
    "B": (0.0005, 0.002, 0.005, 0.01, 0.02, 0.035, 0.055, 0.08, 0.11, 0.15, 0.22, 1.0),
}
PARTS = 5
"""One of them is for the fair model where the trees are fitted once."""
LOGISTIC_LIMITS = (0.005, 0.012, 0.03, 0.06, 0.1, 1.0)


def curve(model: Any, task: Task) -> Points:
    """Fit once; every limit follows from the moments."""
    split = task.split
    model.fit(split.X, split.y)
    for limit in (0.0, *LIMITS_OF.get(split.name, LIMITS)):
        try:
            fair = model.path_.at(unfairness=limit)
        except ValueError:  # below what the features can reach
            continue
        yield limit, fair.predict(split.X_test)


def with_trees(task: Task) -> Points:
    return curve(estimator(task.settings, task.split, task.hidden, task.quick), task)


def with_default_trees(task: Task) -> Points:
    """With the trees that the reductions have, for the time that either takes."""
    return curve(smaller(task, task.default_trees()), task)


def with_trees_fitted_once(task: Task) -> Points:
    """The same trees, not cross-fitted: they get four rows of five, the fair model the fifth."""
    split = task.split
    unseen = np.arange(len(split.y)) % PARTS == 0
    trees = task.default_trees().fit(task.frames[0][~unseen], split.y[~unseen])
    rest = replace(split, X=split.X[unseen], y=split.y[unseen])
    with warnings.catch_warnings():  # of rows that the trees have seen: these they have not
        warnings.filterwarnings("ignore", message=".*already fitted")
        yield from curve(smaller(task, trees), replace(task, split=rest))


def smaller(task: Task, trees: Any) -> Any:
    """Ours with other trees, and no more features where s is hidden."""
    model = estimator(task.settings, task.split, task.hidden, task.quick)
    features = min(model.n_components, FEATURES[task.settings])
    return model.set_params(base_estimator=trees, n_components=features)


def kernel_alone(task: Task) -> Points:
    small = task.quick or task.split.name == "B"
    return curve(
        FairKernelRidgeCV(
            n_components=100 if small else 1000, unfairness=0.05, random_state=0,
            length_scale="standardized" if task.split.name == "B" else "median",
            eps=1e-3 if task.split.name == "B" else 1e-6,
            sensitive_columns=task.split.sensitive, hide_sensitive=task.hidden,
        ),
        task,
    )  # fmt: skip


def linear(task: Task) -> Points:
    """Linear features, as the reductions with a linear learner have them."""
    return curve(
        FairKernelRidgeCV(
            feature_map="linear", unfairness=0.05, random_state=0,
            eps=1e-3 if task.split.name == "B" else 1e-6,
            sensitive_columns=task.split.sensitive, hide_sensitive=task.hidden,
        ),
        task,
    )  # fmt: skip


def logistic(task: Task) -> Points:
    """The logistic loss: f is the log-odds. One fit for each limit; the trees are fitted once."""
    trees = Classifier(task.trees())
    for limit in LOGISTIC_LIMITS[:2] if task.quick else LOGISTIC_LIMITS:
        model = FairKernelClassifier(
            base_estimator=trees, sensitive_columns=task.split.sensitive, unfairness=limit,
            hide_sensitive=task.hidden, n_components=50, tol=1e-8, random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(task.split.X, task.split.y)
        yield limit, model.decision_function(task.split.X_test)


METHODS = (
    Method("scalefair, trees inside", with_trees),
    Method("scalefair, default trees inside", with_default_trees),
    Method("scalefair, default trees fitted once", with_trees_fitted_once),
    Method("scalefair, kernel alone", kernel_alone),
    Method("scalefair, linear", linear),
    Method("scalefair, trees inside, logistic", logistic, kinds=("rate",), threshold=0.0),
)
