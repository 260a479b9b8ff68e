"""With hide_sensitive=True `predict` does not ask for the hidden columns, in any container."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.tree import DecisionTreeRegressor

from scalefair import (
    BatchSource,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRidge,
    FairRidge,
    load,
    save,
    scan_parquet,
)
from tests.errors import refused

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
X[:, 1] = RNG.integers(0, 2, 120)
Y = X @ [1.0, 2.0, 0.5, 0.0] + RNG.normal(size=120)
FRAME = pd.DataFrame(X, columns=list("asbt")).assign(s=np.where(X[:, 1] == 1, "u", "v"))
HIDDEN = {"sensitive_columns": ["s", "t"], "hide_sensitive": True, "random_state": 0}

MODELS = {
    "ridge": FairRidge(eta=1.0, sensitive_columns=["s", "t"], hide_sensitive=True),
    "base": FairKernelRidge(n_components=10, base_estimator=DecisionTreeRegressor(max_depth=2), **HIDDEN),
    "classes": FairKernelClassifier(n_components=10, **HIDDEN),
    "process": FairGPRegressor(n_components=10, noise=0.5, optimizer=None, **HIDDEN),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", [False, True])
def test_frames_with_or_without_them(name, text):
    frame = FRAME.assign(b=np.where(X[:, 2] > 0, "p", "q")) if text else FRAME
    if text and name == "base":
        pytest.skip("trees of scikit-learn take no text")
    y = (Y > 0) if name == "classes" else Y
    model = MODELS[name].fit(frame, y)
    whole = model.predict(frame)
    bare = frame.drop(columns=["s", "t"])
    for given in (
        bare,
        frame.drop(columns="t"),
        frame[["t", "a", "b"]],
        pl.from_pandas(bare),
        pa.Table.from_pandas(bare, preserve_index=False),
    ):
        np.testing.assert_array_equal(model.predict(given), whole)


@pytest.mark.parametrize("base", [None, DecisionTreeRegressor(max_depth=2)])
def test_arrays_of_all_or_of_the_visible_columns(base):
    model = FairKernelRidge(
        n_components=10, base_estimator=base, sensitive_columns=[1, 3], hide_sensitive=True, random_state=0
    ).fit(X, Y)
    assert model.n_features_in_ == 4
    bare = X[:, [0, 2]]
    whole = model.predict(X)
    for given in (bare, bare.tolist(), bare.astype(np.float32).astype(float), da.from_array(bare)):
        np.testing.assert_allclose(np.asarray(model.predict(given)), whole, atol=1e-5)
    for width in (1, 3, 5):
        with refused(width, 2):
            model.predict(np.zeros((5, width)))


def test_streams_with_or_without_them(tmp_path):
    model = FairKernelRidge(n_components=10, **HIDDEN).fit(FRAME, Y)
    whole, bare = model.predict(FRAME), FRAME.drop(columns=["s", "t"])
    for i, frame in enumerate((FRAME, bare)):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
        np.testing.assert_allclose(model.predict(scan_parquet(path)), whole, rtol=1e-12)
        parts = dd.from_pandas(frame, npartitions=3)
        np.testing.assert_allclose(np.asarray(model.predict(parts)), whole, rtol=1e-12)
        batches = BatchSource(lambda frame=frame: iter([(frame[:50],), (frame[50:],)]))
        np.testing.assert_allclose(model.predict(batches), whole, rtol=1e-12)


def test_a_visible_column_is_asked_for_by_name(tmp_path):
    save(FairKernelRidge(n_components=10, **HIDDEN).fit(FRAME, Y), tmp_path / "m.scalefair")
    model = load(tmp_path / "m.scalefair")
    with refused("a"):
        model.predict(FRAME[["b"]])
    with refused("other"):
        model.predict(FRAME.assign(other=1.0))
    seen = FairKernelRidge(n_components=10, sensitive_columns=["s"], random_state=0).fit(FRAME, Y)
    with refused("s"):
        seen.predict(FRAME.drop(columns="s"))
