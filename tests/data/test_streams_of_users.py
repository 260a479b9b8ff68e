"""What users do with streams beside the plain case: odd columns, odd cuts, odd companions."""

from __future__ import annotations

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalefair import BatchSource, FairRidge, scan_csv, scan_parquet
from scalefair.data.sources.dask_tasks import dask_frame
from tests.errors import refused

N = 300
RNG = np.random.default_rng(0)
X, S, W = RNG.normal(size=(N, 3)), RNG.integers(0, 2, N), RNG.integers(0, 3, N)
Y = X[:, 0] + S + RNG.normal(size=N)
FRAME = pd.DataFrame(X, columns=list("abc"))


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def fit(x, y=Y, s=S, w=W):
    return FairRidge(eta=1.0).fit(x, y, sensitive_features=s, sample_weight=w)


def in_partitions(make, count=3):
    """A dask frame whose partitions nobody holds to what dask was told of them."""
    return dd.from_map(make, range(count), meta=make(0).iloc[:0], enforce_metadata=False)


def third(frame, i):
    return frame.iloc[i * 100 : i * 100 + 100]


def mixed():
    """Every kind of column, missing values where a kind can have them."""
    flag, whole = RNG.random(N) < 0.5, RNG.integers(0, 9, N)
    gaps = RNG.random(N) < 0.1
    start = pd.Timestamp("2020-01-01", tz="Europe/Berlin")
    return pd.DataFrame(
        {
            "number": X[:, 0],
            "whole": whole,
            "single": X[:, 1].astype("float32"),
            "text": RNG.choice(["a", "b", "NA", "None", ""], N),
            "flag": pd.array(flag, dtype="boolean").copy(),
            "gaps": pd.array(whole, dtype="Int64").copy(),
            "level": pd.Categorical(RNG.choice(["x", "y"], N), categories=["y", "x", "none"]),
            "code": pd.Categorical(np.where(np.arange(N) < 100, 10, RNG.choice([9, 2], N))),
            "time": start + pd.to_timedelta(RNG.integers(0, 90_000, N), "min"),
        }
    ).assign(flag=lambda f: f["flag"].mask(gaps), gaps=lambda f: f["gaps"].mask(gaps))


MIXED = mixed()


def other_cut(i, start, stop):
    """The same rows as another program might have written them."""
    part = MIXED.iloc[start:stop].copy()
    levels = ["x", "y"] if i % 2 else ["y", "x", "rare"]
    part["level"] = pd.Categorical(part["level"].astype(str), categories=levels)
    part["code"] = pd.Categorical(part["code"].astype(int))
    if i == 1:
        part["text"] = part["text"].astype("category")
    if i == 2:
        part["whole"] = part["whole"].astype("float64")
        part["time"] = part["time"].dt.tz_convert("America/New_York")
    return part


def as_parquet(folder):
    for i, start in enumerate(range(0, N, 80)):
        part = other_cut(i, start, start + 80).assign(y=Y[start : start + 80])
        part[sorted(part, reverse=bool(i % 2))].to_parquet(folder / f"{i}.parquet")
    scan = scan_parquet(folder)
    return scan[list(MIXED.columns)], scan["y"], S, W


def as_dask(_):
    ends = [0, 0, 100, 100, 220, N, N]
    x = in_partitions(lambda i: other_cut(i, ends[i], ends[i + 1]), 6)
    s = dd.from_pandas(pd.DataFrame({"s": S}), npartitions=4)
    return x, dd.from_pandas(pd.Series(Y), npartitions=2), s, da.from_array(W, chunks=77)


def as_dask_of_files(folder):
    x, y, _, _ = as_parquet(folder)
    return dask_frame(x), dask_frame(y)["y"], S, W


def as_batches(_, make=other_cut):
    def batches():
        for i, start in enumerate(range(0, N, 70)):
            rows = slice(start, start + 70)
            yield make(i, start, start + 70), Y[rows], S[rows], W[rows]

    return BatchSource(batches), None, None, None


def as_arrow_batches(folder):
    return as_batches(folder, lambda _, *rows: pa.Table.from_pandas(MIXED.iloc[slice(*rows)]))


CONTAINERS = [as_parquet, as_dask, as_dask_of_files, as_batches, as_arrow_batches]


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_kind_of_column_however_it_is_cut_and_typed(container, tmp_path):
    reference = fit(MIXED).predict(MIXED)
    x, *rest = container(tmp_path)
    model = fit(x, *rest)
    for rows in (x, MIXED):
        np.testing.assert_allclose(np.asarray(model.predict(rows)), reference, atol=1e-10)


@pytest.mark.parametrize(
    ("y", "s", "w"),
    [
        (list(Y), list(S), list(W)),
        (pa.array(Y), pa.table({"s": S}), pa.chunked_array([W])),
        (dd.from_pandas(pd.Series(Y), 3), dd.from_pandas(pd.DataFrame({"s": S}), 2), W),
        (da.from_array(Y, 50), da.from_array(S, 70), dd.from_pandas(pd.Series(W), 2)),
    ],
    ids=["lists", "arrow", "frames", "arrays"],
)
def test_the_other_parts_may_be_elsewhere_than_the_inputs(y, s, w, tmp_path):
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "x.parquet")
    reference = fit(FRAME).predict(FRAME)
    for x in (dd.from_pandas(FRAME, npartitions=4), scan_parquet(tmp_path / "x.parquet"), FRAME):
        np.testing.assert_allclose(fit(x, y, s, w).predict(FRAME), reference, atol=1e-10)


def test_numbers_for_names_are_no_names():
    plain = pd.DataFrame(X)
    lazy = dd.from_pandas(plain, npartitions=3)
    model = fit(lazy)
    assert not hasattr(model, "feature_names_in_")
    # Warnings are errors: neither container may look named to the other's fit.
    np.testing.assert_allclose(model.predict(plain), fit(plain).predict(lazy), atol=1e-10)


def test_columns_that_change_places_between_partitions_are_refused():
    lazy = in_partitions(lambda i: third(FRAME, i)[list("abc") if i != 1 else list("cba")])
    for judge in (lambda: fit(lazy), lambda: fit(FRAME).predict(lazy).compute()):
        with refused("partition 1", list("cba"), list("abc"), error=ValueError):
            judge()


def test_a_name_twice_in_a_later_file(tmp_path):
    table = pa.Table.from_pandas(FRAME)
    for folder in ("parquet", "csv"):
        (tmp_path / folder).mkdir()
    pq.write_table(table, tmp_path / "parquet" / "0.parquet")
    pq.write_table(table.append_column("b", table["a"]), tmp_path / "parquet" / "1.parquet")
    FRAME.to_csv(tmp_path / "csv" / "0.csv", index=False)
    (tmp_path / "csv" / "1.csv").write_text("a,b,b,c\n1,2,3,4\n")
    for scan, form in ((scan_parquet, "parquet"), (scan_csv, "csv")):
        with refused(f"1.{form}", "unique", "'b'", error=ValueError):
            scan(tmp_path / form).read()


@pytest.mark.parametrize("what", ["sensitive", "control", "predicted"])
def test_the_place_of_a_missing_value_is_named(what, tmp_path):
    bad = FRAME.copy()
    bad.loc[250, "b"] = np.nan
    for i in range(3):
        third(bad, i).to_parquet(tmp_path / f"{i}.parquet")
    scan = scan_parquet(tmp_path)
    lazy = dd.from_pandas(bad, npartitions=3, sort=False)
    model = fit(FRAME)
    judge = {
        "predicted": lambda x: np.asarray(model.predict(x)),
        "sensitive": lambda x: fit(x[["a"]], s=x[["b"]]),
        "control": lambda x: FairRidge(eta=1.0).fit(x[["a"]], Y, sensitive_features=S, control_features=x[["b"]]),
    }[what]
    for x, place in ((scan, "2.parquet"), (lazy, "partition 2")):
        with refused(place, "'b'", error=ValueError) as caught:
            judge(x)
        assert caught.value.where.endswith(place)


@pytest.mark.parametrize("x", [da.from_array(X, 50), BatchSource([(X, None, S)])])
def test_targets_are_asked_for(x):
    with refused("y is None", error=ValueError):
        fit(x, None, None if isinstance(x, BatchSource) else S, None)


def test_a_lazy_frame_is_to_be_scanned_or_collected():
    for judge in (fit, fit(X).predict):
        with refused("LazyFrame", "scan_parquet", error=TypeError):
            judge(pl.LazyFrame(X))


@pytest.mark.parametrize("x", [da.from_array(Y, 50), dask.bag.range(3, npartitions=1)])
def test_collections_that_are_no_tables(x):
    with refused("X has", type(x).__name__, 2, error=ValueError):
        fit(x)
