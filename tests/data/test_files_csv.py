"""csv files give the rows that parquet files do, in types that the first rows decide."""

import gzip
import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalefair.data.sources.files import FileSource, csv, scan_csv, scan_parquet
from tests.errors import refused
from tests.tables import Total, guarded, in_memory, mixed, on_disk, plain

INPUTS = ["age", "count", "text", "flag", "day", "time"]


def readable(n):
    """A table that csv can hold: levels are text, and text is not empty."""
    table = mixed(n)
    texts = ["none" if text == "" else text for text in table["text"].to_pylist()]
    levels = ["none" if text == "" else text for text in table["level"].to_pylist()]
    at = table.column_names.index
    table = table.set_column(at("text"), "text", pa.array(texts, pa.string()))
    return table.set_column(at("level"), "level", pa.array(levels, pa.string()))


def write_parts(folder, table, sizes):
    start = 0
    for i, size in enumerate(sizes):
        pa.csv.write_csv(table[start : start + size], folder / f"part.{i}.csv")
        start += size


@pytest.fixture
def small_blocks(monkeypatch):
    """The first block, which decides the types, is a few lines."""
    monkeypatch.setattr(csv, "_BLOCK", 64)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(lambda s: sum(s) > 9),
    rows=st.integers(1, 40),
    block=st.integers(200, 2000),
    n_threads=st.integers(1, 3),
)
@settings(deadline=None, max_examples=20)
def test_csv_and_parquet_are_the_same_rows(sizes, rows, block, n_threads):
    table = readable(sum(sizes))
    types = {"age": "float64", "text": "string", "day": "date32", "time": "timestamp[us]"}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "_BLOCK", block)
        write_parts(Path(folder), table, sizes)
        pq.write_table(table, Path(folder, "all.parquet"))
        data = scan_csv(folder, column_types=types)
        source = FileSource(data[INPUTS], data["level"], data["y"], data["w"], n_threads=n_threads)
        assert (source.n_rows, data.n_rows) == (None, None)
        chunks = list(source.chunks(rows))
        assert source.n_rows == data.n_rows == len(data) == len(table)
        assert plain(pa.concat_tables(c.x for c in chunks)) == plain(table.select(INPUTS))
        assert all(c.n_rows <= rows for c in chunks)
        whole = on_disk(Path(folder, "all.parquet"))
        np.testing.assert_array_equal(source.sample(9, 2).y, whole.sample(9, 2).y)
        expected = in_memory(table).fold(Total, 17)
        np.testing.assert_allclose(source.fold(Total, rows), expected, rtol=1e-12)


def test_kinds_are_those_of_the_whole_table(tmp_path):
    table = readable(50)
    write_parts(tmp_path, table, [50])
    data = scan_csv(tmp_path)
    whole = pa.csv.read_csv(tmp_path / "part.0.csv", convert_options=data.files._convert_options())
    assert data.kinds == scan_kinds(tmp_path, whole)
    assert plain(data.head(50)) == plain(whole)


def scan_kinds(folder, table):
    pq.write_table(table, folder / "same.parquet")
    return scan_parquet(folder / "same.parquet").kinds


def test_forms_of_paths_and_cells(tmp_path):
    for year in (2018, 2019):
        (tmp_path / f"year={year}").mkdir()
        text = f'x;t\n{year};"a;\nb"\n;NA\n3;"NA"\n'.encode()
        (tmp_path / f"year={year}" / "a.csv.gz").write_bytes(gzip.compress(text))
    data = scan_csv(tmp_path, delimiter=";")
    assert data.columns == ["x", "t", "year"]
    rows = plain(data.head(9))
    assert rows["x"] == [2018, None, 3, 2019, None, 3]
    assert rows["t"] == ["a;\nb", None, "NA"] * 2
    assert rows["year"] == [2018] * 3 + [2019] * 3
    memory = fsspec.filesystem("memory")
    try:
        memory.put(str(tmp_path), "/far-csv", recursive=True)
        assert plain(scan_csv("memory://far-csv", delimiter=";").head(9)) == rows
    finally:
        memory.rm("/far-csv", recursive=True)
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfx;t\r\n1;u\r\n")
    assert plain(scan_csv(tmp_path / "b.csv", delimiter=";").head()) == {"x": [1], "t": ["u"]}


def test_len_asks_for_a_count(tmp_path):
    (tmp_path / "a.csv").write_text("x,t\n1,a\n2,b\n")
    data = scan_csv(tmp_path / "a.csv")
    with refused("count_rows()", error=TypeError):
        len(data)
    assert data  # an answer that needs no count
    assert data["t"].count_rows() == 2
    assert len(data) == len(data["x"]) == 2
    assert data.head(1).num_rows == 1


def test_columns_are_found_by_name_and_empty_files_have_none(tmp_path):
    (tmp_path / "0.csv").write_text("x,t\n")
    (tmp_path / "1.csv").write_text("t,x\nu,1\n")
    (tmp_path / "2.csv").write_text("extra,x,t\n7,2.5,v\n")
    data = scan_csv(tmp_path)
    assert plain(data.head()) == {"x": [1, 2.5], "t": ["u", "v"]}
    assert data.kinds == {"x": "numeric", "t": "categorical"}


def test_types_are_those_of_the_first_rows(tmp_path, small_blocks):
    lines = "".join(f"{i},u,\n" for i in range(40))
    path = tmp_path / "a.csv"
    path.write_text(f"x,t,e\n{lines}0.5,v,\n")
    assert scan_csv(path)["x"].head(41)["x"].to_pylist() == [*range(40), 0.5]
    assert scan_csv(path).kinds == {"x": "numeric", "t": "categorical", "e": "empty"}
    path.write_text(f"x,t,e\n{lines}word,v,\n")
    error = guarded(lambda: FileSource(scan_csv(path), n_threads=3).sample(5, 0))
    with refused("a.csv", "'x'", "'word'", "column_types={'x': 'string'}", error=ValueError):
        raise error
    repaired = scan_csv(path, column_types={"x": "string"})
    assert repaired.kinds["x"] == "categorical"
    assert repaired.head(41)["x"].to_pylist() == [*map(str, range(40)), "word"]
    assert FileSource(scan_csv(path).drop("x")).sample(99, 0).n_rows == 41
    path.write_text(f"x,t,e\n{lines}1,v,now\n")
    with refused("a.csv", "'e'", "'now'", error=ValueError) as caught:
        scan_csv(path)["e"].count_rows()
    assert caught.value.column == "e"
    assert caught.value.where == str(path)
    assert scan_csv(path, column_types={"e": pa.string()})["e"].count_rows() == 41
    path.write_text(f"x,t,e\n{lines}1,v\n")
    with refused("a.csv", "Expected 3", error=ValueError):
        scan_csv(path)["x"].count_rows()
    data = scan_csv(path)
    path.write_text("x,t,e\n")
    with refused("a.csv", error=ValueError):
        list(FileSource(data).chunks(9))


def test_what_is_in_memory_has_the_length_of_the_files(tmp_path):
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 30)
    x = scan_csv(tmp_path / "a.csv")
    for n in (29, 31):
        with refused("y has", n, 30, error=ValueError):
            list(FileSource(scan_csv(tmp_path / "a.csv"), y=np.ones(n)).chunks(5))
    assert sum(chunk.y.sum() for chunk in FileSource(x, y=np.ones(30)).chunks(7)) == 30
    with refused("y has", 31, 30, error=ValueError):
        FileSource(x, y=np.ones(31))  # now that they are counted
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 31)
    with refused("a.csv", error=OSError):
        list(FileSource(x).chunks(7))
    other = scan_csv(tmp_path / "a.csv", column_types={"x": "string"})
    with refused("sensitive_features", error=ValueError):
        FileSource(x, other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["header"]),
        (b"x,t\n", ["no rows"]),
        (b"x,x\n1,2\n", ["unique", "'x'"]),
        (b"x,t\n1,2\n3\n", ["#3", "Expected 2", "got 1"]),
        (b"x,t\n1,\xe9\n", ["'t'", "UTF-8"]),
        (b"x;t\n1;2\n", ["','", "delimiter=';'"]),
    ],
)
def test_bad_csv_is_refused_at_once(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    with refused("a.csv", *words, error=ValueError):
        scan_csv(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["header"]),
        (b"x,u\n1,2\n", ["'t'", "missing"]),
        (b"x,t\n1,2\n3\n", ["#3", "Expected 2", "got 1"]),
        (b"x,t\n1,\xe9\n", ["'t'", "UTF8"]),
        (b"t,x\nu,late\n", ["'x'", "'late'"]),
    ],
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_bad_csv_among_good_ones_is_named(tmp_path, content, words, n_threads):
    (tmp_path / "0.csv").write_text("x,t\n" + "1,u\n" * 50)
    (tmp_path / "1.csv").write_bytes(content)
    error = guarded(lambda: FileSource(scan_csv(tmp_path), n_threads=n_threads).sample(3, 0))
    assert isinstance(error, ValueError)
    with refused("1.csv", *words, error=ValueError):
        raise error


def test_bad_arguments(tmp_path):
    (tmp_path / "a.csv").write_text("x,t\n1,u\n")
    with refused("'xx'", "'x'", error=ValueError) as caught:
        scan_csv(tmp_path, column_types={"xx": "string"})
    assert caught.value.column == "xx"
    with refused("column_types={'x': 'strng'}", error=ValueError):
        scan_csv(tmp_path, column_types={"x": "strng"})
    with refused("delimiter=';;'", error=ValueError):
        scan_csv(tmp_path, delimiter=";;")
    with refused(".parquet", error=ValueError):
        scan_parquet(tmp_path)


def test_memory_does_not_grow_with_the_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "_BLOCK", 2**13)
    peaks = []
    for n in (50_000, 200_000):
        (tmp_path / "a.csv").write_text("x,t\n" + "1.25,some text\n" * n)
        base, peak = pa.total_allocated_bytes(), 0
        for _ in FileSource(scan_csv(tmp_path / "a.csv")).chunks(1000):
            peak = max(peak, pa.total_allocated_bytes() - base)
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 2**20
