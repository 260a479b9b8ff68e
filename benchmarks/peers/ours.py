"""scalefair: with boosted trees inside, with kernel features alone, linear; limits on decisions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.frontier import estimator
from benchmarks.output import Classifier, Regressor
from benchmarks.peers._task import Method, Points, Task
from scalefair import Decisions, FairKernelClassifier, FairKernelClassifierCV, FairKernelRidge, FairKernelRidgeCV

LIMITS = (0.0, 0.004, 0.01, 0.02, 0.045, 0.09, 0.15, 0.25, 0.4, 1.0)
LOGISTIC_LIMITS = (0.004, 0.012, 0.03, 0.06, 0.1, 1.0)
GAPS = (0.0, 0.012, 0.03, 0.06, 0.11)
ETAS = (0.3, 1.0, 4.0, 12.0, 40.0)
FEATURES = 100


class TreesClassifier(Classifier):
    """Boosted trees that are fitted once for the same rows, whatever limit is tried next."""

    def __init__(self, model: Any = None) -> None:
        super().__init__(model)


class TreesRegressor(Regressor):
    """The same for numbers; given trees for rates, those for numbers with their settings."""

    def __init__(self, model: Any = None) -> None:
        super().__init__(model)

    def fit(self, X: Any, y: Any) -> Any:
        if not is_classifier(self.model):
            return super().fit(X, y)
        known = HistGradientBoostingRegressor().get_params().keys() - {"loss"}
        same = {name: value for name, value in self.model.get_params().items() if name in known}
        self.model_ = Regressor(HistGradientBoostingRegressor(**same)).fit(X, y).model_
        return self


def curve(model: Any, task: Task) -> Points:
    """Fit once; every limit follows from the moments."""
    split = task.split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split.X, split.y)
    for limit in LIMITS:
        try:
            fair = model.path_.at(unfairness=limit)
        except ValueError:  # below what the features can reach
            continue
        yield limit, fair.predict(split.X_test)


def with_trees(task: Task) -> Points:
    return curve(estimator(task.settings, task.split, task.hidden, task.quick), task)


def alone(task: Task, linear: bool) -> Points:
    """Without a base model: Gaussian features, or linear ones."""
    few = task.settings == "B"
    features = (
        {"feature_map": "linear"}
        if linear
        else {"n_components": 100 if few or task.quick else 1000, "length_scale": "standardized" if few else "median"}
    )
    return curve(
        FairKernelRidgeCV(
            unfairness=0.05,
            random_state=0,
            eps=1e-3 if few else 1e-6,
            sensitive_columns=task.split.sensitive,
            hide_sensitive=task.hidden,
            **features,
        ),
        task,
    )


def each(task: Task, settings: tuple[float, ...], make: Callable[[float], Any], ask: str) -> Points:
    """One fit for each setting; the trees are fitted once, at the first: that is what one costs."""
    split = task.split
    for setting in settings[2:3] if task.quick else settings:
        model = make(setting)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(split.X, split.y.astype(int) if task.decides else split.y)
        found = getattr(model, ask)(split.X_test)
        yield (setting, found) if ask != "predict" or not task.decides else (setting, None, found)


def common(task: Task) -> dict[str, Any]:
    trees = (TreesClassifier if task.decides else TreesRegressor)(task.trees())
    return {
        "base_estimator": trees,
        "sensitive_columns": task.split.sensitive,
        "hide_sensitive": task.hidden,
        "random_state": 0,
    }


def logistic(task: Task) -> Points:
    same = common(task)
    return each(
        task,
        LOGISTIC_LIMITS,
        lambda limit: FairKernelClassifier(unfairness=limit, n_components=50, tol=1e-8, **same),
        "decision_function",
    )


def output_kernel(task: Task) -> Points:
    """The kernel on the output, as in benchmarks.output: f independent of s, not only its mean."""
    kind = FairKernelClassifier if task.decides else FairKernelRidge
    same = common(task)
    return each(
        task,
        ETAS,
        lambda eta: kind(
            n_components=50 if task.quick else 300,
            alpha=1e-3,
            eta=eta,
            eps=1e-2,
            output_kernel="rbf",
            penalty="nocco_output",
            n_sensitive_components=30,
            **same,
        ),
        "decision_function" if task.decides else "predict",
    )


def decisions(limit_on: Any) -> Callable[[Task], Points]:
    def run(task: Task) -> Points:
        same = common(task)
        same |= {"cv": 5, "limit_on": limit_on, "n_components": FEATURES}
        return each(task, GAPS, lambda gap: FairKernelClassifierCV(unfairness=gap, **same), "predict")

    return run


METHODS = (
    Method("scalefair, trees inside", with_trees),
    Method("scalefair, kernel alone", lambda task: alone(task, linear=False)),
    Method("scalefair, linear", lambda task: alone(task, linear=True)),
    Method("scalefair, output kernel", output_kernel, threshold=0.0),
    Method("scalefair, logistic", logistic, kinds=("rate",), threshold=0.0),
    Method("scalefair, decisions", decisions("decisions"), kinds=("rate",)),
    Method("scalefair, odds", decisions("odds"), kinds=("rate",), goal="odds"),
    Method("scalefair, odds, randomised", decisions(Decisions("odds", randomized=True)), kinds=("rate",), goal="odds"),
)
