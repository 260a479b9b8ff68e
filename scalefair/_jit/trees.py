"""Sums over trees: which leaf of each a row falls into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import Matrix, kernel


@kernel
def add_leaves(  # noqa: PLR0917
    X: Matrix,
    roots: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: Matrix,
    child: NDArray[np.int32],
    levels: NDArray[np.int32],
    sets: NDArray[np.uint32],
    value: Matrix,
    out: Any,
) -> None:
    """Add the leaf of row i in tree (t, c), of shape (t, k), to out[i, c], one tree after another.

    Children are left, right and where a missing value goes; a leaf has feature −1. A row goes left
    where x ≤ threshold, or where the bit x of the set of levels is 1.
    """
    for t in range(roots.shape[0]):
        for c in range(roots.shape[1]):
            for i in range(X.shape[0]):
                node = roots[t, c]
                while feature[node] >= 0:
                    x = X[i, feature[node]]
                    if np.isnan(x):
                        way = 2
                    elif levels[node] < 0:
                        way = 0 if x <= threshold[node] else 1
                    else:
                        level = int(x)
                        bit = (sets[levels[node], level >> 5] >> np.uint32(level & 31)) & 1
                        way = 0 if bit else 1
                    node = child[node, way]
                out[i, c] += value[node]
