"""Sparse inputs: the model is that of the dense ones, of which no more than a chunk is made."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array, dia_array, issparse, random_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

from scalefair import (
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
    audit,
    certify,
)
from scalefair.data import frames
from tests.errors import refused

N, D = 300, 12
OPTIONS = {"unfairness": 0.05, "n_components": 20, "random_state": 0}
MODELS = {
    "linear": FairRidge(unfairness=0.05),
    "fourier": FairKernelRidge(feature_map="fourier", **OPTIONS),
    "nystroem": FairKernelRidge(**OPTIONS),
    "exact": FairKernelRidge(feature_map="exact", unfairness=0.05),
    "cv": FairKernelRidgeCV(feature_map="fourier", **OPTIONS),
    "base": FairKernelRidge(base_estimator=DecisionTreeRegressor(max_depth=3, random_state=0), **OPTIONS),
    "trees": FairKernelRidge(base_estimator="trees", **OPTIONS),
    "classes": FairKernelClassifier(**OPTIONS),
    "base of classes": FairKernelClassifier(base_estimator=LogisticRegression(), **OPTIONS),
    "process": FairGPRegressor(**OPTIONS),
    "process of classes": FairGPClassifier(**OPTIONS),
}


def rows():
    rng = np.random.default_rng(0)
    X = random_array((N, D), density=0.3, format="csr", rng=rng)
    s = rng.choice(["f", "m"], N)
    y = 3 * X.toarray()[:, 0] + (s == "f") + 0.1 * rng.normal(size=N)
    return X, y, s


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_the_dense_rows(name):
    X, y, s = rows()
    model = MODELS[name]
    y = y > np.median(y) if "classes" in name else y
    sparse = model.fit(X, y, sensitive_features=s).predict(X)
    dense = model.fit(X.toarray(), y, sensitive_features=s)
    np.testing.assert_allclose(sparse, dense.predict(X.toarray()), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sparse, dense.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")  # of many diagonals
@pytest.mark.parametrize("kind", [csr_array, csc_matrix, coo_array, dia_array])
@pytest.mark.parametrize("hide", [False, True])
def test_sensitive_columns_in_any_format(kind, hide):
    X, y, _ = rows()
    model = FairRidge(unfairness=0.05, sensitive_columns=[3], hide_sensitive=hide)
    dense = model.fit(X.toarray(), y).predict(X.toarray())
    sparse = model.fit(kind(X), y).predict(kind(X))
    np.testing.assert_allclose(sparse, dense, rtol=1e-9)
    if hide:
        shown = np.delete(np.arange(D), 3)
        np.testing.assert_allclose(model.predict(X[:, shown]), dense, rtol=1e-9)


def test_never_more_than_a_chunk_is_dense(monkeypatch):
    """Neither fit, predict nor partial_fit makes all rows dense."""
    rng = np.random.default_rng(0)
    n, d = 20_000, 700
    X = random_array((n, d), density=0.005, format="csr", rng=rng)
    y, s = X @ rng.normal(size=d), rng.normal(size=n)
    largest, dense = [0], frames.as_array

    def noted(rows):
        if issparse(rows):
            largest[0] = max(largest[0], rows.shape[0])
        return dense(rows)

    monkeypatch.setattr(frames, "as_array", noted)
    monkeypatch.setattr(csr_array, "toarray", lambda self: coo_array(self).toarray())
    for feature_map in ("linear", "fourier"):
        model = FairKernelRidge(feature_map=feature_map, **OPTIONS)
        model.fit(X, y, sensitive_features=s).predict(X)
        model.partial_fit(X[: n // 2], y[: n // 2], sensitive_features=s[: n // 2])
    assert 0 < largest[0] <= 8192


def test_what_else_takes_inputs_takes_sparse_ones():
    X, y, s = rows()
    half = N // 2
    model = FairRidge(unfairness=0.05).fit(X[:half], y[:half], sensitive_features=s[:half])
    one = certify(model, X[half:], sensitive_features=s[half:], unfairness=0.9, confidence=0.9)
    dense = X[half:].toarray()
    other = certify(model, dense, sensitive_features=s[half:], unfairness=0.9, confidence=0.9)
    assert one.upper_bound == pytest.approx(other.upper_bound, rel=1e-9)
    assert audit(model.predict(X), sensitive_features=s).summary
    model.partial_fit(X[half:], y[half:], sensitive_features=s[half:])
    np.testing.assert_allclose(model.coef_, FairRidge(unfairness=0.05).fit(X, y, sensitive_features=s).coef_, rtol=1e-6)


def test_words_of_a_text_in_a_pipeline():
    texts = ["she writes code", "he writes code", "she cooks", "he cooks well"] * 30
    y, s = np.tile([3.0, 4.0, 1.0, 2.0], 30), np.tile(["f", "m"], 60)
    words = CountVectorizer().fit_transform(texts)
    model = FairRidge(unfairness=0.0).fit(words, y, sensitive_features=s)
    gap = model.predict(words)[s == "f"].mean() - model.predict(words)[s == "m"].mean()
    assert abs(gap) < 1e-8
    assert make_pipeline(CountVectorizer(), FairRidge(eta=0)).fit(texts, y).score(texts, y) > 0.9


def test_bad_numbers_in_sparse_inputs_are_refused():
    X, y, s = rows()
    X.data[0] = np.inf
    with refused("infinity", error=ValueError):
        FairRidge(unfairness=0.05).fit(X, y, sensitive_features=s)
    X.data[0] = 1e80
    with refused("X", "beyond", error=ValueError):
        FairRidge(unfairness=0.05).fit(X, y, sensitive_features=s)
