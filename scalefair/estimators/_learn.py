"""The first pass over the rows: what encoders, length scales and landmarks are learnt from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair import _frames
from scalefair._linalg import check_finite
from scalefair._typing import LARGEST, Array, Chunk
from scalefair.encoding import (
    ControlEncoder,
    Groups,
    SensitiveEncoder,
    TableStatistics,
    sensitive_statistics,
    table_statistics,
)
from scalefair.stream import Sample, Sampler


@contextmanager
def named_place(chunk: Chunk) -> Iterator[None]:
    """Name in a ValueError which file or partition the rows come from."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{chunk.where}: {error}" if chunk.where else str(error)) from error


@dataclass(frozen=True, eq=False)
class Learned:
    """What one pass tells of the rows; `+` joins what different chunks tell.

    Parameters
    ----------
    n_rows, n_present : int
        Number of rows, and of those that weigh anything.
    weight : float
        Sum of their weights.
    x, s, c : TableStatistics
        Of the columns of the inputs (empty where they are used as given), of the sensitive
        attributes and of the controls.
    groups, control_groups : Groups
        The combinations of categories in s and in c.
    sample : Sample
        Rows chosen by their number.
    y : Range
        Of the targets of rows that weigh anything.
    """

    n_rows: int
    n_present: int
    weight: float
    x: TableStatistics
    s: TableStatistics
    c: TableStatistics
    groups: Groups
    control_groups: Groups
    sample: Sample
    y: Range

    def __add__(self, other: Learned) -> Learned:
        return Learned(
            self.n_rows + other.n_rows,
            self.n_present + other.n_present,
            self.weight + other.weight,
            self.x + other.x,
            self.s + other.s,
            self.c + other.c,
            self.groups + other.groups,
            self.control_groups + other.control_groups,
            self.sample + other.sample,
            self.y + other.y,
        )

    def check(self) -> None:
        """Raise ValueError if rows are too few, or none counts, or y cannot be squared."""
        if self.n_rows < 2:
            raise ValueError(f"X has {self.n_rows} sample(s), at least 2 are needed to fit")
        if self.weight == 0:
            raise ValueError("sample_weight is zero for every row; at least one must be positive")
        self.y.check()


@dataclass(frozen=True, eq=False)
class Range:
    """Least and largest number of each column of y; `+` joins ranges.

    Parameters
    ----------
    low, high : array of shape (t,), or 0
        ∞ and −∞ where no row counts.
    """

    low: Any = np.inf
    high: Any = -np.inf

    @classmethod
    def of(cls, y: Array, weight: Array) -> Range:
        """Return the range of the rows that count."""
        y = np.asarray(y, dtype=np.float64)[weight > 0]
        return cls(y.min(axis=0, initial=np.inf), y.max(axis=0, initial=-np.inf))

    def __add__(self, other: Range) -> Range:
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def check(self) -> None:
        """Raise ValueError if a column is not 0, but too small to be squared.

        Too large numbers are refused chunk by chunk.
        """
        width = np.atleast_1d(self.high - self.low)
        size = np.where(width > 0, width, np.abs(self.high))
        small = np.flatnonzero((size > 0) & (size < 1 / LARGEST))
        if len(small):
            raise ValueError(
                f"column {small[0]} of y spreads over {size[small[0]]:.3g}, too little to compute "
                f"with squares of it; rescale y, to at least {1 / LARGEST:g}"
            )


class Learner:
    """Accumulator of what a fit must know before it can map rows.

    Parameters
    ----------
    size : int or None
        Of the sample; None: all rows.
    seed : int
        Of the sample.
    encode : bool
        Whether the inputs are a table whose columns must be understood; else they are numbers.
    checked : bool
        Whether numbers are known to be finite.
    every : bool
        Whether numeric sensitive attributes are categories, too.
    """

    def __init__(
        self, size: int | None, seed: int, *, encode: bool, checked: bool, every: bool
    ) -> None:
        self._encode, self._checked = encode, checked
        self._n_rows, self._n_present, self._weight = 0, 0, 0.0
        self._x = self._s = self._c = TableStatistics()
        self._groups, self._control_groups, self._y = Groups(None, every), Groups(), Range()
        self._sampler = Sampler(sys.maxsize if size is None else size, seed)

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; an error says where they come from."""
        if chunk.n_rows == 0:
            return
        with named_place(chunk):
            self._add(chunk)

    def _add(self, chunk: Chunk) -> None:
        self._n_rows += chunk.n_rows
        weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
        self._n_present += int(np.count_nonzero(weight))
        self._weight += float(weight.sum())
        if self._encode:
            self._x = self._x + table_statistics(chunk.x, chunk.weight)
        else:
            check_finite("X", np.asarray(chunk.x))
        for name, part in (("y", chunk.y), ("sample_weight", chunk.weight)):
            if part is not None:
                check_finite(name, np.asarray(part))
        if chunk.y is not None:
            self._y += Range.of(chunk.y, weight)
        if chunk.s is not None:
            self._s = self._s + _statistics(SensitiveEncoder, chunk.s, chunk)
            self._groups += Groups.of(_present(chunk.s, chunk.weight), self._groups.every)
        if chunk.c is not None:
            self._c = self._c + _statistics(ControlEncoder, chunk.c, chunk)
            self._control_groups += Groups.of(_present(chunk.c, chunk.weight), False)
        self._sampler.add(chunk)

    def result(self) -> Learned:
        """Return what all rows seen have told."""
        sample = self._sampler.result()
        return Learned(
            self._n_rows, self._n_present, self._weight, self._x, self._s, self._c, self._groups,
            self._control_groups, sample, self._y,
        )  # fmt: skip


def _statistics(encoder: type[SensitiveEncoder], part: Any, chunk: Chunk) -> TableStatistics:
    statistics = sensitive_statistics(part, chunk.weight)
    if chunk.where:
        encoder.check_present(statistics)
    return statistics


def _present(part: Any, weight: Array | None) -> Any:
    """What a part holds of the rows that count."""
    if weight is None or (weight > 0).all():
        return part
    return _frames.take_rows(part, np.flatnonzero(weight > 0))
