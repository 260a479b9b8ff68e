"""Row hashes are SplitMix64's, samples merge, and distinct rows are numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from scalefair import _hash
from scalefair._hash import distinct, hash_uniform, row_hash, smallest_hash


def test_row_hash_is_splitmix64():
    # First outputs published for SplitMix64 with seeds 1234567 and 0.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert row_hash(1234567, np.arange(4)).tolist() == known
    assert row_hash(0, [0, 1]).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_row_hash_of_far_rows_agrees_with_integer_arithmetic():
    def reference(seed, row):
        word = 2**64
        z = (seed + (row + 1) * 0x9E3779B97F4A7C15) % word
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % word
        z = (z ^ z >> 27) * 0x94D049BB133111EB % word
        return z ^ z >> 31

    rows = [0, 1, 2**31, 2**40 + 7, 2**62]
    for seed in (0, 1, 2**63, 2**64 - 1):
        assert row_hash(seed, rows).tolist() == [reference(seed, row) for row in rows]
        assert int(row_hash(seed, 2**40)) == reference(seed, 2**40)


def test_hash_uniform_is_uniform():
    u = hash_uniform(3, np.arange(10_000))
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    # Chi-square with 19 degrees of freedom: 1 in 1000 exceeds 43.8.
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


@given(st.integers(0, 2**63), st.integers(0, 10**12), st.integers(1, 80), st.integers(1, 20))
def test_smallest_hash_is_a_sort(seed, first, count, size):
    rows = np.arange(first, first + count)
    expected = np.sort(rows[np.argsort(row_hash(seed, rows))[:size]])
    assert_array_equal(smallest_hash(seed, first, count, size), expected)


def test_smallest_hash_merges_over_chunks(monkeypatch):
    whole = smallest_hash(5, 0, 1000, 7)
    pieces = np.concatenate([smallest_hash(5, start, 250, 7) for start in range(0, 1000, 250)])
    assert_array_equal(np.sort(pieces[np.argsort(row_hash(5, pieces))[:7]]), whole)
    monkeypatch.setattr(_hash, "_ROWS_AT_ONCE", 33)
    assert_array_equal(smallest_hash(5, 0, 1000, 7), whole)


@given(arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 3)), elements=st.integers(-2, 2).map(float)))
def test_distinct_rows_are_those_that_numpy_finds(rows):
    found = distinct(rows)
    values, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.rows, values)
    np.testing.assert_array_equal(found.first, first)
    np.testing.assert_array_equal(found.number, number.ravel())


def test_rows_without_columns_are_all_the_same():
    found = distinct(np.empty((3, 0)))
    assert found.rows.shape == (1, 0)
    np.testing.assert_array_equal(found.number, [0, 0, 0])
