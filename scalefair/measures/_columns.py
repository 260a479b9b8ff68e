"""What each variable of a measure holds, and what no measure can judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair import _frames
from scalefair._typing import Array
from scalefair.encoding import (
    ColumnStatistics,
    Groups,
    SensitiveEncoder,
    TableStatistics,
    sensitive_statistics,
    warn_of_codes,
)

MOST_GROUPS = 1000
"""Combinations of categories beyond which groups are too small, or the column an identifier."""


class UndefinedError(ValueError):
    """A measure that these rows do not define, though others may be defined."""


class TooFineError(ValueError):
    """Categories, or combinations of them, that too few rows share to say anything."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What a pass tells of one variable; `+` joins what different chunks tell.

    Parameters
    ----------
    name : str
        Of the argument, for errors.
    columns : TableStatistics
        Of its columns.
    groups : Groups
        Its combinations of categories.
    """

    name: str
    columns: TableStatistics
    groups: Groups

    @classmethod
    def of(cls, name: str, values: Any, weight: Array | None, *, every: bool) -> Facts:
        """Return the facts of some rows; `every`: numbers are categories, too."""
        try:
            columns = sensitive_statistics(values, weight)
            return cls(name, columns, Groups.of(_present(values, weight), every))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def __add__(self, other: Facts) -> Facts:
        return Facts(self.name, self.columns + other.columns, self.groups + other.groups)


def _present(values: Any, weight: Array | None) -> Any:
    """The rows that count."""
    if weight is None or (weight > 0).all():
        return values
    return _frames.take_rows(values, np.flatnonzero(weight > 0))


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of a measure, known well enough to turn its rows into numbers.

    Parameters
    ----------
    name : str
        Of the argument, for errors.
    encoder : SensitiveEncoder
        Numbers as given, categories as codes.
    groups : array of shape (g, p) or None
        Numbers and codes of one row for each combination of categories.
    span : array of shape (2, p)
        The least and the largest number of each column that is not categorical.
    """

    name: str
    encoder: SensitiveEncoder
    groups: Array | None
    span: Array

    @classmethod
    def learnt(cls, facts: Facts, *, sensitive: bool = False) -> Variable:
        """Return the variable, or say why it cannot be judged; `sensitive`: codes are warned of."""
        for column in facts.columns.columns:
            _check_column(facts.name, column, facts.columns)
        encoder = SensitiveEncoder().finish(facts.columns)
        if sensitive and not facts.groups.every:
            warn_of_codes(facts.columns)
        groups = None
        if facts.groups.rows is not None:
            groups = np.asarray(encoder.transform(facts.groups.rows))
            _check_groups(facts, encoder, len(groups))
        spreads = [column.spread for column in facts.columns.columns]
        span = np.array([[spread.low for spread in spreads], [spread.high for spread in spreads]])
        return cls(facts.name, encoder, groups, span)

    @property
    def categorical(self) -> NDArray[np.bool_]:
        """Which columns are codes."""
        return np.asarray(self.encoder.categorical_)

    def numbers(self, values: Any) -> Array:
        """Return rows as numbers and codes, of shape (k, p)."""
        try:
            return np.asarray(self.encoder.transform(values))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def is_flat(self, rows: Array) -> NDArray[np.bool_]:
        """Say which numbers are the same in all of some rows, of shape (p,)."""
        return np.asarray(~self.categorical & (rows == rows[:1]).all(axis=0))

    def ends(self, rows: Array) -> Array:
        """Return the first row twice, with the ends of the span of the numbers that are flat."""
        flat = self.is_flat(rows)
        return np.where(flat, self.span, rows[:1])

    def check_numeric(self) -> None:
        """Complain of text and dates, in an argument that must be numbers."""
        words = {"categorical": "text", "datetime": "dates"}
        for kind, column in zip(self.encoder.kinds_, self.encoder.names_, strict=True):
            if kind in words:
                raise ValueError(
                    f"{self.name}: column {column!r} is {words[kind]}; expected predictions as "
                    "numbers: pass scores or probabilities, or code the classes as numbers such as "
                    "0 and 1"
                )


def _check_column(name: str, column: ColumnStatistics, table: TableStatistics) -> None:
    which = f"column {column.name!r} " if len(table.columns) > 1 or table.named else ""
    if column.n_missing:
        raise ValueError(
            f"{name}: {which}has {column.n_missing} missing value(s) (NaN or null); fill them in, "
            "leave those rows out, or give missing categories a level such as 'unknown'"
        )
    levels = [level for level, weight in column.levels.items() if weight > 0]
    if len(levels) == 1 or column.spread.low == column.spread.high:
        value = repr(levels[0]) if levels else f"{column.spread.low:g}"
        raise UndefinedError(
            f"{name}: {which}is constant ({value} in every row that counts), so that its "
            "dependence on anything is undefined, not 0; leave it out"
        )


def _check_groups(facts: Facts, encoder: SensitiveEncoder, count: int) -> None:
    found = [n for n, c in zip(encoder.names_, encoder.categorical_, strict=True) if c]
    text = f"{facts.name}: the categories of {', '.join(found) or 'its columns'}"
    if count > MOST_GROUPS:
        raise TooFineError(
            f"{text} have {count:,} levels or combinations, at most {MOST_GROUPS:,} can be judged; "
            "merge rare levels, leave identifiers out, or pass numbers as numbers"
        )
    n_rows = facts.columns.n_rows
    if count >= n_rows:
        raise TooFineError(
            f"{text} are different in each of {n_rows:,} rows, so that nothing can be said of "
            "groups; merge rare levels, leave identifiers out, or pass numbers as numbers"
        )
