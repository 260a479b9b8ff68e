"""The result of an audit: tables, dictionaries, and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from scalefair._typing import DataFrame
from scalefair.auditing.dependence import Measurement
from scalefair.measures.group_metrics import RATES, Gap
from scalefair.measures.groups import (
    GAP_COLUMNS,
    GROUP_COLUMNS,
    GroupFrame,
    GroupGaps,
    gap_rows,
    group_rows,
    records,
    tidy,
)

TABLE_COLUMNS = ("model", "attribute", "measure", "value", "low", "high", "rows", "words")

HEADLINES = ("explained_share", "selection_rate_difference", "mean_prediction_difference")

METRICS = {
    "mean_prediction": "the mean prediction",
    "selection_rate": "the rate of positive decisions",
    "accuracy": "the accuracy of decisions",
    "true_positive_rate": "the true positive rate",
    "false_positive_rate": "the false positive rate",
    "false_negative_rate": "the false negative rate",
    "bias": "the mean of prediction minus target",
    "mean_absolute_error": "the mean absolute error",
    "root_mean_squared_error": "the root mean squared error",
}

ODDS = ("true_positive_rate", "false_positive_rate")


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """Measures of dependence of one model by attribute, and its groups: no frames where no attribute has any."""

    name: str
    dependence: dict[str, list[Measurement]]
    gaps: GroupGaps


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of :func:`scalefair.audit`.

    Attributes
    ----------
    models : dict of str to ModelAudit
        By the name of the model.
    n_rows : int
        Rows that were measured.
    n_missing : int
        Rows left out because an attribute was missing (``missing="drop"``).
    notes : list of str
        Warnings in plain words.
    confidence : float
        Level of the intervals.
    """

    models: dict[str, ModelAudit]
    n_rows: int
    n_missing: int
    notes: list[str]
    confidence: float = 0.95

    @cached_property
    def table(self) -> DataFrame:
        """One row per model, attribute and measure: value, low, high, rows, words."""
        rows = []
        for model in self.models.values():
            for attribute, measured in model.dependence.items():
                for one in measured:
                    words = f"{one.measure} is not known: {one.reason}"
                    if not one.reason:
                        words = explain(one.measure, one.value, attribute)
                    if not np.isnan(one.low):
                        ends = f"{percent(one.low)} to {percent(one.high)}"
                        words += f" ({100 * self.confidence:.3g} % interval {ends})"
                    numbers = one.value, one.low, one.high, one.rows
                    rows.append((model.name, attribute, one.measure, *numbers, words))
            for frame in model.gaps.frames.values():
                rows += _gap_rows(model.name, frame)
        return tidy(TABLE_COLUMNS, rows)

    @cached_property
    def groups(self) -> DataFrame:
        """One row per model, attribute, group and metric: count, value, low, high, small."""
        return self._by_frame(GROUP_COLUMNS, group_rows)

    @cached_property
    def gaps(self) -> DataFrame:
        """One row per model, attribute and metric: difference and ratio with intervals."""
        return self._by_frame(GAP_COLUMNS, gap_rows)

    @cached_property
    def overall(self) -> DataFrame:
        """One row per model: its metrics over all rows."""
        rows: list[dict[Any, Any]] = [
            {"model": m.name} | (m.gaps.overall.to_dict() if m.gaps.frames else {}) for m in self.models.values()
        ]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return tidy(names, (tuple(row.get(name) for name in names) for row in rows))

    def compare(self, measure: str | None = None) -> DataFrame:
        """Return the values with one column per model.

        Parameters
        ----------
        measure : str, optional
            One measure of `table`, by attribute; by default all, by attribute and measure.
        """
        table = self.table
        if measure is not None and measure not in set(table["measure"]):
            known = ", ".join(dict.fromkeys(table["measure"]))
            raise ValueError(f"measure={measure!r} is not in the table; choose among {known}")
        rows = table if measure is None else table[table["measure"] == measure]
        index = ["attribute", "measure"] if measure is None else ["attribute"]
        wide: DataFrame = rows.pivot_table(index=index, columns="model", values="value", sort=False, dropna=False)
        wide.columns.name = None
        return wide[list(self.models)]

    def to_frame(self) -> DataFrame:
        """Return `table`."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists of plain records, ready for JSON."""
        return {
            "n_rows": self.n_rows,
            "n_missing": self.n_missing,
            "notes": list(self.notes),
            "table": records(self.table),
            "groups": records(self.groups),
            "gaps": records(self.gaps),
            "overall": records(self.overall),
        }

    @property
    def summary(self) -> str:
        """The audit in a few sentences."""
        attributes = list(next(iter(self.models.values())).dependence)
        lines = [f"Audit of {self.n_rows:,} rows by {listed(attributes)}."]
        for name in self.models:
            lines += [f"{name}:" if len(self.models) > 1 else "", *self._sentences(name)]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(line for line in lines if line)

    def plot(self, measure: str | None = None, ax: Any = None) -> Any:
        """Draw one measure by attribute and model, or a metric by group; return the display."""
        from scalefair.plots import AuditDisplay

        return AuditDisplay.from_audit(self, measure, ax=ax)

    def _sentences(self, model: str) -> list[str]:
        rows = self.table[(self.table["model"] == model) & self.table["measure"].isin(HEADLINES)]
        # Shares name their attributes themselves.
        named = self.models[model].dependence
        return [
            f"- {'' if attribute in named else f'{attribute}: '}{'; '.join(part['words'])}."
            for attribute, part in rows.groupby("attribute", sort=False)
        ]

    def _by_frame(self, names: tuple[str, ...], rows_of: Callable[[GroupFrame], list[tuple[Any, ...]]]) -> DataFrame:
        frames = ((m.name, f) for m in self.models.values() for f in m.gaps.frames.values())
        return tidy(("model", *names), ((m, *row) for m, f in frames for row in rows_of(f)))

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Audit of {self.n_rows:,} rows: {', '.join(self.models)}>"

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self.summary.splitlines())
        table = self.table.to_html(index=False, float_format="{:.4g}".format, na_rep="")
        return f"<p>{lines}</p>{table}"


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
        "explained_share_in_sample": f"in these rows, {who} {percent(value)} of the variance "
        "of the predictions (biased upwards)",
        "normalized_hsic": f"from 0 (independent) to 1, predictions and {together} are at {value:.3f}",
        "hsic": f"HSIC of predictions and {together}; only 0 means independent",
        "nocco": f"normalised cross-covariance of predictions and {together}; only 0 means independent",
        "distance_correlation": f"distance correlation of predictions and {together}: {value:.3f}, "
        "from 0 (independent) to 1",
        "mutual_information": f"a prediction carries {value:.3f} nats of information about {together}",
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
    extremes = frame.extremes(metric)
    if extremes is None:
        return f"{metric_words(metric)} is not defined for two groups"
    value = frame.estimates[metric].value
    first, second, low, high = (
        f"{100 * x:.1f} %" if metric in RATES else _number(x) for x in (*value[list(extremes)], gap.low, gap.high)
    )
    largest, smallest = (frame.groups[i] for i in extremes)
    return (
        f"{metric_words(metric)} is {first} for {largest} and {second} for {smallest} "
        f"({100 * frame.confidence:.3g} % interval of the gap {low} to {high})"
    )


def _number(x: float) -> str:
    """Four digits, or all of a large number: pay is 42,740, not 4.274e+04."""
    return f"{x:,.0f}" if 1e4 <= abs(x) < 1e9 else f"{x:.4g}"


def _gap_rows(model: str, frame: GroupFrame) -> list[tuple[Any, ...]]:
    """Return the difference and the ratio of every metric, and equalised odds."""
    gaps: list[tuple[str, Gap, str]] = []
    for metric in frame.estimates:
        gap, relative = frame.gap(metric)
        gaps.append((f"{metric}_difference", gap, difference_words(frame, metric, gap)))
        # A ratio of biases means nothing: they may have either sign.
        if metric != "bias" and relative.value >= 0:
            largest, smallest = (frame.groups[i] for i in frame.extremes(metric) or ())
            words = (
                f"{metric_words(metric)} for {smallest} is {relative.value:.2f} times that for "
                f"{largest} ({100 * frame.confidence:.3g} % interval {relative.low:.2f} to "
                f"{relative.high:.2f})"
            )
            gaps.append((f"{metric}_ratio", relative, words))
    if set(ODDS) <= set(frame.estimates):
        # Two gaps at once: each at half the error.
        pairs = [frame.gap(metric, 1 - (1 - frame.confidence) / 2) for metric in ODDS]
        (worst, least), which = zip(*pairs, strict=True), "of the true and the false positive rate"
        gaps.append(("equalized_odds_difference", _of(max, worst), f"the larger gap {which}"))
        gaps.append(("equalized_odds_ratio", _of(min, least), f"the smaller ratio {which}"))
    rows = int(frame.counts.sum())
    return [(model, frame.name, name, *gap, rows, words) for name, gap, words in gaps]


def _of(choose: Callable[[list[float]], float], gaps: Sequence[Gap]) -> Gap:
    """The largest or the smallest value and ends that are known."""
    known = ([end for end in ends if np.isfinite(end)] for ends in zip(*gaps, strict=True))
    return Gap(*(float(choose(ends)) if ends else np.nan for ends in known))
