"""One small fitted model of every kind, and fits within settings of the engine."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from scalefair import (
    CrossFit,
    Decisions,
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelClassifierCV,
    FairKernelRegressor,
    FairKernelRegressorCV,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
    config_context,
    get_config,
)
from scalefair.datasets import make_biased_income
from scalefair.features.design import Block
from scalefair.kernels import RBF, Linear

SMALL = {"n_components": 12, "n_sensitive_components": 8, "random_state": 0}

FEW_TREES = CrossFit(FairRidge(eta=0.0), sensitive_estimator=HistGradientBoostingRegressor(max_iter=2))

MODELS = {
    "linear": FairRidge(eta=1.0, random_state=0),
    "nystroem": FairKernelRidge(unfairness=0.3, **SMALL),
    "fourier": FairKernelRidge(feature_map="fourier", eta=1.0, **SMALL),
    "laplace": FairKernelRidge(kernel="laplace", eta=1.0, **SMALL),
    "matern": FairKernelRidge(kernel="matern52", penalty="hsic", eta=1.0, **SMALL),
    "kernel": FairKernelRidge(kernel=RBF(2.0) + Linear(), eta=1.0, **SMALL),
    "float32": FairKernelRidge(eta=1.0, **SMALL),
    "exact": FairKernelRidge(feature_map="exact", eta=1.0, random_state=0),
    "seen": FairKernelRidge(sensitive_columns=["sex", "ethnicity", "age"], eta=1.0, **SMALL),
    "hidden": FairKernelRidge(sensitive_columns=["sex"], hide_sensitive=True, eta=1.0, **SMALL),
    "joined": FairKernelRidge(base_estimator=FEW_TREES, eta=1.0, **SMALL),
    "output": FairKernelRidge(output_kernel="rbf", eta=1.0, **SMALL),
    "bent": FairKernelRidge(output_kernel="rbf", base_estimator=FEW_TREES, eta=1.0, **SMALL),
    "controlled": FairKernelRidge(eta=1.0, **SMALL),
    "sums": FairKernelRidge(sensitive_kernel="linear", eta=1.0, **SMALL),
    "iterative": FairKernelRidge(eta=1.0, **SMALL),
    "gaps": FairKernelRidge(missing_labels="partial", eta=1.0, **SMALL),
    "cv": FairKernelRidgeCV(cv=3, **SMALL),
    "classes": FairKernelClassifier(eta=1.0, **SMALL),
    "three": FairKernelClassifier(eta=1.0, class_weight="balanced", **SMALL),
    "poisson": FairKernelRegressor(loss="poisson", eta=1.0, **SMALL),
    "quantile": FairKernelRegressor(loss="quantile", eta=1.0, **SMALL),
    "classes_cv": FairKernelClassifierCV(cv=3, alphas=[1e-3], etas=[0.0, 1.0], **SMALL),
    "poisson_cv": FairKernelRegressorCV(loss="poisson", cv=3, alphas=[1e-3], etas=[0.0, 1.0], **SMALL),
    "decided": FairKernelRegressor(
        limit_on=Decisions(threshold=2.9), sensitive_columns=["sex"], unfairness=0.1, **SMALL
    ),
    "trees": FairKernelRidgeCV(base_estimator="trees", sensitive_columns=["sex", "ethnicity"], cv=3, **SMALL),
    "boosted": FairKernelRidge(
        base_estimator=HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5), eta=1.0, **SMALL
    ),
    "boosted_classes": FairKernelClassifier(
        base_estimator=HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5), eta=1.0, **SMALL
    ),
    "process": FairGPRegressor(eta=1.0, optimizer=None, noise=0.1, amplitude=1.0, **SMALL),
    "exact_process": FairGPRegressor(
        feature_map="exact", eta=1.0, optimizer=None, noise=0.1, amplitude=1.0, random_state=0
    ),
    "process_of_classes": FairGPClassifier(eta=1.0, optimizer=None, amplitude=1.0, **SMALL),
}
SETTINGS = {"float32": {"dtype": "float32"}, "iterative": {"solver": "iterative"}}
METHODS = ("predict", "predict_proba", "decision_function")


class RowsBlock(Block):
    """A block of columns that a function makes."""

    width = key = rows = None

    def __init__(self, name, width, rows, units=()):
        self.name, self.width, self.rows, self.units, self.key = name, width, rows, units, name


def fit_within(options, model, *given, **more):
    """Fit under those of the options that are settings, with the others as parameters."""
    settings = {name: value for name, value in options.items() if name in get_config()}
    parameters = {name: value for name, value in options.items() if name not in settings}
    with config_context(**settings):
        return model.set_params(**parameters).fit(*given, **more)


@cache
def pay():
    return make_biased_income(120, random_state=0)


def numbers():
    return pay().data.select_dtypes("number").to_numpy(float)


def groups():
    return pay().sensitive_features[["sex", "ethnicity"]]


def rows(name):
    return numbers() if name.startswith(("exact", "boosted")) else pay().data


def target(name):
    y = np.asarray(pay().target, dtype=float)
    if name in ("classes", "classes_cv", "boosted_classes", "process_of_classes"):
        return np.where(y > np.median(y), "high", "low")
    if name == "three":
        return np.searchsorted(np.quantile(y, [0.3, 0.6]), y)
    return np.exp(y - y.max()) if name.startswith("poisson") else y


@cache
def fitted(name):
    model = MODELS[name]
    own = {} if model.sensitive_columns else {"sensitive_features": groups()}
    if name == "sums":
        own = {"sensitive_features": pay().sensitive_features}
    if name == "gaps":  # who tells depends on x
        tells = pay().data["experience"] > pay().data["experience"].median()
        own = {"sensitive_features": groups()[["sex"]].astype(object).where(tells, None, axis=0)}
    if name == "controlled":
        own["control_features"] = pay().data[["education", "experience"]]
    return fit_within(SETTINGS.get(name, {}), model, rows(name), target(name), **own)


def answers(name, model):
    """All that the model says of the rows."""
    said = {way: getattr(model, way)(rows(name)) for way in METHODS if hasattr(model, way)}
    if name.startswith(("process", "exact_process")) and not hasattr(model, "classes_"):
        said["std"] = model.predict(rows(name), return_std=True)[1]
    if name == "decided":
        said["decide"] = model.decide(rows(name))
    return said


def same_answers(name, model, other):
    said, again = answers(name, model), answers(name, other)
    assert said.keys() == again.keys()
    for way, value in said.items():
        np.testing.assert_array_equal(again[way], value, err_msg=f"{name}.{way}")
        assert again[way].dtype == value.dtype
