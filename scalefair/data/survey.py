"""The first pass: what the columns hold, before any row is encoded, mapped or put into a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np

from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data import frames
from scalefair.data.columns import ColumnStatistics, Spread, TableStatistics
from scalefair.data.frames import Column, take_rows
from scalefair.data.sources import ChunkSource, Sample
from scalefair.data.sources.base import ARGUMENTS
from scalefair.errors import check_finite, located

MAX_COMBINATIONS = 2**22  # combinations of levels beyond which a table of them all is too large
SURVEY_ROWS = 65536  # rows per chunk where no features are computed
T = TypeVar("T")


class Look(NamedTuple):
    """What is surveyed of one part; categories are text, booleans, numbers listed, binned or, by `every`, all."""

    name: str
    values: bool = False  # list those of numbers while they are few
    groups: bool = False  # remember one row of each combination of categories
    every: bool = False
    bins: Mapping[str, Sequence[float]] | None = None  # the edges, by column
    prefix: str = "s"  # of columns without a name: prefix0, prefix1, ...
    check: Callable[[TableStatistics], None] | None = None  # of each chunk with a `where`


class Numbers(NamedTuple):
    """Spread of a column of numbers, and what its values say of it."""

    spread: Spread
    is_binary: bool  # 0 and 1, or −1 and 1: labels rather than scores
    is_constant: bool  # up to rounding


@dataclass(frozen=True, eq=False)
class PartSurvey:
    """What is known of x, s, y or c; `+` joins the surveys of different chunks."""

    look: Look
    columns: TableStatistics
    groups: Any = None

    @classmethod
    def of(cls, look: Look, rows: Any, weight: Array, where: str = "") -> PartSurvey:
        """Survey some rows of `where`."""
        with located(look.name):
            table = frames.as_table(rows, one_column=True)
            columns = frames.columns(table, look.prefix)
            each = tuple(ColumnStatistics.of(column, weight, listed=look.values) for column in columns)
            named = frames.column_names(table) is not None
            statistics = TableStatistics(each, float(weight.sum()), len(weight), named)
            if look.check is not None and where:
                look.check(statistics)
        if look.groups and not weight.all():
            table = frames.as_table(take_rows(table, np.flatnonzero(weight)))
            columns = frames.columns(table, look.prefix)
        return cls(look, statistics, _first_of_groups(look, table, columns, each) if look.groups else None)

    def __add__(self, other: PartSurvey) -> PartSurvey:
        columns = self.columns + other.columns
        tables = [part for part in (self.groups, other.groups) if part is not None]
        if not tables:
            return PartSurvey(self.look, columns)
        table = frames.as_table(frames.stack_rows(tables))
        each = frames.columns(table, self.look.prefix)
        return PartSurvey(self.look, columns, _first_of_groups(self.look, table, each, columns.columns))

    @property
    def numbers(self) -> list[Numbers]:
        """What each column holds."""
        numbers = []
        for column in self.columns.columns:
            low, high, few = column.spread.low, column.spread.high, column.few
            binary = few is not None and ({*few} <= {0.0, 1.0} or {*few} <= {-1.0, 1.0})
            constant = not high - low > 1e-12 * max(abs(low), abs(high))
            numbers.append(Numbers(column.spread, binary, constant))
        return numbers


def _first_of_groups(look: Look, table: Any, columns: list[Column], known: Sequence[ColumnStatistics]) -> Any:
    """First rows of the combinations of categories."""
    bins, codes = look.bins or {}, []
    for column, statistics in zip(columns, known, strict=True):
        few = look.values and statistics.few is not None
        if column.name in bins and column.kind != "categorical":
            x = column.floats()
            edges = np.asarray(bins[column.name], np.float64)
            codes.append(np.where(np.isnan(x), -1, np.searchsorted(edges, x, side="left")))
        elif look.every or few or column.kind in ("categorical", "boolean"):
            codes.append(column.codes()[0])
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
                    parts[part] = PartSurvey.of(look, rows, weight[surveyed], chunk.where)
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


class Sums(tuple[T, ...]):
    """Statistics side by side; `+` adds each to its counterpart."""

    def __add__(self, other: Any) -> Any:
        return type(self)(a + b for a, b in zip(self, other, strict=True))

    def __radd__(self, zero: Literal[0]) -> Self:
        """Begin `sum(parts)`, which starts at 0."""
        return self if zero == 0 else NotImplemented


class ChunkSum:
    """Accumulator of function(chunk), a value with `+`; `empty` makes that of no rows."""

    def __init__(self, function: Callable[[Chunk], Any], empty: Callable[[], Any]) -> None:
        self._function, self._empty, self._total = function, empty, None

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
        if chunk.n_rows:
            new = self._function(chunk)
            self._total = new if self._total is None else self._total + new

    def result(self) -> Any:
        """Return the sum over all chunks seen."""
        return self._empty() if self._total is None else self._total


View = Callable[[Chunk], Chunk]


class Together:
    """Accumulator of several statistics in one pass, each of its own view of every chunk."""

    def __init__(self, parts: Sequence[tuple[View, Callable[[], Accumulator]]]) -> None:
        self._parts = [(view, start()) for view, start in parts]

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
        for view, accumulator in self._parts:
            accumulator.add(view(chunk))

    def result(self) -> Sums[Any]:
        """Return the statistics, in the order of the parts."""
        return Sums(accumulator.result() for _, accumulator in self._parts)
