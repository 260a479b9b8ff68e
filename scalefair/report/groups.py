"""The groups of the sensitive attributes: who is in them, what is predicted for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.measures.group_rows import Crossing as Groups
from scalefair.measures.group_rows import cross
from scalefair.penalties.share import corrected, share_of_variance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Groups", "Share", "between_share", "cross", "decision_table", "group_table"]

_TAIL = 0.975


def group_table(groups: Groups, y: Array, before: Array, after: Array) -> pd.DataFrame:
    """Return counts, mean target and mean predictions of every group, the largest first.

    Returns
    -------
    DataFrame
        Columns group, rows, target, and before, before_low, before_high, after, after_low,
        after_high: the mean prediction with its 95 % interval (Student's t; NaN for one row).
    """
    columns: dict[str, Any] = {"target": _means(groups, y)}
    for name, values in (("before", before), ("after", after)):
        mean, half = _interval(groups, values)
        columns |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return _by_size(groups, columns)


def _by_size(groups: Groups, columns: dict[str, Any]) -> pd.DataFrame:
    table = frames.make_frame({"group": groups.names, "rows": groups.counts, **columns})
    return table.sort_values("rows", ascending=False, kind="stable").reset_index(drop=True)


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
    value, error = share_and_error(groups, f)
    if np.isnan(value):
        return Share(np.nan, np.nan, np.nan)
    half = float(ndtri(_TAIL)) * error
    return Share(max(value, 0.0), max(value - half, 0.0), min(max(value + half, 0.0), 1.0))


def share_and_error(groups: Groups, f: Array) -> tuple[float, float]:
    """Share of :func:`between_share`, which may be below 0, and its standard error."""
    n, n_groups = len(f), len(groups.names)
    centred = f - f.mean()
    variance = float(np.mean(centred**2))
    mean = _means(groups, centred)[groups.codes]
    r = float(share_of_variance(np.mean(mean**2), variance, np.mean(f**2)))
    if np.isnan(r) or n_groups >= n:
        return np.nan, np.nan
    influence = (2 * mean * centred - mean**2 - r * centred**2) / variance
    error = float(np.sqrt(np.mean(influence**2) / n + 2 * (n_groups - 1) / n**2))
    chance = (n_groups - 1) / (n - 1)
    return float(corrected(r, chance)), error / (1 - chance)


def decision_table(groups: Groups, before: Array, after: Array, cut: float) -> pd.DataFrame:
    """Return the share of predictions from `cut` on in every group, the largest first.

    Returns
    -------
    DataFrame
        Columns group, rows, and before, before_low, before_high, after, after_low, after_high: the
        share with Wilson's 95 % interval.
    """
    columns: dict[str, Any] = {}
    for name, values in (("before", before), ("after", after)):
        share = _means(groups, (values >= cut).astype(np.float64))
        low, high = _wilson(share, groups.counts.astype(np.float64))
        columns |= {name: share, f"{name}_low": low, f"{name}_high": high}
    return _by_size(groups, columns)


def _wilson(share: Array, n: Array) -> tuple[Array, Array]:
    z = float(ndtri(_TAIL))
    middle = share + z**2 / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def _means(groups: Groups, values: Array) -> Array:
    return np.bincount(groups.codes, values, len(groups.names)) / groups.counts


def _interval(groups: Groups, values: Array) -> tuple[Array, Array]:
    """Mean and half the width of its 95 % interval, by group."""
    counts, mean = groups.counts, _means(groups, values)
    squares = np.bincount(groups.codes, (values - mean[groups.codes]) ** 2, len(counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(squares / (counts - 1) / counts)
        return mean, np.where(counts > 1, stdtrit(counts - 1.0, _TAIL) * error, np.nan)
