"""Rows of the table of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair.auditing.dependence import Measurement
from scalefair.auditing.words import difference_words, explain, percent, ratio_words
from scalefair.measures.grouping.frames import GroupFrame
from scalefair.measures.grouping.intervals import Gap
from scalefair.measures.groups import GroupGaps

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
