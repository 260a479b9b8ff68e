"""Which rows of which partitions a task of dask gets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil, isnan
from typing import Any

import numpy as np

from scalefair._typing import Chunk
from scalefair.data import frames
from scalefair.data.sources._dask_tasks import Tasks, assemble, cut, list_of, ref, task

Span = list[tuple[int, int, int]]
"""Rows of one task: (partition of x, first row, end) in global row numbers."""

_DIMENSIONS = {"x": (2,), "s": (1, 2), "y": (1, 2), "weight": (1,), "c": (1, 2)}
_ARGUMENTS = {
    "x": "X", "s": "sensitive_features", "y": "y", "weight": "sample_weight",
    "c": "control_features",
}  # fmt: skip
"""What users call them."""


def spans(lengths: Sequence[int], split: int, join: int) -> list[Span]:
    """Return the rows of each task, all of them in order; without rows one task of none.

    Partitions longer than `split` are cut into equal pieces no longer than that; consecutive pieces
    are joined while they have at most `join` rows together.
    """
    found: list[Span] = []
    room = 0
    for i, (length, stop) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        count = ceil(length / split)
        cuts = [stop - length + length * k // max(count, 1) for k in range(count + 1)]
        for first, end in pairwise(cuts):
            if not found or end - first > room:
                found.append([])
                room = join
            found[-1].append((i, first, end))
            room -= end - first
    return found or [[(0, 0, 0)]]


def spans_from(first_row: int, found: list[Span]) -> list[Span]:
    """Return what is left of the spans from a row on."""
    left = [
        [(i, max(first, first_row), end) for i, first, end in s if end > first_row] for s in found
    ]
    return [span for span in left if span]


class Part:
    """x, s, y, weight or c: partitions of dask, or rows in memory as the only partition.

    Parameters
    ----------
    name : {"x", "s", "y", "weight", "c"}
        Which.
    value : dask collection, array, frame or list
        The rows.
    """

    def __init__(self, name: str, value: Any) -> None:
        from dask.base import is_dask_collection

        self.in_dask = is_dask_collection(value)
        if not (self.in_dask or hasattr(value, "shape")):
            value = frames.as_array(value)
        self.name = _ARGUMENTS[name]
        _check_dimensions(self.name, value, _DIMENSIONS[name])
        self.value = _in_rows(self.name, value) if self.in_dask else value
        self.keys: list[Any] = []
        self.lengths = _known_lengths(self.value) if self.in_dask else [frames.n_rows(value)]

    @property
    def lengths(self) -> list[int] | None:
        """Rows of each partition, None where dask does not know them."""
        return self._lengths

    @lengths.setter
    def lengths(self, lengths: list[int] | None) -> None:
        self._lengths = lengths
        self._ends = [0, *accumulate(lengths or [])]  # partition i ends at _ends[i + 1]

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where dask does not know it."""
        return None if self.lengths is None else sum(self.lengths)

    def no_rows(self) -> Any:
        """Return a table of no rows with the columns of this one."""
        if not self.in_dask:
            return frames.slice_rows(self.value, 0, 0)
        if _is_array(self.value):
            return np.empty((0, *self.value.shape[1:]), self.value.dtype)
        return self.value._meta

    def piece(self, i: int, first: int, stop: int, tasks: Tasks) -> Any:
        """Return the argument of a task that stands for rows first..stop−1, all of partition i.

        A cut is a task of its own: it runs where the partition is, and only the rows travel.
        """
        if not self.in_dask:
            return frames.slice_rows(self.value, first, stop)
        if self.lengths is None or stop - first == self.lengths[i]:
            return ref(self.keys[i])
        start, length = self._ends[i], self.lengths[i]
        return tasks.add(cut, ref(self.keys[i]), length, first - start, stop - start)

    def pieces(self, first: int, stop: int, tasks: Tasks) -> list[Any]:
        """Return the arguments of a task that stand for rows first..stop−1 in order."""
        found, i = [], bisect_right(self._ends, first) - 1
        while first < stop:
            end = min(stop, self._ends[i + 1])
            if end > first:
                found.append(self.piece(i, first, end, tasks))
            first, i = end, i + 1
        return found or [self.piece(0, 0, 0, tasks)]


class Table:
    """The parts of a data set, each in partitions of its own.

    Parameters
    ----------
    **values : dask collections, arrays and frames
        x and, where they are not None, s, y, weight and c.
    """

    def __init__(self, **values: Any) -> None:
        self.parts = {name: Part(name, v) for name, v in values.items() if v is not None}
        in_dask = [part for part in self.parts.values() if part.in_dask]
        self.collections = optimized([part.value for part in in_dask])
        for part, collection in zip(in_dask, self.collections, strict=True):
            part.keys = keys_of(collection)
        self.check_lengths()

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where dask does not know it."""
        return self.parts["x"].n_rows

    @property
    def names(self) -> tuple[Any, ...] | None:
        """Names of the columns of x, None where it is an array or in memory."""
        x = self.parts["x"]
        return None if not x.in_dask or _is_array(x.value) else tuple(x.value.columns)

    def check_lengths(self) -> None:
        """Raise a ValueError if two parts are known to differ in length."""
        known = [(part.name, part.n_rows) for part in self.parts.values() if part.lengths]
        for name, n in known[1:]:
            if n != known[0][1]:
                raise ValueError(
                    f"{known[0][0]} has {known[0][1]} rows but {name} has {n}; give one row of "
                    f"{name} for each row of {known[0][0]}, in the same order"
                )

    def no_rows(self) -> Chunk:
        """Return a chunk of no rows."""
        parts = (self.parts.get(name) for name in _DIMENSIONS)
        return assemble(0, 0, "", *(None if part is None else [part.no_rows()] for part in parts))

    def rows(self, span: Span, tasks: Tasks) -> Any:
        """Return the argument of a task that stands for the chunks of a span."""
        return list_of(self._block(*place, tasks) for place in span)

    def partitions(self, tasks: Tasks) -> Iterator[Any]:
        """Yield, for each partition of x, the argument that stands for its chunk."""
        lengths = self.parts["x"].lengths or [0] * len(self.parts["x"].keys)
        for i, (length, stop) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
            yield self._block(i, stop - length, stop, tasks)

    def _block(self, i: int, first: int, stop: int, tasks: Tasks) -> Any:
        pieces = {
            name: [part.piece(i, first, stop, tasks)]
            if name == "x"
            else part.pieces(first, stop, tasks)
            for name, part in self.parts.items()
        }
        parts = (list_of(pieces[name]) if name in pieces else None for name in _DIMENSIONS)
        count = None if self.n_rows is None else stop - first
        return task(assemble, first, count, f"partition {i}", *parts)


def optimized(collections: Sequence[Any]) -> list[Any]:
    """Return the collections with graphs that read no more than they need.

    Frames are only simplified: dask's full optimization joins partitions, more of them the fewer
    columns are read, so that a count of one column would not hold for the others.
    """
    from dask.base import optimize

    arrays = [c for c in collections if _is_array(c)]
    done = iter(optimize(*arrays))  # type: ignore[no-untyped-call]
    return [next(done) if _is_array(c) else c.simplify() for c in collections]


def keys_of(collection: Any) -> list[Any]:
    """Return the keys of the partitions."""
    from dask.core import flatten

    return list(flatten(collection.__dask_keys__()))  # type: ignore[no-untyped-call]


def first_column(collection: Any) -> Any:
    """Return what is cheaper to read and has the same partitions."""
    if _is_array(collection) or collection.ndim == 1:
        return collection
    return collection[list(collection.columns[:1])]


def _is_array(collection: Any) -> bool:
    return hasattr(type(collection), "rechunk")


def _check_dimensions(name: str, value: Any, expected: tuple[int, ...]) -> None:
    ndim = len(value.shape) if hasattr(value, "shape") else 0
    if ndim not in expected:
        allowed = " or ".join(map(str, expected))
        raise ValueError(
            f"{name} has {ndim} dimensions ({type(value).__name__}); expected {allowed}: a dask "
            "array, data frame or series, or one in memory"
        )


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
