"""The first pass: what the columns hold, before any row is encoded, mapped or put into a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.encoding import ColumnStatistics, Spread, TableStatistics
from scalefair.data.encoding.groups import first_rows
from scalefair.data.frames import Column
from scalefair.data.open import ARGUMENTS
from scalefair.data.sources import ChunkSource, Sample, Sampler
from scalefair.errors import check_finite

MAX_LEVELS_OF_NUMBERS = 8
"""Numbers with at most this many values may be levels of groups."""

SURVEY_ROWS = 65536
"""Rows per chunk where no features are computed."""

Values = frozenset[float] | None
"""The values of a column of numbers; None where there are too many, or nobody asked."""


class Look(NamedTuple):
    """What a survey looks for in one part of the rows.

    Parameters
    ----------
    name : str
        What the user calls the part, for errors; "" where errors name it without.
    values : bool
        Whether the values of numbers are listed while there are at most `MAX_LEVELS_OF_NUMBERS`.
    groups : bool
        Whether one row of each combination of categories is remembered; numbers whose values are
        listed are categories, too.
    every : bool
        Whether all numbers are.
    bins : dict of str to sequence of float, optional
        Edges by which the numbers of some columns are cut into categories.
    prefix : str
        Columns without a name are called prefix0, prefix1, ...
    check : callable, optional
        Raises ValueError if a chunk's TableStatistics will not do; asked of chunks whose file,
        partition or batch is known, to be named in the error.
    """

    name: str
    values: bool = False
    groups: bool = False
    every: bool = False
    bins: Mapping[str, Sequence[float]] | None = None
    prefix: str = "s"
    check: Callable[[TableStatistics], None] | None = None


class Numbers(NamedTuple):
    """Spread of a column of numbers, and its values where they are few."""

    spread: Spread
    values: Values

    @property
    def is_binary(self) -> bool:
        """Whether the numbers are 0 and 1, or −1 and 1: labels rather than scores."""
        return self.values is not None and (self.values <= {0.0, 1.0} or self.values <= {-1.0, 1.0})

    @property
    def is_constant(self) -> bool:
        """Whether there is but one value, up to rounding."""
        low, high = self.spread.low, self.spread.high
        return not high - low > 1e-12 * max(abs(low), abs(high))


@dataclass(frozen=True, eq=False)
class PartSurvey:
    """What is known of x, s, y or c; `+` joins the surveys of different chunks.

    Parameters
    ----------
    look : Look
        What was looked for.
    columns : TableStatistics
        Of the rows that count, or of all.
    values : tuple of Values
        Of each column.
    groups : frame, array or None
        The first row of each combination of categories; None where there are none.
    """

    look: Look
    columns: TableStatistics
    values: tuple[Values, ...]
    groups: Any = None

    @classmethod
    def of(
        cls, look: Look, table: Any, weight: Array, listed: Sequence[bool] | None = None
    ) -> PartSurvey:
        """Survey some rows; `listed` is False where other rows had too many values to list."""
        columns = frames.columns(table, look.prefix)
        listed = [look.values] * len(columns) if listed is None else listed
        each = tuple(ColumnStatistics.of(column, weight) for column in columns)
        named = frames.column_names(table) is not None
        statistics = TableStatistics(each, float(weight.sum()), len(weight), named)
        values = tuple(_listed(c) if few else None for c, few in zip(columns, listed, strict=True))
        if look.groups and not weight.all():
            table = frames.as_table(frames.take_rows(table, np.flatnonzero(weight)))
            columns = frames.columns(table, look.prefix)
        return cls(look, statistics, values, _groups(look, table, columns, values))

    def __add__(self, other: PartSurvey) -> PartSurvey:
        pairs = zip(self.values, other.values, strict=False)
        columns, values = self.columns + other.columns, tuple(_union(a, b) for a, b in pairs)
        tables = [part for part in (self.groups, other.groups) if part is not None]
        if not tables:
            return PartSurvey(self.look, columns, values)
        table = frames.as_table(frames.stack_rows(tables))
        groups = _groups(self.look, table, frames.columns(table), values)
        return PartSurvey(self.look, columns, values, groups)

    @property
    def numbers(self) -> list[Numbers]:
        """Spread and values of each column."""
        pairs = zip(self.columns.columns, self.values, strict=True)
        return [Numbers(column.spread, values) for column, values in pairs]


def _groups(look: Look, table: Any, columns: list[Column], values: tuple[Values, ...]) -> Any:
    """First rows of the combinations of categories."""
    if not look.groups or not frames.n_rows(table):
        return None
    codes = [
        _binned(column, look.bins[column.name])
        if look.bins and column.name in look.bins and column.kind != "categorical"
        else column.codes()[0]
        for column, few in zip(columns, values, strict=True)
        if look.every
        or few is not None
        or column.kind in ("categorical", "boolean")
        or column.name in (look.bins or ())
    ]
    return frames.take_rows(table, first_rows(codes)) if codes else None


def _binned(column: Column, edges: Sequence[float]) -> NDArray[np.int64]:
    x = column.floats()
    return np.where(np.isnan(x), -1, np.searchsorted(np.asarray(edges, np.float64), x, side="left"))


def _listed(column: Column) -> Values:
    if column.kind in ("categorical", "empty"):
        return frozenset()
    x = column.floats()
    x = x[~np.isnan(x)]
    # A glance at some rows spares most columns of scores the sorting.
    if len(np.unique(x[:: max(len(x) // 512, 1)])) > MAX_LEVELS_OF_NUMBERS:
        return None
    return _union(frozenset(np.unique(x).tolist()), frozenset())


def _union(first: Values, second: Values) -> Values:
    if first is None or second is None or len(first | second) > MAX_LEVELS_OF_NUMBERS:
        return None
    return first | second


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the rows after the first pass; `+` joins the surveys of different chunks.

    Parameters
    ----------
    n_rows, n_present : int
        All rows, and those that count: of positive weight and, where so asked, with all sensitive
        attributes.
    n_missing : int
        Rows that do not count because an attribute is missing.
    weight, heaviest : float
        Sum of the weights of the rows that count, and the largest of them.
    sample : Sample
        Rows that count, chosen by their number.
    parts : dict of str to PartSurvey
        What was looked for in "x", "s", "y" or "c"; nothing where no row is surveyed.
    """

    n_rows: int
    n_present: int
    n_missing: int
    weight: float
    heaviest: float
    sample: Sample
    parts: Mapping[str, PartSurvey] = field(default_factory=dict)

    def __add__(self, other: Survey) -> Survey:
        parts = self.parts or other.parts
        if self.parts and other.parts:
            parts = {part: self.parts[part] + other.parts[part] for part in self.parts}
        return Survey(
            self.n_rows + other.n_rows,
            self.n_present + other.n_present,
            self.n_missing + other.n_missing,
            self.weight + other.weight,
            max(self.heaviest, other.heaviest),
            self.sample + other.sample,
            parts,
        )

    @property
    def is_weighted(self) -> bool:
        """Whether weights differ: weights that are all the same are none."""
        return self.weight < self.n_present * self.heaviest * (1 - 1e-9)


class Surveyor:
    """Accumulator of a survey.

    Parameters
    ----------
    looks : dict of str to Look
        What is looked for in which parts of a chunk; parts that chunks lack are passed over.
    size : int or None
        Of the sample; None: all rows that count.
    seed : int
        Of the sample.
    drop : bool
        Whether rows in which a sensitive attribute is missing do not count.
    all_rows : bool
        Whether columns are surveyed in all rows, those of weight 0 too: an encoder will meet them.
    finite : sequence of str
        Parts that are arrays, of which all rows must be finite.
    """

    def __init__(
        self,
        looks: Mapping[str, Look],
        size: int | None,
        seed: int,
        *,
        drop: bool = False,
        all_rows: bool = False,
        finite: Sequence[str] = ("weight",),
    ) -> None:
        self._looks, self._drop, self._all_rows, self._finite = looks, drop, all_rows, finite
        self._sampler = Sampler(sys.maxsize if size is None else size, seed)
        self._total = Survey(0, 0, 0, 0.0, 0.0, Sampler(1, 0).result())

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; an error says where they come from."""
        if chunk.n_rows:
            with located(chunk):
                self._add(chunk)

    def _add(self, chunk: Chunk) -> None:
        for part in self._finite:
            if (numbers := getattr(chunk, part)) is not None:
                check_finite(ARGUMENTS[part], np.asarray(numbers))
        positive = chunk.n_rows if chunk.weight is None else int(np.sum(chunk.weight > 0))
        chunk = without_gaps(chunk) if self._drop else chunk
        index = present(chunk)
        surveyed = np.arange(chunk.n_rows) if self._all_rows else index
        parts = {
            part: self._part(part, look, chunk, surveyed)
            for part, look in self._looks.items()
            if getattr(chunk, part) is not None and len(surveyed)
        }
        weight = _weight(chunk, index)
        self._sampler.add(chunk)
        self._total += Survey(
            chunk.n_rows, len(index), positive - len(index), float(weight.sum()),
            float(weight.max(initial=0.0)), Sampler(1, 0).result(), parts,
        )  # fmt: skip

    def _part(self, part: str, look: Look, chunk: Chunk, index: NDArray[np.int64]) -> PartSurvey:
        table = frames.as_table(getattr(chunk, part), one_column=True)
        if len(index) < chunk.n_rows:
            table = frames.as_table(frames.take_rows(table, index))
        before = self._total.parts.get(part)
        listed = None if before is None else [values is not None for values in before.values]
        with named(look.name):
            survey = PartSurvey.of(look, table, _weight(chunk, index), listed)
            if look.check is not None and chunk.where:
                look.check(survey.columns)
            return survey

    def result(self) -> Survey:
        """Return the survey of all rows seen."""
        return replace(self._total, sample=self._sampler.result())


def survey_rows(
    source: ChunkSource, looks: Mapping[str, Look], *, size: int | None, seed: int, **options: Any
) -> Survey:
    """Make the first pass over the rows; arguments as in `Surveyor`."""
    survey: Survey = source.fold(lambda: Surveyor(looks, size, seed, **options), SURVEY_ROWS)
    return survey


@contextmanager
def located(chunk: Chunk) -> Iterator[None]:
    """Name the file or partition in a ValueError."""
    with named(chunk.where):
        yield


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put a name before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}" if name else str(error)) from error


def present(chunk: Chunk) -> NDArray[np.int64]:
    """Return which rows of a chunk have a positive weight."""
    if chunk.weight is None:
        return np.arange(chunk.n_rows)
    return np.flatnonzero(np.asarray(chunk.weight) > 0)


def without_gaps(chunk: Chunk) -> Chunk:
    """Give weight 0 to rows in which a sensitive attribute is missing; they keep their number."""
    columns = frames.columns(frames.as_table(chunk.s, one_column=True), "s")
    gaps = np.any([_missing(column) for column in columns], axis=0)
    return replace(chunk, weight=np.where(gaps, 0.0, _weight(chunk, slice(None))))


def _missing(column: Column) -> NDArray[np.bool_]:
    if column.kind == "categorical":
        return column.codes()[0] < 0
    return np.isnan(column.floats())


def _weight(chunk: Chunk, index: Any) -> Array:
    if chunk.weight is None:
        return np.asarray(np.ones(chunk.n_rows)[index])
    return np.asarray(np.asarray(chunk.weight, np.float64)[index])
