"""Intervals that hold what they promise, on rows that were not fitted."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

from scalefair import FairGPRegressor
from scalefair.datasets import make_toy1
from tests.estimators.test_real_data import table

WIDTH = float(norm.ppf(0.95))
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def coverage(model, X, y):
    f, std = model.predict(X, return_std=True, include_noise=True)
    return float(np.mean(np.abs(y - f) <= WIDTH * std))


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize(("n", "m"), [(500, 20), (500, 100), (1500, 50)])
def test_toy(n, m, eta):
    """The mean over training sets: 500 rows tell the noise to ten percent or so."""
    test = make_toy1(4000, random_state=1)
    model = FairGPRegressor(n_components=m, eta=eta, max_iter=15, tol=1e-4, random_state=0)
    found = []
    for seed in (0, 10, 11, 12):
        train = make_toy1(n, random_state=seed)
        model.fit(train.data, train.target, sensitive_features=train.sensitive_features)
        found.append(coverage(model, test.data, test.target))
    assert 0.87 <= np.mean(found) <= 0.93
    assert 0.85 <= min(found) <= max(found) <= 0.95


def without_the_rest(model, X, y):
    """Coverage if the variance were that of φᵀβ and the noise alone."""
    Phi = model.phi_.transform(X)
    std = np.sqrt(model._distribution.weights.variance(Phi) + model.noise_)
    return float(np.mean(np.abs(y - model.predict(X)) <= WIDTH * std))


def test_rows_unlike_those_fitted():
    """Landmarks and rows in one half of the line, promises about the other."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, size=(4000, 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=4000)
    left = X[:, 0] < 0
    model = FairGPRegressor(n_components=60, eta=0, random_state=0).fit(X[left], y[left])
    assert coverage(model, X[~left], y[~left]) > 0.87
    assert without_the_rest(model, X[~left], y[~left]) < 0.7


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_acs_income(eta):
    path = table("acs_income_2018_regression/acs-income-2018-holdout.parquet")
    columns = [
        "Age",
        "Education",
        "Occupation",
        "Workclass",
        "Marital Status",
        "Gender",
        "Race",
        "Travel time to work",
        "Citizenship status",
        "Income",
    ]
    frame = pq.read_table(path, columns=columns).slice(0, 16_000).to_pandas()
    y = np.log(frame.pop("Income").to_numpy())
    train, test = np.arange(4000), np.arange(4000, 16_000)
    model = FairGPRegressor(
        n_components=100, eta=eta, max_iter=5, tol=1e-3, sensitive_columns=["Gender", "Race"], random_state=0
    ).fit(frame.iloc[train], y[train])
    assert 0.87 <= coverage(model, frame.iloc[test], y[test]) <= 0.93
