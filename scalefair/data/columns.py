"""One column: its statistics, which add up over chunks, and its encoding as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from scalefair._typing import LARGEST, Array, Rows
from scalefair.data import frames
from scalefair.data.frames import Column, Kind
from scalefair.errors import InputError

# A column with more levels is an identifier, and would fill the memory of a long fold
MAX_LEVELS = 1_000_000

MAX_LISTED = 20  # values of numbers that are listed; whole numbers with more are no codes of groups
MAX_LEVELS_OF_NUMBERS = 8  # numbers with at most this many values may be levels of groups

# A missing value is marked in a column of its own, or becomes the mean or an unknown level
MissingRule = Literal["column", "default"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Weight, mean = shift + offset, scatter Σw(x − mean)² and range of numbers; mergeable."""

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
            # Not by BLAS, which would wake its threads for every column.
            offset = float(np.sum(weight * centred)) / total
            centred -= offset
            scatter = float(np.sum(weight * centred * centred))
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
    """Statistics of a column: the spread of its numbers, or the weight of each level."""

    name: str
    kind: Kind = "empty"  # where no value was seen; merges with every kind
    spread: Spread = field(default_factory=Spread)
    levels: Mapping[str, float] = field(default_factory=dict)
    missing: float = 0.0  # weight of the rows without a value
    n_missing: int = 0
    codes: tuple[float, ...] | None = ()  # values of numbers, sorted; None: > MAX_LISTED, or not asked for
    whole: bool = True  # the numbers are whole: then they are always asked for

    @classmethod
    def of(cls, column: Column, weight: Array, *, listed: bool = False) -> Self:
        """Return the statistics of one column under weights of shape (n,), values of numbers if `listed`."""
        spread, levels, whole = Spread(), dict[str, float](), False
        values: tuple[float, ...] | None = ()
        if column.kind == "categorical":
            level, names = column.codes()
            if len(names) > MAX_LEVELS:
                raise _too_many_levels(column.name)
            absent = level < 0
            sums = np.bincount(level[~absent], weight[~absent], len(names))
            levels = dict(zip(names, sums.tolist(), strict=True))
        else:
            x = column.floats(largest=LARGEST)
            absent = np.isnan(x)
            counted = ~absent & (weight > 0)
            spread = Spread.of(x[counted], weight[counted])
            dtype = column.values.dtype
            whole = dtype.kind in "iu" if isinstance(dtype, np.dtype) else dtype.is_integer()
            values = few_values(x[counted]) if whole or listed else None
        kind: Kind = "empty" if absent.all() else column.kind
        missing, n_missing = float(weight[absent].sum()), int(absent.sum())
        return cls(column.name, kind, spread, levels, missing, n_missing, values, whole)

    def __add__(self, other: ColumnStatistics) -> ColumnStatistics:
        if self.name != other.name:
            raise InputError(
                f"columns differ between chunks: {self.name!r} in one and {other.name!r} at the "
                "same position in another",
                "give every chunk the same columns in the same order",
                column=other.name,
            )
        if self.kind != other.kind and "empty" not in (self.kind, other.kind):
            raise InputError(
                f"column {self.name!r} is {self.kind} in some rows and {other.kind} in others",
                "convert it, or name its type where the data is read",
                column=self.name,
            )
        levels, values, kind = dict(self.levels), None, other.kind if self.kind == "empty" else self.kind
        for level, weight in other.levels.items():
            levels[level] = levels.get(level, 0.0) + weight
        if len(levels) > MAX_LEVELS:
            raise _too_many_levels(self.name)
        if self.codes is not None and other.codes is not None:
            seen = tuple(sorted({*self.codes, *other.codes}))
            values = seen if len(seen) <= MAX_LISTED else None
        missing, n_missing = self.missing + other.missing, self.n_missing + other.n_missing
        both = self.spread + other.spread, levels, missing, n_missing, values, self.whole and other.whole
        return ColumnStatistics(self.name, kind, *both)

    @property
    def few(self) -> tuple[float, ...] | None:
        """Values of numbers that may be levels of groups; None where they are too many."""
        return None if self.codes is None or len(self.codes) > MAX_LEVELS_OF_NUMBERS else self.codes


def _too_many_levels(name: str) -> InputError:
    what = f"column {name!r} has more than {MAX_LEVELS:,} levels, like an identifier"
    return InputError(what, "drop it, or convert it if it holds numbers", column=name)


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


def table_statistics(X: Any, weight: Any = None, prefix: str = "x") -> TableStatistics:
    """Return the statistics that an encoder of `X`, an array or frame of shape (n, d), needs."""
    from sklearn.utils.validation import _check_sample_weight  # late: a header needs none of it

    table = frames.as_table(X)
    rows = np.empty((frames.n_rows(table), 1))
    w = np.ones(len(rows))
    if weight is not None and len(rows):
        w = _check_sample_weight(weight, rows, dtype=np.float64, ensure_non_negative=True, allow_all_zero_weights=True)
    each = tuple(ColumnStatistics.of(column, w) for column in frames.columns(table, prefix))
    return TableStatistics(each, float(w.sum()), w.size, frames.column_names(table) is not None)


def sensitive_statistics(s: Any, weight: Any = None) -> TableStatistics:
    """Return the statistics that a `SensitiveEncoder` of `s`, of shape (n,) or (n, p), needs."""
    return table_statistics(frames.as_table(s, one_column=True), weight, "s")


def few_values(x: Array) -> tuple[float, ...] | None:
    """Return the distinct values, sorted; None where there are more than `MAX_LISTED`."""
    # A few rows are enough to see that most columns have more.
    for some in (x[:: max(len(x) // 512, 1)], x):
        values = np.unique(some)
        if len(values) > MAX_LISTED:
            return None
    return tuple(values.tolist())


@dataclass(frozen=True, slots=True)
class NumberCode:
    """(x − center) / scale; a missing x becomes `fill`, and `missing="column"` marks it too."""

    name: str
    kind: Kind
    center: float
    scale: float
    fill: float
    missing: MissingRule

    def outputs(self, name: str) -> list[str]:
        """Return the names of the columns written."""
        return [name, f"{name}_missing"] if self.missing == "column" else [name]

    def write(self, column: Column, out: Rows) -> None:
        """Write a column of n rows into `out` of shape (n, 1 or 2)."""
        x = column.floats(largest=LARGEST)
        absent = np.isnan(x)
        x = (x - self.center) / self.scale
        x[absent] = self.fill
        out[:, 0] = x
        if self.missing == "column":
            out[:, 1] = absent


@dataclass(frozen=True, slots=True)
class LevelCode:
    """One-hot of `levels`, then the pooled level if any, then "missing" if it has a column."""

    name: str
    levels: tuple[str, ...]
    pooled: tuple[str, ...]
    missing: MissingRule
    kind: Kind = "categorical"

    def outputs(self, name: str) -> list[str]:
        """Return the names of the columns written; of two only the second."""
        pooled, missing = bool(self.pooled), self.missing == "column"
        slots = [*self.levels, *["infrequent"] * pooled, *["missing"] * missing]
        named = [f"{name}_{slot}" for slot in slots]
        return named[1:] if len(named) == 2 else named

    def write(self, column: Column, out: Rows) -> None:
        """Write a column of n rows into `out`, zeros of shape (n, number of outputs)."""
        codes, present = column.codes()
        known = {level: i for i, level in enumerate(self.levels)}
        known |= dict.fromkeys(self.pooled, len(self.levels))
        other = len(self.levels) if self.pooled else -1
        n_slots = len(self.levels) + bool(self.pooled) + (self.missing == "column")
        missing = n_slots - 1 if self.missing == "column" else other
        # The last one is that of code −1, a missing value.
        slot = np.array([*(known.get(level, other) for level in present), missing])[codes]
        if n_slots == 2:
            out[:, 0] = slot == 1
        else:
            rows = np.flatnonzero(slot >= 0)
            out[rows, slot[rows]] = 1.0


def missing_values(role: str, name: str, kind: Kind, count: int) -> InputError:
    """Return the error for an attribute that some rows do not have."""
    remedy = "give them a level of their own, such as 'unknown'"
    if kind != "categorical":
        remedy = "fill them in, leave the rows out, or bin the column with a level for missing"
    what = f"{role} column {name!r} has {count} missing value(s) (NaN or null)"
    return InputError(what, remedy, column=name)
