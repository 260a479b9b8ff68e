"""One pass over a source: rows of [φ(x), ψ(s), y] into moments, per fold on request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from scalefair._jit import add_pairs, add_rows
from scalefair._linalg import add_outer, mirror_upper, rank_k_update
from scalefair._typing import Array, Chunk
from scalefair._typing import Rows as RowArray
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.progress import Progress
from scalefair.data.sources import ArraySource, ChunkSource, FileSource
from scalefair.data.sources.base import cut_chunk
from scalefair.data.sources.threads import available_threads, one_blas_thread
from scalefair.features.base import row_filler
from scalefair.features.design import Design
from scalefair.features.transformer import LeafMap, TransformerMap
from scalefair.moments.checkpoint import Checkpoint, Counting
from scalefair.moments.moments import CrossMoments, FoldMoments, Moments
from scalefair.moments.partial import BOTH, KINDS, NO_Y, WEIGHTED, by_knowledge, with_kinds

# Rows whose features are computed at a time: few enough to stay in the cache of a core
BLOCK_ROWS = 128
DIVIDED_WORK = 1e8  # rows × features² from which on two threads are faster than one
READ_CHUNKS = 2  # of files that are read and encoded together: each takes a time of its own for every column
# State of a cached row: no features yet; features; features minus the shift of a later pass
MISSING, RAW, SHIFTED = range(3)


def squeezed(values: Array) -> Array:
    """Return a single column as a vector, as pointwise losses expect it."""
    return values[:, 0] if values.shape[1] == 1 else values


class GramSums:
    """Σ zzᵀ of rows z = [φ, t], φ apart from the few columns of t; without `gram` no Σ φφᵀ."""

    def __init__(self, width: int, rest: int, dtype: Any, *, gram: bool = True) -> None:
        self.cross, self.rest = np.zeros((width, rest)), np.zeros((rest, rest))
        self.phi = np.zeros((width, width) if gram else (0, 0))
        # float32 rows: the products of a chunk are float32, their sum over chunks is float64.
        single = gram and np.dtype(dtype) != np.float64
        self._gram, self._product = gram, np.empty((rest, width), dtype if single else np.float64)
        self._chunk = np.zeros_like(self.phi, dtype=dtype) if single else None

    def add(self, Phi: RowArray, rest: Array) -> None:
        """Add rows."""
        if not self._gram:
            Phi = Phi.astype(np.float64, copy=False)
        elif self._chunk is None:
            rank_k_update(self.phi, Phi)
        else:
            rank_k_update(self._chunk, Phi, keep=0.0)
            self.phi += self._chunk
        # Written into the same array each time: one that is new must be mapped page by page.
        self.cross += np.matmul(rest.T.astype(Phi.dtype, copy=False), Phi, out=self._product).T
        self.rest += rest.T @ rest

    def add_coded(self, codes: NDArray[np.int32], rest: Array) -> None:
        """Add rows whose φ is √weight in the columns `codes` (t, k), and 0 elsewhere."""
        root, codes = rest[:, -1], np.ascontiguousarray(codes)
        add_pairs(codes, root * root, self.phi)
        add_rows(codes, root[:, None] * rest, self.cross)
        self.rest += rest.T @ rest

    def upper(self, stop: int | None = None) -> Array:
        """Return the upper triangle of Σ zzᵀ, or all that there is of Σ ztᵀ; t up to `stop`."""
        sides = np.concatenate([self.cross[:, :stop], self.rest[:stop, :stop]])
        if not self._gram:
            return sides
        m, p = len(self.phi), len(sides)
        whole = np.zeros((p, p))
        whole[:m, :m], whole[:, m:] = self.phi, sides
        return whole


class RowBuffer:
    """The rows of one thread: φ and [ψ, beside, y, 1] less the mean of the first, times √weight."""

    def __init__(self, design: Design, rows: int, *, coded: bool = False, cache: FeatureCache | None = None) -> None:
        self._design, self._coded, self._cache = design, coded, cache
        self._phi_rows = row_filler(design.phi, design.dtype, whiten=design.whiten_rows)
        psi = None if design.partial else design.psi
        self._psi_rows = None if psi is None else row_filler(psi, np.float64, whiten=True)
        self.blocks = design.blocks
        self.width, total = self.blocks["phi"], sum(self.blocks.values())
        self._phi = np.empty((0 if coded else rows, self.width), design.dtype)
        self._rest = np.empty((rows, total - self.width + 1))
        self._psi = np.empty((rows, self.blocks.get("psi", 0)))
        self.shift, self._is_shifted = np.zeros(total), False

    def fill(self, chunk: Chunk, order: NDArray[np.int64] | None = None) -> tuple[RowArray, Array]:
        """Return the rows of a chunk, valid until the next; `order` is how they were sorted."""
        rest = self.fill_rest(chunk)
        Phi = self._phi[: chunk.n_rows]
        shift = self.shift[: self.width].astype(Phi.dtype)
        phi = self._design.phi
        size = phi.block if isinstance(phi, TransformerMap) else BLOCK_ROWS
        # Block by block: a block is mapped and shifted while it is in the cache.
        for start in range(0, chunk.n_rows, size):
            block = slice(start, min(start + size, chunk.n_rows))
            self._phi_rows(chunk.x[block], Phi[block])
            if self._cache is not None:
                self._cache.keep(chunk.row, block if order is None else order[block], Phi[block])
            Phi[block] -= shift
        if chunk.weight is not None:
            Phi *= np.sqrt(chunk.weight)[:, None].astype(Phi.dtype)
        return Phi, rest

    def fill_rest(self, chunk: Chunk) -> Array:
        """Return the rows of [ψ, beside, y, 1] alone."""
        rest, Psi = self._rest[: chunk.n_rows], self._psi[: chunk.n_rows]
        if self._psi_rows is None or not (chunk.weight is None or np.all(chunk.weight)):
            Psi[...] = self._design.psi_rows(chunk)
        else:
            self._psi_rows(chunk.s, Psi)
        start = Psi.shape[1]
        rest[:, :start] = Psi
        for block in self._design.beside:
            rest[:, start : start + block.width] = block.rows(chunk)
            start += block.width
        rest[:, start:-1] = chunk.y
        rest[:, -1] = 1.0
        if not self._is_shifted:
            self._choose_shift(chunk, rest)
        rest[:, :-1] -= self.shift[self.width :]
        if self._design.partial:
            rest[np.isnan(rest)] = 0.0  # missing values are at the shift
        if chunk.weight is not None:
            rest *= np.sqrt(chunk.weight)[:, None]
        return rest

    def _choose_shift(self, chunk: Chunk, rest: Array) -> None:
        """Mean of the first rows that count, so that sums do not cancel however large it is."""
        counted = np.arange(chunk.n_rows) if chunk.weight is None else np.flatnonzero(chunk.weight)
        if not len(counted):
            return
        first = counted[:32]  # near the mean is enough, and their features are computed twice
        Phi = np.zeros((len(first), self.width), self._phi.dtype)
        if not self._coded:  # zeros and ones need no shift
            self._phi_rows(np.ascontiguousarray(chunk.x[first]), Phi)
        mean = Phi.mean(axis=0, dtype=float).astype(Phi.dtype)
        known = ~np.isnan(rest[first, :-1])
        sums = np.where(known, rest[first, :-1], 0.0).sum(axis=0)
        self.shift = np.concatenate([mean, sums / np.maximum(known.sum(axis=0), 1)])
        self._is_shifted = True


class MomentAccumulator:
    """The mutable sum of one thread; without `gram`, of `CrossMoments`."""

    def __init__(
        self, design: Design, folds: Folds, rows: int, cache: FeatureCache | None = None, *, gram: bool = True
    ) -> None:
        self._folds, self._design, phi = folds, design, design.phi
        self._rows, n_sums = rows, folds.count * (len(KINDS) if design.partial else 1)
        # φ(x) is 1 in the columns that they name, 0 in all others.
        self._codes = phi.codes if gram and isinstance(phi, LeafMap) else None
        self._moments = Moments if gram else CrossMoments
        self._buffer = RowBuffer(design, rows, coded=self._codes is not None, cache=cache)
        rest = sum(design.blocks.values()) - self._buffer.width + 1
        self._sums = [GramSums(self._buffer.width, rest, design.dtype, gram=gram) for _ in range(n_sums)]
        self._n_rows, self._squares = [0] * n_sums, [0.0] * n_sums

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk, as many at a time as the buffer holds."""
        if chunk.n_rows > self._rows:
            for start in range(0, chunk.n_rows, self._rows):
                self.add(cut_chunk(chunk, start, min(start + self._rows, chunk.n_rows)))
            return
        ends, order = np.array([0, chunk.n_rows]), None
        if chunk.n_rows and (self._design.partial or self._folds.of is not None):
            chunk, ends, order = self._sorted(chunk)
        if chunk.n_rows == 0:
            return
        if self._codes is None:
            Phi, rest = cast("tuple[Any, Array]", self._buffer.fill(chunk, order))
        else:
            Phi, rest = self._codes(chunk.x).T, self._buffer.fill_rest(chunk)
        for k, (start, stop) in enumerate(pairwise(ends)):
            self._add(k, Phi[start:stop], rest[start:stop])
        if self._design.propensity is not None:
            self._add_weighted(np.sqrt(self._design.propensity.weights(chunk.x))[:, None], ends, Phi, rest)

    def _add_weighted(self, root: Array, ends: NDArray[np.int64], Phi: Any, rest: Array) -> None:
        for first in range(0, len(self._sums), len(KINDS)):
            known = slice(ends[first + BOTH], ends[first + NO_Y + 1])
            part = Phi[known] if self._codes else Phi[known] * root[known].astype(Phi.dtype)
            self._add(first + WEIGHTED, part, rest[known] * root[known])

    def _add(self, k: int, Phi: Any, rest: Array) -> None:
        """Count rows of φ, or codes of them, in the k-th sum."""
        if self._codes is None and len(rest):
            self._sums[k].add(Phi, rest)
        elif len(rest):
            self._sums[k].add_coded(Phi.T, rest)
        weight = rest[:, -1] ** 2
        self._n_rows[k] += int(np.count_nonzero(rest[:, -1]))
        self._squares[k] += float(weight @ weight)

    def _sorted(self, chunk: Chunk) -> tuple[Chunk, NDArray[np.int64], NDArray[np.int64]]:
        """Sort rows by fold and by what they have; return them, the ends of spans, the order."""
        number = self._folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
        number = with_kinds(number, chunk) if self._design.partial else number
        if chunk.weight is not None:
            number = np.where(np.asarray(chunk.weight) > 0, number, -1)
        order = np.argsort(number, kind="stable")[int(np.sum(number < 0)) :]
        ends = np.searchsorted(number[order], np.arange(len(self._sums) + 1))
        return chunk.take(order), ends, order

    def result(self) -> FoldMoments:
        """Return the moments of each fold: scatter = Σ zzᵀ − (Σz)(Σz)ᵀ / n about the shift."""
        blocks, folds = self._buffer.blocks, []
        for sums, n_rows, squares in zip(self._sums, self._n_rows, self._squares, strict=True):
            weight = float(sums.rest[-1, -1])
            if weight == 0:
                folds.append(self._moments.empty(blocks))
                continue
            total, scatter = np.concatenate([sums.cross[:, -1], sums.rest[:-1, -1]]), sums.upper(-1)
            width = scatter.shape[1]
            add_outer(scatter, total, -total[len(total) - width :] / weight)
            folds.append(self._moments(
                blocks, n_rows, weight, self._buffer.shift, total / weight,
                mirror_upper(scatter) if width == len(total) else scatter, squared_weight=squares,
            ))  # fmt: skip
        key, units = self._design.key, self._design.units
        return FoldMoments(replace(part, key=key, units=units) for part in folds)


class FeatureCache:
    """Features of all rows, as one pass makes them and others need them."""

    def __init__(self, n_rows: int, width: int, dtype: Any) -> None:
        self._rows: RowArray = np.empty((n_rows, width), dtype)
        self._state = np.full(n_rows, MISSING, dtype=np.int8)

    @classmethod
    def within(cls, budget: int, source: ChunkSource, design: Design) -> FeatureCache | None:
        """Return a cache for the features of rows in memory; None where they take too much."""
        if not isinstance(source, ArraySource):
            return None
        width, dtype = design.blocks["phi"], np.dtype(design.dtype)
        fits = source.n_rows * width * dtype.itemsize <= budget
        return cls(source.n_rows, width, dtype) if fits else None

    def keep(self, first: int, at: Any, features: RowArray) -> None:
        """Copy the features of some rows: `at` counts from the row `first` on."""
        self._rows[first:][at], self._state[first:][at] = features, RAW

    def take(self, first: int, n: int) -> tuple[RowArray, int]:
        """Return the memory of `n` rows and their least state; the caller shifts them."""
        at = slice(first, first + n)
        known = int(self._state[at].min())
        self._state[at] = SHIFTED
        return self._rows[at], known


def accumulate(
    source: ChunkSource, design: Design, *, folds: Folds = ALL_ROWS, rows: int | None = None,
    checkpoint: Checkpoint | None = None, cache: FeatureCache | None = None,
) -> FoldMoments:  # fmt: skip
    """Return the moments of each fold of the source's rows, in one pass of `rows` a chunk."""
    return Rows(source, design, chunk_rows=rows).moments(folds, checkpoint=checkpoint, cache=cache)


def _with_checkpoints(
    source: ChunkSource, start: Callable[[], MomentAccumulator], size: int, folds: Folds, checkpoint: Checkpoint
) -> FoldMoments:
    """Return the sum over all rows; the sum so far is written to a file every minute."""
    empty: FoldMoments = start().result()
    total, first_row = checkpoint.read(empty[0].key, len(empty))
    counting = partial(Counting, start, folds, first_row)
    written = monotonic()
    # From the first row on: rows of an earlier run are compared, not added again.
    for part, next_row in source.rounds(counting, size, checkpoint.chunks):
        total += part
        if next_row >= first_row:
            checkpoint.check(total)
            if monotonic() - written >= checkpoint.seconds:
                checkpoint.write(total, next_row)
                written = monotonic()
    checkpoint.check(total)  # where there are fewer rows than had been counted
    checkpoint.remove()
    return empty if total.moments is None else total.moments


@dataclass(frozen=True, eq=False)
class Rows:
    """Numeric rows, and the design that turns them into [φ, ψ, blocks, y]."""

    source: ChunkSource
    design: Design
    n_rows: int | None = None
    chunk_rows: int | None = None  # None: as many as suit the design
    progress: Progress | None = None

    def moments(
        self, folds: Folds = ALL_ROWS, *, checkpoint: Any = None, cache: FeatureCache | None = None
    ) -> FoldMoments:
        """Return the moments of each fold, by one pass; `checkpoint` is one, or a path."""
        design, source, rows = self.design, self.source, self.chunk_rows or self.design.chunk_rows()
        size, count = rows, source.n_rows if isinstance(source, ArraySource | FileSource) else 0
        if count and not self.chunk_rows and (count > rows or count * design.blocks["phi"] ** 2 >= DIVIDED_WORK):
            # As many chunks for each thread, also where all rows would be one.
            per_thread = -(-count // (source.n_threads or available_threads()))
            most = READ_CHUNKS * rows if isinstance(source, FileSource) else rows
            size = -(-per_thread // -(-per_thread // most))
        start = partial(MomentAccumulator, design, folds, min(rows, size), cache)
        watched = self.progress and self.progress.watched(self.source, size, self.n_rows)
        # Alone, too: BLAS would wake its threads for every block of rows.
        with watched or nullcontext(self.source) as source, one_blas_thread():
            if checkpoint is None:
                moments: FoldMoments = source.fold(start, size)
            else:
                saved = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(Path(checkpoint))
                moments = _with_checkpoints(source, start, size, folds, saved)
        if not design.whiten_rows and design.phi.linear_ is not None:
            moments = FoldMoments(part.transform(phi=design.phi.linear_) for part in moments)
        return by_knowledge(moments) if design.partial else moments
