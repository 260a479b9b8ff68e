"""Two passes over rows in groups: a survey, then statistics of all cells, values that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from scalefair._hash import distinct
from scalefair._typing import Array, Chunk
from scalefair.data import ChunkSum, Look, Numbers, Sums, Survey, frames, survey_rows
from scalefair.data.survey import without_gaps
from scalefair.errors import CannotJudgeError, check_choice
from scalefair.measures.group_rows import Attribute, AuditRows, Missing, read_attributes

MAX_CELLS = 10_000  # More intersections than this would fill the memory, and could not be compared
PASS_ROWS = 16384  # Rows per chunk of the second pass
SURVEY_SAMPLE_ROWS = 20_000  # Rows that bins of streamed predictions are learnt from
N_BINS = 2048  # Streamed predictions are counted between so many quantiles of a sample


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
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, ("error", "group", "drop"))
        levels = [("quantiles has ", q) for q in self.quantiles]
        for name, level in (("confidence=", self.confidence), *levels):
            if not 0 < level < 1:
                raise ValueError(f"{name}{level!r}; expected a number between 0 and 1")
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(f"threshold={self.threshold!r}; expected a finite number or None")


class CountedRows(NamedTuple):
    """The k rows of a chunk that count."""

    predictions: Array
    codes: NDArray[np.int64]  # (k, p): levels of all attributes, 0 where one has none
    values: Array  # (k, v): [p] or, with targets, [p, p − y, |p − y|, (p − y)²] of each model, and y
    outcomes: NDArray[np.intp]  # (k, M): 2·decision + target
    weight: Array


@dataclass(frozen=True, eq=False)
class Plan:
    """What is counted in every cell."""

    settings: GroupSettings
    models: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    crossings: tuple[tuple[int, ...], ...]  # positions of attributes whose levels are crossed
    cuts: Array  # (M,): predictions from there on are decisions for; NaN: there are no decisions
    edges: Array | None  # (M, E): upper ends of the bins in which streamed predictions are counted

    def rows(self, chunk: Chunk) -> CountedRows:
        """Return the rows of a chunk that count."""
        chunk = without_gaps(chunk) if self.settings.missing == "drop" else chunk
        weight = chunk.weights
        index = np.flatnonzero(weight > 0)
        p, s = np.asarray(chunk.x, np.float64), frames.as_table(chunk.s, one_column=True)
        if len(index) < len(p):
            p, weight, s = p[index], weight[index], frames.take_rows(s, index)
        values, outcomes = p, 2 * (p >= self.cuts).astype(np.intp)
        if chunk.y is not None:
            y = np.asarray(chunk.y, np.float64)[index]
            values = np.concatenate([p, p - y, np.abs(p - y), (p - y) ** 2, y], axis=1)
            outcomes += y >= 0.5
        codes = np.zeros((len(p), len(self.attributes)), np.int64)
        for j, column in enumerate(frames.columns(s, "s")):
            if self.attributes[j].levels:
                codes[:, j] = self.attributes[j].codes(column)
        return CountedRows(p, codes, values, outcomes, weight)

    def numeric(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose attributes are numbers and codes; rows that do not count weigh 0."""
        chunk = without_gaps(chunk) if self.settings.missing == "drop" else chunk
        x, s = np.asarray(chunk.x, np.float64), frames.as_table(chunk.s, one_column=True)
        pairs = zip(self.attributes, frames.columns(s, "s"), strict=True)
        numbers = np.column_stack([attribute.values(column) for attribute, column in pairs])
        return replace(chunk, x=x, s=numbers, y=None)


@dataclass(frozen=True, eq=False)
class SurveyedRows:
    """Rows after the first pass: its survey, what it says of predictions and targets, and what to count next."""

    rows: AuditRows
    survey: Survey
    plan: Plan
    predictions: list[Numbers]
    truth: Numbers | None


def survey_groups(
    rows: AuditRows,
    settings: GroupSettings,
    *,
    size: int = SURVEY_SAMPLE_ROWS,
    groups: bool = False,
    every: bool = False,
) -> SurveyedRows:
    """Make the first pass; with `groups` combinations of categories are listed, with `every` of numbers, too."""
    s = Look("sensitive_features", values=True, groups=groups, every=every, bins=settings.bins)
    looks = {"x": Look("y_pred", values=True), "s": s, "y": Look("y_true", values=True)}
    drop = settings.missing == "drop"
    survey = survey_rows(rows.source, looks, size=size, seed=settings.seed, drop=drop)
    if survey.n_present < 2:
        gone = f", {survey.n_missing} of them without sensitive attributes" * bool(survey.n_missing)
        raise ValueError(
            f"{survey.n_present} of {survey.n_rows} rows can be judged{gone}; give at least two rows of positive weight"
        )
    predictions = survey.parts["x"].numbers
    truth = survey.parts["y"].numbers[0] if "y" in survey.parts else None
    attributes = read_attributes(survey, settings.bins, settings.missing)
    grouped = tuple(j for j, attribute in enumerate(attributes) if attribute.levels)
    crossings = (grouped,) if settings.intersections else tuple((j,) for j in grouped)
    threshold = np.nan if settings.threshold is None else settings.threshold
    cuts = np.array([0.5 if p.is_binary else threshold for p in predictions])
    edges = None if rows.in_memory else _bin_edges(np.asarray(survey.sample.chunk.x, np.float64))
    plan = Plan(settings, rows.models, attributes, crossings or ((),), cuts, edges)
    return SurveyedRows(rows, survey, plan, predictions, truth)


def _bin_edges(sample: Array) -> Array:
    """Quantiles of the sampled predictions, all values where they are few; of shape (M, N_BINS)."""
    edges = np.empty((sample.shape[1], N_BINS))
    for row, values in zip(edges, sample.T, strict=True):
        ends = np.unique(values)
        if len(ends) > N_BINS:
            ends = np.unique(np.quantile(values, np.linspace(0, 1, N_BINS), method="inverted_cdf"))
        row[: len(ends)], row[len(ends) :] = ends, ends[-1]
    return edges


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """Counts, means and scatters of cells; `+` merges rows, `groups` merges cells."""

    cells: NDArray[np.int64]  # (c, p): codes of the levels that make each cell
    rows: NDArray[np.int64]  # (c,): of positive weight
    weight: Array  # (c,): sum of the weights
    mean: Array  # (c, v): of `CountedRows.values`
    scatter: Array  # (c, v)
    outcomes: Array  # (c, M, 4): sums of the weights of each outcome
    squares: Array  # (c, M, 4): sums of their squares
    counts: Array  # (c, M, E + 1): weight of the predictions in each bin
    high: Array  # (c, M): the largest prediction

    def __add__(self, other: GroupStatistics) -> GroupStatistics:
        if not (len(self.cells) and len(other.cells)):
            return self if len(self.cells) else other
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = GroupStatistics(*(np.concatenate(pair) for pair in pairs))
        return both.groups(range(self.cells.shape[1]))

    def groups(self, columns: Sequence[int]) -> GroupStatistics:
        """Return the statistics of groups of some attributes: Σ scatter + Σ w (mean − common mean)² (Chan)."""
        cells, _, group = distinct(self.cells[:, list(columns)])
        if len(cells) > MAX_CELLS:
            raise CannotJudgeError(
                f"the sensitive features have more than {MAX_CELLS} intersections; merge levels, "
                "or audit each attribute alone with intersections=False"
            )
        n, w, indicator = len(cells), self.weight[:, None], _indicator(group, len(cells))
        added = ("rows", "weight", "outcomes", "squares", "counts")
        sums = {name: _sums(indicator, vars(self)[name]) for name in added}
        mean = _sums(indicator, w * self.mean) / sums["weight"][:, None]
        scatter = _sums(indicator, self.scatter + w * (self.mean - mean[group]) ** 2)
        high = np.full((n, self.high.shape[1]), -np.inf)
        np.maximum.at(high, group, self.high)
        return GroupStatistics(cells=cells, mean=mean, scatter=scatter, high=high, **sums)


def _indicator(cell: NDArray[np.intp], n: int) -> Any:
    """Return the sparse (n, rows) matrix that sums over the rows of each cell."""
    return csr_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), (len(cell), n)).T


def _sums(indicator: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Sum the values of the rows of each cell, of shape (n, ...)."""
    sums = indicator @ values.reshape(len(values), math.prod(values.shape[1:]))
    return np.asarray(sums.reshape(indicator.shape[0], *values.shape[1:]), values.dtype)


def count_cells(plan: Plan) -> ChunkSum:
    """Return an accumulator of the statistics of cells, for each crossing of a plan."""
    none: Any = np.empty((0, 0))
    nothing = GroupStatistics(*[none] * len(fields(GroupStatistics)))
    return ChunkSum(
        lambda chunk: Sums(map(partial(_counted, plan, plan.rows(chunk)), plan.crossings)),
        lambda: Sums([nothing] * len(plan.crossings)),
    )


def _counted(plan: Plan, rows: CountedRows, crossing: Sequence[int]) -> GroupStatistics:
    cells, _, cell = distinct(rows.codes[:, list(crossing)])
    n, w, values, indicator = len(cells), rows.weight, rows.values, _indicator(cell, len(cells))
    weight = _sums(indicator, w)
    mean = _sums(indicator, w[:, None] * values) / weight[:, None]
    scatter = _sums(indicator, w[:, None] * (values - mean[cell]) ** 2)
    counts, high = np.zeros((n, len(plan.models), 0)), np.full((n, len(plan.models)), -np.inf)
    np.maximum.at(high, cell, rows.predictions)
    if plan.edges is not None:
        pairs = zip(plan.edges, rows.predictions.T, strict=True)
        bins = np.stack([np.searchsorted(edges, p, side="left") for edges, p in pairs], axis=1)
        counts = _tallied(cell, n, bins, plan.edges.shape[1] + 1, w)
    return GroupStatistics(
        cells, np.bincount(cell, minlength=n), weight, mean, scatter,
        _tallied(cell, n, rows.outcomes, 4, w), _tallied(cell, n, rows.outcomes, 4, w**2),
        counts, high,
    )  # fmt: skip


def _tallied(cell: NDArray[np.intp], n: int, codes: NDArray[np.intp], size: int, weight: Array) -> Array:
    """Weight of each code in each cell, of shape (n, M, size)."""
    tables = [np.bincount(cell * size + code, weight, n * size) for code in codes.T]
    return np.stack([table.reshape(n, size) for table in tables], axis=1)
