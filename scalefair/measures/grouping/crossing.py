"""The intersections of sensitive attributes that occur among some rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair import _frames
from scalefair._typing import Array

MISSING = "missing"
_FEW = 8
_QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Groups:
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


def cross(sensitive: Any) -> Groups:
    """Return the intersections of all columns of a frame, Series or array.

    Categories and numbers with at most eight values keep their values; other numbers are cut at
    their quartiles. A missing value is a level of its own.
    """
    table = _frames.as_table(sensitive, one_column=True)
    columns = _frames.columns(table, prefix="s")
    codes = np.zeros(_frames.n_rows(table), dtype=np.int64)
    names, cut = [""], []
    for column in columns:
        level_codes, levels, was_cut = _levels(column)
        both = codes * len(levels) + level_codes
        found, codes = np.unique(both, return_inverse=True)
        names = [_join(names[f // len(levels)], levels[f % len(levels)]) for f in found]
        cut += [column.name] * was_cut
    return Groups(names, codes.astype(np.int64), cut)


def _levels(column: _frames.Column) -> tuple[NDArray[np.int64], list[str], bool]:
    """Codes, levels, and whether the column was cut; the last level is that of missing values."""
    cut = False
    if column.kind == "categorical":
        codes, levels = column.codes()
    else:
        x = column.floats()
        values = np.unique(x[~np.isnan(x)])
        cut = len(values) > _FEW
        inner, ranges = _quarters(x) if cut else (values[:-1], [f"{v:g}" for v in values])
        codes = np.where(np.isnan(x), -1, np.searchsorted(inner, x, side="left"))
        levels = [f"{column.name} {level}" for level in ranges]
    missing = f"{column.name} {MISSING}"
    return np.where(codes < 0, len(levels), codes), [*levels, missing], cut


def _quarters(x: Array) -> tuple[Array, list[str]]:
    """Return the quartiles, and the ranges between them in words."""
    edges = np.unique(np.nanquantile(x, _QUARTERS))
    middle = [f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)]
    return edges, [f"up to {edges[0]:.4g}", *middle, f"above {edges[-1]:.4g}"]


def _join(first: str, second: str) -> str:
    return f"{first}, {second}" if first else second
