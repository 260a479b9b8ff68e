"""Two passes over rows in groups: a survey, then the statistics of all cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalefair._typing import Array
from scalefair.data import Look, Numbers, Sums, Survey, survey_rows
from scalefair.errors import check_choice
from scalefair.measures.group_metrics import (
    Distributions,
    Estimate,
    Quantile,
    binned_distributions,
    choose_metrics,
    estimate_of,
    exact_distributions,
)
from scalefair.measures.group_rows import AuditRows, Missing, read_attributes
from scalefair.measures.group_statistics import GroupAccumulator, GroupStatistics, Plan

PASS_ROWS = 16384
"""Rows per chunk of the second pass."""

SURVEY_SAMPLE_ROWS = 20_000
"""Rows that bins of streamed predictions are learnt from."""

N_BINS = 2048
"""Streamed predictions are counted between so many quantiles of a sample."""


@dataclass(frozen=True)
class GroupSettings:
    """How groups are compared; the parameters of `group_gaps`."""

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
        check_choice("missing", self.missing, ("error", "group", "drop"))
        check_choice("interval", self.interval, ("analytic", "bootstrap"))
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


@dataclass(frozen=True, eq=False)
class SurveyedRows:
    """Rows after the first pass: its survey, and what the second pass counts.

    `predictions` and `truth` are spread and values of those of each model and of the targets.
    """

    rows: AuditRows
    settings: GroupSettings
    survey: Survey
    plan: Plan
    predictions: list[Numbers]
    truth: Numbers | None


def survey_groups(
    rows: AuditRows, settings: GroupSettings, *, size: int = SURVEY_SAMPLE_ROWS,
    groups: bool = False, every: bool = False,
) -> SurveyedRows:  # fmt: skip
    """Make the first pass, with a sample of `size` rows.

    With `groups` combinations of categories are listed, with `every` numbers are such, too.
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
    predictions = survey.parts["x"].numbers
    truth = survey.parts["y"].numbers[0] if "y" in survey.parts else None
    attributes = read_attributes(survey, settings.bins, settings.missing)
    grouped = tuple(j for j, attribute in enumerate(attributes) if attribute.levels)
    crossings = (grouped,) if settings.intersections else tuple((j,) for j in grouped)
    threshold = np.nan if settings.threshold is None else settings.threshold
    cuts = np.array([0.5 if p.is_binary else threshold for p in predictions])
    plan = Plan(
        rows.models, attributes, crossings or ((),), settings.missing, cuts, truth is not None,
        None if rows.in_memory else _bin_edges(survey.sample.chunk.x),
        settings.n_resamples if settings.interval == "bootstrap" else 0, settings.seed,
    )  # fmt: skip
    return SurveyedRows(rows, settings, survey, plan, predictions, truth)


def _bin_edges(sample: Any) -> Array:
    """Quantiles of the sampled predictions, all values where they are few; of shape (M, N_BINS)."""
    predictions = np.asarray(sample, np.float64).T
    edges = np.empty((len(predictions), N_BINS))
    for row, values in zip(edges, predictions, strict=True):
        ends = np.unique(values)
        if len(ends) > N_BINS:
            ends = np.unique(np.quantile(values, np.linspace(0, 1, N_BINS), method="inverted_cdf"))
        row[: len(ends)], row[len(ends) :] = ends, ends[-1]
    return edges


@dataclass(frozen=True, eq=False)
class CountedGroups:
    """Rows after the second pass: the statistics of each crossing.

    And the distributions of predictions where rows are in memory.
    """

    surveyed: SurveyedRows
    crossed: Sums
    exact: Distributions | None

    def statistics(self, grouping: Sequence[int]) -> GroupStatistics:
        """Return the statistics of the groups of some attributes."""
        for crossing, cells in zip(self.surveyed.plan.crossings, self.crossed, strict=True):
            if set(grouping) <= set(crossing):
                return cells.groups([crossing.index(j) for j in grouping])  # type: ignore[no-any-return]
        raise KeyError(grouping)

    def estimates(self, model: int, grouping: Sequence[int]) -> dict[str, Estimate]:
        """Return the metrics of one model in the groups of some attributes."""
        rows, groups = self.surveyed, self.statistics(grouping)
        names, quantiles = choose_metrics(
            rows.predictions[model], rows.truth, rows.settings.quantiles, rows.settings.metrics,
            has_decisions=bool(np.isfinite(rows.plan.cuts[model])),
        )  # fmt: skip
        estimates: dict[str, Estimate] = {
            name: estimate_of(groups, len(rows.plan.models), model, name) for name in names
        }
        if self.exact is not None:
            each = self.exact(model, grouping)
        else:
            each = binned_distributions(groups, model, rows.plan.edges[model])  # type: ignore[index]
        return estimates | {f"quantile_{q:g}": Quantile(q, each) for q in quantiles}


def count_groups(surveyed: SurveyedRows, crossed: Sums | None = None) -> CountedGroups:
    """Make the second pass, unless its statistics are there already.

    A category with a group of one is refused: it has no spread. A rare number is measured all the
    same, and a group of one of its values not compared.
    """
    rows, plan = surveyed.rows, surveyed.plan
    if crossed is None:
        crossed = rows.source.fold(lambda: GroupAccumulator(plan), PASS_ROWS)
    exact = None
    if plan.edges is None:
        (chunk,) = rows.source.chunks(surveyed.survey.n_rows)
        exact = exact_distributions(plan.rows(chunk))
    counts = CountedGroups(surveyed, crossed, exact)
    for j, attribute in enumerate(plan.attributes):
        if not attribute.levels or attribute.kind not in ("categorical", "boolean"):
            continue
        groups = counts.statistics((j,))
        alone = groups.cells[groups.rows == 1, 0]
        if len(alone):
            raise ValueError(
                f"sensitive column {attribute.name!r}: the group "
                f"{attribute.levels[int(alone[0])]!r} has only one row, of which no difference can "
                "be judged; merge it with another level, or leave the row out"
            )
    return counts
