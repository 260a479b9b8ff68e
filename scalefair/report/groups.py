"""The groups of the sensitive attributes: who is in them, what is predicted for them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from scalefair import _frames
from scalefair._typing import Array

if TYPE_CHECKING:
    import pandas as pd

MISSING = "missing"
_FEW = 8
_QUARTERS = (0.25, 0.5, 0.75)
_TAIL = 0.975


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
    """Return the intersections of all columns of a frame.

    Categories and numbers with at most eight values keep their values; other numbers are cut at
    their quartiles. A missing value is a level of its own.
    """
    columns = _frames.columns(sensitive, prefix="s")
    codes = np.zeros(_frames.n_rows(sensitive), dtype=np.int64)
    names, cut = [""], []
    for column in columns:
        level_codes, levels, was_cut = _levels(column)
        both = codes * len(levels) + level_codes
        found, codes = np.unique(both, return_inverse=True)
        names = [_join(names[f // len(levels)], levels[f % len(levels)]) for f in found]
        cut += [column.name] * was_cut
    return Groups(names, codes.astype(np.int64), cut)


def group_table(groups: Groups, y: Array, before: Array, after: Array) -> pd.DataFrame:
    """Return counts, mean target and mean predictions of every group, the largest first.

    Returns
    -------
    DataFrame
        Columns group, rows, target, and before, before_low, before_high, after, after_low,
        after_high: the mean prediction with its 95 % interval (Student's t; NaN for one row).
    """
    counts = groups.counts
    table: dict[str, Any] = {"group": groups.names, "rows": counts, "target": _means(groups, y)}
    for name, values in (("before", before), ("after", after)):
        mean, half = _interval(groups, values)
        table |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    order = np.argsort(-counts, kind="stable")
    return _frames.make_frame(table).iloc[order].reset_index(drop=True)


class Share(NamedTuple):
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


def between_share(groups: Groups, f: Array) -> Share:
    """Share of the variance of f that lies between the groups, corrected for chance.

        r = Σ_g p_g (m_g − m)² / Var f,    share = (r − t) / (1 − t),    t = (G − 1) / (n − 1)

    The interval is normal, from the influence function of r; its variance is increased by
    2(G − 1)/n², the variance of r where the groups do not differ and the influence vanishes.
    NaN for a constant f, and where every row is a group of its own.
    """
    n, n_groups = len(f), len(groups.names)
    centred = f - f.mean()
    variance = float(np.mean(centred**2))
    if variance <= 1e-28 * float(np.mean(f**2)) or n_groups >= n:
        return Share(np.nan, np.nan, np.nan)
    mean = _means(groups, centred)[groups.codes]
    r = float(np.mean(mean**2)) / variance
    influence = (2 * mean * centred - mean**2 - r * centred**2) / variance
    error = float(np.sqrt(np.mean(influence**2) / n + 2 * (n_groups - 1) / n**2))
    chance = (n_groups - 1) / (n - 1)
    half = float(ndtri(_TAIL)) * error
    value, low, high = ((edge - chance) / (1 - chance) for edge in (r, r - half, r + half))
    return Share(max(value, 0.0), max(low, 0.0), min(max(high, 0.0), 1.0))


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


def _means(groups: Groups, values: Array) -> Array:
    return np.bincount(groups.codes, values, len(groups.names)) / groups.counts


def _interval(groups: Groups, values: Array) -> tuple[Array, Array]:
    """Mean and half the width of its 95 % interval, by group."""
    counts, mean = groups.counts, _means(groups, values)
    squares = np.bincount(groups.codes, (values - mean[groups.codes]) ** 2, len(counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(squares / (counts - 1) / counts)
        return mean, np.where(counts > 1, stdtrit(counts - 1.0, _TAIL) * error, np.nan)
