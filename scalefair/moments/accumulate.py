"""One pass over a source: rows of [φ(x), ψ(s), y] into moments, per fold if asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._jit import add_pairs, add_rows
from scalefair._linalg import add_outer, mirror_upper, rank_k_update
from scalefair._typing import Array, Chunk, Rows, Source
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.features.design import Design
from scalefair.moments.checkpoint import Checkpoint, Counted, Counting
from scalefair.moments.kept import KeptFeatures
from scalefair.moments.moments import FoldMoments, Moments

BLOCK = 128
"""Rows whose features are computed at a time: few enough to stay in the cache of a core."""


class CrossSums:
    """Σ φtᵀ and Σ ttᵀ of shifted rows, t = [ψ, beside, y, 1]."""

    def __init__(self, width: int, rest: int) -> None:
        self.cross, self._product = np.zeros((width, rest)), np.empty((width, rest))
        self.rest = np.zeros((rest, rest))
        self.n_rows, self.squared_weight = 0, 0.0

    def add(self, Phi: Rows, rest: Array) -> None:
        """Count rows in that are shifted and multiplied by √weight."""
        self._add_cross(Phi, rest)
        self._add_rest(rest)

    def _add_rest(self, rest: Array) -> None:
        self.rest += rest.T @ rest
        self.n_rows += int(np.count_nonzero(rest[:, -1]))
        weight = rest[:, -1] ** 2
        self.squared_weight += float(weight @ weight)

    def _add_cross(self, Phi: Rows, rest: Array) -> None:
        if Phi.dtype == self._product.dtype:
            # Written into the same array each time: one that is new must be mapped page by page.
            self.cross += np.matmul(Phi.T, rest, out=self._product)
        else:
            self.cross += Phi.T @ rest.astype(Phi.dtype)


class _Sums(CrossSums):
    """The same and Σ φφᵀ, for one fold."""

    def __init__(self, width: int, rest: int, dtype: Any) -> None:
        super().__init__(width, rest)
        self.phi = np.zeros((width, width))
        # float32 rows: the products of a chunk are float32, their sum over chunks is float64.
        self._chunk = None if dtype == np.float64 else np.zeros_like(self.phi, dtype=dtype)

    def add(self, Phi: Rows, rest: Array) -> None:
        if self._chunk is None:
            rank_k_update(self.phi, Phi)
        else:
            rank_k_update(self._chunk, Phi, keep=0.0)
            self.phi += self._chunk
        super().add(Phi, rest)

    def add_coded(self, codes: NDArray[np.int32], rest: Array) -> None:
        """Count rows in whose φ is 1 in the columns `codes`, of shape (t, k), and 0 elsewhere."""
        root, codes = rest[:, -1], np.ascontiguousarray(codes)
        add_pairs(codes, root * root, self.phi)
        add_rows(codes, root[:, None] * rest, self.cross)
        self._add_rest(rest)

    def moments(self, blocks: dict[str, int], shift: Array) -> Moments:
        """Centre the sums: scatter = Σ zzᵀ − (Σz)(Σz)ᵀ / n about the shift."""
        weight = float(self.rest[-1, -1])
        if weight == 0:
            return Moments.empty(blocks)
        total = np.concatenate([self.cross[:, -1], self.rest[:-1, -1]])
        m = len(self.phi)
        scatter = np.zeros((len(total), len(total)))
        scatter[:m, :m] = self.phi
        scatter[:m, m:] = self.cross[:, :-1]
        scatter[m:, m:] = self.rest[:-1, :-1]
        add_outer(scatter, total, -total / weight)
        mirror_upper(scatter)
        return Moments(
            blocks, self.n_rows, weight, shift, total / weight, scatter,
            squared_weight=self.squared_weight,
        )  # fmt: skip


class RowBuffer:
    """The rows of one thread: φ and [ψ, beside, y, 1], shifted, multiplied by √weight."""

    def __init__(
        self, design: Design, rows: int, *, coded: bool = False, kept: KeptFeatures | None = None
    ) -> None:
        self._map, self._coded, self._kept = design, coded, kept
        self._phi_rows, self._psi_rows = design.start_phi(), design.start_psi()
        self.blocks = design.blocks
        self.width = self.blocks["phi"]
        self.rest_width = sum(self.blocks.values()) - self.width + 1
        self._phi = np.empty((0 if coded else rows, self.width), design.dtype)
        self._rest = np.empty((rows, self.rest_width))
        self._psi = np.empty((rows, self.blocks.get("psi", 0)))
        self._shift: Array | None = None

    @property
    def shift(self) -> Array:
        """What was subtracted from the rows: the mean of the first chunk that counts."""
        return np.zeros(sum(self.blocks.values())) if self._shift is None else self._shift

    def fill(self, chunk: Chunk) -> tuple[Rows, Array]:
        """Return the rows of a chunk, valid until the next."""
        rest = self.fill_rest(chunk)
        Phi = self._phi[: chunk.n_rows]
        shift = self.shift[: self.width].astype(Phi.dtype)
        size = getattr(self._map.phi, "block", BLOCK)
        # Block by block: a block is mapped and shifted while it is in the cache.
        for start in range(0, chunk.n_rows, size):
            block = slice(start, start + size)
            self._phi_rows(chunk.x[block], Phi[block])
            if self._kept is not None:
                self._kept.keep(chunk.row + start, Phi[block])
            Phi[block] -= shift
        if chunk.weight is not None:
            Phi *= np.sqrt(chunk.weight)[:, None].astype(Phi.dtype)
        return Phi, rest

    def fill_rest(self, chunk: Chunk) -> Array:
        """Return the rows of [ψ, beside, y, 1] alone."""
        rest = self._fill_rest(chunk)
        if self._shift is None:
            self._shift = self._first_mean(chunk, rest)
        rest[:, :-1] -= self.shift[self.width :]
        if chunk.weight is not None:
            rest *= np.sqrt(chunk.weight)[:, None]
        return rest

    def _fill_rest(self, chunk: Chunk) -> Array:
        rest, Psi = self._rest[: chunk.n_rows], self._psi[: chunk.n_rows]
        self._psi_rows(chunk, Psi)
        start = Psi.shape[1]
        rest[:, :start] = Psi
        for block in self._map.beside:
            rest[:, start : start + block.width] = block.rows(chunk)
            start += block.width
        rest[:, start:-1] = chunk.y
        rest[:, -1] = 1.0
        return rest

    def _first_mean(self, chunk: Chunk, rest: Array) -> Array | None:
        """Mean of the first rows that count, φ rounded to the dtype it is subtracted in.

        Near the mean of all, so that the sums do not cancel however large that is.
        """
        counted = np.arange(chunk.n_rows) if chunk.weight is None else np.flatnonzero(chunk.weight)
        if not len(counted):
            return None
        first = counted[:256]
        Phi = np.zeros((len(first), self.width), self._phi.dtype)
        if not self._coded:  # zeros and ones need no shift
            self._phi_rows(np.ascontiguousarray(chunk.x[first]), Phi)
        mean = Phi.mean(axis=0, dtype=float).astype(Phi.dtype)
        return np.concatenate([mean, rest[first, :-1].mean(axis=0)])


class MomentAccumulator:
    """The mutable sum of one thread."""

    def __init__(
        self, design: Design, folds: Folds, rows: int, kept: KeptFeatures | None = None
    ) -> None:
        self._folds = folds
        self._codes = design.codes
        self._buffer = RowBuffer(design, rows, coded=self._codes is not None, kept=kept)
        width, rest = self._buffer.width, self._buffer.rest_width
        self._sums = [_Sums(width, rest, design.dtype) for _ in range(folds.count)]

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows == 0:
            return
        chunk, ends = _by_fold(chunk, self._folds)
        spans = zip(self._sums, ends[:-1], ends[1:], strict=True)
        if self._codes is not None:
            codes, rest = self._codes(chunk.x), self._buffer.fill_rest(chunk)
            for sums, start, stop in spans:
                sums.add_coded(codes[:, start:stop], rest[start:stop])
            return
        Phi, rest = self._buffer.fill(chunk)
        for sums, start, stop in spans:
            if stop > start:
                sums.add(Phi[start:stop], rest[start:stop])

    def result(self) -> FoldMoments:
        """Return the moments of each fold."""
        blocks, shift = self._buffer.blocks, self._buffer.shift
        return FoldMoments(sums.moments(blocks, shift) for sums in self._sums)


def _by_fold(chunk: Chunk, folds: Folds) -> tuple[Chunk, NDArray[np.int64]]:
    """Sort the rows of a chunk by fold; return it with the ends of the folds' spans.

    Sorting the inputs, which are narrow, keeps each fold's feature rows side by side.
    """
    if folds.of is None:
        return chunk, np.array([0, chunk.n_rows])
    fold = folds.of(np.arange(chunk.row, chunk.row + chunk.n_rows))
    order = np.argsort(fold, kind="stable")
    ends = np.searchsorted(fold[order], np.arange(folds.count + 1))
    parts: dict[str, Any] = {
        name: np.ascontiguousarray(part[order])
        for name in ("x", "s", "y", "weight", "c", "h")
        if (part := getattr(chunk, name)) is not None
    }
    return replace(chunk, **parts), ends


def accumulate(
    source: Source,
    design: Design,
    *,
    folds: Folds = ALL_ROWS,
    rows: int | None = None,
    checkpoint: Checkpoint | None = None,
    kept: KeptFeatures | None = None,
) -> FoldMoments:
    """Return the moments of each fold of the source's rows, in one pass.

    Parameters
    ----------
    source : Source
        The rows.
    design : Design
        The feature maps and the dtype.
    folds : Folds
        Which fold a row belongs to; by default there is one, of all rows.
    rows : int or None
        Rows per chunk; None chooses them.
    checkpoint : Checkpoint or None
        Where to write the sums so far every so often, so that a long pass can go on after a crash.
        A file that is there already is where an earlier pass over the same rows stopped. It goes
        once the pass is complete.
    kept : KeptFeatures or None
        Where to keep the features for passes that follow; not with folds, which sort the rows.
    """
    size = rows or design.chunk_rows

    def start() -> MomentAccumulator:
        return MomentAccumulator(design, folds, size, kept)

    if checkpoint is None:
        return finished(design, source.fold(start, size))
    return _with_checkpoints(source, design, start, size, folds, checkpoint)


def _with_checkpoints(  # noqa: PLR0917
    source: Any,
    design: Design,
    start: Callable[[], MomentAccumulator],
    size: int,
    folds: Folds,
    checkpoint: Checkpoint,
) -> FoldMoments:
    """The same, with the sums so far written to a file every so often."""
    total, first_row = checkpoint.read(design.key, folds.count)
    counting = partial(Counting, start, folds, first_row)
    written = monotonic()
    # From the first row on: those that have been counted are compared, not counted again.
    for part, next_row in source.rounds(counting, size, checkpoint.chunks):
        total += _finished(part, design)
        if next_row >= first_row:
            checkpoint.check(total)
            if monotonic() - written >= checkpoint.seconds:
                checkpoint.write(total, next_row)
                written = monotonic()
    checkpoint.check(total)  # where there are fewer rows than had been counted
    checkpoint.remove()
    return finished(design, start().result()) if total.moments is None else total.moments


def _finished(part: Counted, design: Design) -> Counted:
    return part if part.moments is None else replace(part, moments=finished(design, part.moments))


def finished(design: Design, folds: FoldMoments) -> FoldMoments:
    """Apply the linear part of φ where the rows went without; sign with the design's key."""
    linear = None if design.whiten_rows else design.phi.linear_
    return FoldMoments(
        replace(part.transform(phi=linear), key=design.key, units=design.units) for part in folds
    )
