"""The same rows in any container give the same fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import scalefair
from scalefair import BatchSource, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.datasets import make_biased_income

SENSITIVE = ["sex", "age"]
MODELS = {
    "nystroem": FairKernelRidge(n_components=40, eta=1.0, random_state=0),
    "limit": FairRidge(unfairness=0.05, random_state=0),
    "cv": FairKernelRidgeCV(
        n_components=30, alphas=[1e-4, 1e-2], etas=[0, 1, 10], cv=3, random_state=0
    ),
}


@pytest.fixture(scope="module")
def table():
    pay = make_biased_income(700, random_state=0)
    frame = pay.data.copy()
    frame = frame.astype(dict.fromkeys(frame.select_dtypes("category").columns, str))
    frame.loc[5:40, "tenure"] = np.nan
    frame["weight"] = np.random.default_rng(0).integers(0, 3, len(frame)).astype(float)
    return frame.assign(pay=np.asarray(pay.target))


def parts(data):
    """X, y, s and w of anything that is indexed by names."""
    return data.drop(columns=["pay", "weight"]), data["pay"], data[SENSITIVE], data["weight"]


def scan_parts(scan):
    return scan.drop(["pay", "weight"]), scan["pay"], scan[SENSITIVE], scan["weight"]


def as_pandas(frame, folder):
    return parts(frame)


def as_polars(frame, folder):
    X, y, s, w = parts(frame)
    return pl.from_pandas(X), pl.from_pandas(y), pl.from_pandas(s), w.to_numpy()


def as_pyarrow(frame, folder):
    X, y, s, w = parts(frame)
    return pa.Table.from_pandas(X), y.to_numpy(), pa.Table.from_pandas(s), w.to_numpy()


def as_parquet(frame, folder):
    for i, start in enumerate(range(0, len(frame), 190)):
        part = pa.Table.from_pandas(frame.iloc[start : start + 190], preserve_index=False)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=77)
    return scan_parts(scalefair.scan_parquet(folder))


def as_csv(frame, folder):
    frame.to_csv(folder / "pay.csv", index=False)
    return scan_parts(scalefair.scan_csv(folder / "pay.csv"))


def as_dask(frame, folder):
    dd = pytest.importorskip("dask.dataframe")
    return parts(dd.from_pandas(frame, npartitions=4))


def as_dask_of_unknown_lengths(frame, folder):
    dd = pytest.importorskip("dask.dataframe")
    marked = dd.from_pandas(
        pd.concat([frame.assign(keep=1), frame.head(50).assign(keep=0)], ignore_index=True),
        npartitions=6,
    )
    kept = marked[marked["keep"] == 1].drop(columns="keep")
    return parts(kept)


def as_batches(frame, folder):
    def batches():
        for start in range(0, len(frame), 130):
            X, y, s, w = parts(frame.iloc[start : start + 130])
            yield {"X": X, "y": y, "sensitive_features": s, "sample_weight": w}

    return BatchSource(batches), None, None, None


CONTAINERS = [
    as_polars, as_pyarrow, as_parquet, as_csv, as_dask, as_dask_of_unknown_lengths, as_batches,
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("container", CONTAINERS, ids=lambda function: function.__name__)
def test_mixed_columns(name, container, table, tmp_path):
    reference = fit(MODELS[name], *as_pandas(table, None))
    X, y, s, w = container(table, tmp_path)
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
    X, y, _, _ = as_parquet(table, tmp_path)
    plain, target, _, _ = as_pandas(table, None)
    for hide in (False, True):
        model = FairKernelRidge(
            n_components=30, eta=1.0, sensitive_columns=SENSITIVE, hide_sensitive=hide,
            random_state=0,
        )  # fmt: skip
        streamed = fit(model, X, y, None, None)
        reference = fit(model, plain, target, None, None)
        np.testing.assert_allclose(streamed.predict(X), reference.predict(plain), rtol=1e-9)


def test_the_place_of_a_bad_value_is_named(table, tmp_path):
    bad = table.copy()
    bad.loc[600, "pay"] = np.nan
    X, y, s, _ = as_parquet(bad, tmp_path)
    with pytest.raises(ValueError, match=r"part-3\.parquet.*'pay'.*row 600"):
        fit(MODELS["nystroem"], X, y, s, None)
    da = pytest.importorskip("dask.array")
    rows = np.ones((100, 2)) * np.arange(100.0)[:, None]
    rows[77, 1] = np.inf
    lazy = da.from_array(rows, chunks=(25, 2))
    with pytest.raises(ValueError, match=r"partition 3.*column 1"):
        fit(FairRidge(eta=1.0), lazy, np.arange(100.0), np.arange(100.0), None)
