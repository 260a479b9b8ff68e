"""Sensitive attributes to numbers and codes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from scalefair._typing import Array
from scalefair.data.encoding._codes import ColumnEncoder, unknown_level
from scalefair.data.encoding._statistics import (
    ColumnStatistics,
    TableStatistics,
    sensitive_statistics,
)
from scalefair.data.frames import Column, Kind, as_table, column_names, columns
from scalefair.errors import UselessColumnError

MIN_ROWS_PER_CODE = 10
"""Whole numbers that fewer rows share, on average, are hardly codes of groups."""

NUMBERS_OR_CODES = "numbers or codes?"


class SensitiveEncoder(ColumnEncoder):
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

    role = "sensitive"
    """What the columns are, in error messages."""

    def fit(self, s: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Learn the levels of `s`, of shape (n,) or (n, p); `y` is ignored."""
        return self.finish(sensitive_statistics(s, sample_weight))

    def finish(self, statistics: TableStatistics) -> Self:
        """Become fitted from the (summed) `sensitive_statistics` of the rows."""
        self._set_columns(statistics)
        self.check_present(statistics)
        for column in statistics.columns:
            _check_column(column, self.role)
        self.names_ = statistics.names
        self.kinds_ = [column.kind for column in statistics.columns]
        self.categorical_ = np.array([kind in ("categorical", "boolean") for kind in self.kinds_])
        self.levels_ = {
            c.name: tuple(sorted(c.levels)) if c.kind == "categorical" else ("False", "True")
            for c, categorical in zip(statistics.columns, self.categorical_, strict=True)
            if categorical
        }
        return self

    @classmethod
    def check_present(cls, statistics: TableStatistics) -> None:
        """Raise ValueError if values are missing; in a stream chunk by chunk, to name where."""
        for column in statistics.columns:
            _check_missing(cls.role, column.name, column.kind, column.n_missing)

    def transform(self, s: Any) -> Any:
        """Return the rows of numbers and codes, float64 of shape (n, p)."""
        check_is_fitted(self)
        table = as_table(s, one_column=True)
        names = column_names(table) or self.names_
        if table.shape[1] != self.n_features_in_ or names != self.names_:
            raise ValueError(
                f"{self.role} columns {names if table.shape[1] == len(names) else table.shape[1]}: "
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

    def group_names(self, rows: Array, columns: Any) -> list[str]:
        """Return names such as "sex=F & race=White" of rows of numbers and codes."""
        names = [self.names_[column] for column in columns]
        return [
            " & ".join(f"{name}={self._level(name, value)}" for name, value in parts)
            for parts in (zip(names, row, strict=True) for row in rows)
        ]

    def _level(self, name: str, value: float) -> str:
        levels = self.levels_.get(name)
        return f"{value:g}" if levels is None else levels[int(value)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _numbers(self, column: Column, name: str, kind: Kind) -> Array:
        column = replace(column, name=name).expect(kind)
        if kind != "categorical":
            x = column.finite()
            _check_missing(self.role, name, kind, int(np.isnan(x).sum()))
            return x
        codes, present = column.codes()
        _check_missing(self.role, name, kind, int((codes < 0).sum()))
        position = {level: i for i, level in enumerate(self.levels_[name])}
        if strange := [level for level in present if level not in position]:
            raise ValueError(unknown_level(name, strange[0], position))
        return np.array([position[level] for level in present], dtype=np.float64)[codes]


def numbers_or_codes(columns: Iterable[ColumnStatistics], n_rows: int) -> str:
    """Return a warning of whole numbers with so few levels that they may be codes; "" if none.

    Two levels are the same either way.
    """
    codes = {column.name: len(column.codes or ()) for column in columns}
    few = {n: k for n, k in codes.items() if k > 2 and k * MIN_ROWS_PER_CODE <= n_rows}
    if not few:
        return ""
    names = ", ".join(f"{name!r} ({count} levels)" for name, count in few.items())
    return (
        f"sensitive column{'s' * (len(few) > 1)} {names}: whole numbers, taken as numbers, not as "
        f"groups; {NUMBERS_OR_CODES} Convert codes of groups to text or categories, as by "
        "astype(str), and numbers to floats, as by astype(float)"
    )


def warn_of_codes(statistics: TableStatistics) -> None:
    """Warn of sensitive attributes that may be codes of groups, once for all columns."""
    if message := numbers_or_codes(statistics.columns, statistics.n_rows):
        warnings.warn(message, UserWarning, stacklevel=3)


@contextmanager
def asked_before() -> Iterator[None]:
    """Silence `warn_of_codes` for attributes that the same call has warned of already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{re.escape(NUMBERS_OR_CODES)}")
        yield


class ControlEncoder(SensitiveEncoder):
    """The same for control features, the legitimate factors that parity is conditional on."""

    role = "control"


def _check_column(column: ColumnStatistics, role: str) -> None:
    levels = [level for level, weight in column.levels.items() if weight > 0]
    low, high = column.spread.low, column.spread.high
    if column.kind == "boolean":
        low, high = bool(low), bool(high)
    if len(levels) == 1 or low == high:
        value = levels[0] if levels else low
        raise UselessColumnError(
            f"{role} column {column.name!r} is {value!r} in every row of positive weight, so "
            "nothing can depend on it",
            "drop it",
            column=column.name,
        )


def _check_missing(role: str, name: str, kind: Kind, count: int) -> None:
    if not count:
        return
    remedy = "give them a level of their own, such as 'unknown'"
    if kind != "categorical":
        remedy = "fill them in, leave the rows out, or bin the column with a level for missing"
    raise ValueError(f"{role} column {name!r} has {count} missing value(s) (NaN or null): {remedy}")
