"""One pass for one Newton iteration, or for those of many fits, each to the rows outside a fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import mirror_upper
from scalefair._typing import Array, Chunk, Rows
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.sources import ChunkSource
from scalefair.data.sources.threads import available_threads, physical_memory
from scalefair.features.base import row_filler
from scalefair.features.design import Design
from scalefair.moments.accumulate import BLOCK_ROWS, MISSING, SHIFTED, FeatureCache, GramSums, squeezed

BLOCK_NUMBERS, MOST_BLOCK_ROWS = 2**18, 4 * BLOCK_ROWS
"""Numbers of a block of rows that stay in the cache, and the most rows it may have."""


@dataclass(frozen=True, eq=False)
class RowFrame:
    """How rows z = [φ − shift, ψ and others − shift, 1] are made; φ raw unless whitened."""

    design: Design
    joined: tuple[str, ...]  # blocks of z beside φ, in the order of the moments
    intercept: bool  # whether 1 is part of z
    shift: Array  # about the mean of the rows, so that no digits cancel

    def fill_rest(self, chunk: Chunk, out: Array) -> None:
        """Write the rows of [ψ and others − shift, 1]."""
        start = 0
        for name in self.joined:
            rows = self.design.rows_of(name, chunk)
            out[:, start : start + rows.shape[1]] = rows
            start += rows.shape[1]
        out[:, :start] -= self.shift[len(self.shift) - start :]
        if self.intercept:
            out[:, -1] = 1.0


@dataclass(frozen=True, eq=False)
class Along:
    """Parameters θ of f = zθ, and the way there: f at θ and at before + t(θ − before)."""

    theta: Array
    before: Array
    steps: tuple[float, ...] = ()  # lengths t to try, besides 1
    curved: bool = True  # the second derivative is most of the work


@dataclass(frozen=True, eq=False)
class FoldScores:
    """C fits f = zθ, each to the rows outside one of the folds."""

    theta: Array  # of each, of shape (C, p, k)
    left_out: NDArray[np.int64]  # the fold that each was fitted without; −1: none
    curved: bool = False  # whether ΦᵀWΦ of each fold is wanted, at the first θ


@dataclass(frozen=True, eq=False)
class LossSums:
    """Sums over rows for C fits; `+` adds them."""

    values: Array  # Σ wV outside the fold of each, of shape (C,); or at θ and each step, (1 + T,)
    gradient: Array  # Σ w z ∂V/∂f there, of shape (C, p, k)
    hessian: Array  # Σ w curvatureⱼ zzᵀ of each fold, (K, j, p, p); K = 0 where not wanted
    held_out: Any = 0.0  # Σ wV on the fold that is left out, of shape (C,)

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(*(vars(self)[name] + part for name, part in vars(other).items()))

    def transform(self, linear: Array) -> LossSums:
        """Return the sums of rows whose first columns, raw φ, are multiplied by a matrix."""
        width = len(linear)
        first, rest = self.gradient[:, :width], self.gradient[:, width:]
        gradient = np.concatenate([linear.T @ first, rest], axis=1)
        H = self.hessian
        corner = linear.T @ H[..., :width, :width] @ linear
        corner = (corner + corner.swapaxes(-1, -2)) / 2
        side = linear.T @ H[..., :width, width:]
        below = np.concatenate([side.swapaxes(-1, -2), H[..., width:, width:]], axis=-1)
        above = np.concatenate([corner, side], axis=-1)
        return replace(self, gradient=gradient, hessian=np.concatenate([above, below], axis=-2))


class LossPass:
    """The mutable sum of one thread; features are mapped block by block, in the cache of a core."""

    def __init__(  # noqa: PLR0917
        self, frame: RowFrame, loss: Any, at: Along | FoldScores, rows: int, cache: FeatureCache | None, folds: Folds
    ) -> None:
        self._frame, self._cache, design = frame, cache, frame.design
        self._loss, self._folds, curved = loss, folds, at.curved
        fits, left_out, way, self._back = at.theta, np.array([-1]), [], [0.0]
        if isinstance(at, Along):
            fits, way = at.theta[None], [at.theta - at.before]
            self._back += [1.0 - step for step in at.steps]
        else:
            left_out = at.left_out
        C, p, k = fits.shape
        # Scores of all fits, and of the way to them, side by side: one product gives both.
        self._theta = np.hstack([fits.transpose(1, 0, 2).reshape(p, C * k), *way])
        self._shape, self._left_out = (C, p, k), left_out[:, None]
        self._gradient = np.zeros((p, C * k))
        self._held_out, self._values = np.zeros(C), np.zeros((len(self._back), C))
        blocks, dtype = design.blocks, design.dtype
        width, rest = blocks["phi"], sum(blocks[name] for name in frame.joined) + frame.intercept
        self._phi, self._rest = np.empty((rows, width), dtype), np.empty((rows, rest))
        self._phi_rows = row_filler(design.phi, dtype, whiten=design.whiten_rows)
        self._block = int(np.clip(BLOCK_NUMBERS // width, BLOCK_ROWS, MOST_BLOCK_ROWS))
        directions, count = loss.directions if curved else (), folds.count if curved else 0
        self._roots = np.empty((len(directions), rows))
        self._sums = [[GramSums(width, rest, dtype) for _ in directions] for _ in range(count)]
        self._scaled = self._phi if count * len(directions) <= 1 else np.empty_like(self._phi)

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk; those of weight zero are left out."""
        features, state, counted = self._phi, MISSING, None
        if chunk.weight is not None and not np.all(chunk.weight):
            counted = np.flatnonzero(chunk.weight)
        elif self._cache is not None and chunk.n_rows:
            features, state = self._cache.take(chunk.row, chunk.n_rows)
        if self._folds.of is not None:
            fold = self._folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
            self._fold = fold if counted is None else fold[counted]
        chunk = chunk if counted is None else chunk.take(counted)
        n = chunk.n_rows
        if n == 0:
            return
        features = features[:n]
        self._frame.fill_rest(chunk, self._rest[:n])
        shift = self._frame.shift[: features.shape[1]].astype(features.dtype)
        # Infinite values far out are met on the way to a shorter step.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, n, self._block):
                at = slice(start, min(start + self._block, n))
                if state == MISSING:
                    self._phi_rows(chunk.x[at], features[at])
                if state != SHIFTED:
                    features[at] -= shift
                self._evaluate(features[at], at, chunk)
            self._add_products(features)

    def _evaluate(self, Phi: Rows, at: slice, chunk: Chunk) -> None:
        """Add the values and gradients of a block, and note the roots of its weights."""
        loss, rest, (C, _, k), b = self._loss, self._rest[at], self._shape, len(Phi)
        width = Phi.shape[1]
        scores, way = np.split(Phi @ self._theta[:width] + rest @ self._theta[width:], [C * k], axis=1)
        # The fits one after the other, as if each had rows of its own: any loss takes that.
        f = squeezed(scores.reshape(b, C, k).transpose(1, 0, 2).reshape(C * b, k))
        y = np.asarray(chunk.y[at])
        repeated = squeezed(np.tile(y, (C, 1)))
        weight = np.ones(b) if chunk.weight is None else np.asarray(chunk.weight[at])
        left_out = None if self._folds.of is None else self._fold[at] == self._left_out
        for i, back in enumerate(self._back):
            moved = f - back * squeezed(way) if back else f
            values = loss.value(moved, repeated).reshape(C, b) * weight
            if left_out is not None:
                self._held_out += np.where(left_out, values, 0.0).sum(axis=1)
                values = np.where(left_out, 0.0, values)
            self._values[i] += values.sum(axis=1)
        counted = weight if left_out is None else np.where(left_out, 0.0, weight)
        gradient = loss.gradient(f, repeated).reshape(C, b, k) * counted[..., None]
        columns = gradient.transpose(1, 0, 2).reshape(b, C * k)
        self._gradient += np.concatenate([Phi.T @ columns, rest.T @ columns])
        if self._sums:
            curvature = loss.curvature(f[:b], squeezed(y)).reshape(b, -1)
            self._roots[:, at] = np.sqrt(curvature * weight[:, None]).T

    def _add_products(self, features: Rows) -> None:
        for k, sums in enumerate(self._sums):
            n = len(features)
            rows: Any = slice(n) if self._folds.of is None else np.flatnonzero(self._fold == k)
            Phi, rest = features[rows], self._rest[rows]
            scaled = self._scaled[: len(Phi)]
            for root, one in zip(self._roots[:, rows], sums, strict=True):
                np.multiply(Phi, root[:, None].astype(Phi.dtype), out=scaled)
                one.add(scaled, rest * root[:, None])

    def result(self) -> LossSums:
        """Return the sums over all rows seen."""
        C, p, k = self._shape
        hessian = np.array([mirror_upper(one.upper()) for sums in self._sums for one in sums])
        hessian = hessian.reshape(len(self._sums), len(self._roots), p, p)
        gradient = self._gradient.reshape(p, C, k).transpose(1, 0, 2)
        return LossSums(self._values.ravel(), gradient, hessian, self._held_out)


def loss_sums(  # noqa: PLR0917
    source: ChunkSource, frame: RowFrame, loss: Any, at: Along | FoldScores, rows: int | None = None,
    cache: FeatureCache | None = None, folds: Folds = ALL_ROWS,
) -> LossSums:  # fmt: skip
    """Σ wV, its gradient and second derivative in θ, in one pass; V: :mod:`scalefair.losses`."""
    size = rows or frame.design.chunk_rows(frame.design.blocks["phi"])
    if at.curved:
        _check_memory(loss, at.theta.shape[-2], folds.count * (source.n_threads or available_threads()))
    start = partial(LossPass, frame, loss, at, size, cache, folds)
    return source.fold(start, size)  # type: ignore[no-any-return]


def _check_memory(loss: Any, width: int, copies: int) -> None:
    """Raise MemoryError before the system ends a process whose sums are larger than the machine."""
    needed, pairs = 8.0 * width**2 * len(loss.directions) * copies, len(loss.directions)
    if needed > (most := physical_memory()):
        raise MemoryError(
            f"{loss.n_scores} classes: {pairs} pairs, whose sums of {width} features take {needed / 2**30:.0f} GB, "
            f"this machine has {most / 2**30:.0f} GB: use fewer n_components, or join rare classes"
        )
