"""One pass for one Newton iteration: value, gradient and second derivative of a data term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._linalg import mirror_upper
from scalefair._typing import Array, Chunk, Rows, Source
from scalefair.features.base import row_filler
from scalefair.features.design import Design, chunk_rows
from scalefair.moments.accumulate import (
    BLOCK_ROWS,
    MISSING,
    SHIFTED,
    FeatureCache,
    GramSums,
    squeezed,
)

BLOCK_NUMBERS, MOST_BLOCK_ROWS = 2**18, 4 * BLOCK_ROWS
"""Numbers of a block of rows that stay in the cache, and the most rows it may have."""


@dataclass(frozen=True, eq=False)
class RowFrame:
    """How rows z = [φ − shift, ψ and others − shift, 1] are made; φ raw unless whitened."""

    design: Design
    joined: tuple[str, ...]  # blocks of z beside φ, in the order of the moments
    intercept: bool  # whether 1 is part of z
    shift: Array  # about the mean of the rows, so that nothing cancels

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
class LossSums:
    """Sums over rows at one θ; `+` adds them."""

    values: Array  # Σ wV at θ and at each step on the way, of shape (1 + T,)
    gradient: Array  # Σ w z ∂V/∂f, of shape (p, k)
    hessian: Array  # Σ w curvatureⱼ zzᵀ, of shape (j, p, p); j = 0 where not wanted

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            self.values + other.values,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
        )

    def transform(self, linear: Array) -> LossSums:
        """Return the sums of rows whose first columns, raw φ, are multiplied by a matrix."""
        width = len(linear)
        gradient = np.concatenate([linear.T @ self.gradient[:width], self.gradient[width:]])
        p = len(gradient)
        hessian = np.array([sandwich(H, linear, width) for H in self.hessian]).reshape(-1, p, p)
        return LossSums(self.values, gradient, hessian)


def sandwich(H: Array, linear: Array, width: int) -> Array:
    """LᵀHL, where the linear part L acts on the first `width` columns."""
    corner = linear.T @ H[:width, :width] @ linear
    side = linear.T @ H[:width, width:]
    return np.block([[(corner + corner.T) / 2, side], [side.T, H[width:, width:]]])


class RowPass:
    """Gives the features of one thread's rows to `_evaluate`, block by block, and to `_finish`.

    A block stays in the cache while its scores, gradient and weights are taken.
    """

    def __init__(self, frame: RowFrame, rows: int, cache: FeatureCache | None = None) -> None:
        self._frame, self._cache, design = frame, cache, frame.design
        blocks, dtype = design.blocks, design.dtype
        width, rest = blocks["phi"], sum(blocks[name] for name in frame.joined) + frame.intercept
        self._phi = np.empty((rows, width), dtype)
        self._phi_rows = row_filler(design.phi, dtype, whiten=design.whiten_rows)
        self._rest = np.empty((rows, rest))
        self._block = int(np.clip(BLOCK_NUMBERS // width, BLOCK_ROWS, MOST_BLOCK_ROWS))

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; those of weight zero are left out."""
        features, state = self._phi, MISSING
        if chunk.weight is not None and not np.all(chunk.weight):
            chunk = chunk.take(np.flatnonzero(chunk.weight))
        elif self._cache is not None and chunk.n_rows:
            features, state = self._cache.take(chunk.row, chunk.n_rows)
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
            self._finish(features)

    def _evaluate(self, Phi: Rows, at: slice, chunk: Chunk) -> None:
        """Count a block of rows in."""

    def _finish(self, features: Rows) -> None:
        """Count the features of a whole chunk in."""


class CurvatureAccumulator(RowPass):
    """The mutable sum of one thread; only the product ΦᵀWΦ is taken of a whole chunk."""

    def __init__(
        self, frame: RowFrame, loss: Any, along: Along, rows: int,
        cache: FeatureCache | None = None,
    ) -> None:  # fmt: skip
        super().__init__(frame, rows, cache)
        self._loss, self._steps = loss, along.steps
        # Scores at θ and the way to them, side by side: one product gives both.
        self._way = np.hstack([along.theta, along.theta - along.before])
        directions = loss.directions if along.curved else ()
        self._roots = np.empty((len(directions), rows))
        self._values = np.zeros(1 + len(along.steps))
        self._gradient = np.zeros_like(along.theta)
        width, rest, dtype = self._phi.shape[1], self._rest.shape[1], self._phi.dtype
        self._sums = [GramSums(width, rest, dtype) for _ in directions]
        self._scaled = np.empty_like(self._phi) if len(directions) > 1 else self._phi

    def _finish(self, features: Rows) -> None:
        n = len(features)
        rest, scaled = self._rest[:n], self._scaled[:n]
        for root, sums in zip(self._roots[:, :n], self._sums, strict=True):
            np.multiply(features, root[:, None].astype(features.dtype), out=scaled)
            sums.add(scaled, rest * root[:, None])

    def _evaluate(self, Phi: Rows, at: slice, chunk: Chunk) -> None:
        """Add the values and the gradient of a block, and note the roots of its weights."""
        rest, loss = self._rest[at], self._loss
        width, k = Phi.shape[1], loss.n_scores
        weight = None if chunk.weight is None else np.asarray(chunk.weight[at])
        both = Phi @ self._way[:width] + rest @ self._way[width:]
        f, way = squeezed(both[:, :k]), squeezed(both[:, k:])
        y = squeezed(np.asarray(chunk.y[at]))
        gradient = loss.gradient(f, y).reshape(-1, k)
        lengths = [0.0, *(1.0 - step for step in self._steps)]
        values = np.stack([loss.value(f - back * way, y) for back in lengths])
        if weight is not None:
            gradient, values = gradient * weight[:, None], values * weight
        self._values += values.sum(axis=1)
        self._gradient[:width] += Phi.T @ gradient
        self._gradient[width:] += rest.T @ gradient
        if self._sums:
            curvature = loss.curvature(f, y).reshape(len(f), -1)
            weighted = curvature if weight is None else curvature * weight[:, None]
            self._roots[:, at] = np.sqrt(weighted).T

    def result(self) -> LossSums:
        """Return the sums over all rows seen."""
        p = len(self._gradient)
        hessian = np.array([mirror_upper(sums.upper()) for sums in self._sums]).reshape(-1, p, p)
        return LossSums(self._values, self._gradient, hessian)


def loss_sums(
    source: Source, frame: RowFrame, loss: Any, along: Along, *, rows: int | None = None,
    cache: FeatureCache | None = None,
) -> LossSums:  # fmt: skip
    """Σ wV, its gradient and its second derivative in θ, in one pass; V: :mod:`scalefair.losses`.

    `cache` holds features between passes over rows in memory.
    """
    size = rows or chunk_rows(frame.design.blocks["phi"], frame.design.dtype)
    total: LossSums = source.fold(
        lambda: CurvatureAccumulator(frame, loss, along, size, cache), size
    )
    return total
