"""Features of rows in memory, kept from one pass for those that follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Rows, Source
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design

MISSING, RAW, SHIFTED = range(3)
"""What is known of a row: nothing; its features; its features less the shift of a later pass."""


class KeptFeatures:
    """Features of all rows, as one pass makes them and others need them.

    Parameters
    ----------
    n_rows, width : int
        Of all rows.
    dtype : dtype
        Of the features.
    """

    def __init__(self, n_rows: int, width: int, dtype: Any) -> None:
        self._rows: Rows = np.empty((n_rows, width), dtype)
        self._state = np.full(n_rows, MISSING, dtype=np.int8)

    @classmethod
    def within(cls, budget: int, source: Source, design: Design) -> KeptFeatures | None:
        """Return a place for the features of a source; None where they take too many bytes.

        Rows that are not in memory get none: their features might outgrow it.
        """
        if not isinstance(source, ArraySource):
            return None
        width, dtype = design.blocks["phi"], np.dtype(design.dtype)
        fits = source.n_rows * width * dtype.itemsize <= budget
        return cls(source.n_rows, width, dtype) if fits else None

    def of(self, first: int, n: int) -> Rows:
        """Return the place of `n` rows."""
        return self._rows[first : first + n]

    def keep(self, first: int, features: Rows) -> None:
        """Copy the features of some rows."""
        self.of(first, len(features))[...] = features
        self._state[first : first + len(features)] = RAW

    def shift(self, first: int, n: int) -> int:
        """Return what is known of all these rows; from now on they are shifted."""
        state = self._state[first : first + n]
        known = int(state.min())
        state[:] = SHIFTED
        return known
