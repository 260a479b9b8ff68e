"""Group gaps of files and dask collections equal those in memory."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import scalefair
from scalefair.measures import group_gaps
from tests.errors import refused
from tests.groups import people

S = ["sex", "race"]
OPTIONS = {"threshold": 0.3}


@pytest.fixture(scope="module")
def frame():
    return people(1500)


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("people")
    for i, first in enumerate(range(0, len(frame), 400)):
        frame[first : first + 400].to_parquet(path / f"part.{i}.parquet", row_group_size=150)
    return path


def from_files(frame, folder):
    data = scalefair.scan_parquet(folder)
    return data["score"], data[S], data["truth"], data["weight"]


def from_dask_frame(frame, folder):
    data = dd.from_pandas(frame, npartitions=4)
    return data["score"], data[S], data["truth"], data["weight"]


def from_mixed_dask(frame, folder):
    score = da.from_array(frame["score"].to_numpy(), chunks=333)
    return score, dd.from_pandas(frame[S], npartitions=3), frame["truth"], frame["weight"]


def from_file_and_memory(frame, folder):
    data = scalefair.scan_parquet(folder)
    return data["score"], frame[S], frame["truth"].to_numpy(), data["weight"]


def read_into_memory(frame, folder):
    data = scalefair.scan_parquet(folder)
    return frame["score"], data[S], data["truth"], data["weight"]


def computed_into_memory(frame, folder):
    data = dd.from_pandas(frame, npartitions=4)
    return frame["score"].tolist(), data[S], data["truth"], data["weight"]


def from_polars(frame, folder):
    data = pl.from_pandas(frame)
    return data["score"], data[S], data["truth"], data["weight"]


def from_arrow(frame, folder):
    data = pa.Table.from_pandas(frame)
    return data.select(["score"]), data.select(S), data["truth"].to_numpy(), frame["weight"]


STREAMED = [from_files, from_dask_frame, from_mixed_dask, from_file_and_memory]
READ = [read_into_memory, computed_into_memory, from_polars, from_arrow]


def close(first, second, **tolerance):
    pd.testing.assert_frame_equal(first, second, check_dtype=False, rtol=1e-9, atol=1e-12)


def without_quantiles(table):
    return table[~table["metric"].str.startswith("quantile")].reset_index(drop=True)


@pytest.mark.parametrize("opened", [*STREAMED, *READ], ids=lambda f: f.__name__)
def test_every_container_gives_the_same(frame, folder, opened):
    expected = group_gaps(
        frame["score"], sensitive_features=frame[S], y_true=frame["truth"], sample_weight=frame["weight"], **OPTIONS
    )
    score, s, truth, weight = opened(frame, folder)
    found = group_gaps(score, sensitive_features=s, y_true=truth, sample_weight=weight, **OPTIONS)
    # 1,500 values fit into the bins: streamed quantiles are exact, too.
    close(found.table, expected.table)
    close(found.gaps, expected.gaps)


def test_missing_attributes_in_files(frame, tmp_path):
    gaps = frame.assign(race=frame["race"].where(np.arange(len(frame)) % 7 != 3))
    gaps.to_parquet(tmp_path / "people.parquet", row_group_size=100)
    data = scalefair.scan_parquet(tmp_path)
    for missing in ("drop", "group"):
        options = {**OPTIONS, "missing": missing}
        found = group_gaps(data["score"], sensitive_features=data[S], y_true=data["truth"], **options)
        close(found.table, group_gaps(gaps["score"], sensitive_features=gaps[S], y_true=gaps["truth"], **options).table)
    with refused("'race'", 214, "missing=", error=ValueError):
        group_gaps(data["score"], sensitive_features=data[S], y_true=data["truth"])


def test_binned_quantiles_are_as_near_as_promised():
    rng = np.random.default_rng(0)
    n = 60_000
    score, s = rng.lognormal(size=n), rng.choice(["a", "b"], n, p=[0.9, 0.1])
    quantiles = (0.05, 0.5, 0.95)
    lazy = da.from_array(score, chunks=20_000)
    found = group_gaps(lazy, sensitive_features=s, quantiles=quantiles)
    for group, rows in found.by_group.iterrows():
        inside = np.sort(score[s == group])
        for q in quantiles:
            rank = np.searchsorted(inside, rows[f"quantile_{q:g}"], side="right") / len(inside)
            assert -1e-9 <= rank - q <= 4 / 2048


def test_streamed_numbers_do_not_depend_on_partitions(frame):
    tables = []
    for parts in (1, 3, 8):
        data = dd.from_pandas(frame, npartitions=parts)
        tables.append(group_gaps(data["score"], sensitive_features=data[S], y_true=data["truth"], **OPTIONS).table)
    close(tables[0], tables[1])
    close(tables[0], tables[2])


def test_scans_of_other_files_and_mixtures_are_refused(frame, folder, tmp_path):
    frame.to_parquet(tmp_path / "other.parquet")
    data, other = scalefair.scan_parquet(folder), scalefair.scan_parquet(tmp_path)
    with refused("sensitive_features", "other.parquet", "y_pred", error=ValueError):
        group_gaps(data["score"], sensitive_features=other[S])
    with refused("y_true", "y_pred", "Scan", error=ValueError):
        group_gaps(data["score"], sensitive_features=data[S], y_true=dd.from_pandas(frame["truth"], npartitions=2))
    with refused("y_pred", "'sex'", "categorical", error=ValueError):
        group_gaps(data["sex"], sensitive_features=data["race"])
    with refused("y_true", "2 columns", error=ValueError):
        group_gaps(data["score"], sensitive_features=data["sex"], y_true=data[["truth", "target"]])
    with refused("sensitive_features", 1499, 1500, error=ValueError):
        group_gaps(data["score"], sensitive_features=frame[S][1:])
    with refused("sensitive_features", 1499, 1500, error=ValueError):
        group_gaps(dd.from_pandas(frame["score"], npartitions=2), sensitive_features=frame[S][1:])
    bad = frame.assign(score=frame["score"].where(frame.index != 1234))
    with refused("y_pred", "'score'", "row 1234", error=ValueError):
        group_gaps(dd.from_pandas(bad, npartitions=2)["score"], sensitive_features=frame[S])
