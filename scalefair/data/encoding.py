"""Mixed columns to numbers, learnt by a fold, so that any chunking of the rows gives the same.

`table_statistics` of the chunks add up; `TableEncoder.finish` and `SensitiveEncoder.finish` turn
the sum into a fitted encoder. `fit` does the same with a single chunk.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from scalefair._typing import LARGEST, Array
from scalefair.data import frames
from scalefair.data.columns import (
    ColumnStatistics,
    LevelCode,
    MissingRule,
    NumberCode,
    TableStatistics,
    missing_values,
    sensitive_statistics,
    table_statistics,
)
from scalefair.data.frames import Column, Kind
from scalefair.errors import InputError, UselessColumnError, resolve_columns

# Whole numbers that fewer rows share, on average, are hardly codes of groups
MIN_ROWS_PER_CODE = 10

NUMBERS_OR_CODES = "numbers or codes?"


class _ColumnEncoder(TransformerMixin, BaseEstimator):
    """An encoder, which remembers the columns that it was fitted with."""

    def _set_columns(self, statistics: TableStatistics) -> list[str]:
        """Set `n_features_in_` and `feature_names_in_`; refuse a table without columns or rows."""
        names = [column.name for column in statistics.columns]
        if not names:
            raise ValueError(f"0 feature(s) (shape=({statistics.n_rows}, 0)) while a minimum of 1 is required.")
        if not statistics.weight:
            raise ValueError(
                f"none of {statistics.n_rows} rows has a positive weight: pass rows, or a "
                "sample_weight that is not zero everywhere"
            )
        self.n_features_in_ = len(names)
        self.__dict__.pop("feature_names_in_", None)
        if statistics.named:
            self.feature_names_in_ = np.array(names, dtype=object)
        return names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kinds = tags.input_tags
        kinds.string = kinds.categorical = kinds.sparse = True
        return tags


class TableEncoder(_ColumnEncoder):
    """Turn a table of mixed columns into a matrix of numbers.

    Numbers and dates (days since 1970) become (x − mean) / deviation, weighted; constant columns become 0. Booleans are
    0 and 1. Text and categories are one-hot, levels in sorted order. A level not seen in fit is read as the pooled
    level or, where there is none, as all zeros (in a binary column, which is written as one column, that is its first
    level). A missing number becomes the mean, with an indicator column if any was missing in fit; a missing level is a
    level of its own if seen in fit, otherwise an unknown one. A column without any value is left out, with a warning.

    Levels with less than `min_frequency` of the weight, and all but the `max_levels` most frequent, are pooled as
    "infrequent", except in the columns `keep`, the sensitive ones. `columns_` says how each column is written.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "min_frequency": [Interval(Real, 0, 1, closed="left")],
        "max_levels": [Interval(Integral, 1, None, closed="left")],
        "keep": [str, Integral, "array-like"],
    }

    def __init__(self, min_frequency: float = 0.002, *, max_levels: int = 1000, keep: Iterable[str | int] = ()) -> None:
        self.min_frequency = min_frequency
        self.max_levels = max_levels
        self.keep = keep

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Learn means, deviations and levels of `X`, of shape (n, d); `y` is ignored."""
        return self.finish(table_statistics(X, sample_weight))

    def finish(self, statistics: TableStatistics) -> Self:
        """Become fitted from the (summed) `table_statistics` of the rows."""
        self._validate_params()
        names = self._set_columns(statistics)
        whole = set(resolve_columns(self.keep, names, len(names)))
        self.columns_ = tuple(
            self._code(column, statistics.weight, j in whole) for j, column in enumerate(statistics.columns)
        )
        self.n_features_out_ = sum(len(code.outputs("")) for code in self.columns_)
        if not self.n_features_out_:
            raise ValueError(f"no column of {names} has a value in any row of positive weight")
        return self

    def transform(self, X: Any) -> Any:
        """Return the encoded rows, C-ordered of shape (n, n_features_out_)."""
        check_is_fitted(self)
        table = frames.as_table(X)
        validate_data(self, table, reset=False, skip_check_array=True)
        return self.encode(table)

    def encode(self, X: Any) -> Array:
        """Return the encoded rows of a table whose columns are known to be those of fit."""
        table = frames.as_table(X)
        out = np.zeros((frames.n_rows(table), self.n_features_out_))
        stop = 0
        for column, code in zip(frames.columns(table), self.columns_, strict=True):
            start, stop = stop, stop + len(code.outputs(""))
            code.write(column.expect(code.kind), out[:, start:stop])
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns out: age, age_missing, race_White, race_infrequent."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        # A level may itself be called "missing", or the column "a_b" meet level "b" of column "a".
        shown: dict[str, None] = {}
        for code, name in zip(self.columns_, names, strict=True):
            for output in code.outputs(name):
                while output in shown:
                    output += "_"  # noqa: PLW2901
                shown[output] = None
        return np.array(list(shown), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _code(self, column: ColumnStatistics, total: float, keep: bool) -> NumberCode | LevelCode:
        if not (column.spread.weight or any(column.levels.values())):
            message = f"column {column.name!r} has no value in any row of positive weight: left out"
            warnings.warn(message, stacklevel=2)
            return LevelCode(column.name, (), (), "default", "empty")
        rule: MissingRule = "column" if column.missing else "default"
        if column.kind == "categorical":
            return self._level_code(column, total, keep, rule)
        spread = column.spread
        if column.kind == "boolean":
            return NumberCode(column.name, column.kind, 0.0, 1.0, spread.mean, rule)
        if not math.isfinite(spread.scatter):
            what = f"column {column.name!r} is too large to square"
            raise InputError(what, "rescale it", column=column.name)
        deviation = math.sqrt(spread.scatter / spread.weight)
        # Exactly 0 for a constant column, being measured from one of its values.
        return NumberCode(column.name, column.kind, spread.mean, deviation or 1.0, 0.0, rule)

    def _level_code(self, column: ColumnStatistics, total: float, keep: bool, rule: MissingRule) -> LevelCode:
        share = {level: w / total for level, w in column.levels.items() if w > 0}
        levels = sorted(share) if keep else self._frequent(share)
        pooled = tuple(sorted(share.keys() - set(levels)))
        if not levels and rule != "column":
            raise UselessColumnError(
                f"column {column.name!r} has {len(share)} levels, each in less than "
                f"{self.min_frequency:.1%} of the rows: it looks like an identifier",
                "drop it, group its levels, or convert it if it holds numbers or dates",
                column=column.name,
            )
        return LevelCode(column.name, tuple(levels), pooled, rule)

    def _frequent(self, share: dict[str, float]) -> list[str]:
        # Rounded, so that the order in which chunks were summed cannot decide a tie.
        rounded = {level: round(value, 12) for level, value in share.items()}
        least = self.min_frequency * (1 - 1e-9)
        frequent = [level for level, value in rounded.items() if value >= least]
        by_weight = sorted(frequent, key=lambda level: (-rounded[level], level))
        return sorted(by_weight[: self.max_levels])


class SensitiveEncoder(_ColumnEncoder):
    """Turn sensitive attributes into numbers: numbers as given, categories as integer codes.

    Text, categories and booleans are replaced by the position of their level among the sorted
    levels. Nothing is pooled, scaled or filled in: missing, infinite, constant or unknown values
    are a ValueError, because each would quietly leave rows or attributes unprotected. Fitted:
    `names_` of the columns, `categorical_` (which are codes) and `levels_` of each such name.
    """

    role = "sensitive"
    """What the columns are, in error messages."""

    def fit(self, s: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Learn the levels of `s`, of shape (n,) or (n, p); `y` is ignored."""
        return self.finish(sensitive_statistics(s, sample_weight))

    def _called(self, statistics: TableStatistics, j: int) -> str:
        return f"{self.role} column {statistics.columns[j].name!r}"

    def finish(self, statistics: TableStatistics) -> Self:
        """Become fitted from the (summed) `sensitive_statistics` of the rows."""
        self.names_ = self._set_columns(statistics)
        self.check_present(statistics)
        for j, column in enumerate(statistics.columns):
            levels = [level for level, weight in column.levels.items() if weight > 0]
            if len(levels) == 1 or column.spread.low == column.spread.high:
                low = bool(column.spread.low) if column.kind == "boolean" else column.spread.low
                what = f"{self._called(statistics, j)} is {levels[0] if levels else low!r} in"
                raise UselessColumnError(
                    f"{what} every row of positive weight, so nothing can depend on it", "drop it", column=column.name
                )
        self.kinds_ = [column.kind for column in statistics.columns]
        self.categorical_ = np.array([kind in ("categorical", "boolean") for kind in self.kinds_])
        self.levels_ = {
            c.name: tuple(sorted(c.levels)) if c.kind == "categorical" else ("False", "True")
            for c in statistics.columns
            if c.kind in ("categorical", "boolean")
        }
        return self

    @classmethod
    def check_present(cls, statistics: TableStatistics) -> None:
        """Raise ValueError if values are missing; in a stream chunk by chunk, to name where."""
        for column in statistics.columns:
            if column.n_missing:
                raise missing_values(cls.role, column.name, column.kind, column.n_missing)

    def transform(self, s: Any) -> Any:
        """Return the rows of numbers and codes, float64 of shape (n, p)."""
        check_is_fitted(self)
        return self.encode(s)

    def encode(self, s: Any) -> Array:
        """Return the same, of an encoder that is known to be fitted."""
        table = frames.as_table(s, one_column=True)
        names = frames.column_names(table) or self.names_
        if table.shape[1] != self.n_features_in_ or names != self.names_:
            given = names if table.shape[1] == len(names) else table.shape[1]
            raise InputError(
                f"{self.role} columns {given}: expected {self.names_}, as in fit",
                "pass the same columns in the same order",
            )
        out = np.empty(table.shape)
        for j, column in enumerate(frames.columns(table, "s")):
            out[:, j] = self._numbers(replace(column, name=self.names_[j]), self.kinds_[j])
        return out

    def _numbers(self, column: Column, kind: Kind) -> Array:
        column = column.expect(kind)
        if kind == "categorical":
            codes, present = column.codes()
            absent = codes < 0
        else:
            x = column.floats(largest=LARGEST)
            absent = np.isnan(x)
        if absent.any():
            self._check_absent(column.name, kind, int(absent.sum()))
        if kind != "categorical":
            return x
        position = {level: i for i, level in enumerate(self.levels_[column.name])}
        if strange := [level for level in present if level not in position]:
            shown = ", ".join([*position][:10]) + ", ..." * (len(position) > 10)
            raise InputError(
                f"column {column.name!r} has the value {strange[0]!r}, which was not seen in fit; "
                f"expected one of {shown}",
                "correct it, or fit on rows that have it",
                column=column.name,
            )
        # The last one is that of code −1, a missing value.
        return np.array([*(position[level] for level in present), np.nan])[codes]

    def _check_absent(self, name: str, kind: Kind, count: int) -> None:
        raise missing_values(self.role, name, kind, count)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Return the names of the columns."""
        check_is_fitted(self)
        return np.array(self.names_, dtype=object)

    def group_names(self, rows: Array, columns: Any) -> list[str]:
        """Return names such as "sex=F & race=White" of rows of numbers and codes."""
        names = [self.names_[column] for column in columns]
        levels = [self.levels_.get(name) for name in names]
        return [
            " & ".join(
                f"{name}={value:g}" if known is None else f"{name}={known[int(value)]}"
                for name, known, value in zip(names, levels, row, strict=True)
            )
            for row in rows
        ]


class ControlEncoder(SensitiveEncoder):
    """The same for control features, the legitimate factors that parity is conditional on."""

    role = "control"


def numbers_or_codes(columns: Iterable[ColumnStatistics], n_rows: int) -> str:
    """Return a warning about whole numbers with few levels, but more than 2: they may be codes."""
    codes = {column.name: len(column.codes or ()) for column in columns if column.whole}
    few = {n: k for n, k in codes.items() if k > 2 and k * MIN_ROWS_PER_CODE <= n_rows}
    if not few:
        return ""
    names = ", ".join(f"{name!r} ({count} levels)" for name, count in few.items())
    return (
        f"sensitive column{'s' * (len(few) > 1)} {names}: whole numbers, taken as numbers, not as "
        f"groups; {NUMBERS_OR_CODES} Convert codes of groups to text or categories, as by "
        "astype(str), and numbers to floats, as by astype(float)"
    )


@contextmanager
def asked_before() -> Iterator[None]:
    """Silence `numbers_or_codes` for attributes that the same call has warned of already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{re.escape(NUMBERS_OR_CODES)}")
        yield
