"""Sums over rows of which each has a 1 in a few columns, named by codes, and 0 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import kernel

Codes = NDArray[np.int32]
Matrix = NDArray[np.floating[Any]]


@kernel
def add_pairs(codes: Codes, weight: Matrix, gram: Matrix) -> None:
    """Add w_i to gram[a, b] for every pair of columns a ≤ b that are 1 in row i.

    Parameters
    ----------
    codes : array of shape (t, k)
        Columns of each row, ascending down; −1 is none.
    weight : array of shape (k,)
    gram : array of shape (m, m)
        Only the upper triangle is written. Two groups of columns at a time: their part of it stays
        in the cache while the rows pass.
    """
    groups, rows = codes.shape
    for s in range(groups):
        for t in range(s, groups):
            for i in range(rows):
                a, b = codes[s, i], codes[t, i]
                if a >= 0 and b >= 0:
                    gram[a, b] += weight[i]


@kernel
def add_rows(codes: Codes, rows: Matrix, sums: Matrix) -> None:
    """Add row i of `rows`, of shape (k, r), to the rows of `sums` that its codes name."""
    groups, count = codes.shape
    for t in range(groups):
        for i in range(count):
            a = codes[t, i]
            if a >= 0:
                for j in range(rows.shape[1]):
                    sums[a, j] += rows[i, j]
