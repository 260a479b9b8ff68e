"""Rows of predict whose combination of sensitive levels no row of fit had."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import scalefair
from scalefair import FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge
from tests.errors import refused

RARE = ("F", "C")
"""The combination that is left out of fit."""


def table(n=600, seed=0):
    """y = x + an effect of each level, nothing of their combination; x is independent of both."""
    rng = np.random.default_rng(seed)
    S = pd.DataFrame({"sex": rng.choice(["F", "M"], n), "race": rng.choice(["A", "B", "C"], n)})
    x = rng.normal(size=n)
    y = x + 0.5 * (S["sex"] == "M") + S["race"].map({"A": 0.0, "B": 1.0, "C": -1.0})
    return S.assign(x=x), np.asarray(y + 0.05 * rng.normal(size=n))


def seen(X):
    return ~((X["sex"] == RARE[0]) & (X["race"] == RARE[1]))


MODELS = {
    "ridge": FairRidge(base_estimator="trees", eta=1.0),
    "kernel": FairKernelRidge(n_components=50, eta=0.1),
    "exact": FairKernelRidge(feature_map="exact", eta=0.1),
    "cv": FairKernelRidgeCV(n_components=50, unfairness=0.3),
    "bent": FairKernelRidge(base_estimator="trees", output_kernel="rbf", eta=1.0, n_components=20),
    "classes": FairKernelClassifier(n_components=50, unfairness=0.3),
}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_answered_with_a_warning(name):
    X, y = table()
    y = y > 0 if name == "classes" else y
    model = MODELS[name].set_params(sensitive_columns=["sex", "race"], random_state=0)
    model.fit(X[seen(X)], y[seen(X)])
    with pytest.warns(UserWarning, match="sex=F & race=C"):
        f = model.predict(X[~seen(X)])
    assert len(f) == (~seen(X)).sum()
    with refused("race", "Z", error=ValueError):  # a level that nobody has seen
        model.predict(X[:5].assign(race="Z"))
    if name == "exact":
        return
    with refused("combination", error=ValueError):  # a batch to fit on must not have them
        model.collect(X, y) if hasattr(model, "collect") else model.path(X, y)


def test_without_interactions_they_are_as_good_as_those_seen():
    X, y = table(3000)
    new, target = table(3000, seed=1)
    model = FairKernelRidge(n_components=50, eta=0.0, sensitive_columns=["sex", "race"], random_state=0)
    model.fit(X[seen(X)], y[seen(X)])
    with pytest.warns(UserWarning, match="race=C"):
        squares = (target - model.predict(new)) ** 2
    assert squares[~seen(new)].mean() < 3 * squares[seen(new)].mean()


def test_the_graph_says_the_same():
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = table()
    model = FairKernelRidge(n_components=20, eta=1.0, sensitive_columns=["sex", "race"])
    model.set_params(random_state=0).fit(X[seen(X)], y[seen(X)])
    session = onnxruntime.InferenceSession(scalefair.to_onnx(model).SerializeToString())
    feeds = {name: X[[name]].to_numpy() for name in X}
    with pytest.warns(UserWarning, match="race=C"):
        expected = model.predict(X)
    found = session.run(None, feeds | {"x": X[["x"]].to_numpy(float)})[0]
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-9)
