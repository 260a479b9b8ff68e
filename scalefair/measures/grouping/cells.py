"""Statistics of the cells that cross all grouped attributes: values that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Chunk
from scalefair.errors import CannotJudgeError
from scalefair.measures.grouping.attributes import Attribute
from scalefair.measures.grouping.poisson import poisson_counts
from scalefair.measures.grouping.survey import Kept, Missing, kept_rows

MAX_CELLS = 10_000
"""More intersections than this would fill the memory, and nobody could judge them."""

BLOCK = 4096


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

    def rows(self, chunk: Chunk) -> Kept:
        """Return the rows of a chunk that count."""
        return kept_rows(chunk, self.models, self.missing)

    def codes(self, kept: Kept, crossing: Sequence[int]) -> NDArray[np.int64]:
        """Return the levels of some attributes, of shape (k, p)."""
        out = np.empty((len(kept.weight), len(crossing)), np.int64)
        for place, j in enumerate(crossing):
            out[:, place] = self.attributes[j].codes(kept.attributes[j])
        return out

    def values(self, kept: Kept) -> Array:
        """Return [p] or, with targets, [p, p − y, |p − y|, (p − y)²] of each model, and y."""
        p = kept.predictions
        if kept.truth is None:
            return p
        y = kept.truth[:, None]
        return np.concatenate([p, p - y, np.abs(p - y), (p - y) ** 2, y], axis=1)

    def outcomes(self, kept: Kept) -> NDArray[np.intp]:
        """Return 2·decision + target of each row and model, of shape (k, M)."""
        truth = 0 if kept.truth is None else (kept.truth >= 0.5)[:, None]
        return 2 * (kept.predictions >= self.cuts) + np.asarray(truth, np.intp)


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


class Crossed(tuple[GroupStatistics, ...]):
    """Statistics of each crossing of attributes; `+` adds crossing by crossing."""

    def __add__(self, other: Any) -> Crossed:
        return Crossed(a + b for a, b in zip(self, other, strict=True))

    def check(self) -> Crossed:
        """Complain of more groups than anybody could judge."""
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
        self._sum: Crossed | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        new = cell_statistics(self._plan, self._plan.rows(chunk))
        self._sum = new if self._sum is None else self._sum + new
        self._sum.check()

    def result(self) -> Crossed:
        """Return the statistics of all rows seen."""
        return _of_no_rows(self._plan) if self._sum is None else self._sum


def _of_no_rows(plan: Plan) -> Crossed:
    n, truth = len(plan.models), np.empty(0) if plan.has_truth else None
    none = Kept(np.empty((0, n)), [], truth, np.empty(0), np.empty(0, np.int64))
    codes = (np.empty((0, len(crossing)), np.int64) for crossing in plan.crossings)
    return Crossed(_counted(plan, none, part) for part in codes)


def cell_statistics(plan: Plan, kept: Kept) -> Crossed:
    """Return the statistics of some rows."""
    return Crossed(_counted(plan, kept, plan.codes(kept, c)) for c in plan.crossings).check()


def _counted(plan: Plan, kept: Kept, codes: NDArray[np.int64]) -> GroupStatistics:
    cells, place = unique_rows(codes)
    n, w = len(cells), kept.weight
    values, outcomes = plan.values(kept), plan.outcomes(kept)
    weight: Array = np.bincount(place, w, n).astype(np.float64)
    mean = _sums(place, n, w[:, None] * values) / weight[:, None]
    scatter = _sums(place, n, w[:, None] * (values - mean[place]) ** 2)
    high = np.full((n, len(plan.models)), -np.inf)
    np.maximum.at(high, place, kept.predictions)
    return GroupStatistics(
        cells, np.bincount(place, minlength=n), weight, mean, scatter,
        _tallied(place, n, outcomes, 4, w), _tallied(place, n, outcomes, 4, w**2),
        _binned(plan, place, n, kept), high, _resampled(plan, place, n, kept),
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


def _binned(plan: Plan, place: NDArray[np.intp], n: int, kept: Kept) -> Array:
    if plan.edges is None:
        return np.zeros((n, len(plan.models), 0))
    pairs = zip(plan.edges, kept.predictions.T, strict=True)
    bins = np.stack([np.searchsorted(edges, p, side="left") for edges, p in pairs], axis=1)
    return _tallied(place, n, bins, plan.edges.shape[1] + 1, kept.weight)


def _resampled(plan: Plan, place: NDArray[np.intp], n: int, kept: Kept) -> Array:
    """Sums over the rows of each resample, block by block: a block of counts is (BLOCK, B)."""
    values, outcomes = plan.values(kept), plan.outcomes(kept)
    size = plan.n_resamples
    out = np.zeros((n, 1 + values.shape[1] + 4 * outcomes.shape[1], size))
    if not (size and n):
        return out
    one_hot = (outcomes[:, :, None] == np.arange(4)).reshape(len(outcomes), -1)
    design = np.concatenate([np.ones((len(values), 1)), values, one_hot], axis=1)
    design *= kept.weight[:, None]
    for start in range(0, len(design), BLOCK):
        block = slice(start, start + BLOCK)
        counts = poisson_counts(kept.numbers[block], size, plan.seed)
        for cell in np.unique(place[block]):
            inside = place[block] == cell
            out[cell] += design[block][inside].T @ counts[inside]
    return out
