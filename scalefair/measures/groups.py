"""Group gaps: counts, means, quantiles, selection and error rates, and how far groups differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._files import plain
from scalefair._typing import Array, DataFrame, Series
from scalefair.data import frames
from scalefair.errors import check_choice
from scalefair.measures.group_metrics import CountedGroups, Estimate, Gap, Mask, count_groups, difference, ratio
from scalefair.measures.group_rows import AuditRows, Missing, open_audit
from scalefair.measures.group_statistics import GroupSettings, survey_groups

MIN_GROUP_SIZE = 30  # Groups with fewer rows are called small
GROUP_COLUMNS = ("attribute", "group", "metric", "count", "weight", "value", "low", "high", "small")

GAP_COLUMNS = (
    "attribute", "metric", "largest", "smallest", "difference", "difference_low",
    "difference_high", "ratio", "ratio_low", "ratio_high",
)  # fmt: skip

Method = Literal["between_groups", "to_overall"]


@dataclass(frozen=True, eq=False)
class GroupFrame:
    """The metrics of one model in the groups of one attribute, or of several crossed.

    Made by :func:`group_gaps`. `by_group`, `overall`, `difference()` and `ratio()` are those of
    fairlearn's MetricFrame.
    """

    attributes: tuple[str, ...]
    levels: list[tuple[str, ...]]  # that make each group
    counts: NDArray[np.int64]  # rows of each group
    weights: Array  # sum of their weights
    estimates: dict[str, Estimate]  # each metric in the groups
    totals: dict[str, Estimate]  # and over all rows
    confidence: float  # of the intervals

    @property
    def name(self) -> str:
        """The attributes in one word, such as "sex × race"."""
        return " × ".join(self.attributes)

    @property
    def groups(self) -> list[str]:
        """The groups in one word each, such as "Female, Black"."""
        return [", ".join(levels) for levels in self.levels]

    @property
    def comparable(self) -> Mask:
        """Whether each group can be compared: a group of one cannot."""
        return np.asarray(self.counts > 1)

    @cached_property
    def by_group(self) -> DataFrame:
        """One row per group, one column per metric, and ``count``."""
        return self._frame({name: e.value for name, e in self.estimates.items()})

    @cached_property
    def overall(self) -> Series:
        """The metrics of all rows."""
        counted = {"count": float(self.counts.sum())}
        return _series(counted | {name: float(e.value[0]) for name, e in self.totals.items()})

    def intervals(self) -> tuple[DataFrame, DataFrame]:
        """Return the lower and the upper ends, in the shape of `by_group`."""
        ends = {name: e.interval(self.confidence) for name, e in self.estimates.items()}
        low, high = ({name: pair[i] for name, pair in ends.items()} for i in (0, 1))
        return self._frame(low), self._frame(high)

    def difference(self, method: Method = "between_groups") -> Series:
        """Return the largest difference of each metric, between groups or to all rows."""
        differences = dict.fromkeys(self.estimates, np.nan)
        between = method == "between_groups"
        for name, value, total in self._compared(method):
            differences[name] = np.ptp(value) if between else np.abs(value - total).max()
        return _series(differences)

    def ratio(self, method: Method = "between_groups") -> Series:
        """Return the smallest ratio of each metric, between groups or to all rows."""
        ratios = dict.fromkeys(self.estimates, np.nan)
        for name, value, total in self._compared(method):
            top = value.max() if method == "between_groups" else total
            if (value >= 0).all() and top > 0 and value.max() > 0:
                ratios[name] = min(value.min() / top, top / value.max())
        return _series(ratios)

    def gap(self, metric: str, confidence: float | None = None) -> tuple[Gap, Gap]:
        """Return the difference and the ratio of one metric with their intervals."""
        level = self.confidence if confidence is None else confidence
        estimate = self.estimates[metric]
        return difference(estimate, level, self.comparable), ratio(estimate, level, self.comparable)

    def extremes(self, metric: str) -> tuple[int, int] | None:
        """Return the positions of the largest and the smallest value; None without two groups."""
        value = np.where(self.comparable, self.estimates[metric].value, np.nan)
        if np.isfinite(value).sum() < 2:
            return None
        return int(np.nanargmax(value)), int(np.nanargmin(value))

    def _compared(self, method: str) -> Iterable[tuple[str, Array, float]]:
        """Yield each metric that is known, its values in the groups compared, and over all rows."""
        check_choice("method", method, ("between_groups", "to_overall"))
        for name, estimate in self.estimates.items():
            used = self.comparable & np.isfinite(estimate.value)
            if used.any():
                yield name, estimate.value[used], float(self.totals[name].value[0])

    def _frame(self, values: dict[str, Array]) -> DataFrame:
        # Numbered, since an attribute may have the name of a metric.
        columns: dict[str, Any] = {f"{j}": part for j, part in enumerate(zip(*self.levels, strict=True))}
        frame = frames.make_frame(columns | {"count": self.counts} | values)
        return frame.set_index(list(columns)).rename_axis(index=list(self.attributes))


def _series(values: dict[str, float]) -> Series:
    frame = frames.make_frame({"metric": list(values), "value": list(values.values())})
    return frame.set_index("metric")["value"].rename(None).rename_axis(None)


@dataclass(frozen=True, eq=False)
class GroupGaps:
    """What :func:`group_gaps` returns.

    ``gaps["sex"]`` is the `GroupFrame` of one attribute, ``gaps["sex", "race"]`` that of
    their intersections. `by_group`, `overall`, `difference()` and `ratio()` of the object itself
    are those of all attributes crossed, as in fairlearn's MetricFrame.

    Attributes
    ----------
    frames : dict of tuple of str to GroupFrame
        By attributes.
    """

    frames: dict[tuple[str, ...], GroupFrame]

    def __getitem__(self, attributes: str | tuple[str, ...]) -> GroupFrame:
        key = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        if key not in self.frames:
            known = ", ".join(repr(k[0] if len(k) == 1 else k) for k in self.frames)
            raise KeyError(f"{attributes!r} has no groups; there are {known}")
        return self.frames[key]

    @property
    def _finest(self) -> GroupFrame:
        return list(self.frames.values())[-1]

    @property
    def by_group(self) -> DataFrame:
        """One row per group of all attributes crossed, one column per metric."""
        return self._finest.by_group

    @property
    def overall(self) -> Series:
        """The metrics of all rows."""
        return self._finest.overall

    def difference(self, method: Method = "between_groups") -> Series:
        """Return the largest difference of each metric."""
        return self._finest.difference(method)

    def ratio(self, method: Method = "between_groups") -> Series:
        """Return the smallest ratio of each metric."""
        return self._finest.ratio(method)

    @property
    def table(self) -> DataFrame:
        """One row per attribute, group and metric: count, weight, value, low, high, small."""
        return tidy(GROUP_COLUMNS, (row for f in self.frames.values() for row in group_rows(f)))

    @property
    def gaps(self) -> DataFrame:
        """One row per attribute and metric: difference and ratio with their intervals."""
        return tidy(GAP_COLUMNS, (row for f in self.frames.values() for row in gap_rows(f)))

    def to_frame(self) -> DataFrame:
        """Return `table`."""
        return self.table

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the groups and the gaps as lists of plain records."""
        return {"groups": records(self.table), "gaps": records(self.gaps)}

    def _repr_html_(self) -> str:
        return self.gaps.to_html(index=False, float_format="{:.4g}".format, na_rep="")

    def __repr__(self) -> str:
        return f"<GroupGaps by {', '.join(f.name for f in self.frames.values())}>"


def group_gaps(
    y_pred: Any, *, sensitive_features: Any, y_true: Any = None, sample_weight: Any = None,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9), threshold: float | None = None,
    metrics: str | Sequence[str] | None = None,
    bins: Mapping[str, Sequence[float]] | None = None, intersections: bool = True,
    missing: Missing = "error", confidence: float = 0.95,
    random_state: int = 0,
) -> GroupGaps:  # fmt: skip
    """Return what is predicted for each group, and how far the groups differ.

    Parameters
    ----------
    y_pred : array-like, Series, dask collection or Scan of shape (n,)
        Predictions: scores, probabilities, or labels 0 and 1 (or −1 and 1).
    sensitive_features : array-like, frame, dask collection or Scan of shape (n,) or (n, p)
        Attributes. Text, booleans and numbers with at most eight values have groups; other numbers
        have none unless `bins` gives them: measure those with `explained_share` or `hsic`.
    y_true : array-like of shape (n,), optional
        Targets: numbers, or labels 0 and 1, which error rates need.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing. In the values weight 2 equals the row twice;
        the intervals count rows by Kish's (Σw)²/Σw².
    quantiles : sequence of float
        Levels of the quantiles of predictions that are not labels.
    threshold : float, optional
        A score of at least this is a decision. Without it scores have no selection rate and no error rates.
    metrics : str or sequence of str, optional
        Metrics to report; by default all that are defined: mean_prediction, selection_rate,
        accuracy, true_positive_rate, false_positive_rate, false_negative_rate, bias (mean of
        prediction − target), mean_absolute_error, root_mean_squared_error.
    bins : dict of str to list of float, optional
        Edges that cut numeric attributes into groups: ``{"age": [30, 50]}``.
    intersections : bool
        Whether all attributes are also crossed.
    missing : {"error", "group", "drop"}
        What a missing attribute means: a ValueError, a group of its own, or a row to leave out.
    confidence : float
        Level of the intervals: Wilson's for rates, Student's for means, Woodruff's for quantiles.
    random_state : int
        Seed of the sample that streamed quantiles are binned by.

    Returns
    -------
    GroupGaps

    Notes
    -----
    The interval of a gap is one for the largest difference in the population: all pairs of groups
    are covered at once, so that more groups make it wider. Groups of one row are reported but not
    compared; where one is a level of a category, it is a ValueError.

    Files and dask collections are read twice, and memory does not grow with the rows. Their quantiles are exact where
    the predictions have at most 2,048 values. Otherwise predictions are counted between 2,048 quantiles of a sample of
    20,000 rows and rounded up to the next of them: the rank of a quantile over all rows is off by about 1/2,048, and in
    a group by no more than its share of rows in one bin.
    """
    settings = GroupSettings(
        tuple(quantiles), threshold, metrics, bins, intersections, missing, confidence, random_state
    )
    rows = open_audit(y_pred, sensitive_features, y_true, sample_weight)
    if len(rows.models) != 1:
        raise ValueError(
            f"y_pred has {len(rows.models)} models; group_gaps takes one: scalefair.audit compares several"
        )
    return gaps_of_models(rows, settings)[0]


def gaps_of_models(rows: AuditRows, settings: GroupSettings) -> list[GroupGaps]:
    """Return the groups of each model; raise ValueError if no attribute has groups."""
    counted = count_groups(survey_groups(rows, settings))
    gaps = [group_frames(counted, model) for model in range(len(rows.models))]
    if not gaps[0].frames:
        names = ", ".join(repr(a.name) for a in counted.surveyed.plan.attributes)
        raise ValueError(
            f"sensitive features {names} are continuous and have no groups; measure the dependence "
            "with explained_share, hsic or scalefair.audit, or cut them with bins={'age': [30, 50]}"
        )
    return gaps


def group_frames(counted: CountedGroups, model: int) -> GroupGaps:
    """Return the metrics of one model in the groups of each attribute, and of all crossed."""
    plan = counted.surveyed.plan
    groupings: list[tuple[int, ...]] = [(j,) for j, a in enumerate(plan.attributes) if a.levels]
    if len(groupings) > 1 and plan.settings.intersections:
        groupings += plan.crossings
    totals = counted.estimates(model, ())
    by_attributes = {}
    for grouping in groupings:
        attributes = [plan.attributes[j] for j in grouping]
        groups = counted.statistics(grouping)
        levels = [tuple(a.levels[int(code)] for a, code in zip(attributes, cell, strict=True)) for cell in groups.cells]
        names = tuple(a.name for a in attributes)
        by_attributes[names] = GroupFrame(
            names, levels, groups.rows, groups.weight, counted.estimates(model, grouping), totals,
            plan.settings.confidence,
        )  # fmt: skip
    return GroupGaps(by_attributes)


def group_rows(frame: GroupFrame) -> list[tuple[Any, ...]]:
    """Return the metrics of all groups as rows of `GROUP_COLUMNS`."""
    rows: list[tuple[Any, ...]] = []
    for metric, estimate in frame.estimates.items():
        ends = estimate.interval(frame.confidence)
        each = zip(frame.groups, frame.counts, frame.weights, estimate.value, *ends, strict=True)
        rows += [
            (frame.name, group, metric, count, *numbers, count < MIN_GROUP_SIZE) for group, count, *numbers in each
        ]
    return rows


def gap_rows(frame: GroupFrame) -> list[tuple[Any, ...]]:
    """Return the gaps of all metrics as rows of `GAP_COLUMNS`."""
    rows: list[tuple[Any, ...]] = []
    for metric in frame.estimates:
        ends = frame.extremes(metric)
        names = (None, None) if ends is None else [frame.groups[i] for i in ends]
        difference, ratio = frame.gap(metric)
        rows.append((frame.name, metric, *names, *difference, *ratio))
    return rows


def tidy(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """Return rows as a data frame."""
    rows = list(rows)
    return frames.make_frame({name: [row[i] for row in rows] for i, name in enumerate(names)})


def records(table: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of plain values, None for NaN."""
    return plain(table.to_dict("records"))  # type: ignore[no-any-return]
