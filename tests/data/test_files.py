"""Rows streamed from parquet files are the rows of the table, however it is cut into files."""

import os
import pickle
import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalefair.data import frames
from scalefair.data.columns import TableStatistics, table_statistics
from scalefair.data.encoding import TableEncoder
from scalefair.data.sources.files import FileSource, scan_parquet
from tests.errors import refused
from tests.tables import INPUTS, Total, in_memory, mixed, on_disk, plain, write_parts

ACS = Path(__file__).parents[3] / "shared/data/acs_income_2018_regression"


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    row_group=st.integers(1, 40),
    rows=st.integers(1, 40),
    n_threads=st.integers(1, 3),
)
@settings(deadline=None, max_examples=25)
def test_any_cut_into_files_and_row_groups_gives_the_same_rows(sizes, row_group, rows, n_threads):
    table = mixed(sum(sizes))
    with tempfile.TemporaryDirectory() as folder:
        write_parts(Path(folder), table, sizes, row_group)
        source = on_disk(folder, n_threads=n_threads)
        assert source.n_rows == len(table)
        chunks = list(source.chunks(rows))
        assert plain(pa.concat_tables(c.x for c in chunks)) == plain(table.select(INPUTS))
        assert plain(pa.concat_tables(c.s for c in chunks)) == plain(table.select(["level"]))
        np.testing.assert_array_equal(np.vstack([c.y for c in chunks])[:, 0], table["y"])
        np.testing.assert_array_equal(np.concatenate([c.weight for c in chunks]), table["w"])
        # As many rows as asked for, up to the end of each file; empty files give no chunk.
        filled = [min(rows, size - start) for size in sizes for start in range(0, size, rows)]
        assert [c.n_rows for c in chunks] == filled
        assert [c.row for c in chunks] == [0, *np.cumsum(filled)[:-1]]
        files = [f"part.{i}.parquet" for i, size in enumerate(sizes) for _ in range(0, size, rows)]
        assert [os.path.basename(c.where) for c in chunks] == files
        expected = in_memory(table).fold(Total, 17)
        np.testing.assert_allclose(source.fold(Total, rows), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 40, 1000])
def test_samples_depend_on_row_numbers_only(tmp_path, size):
    table = mixed(150)
    write_parts(tmp_path, table, [70, 0, 1, 79], row_group=13)
    found, expected = on_disk(tmp_path).sample(size, 5), in_memory(table).sample(size, 5)
    assert plain(found.x) == plain(expected.x)
    assert plain(found.s) == plain(expected.s)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.weight, expected.weight)


def test_encoders_learn_the_same(tmp_path):
    table = mixed(500)
    write_parts(tmp_path, table, [123, 300, 77])
    data = scan_parquet(tmp_path)[INPUTS]
    parts = [table_statistics(chunk.x) for chunk in FileSource(data).chunks(41)]
    streamed = TableEncoder().finish(sum(parts, TableStatistics()))
    whole = TableEncoder().fit(table.select(INPUTS))
    expected = whole.transform(table.select(INPUTS))
    np.testing.assert_allclose(streamed.transform(data.head(500)), expected, atol=1e-12)


def test_folders_named_like_a_column_give_it(tmp_path):
    table = pa.table({"x": [1.0, 2, 3, 4], "a": [1, 1, 2, 10], "b": ["u/v", "u v", None, "u v"]})
    pq.write_to_dataset(table, tmp_path / "data", partition_cols=["a", "b"])
    data = scan_parquet(tmp_path / "data")
    assert data.columns == ["x", "a", "b"]
    assert data.kinds == {"x": "numeric", "a": "numeric", "b": "categorical"}
    assert plain(data.head(9)) == plain(table)  # 10 comes after 2
    assert plain(data[["b", "a"]].head(3)) == plain(table.select(["b", "a"])[:3])
    assert data["b"].n_rows == len(data) == 4
    assert sorted(scan_parquet(tmp_path / "data/*/*/*.parquet").columns) == ["a", "b", "x"]
    assert scan_parquet(tmp_path / "data/a=2/*/*").columns == ["x", "b"]
    (file,) = (tmp_path / "data/a=2").rglob("*.parquet")
    pq.write_table(table.select(["x"]), tmp_path / "data/loose.parquet")
    with refused("loose.parquet", "'a'", "missing", error=ValueError):
        FileSource(scan_parquet(tmp_path / "data"))
    assert len(scan_parquet(tmp_path / "data")["x"]) == 8
    (tmp_path / "data/loose.parquet").unlink()
    assert scan_parquet(file).columns == ["x"]
    assert scan_parquet(tmp_path / "data").read().schema.field("a").type == pa.int64()


def test_files_come_in_natural_order_and_lists_as_given(tmp_path):
    table = pa.table({"x": np.arange(12.0)})
    write_parts(tmp_path, table, [1] * 12)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.0.parquet.crc").write_bytes(b"x")
    (tmp_path / "_old").mkdir()
    write_parts(tmp_path / "_old", table, [1])
    (tmp_path / "notes.txt").write_text("not data")
    for path in (tmp_path, str(tmp_path), f"{tmp_path}/", tmp_path / "*.parquet", [tmp_path]):
        assert scan_parquet(path).head(20).equals(table)
    assert scan_parquet(tmp_path).read().equals(table)
    some = [tmp_path / f"part.{i}.parquet" for i in (7, 3)]
    assert scan_parquet(some).head()["x"].to_pylist() == [7, 3]
    assert scan_parquet(tmp_path / "part.[35].parquet").head()["x"].to_pylist() == [3, 5]
    bracket = tmp_path / "part[1].parquet"
    pq.write_table(table, bracket)
    assert len(scan_parquet(bracket)) == 12


def test_remote_paths_go_through_fsspec(tmp_path):
    memory, table = fsspec.filesystem("memory"), mixed(50)
    write_parts(tmp_path, table, [20, 30])
    try:
        memory.put(str(tmp_path), "/far/k=3", recursive=True)
        data = scan_parquet("memory://far")
        assert data.columns == [*table.column_names, "k"]
        assert plain(data.drop("k").head(99)) == plain(table)
        (chunk, *_) = FileSource(data).chunks(99)
        assert chunk.where == "memory:///far/k=3/part.0.parquet"
        assert scan_parquet("memory://far/*/part.1.parquet").n_rows == 30
        assert scan_parquet("/far", filesystem=memory).n_rows == 50
        local = pyarrow.fs.LocalFileSystem()
        assert scan_parquet(tmp_path / "*.parquet", filesystem=local).n_rows == 50
        paths = ["memory://far/k=3/part.0.parquet", tmp_path / "part.0.parquet"]
        with refused(*paths, error=ValueError):
            scan_parquet(paths)
        with refused("memory://", "nowhere", error=FileNotFoundError):
            scan_parquet("memory://nowhere")
    finally:
        memory.rm("/far", recursive=True)


def test_a_scan_is_a_selection_of_columns(tmp_path):
    table = mixed(10)
    write_parts(tmp_path, table, [4, 6])
    data = scan_parquet(tmp_path)
    assert data.columns == table.column_names
    assert data.kinds == frames.column_kinds(table)
    assert data["y"].columns == ["y"]
    assert data[["w", "age"]].head(2).equals(table.select(["w", "age"])[:2])
    assert data[INPUTS].drop("age").drop(["text", "day", "time"]).columns == ["count", "level", "flag"]
    assert scan_parquet(tmp_path, columns=["y", "w"]).columns == ["y", "w"]
    assert data.head(0).num_rows == 0
    assert data.head(7).num_rows == 7
    assert (len(data), data.n_rows, data.count_rows()) == (10, 10, 10)
    assert "part.0.parquet and 1 more: 9 columns age" in repr(data)
    assert pickle.loads(pickle.dumps(data)).head(10).equals(data.head(10))
    with refused("'agee'", "'age'", error=ValueError) as caught:
        data["agee"]
    assert caught.value.column == "agee"
    with refused("'y'", error=ValueError) as caught:
        data.drop("y")["y"]
    assert caught.value.column == "y"
    for wrong in ([], ["y", "y"]):
        with refused(wrong, error=ValueError):
            data[wrong]
    with refused("n=-1", error=ValueError):
        data.head(-1)
    with refused("Scan", error=TypeError):
        list(data)


def test_parts_may_be_scans_of_the_same_files_or_in_memory(tmp_path):
    table = mixed(30)
    write_parts(tmp_path, table, [12, 18])
    y = table["y"].to_numpy()
    x, again = scan_parquet(tmp_path)["age"], scan_parquet(str(tmp_path))
    odd = pd.Series(y, index=np.arange(30)[::-1])
    for given_y in (again["y"], y, y[:, None], y.tolist(), odd, pl.Series(y), table["y"]):
        source = FileSource(x, table.select(["text"]), given_y, again["w"], n_threads=2)
        chunks = list(source.chunks(7))
        np.testing.assert_array_equal(np.vstack([c.y for c in chunks]), y[:, None])
        assert plain(pa.concat_tables(c.s for c in chunks)) == plain(table.select(["text"]))
        assert all(c.weight.shape == (c.n_rows,) for c in chunks)
    two = FileSource(x, y=again[["y", "flag"]])
    np.testing.assert_array_equal(np.vstack([c.y for c in two.chunks(9)]), np.c_[y, table["flag"]])
    with refused("y has", 29, 30, error=ValueError):
        FileSource(x, y=y[:-1])
    with refused("sensitive_features", 31, 30, error=ValueError):
        FileSource(x, np.zeros((31, 2)))
    (tmp_path / "other").mkdir()
    write_parts(tmp_path / "other", table, [30])
    with refused("y is", "other", "X", error=ValueError):
        FileSource(x, y=scan_parquet(tmp_path / "other")["y"])
    with refused("y: ", "'text'", error=ValueError):
        FileSource(x, y=again["text"])
    with refused("sample_weight", ["w", "y"], error=ValueError):
        FileSource(x, weight=again[["w", "y"]])
    with refused("X is", "Table", "scan_parquet", error=TypeError):
        FileSource(table)


def test_widths_may_differ_between_files(tmp_path):
    """pandas writes whole numbers as float64 where one is missing, and no type for no value."""
    a = {"n": pa.array([1, 2]), "t": pa.array(["u", "v"]), "e": pa.nulls(2), "d": pa.array([0, 1], pa.date32())}
    b = {
        "t": pa.array(["v", "z"]).dictionary_encode(),
        "n": pa.array([0.5, None]),
        "e": pa.array(["text", None]),
        "d": pa.array([0, 1], pa.timestamp("ns")),
    }
    pq.write_table(pa.table(a), tmp_path / "0.parquet")
    pq.write_table(pa.table(b), tmp_path / "1.parquet")
    data = scan_parquet(tmp_path)
    assert list(data.kinds.values()) == ["numeric", "categorical", "categorical", "datetime"]
    rows = data.head(4)
    assert rows["n"].to_pylist() == [1, 2, 0.5, None]
    assert rows["t"].to_pylist() == ["u", "v", "v", "z"]
    assert rows["e"].to_pylist() == [None, None, "text", None]
    assert plain(FileSource(data).sample(4, 0).x) == plain(rows)


def test_categories_of_pandas_stay_categories(tmp_path):
    """Parquet has them only for text; that numbers are categories, pandas writes beside."""
    frame = pd.DataFrame({"a": pd.Categorical([3, 1, None, 3]), "b": pd.Categorical(list("uvuw"))})
    frame[:2].to_parquet(tmp_path / "0.parquet")
    frame[2:].to_parquet(tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.nulls(1), "b": pa.nulls(1)}), tmp_path / "3.parquet")
    data = scan_parquet(tmp_path)
    assert data.kinds == frames.column_kinds(frame) == {"a": "categorical", "b": "categorical"}
    assert plain(data.head()) == {"a": [3, 1, None, 3, None], "b": [*"uvuw", None]}
    (column, _) = frames.columns(FileSource(data).sample(4, 0).x)
    assert column.codes()[1] == ["3", "1"]
    pq.write_table(pa.table({"a": ["5"], "b": ["u"]}), tmp_path / "2.parquet")
    assert scan_parquet(tmp_path).head()["a"].to_pylist() == ["3", "1", None, "3", "5"]


def test_the_nameless_index_of_a_frame_is_no_input(tmp_path):
    pd.DataFrame({"x": [1.0, 2]}, index=[7, 9]).to_parquet(tmp_path / "a.parquet")
    assert scan_parquet(tmp_path).columns == ["x"]


def test_memory_does_not_grow_with_the_file(tmp_path):
    """One row group, the worst case: pyarrow's dataset scanner would decode all of it."""
    peaks = []
    for n in (200_000, 500_000):
        rng = np.random.default_rng(0)
        table = pa.table({f"x{j}": rng.normal(size=n) for j in range(4)})
        pq.write_table(table, tmp_path / "big.parquet", row_group_size=n, compression="none")
        size = table.nbytes
        del table
        base, peak = pa.total_allocated_bytes(), 0
        for _ in FileSource(scan_parquet(tmp_path / "big.parquet")).chunks(1000):
            peak = max(peak, pa.total_allocated_bytes() - base)
        peaks.append(peak)
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 0.75 * size


def test_a_real_file(tmp_path):
    (file, *_) = [*ACS.glob("*.parquet"), None]
    if file is None:
        pytest.skip("the data are not on this machine")
    data = scan_parquet(ACS)
    assert len(data) == 295_243
    assert data.kinds["Age"] == data.kinds["Income"] == "numeric"
    assert data.kinds["Race"] == "categorical"
    source = FileSource(data.drop("Income"), data["Race"], data["Income"], n_threads=2)
    total = source.map(lambda: lambda chunk: chunk.y, 20_000)
    np.testing.assert_array_equal(total[:, 0], pq.read_table(file)["Income"].to_numpy())
