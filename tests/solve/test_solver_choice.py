"""Wide maps: the iterative solver behind the same estimator; progress through callbacks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from scalefair import FairKernelRidge, FairKernelRidgeCV
from tests.errors import refused
from tests.models import fit_within

ITERATIVE = {"solver": "iterative"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    s = (X[:, 0] > 0).astype(str)
    return X, np.sin(X).sum(axis=1) + (X[:, 0] > 0), s


def model(**parameters):
    return FairKernelRidge(
        feature_map="fourier", n_components=120, length_scale=2.0, alpha=1e-4, random_state=0, **parameters
    )


@pytest.mark.parametrize("fair", [{"eta": 0.0}, {"eta": 1.0}, {"eta": np.inf}, {"unfairness": 0.02}])
@pytest.mark.parametrize("penalty", ["normalized", "hsic"])
def test_both_solvers_agree(fair, penalty, data):
    X, y, s = data
    direct, iterative = (
        fit_within({"solver": solver}, model(penalty=penalty, **fair), X, y, sensitive_features=s)
        for solver in ("direct", "iterative")
    )
    np.testing.assert_allclose(iterative.predict(X), direct.predict(X), atol=1e-6)
    assert iterative.explained_share_ == pytest.approx(direct.explained_share_, abs=1e-6)
    assert iterative.n_samples_seen_ == 800


@pytest.mark.parametrize(("solver", "iterates"), [("auto", True), ("direct", False)])
def test_auto_chooses_by_the_number_of_features(solver, iterates, data, monkeypatch):
    X, y, s = data
    assert not hasattr(model(eta=1.0).fit(X, y, sensitive_features=s), "n_iter_")
    monkeypatch.setattr("scalefair.estimators.ridge.WIDE", 120)
    fitted = fit_within({"solver": solver}, model(eta=1.0), X, y, sensitive_features=s)
    assert hasattr(fitted, "n_iter_") == iterates


def test_what_needs_the_moments_says_so(data):
    X, y, s = data
    fitted = fit_within(ITERATIVE, model(eta=1.0), X, y, sensitive_features=s)
    with refused("solver='direct'", error=ValueError):
        fitted.path()
    with refused("penalty='nocco'", "solver='direct'", error=ValueError):
        fit_within(ITERATIVE, model(penalty="nocco"), X, y, sensitive_features=s)


class Recorder:
    """A callback of scikit-learn's that notes what it is told."""

    def __init__(self):
        self.begun, self.ended = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        self.ended.append(context.task_name)


@pytest.mark.parametrize("cls", [FairKernelRidge, FairKernelRidgeCV])
def test_callbacks_hear_of_every_chunk(cls, data):
    X, y, s = data
    recorder = Recorder()
    fitted = cls(n_components=20).set_callbacks(recorder)
    fit_within({"chunk_rows": 100}, fitted, X, y, sensitive_features=s)
    assert recorder.begun.count("chunks") == 1 + 8  # the pass and its chunks
    assert sorted(recorder.begun) == sorted(recorder.ended)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_callbacks_hear_of_every_base_model(data, n_jobs):
    X, y, s = data
    recorder = Recorder()
    fitted = FairKernelRidgeCV(n_components=20, base_estimator=LinearRegression(), cv=3, n_jobs=n_jobs).set_callbacks(
        recorder
    )
    fitted.fit(X, y, sensitive_features=s)
    # All of them; then of y and of s: folds, and all rows.
    assert recorder.begun.count("base models") == 1 + 2 * (3 + 1)
    assert sorted(recorder.begun) == sorted(recorder.ended)


def test_callbacks_hear_of_every_iteration(data):
    X, y, s = data
    recorder = Recorder()
    fitted = model(eta=1.0).set_callbacks(recorder)
    fit_within(ITERATIVE, fitted, X, y, sensitive_features=s)
    assert recorder.begun.count("iterations") == 1 + fitted.n_iter_
