"""Metrics by group in the shape of fairlearn's MetricFrame, with counts and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.measures.grouping.intervals import Estimate, Gap, Mask, difference, ratio
from scalefair.measures.grouping.judged import Judged

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["between_groups", "to_overall"]


@dataclass(frozen=True, eq=False)
class GroupFrame:
    """The metrics of one model in the groups of one attribute, or of several crossed.

    Made by :func:`group_gaps`. `by_group`, `overall`, `difference()` and `ratio()` are those of
    fairlearn's MetricFrame.

    Parameters
    ----------
    attributes : tuple of str
        Names of the attributes.
    levels : list of tuples of str
        The levels that make each group.
    counts, weights : arrays of shape (g,)
        Rows of each group, and the sum of their weights.
    estimates, totals : dict of str to Estimate
        Each metric in the groups, and over all rows.
    confidence : float
        Level of the intervals.
    """

    attributes: tuple[str, ...]
    levels: list[tuple[str, ...]]
    counts: NDArray[np.int64]
    weights: Array
    estimates: dict[str, Estimate]
    totals: dict[str, Estimate]
    confidence: float

    @property
    def name(self) -> str:
        """The attributes in one word, such as "sex × race"."""
        return " × ".join(self.attributes)

    @property
    def groups(self) -> list[str]:
        """The groups in one word each, such as "Female, Black"."""
        return [", ".join(levels) for levels in self.levels]

    @property
    def judged(self) -> Mask:
        """Whether each group can be compared: a group of one cannot."""
        return np.asarray(self.counts > 1)

    @cached_property
    def by_group(self) -> pd.DataFrame:
        """One row per group, one column per metric, and ``count``."""
        return self._frame({name: e.value for name, e in self.estimates.items()})

    @cached_property
    def overall(self) -> pd.Series:
        """The metrics of all rows."""
        counted = {"count": float(self.counts.sum())}
        values = counted | {name: float(e.value[0]) for name, e in self.totals.items()}
        return _series(values)

    def intervals(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the lower and the upper ends, in the shape of `by_group`."""
        ends = {name: e.interval(self.confidence) for name, e in self.estimates.items()}
        low, high = ({name: pair[i] for name, pair in ends.items()} for i in (0, 1))
        return self._frame(low), self._frame(high)

    def difference(self, method: Method = "between_groups") -> pd.Series:
        """Return the largest difference of each metric, between groups or to all rows."""
        return _series({name: self._far(e, name, method) for name, e in self.estimates.items()})

    def ratio(self, method: Method = "between_groups") -> pd.Series:
        """Return the smallest ratio of each metric, between groups or to all rows."""
        return _series({name: self._near(e, name, method) for name, e in self.estimates.items()})

    def gap(self, metric: str, confidence: float | None = None) -> tuple[Gap, Gap]:
        """Return the difference and the ratio of one metric with their intervals."""
        level = self.confidence if confidence is None else confidence
        estimate = self.estimates[metric]
        return difference(estimate, level, self.judged), ratio(estimate, level, self.judged)

    def extremes(self, metric: str) -> tuple[int, int] | None:
        """Return the positions of the largest and the smallest value; None without two groups."""
        value = np.where(self.judged, self.estimates[metric].value, np.nan)
        if np.isfinite(value).sum() < 2:
            return None
        return int(np.nanargmax(value)), int(np.nanargmin(value))

    def _compared(self, estimate: Estimate) -> Array:
        value = estimate.value
        return value[self.judged & np.isfinite(value)]

    def _far(self, estimate: Estimate, name: str, method: Method) -> float:
        value = self._compared(estimate)
        if not len(value):
            return np.nan
        if _check_method(method) == "between_groups":
            return float(np.ptp(value))
        return float(np.abs(value - self.totals[name].value[0]).max())

    def _near(self, estimate: Estimate, name: str, method: Method) -> float:
        value = self._compared(estimate)
        if not len(value) or (value < 0).any():
            return np.nan
        between = _check_method(method) == "between_groups"
        total = value.max() if between else float(self.totals[name].value[0])
        if not (total > 0 and value.max() > 0):
            return np.nan
        return float(min(value.min() / total, total / value.max()))

    def _frame(self, values: dict[str, Array]) -> pd.DataFrame:
        # Numbered, since an attribute may have the name of a metric.
        columns: dict[str, Any] = {
            f"{j}": [levels[j] for levels in self.levels] for j in range(len(self.attributes))
        }
        frame = frames.make_frame(columns | {"count": self.counts} | values)
        frame = frame.set_index(list(columns))
        frame.index.names = list(self.attributes)
        return frame


def _check_method(method: Any) -> str:
    if method not in ("between_groups", "to_overall"):
        raise ValueError(f"method={method!r} is unknown; choose between_groups or to_overall")
    return str(method)


def _series(values: dict[str, float]) -> pd.Series:
    frame = frames.make_frame({"metric": list(values), "value": list(values.values())})
    series: pd.Series = frame.set_index("metric")["value"].rename(None)
    series.index.name = None
    return series


def group_frames(judged: Judged, model: int) -> list[GroupFrame]:
    """Return the metrics of one model in the groups of each attribute, and of all crossed."""
    totals = judged.estimates(model, ())
    return [_group_frame(judged, model, grouping, totals) for grouping in judged.groupings]


def _group_frame(
    judged: Judged, model: int, grouping: tuple[int, ...], totals: dict[str, Estimate]
) -> GroupFrame:
    attributes = [judged.attributes[j] for j in grouping]
    groups = judged.statistics(grouping)
    levels = [
        tuple(a.levels[int(code)] for a, code in zip(attributes, cell, strict=True))
        for cell in groups.cells
    ]
    return GroupFrame(
        tuple(a.name for a in attributes), levels, groups.rows, groups.weight,
        judged.estimates(model, grouping), totals, judged.settings.confidence,
    )  # fmt: skip
