"""Numbers of an audit in plain words, and the rows of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalefair.auditing.dependence import Measurement
from scalefair.measures.grouping.frames import GroupFrame
from scalefair.measures.grouping.intervals import Gap
from scalefair.measures.grouping.metrics import RATES
from scalefair.measures.groups import GroupGaps

METRICS = {
    "mean_prediction": "the mean prediction",
    "selection_rate": "the rate of positive decisions",
    "accuracy": "the share of right decisions",
    "true_positive_rate": "the share of true positives found",
    "false_positive_rate": "the share of negatives decided wrongly",
    "false_negative_rate": "the share of positives missed",
    "bias": "the mean of prediction minus target",
    "mean_absolute_error": "the mean absolute error",
    "root_mean_squared_error": "the root mean squared error",
}


def percent(x: float) -> str:
    """0.116 as "11.6 %"; tiny shares are not shown as 0."""
    if 0 < x < 0.0005:
        return "less than 0.1 %"
    return f"{100 * x:.1f} %"


def listed(names: Sequence[str]) -> str:
    """["a", "b", "c"] as "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def explain(measure: str, value: float, attribute: str) -> str:
    """Return what a measure of dependence means."""
    together = attribute.replace(" × ", ", ")
    *first, last = together.split(", ")
    who = f"{', '.join(first)} and {last} together explain" if first else f"{last} explains"
    said = {
        "explained_share": f"{who} {percent(value)} of the variance of the predictions",
        "explained_share_in_sample": f"in these very rows, {who} {percent(value)} of the variance "
        "of the predictions (flattered upwards)",
        "normalized_hsic": f"from 0 (independent) to 1, predictions and {together} are at "
        f"{value:.3f}",
        "hsic": f"HSIC of predictions and {together}; only 0 means independent",
        "nocco": f"normalised cross-covariance of predictions and {together}; only 0 means "
        "independent",
        "distance_correlation": f"distance correlation of predictions and {together}: {value:.3f}, "
        "from 0 (independent) to 1",
        "mutual_information": f"a prediction tells {value:.3f} nats about {together}",
        "hsic_pvalue": _evidence(value, together),
        "conditional_hsic_pvalue": f"given the target, {_evidence(value, together)}",
    }
    return said[measure]


def _evidence(pvalue: float, attribute: str) -> str:
    shown = "less than 0.001" if pvalue < 0.001 else f"{pvalue:.3f}"
    if pvalue < 0.05:
        return f"the predictions depend on {attribute} (p {shown})"
    return f"no evidence that the predictions depend on {attribute} (p {shown})"


def metric_words(metric: str) -> str:
    """Return a metric in words."""
    return METRICS.get(metric) or f"the {metric.removeprefix('quantile_')} quantile of predictions"


def difference_words(frame: GroupFrame, metric: str, gap: Gap) -> str:
    """Return which groups differ most, and by how much."""
    places = frame.extremes(metric)
    if places is None:
        return f"{metric_words(metric)} is not known for two groups"
    value, shown = frame.estimates[metric].value, _share if metric in RATES else _number
    ends = (
        f"{100 * frame.confidence:.3g} % interval of the gap {shown(gap.low)} to {shown(gap.high)}"
    )
    first, second = (f"{shown(value[i])} for {frame.groups[i]}" for i in places)
    return f"{metric_words(metric)} is {first} and {second} ({ends})"


def ratio_words(frame: GroupFrame, metric: str, gap: Gap) -> str:
    """Return what the smallest ratio between groups is."""
    places = frame.extremes(metric)
    if places is None or not gap.value >= 0:
        return f"{metric_words(metric)} has no ratio between groups"
    largest, smallest = (frame.groups[i] for i in places)
    return (
        f"{metric_words(metric)} for {smallest} is {gap.value:.2f} times that for {largest} "
        f"({100 * frame.confidence:.3g} % interval {gap.low:.2f} to {gap.high:.2f})"
    )


def _share(x: float) -> str:
    return f"{100 * x:.1f} %"


def _number(x: float) -> str:
    """Four digits, or all of a large number: pay is 42,740, not 4.274e+04."""
    return f"{x:,.0f}" if 1e4 <= abs(x) < 1e9 else f"{x:.4g}"


ODDS = ("true_positive_rate", "false_positive_rate")


def dependence_columns(
    model: str, attribute: str, found: list[Measurement], confidence: float
) -> dict[str, Any]:
    """Return the measures of dependence as columns."""
    n = len(found)
    return {
        "model": [model] * n,
        "attribute": [attribute] * n,
        "measure": [one.measure for one in found],
        "value": [one.value for one in found],
        "low": [one.low for one in found],
        "high": [one.high for one in found],
        "rows": [one.rows for one in found],
        "words": [_explained(one, attribute, confidence) for one in found],
    }


def _explained(found: Measurement, attribute: str, confidence: float) -> str:
    if found.reason:
        return f"{found.measure} is not known: {found.reason}"
    words = explain(found.measure, found.value, attribute)
    if np.isnan(found.low):
        return words
    ends = f"{percent(found.low)} to {percent(found.high)}"
    return f"{words} ({100 * confidence:.3g} % interval {ends})"


def gap_rows(model: str, frame: GroupFrame) -> dict[str, Any]:
    """Return the difference and the ratio of every metric as columns."""
    rows = []
    for metric in frame.estimates:
        gap, relative = frame.gap(metric)
        rows.append((f"{metric}_difference", gap, difference_words(frame, metric, gap)))
        # A ratio of biases means nothing: they may have either sign.
        if metric != "bias" and relative.value >= 0:
            rows.append((f"{metric}_ratio", relative, ratio_words(frame, metric, relative)))
    return _columns(model, frame, rows)


def equalized_odds(model: str, frame: GroupFrame) -> dict[str, Any]:
    """Return the larger gap and the smaller ratio of true and false positive rates."""
    if not set(ODDS) <= set(frame.estimates):
        return _columns(model, frame, [])
    # Two gaps at once: each at half the error.
    gaps = [frame.gap(metric, 1 - (1 - frame.confidence) / 2) for metric in ODDS]
    worst = Gap(*(_of(max, [getattr(pair[0], end) for pair in gaps]) for end in Gap._fields))
    least = Gap(*(_of(min, [getattr(pair[1], end) for pair in gaps]) for end in Gap._fields))
    words = "the larger gap of the true and the false positive rate"
    rows = [("equalized_odds_difference", worst, words)]
    rows += [("equalized_odds_ratio", least, words.replace("larger gap", "smaller ratio"))]
    return _columns(model, frame, rows)


def _of(choose: Any, values: list[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(choose(known)) if known else np.nan


def _columns(model: str, frame: GroupFrame, rows: list[tuple[str, Gap, str]]) -> dict[str, Any]:
    n = len(rows)
    return {
        "model": [model] * n,
        "attribute": [frame.name] * n,
        "measure": [name for name, _, _ in rows],
        "value": [gap.value for _, gap, _ in rows],
        "low": [gap.low for _, gap, _ in rows],
        "high": [gap.high for _, gap, _ in rows],
        "rows": [int(frame.counts.sum())] * n,
        "words": [words for _, _, words in rows],
    }


def group_rows(model: str, gaps: GroupGaps) -> dict[str, Any]:
    """Return the metrics of all rows as one row."""
    if not gaps.frames:
        return {"model": model}
    overall = next(iter(gaps.frames.values())).overall
    return {"model": model, **{str(name): float(value) for name, value in overall.items()}}
