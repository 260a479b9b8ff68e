"""Batches that a program hands over are the rows one below the other, in every pass."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalefair.data import frames
from scalefair.data.sources import ArraySource
from scalefair.data.sources.batches import BatchSource
from tests.errors import refused
from tests.tables import guarded

KEYS = ("X", "y", "sensitive_features", "sample_weight")


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.normal(size=n), rng.normal(size=(n, 2)), rng.random(n)


def cut(parts, sizes):
    ends = np.cumsum(sizes).tolist()
    return [
        tuple(frames.slice_rows(part, end - size, end) for part in parts) for size, end in zip(sizes, ends, strict=True)
    ]


def in_memory(parts):
    x, y, s, w = parts
    return ArraySource(x, s, np.asarray(y).reshape(-1, 1), w)


class Total:
    def __init__(self):
        self.total = np.zeros((6, 6))

    def add(self, chunk):
        table = np.hstack([np.asarray(chunk.x), np.asarray(chunk.s), chunk.y])
        self.total += (table.T * chunk.weight) @ table

    def result(self):
        return self.total


@given(
    sizes=st.lists(st.integers(0, 25), min_size=1, max_size=8).filter(any),
    size=st.integers(1, 40),
    n_threads=st.integers(1, 3),
    as_dict=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_any_batches_give_the_rows_in_chunks_of_the_size_asked_for(sizes, size, n_threads, as_dict):
    parts = rows(sum(sizes))
    batches = cut(parts, sizes)
    if as_dict:
        batches = [dict(zip(KEYS, batch, strict=True)) for batch in batches]
    source, expected = BatchSource(lambda: iter(batches), n_threads=n_threads), in_memory(parts)
    assert source.n_rows is None
    chunks = list(source.chunks(size))
    assert source.n_rows == len(parts[0])
    for found, other in zip(chunks, expected.chunks(size), strict=True):
        assert found.row == other.row
        for name in ("x", "s", "y", "weight"):
            np.testing.assert_array_equal(getattr(found, name), getattr(other, name))
    np.testing.assert_allclose(source.fold(Total, size), expected.fold(Total, 7), rtol=1e-10)
    np.testing.assert_array_equal(source.sample(9, 3).x, expected.sample(9, 3).x)


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_stay_frames(container):
    x, y, s, w = rows(30)
    given = container({"a": x[:, 0], "b": list("uvw") * 10}), y, container({"s": s[:, 0]}), w
    source = BatchSource(cut(given, [11, 2, 17]))
    chunks = list(source.chunks(12))
    assert [chunk.n_rows for chunk in chunks] == [12, 12, 6]
    assert {type(chunk.x) for chunk in chunks} == {type(given[0])}
    whole = frames.stack_rows([chunk.x for chunk in chunks])
    assert [c.codes() for c in frames.columns(whole)][1][1] == ["u", "v", "w"]
    np.testing.assert_array_equal(np.concatenate([c.weight for c in chunks]), w)
    assert [chunk.where for chunk in chunks] == ["batches 0 to 1", "batches 1 to 2", "batch 2"]


def test_parts_may_be_left_out_and_lists_do():
    batches = [([[1.0, 2.0]], [3.0]), ([[4.0, 5.0], [6.0, 7.0]], [8.0, 9.0])]
    (chunk,) = BatchSource(batches).chunks(10)
    np.testing.assert_array_equal(chunk.x, [[1, 2], [4, 5], [6, 7]])
    np.testing.assert_array_equal(chunk.y, [[3], [8], [9]])
    assert chunk.s is None
    assert chunk.weight is None
    (chunk,) = BatchSource([{"X": np.ones((2, 1)), "sample_weight": [0, 2]}]).chunks(5)
    assert chunk.y is None
    np.testing.assert_array_equal(chunk.weight, [0.0, 2.0])


def test_pandas_reads_a_file_piece_by_piece(tmp_path):
    """A column is whole numbers in one piece and float64 in another, as pandas has it."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n,6\n7,8\n9,1\n")

    def batches():
        with pd.read_csv(tmp_path / "a.csv", chunksize=2) as pieces:
            for piece in pieces:
                yield piece[["x"]], piece["y"]

    source = BatchSource(batches, n_threads=2)
    for size in (1, 3, 10):
        found = np.concatenate([frames.to_numpy(chunk.x) for chunk in source.chunks(size)])
        np.testing.assert_array_equal(found, [[1], [3], [np.nan], [7], [9]])


def generator():
    yield from cut(rows(10), [5, 5])


def test_what_can_be_read_only_once_is_refused():
    BatchSource(generator)
    for once in (generator(), iter([]), map(str, [])):
        with refused("batches", type(once).__name__, error=ValueError):
            BatchSource(once)
    shared = generator()
    source = BatchSource(lambda: shared)
    assert len(list(source.chunks(5))) == 2
    with refused("batches", " 0 ", 10, error=ValueError):
        list(source.chunks(5))


@pytest.mark.parametrize("batches", [np.ones((3, 2)), pd.DataFrame({"a": [1]}), {"X": 1}, "ab", 5])
def test_what_is_not_batches(batches):
    with refused("batches", "function", error=TypeError):
        BatchSource(batches)


X = np.ones((4, 2))


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (X, ["batch 1", "ndarray", "tuple"]),
        ((X, X, X, X, X, X), ["batch 1", "tuple", 6]),
        ((), ["batch 1", "tuple", 0]),
        ({"X": X, "Y": X}, ["batch 1", ["X", "Y"]]),
        ({"y": X}, ["batch 1", ["y"]]),
        ((X, np.ones(3)), ["batch 1", "y has 3", "X has 4"]),
        ((X[:, :1], X[:, 0]), ["batch 1", "X is", "ndarray with 1", "ndarray with 2"]),
        ((X,), ["batch 1", "y is absent", "ndarray"]),
        ((pd.DataFrame(X), X[:, 0]), ["batch 1", "X is DataFrame", "ndarray"]),
        ((X, [1, 2, np.nan, 4]), ["batch 1", "y is list", "ndarray"]),
        ((X, np.array([1, 2, np.nan, 4])), ["batch 1", "'y'", "row 6"]),
        ((X, np.array(list("abcd"))), ["batch 1", "'y'", "text"]),
    ],
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_bad_batches_are_named(batch, words, n_threads):
    source = BatchSource([(X, X[:, 0]), batch], n_threads=n_threads)
    error = guarded(lambda: source.fold(Count, 4))
    with refused(*words, error=ValueError):
        raise error


class Count:
    def __init__(self):
        self.n = 0

    def add(self, chunk):
        self.n += chunk.n_rows

    def result(self):
        return self.n


def test_no_rows_and_negative_weights():
    for empty in ([], [(X[:0],)]):
        with refused("batches", "no rows", error=ValueError):
            BatchSource(empty).fold(Count, 4)
    with refused("batch 0", "sample_weight", -1, error=ValueError):
        BatchSource([(X, None, None, -X[:, 0])]).fold(Count, 4)
    with refused("batch 0", "sample_weight", 2, error=ValueError):
        BatchSource([(X, None, None, X)]).fold(Count, 4)
    mixed = [(pl.DataFrame({"a": [1]}),), (pl.DataFrame({"a": ["b"]}),)]
    with refused("batches 0 to 1", "'a'", error=ValueError):
        BatchSource(mixed).fold(Count, 4)


def test_an_error_of_the_program_comes_out():
    def broken():
        yield (X,)
        raise KeyError("of the user")

    error = guarded(lambda: BatchSource(broken, n_threads=3).fold(Count, 1))
    assert isinstance(error, KeyError)
    assert BatchSource([(X,)] * 5, n_threads=3).fold(Count, 3) == 20
