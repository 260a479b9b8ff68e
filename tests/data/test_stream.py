"""Sources feed every row once, in an order and in threads that nobody can tell from the result."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from scalefair._hash import row_hash
from scalefair.data.sources import ArraySource
from scalefair.data.sources.threads import available_threads, one_blas_thread, one_of_many, run_threads
from tests.errors import refused
from tests.faults import blas_threads
from tests.tables import Seen

SIZES = st.integers(1, 40)
RNG = np.random.default_rng(0)


@pytest.fixture(params=["as the machine has them", "as the user limits them"])
def usual_threads(request):
    """Threads of BLAS to come back to."""
    limit = None if request.param.startswith("as the machine") else 2
    before = blas_threads()
    with threadpool_limits(limit, user_api="blas") if limit else nullcontext():
        yield blas_threads()
    assert blas_threads() == before


class Recorder:
    def __init__(self):
        self.seen = []

    def add(self, chunk):
        self.seen.append((chunk.row, chunk.n_rows, chunk.x[:, 0].tolist()))

    def result(self):
        return Seen(self.seen)


def same(chunk):
    return np.asarray(chunk.x)


@given(n=SIZES, rows=SIZES)
def test_chunks_are_the_rows_in_order(n, rows):
    x, s, y, w = (RNG.normal(size=(n, 2)), RNG.normal(size=(n, 1)), RNG.normal(size=(n, 1)), np.ones(n))
    chunks = list(ArraySource(x, s, y, w).chunks(rows))
    assert [chunk.row for chunk in chunks] == list(range(0, n, rows))
    assert all(1 <= chunk.n_rows <= rows for chunk in chunks)
    for name, whole in (("x", x), ("s", s), ("y", y), ("weight", w)):
        parts = [getattr(chunk, name) for chunk in chunks]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@given(n=SIZES, rows=SIZES, n_threads=st.integers(1, 6))
@settings(deadline=None, max_examples=40)
def test_fold_feeds_every_chunk_once_to_the_lane_of_its_number(n, rows, n_threads):
    source = ArraySource(np.arange(float(n))[:, None], n_threads=n_threads)
    firsts = list(range(0, n, rows))
    threads = min(n_threads, len(firsts))
    expected = [first for number in range(threads) for first in firsts[number::threads]]
    seen = source.fold(Recorder, rows)
    assert [row for row, _, _ in seen] == expected
    for row, count, values in seen:
        assert values == list(range(row, row + count))
    assert sum(count for _, count, _ in seen) == n


def test_fold_of_no_rows_is_the_neutral_element():
    (only,) = ArraySource(np.empty((0, 3)), n_threads=4).fold(Recorder, 10)
    assert only == (0, 0, [])


@given(n=SIZES, rows=SIZES, n_threads=st.integers(1, 6))
@settings(deadline=None, max_examples=40)
def test_map_keeps_the_order_of_rows(n, rows, n_threads):
    x = RNG.normal(size=(n, 2))
    source = ArraySource(x, n_threads=n_threads)
    np.testing.assert_array_equal(source.map(lambda: same, rows), x)


def test_map_makes_one_function_per_thread():
    """Buffers that the function keeps are never shared."""
    owners = []

    def start():
        owners.append(object())
        buffer = np.empty((3, 1))

        def double(chunk):
            out = buffer[: chunk.n_rows]
            np.multiply(chunk.x, 2, out=out)
            return out.copy()

        return double

    x = np.arange(100.0)[:, None]
    np.testing.assert_array_equal(ArraySource(x, n_threads=4).map(start, 3), 2 * x)
    assert len(owners) == 4


def test_then_changes_chunks_folds_maps_and_samples():
    x = RNG.normal(size=(30, 1))
    changed = ArraySource(x, n_threads=2).then(lambda chunk: replace(chunk, x=chunk.x + 1))
    np.testing.assert_array_equal(changed.map(lambda: same, 7), x + 1)
    np.testing.assert_array_equal(np.concatenate([c.x for c in changed.chunks(7)]), x + 1)
    np.testing.assert_array_equal(changed.sample(30, 0).x, x + 1)
    for row, count, values in changed.fold(Recorder, 7):
        assert values == (x[row : row + count, 0] + 1).tolist()
    assert changed.n_rows == 30


def test_then_twice_applies_both_in_order():
    x = RNG.normal(size=(10, 1))
    source = ArraySource(x).then(lambda chunk: replace(chunk, x=chunk.x + 1))
    doubled = source.then(lambda chunk: replace(chunk, x=chunk.x * 2))
    np.testing.assert_array_equal(doubled.sample(10, 0).x, (x + 1) * 2)
    np.testing.assert_array_equal(source.sample(10, 0).x, x + 1)


@given(n=SIZES, size=SIZES, seed=st.integers(0, 1000))
def test_sample_is_the_rows_of_smallest_hash(n, size, seed):
    x, w = np.arange(float(n))[:, None], (np.arange(n) % 3 > 0).astype(float)
    for weight, allowed in ((None, np.arange(n)), (w, np.flatnonzero(w))):
        chosen = ArraySource(x, weight=weight).sample(size, seed).x[:, 0]
        by_hash = allowed[np.argsort(row_hash(seed, allowed))]
        np.testing.assert_array_equal(chosen, np.sort(by_hash[:size]))


def test_sample_of_any_part_agrees():
    """All of y, s and weight come along with x."""
    n = 50
    x = np.arange(float(n))[:, None]
    sample = ArraySource(x, 2 * x, 3 * x, 1 + x[:, 0]).sample(9, 4)
    np.testing.assert_array_equal(sample.s, 2 * sample.x)
    np.testing.assert_array_equal(sample.y, 3 * sample.x)
    np.testing.assert_array_equal(sample.weight, 1 + sample.x[:, 0])


def test_containers_are_kept(tmp_path):
    x = RNG.normal(size=(23, 2))
    frame = pd.DataFrame(x, columns=["a", "b"], index=np.arange(23)[::-1])
    for chunk in ArraySource(frame).chunks(5):
        assert isinstance(chunk.x, pd.DataFrame)
        np.testing.assert_array_equal(chunk.x, x[chunk.row : chunk.row + chunk.n_rows])
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(ArraySource(mapped, n_threads=3).map(lambda: same, 4), x)
    sample = ArraySource(mapped).sample(6, 1).x
    np.testing.assert_array_equal(sample, ArraySource(frame).sample(6, 1).x)


def test_threads_follow_the_limit_of_blas():
    with threadpool_limits(1, user_api="blas"):
        assert available_threads() == 1
    assert available_threads() >= 1


def test_our_own_limit_leaves_a_pass_its_threads_but_not_one_of_several_threads():
    usual = available_threads()
    with one_blas_thread():
        assert available_threads() == usual
        assert run_threads(lambda _: available_threads(), 2, threading.Event()) == [1, 1]
    with one_of_many():
        assert available_threads() == 1
        assert set(blas_threads()) == {1}
    with threadpool_limits(1, user_api="blas"), one_blas_thread():
        assert available_threads() == 1
    assert available_threads() == usual


def test_blas_is_held_inside_and_given_back(usual_threads):
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == usual_threads


def test_the_limit_lasts_until_the_last_of_overlapping_users_leaves():
    before = blas_threads()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        assert entered.wait(10)
    while_other_is_inside = blas_threads()
    leave.set()
    thread.join()
    assert set(while_other_is_inside) == {1}
    assert blas_threads() == before


def test_folds_in_two_threads_at_once_give_back_the_limit(usual_threads):
    barrier = threading.Barrier(2, timeout=10)
    results = []

    def work():
        source = ArraySource(RNG.normal(size=(400, 1)), n_threads=2)
        barrier.wait()
        for _ in range(20):
            results.append(len(source.fold(Recorder, 10)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [40] * 40
    assert blas_threads() == usual_threads


def test_an_error_in_a_thread_comes_out_and_the_limit_is_given_back(usual_threads):
    def work(number):
        if number == 1:
            raise RuntimeError("thread 1 broke")
        return number

    with refused("thread 1 broke", error=RuntimeError):
        run_threads(work, 3, threading.Event())
    assert blas_threads() == usual_threads


def test_a_lane_that_fails_stops_the_others_at_once():
    stop, stopped = threading.Event(), []

    def work(number):
        if number == 2:
            raise RuntimeError("thread 2 broke")
        stopped.append(stop.wait(10))

    with refused("thread 2 broke", error=RuntimeError):
        run_threads(work, 3, stop)
    assert stopped == [True, True]


def test_a_user_limit_in_the_same_thread_is_lowered_and_given_back():
    """threadpoolctl obeys only the thread that set a limit, be it the user's."""
    before = blas_threads()
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}
    assert blas_threads() == before


def test_lanes_run_side_by_side_with_blas_held(usual_threads):
    """All threads must be inside at once, or the barrier breaks."""
    barrier = threading.Barrier(3, timeout=10)

    def work(number):
        barrier.wait()
        return number, set(blas_threads())

    assert run_threads(work, 3, threading.Event()) == [(number, {1}) for number in range(3)]
    # One number leaves BLAS its threads.
    assert run_threads(lambda number: blas_threads(), 1, threading.Event()) == [usual_threads]
