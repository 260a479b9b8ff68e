"""Mixed columns to a matrix of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from scalefair.data.encoding._codes import (
    ColumnEncoder,
    LevelCode,
    MissingRule,
    NumberCode,
    refuse_missing,
)
from scalefair.data.encoding._statistics import ColumnStatistics, TableStatistics, table_statistics
from scalefair.data.frames import as_table, columns, n_rows, resolve_columns
from scalefair.errors import UselessColumnError


class TableEncoder(ColumnEncoder):
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
        self._set_columns(statistics)
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
            raise UselessColumnError(
                f"column {column.name!r} has no value in any row of positive weight",
                "drop it",
                column=column.name,
            )
        if self.missing == "error":
            refuse_missing(column.name, column.n_missing)
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
            raise UselessColumnError(
                f"column {column.name!r} has {len(share)} levels and none reaches "
                f"min_frequency={self.min_frequency}: it looks like an identifier",
                "drop it, lower min_frequency, or name it in keep",
                column=column.name,
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
