"""What a pass over the rows learns of a table, as values that add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from scalefair._typing import Array
from scalefair.data.frames import (
    Column,
    Kind,
    as_table,
    column_names,
    columns,
    kinds_differ,
    n_rows,
)
from scalefair.errors import check_finite

_LEVEL_LIMIT = 1_000_000
"""A column with more levels is an identifier, and would fill the memory of a long fold."""

MAX_CODES = 20
"""Whole numbers with more levels are no codes of groups."""

Codes = tuple[float, ...] | None
"""The levels of whole numbers, sorted; None for other numbers, and beyond `MAX_CODES` levels."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Weight, mean = shift + offset, scatter Σw(x − mean)² and range of numbers; mergeable.

    `shift` is one of the values: differences from it keep their digits where the mean is a
    million times the deviation. `Spread()` is the neutral element.
    """

    weight: float = 0.0
    shift: float = 0.0
    offset: float = 0.0
    scatter: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, x: Array, weight: Array) -> Self:
        """Return the spread of finite x under positive weights, both of shape (n,)."""
        if not x.size:
            return cls()
        total, shift = float(weight.sum()), float(x[0])
        with np.errstate(over="ignore", invalid="ignore"):
            centred = x - shift
            offset = float(weight @ centred) / total
            centred -= offset
            scatter = float((weight * centred) @ centred)
        return cls(total, shift, offset, scatter, float(x.min()), float(x.max()))

    def __add__(self, other: Spread) -> Spread:
        if not (self.weight and other.weight):
            return self if self.weight else other
        weight = self.weight + other.weight
        share = other.weight / weight
        delta = (other.shift - self.shift) + (other.offset - self.offset)
        scatter = self.scatter + other.scatter + delta * delta * self.weight * share
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Spread(weight, self.shift, self.offset + delta * share, scatter, low, high)

    @property
    def mean(self) -> float:
        """Weighted mean."""
        return self.shift + self.offset


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What a pass learns of a column: the spread of its numbers, or the weight of each level.

    `missing` is the weight of the rows without a value, `n_missing` their number. A column of
    which no value was seen is "empty" and merges with every kind. `codes` are the few levels of
    whole numbers, which may be codes of groups.
    """

    name: str
    kind: Kind = "empty"
    spread: Spread = field(default_factory=Spread)
    levels: Mapping[str, float] = field(default_factory=dict)
    missing: float = 0.0
    n_missing: int = 0
    codes: Codes = ()

    @classmethod
    def of(cls, column: Column, weight: Array) -> Self:
        """Return the statistics of one column under weights of shape (n,)."""
        spread, levels = Spread(), dict[str, float]()
        codes: Codes = ()
        if column.kind == "categorical":
            level, names = column.codes()
            absent = level < 0
            levels = _sum_by_level(names, np.bincount(level[~absent], weight[~absent], len(names)))
        else:
            x = column.finite()
            absent = np.isnan(x)
            counted = ~absent & (weight > 0)
            spread = Spread.of(x[counted], weight[counted])
            codes = _few_levels(x[counted]) if _is_integer(column) else None
        kind: Kind = "empty" if absent.all() else column.kind
        missing, n_missing = float(weight[absent].sum()), int(absent.sum())
        return cls(column.name, kind, spread, levels, missing, n_missing, codes)._checked()

    def __add__(self, other: ColumnStatistics) -> ColumnStatistics:
        if self.name != other.name:
            raise ValueError(
                f"columns differ between chunks: {self.name!r} in one and {other.name!r} at the "
                "same place in another; give every chunk the same columns in the same order"
            )
        if self.kind != other.kind and "empty" not in (self.kind, other.kind):
            raise ValueError(kinds_differ(self.name, self.kind, other.kind))
        names, weights = [*self.levels, *other.levels], [*self.levels.values()]
        return ColumnStatistics(
            self.name,
            other.kind if self.kind == "empty" else self.kind,
            self.spread + other.spread,
            _sum_by_level(names, [*weights, *other.levels.values()]),
            self.missing + other.missing,
            self.n_missing + other.n_missing,
            _joined_codes(self.codes, other.codes),
        )._checked()

    def _checked(self) -> Self:
        if len(self.levels) > _LEVEL_LIMIT:
            raise ValueError(
                f"column {self.name!r} has more than {_LEVEL_LIMIT:,} levels: it looks like an "
                "identifier; drop it, or convert it if it holds numbers"
            )
        return self


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics of the columns of a table; `+` merges chunks, `TableStatistics()` is neutral."""

    columns: tuple[ColumnStatistics, ...] = ()
    weight: float = 0.0
    n_rows: int = 0
    named: bool = False

    def __add__(self, other: TableStatistics) -> TableStatistics:
        if not (self.columns and other.columns):
            return self if self.columns else other
        if len(self.columns) != len(other.columns):
            raise ValueError(
                f"chunks have {len(self.columns)} and {len(other.columns)} columns; give every "
                "chunk the same columns in the same order"
            )
        merged = tuple(a + b for a, b in zip(self.columns, other.columns, strict=True))
        total, rows = self.weight + other.weight, self.n_rows + other.n_rows
        return TableStatistics(merged, total, rows, self.named)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]


def table_statistics(X: Any, weight: Any = None) -> TableStatistics:
    """Return what an encoder must know of the rows of `X`, an array or frame of shape (n, d).

    Rows of weight zero count for nothing, except that their levels are known to a
    `SensitiveEncoder`, which could not code them otherwise.
    """
    return _statistics(as_table(X), weight, "x")


def sensitive_statistics(s: Any, weight: Any = None) -> TableStatistics:
    """Return what a `SensitiveEncoder` must know of `s`, of shape (n,) or (n, p)."""
    return _statistics(as_table(s, one_column=True), weight, "s")


def _statistics(table: Any, weight: Any, prefix: str) -> TableStatistics:
    w = _check_weight(weight, n_rows(table))
    found = tuple(ColumnStatistics.of(column, w) for column in columns(table, prefix))
    return TableStatistics(found, float(w.sum()), w.size, column_names(table) is not None)


def _check_weight(weight: Any, n: int) -> Array:
    if weight is None:
        return np.ones(n)
    w = np.asarray(weight, dtype=np.float64)
    if w.ndim == 0:
        return np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(f"sample_weight has shape {w.shape}; expected ({n},), one per row")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise ValueError("sample_weight must be finite and not negative; set such rows to 0")
    check_finite("sample_weight", w)
    return w


def _is_integer(column: Column) -> bool:
    """Return True if the values are stored as integers."""
    if isinstance(column.values, np.ndarray):
        return column.values.dtype.kind in "iu"
    return bool(column.values.dtype.is_integer())


def _few_levels(x: Array) -> Codes:
    # A glance at some rows spares most columns the sorting.
    if len(np.unique(x[:: max(len(x) // 512, 1)])) > MAX_CODES:
        return None
    return _joined_codes(tuple(np.unique(x).tolist()), ())


def _joined_codes(first: Codes, second: Codes) -> Codes:
    if first is None or second is None:
        return None
    both = {*first, *second}
    return tuple(sorted(both)) if len(both) <= MAX_CODES else None


def _sum_by_level(levels: Iterable[str], weights: Iterable[float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for level, weight in zip(levels, weights, strict=True):
        total[level] = total.get(level, 0.0) + float(weight)
    return total
