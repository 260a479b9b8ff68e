"""The first pass of an audit: what the columns hold, before any row is put into a group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair import _frames
from scalefair._frames import Column
from scalefair._linalg import check_finite
from scalefair._typing import Array, Chunk
from scalefair.encoding import ColumnStatistics, Spread
from scalefair.measures.grouping.rows import floats_of
from scalefair.stream import Sample, Sampler

Missing = Literal["error", "group", "drop"]

FEW = 8
"""Numbers with at most this many values are levels of groups."""


class Kept(NamedTuple):
    """The rows of a chunk that count: of positive weight and, if so asked, without gaps in s.

    `numbers` are their global row numbers.
    """

    predictions: Array
    attributes: list[Column]
    truth: Array | None
    weight: Array
    numbers: NDArray[np.int64]


def kept_rows(chunk: Chunk, models: tuple[str, ...], missing: Missing) -> Kept:
    """Return the rows that count; predictions are checked to be finite."""
    x = floats_of(chunk.x, models, chunk.row)
    s = _frames.as_table(chunk.s, one_column=True)
    weight = np.ones(len(x)) if chunk.weight is None else np.asarray(chunk.weight, np.float64)
    keep = weight > 0
    if missing == "drop":
        for column in _frames.columns(s, "s"):
            keep &= ~absent(column)
    index = np.flatnonzero(keep)
    if len(index) < len(x):
        x, weight, s = x[index], weight[index], _frames.take_rows(s, index)
    truth = None if chunk.y is None else np.asarray(chunk.y, np.float64)[index, 0]
    for name, part in (("y_pred", x), ("y_true", truth), ("sample_weight", weight)):
        if part is not None:
            check_finite(name, part)
    return Kept(x, _frames.columns(s, "s"), truth, weight, chunk.row + index)


def absent(column: Column) -> NDArray[np.bool_]:
    """Say for each row whether the value is missing."""
    if column.kind == "categorical":
        return column.codes()[0] < 0
    return np.isnan(column.floats())


@dataclass(frozen=True, slots=True)
class Numbers:
    """Spread of numbers, and their values where there are few; None: too many to list."""

    spread: Spread = field(default_factory=Spread)
    values: Values = frozenset()

    @classmethod
    def of(cls, x: Array, weight: Array, *, listed: bool) -> Numbers:
        """Return the numbers of finite x; `listed` is False where others had too many values."""
        return cls(Spread.of(x, weight), _values(x) if listed else None)

    def __add__(self, other: Numbers) -> Numbers:
        return Numbers(self.spread + other.spread, _together(self.values, other.values))

    @property
    def is_binary(self) -> bool:
        """Whether the numbers are 0 and 1, or −1 and 1: labels rather than scores."""
        return self.values is not None and (self.values <= {0.0, 1.0} or self.values <= {-1.0, 1.0})

    @property
    def is_constant(self) -> bool:
        """Whether there is but one value, up to rounding."""
        low, high = self.spread.low, self.spread.high
        return not high - low > 1e-12 * max(abs(low), abs(high))


Values = frozenset[float] | None
"""The values of a column, None where there are more than `FEW`."""


def _values(x: Array) -> Values:
    # A glance at some rows spares most columns of scores the sorting.
    if len(np.unique(x[:: max(len(x) // 512, 1)])) > FEW:
        return None
    return _together(frozenset(np.unique(x).tolist()), frozenset())


def _together(first: Values, second: Values) -> Values:
    if first is None or second is None or len(first | second) > FEW:
        return None
    return first | second


@dataclass(frozen=True, slots=True)
class AttributeStatistics:
    """What a pass learns of a sensitive attribute; mergeable."""

    column: ColumnStatistics
    values: Values = frozenset()

    @classmethod
    def of(cls, column: Column, weight: Array, *, listed: bool) -> AttributeStatistics:
        """Return the statistics of one column."""
        statistics = ColumnStatistics.of(column, weight)
        if column.kind in ("categorical", "empty"):
            return cls(statistics)
        x = column.floats()
        return cls(statistics, _values(x[~np.isnan(x)]) if listed else None)

    def __add__(self, other: AttributeStatistics) -> AttributeStatistics:
        values = _together(self.values, other.values)
        return AttributeStatistics(self.column + other.column, values)


@dataclass(frozen=True, eq=False)
class Survey:
    """What the first pass tells of the rows; `+` joins what different chunks tell.

    Parameters
    ----------
    n_rows, n_kept : int
        All rows, and those that count.
    n_missing : int
        Rows that were left out because an attribute was missing.
    weight, heaviest : float
        Sum of the weights of the rows that count, and the largest of them.
    attributes : tuple of AttributeStatistics
        Of each sensitive attribute.
    predictions : tuple of Numbers
        Of each model.
    truth : Numbers or None
        Of the targets.
    sample : Sample
        Rows chosen by their number.
    """

    n_rows: int
    n_kept: int
    n_missing: int
    weight: float
    heaviest: float
    attributes: tuple[AttributeStatistics, ...]
    predictions: tuple[Numbers, ...]
    truth: Numbers | None
    sample: Sample

    @property
    def is_weighted(self) -> bool:
        """Whether weights differ: weights that are all the same are none."""
        return self.weight < self.n_kept * self.heaviest * (1 - 1e-9)

    def __add__(self, other: Survey) -> Survey:
        rows, missing = self.n_rows + other.n_rows, self.n_missing + other.n_missing
        if not (self.n_kept and other.n_kept):
            return replace(self if self.n_kept else other, n_rows=rows, n_missing=missing)
        return Survey(
            rows,
            self.n_kept + other.n_kept,
            missing,
            self.weight + other.weight,
            max(self.heaviest, other.heaviest),
            _sum(self.attributes, other.attributes),
            _sum(self.predictions, other.predictions),
            None if self.truth is None or other.truth is None else self.truth + other.truth,
            self.sample + other.sample,
        )


def _sum(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


class Surveyor:
    """Accumulator of a survey.

    Parameters
    ----------
    models : tuple of str
        Names of the models.
    missing : {"error", "group", "drop"}
        What becomes of rows in which an attribute is missing.
    size, seed : int
        Of the sample.
    """

    def __init__(self, models: tuple[str, ...], missing: Missing, size: int, seed: int) -> None:
        self._models, self._missing = models, missing
        self._sampler = Sampler(size, seed)
        self._n_rows = self._n_missing = 0
        self._survey: Survey | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; an error says where they come from."""
        if chunk.n_rows == 0:
            return
        try:
            self._add(chunk)
        except ValueError as error:
            raise ValueError(f"{chunk.where}: {error}" if chunk.where else str(error)) from error

    def _add(self, chunk: Chunk) -> None:
        kept = kept_rows(chunk, self._models, self._missing)
        positive = chunk.n_rows if chunk.weight is None else int(np.sum(chunk.weight > 0))
        self._n_rows += chunk.n_rows
        self._n_missing += positive - len(kept.weight)
        if not len(kept.weight):
            return
        self._sampler.add(chunk)
        new = self._told(kept)
        self._survey = new if self._survey is None else self._survey + new

    def _told(self, kept: Kept) -> Survey:
        """What the rows of one chunk tell; values are listed only while there are few."""
        now, width = self._survey, len(kept.attributes)
        listed = [now is None or now.attributes[j].values is not None for j in range(width)]
        attributes = tuple(
            AttributeStatistics.of(column, kept.weight, listed=few)
            for column, few in zip(kept.attributes, listed, strict=True)
        )
        models = range(len(self._models))
        listed = [now is None or now.predictions[j].values is not None for j in models]
        predictions = tuple(
            Numbers.of(x, kept.weight, listed=few)
            for x, few in zip(kept.predictions.T, listed, strict=True)
        )
        truth = None if kept.truth is None else Numbers.of(kept.truth, kept.weight, listed=True)
        weight, none = (float(kept.weight.sum()), float(kept.weight.max())), Sampler(1, 0).result()
        return Survey(0, len(kept.weight), 0, *weight, attributes, predictions, truth, none)

    def result(self) -> Survey:
        """Return what all rows seen have told."""
        sample = self._sampler.result()
        survey = self._survey or Survey(0, 0, 0, 0.0, 0.0, (), (), None, sample)
        return replace(survey, n_rows=self._n_rows, n_missing=self._n_missing, sample=sample)
