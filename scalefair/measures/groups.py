"""Group gaps: counts, means, quantiles, selection and error rates, and how far groups differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.measures.grouping.attributes import Missing
from scalefair.measures.grouping.frames import GroupFrame, Method, group_frames
from scalefair.measures.grouping.judged import GroupSettings, Judged, judge, prepare
from scalefair.measures.grouping.rows import open_audit

if TYPE_CHECKING:
    import pandas as pd

MIN_GROUP_SIZE = 30
"""Groups with fewer rows are called too small to judge."""


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

    def __init__(self, frames: Iterable[GroupFrame]) -> None:
        self.frames = {frame.attributes: frame for frame in frames}

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
    def by_group(self) -> pd.DataFrame:
        """One row per group of all attributes crossed, one column per metric."""
        return self._finest.by_group

    @property
    def overall(self) -> pd.Series:
        """The metrics of all rows."""
        return self._finest.overall

    def difference(self, method: Method = "between_groups") -> pd.Series:
        """Return the largest difference of each metric."""
        return self._finest.difference(method)

    def ratio(self, method: Method = "between_groups") -> pd.Series:
        """Return the smallest ratio of each metric."""
        return self._finest.ratio(method)

    @property
    def table(self) -> pd.DataFrame:
        """One row per attribute, group and metric: count, weight, value, low, high, small."""
        return frames.make_frame(stacked([group_columns(f) for f in self.frames.values()]))

    @property
    def gaps(self) -> pd.DataFrame:
        """One row per attribute and metric: difference and ratio with their intervals."""
        return frames.make_frame(stacked([gap_columns(f) for f in self.frames.values()]))

    def to_frame(self) -> pd.DataFrame:
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
    y_pred: Any,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    sample_weight: Any = None,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    threshold: float | None = None,
    metrics: str | Sequence[str] | None = None,
    bins: Mapping[str, Sequence[float]] | None = None,
    intersections: bool = True,
    missing: Missing = "error",
    confidence: float = 0.95,
    interval: Literal["analytic", "bootstrap"] = "analytic",
    n_resamples: int = 500,
    random_state: int = 0,
) -> GroupGaps:
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
        A score of at least this is a decision. Without it scores have no selection rate and no
        error rates.
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
        Level of the intervals.
    interval : {"analytic", "bootstrap"}
        Wilson's intervals for rates, Student's for means, Woodruff's for quantiles; or percentiles
        of a Poisson bootstrap (for quantiles Woodruff's all the same).
    n_resamples : int
        Resamples of the bootstrap.
    random_state : int
        Seed of the bootstrap, and of the sample that streamed quantiles are binned by.

    Returns
    -------
    GroupGaps

    Notes
    -----
    The interval of a gap is one for the largest difference in the population: all pairs of groups
    are covered at once, so that more groups make it wider. Groups of one row are reported but not
    compared; where one is a level of a category, it is a ValueError.

    Files and dask collections are read twice, and memory does not grow with the rows. Their
    quantiles are exact where the predictions have at most 2,048 values. Otherwise predictions are
    counted between 2,048 quantiles of a sample of 20,000 rows and rounded up to the next of them:
    the rank of a quantile over all rows is off by about 1/2,048, and in a group by no more than
    its share of rows in one bin.
    """
    settings = GroupSettings(
        tuple(quantiles), threshold, metrics, bins, intersections, missing, confidence, interval,
        n_resamples, random_state,
    ).check()  # fmt: skip
    rows = open_audit(y_pred, sensitive_features, y_true, sample_weight)
    if len(rows.models) != 1:
        raise ValueError(
            f"y_pred has {len(rows.models)} models; group_gaps judges one: scalefair.audit "
            "compares several"
        )
    judged = judge(prepare(rows, settings))
    _check_grouped(judged)
    return GroupGaps(group_frames(judged, 0))


def _check_grouped(judged: Judged) -> None:
    if not judged.groupings:
        names = ", ".join(repr(a.name) for a in judged.attributes)
        raise ValueError(
            f"sensitive features {names} are continuous and have no groups; measure the dependence "
            "with explained_share, hsic or scalefair.audit, or cut them with bins={'age': [30, 50]}"
        )


def group_columns(frame: GroupFrame) -> dict[str, Any]:
    """Return the metrics of all groups as columns of a tidy table."""
    names, n = list(frame.estimates), len(frame.counts)
    ends = [e.interval(frame.confidence) for e in frame.estimates.values()]
    return {
        "attribute": [frame.name] * (n * len(names)),
        "group": frame.groups * len(names),
        "metric": list(np.repeat(names, n)),
        "count": np.tile(frame.counts, len(names)),
        "weight": np.tile(frame.weights, len(names)),
        "value": _joined([e.value for e in frame.estimates.values()]),
        "low": _joined([low for low, _ in ends]),
        "high": _joined([high for _, high in ends]),
        "small": np.tile(frame.counts < MIN_GROUP_SIZE, len(names)),
    }


def gap_columns(frame: GroupFrame) -> dict[str, Any]:
    """Return the gaps of all metrics as columns of a tidy table."""
    gaps = {name: frame.gap(name) for name in frame.estimates}
    ends = [_extreme_names(frame, name) for name in gaps]
    columns: dict[str, Any] = {
        "attribute": [frame.name] * len(gaps),
        "metric": list(gaps),
        "largest": [largest for largest, _ in ends],
        "smallest": [smallest for _, smallest in ends],
    }
    for i, kind in enumerate(("difference", "ratio")):
        found = [pair[i] for pair in gaps.values()]
        columns[kind] = [gap.value for gap in found]
        columns[f"{kind}_low"] = [gap.low for gap in found]
        columns[f"{kind}_high"] = [gap.high for gap in found]
    return columns


def _extreme_names(frame: GroupFrame, metric: str) -> tuple[str | None, str | None]:
    places = frame.extremes(metric)
    return (None, None) if places is None else (frame.groups[places[0]], frame.groups[places[1]])


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of plain values, None for NaN."""
    rows = table.to_dict("records")
    return [{str(k): _plain(v) for k, v in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def stacked(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return tables of the same columns one below the other."""
    names = tables[0] if tables else {}
    return {name: [value for table in tables for value in table[name]] for name in names}


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0)
