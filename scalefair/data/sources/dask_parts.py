"""The parts of a data set in dask, and which of their rows a task gets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil, isnan
from typing import Any

import numpy as np

from scalefair._typing import Shaped
from scalefair.data import frames
from scalefair.data.sources.base import ARGUMENTS
from scalefair.data.sources.dask_tasks import DIMENSIONS, Delay, cut_rows

# Rows of one task: (partition of x, first row, end) in global row numbers
Span = list[tuple[int, int, int]]


def spans(lengths: Sequence[int], split: int, join: int) -> list[Span]:
    """Return the rows of each task in order: partitions cut to `split` rows, joined to `join`."""
    result: list[Span] = []
    left = 0
    for i, (length, stop) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        count = ceil(length / split)
        cuts = [stop - length + length * k // max(count, 1) for k in range(count + 1)]
        for first, end in pairwise(cuts):
            if not result or end - first > left:
                result.append([])
                left = join
            result[-1].append((i, first, end))
            left -= end - first
    return result or [[(0, 0, 0)]]


class Part:
    """x, s, y, weight or c: partitions of dask, or rows in memory as the only partition."""

    def __init__(self, name: str, value: Any) -> None:
        from dask.base import is_dask_collection

        self.in_dask = is_dask_collection(value)
        if not (self.in_dask or isinstance(value, Shaped)):
            value = frames.as_array(value)
        self.name = ARGUMENTS[name]
        ndim = len(value.shape) if isinstance(value, Shaped) else 0
        if ndim not in DIMENSIONS[name]:
            allowed = " or ".join(map(str, DIMENSIONS[name]))
            raise ValueError(
                f"{self.name} has {ndim} dimensions ({type(value).__name__}); expected {allowed}: "
                "a dask array, data frame or series, or one in memory"
            )
        self.value = _in_rows(self.name, value) if self.in_dask else value
        self.partitions: list[Any] = []
        self.set_lengths(_known_lengths(self.value) if self.in_dask else [frames.n_rows(value)])

    def set_lengths(self, lengths: list[int] | None) -> None:
        """Set the rows of each partition, None where dask does not know them."""
        self.lengths = lengths
        self._ends = [0, *accumulate(lengths or [])]  # partition i ends at _ends[i + 1]

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where dask does not know it."""
        return None if self.lengths is None else sum(self.lengths)

    @property
    def columns(self) -> tuple[Any, ...] | None:
        """Names of the columns, None where it is an array or in memory."""
        return None if not self.in_dask or _is_array(self.value) else tuple(self.value.columns)

    def no_rows(self) -> Any:
        """Return a table of no rows with the columns of this one."""
        if not self.in_dask:
            return frames.slice_rows(self.value, 0, 0)
        if _is_array(self.value):
            return np.empty((0, *self.value.shape[1:]), self.value.dtype)
        return self.value._meta

    def piece(self, delay: Delay, i: int, first: int, stop: int) -> Any:
        """Return rows first..stop−1 of partition i, cut by a task of its own: only they travel."""
        if not self.in_dask:
            return frames.slice_rows(self.value, first, stop)
        if self.lengths is None or stop - first == self.lengths[i]:
            return self.partitions[i]
        start, length = self._ends[i], self.lengths[i]
        return delay(cut_rows, self.partitions[i], length, first - start, stop - start)

    def pieces(self, delay: Delay, first: int, stop: int) -> list[Any]:
        """Return rows first..stop−1 in order, in pieces of one partition each."""
        result, i = [], bisect_right(self._ends, first) - 1
        while first < stop:
            end = min(stop, self._ends[i + 1])
            if end > first:
                result.append(self.piece(delay, i, first, end))
            first, i = end, i + 1
        return result or [self.piece(delay, 0, 0, 0)]


def delayed_partitions(collections: Sequence[Any]) -> list[list[Any]]:
    """Return the partitions of each collection, which read no more than they need."""
    from dask.base import optimize

    # Frames are only simplified: full optimization joins partitions, the more the fewer columns
    # are read, so that a count of one column would not hold for the others.
    arrays = iter(optimize(*filter(_is_array, collections)))  # type: ignore[no-untyped-call]
    lean = [next(arrays) if _is_array(c) else c.simplify() for c in collections]
    return [list(np.ravel(c.to_delayed(optimize_graph=False))) for c in lean]


def first_column(collection: Any) -> Any:
    """Return what is cheaper to read and has the same partitions."""
    if _is_array(collection) or collection.ndim == 1:
        return collection
    return collection[list(collection.columns[:1])]


def _is_array(collection: Any) -> bool:
    from dask.array import Array

    return isinstance(collection, Array)


def _in_rows(name: str, collection: Any) -> Any:
    """Return the collection in partitions of whole rows."""
    if hasattr(type(collection), "to_dask_array"):
        return collection
    if not _is_array(collection):
        raise TypeError(
            f"{name} is a {type(collection).__module__}.{type(collection).__name__}; expected a "
            "dask array, data frame or series"
        )
    whole = collection.ndim == 1 or collection.numblocks[1] == 1
    return collection if whole else collection.rechunk({1: -1})


def _known_lengths(collection: Any) -> list[int] | None:
    lengths = collection.chunks[0] if _is_array(collection) else [float("nan")]
    return None if any(map(isnan, lengths)) else [int(length) for length in lengths]
