"""The result of an audit: tables, dictionaries, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair.auditing.dependence import Measurement
from scalefair.data import frames
from scalefair.measures.group_metrics import RATES, Gap
from scalefair.measures.groups import GroupFrame, GroupGaps, records, stacked

if TYPE_CHECKING:
    import pandas as pd

HEADLINES = ("explained_share", "selection_rate_difference", "mean_prediction_difference")

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

ODDS = ("true_positive_rate", "false_positive_rate")


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """What was found for one model.

    Parameters
    ----------
    name : str
        Of the model.
    dependence : dict of str to list of Measurement
        Measures of dependence, by attribute.
    gaps : GroupGaps
        The groups; without frames where no attribute has groups.
    """

    name: str
    dependence: dict[str, list[Measurement]]
    gaps: GroupGaps


class Audit:
    """What :func:`scalefair.audit` returns.

    Attributes
    ----------
    models : dict of str to ModelAudit
        By the name of the model.
    n_rows : int
        Rows that were judged.
    n_missing : int
        Rows left out because an attribute was missing (``missing="drop"``).
    notes : list of str
        Warnings in plain words.
    """

    def __init__(
        self,
        models: Sequence[ModelAudit],
        n_rows: int,
        n_missing: int,
        notes: list[str],
        confidence: float = 0.95,
    ) -> None:
        self.models = {model.name: model for model in models}
        self.n_rows, self.n_missing, self.notes = n_rows, n_missing, notes
        self._confidence = confidence

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per model, attribute and measure: value, low, high, rows, words."""
        parts = []
        for model in self.models.values():
            for attribute, found in model.dependence.items():
                parts.append(dependence_columns(model.name, attribute, found, self._confidence))
            for frame in model.gaps.frames.values():
                parts += [gap_rows(model.name, frame), equalized_odds(model.name, frame)]
        return frames.make_frame(stacked(parts))

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row per model, attribute, group and metric: count, value, low, high, small."""
        return self._of_frames("table")

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """One row per model, attribute and metric: difference and ratio with intervals."""
        return self._of_frames("gaps")

    @cached_property
    def overall(self) -> pd.DataFrame:
        """One row per model: its metrics over all rows."""
        rows: list[dict[str, Any]] = []
        for model in self.models.values():
            metrics = model.gaps.overall.to_dict() if model.gaps.frames else {}
            rows.append({"model": model.name, **{str(k): v for k, v in metrics.items()}})
        names = list(dict.fromkeys(name for row in rows for name in row))
        return frames.make_frame({name: [row.get(name) for row in rows] for name in names})

    def compare(self, measure: str | None = None) -> pd.DataFrame:
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
        wide: pd.DataFrame = rows.pivot_table(
            index=index, columns="model", values="value", sort=False, dropna=False
        )
        wide.columns.name = None
        return wide[list(self.models)]

    def to_frame(self) -> pd.DataFrame:
        """Return `table`."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists of plain records, ready for JSON."""
        tables = ("table", "groups", "gaps", "overall")
        return {
            "n_rows": self.n_rows,
            "n_missing": self.n_missing,
            "notes": list(self.notes),
            **{name: records(getattr(self, name)) for name in tables},
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
        pairs = zip(rows["attribute"], rows["words"], strict=True)
        by: dict[str, list[str]] = {}
        for attribute, words in pairs:
            by.setdefault(attribute, []).append(words)
        # Shares name their attributes themselves.
        named = self.models[model].dependence
        starts = ("" if attribute in named else f"{attribute}: " for attribute in by)
        lines = zip(starts, by.values(), strict=True)
        return [f"- {start}{'; '.join(words)}." for start, words in lines]

    def _of_frames(self, name: str) -> pd.DataFrame:
        parts = []
        for model in self.models.values():
            if model.gaps.frames:
                table = getattr(model.gaps, name)
                columns = {column: list(table[column]) for column in table}
                parts.append({"model": [model.name] * len(table), **columns})
        return frames.make_frame(stacked(parts))

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
