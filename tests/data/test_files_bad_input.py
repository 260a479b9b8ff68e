"""Bad files are errors that name file, column and remedy, and nothing hangs or is left behind."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalefair.data.sources.files import FileSource, scan_parquet
from tests.errors import refused
from tests.tables import Total, guarded, mixed, on_disk, write_parts


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("y", np.nan, ["'y'", "1 rows", "row 25"]),
        ("y", np.inf, ["'y'", "1 rows", "row 25"]),
        ("w", np.nan, ["'w'", "1 rows", "row 25"]),
        ("w", -1.0, ["sample_weight", -1, "row 25"]),
    ],
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_bad_numbers_are_named_by_file_column_and_row(tmp_path, column, value, words, n_threads):
    table = mixed(40)
    values = table[column].to_numpy().copy()
    values[25] = value
    j = table.column_names.index(column)
    write_parts(tmp_path, table.set_column(j, column, pa.array(values)), [20, 20])
    error = guarded(lambda: on_disk(tmp_path, n_threads=n_threads).fold(Total, 3))
    assert isinstance(error, ValueError)
    with refused("part.1.parquet", *words, error=ValueError):
        raise error


def spoil(folder, how):
    table = mixed(20)
    write_parts(folder, table, [10, 10])
    second = folder / "part.1.parquet"
    if how == "truncated":
        second.write_bytes(second.read_bytes()[:-40])
    elif how == "text":
        second.write_text("a,b\n1,2\n")
    elif how == "garbled":
        content = bytearray(second.read_bytes())
        content[4:400] = bytes(396)
        second.write_bytes(content)
    elif how == "type":
        pq.write_table(table.set_column(0, "age", pa.array(["old"] * 20)), second)
    elif how == "missing":
        pq.write_table(table.drop_columns(["age"]), second)
    elif how == "zone":
        at = table.column_names.index("time")
        zoned = table["time"].cast(pa.timestamp("us", "UTC"))
        pq.write_table(table.set_column(at, "time", zoned), second)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("truncated", ["truncated"]),
        ("text", ["truncated"]),
        ("garbled", ["truncated"]),
        ("type", ["'age'", "string", "double"]),
        ("zone", ["'time'", "timestamp"]),
        ("missing", ["'age'", "missing"]),
    ],
)
def test_a_bad_file_among_good_ones_is_named(tmp_path, how, words):
    spoil(tmp_path, how)
    error = guarded(lambda: on_disk(tmp_path, n_threads=2).fold(Total, 4))
    assert isinstance(error, ValueError)
    assert f"{tmp_path}{os.sep}part.1.parquet: " in str(error)
    assert all(word in str(error) for word in words)
    assert "\n" not in str(error)
    if how in ("type", "missing"):  # where it is not asked for it does not matter
        assert FileSource(scan_parquet(tmp_path)["y"]).sample(99, 0).n_rows == 30


def test_paths_that_match_nothing(tmp_path):
    with refused("none.parquet", error=FileNotFoundError):
        scan_parquet(tmp_path / "none.parquet")
    with refused("*.parquet", error=FileNotFoundError):
        scan_parquet(tmp_path / "*.parquet")
    with refused(tmp_path, ".parquet", error=ValueError):
        scan_parquet(tmp_path)
    with refused("path=[]", error=ValueError):
        scan_parquet([])
    with refused("path=5", error=TypeError):
        scan_parquet(5)
    with refused("nonsense", error=ValueError):
        scan_parquet("nonsense://x")
    write_parts(tmp_path, mixed(3), [3])
    with refused("part.0.parquet", "twice", error=ValueError):
        scan_parquet([tmp_path / "part.0.parquet", tmp_path / "*.parquet"])
    with refused("'z'", error=ValueError) as caught:
        scan_parquet(tmp_path, columns=["z"])
    assert caught.value.column == "z"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(50), b"a,b\n1,2\n"])
def test_a_file_that_is_not_parquet_is_refused_at_once(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with refused("a.parquet", error=ValueError):
        scan_parquet(tmp_path / "a.parquet")


def test_no_rows_at_all(tmp_path):
    write_parts(tmp_path, mixed(0), [0, 0])
    assert len(scan_parquet(tmp_path)) == 0
    with refused("part.0.parquet", "1 more", error=ValueError):
        on_disk(tmp_path)


def test_columns_that_no_encoder_reads(tmp_path):
    table = mixed(3).append_column("list", pa.array([[1], [2], []]))
    write_parts(tmp_path, table, [3])
    data = scan_parquet(tmp_path)
    with refused("'list'", "list<", error=ValueError):
        FileSource(data)
    assert FileSource(data.drop("list")).n_rows == 3
    twice = pa.Table.from_arrays([pa.array([1.0])] * 2, names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with refused("twice.parquet", "'a'", error=ValueError):
        scan_parquet(tmp_path / "twice.parquet")


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("change", ["removed", "replaced", "cut"])
def test_files_that_change_while_they_are_read(tmp_path, n_threads, change):
    write_parts(tmp_path, mixed(40), [20, 20])
    source, second = on_disk(tmp_path, n_threads=n_threads), tmp_path / "part.1.parquet"
    source.fold(Total, 7)

    def fold():
        if change == "removed":
            second.unlink()
        elif change == "replaced":
            pq.write_table(mixed(19), second)
        else:
            second.write_bytes(second.read_bytes()[:300])
        source.fold(Total, 7)

    error = guarded(fold)
    assert isinstance(error, ValueError if change == "cut" else OSError)
    assert "part.1.parquet" in str(error)
    if change == "removed":
        assert isinstance(error, FileNotFoundError)


def test_a_forbidden_file_stays_an_oserror(tmp_path, monkeypatch):
    write_parts(tmp_path, mixed(4), [4])

    def refuse(*args, **options):
        raise PermissionError(13, "not yours", "part.0.parquet")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with refused("not yours", "part.0.parquet", error=PermissionError):
        scan_parquet(tmp_path)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_an_error_in_a_thread_comes_out(tmp_path, n_threads):
    write_parts(tmp_path, mixed(400), [200, 200])

    class Fails(Total):
        def add(self, chunk):
            if chunk.row > 50:
                raise RuntimeError("broken thread")

    error = guarded(lambda: on_disk(tmp_path, n_threads=n_threads).fold(Fails, 5))
    assert str(error) == "broken thread"
