"""Mixed columns to numbers, learnt by a fold, so that any chunking of the rows gives the same.

`table_statistics` of the chunks add up; `TableEncoder.finish` and `SensitiveEncoder.finish` turn
the sum into a fitted encoder. `fit` does the same with a single chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from scalefair._frames import (
    Column,
    Kind,
    as_table,
    column_names,
    columns,
    kinds_differ,
    n_rows,
    resolve_columns,
)
from scalefair._typing import Array, Rows

_LEVEL_LIMIT = 1_000_000
"""A column with more levels is an identifier, and would fill the memory of a long fold."""


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
    which no value was seen is "empty" and merges with every kind.
    """

    name: str
    kind: Kind = "empty"
    spread: Spread = field(default_factory=Spread)
    levels: Mapping[str, float] = field(default_factory=dict)
    missing: float = 0.0
    n_missing: int = 0

    @classmethod
    def of(cls, column: Column, weight: Array) -> Self:
        """Return the statistics of one column under weights of shape (n,)."""
        spread, levels = Spread(), dict[str, float]()
        if column.kind == "categorical":
            codes, names = column.codes()
            absent = codes < 0
            levels = _sum_by_level(names, np.bincount(codes[~absent], weight[~absent], len(names)))
        else:
            x = column.finite()
            absent = np.isnan(x)
            counted = ~absent & (weight > 0)
            spread = Spread.of(x[counted], weight[counted])
        kind: Kind = "empty" if absent.all() else column.kind
        missing, n_missing = float(weight[absent].sum()), int(absent.sum())
        return cls(column.name, kind, spread, levels, missing, n_missing)._checked()

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
    return w


def _sum_by_level(levels: Iterable[str], weights: Iterable[float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for level, weight in zip(levels, weights, strict=True):
        total[level] = total.get(level, 0.0) + float(weight)
    return total


def _set_columns_in(encoder: Any, statistics: TableStatistics) -> None:
    names = statistics.names
    if not names:
        raise ValueError(
            f"0 feature(s) (shape=({statistics.n_rows}, 0)) while a minimum of 1 is required."
        )
    if not statistics.weight:
        raise ValueError(
            f"none of {statistics.n_rows} rows has a positive weight: pass rows, or a "
            "sample_weight that is not zero everywhere"
        )
    encoder.n_features_in_ = len(names)
    vars(encoder).pop("feature_names_in_", None)
    if statistics.named:
        encoder.feature_names_in_ = np.array(names, dtype=object)


def _unknown_level(name: str, level: str, levels: Iterable[str]) -> str:
    listed = list(levels)
    shown = ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
    return (
        f"column {name!r} has the value {level!r}, which was not seen in fit; expected one of "
        f"{shown}: correct it, or fit on rows that have it"
    )


MissingRule = Literal["column", "default", "error"]
"""A missing value is marked in a column of its own, becomes the mean or an unknown level, or is
refused."""


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
        x = column.finite()
        absent = np.isnan(x)
        x = (x - self.center) / self.scale
        if self.missing == "error":
            _refuse_missing(self.name, int(absent.sum()))
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
    unknown: Literal["infrequent", "error"]
    drop_binary: bool
    kind: Kind = "categorical"

    def outputs(self, name: str) -> list[str]:
        """Return the names of the columns written; a binary column keeps its second level."""
        slots = [f"{name}_{slot}" for slot in self._slots()]
        return slots[1:] if self._is_binary() else slots

    def write(self, column: Column, out: Rows) -> None:
        """Write a column of n rows into `out`, zeros of shape (n, number of outputs)."""
        codes, found = column.codes()
        n_missing = int((codes < 0).sum())
        if self.missing == "error":
            _refuse_missing(self.name, n_missing)
        slot = self._lookup(found, n_missing > 0)[codes]
        if self._is_binary():
            out[:, 0] = slot == 1
        else:
            rows = np.flatnonzero(slot >= 0)
            out[rows, slot[rows]] = 1.0

    def _slots(self) -> list[str]:
        pooled, missing = bool(self.pooled), self.missing == "column"
        return [*self.levels, *["infrequent"] * pooled, *["missing"] * missing]

    def _is_binary(self) -> bool:
        return self.drop_binary and len(self._slots()) == 2

    def _lookup(self, found: list[str], any_missing: bool) -> NDArray[np.int64]:
        """Return the slot of each level found; the last entry, where code -1 points, is missing."""
        known = {level: i for i, level in enumerate(self.levels)}
        known |= dict.fromkeys(self.pooled, len(self.levels))
        other = len(self.levels) if self.pooled else -1
        missing = len(self._slots()) - 1 if self.missing == "column" else other
        strange = [level for level in found if level not in known]
        strange += ["missing value"] * (any_missing and self.missing == "default")
        if strange and self.unknown == "error":
            raise ValueError(_unknown_level(self.name, strange[0], self.levels))
        return np.array([*(known.get(level, other) for level in found), missing])


def _refuse_missing(name: str, count: int) -> None:
    if count:
        raise ValueError(
            f"column {name!r} has {count} missing value(s) (NaN or null) and missing='error': "
            "fill them in, or use missing='indicator'"
        )


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table of mixed columns into a matrix of numbers.

    Numbers and dates (days since 1970) become (x − mean) / deviation, weighted; constant columns
    become 0. Booleans are 0 and 1. Text and categories are one-hot, levels in sorted order.

    Parameters
    ----------
    numeric : {"standardize", "passthrough"}
        Whether numbers and dates are scaled.
    min_frequency : float
        Levels with less than this share of the weight are pooled into one level, "infrequent".
    unknown : {"infrequent", "error"}
        A level not seen in fit is read as the pooled level or, where there is none, as all zeros
        (in a binary column that is its first level); or it is a ValueError.
    missing : {"indicator", "error"}
        A missing number becomes the mean, with an indicator column if any was missing in fit; a
        missing level is a level of its own if seen in fit, otherwise an unknown one. "error":
        any missing value is a ValueError.
    max_levels : int
        At most this many levels of a column are kept, the most frequent, the others are pooled.
    drop_binary : bool
        Write columns of two levels as one column, 1 for the second level.
    keep : sequence of str or int
        Columns, by name or position, of which no level is pooled: the sensitive ones.
    dtype : dtype
        float64 or float32.

    Attributes
    ----------
    columns_ : tuple of NumberCode and LevelCode
        How each column is written.
    pooled_ : dict of str to tuple of str
        Pooled levels, by column.
    capped_ : list of str
        Columns in which `max_levels` pooled levels that `min_frequency` would have kept.
    n_features_in_, feature_names_in_, n_features_out_
        Columns in, their names if they have any, and columns out.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "numeric": [StrOptions({"standardize", "passthrough"})],
        "min_frequency": [Interval(Real, 0, 1, closed="left")],
        "unknown": [StrOptions({"infrequent", "error"})],
        "missing": [StrOptions({"indicator", "error"})],
        "max_levels": [Interval(Integral, 1, None, closed="left")],
        "drop_binary": ["boolean"],
        "keep": [str, Integral, "array-like"],
        "dtype": "no_validation",
    }

    def __init__(
        self,
        numeric: Literal["standardize", "passthrough"] = "standardize",
        *,
        min_frequency: float = 0.002,
        unknown: Literal["infrequent", "error"] = "infrequent",
        missing: Literal["indicator", "error"] = "indicator",
        max_levels: int = 1000,
        drop_binary: bool = True,
        keep: Iterable[str | int] = (),
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.numeric = numeric
        self.min_frequency = min_frequency
        self.unknown = unknown
        self.missing = missing
        self.max_levels = max_levels
        self.drop_binary = drop_binary
        self.keep = keep
        self.dtype = dtype

    @classmethod
    def from_statistics(cls, statistics: TableStatistics, **params: Any) -> Self:
        """Return the encoder that `fit` gives on the rows behind the statistics."""
        return cls(**params).finish(statistics)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Learn means, deviations and levels of `X`, of shape (n, d); `y` is ignored."""
        return self.finish(table_statistics(X, sample_weight))

    def finish(self, statistics: TableStatistics) -> Self:
        """Become fitted from the (summed) `table_statistics` of the rows."""
        self._validate_params()
        if np.dtype(self.dtype) not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"dtype={self.dtype!r}: expected float64 or float32")
        _set_columns_in(self, statistics)
        kept = set(resolve_columns(self.keep, statistics.names, len(statistics.columns)))
        self.pooled_: dict[str, tuple[str, ...]] = {}
        self.capped_: list[str] = []
        self.columns_ = tuple(
            self._code(column, statistics.weight, j in kept)
            for j, column in enumerate(statistics.columns)
        )
        self.n_features_out_ = sum(len(code.outputs("")) for code in self.columns_)
        return self

    def transform(self, X: Any) -> Any:
        """Return the encoded rows, C-ordered of shape (n, n_features_out_)."""
        check_is_fitted(self)
        table = as_table(X)
        validate_data(self, table, reset=False, skip_check_array=True)
        out = np.zeros((n_rows(table), self.n_features_out_), dtype=self.dtype)
        start = 0
        for column, code in zip(columns(table), self.columns_, strict=True):
            stop = start + len(code.outputs(""))
            code.write(column.expect(code.kind), out[:, start:stop])
            start = stop
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns out: age, age_missing, race_White, race_infrequent."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        pairs = zip(self.columns_, names, strict=True)
        return _unique([output for code, name in pairs for output in code.outputs(name)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "indicator"
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _code(self, column: ColumnStatistics, total: float, keep: bool) -> NumberCode | LevelCode:
        if not (column.spread.weight or any(column.levels.values())):
            raise ValueError(
                f"column {column.name!r} has no value in any row of positive weight: drop it"
            )
        if self.missing == "error":
            _refuse_missing(column.name, column.n_missing)
        if column.kind == "categorical":
            return self._level_code(column, total, keep)
        return self._number_code(column)

    def _missing_rule(self, column: ColumnStatistics) -> MissingRule:
        if column.missing:
            return "column"
        return "error" if self.missing == "error" else "default"

    def _number_code(self, column: ColumnStatistics) -> NumberCode:
        spread, rule = column.spread, self._missing_rule(column)
        if self.numeric == "passthrough" or column.kind == "boolean":
            return NumberCode(column.name, column.kind, 0.0, 1.0, spread.mean, rule)
        if not math.isfinite(spread.scatter):
            raise ValueError(f"column {column.name!r} is too large to square: rescale it")
        deviation = math.sqrt(spread.scatter / spread.weight)
        # Exactly 0 for a constant column, being measured from one of its values.
        return NumberCode(column.name, column.kind, spread.mean, deviation or 1.0, 0.0, rule)

    def _level_code(self, column: ColumnStatistics, total: float, keep: bool) -> LevelCode:
        share = {level: w / total for level, w in column.levels.items() if w > 0}
        kept = sorted(share) if keep else self._frequent(column.name, share)
        pooled = tuple(sorted(share.keys() - set(kept)))
        rule = self._missing_rule(column)
        if not kept and rule != "column":
            raise ValueError(
                f"column {column.name!r} has {len(share)} levels and none reaches "
                f"min_frequency={self.min_frequency}: it looks like an identifier; drop it, lower "
                "min_frequency, or name it in keep"
            )
        if pooled:
            self.pooled_[column.name] = pooled
        return LevelCode(column.name, tuple(kept), pooled, rule, self.unknown, self.drop_binary)

    def _frequent(self, name: str, share: dict[str, float]) -> list[str]:
        # Rounded, so that the order in which chunks were summed cannot decide a tie.
        rounded = {level: round(value, 12) for level, value in share.items()}
        least = self.min_frequency * (1 - 1e-9)
        frequent = [level for level, value in rounded.items() if value >= least]
        if len(frequent) > self.max_levels:
            self.capped_.append(name)
        by_weight = sorted(frequent, key=lambda level: (-rounded[level], level))
        return sorted(by_weight[: self.max_levels])


def _unique(names: list[str]) -> NDArray[Any]:
    # A level may itself be called "missing", or the column "a_b" meet level "b" of column "a".
    seen: set[str] = set()
    for i in range(len(names)):
        while names[i] in seen:
            names[i] += "_"
        seen.add(names[i])
    return np.array(names, dtype=object)


class SensitiveEncoder(TransformerMixin, BaseEstimator):
    """Turn sensitive attributes into numbers: numbers as given, categories as integer codes.

    Text, categories and booleans are replaced by the position of their level among the sorted
    levels. Nothing is pooled, scaled or filled in: missing, infinite, constant or unknown values
    are a ValueError, because each would quietly leave rows or attributes unprotected.

    Attributes
    ----------
    names_ : list of str
        Names of the columns; s0, s1, ... for input without names.
    categorical_ : ndarray of bool of shape (p,)
        Which columns are codes.
    levels_ : dict of str to tuple of str
        Sorted levels of each categorical column.
    n_features_in_ : int
        Number of columns p.
    """

    def fit(self, s: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Learn the levels of `s`, of shape (n,) or (n, p); `y` is ignored."""
        return self.finish(sensitive_statistics(s, sample_weight))

    def finish(self, statistics: TableStatistics) -> Self:
        """Become fitted from the (summed) `sensitive_statistics` of the rows."""
        _set_columns_in(self, statistics)
        for column in statistics.columns:
            _check_sensitive(column)
        self.names_ = statistics.names
        self.kinds_ = [column.kind for column in statistics.columns]
        self.categorical_ = np.array([kind in ("categorical", "boolean") for kind in self.kinds_])
        self.levels_ = {
            c.name: tuple(sorted(c.levels)) if c.kind == "categorical" else ("False", "True")
            for c, categorical in zip(statistics.columns, self.categorical_, strict=True)
            if categorical
        }
        return self

    def transform(self, s: Any) -> Any:
        """Return the rows of numbers and codes, float64 of shape (n, p)."""
        check_is_fitted(self)
        table = as_table(s, one_column=True)
        names = column_names(table) or self.names_
        if table.shape[1] != self.n_features_in_ or names != self.names_:
            raise ValueError(
                f"sensitive columns {names if table.shape[1] == len(names) else table.shape[1]}: "
                f"expected {self.names_}, as in fit; pass the same columns in the same order"
            )
        out = np.empty(table.shape)
        for j, column in enumerate(columns(table, "s")):
            out[:, j] = self._numbers(column, self.names_[j], self.kinds_[j])
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Return the names of the columns."""
        check_is_fitted(self)
        return np.array(self.names_, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _numbers(self, column: Column, name: str, kind: Kind) -> Array:
        column = replace(column, name=name).expect(kind)
        if kind != "categorical":
            x = column.finite()
            _check_sensitive_missing(name, kind, int(np.isnan(x).sum()))
            return x
        codes, found = column.codes()
        _check_sensitive_missing(name, kind, int((codes < 0).sum()))
        position = {level: i for i, level in enumerate(self.levels_[name])}
        if strange := [level for level in found if level not in position]:
            raise ValueError(_unknown_level(name, strange[0], position))
        return np.array([position[level] for level in found], dtype=np.float64)[codes]


def _check_sensitive(column: ColumnStatistics) -> None:
    _check_sensitive_missing(column.name, column.kind, column.n_missing)
    levels = [level for level, weight in column.levels.items() if weight > 0]
    low, high = column.spread.low, column.spread.high
    if column.kind == "boolean":
        low, high = bool(low), bool(high)
    if len(levels) == 1 or low == high:
        value = levels[0] if levels else low
        raise ValueError(
            f"sensitive column {column.name!r} is {value!r} in every row of positive weight, so "
            "nothing can depend on it: drop it"
        )


def _check_sensitive_missing(name: str, kind: Kind, count: int) -> None:
    if not count:
        return
    remedy = "give them a level of their own, such as 'unknown'"
    if kind != "categorical":
        remedy = "fill them in, leave the rows out, or bin the column with a level for missing"
    raise ValueError(
        f"sensitive column {name!r} has {count} missing value(s) (NaN or null): {remedy}"
    )
