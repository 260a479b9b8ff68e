"""Distinct rows against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalefair._hash import distinct


@given(arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 3)),
              elements=st.integers(-2, 2).map(float)))  # fmt: skip
def test_as_numpy_finds_them(rows):
    found = distinct(rows)
    values, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.rows, values)
    np.testing.assert_array_equal(found.first, first)
    np.testing.assert_array_equal(found.number, number.ravel())


def test_rows_without_columns_are_all_the_same():
    found = distinct(np.empty((3, 0)))
    assert found.rows.shape == (1, 0)
    np.testing.assert_array_equal(found.number, [0, 0, 0])
