"""What held-out rows tell: means and decisions by group, the share between groups, independence."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from scalefair._typing import Array
from scalefair.auditing import audit
from scalefair.data import frames
from scalefair.errors import CannotJudgeError
from scalefair.features.mixed import all_columns
from scalefair.measures.bounds import ERROR_ROWS, ShareDistribution, share_distributions
from scalefair.measures.group_metrics import Mean, Rate
from scalefair.measures.group_rows import Crossing as Groups
from scalefair.measures.group_rows import cross
from scalefair.moments import Moments

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Groups", "Interval", "between_share", "cross", "decision_table", "group_table"]

LEVEL = 0.95
"""Of all intervals of the page."""

MEASURES = (
    "hsic_pvalue", "conditional_hsic_pvalue", "normalized_hsic", "distance_correlation",
    "mutual_information",
)  # fmt: skip
"""Measures of dependence on the page; 0 means independent for all but p-values."""

ALONE = ("hsic_pvalue", "normalized_hsic")
"""Those that are shown for each attribute alone, where there are several."""

MIN_TESTED = 20
"""Rows that a test of independence takes at least."""


class Interval(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def group_table(groups: Groups, y: Array, before: Array, after: Array) -> pd.DataFrame:
    """Return counts, mean target and mean predictions of every group, the largest first.

    The ends `_low` and `_high` are of 95 % intervals (Student's t; NaN for one row).
    """
    columns: dict[str, Any] = {"target": _means(groups, y)}
    for name, values in (("before", before), ("after", after)):
        mean = _means(groups, values)
        variance = _means(groups, (values - mean[groups.codes]) ** 2)
        columns |= _with_ends(name, Mean(groups.counts.astype(np.float64), mean, variance))
    return _by_size(groups, columns)


def decision_table(groups: Groups, before: Array, after: Array, cut: float) -> pd.DataFrame:
    """Return the share of predictions from `cut` on in every group, the largest first.

    The ends `_low` and `_high` are of Wilson's 95 % intervals.
    """
    columns: dict[str, Any] = {}
    for name, values in (("before", before), ("after", after)):
        share = _means(groups, (values >= cut).astype(np.float64))
        columns |= _with_ends(name, Rate(groups.counts.astype(np.float64), share))
    return _by_size(groups, columns)


def _means(groups: Groups, values: Array) -> Array:
    return np.bincount(groups.codes, values, len(groups.names)) / groups.counts


def _with_ends(name: str, estimate: Mean | Rate) -> dict[str, Array]:
    low, high = estimate.interval(LEVEL)
    return {name: estimate.value, f"{name}_low": low, f"{name}_high": high}


def _by_size(groups: Groups, columns: dict[str, Any]) -> pd.DataFrame:
    table = frames.make_frame({"group": groups.names, "rows": groups.counts, **columns})
    return table.sort_values("rows", ascending=False, kind="stable").reset_index(drop=True)


def normal_interval(value: float, error: float) -> Interval:
    """Return value ± 1.96 standard errors."""
    half = float(ndtri(0.5 + LEVEL / 2)) * error
    return Interval(value, value - half, value + half)


def between_share(groups: Groups, f: Array) -> Interval:
    """Share of the variance of f that lies between the groups, corrected for chance.

    NaN for a constant f, and where every row is a group of its own.
    """
    found, level = distribution_of_share(groups, f), 0.5 + LEVEL / 2
    if found is None:
        return Interval(np.nan, np.nan, np.nan)
    value = max(float(found.share[0]), 0.0)
    return Interval(value, min(value, found.lower(level)[0]), max(value, found.upper(level)[0]))


def distribution_of_share(groups: Groups, f: Array) -> ShareDistribution | None:
    """Sampling distribution of the share between the groups; None where it is undefined."""
    n, p = len(f), groups.counts / len(f)
    if len(p) >= n:
        return None
    cross = p * (_means(groups, f) - f.mean())
    scatter = n * np.block([
        [np.atleast_2d(f.var()), cross[None]],
        [cross[:, None], np.diag(p) - np.outer(p, p)],
    ])  # fmt: skip
    mean = np.append(f.mean(), p)
    moments = Moments(
        {"phi": 1, "psi": len(p)}, n, float(n), mean, np.zeros_like(mean), scatter,
        squared_weight=float(n), units={"psi": all_columns("groups", len(p))},
    )  # fmt: skip
    at = np.linspace(0, n - 1, min(n, ERROR_ROWS)).astype(np.int64)
    rows = {"phi": f[at, None], "psi": np.eye(len(p))[groups.codes[at]]}
    (found,) = share_distributions(moments, rows, np.ones(len(at)))
    return None if np.isnan(found.share[0]) else found


def independence(before: Array, after: Array, sensitive: Any, y: Array) -> tuple[Any, str]:
    """Test whether predictions depend on the sensitive attributes, alone and together.

    Return a frame of attribute, measure, before, after and rows used, a missing attribute being a
    level; or None and the reason why there is no table.
    """
    measures = list(MEASURES) if len(y) >= MIN_TESTED else list(MEASURES[2:4])
    if y.min() == y.max() and "conditional_hsic_pvalue" in measures:
        measures.remove("conditional_hsic_pvalue")
    models = {"before": before, "after": after}
    options: dict[str, Any] = {"measures": measures, "y_true": y, "missing": "group"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = audit(models, sensitive_features=sensitive, **options)
    except CannotJudgeError as error:
        return None, str(error)
    return _before_beside_after(result.table), ""


def _before_beside_after(table: pd.DataFrame) -> pd.DataFrame:
    """Return the two models side by side, all attributes together first, then each alone."""
    *single, together = dict.fromkeys(table["attribute"])
    shown = [(together, measure) for measure in MEASURES]
    shown += [(name, measure) for name in reversed(single) for measure in ALONE]
    columns: dict[str, list[Any]] = {
        name: [] for name in ("attribute", "measure", "before", "after", "rows")
    }
    for attribute, measure in shown:
        pair = table[(table["attribute"] == attribute) & (table["measure"] == measure)]
        if len(pair):
            by = pair.set_index("model")
            values = (float(by.loc[model, "value"]) for model in ("before", "after"))
            row = (attribute, measure, *values, int(by["rows"].iloc[0]))
            for name, cell in zip(columns, row, strict=True):
                columns[name].append(cell)
    return frames.make_frame(columns)
