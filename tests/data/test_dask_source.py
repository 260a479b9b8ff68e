"""A dask source is an array source whose rows are elsewhere: nobody can tell from the result."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import cloudpickle
import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed.utils import key_split_group
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from scalefair.data.sources import ArraySource, is_dask
from scalefair.data.sources.dask import FAN_IN, LEAST_ROWS, MOST_ROWS, DaskSource
from scalefair.data.sources.dask_parts import spans
from scalefair.data.sources.dask_tasks import fold_rows, total
from scalefair.features.design import Design
from scalefair.maps import OneHot, RandomFourier
from scalefair.moments import Folds, accumulate
from tests.errors import refused
from tests.tables import Seen

N = 1000
RNG = np.random.default_rng(0)
X, S = RNG.normal(size=(N, 3)), RNG.integers(0, 3, size=(N, 1)).astype(float)
Y, W = RNG.normal(size=(N, 2)), RNG.integers(0, 3, size=N).astype(float)
FRAME = pd.DataFrame(np.column_stack([X, S, Y, W]), columns=["a", "b", "c", "s", "y", "z", "w"])
ROW_MAP = Design(RandomFourier(n_components=20, random_state=0).fit(X), OneHot().fit(S), n_targets=2)
FOLDS = Folds(3, lambda rows: rows * 7 % 3)
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def in_this_thread():
    """Most tests need no threads; those that do ask for them."""
    with dask.config.set(scheduler="sync"):
        yield


def numeric(chunk):
    return replace(chunk, x=np.ascontiguousarray(chunk.x), s=np.asarray(chunk.s))


def partitioned(rows, lengths):
    """A data frame in partitions of these lengths, which dask does not know."""
    ends = np.cumsum([0, *lengths])
    return dd.from_map(lambda i: rows.iloc[ends[i] : ends[i + 1]], range(len(lengths)), meta=rows.iloc[:0])


def unknown(array):
    """The same array with partitions of unknown lengths."""
    blocks = array.to_delayed().ravel()
    shape = (np.nan, *array.shape[1:])
    return da.concatenate([da.from_delayed(b, shape, array.dtype) for b in blocks])


FRAMES = partitioned(FRAME, [0, 300, 0, 0, 250, 450, 0])
SOURCES = {
    "array": (da.from_array(X, 170), da.from_array(S, 170), da.from_array(Y, 170), None),
    "columns": (da.from_array(X, (99, 2)), S, da.from_array(Y, (300, 1)), da.from_array(W, 7)),
    "one": (da.from_array(X, -1), da.from_array(S, 100), Y, W),
    "empty": (
        da.from_array(X, ((0, 10, 0, 990), 3)),
        da.from_array(S[:, 0], ((500, 0, 500),)),
        da.from_array(Y, ((0, N), 2)),
        W,
    ),
    "unknown": (unknown(da.from_array(X, (120, 3))), S, unknown(da.from_array(Y, (300, 2))), W),
    "memory": (X, da.from_array(S, 400), FRAME[["y", "z"]], da.from_array(W, 30)),
    "frame": (FRAMES[["a", "b", "c"]], FRAMES["s"], FRAMES[["y", "z"]], FRAMES["w"]),
    "mixed": (FRAMES[["a", "b", "c"]], da.from_array(S, 130), Y, FRAMES["w"]),
    "frames": (
        partitioned(FRAME[["a", "b", "c"]], [333, 667]),
        FRAMES[["s"]],
        dd.from_pandas(FRAME[["y", "z"]], npartitions=3),
        partitioned(FRAME["w"], [N]),
    ),
    "filtered": tuple(FRAMES[FRAMES.a < 9][part] for part in (["a", "b", "c"], ["s"], ["y", "z"], "w")),
}


def close(moments, expected):
    assert moments.n_rows == expected.n_rows
    scale = np.abs(expected.scatter).max()
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=0, atol=1e-10 * scale)
    names = list(expected.blocks)
    np.testing.assert_allclose(moments.mean(*names), expected.mean(*names), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows_per_task", [None, 60, 400])
@pytest.mark.parametrize("name", SOURCES)
def test_moments_of_every_fold_are_those_of_arrays(name, rows_per_task):
    weight = None if SOURCES[name][3] is None else W
    expected = accumulate(ArraySource(X, S, Y, weight), ROW_MAP, folds=FOLDS, rows=64)
    source = DaskSource(*SOURCES[name], rows_per_task=rows_per_task).then(numeric)
    for moments, wanted in zip(accumulate(source, ROW_MAP, folds=FOLDS, rows=64), expected, strict=True):
        close(moments, wanted)


@pytest.mark.parametrize("name", SOURCES)
def test_sample_is_that_of_arrays(name):
    weight = None if SOURCES[name][3] is None else W
    expected = ArraySource(X, S, Y, weight).sample(40, 5)
    sample = DaskSource(*SOURCES[name], rows_per_task=90).then(numeric).sample(40, 5)
    for part in ("x", "s", "y", "weight"):
        np.testing.assert_array_equal(getattr(sample, part), getattr(expected, part))


class Recorder:
    def __init__(self):
        self.seen = []

    def add(self, chunk):
        self.seen.append(chunk)

    def result(self):
        return Seen(self.seen)


@given(x=LENGTHS, cuts=st.lists(st.floats(0, 1), max_size=6), task=st.integers(1, 20))
@settings(deadline=None, max_examples=25)
def test_fold_feeds_every_row_once_in_order_with_its_number(x, cuts, task):
    """Whatever the partitions of x and, apart from them, of y and s."""
    n, ends = sum(x), np.cumsum(x)
    rows = np.arange(n)
    other = np.diff([0, *sorted(int(c * n) for c in cuts), n]).tolist()
    frame = pd.DataFrame({"y": rows})
    source = DaskSource(
        da.from_array(rows[:, None], (tuple(x), 1)),
        da.from_array(2.0 * rows, (tuple(other),)),
        partitioned(frame, other),
        1 + rows,
        rows_per_task=task,
    )
    seen = source.fold(Recorder, 4)
    assert [c.row for c in seen] == np.cumsum([0, *(c.n_rows for c in seen)])[:-1].tolist()
    assert all(c.n_rows <= 4 for c in seen)
    np.testing.assert_array_equal(np.concatenate([c.x for c in seen])[:, 0], rows)
    np.testing.assert_array_equal(np.concatenate([c.s for c in seen])[:, 0], 2 * rows)
    np.testing.assert_array_equal(np.concatenate([c.y for c in seen])[:, 0], rows)
    np.testing.assert_array_equal(np.concatenate([c.weight for c in seen]), 1 + rows)
    if n:
        assert [c.where for c in seen] == [f"partition {np.searchsorted(ends, c.row, side='right')}" for c in seen]
    chunks = list(source.chunks(4))
    assert [(c.row, c.where) for c in chunks] == [(c.row, c.where) for c in seen]
    assert source.n_rows == n


@given(x=LENGTHS, task=st.integers(1, 9), chunks=st.integers(1, 5), first=st.integers(0, 40))
@settings(deadline=None, max_examples=20)
def test_rounds_are_a_fold_that_can_go_on_from_any_row(x, task, chunks, first):
    rows = np.arange(sum(x))
    source = DaskSource(da.from_array(rows[:, None], (tuple(x), 1)), rows_per_task=task)
    with dask.config.set(num_workers=2):
        rounds = list(source.rounds(Recorder, 4, chunks, first))
    seen = [chunk for part, _ in rounds for chunk in part]
    assert [row for chunk in seen for row in chunk.x[:, 0]] == rows[first:].tolist()
    for part, end in rounds:
        assert part[-1].row + part[-1].n_rows == end
    sizes = [sum(chunk.n_rows for chunk in part) for part, _ in rounds]
    assert all(size >= 4 * chunks for size in sizes[:-1])


@given(x=LENGTHS, split=st.integers(1, 12), join=st.integers(1, 12))
def test_spans_cover_all_rows_in_order_and_keep_their_sizes(x, split, join):
    found, ends = spans(x, split, join), np.cumsum([0, *x])
    pieces = [piece for span in found for piece in span]
    if not sum(x):
        assert found == [[(0, 0, 0)]]
        return
    assert [first for _, first, _ in pieces] == [0, *(stop for _, _, stop in pieces[:-1])]
    assert pieces[-1][2] == sum(x)
    assert all(ends[i] <= first < stop <= ends[i + 1] for i, first, stop in pieces)
    assert all(stop - first <= split for _, first, stop in pieces)
    for span, after in zip(found, [*found[1:], None], strict=True):
        size = span[-1][2] - span[0][1]
        assert len(span) == 1 or size <= join
        assert after is None or size + after[0][2] - after[0][1] > join


def layout(lengths, threads, rows):
    with dask.config.set(num_workers=threads):
        source = DaskSource(da.zeros((sum(lengths), 1), chunks=(tuple(lengths), 1)))
        return [span[-1][2] - span[0][1] for span in source._spans(rows)]


def test_tasks_are_as_many_as_threads_need_and_as_large_as_pays():
    small, million = [1000] * 1000, 10**6
    assert max(layout(small, 64, 4096)) == 16_000 <= LEAST_ROWS  # joined
    assert layout([million], 2, 4096) == [166_666, 166_667, 166_667] * 2  # split: 3 per thread
    assert layout([million] * 40, 2, 4096) == [million] * 40  # left alone
    assert max(layout([1000] * 4000, 2, 4096)) == 131_000 <= MOST_ROWS
    assert max(layout(small, 64, 256)) == 32_000  # wide rows


def captured(source, call):
    """Return the keys asked for and the graph of the last computation of call(source)."""
    graphs = []

    def get(dsk, keys, **_):
        graphs.append((keys, dict(dsk.__dask_graph__())))
        return dask.get(dsk, keys)

    with dask.config.set(scheduler=get):
        call(source)
    return graphs[-1]


def test_start_travels_once_and_results_go_up_a_tree():
    heavy = np.zeros(500_000)
    source = DaskSource(da.from_array(X, 10), da.from_array(S, 25), rows_per_task=20).then(
        lambda chunk: (heavy, chunk)[1]
    )
    keys, graph = captured(source, lambda s: s.fold(lambda: (heavy, Recorder())[1], 10))
    sizes = sorted(len(cloudpickle.dumps(task)) for task in graph.values())
    assert sizes[-1] > heavy.nbytes  # in one task, for both functions
    assert sizes[-2] < 10_000
    assert len(keys) == 1
    leaves = [t for t in graph.values() if getattr(t, "func", None) is fold_rows]
    sums = [t for t in graph.values() if getattr(t, "func", None) is total]
    assert len(leaves) == 50
    assert sorted(len(t.dependencies) for t in sums) == [2, 7, 8, 8, 8, 8, 8, 8]
    assert max(len(t.dependencies) for t in graph.values()) <= FAN_IN
    # One group for dask, which then gives neighbours to one worker and moves half the bytes.
    assert len({key_split_group(t.key) for t in leaves + sums}) == 1


def test_partitions_are_read_once_a_pass_however_many_parts_use_them(tmp_path):
    reads = []

    def read(i):
        reads.append(i)
        return FRAME.iloc[100 * i : 100 * (i + 1)]

    frame = dd.from_map(read, range(10), meta=FRAME.iloc[:0])
    source = DaskSource(frame[["a", "b"]], frame["s"], frame[["y"]], frame["w"])
    assert source.n_rows is None
    assert reads == []
    source.fold(Recorder, 50)
    assert sorted(reads) == sorted([*range(10)] * 2)  # to count, and to fold
    assert source.n_rows == source.then(numeric).n_rows == N
    source.then(numeric).fold(Recorder, 50)
    assert len(reads) == 30


def test_map_is_a_lazy_dask_array_in_the_partitions_of_x():
    calls = []

    def start():
        return lambda chunk: calls.append(chunk.n_rows) or chunk.x[:, :2] * 2

    source = DaskSource(da.from_array(X, ((0, 300, 700), 3)))
    lazy = source.map(start, 64)
    assert calls == [0]  # a call with no rows shows the shape
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == ((0, 300, 700), (2,))
    assert lazy.dtype == np.float64
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), 2 * X[:, :2])
    assert max(calls) == 64
    np.testing.assert_array_equal(lazy[:, 0].compute(), 2 * X[:, 0])
    assert source.map(start, 64, shape=(2,)).chunks == lazy.chunks


def test_map_does_not_count_and_keeps_unknown_lengths():
    reads = []
    frame = dd.from_map(
        lambda i: reads.append(i) or FRAME.iloc[100 * i : 100 * (i + 1)], range(10), meta=FRAME.iloc[:0]
    )
    lazy = DaskSource(frame[["a", "b"]]).map(lambda: lambda c: np.asarray(c.x).sum(axis=1), 30)
    assert reads == []
    assert lazy.ndim == 1
    assert np.isnan(lazy.chunks[0]).all()
    assert len(lazy.chunks[0]) == 10
    np.testing.assert_allclose(lazy.compute(), X[:, :2].sum(axis=1))


def test_map_aligns_the_other_parts():
    source = DaskSource(da.from_array(X, 170), FRAMES["s"], weight=W)
    lazy = source.map(lambda: lambda c: c.x[:, 0] + 10 * np.asarray(c.s)[:, 0] + 100 * c.weight, 50)
    np.testing.assert_allclose(lazy.compute(), X[:, 0] + 10 * S[:, 0] + 100 * W)


def test_no_rows_are_the_neutral_element():
    for x in (da.zeros((0, 2), chunks=(1, 2)), partitioned(FRAME[["a"]].iloc[:0], [0, 0])):
        (only,) = DaskSource(x).fold(Recorder, 10)
        assert (only.row, only.n_rows) == (0, 0)
        assert DaskSource(x).map(lambda: lambda c: np.zeros(c.n_rows), 9).compute().shape == (0,)


def test_blas_is_held_to_one_thread_in_tasks():
    blas = ThreadpoolController().select(user_api="blas")

    class Limits(Recorder):
        def add(self, chunk):
            self.seen.append({library["num_threads"] for library in blas.info()})

    with dask.config.set(scheduler="threads"):
        assert set.union(*DaskSource(da.from_array(X, 50)).fold(Limits, 20)) == {1}


@pytest.mark.parametrize("known", [True, False])
def test_parts_of_different_lengths_are_named(known):
    x = da.from_array(X, 100) if known else FRAMES[["a"]]
    with refused("X has 1000", "y has 999", error=ValueError):
        DaskSource(x, y=Y[:-1]).count()
    with refused("X has 1000", "sample_weight has 998", error=ValueError):
        DaskSource(x, weight=partitioned(FRAME["w"], [500, 498])).count()


def test_wrong_parts_are_refused():
    with refused("X has", 1, "Array", 2, error=ValueError):
        DaskSource(da.from_array(W, 10))
    with refused("sample_weight", 2, "DataFrame", 1, error=ValueError):
        DaskSource(da.from_array(X, 10), weight=FRAMES[["w"]])
    with refused("X has", 0, "Bag", 2, error=ValueError):
        DaskSource(dask.bag.range(3, npartitions=1))
    with refused("rows_per_task=0", error=ValueError):
        DaskSource(da.from_array(X, 10), rows_per_task=0)


def test_a_missing_target_names_partition_and_row():
    y = FRAME[["y"]].copy()
    y.iloc[777] = np.nan
    source = DaskSource(da.from_array(X, 100), y=partitioned(y, [400, 600]))
    with refused("partition 7", "'y'", "row 777", error=ValueError):
        source.fold(Recorder, 30)


def test_data_that_changes_between_passes_is_an_error():
    lengths = iter(range(10, 90, 10))
    frame = dd.from_map(lambda _: FRAME.iloc[: next(lengths)], [0], meta=FRAME.iloc[:0])
    with refused("partition 0", 20, 10, error=ValueError):
        DaskSource(frame[["a"]]).fold(Recorder, 30)


def test_parquet_keeps_its_partitions_however_few_columns_are_counted(tmp_path):
    """dask joins partitions of narrow reads; a count of one column must hold for all."""
    wide = pd.concat([FRAME, *(FRAME.add_suffix(str(k)) for k in range(5))], axis=1)
    for k in range(20):
        wide.iloc[50 * k : 50 * (k + 1)].to_parquet(tmp_path / f"{k:02}.parquet")
    frame = dd.read_parquet(tmp_path)
    frame = frame[frame.a < 9]
    source = DaskSource(frame[["a", "b", "c"]], frame["s"], frame[["y", "z"]], frame["w"])
    (moments,) = accumulate(source.then(numeric), ROW_MAP)
    close(moments, accumulate(ArraySource(X, S, Y, W), ROW_MAP)[0])
    assert len(source._parts["x"].lengths) == 20


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_progress_counts_tasks_up(scheduler):
    calls = []
    source = DaskSource(da.from_array(X, 100), rows_per_task=100, progress=lambda *counts: calls.append(counts))
    with dask.config.set(scheduler=scheduler):
        source.fold(Recorder, 50)
    assert calls == [(done, 10) for done in range(1, 11)]


@pytest.mark.processes
def test_is_dask_does_not_import_dask(tmp_path):
    code = (
        "import sys, numpy\nfrom scalefair.data.sources import is_dask\n"
        "assert not is_dask(numpy.ones(3)) and 'dask' not in sys.modules"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    assert is_dask(da.ones(3))
    assert is_dask(FRAMES)
    assert is_dask(FRAMES["w"])
    assert not is_dask(X)
    assert not is_dask(FRAME)
