"""Sensitive attributes as levels of groups, or as numbers that have no groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._frames import Column, Kind
from scalefair._typing import Array
from scalefair.data import Survey
from scalefair.data.survey import Values
from scalefair.encoding import ColumnStatistics

MAX_LEVELS = 1000
"""A category with more levels is an identifier: nobody can judge so many groups."""

MISSING = "(missing)"

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
        return self.kind == "categorical" or MISSING in self.levels

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
        lookup = [*(position.get(level, -1) for level in names), position.get(MISSING, -1)]
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
        raise ValueError(f"sensitive column {name!r} is missing in every row: drop it")
    _check_missing(column, missing)
    gap = [MISSING] * bool(column.n_missing and missing == "group")
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
        raise ValueError(
            f"sensitive column {name!r} is continuous and missing in {column.n_missing} rows, "
            "which missing='group' cannot make a group of; use missing='drop', or bins"
        )
    return Attribute(name, kind)


def _levels(column: ColumnStatistics, has_missing: bool) -> list[str]:
    name, levels = column.name, sorted(column.levels)
    if len(levels) > MAX_LEVELS:
        raise ValueError(
            f"sensitive column {name!r} has {len(levels)} levels, more than {MAX_LEVELS}: it looks "
            "like an identifier; merge its levels, or drop it"
        )
    if len(levels) == 1 and not has_missing:
        _check_varies(name, levels[0], levels[0], has_missing)
    return levels


def _check_varies(name: str, low: object, high: object, has_missing: bool) -> None:
    if low == high and not has_missing:
        raise ValueError(
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
