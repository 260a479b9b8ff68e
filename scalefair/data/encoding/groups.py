"""The combinations of categories that occur in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair.data import frames


@dataclass(frozen=True, eq=False)
class Groups:
    """One row of s for each combination of categories; `+` joins two such tables.

    Parameters
    ----------
    rows : frame, array or None
        None where there are no categories.
    every : bool
        Whether numbers are categories, too.
    """

    rows: Any = None
    every: bool = False

    @classmethod
    def of(cls, s: Any, every: bool) -> Groups:
        """Return the first row of each combination in s."""
        table = frames.as_table(s, one_column=True)
        kinds = ("categorical", "boolean", "numeric" if every else "categorical")
        codes = [c.codes()[0] for c in frames.columns(table) if c.kind in kinds]
        if not codes or frames.n_rows(table) == 0:
            return cls(None, every)
        return cls(frames.take_rows(table, first_rows(codes)), every)

    def __add__(self, other: Groups) -> Groups:
        if self.rows is None or other.rows is None:
            return self if other.rows is None else other
        return Groups.of(frames.stack_rows([self.rows, other.rows]), self.every)


def first_rows(codes: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Rows that are the first of their combination of codes, in order."""
    combined = codes[0] + 1
    for more in codes[1:]:
        combined = combined * (int(more.max()) + 2) + more + 1
        if combined.max() >= MANY:
            combined = np.unique(combined, return_inverse=True)[1]
    # Written from the last row to the first, so that the first one stays: no sort is needed.
    first = np.full(int(combined.max()) + 1, -1)
    first[combined[::-1]] = np.arange(len(combined))[::-1]
    return np.sort(first[first >= 0])


MANY = 2**22
"""Combinations from which on a table of them all is too large."""
