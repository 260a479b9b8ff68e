"""Every estimator on hostile data: invariants, or an error that somebody wrote."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from scalefair import (
    CrossFit,
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRegressor,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
    config_context,
    get_config,
)
from tests.fuzz import Refused, answered, cases, data_sets, honest, sensitive

KERNELS = st.sampled_from(["rbf", "laplace", "matern12", "matern32", "matern52", "linear"])
SCALES = st.sampled_from(["median", "median", 1.0, 1e-12, 1e12, 1e-200, 1e200])
WEIGHTS = st.one_of(
    st.sampled_from([{"eta": 0.0}, {"eta": np.inf}, {"eta": 1e12}, {"unfairness": 0.0}]),
    st.floats(0, 1).map(lambda u: {"unfairness": u}),
    st.floats(0, 1e6).map(lambda eta: {"eta": eta}),
)
ENGINE = st.fixed_dictionaries(
    {},
    optional={
        "chunk_rows": st.integers(1, 7),
        "n_jobs": st.integers(1, 2),
        "sensitive_kernel": st.sampled_from(["auto", "linear", "rbf", "categorical"]),
        "n_sensitive_components": st.integers(1, 9),
    },
)
RIDGE = st.fixed_dictionaries(
    {"alpha": st.sampled_from([1e-3, 1e-3, 0.0, 1e-12, 1e-300, 1.0, 1e12])},
    optional={
        "penalty": st.sampled_from(["normalized", "hsic", "nocco", "nocco_output"]),
        "eps": st.sampled_from([0.0, 1e-6, 1e-2, 1e6]),
        "fit_intercept": st.booleans(),
        "dtype": st.sampled_from(["float64", "float32"]),
    },
)
MAPS = st.fixed_dictionaries(
    {"kernel": KERNELS, "length_scale": SCALES, "n_components": st.sampled_from([1, 2, 6, 50])},
    optional={"feature_map": st.sampled_from(["nystroem", "fourier", "exact", "linear"])},
)


def rows_of(X, at):
    return X.iloc[at] if isinstance(X, pd.DataFrame) else X[at]


def fitted(kind, options, data, **more):
    """Fit, and check what holds of every fit; return nothing if it was refused."""
    settings = {name: options[name] for name in get_config() if name in options}
    parameters = {name: value for name, value in options.items() if name not in settings}
    model = kind(**parameters, random_state=0)
    more |= {"sensitive_features": data.s, "sample_weight": data.weight}
    with config_context(**settings):
        answer = honest(model.fit, data.X, data.y, **more)
    if isinstance(answer, Refused):
        assert not [name for name in vars(model) if name.endswith("_")], "half fitted"
        return None
    share = model.explained_share_
    assert np.isnan(share) or -1e-6 <= share <= 1 + 1e-6, share
    assert model.eta_ >= 0
    if model.get_params().get("unfairness") is not None and not hasattr(model, "explained_share_cv_"):
        assert np.isnan(share) or share <= model.unfairness + 1e-6, share
    return model


def same_by_rows(predict, X):
    """Predictions are finite, and do not depend on the rows beside them.

    They agree to four digits, or to as many as the fit has warned are left.
    """
    whole = honest(predict, X)
    if isinstance(whole, Refused):
        return
    answered(whole)
    part = answered(honest(predict, rows_of(X, slice(0, 1))))
    if part.dtype.kind == "f":
        within = 10.0 ** -min(4.0, predict.__self__.diagnostics_.digits)
        size = np.abs(whole).max()
        np.testing.assert_allclose(part, np.asarray(whole)[:1], rtol=within, atol=within * size)


@cases(200)
@given(data_sets(), RIDGE, WEIGHTS, ENGINE)
def test_linear(data, ridge, weight, engine):
    if model := fitted(FairRidge, ridge | weight | engine, data):
        same_by_rows(model.predict, data.X)


@cases(250)
@given(data_sets(), RIDGE, WEIGHTS, ENGINE, MAPS)
def test_kernel(data, ridge, weight, engine, maps):
    if model := fitted(FairKernelRidge, ridge | weight | engine | maps, data):
        same_by_rows(model.predict, data.X)


@cases(75)
@given(data_sets(), RIDGE, WEIGHTS, ENGINE, st.data())
def test_control_features(data, ridge, weight, engine, choice):
    n = len(data.y)
    control = choice.draw(st.one_of(sensitive(n), st.just(data.s), st.just(data.y)))
    options = ridge | weight | engine | {"n_components": 6}
    if model := fitted(FairKernelRidge, options, data, control_features=control):
        same_by_rows(model.predict, data.X)


@cases(50)
@given(
    data_sets(),
    WEIGHTS,
    ENGINE,
    st.sampled_from([LinearRegression(), DecisionTreeRegressor(max_depth=2), DummyRegressor()]),
    st.sampled_from(["sample", "collection"]),
)
def test_base_estimator(data, weight, engine, base, how):
    options = {"base_estimator": CrossFit(base, fit_on=how), "n_components": 6}
    if model := fitted(FairKernelRidge, weight | engine | options, data):
        same_by_rows(model.predict, data.X)


@cases(30)
@given(data_sets(most=15), st.floats(0, 1e6), ENGINE, st.sampled_from(["squared", "huber"]))
def test_output_kernel(data, eta, engine, loss):
    options = {"loss": loss, "output_kernel": "rbf", "eta": eta, "n_components": 6, "max_iter": 5}
    if model := fitted(FairKernelRegressor, options | engine, data):
        same_by_rows(model.predict, data.X)


@cases(75)
@given(data_sets(), ENGINE, MAPS, st.sampled_from([None, 0.0, 0.1, 1.0]), st.integers(2, 4))
def test_cross_validation(data, engine, maps, unfairness, cv):
    options = {"unfairness": unfairness, "cv": cv}
    if model := fitted(FairKernelRidgeCV, engine | maps | options, data):
        same_by_rows(model.predict, data.X)


@cases(100)
@given(data_sets(classes=True), RIDGE, WEIGHTS, ENGINE, MAPS)
def test_classifier(data, ridge, weight, engine, maps):
    if model := fitted(FairKernelClassifier, ridge | weight | engine | maps, data):
        same_by_rows(model.decision_function, data.X)
        proba = honest(model.predict_proba, data.X)
        np.testing.assert_allclose(answered(proba).sum(axis=1), 1, rtol=1e-9)
        assert set(honest(model.predict, data.X)) <= set(model.classes_)


@cases(100)
@given(data_sets(), RIDGE, WEIGHTS, ENGINE, MAPS, st.sampled_from(["squared", "huber", "quantile", "poisson", "gamma"]))
def test_losses(data, ridge, weight, engine, maps, loss):
    options = ridge | weight | engine | maps | {"loss": loss}
    if model := fitted(FairKernelRegressor, options, data):
        same_by_rows(model.predict, data.X)


@cases(40)
@given(data_sets(most=15), WEIGHTS, ENGINE, MAPS, st.sampled_from(["optimize", 1e-12, 1.0]))
def test_process(data, weight, engine, maps, noise):
    options = weight | engine | maps | {"noise": noise, "max_iter": 4}
    if model := fitted(FairGPRegressor, options, data):
        same_by_rows(model.predict, data.X)
        answered(honest(model.predict, data.X, return_std=True)[1])


@cases(30)
@given(data_sets(classes=True, most=15), WEIGHTS, ENGINE, MAPS)
def test_process_of_classes(data, weight, engine, maps):
    if model := fitted(FairGPClassifier, weight | engine | maps | {"max_iter": 4}, data):
        proba = honest(model.predict_proba, data.X)
        np.testing.assert_allclose(answered(proba).sum(axis=1), 1, rtol=1e-9)
