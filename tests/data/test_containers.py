"""The same rows in any container give the same fit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.datasets import make_biased_income
from tests.containers import CONTAINERS, columns_of, contained
from tests.errors import refused

SENSITIVE = ["sex", "age"]
MODELS = {
    "nystroem": FairKernelRidge(n_components=40, eta=1.0, random_state=0),
    "limit": FairRidge(unfairness=0.05, random_state=0),
    "cv": FairKernelRidgeCV(n_components=30, alphas=[1e-4, 1e-2], etas=[0, 1, 10], cv=3, random_state=0),
}


@pytest.fixture(scope="module")
def table():
    pay = make_biased_income(700, random_state=0)
    frame = pay.data.copy()
    frame = frame.astype(dict.fromkeys(frame.select_dtypes("category").columns, str))
    frame.loc[5:40, "tenure"] = np.nan
    frame["weight"] = np.random.default_rng(0).integers(0, 3, len(frame)).astype(float)
    return frame.assign(pay=np.asarray(pay.target))


def roles(frame):
    """The columns of X, y, s and w."""
    inputs = [name for name in frame if name not in ("pay", "weight")]
    return {"X": inputs, "y": "pay", "sensitive_features": SENSITIVE, "sample_weight": "weight"}


def in_container(kind, frame, folder):
    return contained(kind, frame, folder, **roles(frame))


def parts(frame):
    return columns_of(frame, roles(frame))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_mixed_columns(name, container, table, tmp_path):
    reference = fit(MODELS[name], *parts(table))
    X, y, s, w = in_container(container, table, tmp_path)
    model = fit(MODELS[name], X, y, s, w)
    assert model.n_samples_seen_ == np.count_nonzero(table["weight"])
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-7, atol=1e-10)
    plain = parts(table)[0]
    np.testing.assert_allclose(model.predict(plain), reference.predict(plain), rtol=1e-10)
    predicted = model.predict(X)
    if hasattr(predicted, "compute"):
        predicted = predicted.compute()
    np.testing.assert_allclose(predicted, reference.predict(plain), rtol=1e-10)


def fit(model, X, y, s, w):
    return clone(model).fit(X, y, sensitive_features=s, sample_weight=w)


@pytest.mark.parametrize("chunks", [(700, 5), (123, 5), ((1, 0, 350, 349), (2, 3))])
def test_numeric_arrays(chunks):
    da = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(700, 5)), rng.normal(size=700)
    y = X @ rng.normal(size=(5, 2)) + s[:, None]
    model = FairKernelRidge(n_components=50, eta=1.0, random_state=0)
    reference = fit(model, X, y, s, None)
    lazy = fit(model, da.from_array(X, chunks=chunks), da.from_array(y, chunks=(200, 1)), s, None)
    np.testing.assert_allclose(lazy.predict(X), reference.predict(X), rtol=1e-10, atol=1e-10)
    predicted = lazy.predict(da.from_array(X, chunks=chunks))
    assert isinstance(predicted, da.Array)
    assert predicted.shape == (700, 2)
    np.testing.assert_allclose(predicted.compute(), reference.predict(X), rtol=1e-10, atol=1e-10)


def test_sensitive_columns_of_a_scan(table, tmp_path):
    X, y, _, _ = in_container("parquet", table, tmp_path)
    plain, target, _, _ = parts(table)
    for hide in (False, True):
        model = FairKernelRidge(
            n_components=30, eta=1.0, sensitive_columns=SENSITIVE, hide_sensitive=hide, random_state=0
        )
        streamed = fit(model, X, y, None, None)
        reference = fit(model, plain, target, None, None)
        np.testing.assert_allclose(streamed.predict(X), reference.predict(plain), rtol=1e-9)


def test_the_place_of_a_bad_value_is_named(table, tmp_path):
    bad = table.copy()
    bad.loc[600, "pay"] = np.nan
    X, y, s, _ = in_container("parquet", bad, tmp_path)
    with refused("part-2.parquet", "'pay'", "row 600", error=ValueError):
        fit(MODELS["nystroem"], X, y, s, None)
    da = pytest.importorskip("dask.array")
    rows = np.ones((100, 2)) * np.arange(100.0)[:, None]
    rows[77, 1] = np.inf
    lazy = da.from_array(rows, chunks=(25, 2))
    with refused("partition 3", "column 1", error=ValueError) as caught:
        fit(FairRidge(eta=1.0), lazy, np.arange(100.0), np.arange(100.0), None)
    assert caught.value.where == "partition 3"
