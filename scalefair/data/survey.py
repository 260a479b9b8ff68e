"""The first pass: what the columns hold, before any row is encoded, mapped or put into a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data import frames
from scalefair.data.columns import ColumnStatistics, Spread, TableStatistics, few_values
from scalefair.data.frames import Column, take_rows
from scalefair.data.sources import ChunkSource, Sample
from scalefair.data.sources.base import ARGUMENTS
from scalefair.errors import check_finite, located

MAX_LEVELS_OF_NUMBERS = 8  # numbers with at most this many values may be levels of groups
MAX_COMBINATIONS = 2**22  # combinations of levels beyond which a table of them all is too large
SURVEY_ROWS = 65536  # rows per chunk where no features are computed

# The values of a column of numbers; None where there are too many, or they are not needed
Values = frozenset[float] | None


class Look(NamedTuple):
    """What a survey collects of one part of the rows; `name` of it is for errors.

    Categories are text, booleans, numbers whose values are listed, binned or, by `every`, all.
    """

    name: str
    values: bool = False  # list those of numbers while at most MAX_LEVELS_OF_NUMBERS
    groups: bool = False  # remember one row of each combination of categories
    every: bool = False
    bins: Mapping[str, Sequence[float]] | None = None  # the edges, by column
    prefix: str = "s"  # of columns without a name: prefix0, prefix1, ...
    check: Callable[[TableStatistics], None] | None = None  # of each chunk with a `where`


class Numbers(NamedTuple):
    """Spread of a column of numbers, and its values where they are few."""

    spread: Spread
    values: Values
    is_binary: bool  # 0 and 1, or −1 and 1: labels rather than scores
    is_constant: bool  # up to rounding


@dataclass(frozen=True, eq=False)
class PartSurvey:
    """What is known of x, s, y or c; `+` joins the surveys of different chunks."""

    look: Look
    columns: TableStatistics
    values: tuple[Values, ...]
    groups: Any = None

    @classmethod
    def of(cls, look: Look, rows: Any, weight: Array, before: PartSurvey | None = None, where: str = "") -> PartSurvey:
        """Survey some rows of `where`; values of columns with too many `before` are not listed."""
        with located(look.name):
            table = frames.as_table(rows, one_column=True)
            columns = frames.columns(table, look.prefix)
            each = tuple(ColumnStatistics.of(column, weight) for column in columns)
            named = frames.column_names(table) is not None
            statistics = TableStatistics(each, float(weight.sum()), len(weight), named)
            if look.check is not None and where:
                look.check(statistics)
        known: Sequence[Values] = [frozenset()] * len(columns) if before is None else before.values
        values = tuple(
            _values_of(column) if look.values and few is not None else None
            for column, few in zip(columns, known, strict=True)
        )
        if look.groups and not weight.all():
            table = frames.as_table(take_rows(table, np.flatnonzero(weight)))
            columns = frames.columns(table, look.prefix)
        groups = _first_of_groups(look, table, columns, values) if look.groups else None
        return cls(look, statistics, values, groups)

    def __add__(self, other: PartSurvey) -> PartSurvey:
        pairs = zip(self.values, other.values, strict=False)
        columns, values = self.columns + other.columns, tuple(_union(a, b) for a, b in pairs)
        tables = [part for part in (self.groups, other.groups) if part is not None]
        if not tables:
            return PartSurvey(self.look, columns, values)
        table = frames.as_table(frames.stack_rows(tables))
        groups = _first_of_groups(self.look, table, frames.columns(table), values)
        return PartSurvey(self.look, columns, values, groups)

    @property
    def numbers(self) -> list[Numbers]:
        """Spread and values of each column."""
        numbers = []
        for column, values in zip(self.columns.columns, self.values, strict=True):
            low, high = column.spread.low, column.spread.high
            binary = values is not None and (values <= {0.0, 1.0} or values <= {-1.0, 1.0})
            constant = not high - low > 1e-12 * max(abs(low), abs(high))
            numbers.append(Numbers(column.spread, values, binary, constant))
        return numbers


def _first_of_groups(look: Look, table: Any, columns: list[Column], values: tuple[Values, ...]) -> Any:
    """First rows of the combinations of categories."""
    bins = look.bins or {}
    codes = [
        _binned(column, bins[column.name])
        if column.name in bins and column.kind != "categorical"
        else column.codes()[0]
        for column, few in zip(columns, values, strict=True)
        if look.every or few is not None or column.kind in ("categorical", "boolean") or column.name in bins
    ]
    if not (codes and len(codes[0])):
        return None
    combined = codes[0] + 1
    for more in codes[1:]:
        combined = combined * (int(more.max()) + 2) + more + 1
        if combined.max() >= MAX_COMBINATIONS:
            combined = np.unique(combined, return_inverse=True)[1]
    # Written from the last row to the first, so that the first one stays: no sort is needed.
    first = np.full(int(combined.max()) + 1, -1)
    first[combined[::-1]] = np.arange(len(combined))[::-1]
    return take_rows(table, np.sort(first[first >= 0]))


def _binned(column: Column, edges: Sequence[float]) -> NDArray[np.int64]:
    x = column.floats()
    return np.where(np.isnan(x), -1, np.searchsorted(np.asarray(edges, np.float64), x, side="left"))


def _values_of(column: Column) -> Values:
    if column.kind in ("categorical", "empty"):
        return frozenset()
    x = column.floats()
    values = few_values(x[~np.isnan(x)], MAX_LEVELS_OF_NUMBERS)
    return None if values is None else frozenset(values.tolist())


def _union(first: Values, second: Values) -> Values:
    if first is None or second is None or len(first | second) > MAX_LEVELS_OF_NUMBERS:
        return None
    return first | second


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the rows after the first pass; `+` joins the surveys of different chunks."""

    n_rows: int = 0
    n_present: int = 0  # of positive weight and, where requested, with all sensitive attributes
    n_missing: int = 0  # of positive weight without them
    weight: float = 0.0  # sum of the rows that are present
    heaviest: float = 0.0
    sample: Sample = field(default_factory=lambda: Sample(0))
    parts: Mapping[str, PartSurvey] = field(default_factory=dict)  # "x", "s", "y" or "c"

    def __add__(self, other: Survey) -> Survey:
        parts = {**self.parts, **other.parts}
        for part in self.parts.keys() & other.parts.keys():
            parts[part] = self.parts[part] + other.parts[part]
        return Survey(
            self.n_rows + other.n_rows,
            self.n_present + other.n_present,
            self.n_missing + other.n_missing,
            self.weight + other.weight,
            max(self.heaviest, other.heaviest),
            self.sample + other.sample,
            parts,
        )


@dataclass(eq=False)
class Surveyor:
    """Accumulator of a survey, with a sample of `size` rows."""

    looks: Mapping[str, Look]  # parts that chunks lack are skipped
    size: int
    seed: int
    drop: bool = False  # rows in which a sensitive attribute is missing do not count
    all_rows: bool = False  # survey columns in rows of weight 0 too: an encoder will meet them
    finite: Sequence[str] = ("weight",)  # arrays that must be finite in all rows
    _total: Survey | None = None

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk; an error names the file or batch."""
        if not chunk.n_rows:
            return
        with located(chunk.where):
            given = chunk.parts
            for part in self.finite:
                if given[part] is not None:
                    check_finite(ARGUMENTS[part], np.asarray(given[part]))
            positive = int(np.sum(chunk.weights > 0))
            chunk = without_gaps(chunk) if self.drop else chunk
            weight = chunk.weights
            index = np.flatnonzero(weight > 0)
            surveyed = np.arange(chunk.n_rows) if self.all_rows else index
            before, parts = self._total or Survey(), {}
            for part, look in self.looks.items():
                rows = given[part]
                if rows is not None and len(surveyed):
                    rows = rows if len(surveyed) == len(weight) else take_rows(rows, surveyed)
                    known = before.parts.get(part)
                    parts[part] = PartSurvey.of(look, rows, weight[surveyed], known, chunk.where)
            sample = Sample.of(chunk, self.size, self.seed, before.sample)
            weight = weight[index]
            total, heaviest = float(weight.sum()), float(weight.max(initial=0.0))
            n_missing = positive - len(index)
            new = Survey(chunk.n_rows, len(index), n_missing, total, heaviest, sample, parts)
            self._total = new if self._total is None else before + new

    def result(self) -> Survey:
        """Return the survey of all rows seen."""
        return self._total or Survey()


def survey_rows(
    source: ChunkSource, looks: Mapping[str, Look], *, size: int | None, seed: int, **options: Any
) -> Survey:
    """Make the first pass, with a sample of `size` rows (None: all); options as in `Surveyor`."""
    size = sys.maxsize if size is None else size
    survey: Survey = source.fold(lambda: Surveyor(looks, size, seed, **options), SURVEY_ROWS)
    return survey


def without_gaps(chunk: Chunk) -> Chunk:
    """Give weight 0 to rows in which a sensitive attribute is missing; they keep their number."""
    columns = frames.columns(frames.as_table(chunk.s, one_column=True), "s")
    gaps = np.any([column.missing() for column in columns], axis=0)
    return replace(chunk, weight=np.where(gaps, 0.0, chunk.weights))


class Sums(tuple[Any, ...]):
    """Statistics side by side; `+` adds each to its counterpart."""

    def __add__(self, other: Any) -> Any:
        return type(self)(a + b for a, b in zip(self, other, strict=True))


View = Callable[[Chunk], Chunk]


class Together:
    """Accumulator of several statistics in one pass, each of its own view of every chunk."""

    def __init__(self, parts: Sequence[tuple[View, Callable[[], Accumulator]]]) -> None:
        self._parts = [(view, start()) for view, start in parts]

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
        for view, accumulator in self._parts:
            accumulator.add(view(chunk))

    def result(self) -> Sums:
        """Return the statistics, in the order of the parts."""
        return Sums(accumulator.result() for _, accumulator in self._parts)
