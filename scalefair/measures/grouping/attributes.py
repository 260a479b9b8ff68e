"""Sensitive attributes as levels of groups, or as numbers that have no groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scalefair._frames import Column, Kind
from scalefair._typing import Array
from scalefair.errors import CannotJudgeError
from scalefair.measures.grouping.survey import AttributeStatistics, Missing, Survey

MAX_LEVELS = 1000
"""A category with more levels is an identifier: nobody can judge so many groups."""

MISSING = "(missing)"


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

    def codes(self, column: Column) -> NDArray[np.int64]:
        """Return the position of the level of each row."""
        column = column.expect(self.kind)
        if self.numbers is not None:
            x = column.floats()
            codes = np.searchsorted(self.numbers, x, side="left").astype(np.int64)
            return np.where(np.isnan(x), len(self.levels) - 1, codes)
        codes, found = column.codes()
        place = {level: i for i, level in enumerate(self.levels)}
        # Where code -1 points, the last entry stands for missing values. A level that only rows of
        # weight 0 have is nowhere, and they do not matter.
        lookup = np.array([*(place.get(level, -1) for level in found), place.get(MISSING, -1)])
        return lookup[codes]


def read_attributes(
    survey: Survey, bins: Mapping[str, Sequence[float]] | None, missing: Missing
) -> tuple[Attribute, ...]:
    """Return how each attribute is read, or refuse those that cannot be judged."""
    bins = dict(bins or {})
    names = [statistics.column.name for statistics in survey.attributes]
    if unknown := [name for name in bins if name not in names]:
        raise ValueError(
            f"bins names {unknown[0]!r}, which is not among the sensitive features "
            f"{', '.join(names)}; correct the name"
        )
    # As many values as rows are no levels, however few they are.
    most = survey.n_kept // 2
    return tuple(_read(a, bins.get(a.column.name), missing, most) for a in survey.attributes)


def _read(
    a: AttributeStatistics, edges: Sequence[float] | None, missing: Missing, most: int
) -> Attribute:
    name, kind = a.column.name, a.column.kind
    if kind == "empty":
        raise CannotJudgeError(f"sensitive column {name!r} is missing in every row: drop it")
    _check_missing(a, missing)
    gap = [MISSING] * bool(a.column.n_missing and missing == "group")
    if kind == "categorical":
        if edges is not None:
            raise ValueError(f"bins[{name!r}]: the column holds categories, not numbers; drop it")
        return Attribute(name, kind, (*_levels(a, bool(gap)), *gap))
    _check_varies(name, a.column.spread.low, a.column.spread.high, bool(gap))
    if edges is not None:
        inner = _edges(name, edges)
        return Attribute(name, kind, (*_ranges(inner), *gap), inner)
    if a.values is not None and len(a.values) <= most:
        values = np.array(sorted(a.values))
        shown = [str(bool(v)) if kind == "boolean" else f"{v:.12g}" for v in values]
        return Attribute(name, kind, (*shown, *gap), values)
    if gap:
        raise CannotJudgeError(
            f"sensitive column {name!r} is continuous and missing in {a.column.n_missing} rows, "
            "which missing='group' cannot make a group of; use missing='drop', or bins"
        )
    return Attribute(name, kind)


def _levels(a: AttributeStatistics, has_missing: bool) -> list[str]:
    name, levels = a.column.name, sorted(a.column.levels)
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


def _check_missing(a: AttributeStatistics, missing: Missing) -> None:
    if a.column.n_missing and missing == "error":
        raise ValueError(
            f"sensitive column {a.column.name!r} is missing in {a.column.n_missing} rows; say what "
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
