"""Statistics of the cells that cross all grouped attributes: values that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from scalefair._hash import hash_uniform, row_hash
from scalefair._typing import Array, Chunk
from scalefair.data import Sums, frames
from scalefair.data.frames import Column
from scalefair.data.survey import present, without_gaps
from scalefair.errors import CannotJudgeError
from scalefair.measures.grouping.attributes import Attribute, Missing

MAX_CELLS = 10_000
"""More intersections than this would fill the memory, and nobody could judge them."""

RESAMPLED_ROWS = 4096


class CountedRows(NamedTuple):
    """The rows of a chunk that count; `numbers` are their global row numbers."""

    predictions: Array
    attributes: list[Column]
    truth: Array | None
    weight: Array
    numbers: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What is counted in every cell.

    Parameters
    ----------
    models : tuple of str
        Names of the models.
    attributes : tuple of Attribute
        All sensitive attributes, also the continuous ones, in the order of their columns.
    crossings : tuple of tuples of int
        Positions of the attributes whose levels are crossed; one statistic each.
    missing : {"error", "group", "drop"}
        What becomes of rows in which an attribute is missing.
    cuts : array of shape (M,)
        A prediction of at least this is a decision for; NaN where there are no decisions.
    has_truth : bool
        Whether targets are given.
    edges : array of shape (M, E) or None
        Upper ends of the bins in which streamed predictions are counted.
    n_resamples, seed : int
        Of the bootstrap; 0 resamples: none.
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
        index = present(chunk)
        x, s = np.asarray(chunk.x, np.float64), frames.as_table(chunk.s, one_column=True)
        weight = np.ones(len(x)) if chunk.weight is None else np.asarray(chunk.weight, np.float64)
        if len(index) < len(x):
            x, weight, s = x[index], weight[index], frames.take_rows(s, index)
        truth = None if chunk.y is None else np.asarray(chunk.y, np.float64)[index, 0]
        return CountedRows(x, frames.columns(s, "s"), truth, weight, chunk.row + index)

    def numeric(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose attributes are numbers and codes; rows that do not count weigh 0."""
        chunk = without_gaps(chunk) if self.missing == "drop" else chunk
        x, s = np.asarray(chunk.x, np.float64), frames.as_table(chunk.s, one_column=True)
        return replace(chunk, x=x, s=self.numbers(s), y=None)

    def numbers(self, s: Any) -> Array:
        """Return the attributes of some rows as numbers and codes, of shape (k, p)."""
        pairs = zip(self.attributes, frames.columns(s, "s"), strict=True)
        return np.column_stack([attribute.values(column) for attribute, column in pairs])

    def codes(self, rows: CountedRows, crossing: Sequence[int]) -> NDArray[np.int64]:
        """Return the levels of some attributes, of shape (k, p)."""
        out = np.empty((len(rows.weight), len(crossing)), np.int64)
        for place, j in enumerate(crossing):
            out[:, place] = self.attributes[j].codes(rows.attributes[j])
        return out

    def values(self, rows: CountedRows) -> Array:
        """Return [p] or, with targets, [p, p − y, |p − y|, (p − y)²] of each model, and y."""
        p = rows.predictions
        if rows.truth is None:
            return p
        y = rows.truth[:, None]
        return np.concatenate([p, p - y, np.abs(p - y), (p - y) ** 2, y], axis=1)

    def outcomes(self, rows: CountedRows) -> NDArray[np.intp]:
        """Return 2·decision + target of each row and model, of shape (k, M)."""
        truth = 0 if rows.truth is None else (rows.truth >= 0.5)[:, None]
        return 2 * (rows.predictions >= self.cuts) + np.asarray(truth, np.intp)


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """Counts, means and scatters of cells; `+` merges rows, `groups` merges cells.

    Parameters
    ----------
    cells : array of shape (c, p)
        Codes of the levels that make each cell.
    rows : array of shape (c,)
        Rows of positive weight.
    weight : array of shape (c,)
        Sum of their weights.
    mean, scatter : arrays of shape (c, v)
        Of `Plan.values`.
    outcomes, squares : arrays of shape (c, M, 4)
        Sums of the weights, and of their squares, of each outcome of `Plan.outcomes`.
    counts : array of shape (c, M, E + 1)
        Weight of the predictions in each bin.
    high : array of shape (c, M)
        The largest prediction.
    replicates : array of shape (c, 1 + v + 4M, B)
        Weighted bootstrap sums of 1, the values and the outcomes.
    """

    cells: NDArray[np.int64]
    rows: NDArray[np.int64]
    weight: Array
    mean: Array
    scatter: Array
    outcomes: Array
    squares: Array
    counts: Array
    high: Array
    replicates: Array

    def __add__(self, other: GroupStatistics) -> GroupStatistics:
        if not (len(self.cells) and len(other.cells)):
            return self if len(self.cells) else other
        parts = [
            np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)
        ]
        both = GroupStatistics(*parts)
        return both.groups(range(self.cells.shape[1]))

    def groups(self, kept: Sequence[int]) -> GroupStatistics:
        """Return the statistics of the groups that cross some of the attributes only.

        Cells merge by Chan's update: scatter = Σ scatter + Σ w (mean − common mean)².
        """
        cells, place = unique_rows(self.cells[:, list(kept)])
        n = len(cells)
        weight = _sum_at(place, n, self.weight)
        mean = _sum_at(place, n, self.weight[:, None] * self.mean) / weight[:, None]
        apart = self.weight[:, None] * (self.mean - mean[place]) ** 2
        high = np.full((n, self.high.shape[1]), -np.inf)
        np.maximum.at(high, place, self.high)
        return GroupStatistics(
            cells,
            _sum_at(place, n, self.rows),
            weight,
            mean,
            _sum_at(place, n, self.scatter + apart),
            _sum_at(place, n, self.outcomes),
            _sum_at(place, n, self.squares),
            _sum_at(place, n, self.counts),
            high,
            _sum_at(place, n, self.replicates),
        )


def unique_rows(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the rows that differ, sorted, and which of them each row is."""
    combined = np.zeros(len(codes), np.int64)
    for column in codes.T:
        combined = combined * (int(column.max(initial=0)) + 1) + column
        if len(combined) and combined.max() >= 2**31:
            combined = np.unique(combined, return_inverse=True)[1]
    _, first, place = np.unique(combined, return_index=True, return_inverse=True)
    return codes[first], place


def _sum_at(place: NDArray[np.intp], n: int, values: NDArray[Any]) -> NDArray[Any]:
    out = np.zeros((n, *values.shape[1:]), values.dtype)
    np.add.at(out, place, values)
    return out


class CrossedStatistics(Sums):
    """Statistics of each crossing of attributes; `+` adds crossing by crossing."""

    def check(self) -> CrossedStatistics:
        """Return the statistics; raise ValueError if there are more groups than one could judge."""
        if max(len(part.cells) for part in self) > MAX_CELLS:
            raise CannotJudgeError(
                f"the sensitive features have more than {MAX_CELLS} intersections; merge levels, "
                "or judge each attribute alone with intersections=False"
            )
        return self


class GroupAccumulator:
    """Accumulator of the statistics of cells, for each crossing of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sum: CrossedStatistics | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        new = cell_statistics(self._plan, self._plan.rows(chunk))
        self._sum = new if self._sum is None else self._sum + new
        self._sum.check()

    def result(self) -> CrossedStatistics:
        """Return the statistics of all rows seen."""
        return _of_no_rows(self._plan) if self._sum is None else self._sum


def _of_no_rows(plan: Plan) -> CrossedStatistics:
    n, truth = len(plan.models), np.empty(0) if plan.has_truth else None
    none = CountedRows(np.empty((0, n)), [], truth, np.empty(0), np.empty(0, np.int64))
    codes = (np.empty((0, len(crossing)), np.int64) for crossing in plan.crossings)
    return CrossedStatistics(_counted(plan, none, part) for part in codes)


def cell_statistics(plan: Plan, rows: CountedRows) -> CrossedStatistics:
    """Return the statistics of some rows."""
    return CrossedStatistics(
        _counted(plan, rows, plan.codes(rows, c)) for c in plan.crossings
    ).check()


def _counted(plan: Plan, rows: CountedRows, codes: NDArray[np.int64]) -> GroupStatistics:
    cells, place = unique_rows(codes)
    n, w = len(cells), rows.weight
    values, outcomes = plan.values(rows), plan.outcomes(rows)
    weight: Array = np.bincount(place, w, n).astype(np.float64)
    mean = _sums(place, n, w[:, None] * values) / weight[:, None]
    scatter = _sums(place, n, w[:, None] * (values - mean[place]) ** 2)
    high = np.full((n, len(plan.models)), -np.inf)
    np.maximum.at(high, place, rows.predictions)
    return GroupStatistics(
        cells, np.bincount(place, minlength=n), weight, mean, scatter,
        _tallied(place, n, outcomes, 4, w), _tallied(place, n, outcomes, 4, w**2),
        _binned(plan, place, n, rows), high, _resampled(plan, place, n, rows),
    )  # fmt: skip


def _sums(place: NDArray[np.intp], n: int, values: Array) -> Array:
    columns: list[Any] = [np.bincount(place, v, n) for v in values.T]
    return np.stack(columns, axis=1).astype(np.float64)


def _tallied(
    place: NDArray[np.intp], n: int, codes: NDArray[np.intp], size: int, weight: Array
) -> Array:
    """Weight of each code in each cell, of shape (n, M, size)."""
    tables = [np.bincount(place * size + code, weight, n * size) for code in codes.T]
    return np.stack([table.reshape(n, size) for table in tables], axis=1)


def _binned(plan: Plan, place: NDArray[np.intp], n: int, rows: CountedRows) -> Array:
    if plan.edges is None:
        return np.zeros((n, len(plan.models), 0))
    pairs = zip(plan.edges, rows.predictions.T, strict=True)
    bins = np.stack([np.searchsorted(edges, p, side="left") for edges, p in pairs], axis=1)
    return _tallied(place, n, bins, plan.edges.shape[1] + 1, rows.weight)


def _resampled(plan: Plan, place: NDArray[np.intp], n: int, rows: CountedRows) -> Array:
    """Sums over the rows of each resample, block by block: counts are (RESAMPLED_ROWS, B)."""
    values, outcomes = plan.values(rows), plan.outcomes(rows)
    size = plan.n_resamples
    out = np.zeros((n, 1 + values.shape[1] + 4 * outcomes.shape[1], size))
    if not (size and n):
        return out
    one_hot = (outcomes[:, :, None] == np.arange(4)).reshape(len(outcomes), -1)
    design = np.concatenate([np.ones((len(values), 1)), values, one_hot], axis=1)
    design *= rows.weight[:, None]
    for start in range(0, len(design), RESAMPLED_ROWS):
        block = slice(start, start + RESAMPLED_ROWS)
        counts = poisson_counts(rows.numbers[block], size, plan.seed)
        for cell in np.unique(place[block]):
            inside = place[block] == cell
            out[cell] += design[block][inside].T @ counts[inside]
    return out


def poisson_counts(rows: NDArray[np.int64], n_resamples: int, seed: int) -> Array:
    """Return how often each row occurs in each resample, of shape (k, B).

    The count of a row is Poisson with mean 1. It depends on the seed and the number of the row
    alone.
    """
    seeds = row_hash(seed, np.arange(n_resamples))
    uniform = np.stack([hash_uniform(int(s), rows) for s in seeds], axis=1)
    table = pdtr(np.arange(20), 1.0)
    return np.searchsorted(table, uniform, side="right").astype(np.float64)
