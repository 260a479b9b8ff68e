"""Two passes over the rows of an audit: a survey, then the statistics of all groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalefair._typing import Array
from scalefair.data import Look, Numbers, Survey, survey_rows
from scalefair.measures.grouping.attributes import Attribute, Missing, read_attributes
from scalefair.measures.grouping.cells import (
    CrossedStatistics,
    GroupAccumulator,
    GroupStatistics,
    Plan,
)
from scalefair.measures.grouping.intervals import Estimate
from scalefair.measures.grouping.metrics import (
    Distributions,
    Metrics,
    binned_distributions,
    choose_metrics,
    estimates,
    exact_distributions,
    quantile_estimates,
)
from scalefair.measures.grouping.rows import AuditRows

PASS_ROWS = 16384
"""Rows per chunk of the second pass."""

SURVEY_SAMPLE_ROWS = 20_000
"""Rows that bins of streamed predictions are learnt from."""

BINS = 2048
"""Streamed predictions are counted between so many quantiles of a sample."""


@dataclass(frozen=True)
class GroupSettings:
    """How groups are judged; the parameters of `group_gaps`."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    threshold: float | None = None
    metrics: Any = None
    bins: Mapping[str, Sequence[float]] | None = None
    intersections: bool = True
    missing: Missing = "error"
    confidence: float = 0.95
    interval: Literal["analytic", "bootstrap"] = "analytic"
    n_resamples: int = 500
    seed: int = 0

    def check(self) -> GroupSettings:
        """Return the settings, or raise a ValueError that names the one that is wrong."""
        _check_choice("missing", self.missing, ("error", "group", "drop"))
        _check_choice("interval", self.interval, ("analytic", "bootstrap"))
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence={self.confidence!r}; expected a number between 0 and 1")
        for q in self.quantiles:
            if not 0 < q < 1:
                raise ValueError(f"quantiles has {q!r}; expected numbers between 0 and 1")
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(f"threshold={self.threshold!r}; expected a finite number or None")
        if self.interval == "bootstrap" and self.n_resamples < 50:
            raise ValueError(
                f"n_resamples={self.n_resamples}; expected at least 50: fewer give no interval"
            )
        return self


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows after the first pass.

    Parameters
    ----------
    rows : AuditRows
        The rows.
    settings : GroupSettings
        How they are judged.
    survey : Survey
        What the first pass told.
    plan : Plan
        What the second pass counts.
    """

    rows: AuditRows
    settings: GroupSettings
    survey: Survey
    plan: Plan

    @property
    def predictions(self) -> list[Numbers]:
        """Spread and values of the predictions of each model."""
        return self.survey.parts["x"].numbers

    @property
    def truth(self) -> Numbers | None:
        """Spread and values of the targets, if any."""
        part = self.survey.parts.get("y")
        return None if part is None else part.numbers[0]


@dataclass(frozen=True, eq=False)
class Judged(Prepared):
    """The statistics of all groups of some rows.

    Parameters
    ----------
    crossed : CrossedStatistics
        Statistics of each crossing of the plan.
    distributions : tuple of Distributions
        Of each crossing.
    """

    crossed: CrossedStatistics
    distributions: tuple[Distributions, ...]

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """How each attribute is read."""
        return self.plan.attributes

    @property
    def groupings(self) -> list[tuple[int, ...]]:
        """Each grouped attribute alone and, if asked for, all of them crossed."""
        alone: list[tuple[int, ...]] = [
            (j,) for j, attribute in enumerate(self.attributes) if attribute.is_grouped
        ]
        crossed = len(alone) > 1 and self.settings.intersections
        return [*alone, *self.plan.crossings] if crossed else alone

    def statistics(self, grouping: Sequence[int]) -> GroupStatistics:
        """Return the statistics of the groups of some attributes."""
        at, kept = self._place(grouping)
        statistics: GroupStatistics = self.crossed[at].groups(kept)
        return statistics

    def metrics(self, model: int) -> Metrics:
        """Return what is judged of one model."""
        s = self.settings
        has_decisions = bool(np.isfinite(self.plan.cuts[model]))
        return choose_metrics(
            self.predictions[model], self.truth, s.quantiles, s.metrics,
            has_decisions=has_decisions,
        )  # fmt: skip

    def estimates(self, model: int, grouping: Sequence[int]) -> dict[str, Estimate]:
        """Return the metrics of one model in the groups of some attributes."""
        at, kept = self._place(grouping)
        metrics = self.metrics(model)
        statistics = self.crossed[at].groups(kept)
        found = estimates(statistics, len(self.plan.models), model, metrics.names)
        groups = self.distributions[at](model, kept)
        return found | quantile_estimates(groups, metrics.quantiles)

    def _place(self, grouping: Sequence[int]) -> tuple[int, list[int]]:
        """Which crossing has these attributes, and where in it."""
        for at, crossing in enumerate(self.plan.crossings):
            if set(grouping) <= set(crossing):
                return at, [crossing.index(j) for j in grouping]
        raise KeyError(grouping)


def prepare(
    rows: AuditRows,
    settings: GroupSettings,
    *,
    size: int = SURVEY_SAMPLE_ROWS,
    groups: bool = False,
    every: bool = False,
) -> Prepared:
    """Make the first pass.

    Parameters
    ----------
    rows, settings
        As in `Prepared`.
    size : int
        Of the sample.
    groups, every : bool
        Whether combinations of categories are listed, and whether numbers are such, too.
    """
    looks = {
        "x": Look("y_pred", values=True),
        "s": Look(
            "sensitive_features", values=True, groups=groups, every=every, bins=settings.bins
        ),
        "y": Look("y_true", values=True),
    }
    drop = settings.missing == "drop"
    survey = survey_rows(rows.source, looks, size=size, seed=settings.seed, drop=drop)
    if survey.n_present < 2:
        gone = f", {survey.n_missing} of them without sensitive attributes" * bool(survey.n_missing)
        raise ValueError(
            f"{survey.n_present} of {survey.n_rows} rows can be judged{gone}; give at least two "
            "rows of positive weight"
        )
    return Prepared(rows, settings, survey, _plan(rows, settings, survey))


def judge(prepared: Prepared, crossed: CrossedStatistics | None = None) -> Judged:
    """Make the second pass, unless its statistics are there already."""
    rows, plan = prepared.rows, prepared.plan
    if crossed is None:
        crossed = rows.source.fold(lambda: GroupAccumulator(plan), PASS_ROWS)
    if rows.in_memory:
        (chunk,) = rows.source.chunks(prepared.survey.n_rows)
        counted = plan.rows(chunk)
        distributions = tuple(
            exact_distributions(plan.codes(counted, c), counted.predictions, counted.weight)
            for c in plan.crossings
        )
    else:
        distributions = tuple(binned_distributions(part, plan) for part in crossed)
    judged = Judged(rows, prepared.settings, prepared.survey, plan, crossed, distributions)
    _check_groups(judged)
    return judged


def _plan(rows: AuditRows, settings: GroupSettings, survey: Survey) -> Plan:
    attributes = read_attributes(survey, settings.bins, settings.missing)
    grouped = tuple(j for j, attribute in enumerate(attributes) if attribute.is_grouped)
    crossings = (grouped,) if settings.intersections else tuple((j,) for j in grouped)
    threshold = np.nan if settings.threshold is None else settings.threshold
    cuts = np.array([0.5 if p.is_binary else threshold for p in survey.parts["x"].numbers])
    resamples = settings.n_resamples if settings.interval == "bootstrap" else 0
    return Plan(
        rows.models, attributes, crossings or ((),), settings.missing, cuts,
        "y" in survey.parts, None if rows.in_memory else _edges(survey, len(rows.models)),
        resamples, settings.seed,
    )  # fmt: skip


def _edges(survey: Survey, n_models: int) -> Array:
    """Quantiles of the sampled predictions, all values where they are few; of shape (M, BINS)."""
    sample = np.asarray(survey.sample.chunk().x, np.float64)
    edges = np.empty((n_models, BINS))
    for row, values in zip(edges, sample.T, strict=True):
        ends = np.unique(values)
        if len(ends) > BINS:
            ends = np.unique(np.quantile(values, np.linspace(0, 1, BINS), method="inverted_cdf"))
        row[: len(ends)], row[len(ends) :] = ends, ends[-1]
    return edges


def _check_groups(judged: Judged) -> None:
    """Refuse a category with a group of one: it has no spread to judge by.

    A number that is rare is measured all the same, and a group of one of its values not compared.
    """
    for j, attribute in enumerate(judged.attributes):
        if not (attribute.is_grouped and attribute.kind in ("categorical", "boolean")):
            continue
        groups = judged.statistics((j,))
        alone = np.flatnonzero(groups.rows == 1)
        if len(alone):
            level = attribute.levels[int(groups.cells[alone[0], 0])]
            raise ValueError(
                f"sensitive column {attribute.name!r}: the group {level!r} has only one row, of "
                "which no difference can be judged; merge it with another level, or leave the row "
                "out"
            )
