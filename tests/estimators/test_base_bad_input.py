"""Base models that cannot work are named, with the remedy."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from scalefair import CrossFit, FairKernelRidge
from tests.errors import refused
from tests.estimators.test_base import fair, problem, table


class Says(RegressorMixin, BaseEstimator):
    """Predicts what `answer` makes of X."""

    def __init__(self, answer=None):
        self.answer = answer

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        return self.answer(X)


def test_nan_is_named():
    X, y = problem()

    def answer(rows):
        return np.where(np.arange(len(rows)) == 3, np.nan, rows[:, 0])

    with refused("Says", "in 1 of", "row 3"):
        fair(eta=1.0, base_estimator=Says(answer)).fit(X, y)


@pytest.mark.parametrize("base", [DummyRegressor(), DecisionTreeRegressor(max_depth=1)])
def test_a_constant_is_named(base):
    X, y = problem()
    if isinstance(base, DecisionTreeRegressor):
        base.set_params(min_samples_leaf=500)
    with refused(type(base).__name__):
        fair(eta=1.0, base_estimator=base).fit(X, y)


def test_a_wrong_number_of_predictions_is_named():
    X, y = problem()
    with refused("2 values"):
        fair(eta=1.0, base_estimator=Says(lambda rows: rows[:2, 0])).fit(X, y)


def test_text_is_named():
    X, y = problem()
    with refused("Says", "yes"):
        fair(eta=1.0, base_estimator=Says(lambda rows: np.full(len(rows), "yes"))).fit(X, y)


def test_a_frozen_model_that_is_not_fitted_is_named():
    X, y = problem()
    with refused("FrozenEstimator"):
        fair(eta=1.0, base_estimator=FrozenEstimator(LinearRegression())).fit(X, y)


def test_wrong_columns_are_named():
    X, y = problem()
    fitted = LinearRegression().fit(X[:, :2], y)
    with refused("LinearRegression", "2 features"):
        fair(eta=1.0, base_estimator=fitted).fit(X, y)


def test_a_model_that_cannot_be_fitted_is_named():
    X, y = table()
    with refused("LinearRegression"):
        fair(eta=1.0, base_estimator=LinearRegression(), sensitive_columns=["group"]).fit(X, y)


@pytest.mark.parametrize("base", [StandardScaler(), LinearRegression, "forest", 3])
def test_what_cannot_predict_is_named(base):
    X, y = problem()
    with refused("base_estimator=", error=TypeError):
        fair(eta=1.0, base_estimator=base).fit(X, y)


def test_an_exact_fit_has_no_explicit_features():
    X, y = problem(50)
    model = FairKernelRidge(feature_map="exact", base_estimator=LinearRegression(), eta=1.0)
    with refused("nystroem"):
        model.fit(X, y, sensitive_features=X[:, 4])


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("sample_size", 0, ValueError), ("sample_size", "all", TypeError), ("fit_on", "x", ValueError)],
)
def test_parameters_are_checked(name, value, error):
    X, y = problem(50)
    with refused(name, error=error):
        fair(eta=1.0, base_estimator=CrossFit(LinearRegression(), **{name: value})).fit(X, y)
