"""Sums over rows of which each has a 1 in a few columns, and over pairs of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import Matrix, kernel, reduction


@kernel
def add_pairs(codes: NDArray[np.int32], weight: Matrix, gram: Matrix) -> None:
    """Add w_i to gram[a, b] for every pair of columns a ≤ b that are 1 in row i.

    The codes, of shape (t, k), ascend down; −1 is none. Two groups of columns at a time: their part
    of the upper triangle stays in the cache while the rows pass.
    """
    groups, rows = codes.shape
    for s in range(groups):
        for t in range(s, groups):
            for i in range(rows):
                a, b = codes[s, i], codes[t, i]
                if a >= 0 and b >= 0:
                    gram[a, b] += weight[i]


@kernel
def add_rows(codes: NDArray[np.int32], rows: Matrix, sums: Matrix) -> None:
    """Add row i of `rows`, of shape (k, r), to the rows of `sums` that its codes name."""
    groups, count = codes.shape
    for t in range(groups):
        for i in range(count):
            a = codes[t, i]
            if a >= 0:
                for j in range(rows.shape[1]):
                    sums[a, j] += rows[i, j]


@reduction
def permuted_product(K, L, order):
    """Return Σ_ij K_ij L_{o_i o_j} of symmetric matrices, without a permuted copy of either."""
    n = len(order)
    diagonal, below = 0.0, 0.0
    for i in range(n):
        k, l, row = K[i], L[order[i]], 0.0  # noqa: E741
        diagonal += k[i] * l[order[i]]
        for j in range(i):
            row += k[j] * l[order[j]]
        below += row
    return diagonal + 2.0 * below


@kernel
def distance_products(x, y, rank, weight):
    """Return Σ_{i<j} w_i w_j |x_i − x_j| |y_i − y_j| for ascending x, in O(n log n).

    For every j the earlier rows are those of smaller x; a Fenwick tree over the ranks of y holds Σw, Σwx, Σwy and Σwxy
    of the rows seen, so that those of smaller y, where the product is (x_j − x_i)(y_j − y_i), are told from those of
    larger y, where its sign is the other. `rank` is that of y, from 1; ties may be broken at will: their product is 0.
    """
    n = len(x)
    tree = np.zeros((n + 1, 4))  # a node in one line of the cache
    w_all, x_all, y_all, xy_all, total = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(n):
        w_low, x_low, y_low, xy_low = 0.0, 0.0, 0.0, 0.0
        at = rank[j]
        while at > 0:
            w_low += tree[at, 0]
            x_low += tree[at, 1]
            y_low += tree[at, 2]
            xy_low += tree[at, 3]
            at -= at & -at
        low = x[j] * y[j] * w_low - x[j] * y_low - y[j] * x_low + xy_low
        every = x[j] * y[j] * w_all - x[j] * y_all - y[j] * x_all + xy_all
        total += weight[j] * (2.0 * low - every)
        w, wx, wy, wxy = weight[j], weight[j] * x[j], weight[j] * y[j], weight[j] * x[j] * y[j]
        w_all, x_all, y_all, xy_all = w_all + w, x_all + wx, y_all + wy, xy_all + wxy
        at = rank[j]
        while at <= n:
            tree[at, 0] += w
            tree[at, 1] += wx
            tree[at, 2] += wy
            tree[at, 3] += wxy
            at += at & -at
    return total
