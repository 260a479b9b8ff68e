"""One pass for many fits at once, each to the rows outside a fold: the rows are seen once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import mirror_upper
from scalefair._typing import Array, Chunk, Rows, Source
from scalefair.data.folds import Folds
from scalefair.features.design import chunk_rows
from scalefair.moments.accumulate import FeatureCache, GramSums, squeezed
from scalefair.moments.curvature import RowFrame, RowPass, sandwich


@dataclass(frozen=True, eq=False)
class FoldScores:
    """C fits f = zθ, each to the rows outside one of the folds.

    - `theta` (C, p, k): θ of each.
    - `left_out` (C,): The fold that each was fitted without; −1: none.
    - `curved`: Whether ΦᵀWΦ of each fold is wanted, at the first θ.
    """

    theta: Array
    left_out: NDArray[np.int64]
    curved: bool = False


@dataclass(frozen=True, eq=False)
class FoldSums:
    """Sums over rows for C fits; `+` adds them.

    - `held_out` (C,): Σ wV on the fold that is left out.
    - `values` (C,), `gradient` (C, p, k): Σ wV and its gradient on all other rows.
    - `hessian` (K, j, p, p): Σ w curvatureⱼ zzᵀ of each fold; K = 0 where not wanted.
    """

    held_out: Array
    values: Array
    gradient: Array
    hessian: Array

    def __add__(self, other: FoldSums) -> FoldSums:
        return FoldSums(
            self.held_out + other.held_out, self.values + other.values,
            self.gradient + other.gradient, self.hessian + other.hessian,
        )  # fmt: skip

    def transform(self, linear: Array) -> FoldSums:
        """Return the sums of rows whose first columns, raw φ, are multiplied by a matrix."""
        width = len(linear)
        first, rest = self.gradient[:, :width], self.gradient[:, width:]
        gradient = np.concatenate([linear.T @ first, rest], axis=1)
        p, (K, j) = gradient.shape[1], self.hessian.shape[:2]
        turned = [sandwich(H, linear, width) for fold in self.hessian for H in fold]
        return replace(self, gradient=gradient, hessian=np.array(turned).reshape(K, j, p, p))


class FoldAccumulator(RowPass):
    """The mutable sum of one thread."""

    def __init__(  # noqa: PLR0917
        self, frame: RowFrame, loss: Any, scores: FoldScores, folds: Folds, rows: int,
        cache: FeatureCache | None,
    ) -> None:  # fmt: skip
        super().__init__(frame, rows, cache)
        self._loss, self._scores, self._folds = loss, scores, folds
        C, p, k = scores.theta.shape
        self._theta = np.ascontiguousarray(scores.theta.transpose(1, 0, 2).reshape(p, C * k))
        self._held_out, self._values = np.zeros(C), np.zeros(C)
        self._gradient = np.zeros((p, C * k))
        directions = loss.directions if scores.curved else ()
        self._roots = np.empty((len(directions), rows))
        width, rest, dtype = self._phi.shape[1], self._rest.shape[1], self._phi.dtype
        self._sums = [
            [GramSums(width, rest, dtype) for _ in directions]
            for _ in range(folds.count if scores.curved else 0)
        ]

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in, each for its fold."""
        fold = self._folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
        some_count = chunk.weight is not None and not np.all(chunk.weight)
        self._fold = fold[np.flatnonzero(chunk.weight)] if some_count else fold
        super().add(chunk)

    def _evaluate(self, Phi: Rows, at: slice, chunk: Chunk) -> None:
        loss, rest, (C, _, k) = self._loss, self._rest[at], self._scores.theta.shape
        width, b = Phi.shape[1], len(Phi)
        scores = Phi @ self._theta[:width] + rest @ self._theta[width:]
        # The fits one after the other, as if each had rows of its own: any loss takes that.
        f = squeezed(scores.reshape(b, C, k).transpose(1, 0, 2).reshape(C * b, k))
        y = np.asarray(chunk.y[at])
        repeated = squeezed(np.tile(y, (C, 1)))
        weight = np.ones(b) if chunk.weight is None else np.asarray(chunk.weight[at])
        values = loss.value(f, repeated).reshape(C, b) * weight
        left_out = self._fold[at] == self._scores.left_out[:, None]
        self._held_out += np.where(left_out, values, 0.0).sum(axis=1)
        self._values += np.where(left_out, 0.0, values).sum(axis=1)
        counted = np.where(left_out, 0.0, weight)
        gradient = loss.gradient(f, repeated).reshape(C, b, k) * counted[:, :, None]
        columns = gradient.transpose(1, 0, 2).reshape(b, C * k)
        self._gradient[:width] += Phi.T @ columns
        self._gradient[width:] += rest.T @ columns
        if self._sums:
            curvature = loss.curvature(f[:b], squeezed(y)).reshape(b, -1)
            self._roots[:, at] = np.sqrt(curvature * weight[:, None]).T

    def _finish(self, features: Rows) -> None:
        for k, of_fold in enumerate(self._sums):
            rows = np.flatnonzero(self._fold == k)
            Phi, rest = features[rows], self._rest[rows]
            for root, sums in zip(self._roots[:, rows], of_fold, strict=True):
                sums.add(Phi * root[:, None].astype(Phi.dtype), rest * root[:, None])

    def result(self) -> FoldSums:
        """Return the sums over all rows seen."""
        C, p, k = self._scores.theta.shape
        hessian = np.array([mirror_upper(s.upper()) for fold in self._sums for s in fold])
        return FoldSums(
            self._held_out, self._values, self._gradient.reshape(p, C, k).transpose(1, 0, 2),
            hessian.reshape(len(self._sums), len(self._roots), p, p),
        )  # fmt: skip


def fold_sums(  # noqa: PLR0917
    source: Source, frame: RowFrame, loss: Any, scores: FoldScores, folds: Folds,
    rows: int | None, cache: FeatureCache | None,
) -> FoldSums:  # fmt: skip
    """Σ wV on each fit's own fold, Σ wV and its gradient on the others, in one pass."""
    size = rows or chunk_rows(frame.design.blocks["phi"], frame.design.dtype)
    total: FoldSums = source.fold(
        lambda: FoldAccumulator(frame, loss, scores, folds, size, cache), size
    )
    return total
