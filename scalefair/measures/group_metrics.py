"""What is compared between groups: rates, means and quantiles, their intervals and their gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from scalefair._hash import distinct
from scalefair._typing import Array
from scalefair.data import Numbers, Sums
from scalefair.measures.group_statistics import PASS_ROWS, CountedRows, GroupStatistics, SurveyedRows, count_cells

Mask = NDArray[np.bool_]

# Outcomes are numbered 2·decision + target.
RATES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "selection_rate": ((2, 3), (0, 1, 2, 3)),
    "accuracy": ((0, 3), (0, 1, 2, 3)),
    "true_positive_rate": ((3,), (1, 3)),
    "false_positive_rate": ((2,), (0, 2)),
    "false_negative_rate": ((1,), (1, 3)),
}
"""Outcomes that count as hits, and those that the rate refers to."""

ERRORS = {"bias": 1, "mean_absolute_error": 2, "root_mean_squared_error": 3}
"""Which of `CountedRows.values` the mean is taken of."""

METRIC_NAMES = ("mean_prediction", *RATES, *ERRORS)


def choose_metrics(
    numbers: Numbers, truth: Numbers | None, quantiles: Sequence[float], chosen: object, *, has_decisions: bool
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return names of metrics and levels of quantiles of one model: those chosen, or all that are defined."""
    labels = numbers.is_binary
    defined = [] if labels else ["mean_prediction"]
    if has_decisions:
        defined += RATES if truth is not None and truth.is_binary else ["selection_rate"]
    if truth is not None and not (labels and truth.is_binary):
        defined += ERRORS
    if chosen is None:
        return tuple(defined), () if labels else tuple(quantiles)
    names = (chosen,) if isinstance(chosen, str) else tuple(chosen)  # type: ignore[arg-type]
    for name in names:
        if name not in (*defined, "mean_prediction"):
            raise ValueError(f"metrics: {name!r} {_why_undefined(name, defined, numbers, truth)}")
    return names, tuple(quantiles)


def _why_undefined(name: str, defined: Iterable[str], numbers: Numbers, truth: Numbers | None) -> str:
    if name not in METRIC_NAMES:
        return f"is unknown; choose among {', '.join(METRIC_NAMES)}"
    if name != "selection_rate" and truth is None:
        return "compares with targets; give y_true"
    if name in RATES and not numbers.is_binary and "selection_rate" not in defined:
        return (
            f"judges decisions, but the predictions are continuous (from {numbers.spread.low:.4g} "
            f"to {numbers.spread.high:.4g}): give the threshold= above which a prediction is a "
            "decision, or pass decisions of 0 and 1"
        )
    return (
        "is not defined for these targets and predictions: error rates need targets of 0 and 1, "
        "errors need scores or targets that are not labels; leave it out"
    )


@dataclass(frozen=True, eq=False)
class Mean:
    """Weighted means, of shape (g,), with Student's intervals; `rows` is the n of Kish, (Σw)²/Σw²."""

    rows: Array
    value: Array
    variance: Array

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the ends; NaN for a group of one."""
        df = np.where(self.rows > 1, self.rows - 1, np.nan)
        half = stdtrit(df, 0.5 + level / 2) * np.sqrt(self.variance / df)
        return self.value - half, self.value + half


@dataclass(frozen=True, eq=False)
class Root(Mean):
    """Roots of means that are not negative, such as the RMSE; `variance` is that of the squares."""

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the roots of the ends for the squares, floored at 0."""
        low, high = Mean(self.rows, self.value**2, self.variance).interval(level)
        return np.sqrt(np.maximum(low, 0.0)), np.sqrt(high)


@dataclass(frozen=True, eq=False)
class Rate:
    """Rates with Wilson's score intervals; `rows`, by Kish, are those that the rate refers to."""

    rows: Array
    value: Array

    def interval(self, level: float) -> tuple[Array, Array]:
        """(p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)."""
        z, p, n = float(ndtri(0.5 + level / 2)), self.value, self.rows
        middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        # At a rate of 0 or 1 the end is exact; rounding must not put it inside.
        low = np.where(p == 0, 0.0, np.clip(middle - half, 0.0, 1.0))
        return low, np.where(p == 1, 1.0, np.clip(middle + half, 0.0, 1.0))


class Distribution(NamedTuple):
    """One group: sorted values, their summed weights, and the number of rows by Kish."""

    values: Array
    cumulated: Array
    rows: float

    def quantile(self, q: float) -> float:
        """Return the least value x with F(x) ≥ q (numpy's "inverted_cdf")."""
        if not len(self.values):
            return np.nan
        total = self.cumulated[-1]
        # A sum of weights that misses q·total by rounding alone has reached it.
        at = np.searchsorted(self.cumulated, q * total * (1 - 1e-12), side="left")
        return float(self.values[min(int(at), len(self.values) - 1)])


@dataclass(frozen=True, eq=False)
class Quantile:
    """Quantile q of each group with Woodruff's intervals: quantiles q ± z √(q(1 − q)/n)."""

    q: float
    groups: Sequence[Distribution]

    @property
    def value(self) -> Array:
        """The quantiles."""
        return np.array([group.quantile(self.q) for group in self.groups])

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the quantiles at the ends of the interval of the rank."""
        z = float(ndtri(0.5 + level / 2)) * np.sqrt(self.q * (1 - self.q))
        bounds = []
        for sign in (-1, 1):
            qs = [self.q + sign * z / np.sqrt(group.rows) for group in self.groups]
            pairs = zip(self.groups, np.clip(qs, 0.0, 1.0), strict=True)
            bounds.append(np.array([group.quantile(q) for group, q in pairs]))
        return bounds[0], bounds[1]


Estimate = Mean | Root | Rate | Quantile
"""One number per group, `value` of shape (g,), NaN where a group has no rows to tell."""


def kish(weight: Array, squares: Array) -> Array:
    """Return (Σw)²/Σw² from both sums: the number of rows of equal weight with as much information."""
    return np.asarray(weight**2 / np.where(squares > 0, squares, np.nan))


def estimate_of(groups: GroupStatistics, n_models: int, model: int, name: str) -> Estimate:
    """Return one metric, not a quantile, of one model in each group."""
    if name in RATES:
        hits, total = (groups.outcomes[:, model, which].sum(axis=1) for which in RATES[name])
        squares = groups.squares[:, model, RATES[name][1]].sum(axis=1)
        return Rate(kish(total, squares), np.asarray(hits / np.where(total > 0, total, np.nan)))
    at = ERRORS.get(name, 0) * n_models + model
    rows = kish(groups.weight, groups.squares[:, model].sum(axis=1))
    mean = Mean(rows, groups.mean[:, at], groups.scatter[:, at] / groups.weight)
    if name == "root_mean_squared_error":
        return Root(rows, np.sqrt(mean.value), mean.variance)
    return mean


@dataclass(frozen=True, eq=False)
class CountedGroups:
    """The statistics of each crossing, and rows that are in memory, with the order of each model's predictions."""

    surveyed: SurveyedRows
    crossed: Sums[GroupStatistics]
    rows: tuple[CountedRows, NDArray[np.intp]] | None

    def statistics(self, grouping: Sequence[int]) -> GroupStatistics:
        """Return the statistics of the groups of some attributes."""
        crossings = zip(self.surveyed.plan.crossings, self.crossed, strict=True)
        crossing, cells = next(pair for pair in crossings if set(grouping) <= set(pair[0]))
        return cells.groups([crossing.index(j) for j in grouping])

    def estimates(self, model: int, grouping: Sequence[int]) -> dict[str, Estimate]:
        """Return the metrics of one model in the groups of some attributes."""
        surveyed, groups = self.surveyed, self.statistics(grouping)
        plan = surveyed.plan
        names, quantiles = choose_metrics(
            surveyed.predictions[model],
            surveyed.truth,
            plan.settings.quantiles,
            plan.settings.metrics,
            has_decisions=bool(np.isfinite(plan.cuts[model])),
        )
        estimates = {n: estimate_of(groups, len(plan.models), model, n) for n in names}
        if self.rows is not None:
            each = sorted_distributions(*self.rows, model, grouping)
        else:  # a value of counted predictions is known up to its bin
            rows = kish(groups.weight, groups.squares[:, model].sum(axis=1))
            ends = np.append(plan.edges[model], np.inf)  # type: ignore[index]
            parts = zip(groups.counts[:, model], groups.high[:, model], rows, strict=True)
            each = [Distribution(np.minimum(ends, high)[w > 0], np.cumsum(w[w > 0]), float(n)) for w, high, n in parts]
        return estimates | {f"quantile_{q:g}": Quantile(q, each) for q in quantiles}


def sorted_distributions(
    rows: CountedRows, by_value: NDArray[np.intp], model: int, grouping: Sequence[int]
) -> list[Distribution]:
    """Return the distributions of rows in memory."""
    x, order = rows.predictions[:, model], by_value[:, model]
    group = distinct(rows.codes[:, list(grouping)][order]).number
    # A stable sort by group leaves the values in order; numpy sorts 16 bits by counting, and
    # there are at most MAX_CELLS groups.
    order = order[np.argsort(group.astype(np.uint16), kind="stable")]
    parts = np.split(order, np.cumsum(np.bincount(group))[:-1])
    return [
        Distribution(x[at], np.cumsum(w), float(kish(w.sum(), w @ w)))
        for at, w in ((part, rows.weight[part]) for part in parts)
    ]


def count_groups(surveyed: SurveyedRows, crossed: Sums[GroupStatistics] | None = None) -> CountedGroups:
    """Make the second pass, unless it was made; raise ValueError for a category with a group of one row."""
    source, plan, rows = surveyed.rows.source, surveyed.plan, None
    if crossed is None:
        crossed = source.fold(lambda: count_cells(plan), PASS_ROWS)
    if plan.edges is None:
        (chunk,) = source.chunks(surveyed.survey.n_rows)
        found = plan.rows(chunk)
        rows = found, np.argsort(found.predictions, axis=0, kind="stable")
    counts = CountedGroups(surveyed, crossed, rows)
    for j, attribute in enumerate(plan.attributes):
        if not attribute.levels or attribute.kind not in ("categorical", "boolean"):
            continue
        groups = counts.statistics((j,))
        alone = groups.cells[groups.rows == 1, 0]
        if len(alone):
            raise ValueError(
                f"sensitive column {attribute.name!r}: the group "
                f"{attribute.levels[int(alone[0])]!r} has only one row, too few to estimate a "
                "difference; merge it with another level, or leave the row out"
            )
    return counts


class Gap(NamedTuple):
    """The largest difference or the smallest ratio between two groups, with its interval."""

    value: float
    low: float
    high: float


def difference(estimate: Estimate, level: float, used: Mask) -> Gap:
    """Return max − min over the `used` groups, with an interval for the gap of the population.

    The intervals of all pairs hold at once (Bonferroni). The gap is then at least the largest lower
    and at most the largest upper end. A pair's ends are those of Newcombe's square-and-add rule,

        d − √((v₁ − l₁)² + (u₂ − v₂)²)   and   d + √((u₁ − v₁)² + (v₂ − l₂)²),

    which for means is Welch's interval up to the degrees of freedom.
    """
    value, low, high = _at_once(estimate, level, used)
    if len(value) < 2:
        return Gap(np.nan, np.nan, np.nan)
    d = value[:, None] - value
    down, up = value - low, high - value
    lowest = _largest(d - np.hypot(down[:, None], up))
    highest = _largest(d + np.hypot(up[:, None], down))
    return Gap(float(np.ptp(value)), max(lowest, 0.0), highest)


def upper_gap(estimate: Estimate, confidence: float, used: Mask) -> tuple[float, float]:
    """Return max − min over the `used` groups and its upper bound; each pair is tested at the level of the whole."""
    pairs = int(used.sum() * (used.sum() - 1) // 2)
    # `difference` divides what is left of the level among all pairs, and both ends.
    gap = difference(estimate, 1 - 2 * (1 - confidence) * pairs, used)
    return gap.value, gap.high


def ratio(estimate: Estimate, level: float, used: Mask) -> Gap:
    """Return min / max over the `used` groups, with Donner and Zou's interval; NaN where a value is negative."""
    value, low, high = _at_once(estimate, level, used)
    if len(value) < 2 or (value < 0).any() or not value.max() > 0:
        return Gap(np.nan, np.nan, np.nan)
    low, product = np.maximum(low, 0.0), value[:, None] * value
    lows, highs = low * (2 * value - low), high * (2 * value - high)
    roots = np.sqrt(np.maximum(product**2 - lows[:, None] * highs, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        lower, upper = lows[:, None] / (product + roots), (product + roots.T) / lows
    # 0/0: a group without hits says nothing about the ratio.
    lower, upper = np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0, posinf=1.0)
    np.fill_diagonal(lower, 1.0)
    np.fill_diagonal(upper, 1.0)
    lowest, highest = (float(np.clip(ends.min(), 0.0, 1.0)) for ends in (lower, upper))
    return Gap(float(value.min() / value.max()), lowest, highest)


def _at_once(estimate: Estimate, level: float, used: Mask) -> tuple[Array, Array, Array]:
    """Values and ends of the groups that can be compared, wide enough for all pairs at once."""
    value = estimate.value
    known = used & np.isfinite(value)
    count = int(known.sum())
    pairs = max(count * (count - 1) // 2, 1)
    low, high = estimate.interval(1 - (1 - level) / pairs)
    return value[known], low[known], high[known]


def _largest(ends: Array) -> float:
    """The largest entry off the diagonal that is a number, NaN without any."""
    ends = ends.copy()
    np.fill_diagonal(ends, np.nan)
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else np.nan
