"""Models judged on the same rows: every number of the page, of its csv and of its JSON twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from scalefair._typing import DataFrame
from scalefair.auditing import Audit
from scalefair.report.rates import LEVEL, CalibrationLine, Distribution, ImpactRatio

SHARE = "explained_share"
DEPENDENCE = ("hsic_pvalue", "normalized_hsic", "distance_correlation", "mutual_information")
"""Measures of dependence; 0 means independent for all but p-values."""

CONTRIBUTION = "contribution"  # Of an input, the group of the entry, to the explained share


class Entry(NamedTuple):
    """A number of a model: over all rows, by attribute, or of one group; NaN ends: no interval."""

    attribute: str
    group: str
    measure: str
    value: float
    low: float = np.nan
    high: float = np.nan
    rows: int = 0
    small: bool = False

    @property
    def is_tiny(self) -> bool:
        """Whether a share of 1 is written as 0 %."""
        return abs(self.value) < 0.0005

    @property
    def error(self) -> float:
        """The standard error that belongs to the interval."""
        return (self.high - self.low) / (2 * float(ndtri(0.5 + LEVEL / 2)))


@dataclass(frozen=True, eq=False)
class Position:
    """One model of the page with all its numbers: a position of the slider, or a model beside it.

    Attributes
    ----------
    name : str
        What the page calls it, such as "at most 5 %".
    entries : tuple of Entry
        Its numbers, those of :func:`scalefair.audit` among them.
    limit : float or None
        The limit on the explained share that the model was chosen under.
    alpha, eta : float or None
        Ridge, and weight of the penalty.
    reason : str
        Why groups could not be judged, "" where they could.
    calibration, distributions : sequences of CalibrationLine and of Distribution
        By group.
    impacts : dict of str to sequence of ImpactRatio
        By rate: "Selection rate" of decisions, "Scoring rate" of scores.
    """

    name: str
    entries: tuple[Entry, ...] = ()
    limit: float | None = None
    alpha: float | None = None
    eta: float | None = None
    reason: str = ""
    calibration: Sequence[CalibrationLine] = ()
    distributions: Sequence[Distribution] = ()
    impacts: Mapping[str, Sequence[ImpactRatio]] = field(default_factory=dict)

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], Entry]:
        return {entry[:3]: entry for entry in self.entries}

    def get(self, measure: str, attribute: str = "", group: str = "") -> Entry:
        """Return a number; NaN where there is none."""
        key = (attribute, group, measure)
        return self._index.get(key, Entry(*key, np.nan))

    def has(self, measure: str) -> bool:
        """Return True if a measure is known for some attribute, group or all rows."""
        return any(entry.measure == measure for entry in self.entries)

    @cached_property
    def attributes(self) -> list[str]:
        """Attributes alone, then all together."""
        return list(dict.fromkeys(e.attribute for e in self.entries if e.measure == SHARE))

    @property
    def together(self) -> str:
        """The name of all attributes together."""
        return self.attributes[-1] if self.attributes else ""

    def groups(self, attribute: str) -> list[Entry]:
        """Return the mean predictions of the groups of an attribute, the largest group first."""
        means = (e for e in self.entries if e.attribute == attribute and e.group)
        return sorted((e for e in means if e.measure == "mean_prediction"), key=lambda e: -e.rows)

    def quantiles(self, group: Entry) -> list[Entry]:
        """Return the quantiles of the predictions of a group, all of them known or none."""
        own = [e for e in self.entries if e[:2] == group[:2] and e.measure.startswith("quantile_")]
        return [] if any(np.isnan(e.value) for e in own) else own

    def distribution(self, group: Entry) -> Distribution | None:
        """Return how the predictions of a group are distributed; None where that is not known."""
        return next((d for d in self.distributions if d[:2] == group[:2]), None)

    @property
    def contributions(self) -> list[Entry]:
        """Contributions of the inputs to the share of all attributes, the largest first."""
        own = [e for e in self.entries if e.measure == CONTRIBUTION]
        own = [e for e in own if e.attribute == own[0].attribute]
        return sorted(own, key=lambda e: -abs(e.value))

    def records(self) -> list[dict[str, Any]]:
        """Return the numbers as rows of the csv."""
        own = {"model": self.name, "limit": self.limit, "alpha": self.alpha, "eta": self.eta}
        entries = [*self.entries, *self._line_entries()]
        return [own | entry._asdict() for entry in entries]

    def _line_entries(self) -> Iterator[Entry]:
        """Yield the numbers of calibration and impact ratios."""
        for x in self.calibration:
            predicted, came = (f"{name} in {x.range}" for name in ("mean_prediction", "mean_target"))
            yield Entry(x.attribute, x.group, predicted, x.predicted, rows=x.rows)
            yield Entry(x.attribute, x.group, came, x.observed, x.low, x.high, x.rows)
        for rate, lines in self.impacts.items():
            name = "local_law_144_" + rate.lower().replace(" ", "_")
            for line in lines:
                numbers = {name: line.rate, f"{name}_impact_ratio": line.impact_ratio}
                for measure, value in numbers.items():
                    yield Entry(line.attribute, line.category, measure, value, rows=line.applicants)


def audit_entries(result: Audit, model: str) -> list[Entry]:
    """Return every number that an audit has of one model."""
    table, groups = result.table, result.groups
    columns = ["attribute", "measure", "value", "low", "high", "rows"]
    entries = [
        Entry(attribute, "", measure, *numbers) for attribute, measure, *numbers in rows_of(table, model, columns)
    ]
    columns = ["attribute", "group", "metric", "value", "low", "high", "count", "small"]
    if len(groups):
        entries += [Entry(*row) for row in rows_of(groups, model, columns)]
        overall = result.models[model].gaps.overall
        entries += [Entry("", "", str(name), float(x)) for name, x in overall.to_dict().items()]
    bias = {e[:2]: e.value for e in entries if e.measure == "bias"}
    means = [e for e in entries if e.measure == "mean_prediction" and e[:2] in bias]
    targets = [e._replace(measure="mean_target", value=e.value - bias[e[:2]], low=np.nan, high=np.nan) for e in means]
    return entries + targets


def rows_of(table: DataFrame, model: str, columns: list[str]) -> list[list[Any]]:
    """Return some columns of the rows of one model."""
    rows: list[list[Any]] = table.loc[table["model"] == model, columns].to_numpy().tolist()
    return rows


def normal_ends(value: float, error: float) -> tuple[float, float]:
    """Return the ends of the interval of a number with a standard error."""
    half = float(ndtri(0.5 + LEVEL / 2)) * error
    return value - half, value + half
