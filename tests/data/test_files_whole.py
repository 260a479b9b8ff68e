"""Whole tables: what a scan reads into memory, and which files it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from scalefair import scan_csv, scan_parquet


@pytest.fixture(name="table")
def fixture_table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=20), "s": rng.choice(["f", "m"], 20)})


def read(path):
    """Return all rows of a file or folder, by the ending of its name."""
    return (scan_csv if "csv" in path.name else scan_parquet)(path).read()


@pytest.mark.parametrize("where", ["a.parquet", "b.csv", "c.csv.gz", "d"])
def test_tables_are_read_whole(table, tmp_path, where):
    path = tmp_path / where
    if where == "d":
        path.mkdir()
        table.to_parquet(path / "part-0.parquet")
        (path / "_SUCCESS").touch()
    else:
        table.to_csv(path, index=False) if "csv" in where else table.to_parquet(path)
    pd.testing.assert_frame_equal(read(path).to_pandas(), table)


def test_partitioned_folders_give_their_column(table, tmp_path):
    pa.parquet.write_to_dataset(pa.Table.from_pandas(table), tmp_path / "p", partition_cols=["s"])
    rows = read(tmp_path / "p")
    assert rows.num_rows == len(table)
    assert sorted(set(rows["s"].to_pylist())) == ["f", "m"]


def test_missing_cells_of_a_csv_are_missing(tmp_path):
    (tmp_path / "m.csv").write_text('x,t\n1,a\n,\n3,NA\n4,"NA"\n')
    rows = read(tmp_path / "m.csv")
    assert rows["x"].to_pylist() == [1, None, 3, 4]
    assert rows["t"].to_pylist() == ["a", None, None, "NA"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.parquet", b""),
        ("empty.csv", b""),
        ("header.csv", b"a,b\n"),
        ("text.parquet", b"a,b\n1,2\n"),
        ("short.parquet", b"PAR1" + b"\0" * 50),
        ("ragged.csv", b"a,b\n1,2\n3\n"),
        ("latin.csv", b"a,b\n1,\xe9\n"),
        ("gzip.csv.gz", b"not gzip"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    with pytest.raises(FileNotFoundError) as gone:
        read(path)
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(path)
    for error in (gone, caught):
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_truncated_and_empty_parquet_are_refused(table, tmp_path):
    whole, cut, none = (tmp_path / f"{name}.parquet" for name in ("whole", "cut", "none"))
    table.to_parquet(whole)
    content = whole.read_bytes()
    for length in (8, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut\.parquet"):
            read(cut)
    table[:0].to_parquet(none)
    with pytest.raises(ValueError, match=r"none\.parquet"):
        read(none)


def test_a_folder_without_parquet_or_of_different_tables_is_refused(table, tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    with pytest.raises(ValueError, match=str(folder)):
        read(folder)
    table.to_parquet(folder / "0.parquet")
    table.assign(x="text").to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet: column 'x'"):
        read(folder)
