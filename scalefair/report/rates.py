"""Tables of groups: distributions, calibration, and the impact ratios of Local Law 144."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalefair._typing import Array
from scalefair.errors import CannotJudgeError
from scalefair.measures import group_gaps

LEVEL = 0.95  # Of all intervals of the page
RANGES = (0.2, 0.4, 0.6, 0.8)  # Edges between ranges of probabilities
N_BARS = 24  # Bars of the picture of a distribution


class Distribution(NamedTuple):
    """Shares of the rows of a group in ranges of equal width; the first and the last include all beyond."""

    attribute: str
    group: str
    low: float
    high: float
    shares: tuple[float, ...]


def distributions(
    f: Any, table: Any, bins: Mapping[str, Sequence[float]], low: float, high: float, *, weight: Any = None
) -> list[Distribution]:
    """Return how predictions, the last column of `table`, are distributed by group and by all crossed."""
    column = str(table.columns[-1])
    edges = np.linspace(low, high, N_BARS + 1)[1:-1]
    try:
        gaps = _quiet_gaps(f, table, {**bins, column: edges.tolist()}, weight)
    except CannotJudgeError:  # too many intersections
        return []
    cells = list(gaps.frames.values())[-1]
    bar = np.searchsorted(edges, cells.estimates["mean_prediction"].value)
    counts: dict[tuple[str, str], Array] = {}
    *names, _ = cells.attributes
    for (*levels, _), rows, i in zip(cells.levels, cells.weights, bar, strict=True):
        alone = [] if len(names) == 1 else zip(names, levels, strict=True)
        for key in (*alone, (" × ".join(names), ", ".join(levels))):
            counts.setdefault(key, np.zeros(N_BARS))[i] += rows
    return [Distribution(*key, low, high, tuple((n / n.sum()).tolist())) for key, n in counts.items()]


def _quiet_gaps(values: Any, table: Any, bins: Mapping[str, Sequence[float]], weight: Any) -> Any:
    """Return the groups that all columns of a table make; missing values are one."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        options: dict[str, Any] = {"sample_weight": weight, "missing": "group", "quantiles": ()}
        return group_gaps(values, sensitive_features=table, bins=bins, **options)


class CalibrationLine(NamedTuple):
    """Mean prediction and mean target, with its interval, of a group and range of predictions."""

    attribute: str
    group: str
    range: str
    rows: int
    predicted: float
    observed: float
    low: float
    high: float


def calibration(
    f: Any, y: Any, pairs: Mapping[str, Any], bins: Mapping[str, Sequence[float]], weight: Any = None
) -> list[CalibrationLine]:
    """Return what was predicted and came true, by group and range; `pairs` are tables by attribute."""
    lines = []
    for attribute, pair in pairs.items():
        first, second = map(str, pair.columns)
        own = {name: bins[name] for name in (first, second) if name in bins}
        frame, truth = (_quiet_gaps(values, pair, own, weight)[first, second] for values in (f, y))
        rates = truth.estimates
        came = rates["selection_rate" if "selection_rate" in rates else "mean_prediction"]
        numbers = (frame.estimates["mean_prediction"].value, came.value, *came.interval(LEVEL))
        lines += [
            CalibrationLine(attribute, group, within, int(rows), *map(float, each))
            for (group, within), rows, *each in zip(frame.levels, frame.counts, *numbers, strict=True)
        ]
    return lines


def calibration_grid(
    lines: Iterable[CalibrationLine],
) -> tuple[list[str], dict[tuple[str, str], dict[str, CalibrationLine]]]:
    """Return the ranges, in order, and the lines by attribute and group, then by range."""
    lines = sorted(lines, key=lambda line: line.predicted)
    ranges = list(dict.fromkeys(line.range for line in lines))
    grid: dict[tuple[str, str], dict[str, CalibrationLine]] = {}
    for line in lines:
        grid.setdefault(line[:2], {})[line.range] = line
    return ranges, grid


class ImpactRatio(NamedTuple):
    """A line of the tables of Local Law 144: a category, its rate, and that rate over the highest.

    `selected` are positive decisions, or scores above the median of all rows. With weights,
    `applicants` and `selected` are sums of weights, rounded.
    """

    attribute: str
    category: str
    applicants: int
    selected: int
    rate: float
    impact_ratio: float


def impact_ratios(
    y_pred: Any, *, sensitive_features: Any, threshold: float | None = None,
    bins: Mapping[str, Sequence[float]] | None = None, sample_weight: Any = None,
) -> list[ImpactRatio]:  # fmt: skip
    """Return rates and impact ratios by category and intersection, as New York's Local Law 144.

    Parameters
    ----------
    y_pred : array-like, Series, dask collection or Scan of shape (n,)
        Scores, or decisions 0 and 1.
    sensitive_features : array-like, frame, dask collection or Scan of shape (n,) or (n, p)
        Categories, such as sex and race. Rows in which one is missing are not counted.
    threshold : float, optional
        Scores from here on are selected. Without it the rate of scores is the scoring rate: the
        share of scores above the median of all rows; that of decisions is the selection rate.
    bins : dict of str to list of float, optional
        Edges that cut numeric attributes into categories.
    sample_weight : array-like of shape (n,), optional
        Weight 2 equals the row twice.

    Returns
    -------
    list of ImpactRatio
        By attribute, then of their intersections. The impact ratio is the rate over that of the
        category with the highest; NaN where no row is selected.

    Notes
    -----
    The law (6 RCNY § 5-300 f.) sets no threshold for the ratio. An auditor may leave out categories
    of less than 2 % of the rows; they are in the list.

    Examples
    --------
    >>> from scalefair.report import impact_ratios
    >>> sex = ["f"] * 4 + ["m"] * 4
    >>> hired = [1, 0, 0, 0, 1, 1, 0, 0]
    >>> for line in impact_ratios(hired, sensitive_features={"sex": sex}):
    ...     print(line.category, line.rate, line.impact_ratio)
    f 0.25 0.5
    m 0.5 1.0
    """
    options: dict[str, Any] = {"sensitive_features": sensitive_features, "bins": bins, "missing": "drop"}
    options["sample_weight"] = sample_weight
    gaps = group_gaps(y_pred, threshold=threshold, quantiles=(0.5,), **options)
    if "selection_rate" not in gaps.overall:  # scores
        above = float(np.nextafter(gaps.overall["quantile_0.5"], np.inf))
        gaps = group_gaps(y_pred, threshold=above, metrics=["selection_rate"], **options)
    lines = []
    for frame in gaps.frames.values():
        rate = frame.estimates["selection_rate"].value
        with np.errstate(invalid="ignore"):
            ratio = rate / rate.max()
        lines += [
            ImpactRatio(frame.name, group, round(float(n)), round(float(n * r)), float(r), float(q))
            for group, n, r, q in zip(frame.groups, frame.weights, rate, ratio, strict=True)
        ]
    return lines
