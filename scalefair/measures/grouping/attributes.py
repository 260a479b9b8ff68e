"""Sensitive attributes as levels of groups, or as numbers that have no groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.data import MAX_LEVELS_OF_NUMBERS, Survey, frames
from scalefair.data.columns import ColumnStatistics
from scalefair.data.frames import Column, Kind
from scalefair.data.survey import Values
from scalefair.errors import CannotJudgeError

MAX_LEVELS = 1000
"""A category with more levels is an identifier: nobody can judge so many groups."""

MISSING_LEVEL = "(missing)"

Missing = Literal["error", "group", "drop"]
"""What becomes of rows in which an attribute is missing."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """How a sensitive attribute is read.

    Parameters
    ----------
    name : str
        Its name.
    kind : str
        What its column holds.
    levels : tuple of str
        Names of its groups, in order; none for continuous numbers.
    numbers : array or None
        The values of the levels of numbers, or the edges between bins.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    numbers: Array | None = None

    @property
    def is_grouped(self) -> bool:
        """Whether it has groups."""
        return bool(self.levels)

    @property
    def is_coded(self) -> bool:
        """Whether measures of dependence take it for a category, not for numbers."""
        return self.kind == "categorical" or MISSING_LEVEL in self.levels

    def values(self, column: Column) -> Array:
        """Return numbers as they are, and levels as their position in alphabetic order.

        What is missing in a row that does not count becomes any number.
        """
        if not self.is_coded:
            return np.nan_to_num(column.floats())
        order = np.argsort(np.array(self.levels, dtype=object))
        return np.argsort(order).astype(np.float64)[self.codes(column)]

    def codes(self, column: Column) -> NDArray[np.int64]:
        """Return the position of the level of each row."""
        column = column.expect(self.kind)
        if self.numbers is not None:
            x = column.floats()
            codes = np.searchsorted(self.numbers, x, side="left").astype(np.int64)
            return np.where(np.isnan(x), len(self.levels) - 1, codes)
        codes, names = column.codes()
        position = {level: i for i, level in enumerate(self.levels)}
        # Where code -1 points, the last entry stands for missing values. A level that only rows of
        # weight 0 have is nowhere, and they do not matter.
        lookup = [*(position.get(level, -1) for level in names), position.get(MISSING_LEVEL, -1)]
        return np.array(lookup)[codes]


def read_attributes(
    survey: Survey, bins: Mapping[str, Sequence[float]] | None, missing: Missing
) -> tuple[Attribute, ...]:
    """Return how each attribute is read, or refuse those that cannot be judged."""
    bins = dict(bins or {})
    part = survey.parts["s"]
    names = part.columns.names
    if unknown := [name for name in bins if name not in names]:
        raise ValueError(
            f"bins names {unknown[0]!r}, which is not among the sensitive features "
            f"{', '.join(names)}; correct the name"
        )
    # As many values as rows are no levels, however few they are.
    most = survey.n_present // 2
    few = [None if v is None or len(v) > most else v for v in part.values]
    columns = zip(part.columns.columns, few, strict=True)
    return tuple(_read(column, v, bins.get(column.name), missing) for column, v in columns)


def _read(
    column: ColumnStatistics, few: Values, edges: Sequence[float] | None, missing: Missing
) -> Attribute:
    name, kind = column.name, column.kind
    if kind == "empty":
        raise CannotJudgeError(f"sensitive column {name!r} is missing in every row: drop it")
    _check_missing(column, missing)
    gap = [MISSING_LEVEL] * bool(column.n_missing and missing == "group")
    if kind == "categorical":
        if edges is not None:
            raise ValueError(f"bins[{name!r}]: the column holds categories, not numbers; drop it")
        return Attribute(name, kind, (*_levels(column, bool(gap)), *gap))
    _check_varies(name, column.spread.low, column.spread.high, bool(gap))
    if edges is not None:
        inner = _edges(name, edges)
        return Attribute(name, kind, (*_ranges(inner), *gap), inner)
    if few is not None:
        values = np.array(sorted(few))
        shown = [str(bool(v)) if kind == "boolean" else f"{v:.12g}" for v in values]
        return Attribute(name, kind, (*shown, *gap), values)
    if gap:
        raise CannotJudgeError(
            f"sensitive column {name!r} is continuous and missing in {column.n_missing} rows, "
            "which missing='group' cannot make a group of; use missing='drop', or bins"
        )
    return Attribute(name, kind)


def _levels(column: ColumnStatistics, has_missing: bool) -> list[str]:
    name, levels = column.name, sorted(column.levels)
    if len(levels) > MAX_LEVELS:
        raise CannotJudgeError(
            f"sensitive column {name!r} has {len(levels)} levels, more than {MAX_LEVELS}: it looks "
            "like an identifier; merge its levels, or drop it"
        )
    if len(levels) == 1 and not has_missing:
        _check_varies(name, levels[0], levels[0], has_missing)
    return levels


def _check_varies(name: str, low: object, high: object, has_missing: bool) -> None:
    if low == high and not has_missing:
        raise CannotJudgeError(
            f"sensitive column {name!r} is {low!r} in every row, so that nothing can depend on it: "
            "drop it"
        )


def _check_missing(column: ColumnStatistics, missing: Missing) -> None:
    if column.n_missing and missing == "error":
        raise ValueError(
            f"sensitive column {column.name!r} is missing in {column.n_missing} rows; say what "
            "that means: missing='group' makes them a group, missing='drop' leaves them out"
        )


def _edges(name: str, edges: Sequence[float]) -> Array:
    inner = np.asarray(edges, dtype=np.float64)
    if inner.ndim != 1 or not len(inner) or not (np.diff(inner) > 0).all():
        raise ValueError(
            f"bins[{name!r}]={edges!r}; expected increasing edges between the bins, such as [30, "
            "50]: up to 30, 30 to 50, above 50"
        )
    return inner


def _ranges(edges: Array) -> list[str]:
    middle = [f"{a:.6g} to {b:.6g}" for a, b in pairwise(edges)]
    return [f"up to {edges[0]:.6g}", *middle, f"above {edges[-1]:.6g}"]


@dataclass(frozen=True, eq=False)
class Crossing:
    """The intersections of the sensitive attributes that occur among some rows.

    Parameters
    ----------
    names : list of str
        One per group, such as "Female, White".
    codes : int array of shape (n,)
        The group of every row.
    cut : list of str
        Names of the numeric attributes that were cut at their quartiles.
    """

    names: list[str]
    codes: NDArray[np.int64]
    cut: list[str]

    @property
    def labels(self) -> list[str]:
        """The name of the group of every row."""
        return [self.names[code] for code in self.codes]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows per group."""
        return np.bincount(self.codes, minlength=len(self.names))


def cross(sensitive: Any) -> Crossing:
    """Return the intersections of all columns of a frame, Series or array.

    Categories and numbers with at most eight values keep their values; other numbers are cut at
    their quartiles. A missing value is a level of its own.
    """
    table = frames.as_table(sensitive, one_column=True)
    columns = frames.columns(table, prefix="s")
    codes = np.zeros(frames.n_rows(table), dtype=np.int64)
    names, cut = [""], []
    for column in columns:
        level_codes, levels, was_cut = _crossed_levels(column)
        both = codes * len(levels) + level_codes
        occurring, codes = np.unique(both, return_inverse=True)
        names = [_join(names[f // len(levels)], levels[f % len(levels)]) for f in occurring]
        cut += [column.name] * was_cut
    return Crossing(names, codes.astype(np.int64), cut)


def _crossed_levels(column: Column) -> tuple[NDArray[np.int64], list[str], bool]:
    """Codes, levels, and whether the column was cut; the last level is that of missing values."""
    cut = False
    if column.kind == "categorical":
        codes, levels = column.codes()
    else:
        x = column.floats()
        values = np.unique(x[~np.isnan(x)])
        cut = len(values) > MAX_LEVELS_OF_NUMBERS
        inner, ranges = _quarters(x) if cut else (values[:-1], [f"{v:g}" for v in values])
        codes = np.where(np.isnan(x), -1, np.searchsorted(inner, x, side="left"))
        levels = [f"{column.name} {level}" for level in ranges]
    missing = f"{column.name} missing"
    return np.where(codes < 0, len(levels), codes), [*levels, missing], cut


def _quarters(x: Array) -> tuple[Array, list[str]]:
    """Return the quartiles, and the ranges between them in words."""
    edges = np.unique(np.nanquantile(x, (0.25, 0.5, 0.75)))
    middle = [f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)]
    return edges, [f"up to {edges[0]:.4g}", *middle, f"above {edges[-1]:.4g}"]


def _join(first: str, second: str) -> str:
    return f"{first}, {second}" if first else second
