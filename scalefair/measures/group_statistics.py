"""Statistics of the cells that cross all grouped attributes: values that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import pdtr

from scalefair._hash import distinct, hash_uniform, row_hash
from scalefair._typing import Array, Chunk
from scalefair.data import Sums, frames
from scalefair.data.survey import weights_of, without_gaps
from scalefair.errors import CannotJudgeError
from scalefair.measures.group_rows import Attribute, Missing

MAX_CELLS = 10_000
"""More intersections than this would fill the memory, and nobody could judge them."""

RESAMPLED_ROWS = 4096
"""Rows whose bootstrap counts are drawn at a time."""


class CountedRows(NamedTuple):
    """The k rows of a chunk that count, and their global row numbers.

    `codes` (k, p) are the levels of all attributes, 0 where one has none. `values` (k, v) are [p]
    or, with targets, [p, p − y, |p − y|, (p − y)²] of each model, and y; `outcomes` (k, M) are
    2·decision + target.
    """

    predictions: Array
    codes: NDArray[np.int64]
    values: Array
    outcomes: NDArray[np.intp]
    weight: Array
    numbers: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What is counted in every cell.

    `crossings` are positions of attributes whose levels are crossed. A prediction of at least its
    `cut` is a decision for; NaN: there are no decisions. `edges`, of shape (M, E), are the upper
    ends of the bins in which streamed predictions are counted.
    """

    models: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    crossings: tuple[tuple[int, ...], ...]
    missing: Missing
    cuts: Array
    has_truth: bool
    edges: Array | None = None
    n_resamples: int = 0
    seed: int = 0

    def rows(self, chunk: Chunk) -> CountedRows:
        """Return the rows of a chunk that count."""
        chunk = without_gaps(chunk) if self.missing == "drop" else chunk
        weight = weights_of(chunk)
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
        return CountedRows(p, codes, values, outcomes, weight, chunk.row + index)

    def numeric(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose attributes are numbers and codes; rows that do not count weigh 0."""
        chunk = without_gaps(chunk) if self.missing == "drop" else chunk
        x, s = np.asarray(chunk.x, np.float64), frames.as_table(chunk.s, one_column=True)
        pairs = zip(self.attributes, frames.columns(s, "s"), strict=True)
        numbers = np.column_stack([attribute.values(column) for attribute, column in pairs])
        return replace(chunk, x=x, s=numbers, y=None)


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
    replicates: Array  # (c, 1 + v + 4M, B): bootstrap sums of 1, the values and the outcomes

    def __add__(self, other: GroupStatistics) -> GroupStatistics:
        if not (len(self.cells) and len(other.cells)):
            return self if len(self.cells) else other
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = GroupStatistics(*(np.concatenate(pair) for pair in pairs))
        return both.groups(range(self.cells.shape[1]))

    def groups(self, columns: Sequence[int]) -> GroupStatistics:
        """Return the statistics of the groups that cross some of the attributes only.

        Cells merge by Chan's update: scatter = Σ scatter + Σ w (mean − common mean)².
        """
        cells, _, group = distinct(self.cells[:, list(columns)])
        n = len(cells)
        weight = _sums(group, n, self.weight)
        mean = _sums(group, n, self.weight[:, None] * self.mean) / weight[:, None]
        apart = self.weight[:, None] * (self.mean - mean[group]) ** 2
        high = np.full((n, self.high.shape[1]), -np.inf)
        np.maximum.at(high, group, self.high)
        scatter = _sums(group, n, self.scatter + apart)
        outcomes, squares = _sums(group, n, self.outcomes), _sums(group, n, self.squares)
        return GroupStatistics(
            cells, _sums(group, n, self.rows), weight, mean, scatter, outcomes, squares,
            _sums(group, n, self.counts), high, _sums(group, n, self.replicates),
        )  # fmt: skip


def _sums(cell: NDArray[np.intp], n: int, values: NDArray[Any]) -> NDArray[Any]:
    """Sum the values of the rows of each cell, of shape (n, ...)."""
    indicator = csr_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), (len(cell), n))
    sums = indicator.T @ values.reshape(len(values), int(np.prod(values.shape[1:])))
    return np.asarray(sums.reshape(n, *values.shape[1:]), values.dtype)


@dataclass(eq=False)
class GroupAccumulator:
    """Accumulator of the statistics of cells, for each crossing of a plan."""

    plan: Plan
    _sum: Sums | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        rows, plan = self.plan.rows(chunk), self.plan
        new = Sums(_counted(plan, rows, crossing) for crossing in plan.crossings)
        self._sum = new if self._sum is None else self._sum + new
        if max(len(part.cells) for part in self._sum) > MAX_CELLS:
            raise CannotJudgeError(
                f"the sensitive features have more than {MAX_CELLS} intersections; merge levels, "
                "or judge each attribute alone with intersections=False"
            )

    def result(self) -> Sums:
        """Return the statistics of all rows seen."""
        return _of_no_rows(self.plan) if self._sum is None else self._sum


def _of_no_rows(plan: Plan) -> Sums:
    n, none = len(plan.models), np.empty(0)
    values = np.empty((0, 4 * n + 1 if plan.has_truth else n))
    outcomes, numbers = np.empty((0, n), np.intp), np.empty(0, np.int64)
    codes = np.empty((0, len(plan.attributes)), np.int64)
    rows = CountedRows(np.empty((0, n)), codes, values, outcomes, none, numbers)
    return Sums(_counted(plan, rows, crossing) for crossing in plan.crossings)


def _counted(plan: Plan, rows: CountedRows, crossing: Sequence[int]) -> GroupStatistics:
    cells, _, cell = distinct(rows.codes[:, list(crossing)])
    n, w, values = len(cells), rows.weight, rows.values
    weight = _sums(cell, n, w)
    mean = _sums(cell, n, w[:, None] * values) / weight[:, None]
    scatter = _sums(cell, n, w[:, None] * (values - mean[cell]) ** 2)
    high = np.full((n, len(plan.models)), -np.inf)
    np.maximum.at(high, cell, rows.predictions)
    counts = np.zeros((n, len(plan.models), 0))
    if plan.edges is not None:
        pairs = zip(plan.edges, rows.predictions.T, strict=True)
        bins = np.stack([np.searchsorted(edges, p, side="left") for edges, p in pairs], axis=1)
        counts = _tallied(cell, n, bins, plan.edges.shape[1] + 1, w)
    replicates = np.zeros((n, 1 + values.shape[1] + 4 * len(plan.models), plan.n_resamples))
    if plan.n_resamples:
        _resample(plan, cell, rows, out=replicates)
    return GroupStatistics(
        cells, np.bincount(cell, minlength=n), weight, mean, scatter,
        _tallied(cell, n, rows.outcomes, 4, w), _tallied(cell, n, rows.outcomes, 4, w**2),
        counts, high, replicates,
    )  # fmt: skip


def _tallied(
    cell: NDArray[np.intp], n: int, codes: NDArray[np.intp], size: int, weight: Array
) -> Array:
    """Weight of each code in each cell, of shape (n, M, size)."""
    tables = [np.bincount(cell * size + code, weight, n * size) for code in codes.T]
    return np.stack([table.reshape(n, size) for table in tables], axis=1)


def _resample(plan: Plan, cell: NDArray[np.intp], rows: CountedRows, out: Array) -> None:
    """Add up the rows of each resample, block by block: counts are (RESAMPLED_ROWS, B)."""
    width = 4 * rows.outcomes.shape[1]
    one_hot = (rows.outcomes[:, :, None] == np.arange(4)).reshape(len(cell), width)
    design = np.concatenate([np.ones((len(cell), 1)), rows.values, one_hot], axis=1)
    design *= rows.weight[:, None]
    for start in range(0, len(design), RESAMPLED_ROWS):
        block = slice(start, start + RESAMPLED_ROWS)
        counts = poisson_counts(rows.numbers[block], plan.n_resamples, plan.seed)
        for i in np.unique(cell[block]):
            inside = cell[block] == i
            out[i] += design[block][inside].T @ counts[inside]


def poisson_counts(rows: NDArray[np.int64], n_resamples: int, seed: int) -> Array:
    """Return how often each row occurs in each resample, of shape (k, B).

    The count of a row is Poisson with mean 1. It depends on the seed and the number of the row
    alone.
    """
    seeds = row_hash(seed, np.arange(n_resamples))
    uniform = np.stack([hash_uniform(int(s), rows) for s in seeds], axis=1)
    table = pdtr(np.arange(20), 1.0)
    return np.searchsorted(table, uniform, side="right").astype(np.float64)
