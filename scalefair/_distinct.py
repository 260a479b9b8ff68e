"""The distinct rows of a matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Distinct(NamedTuple):
    """Distinct rows in lexicographic order.

    Parameters
    ----------
    rows : array of shape (p, d)
        The rows.
    first : array of shape (p,)
        Where each is first found.
    number : array of shape (n,)
        Which of them every row is.
    """

    rows: NDArray[Any]
    first: NDArray[np.int64]
    number: NDArray[np.int64]


def distinct(rows: NDArray[Any]) -> Distinct:
    """Return the distinct rows of an array of shape (n, d)."""
    # Not by np.unique(axis=0), which makes a TypeError of an interrupt.
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    ordered = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return Distinct(ordered[new], order[new], number)
