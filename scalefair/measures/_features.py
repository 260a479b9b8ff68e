"""Feature maps of kernels of variables of any kind, and moments of the features of two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from scalefair._linalg import mirror_upper, rank_k_update
from scalefair._typing import Accumulator, Array, Chunk, FeatureMap, Rows
from scalefair.data.sources.base import cut_chunk
from scalefair.errors import check_count
from scalefair.features.base import whitened
from scalefair.features.landmarks import distinct_rows
from scalefair.features.mixed import coded_columns, mixed_map, with_rare_groups
from scalefair.features.units import units_of
from scalefair.measures._kernels import check_kernel, gram_of
from scalefair.measures._pair import Pair, Variable
from scalefair.moments import ALL_ROWS, FoldMoments, Folds, Moments

TOLERANCE = 1e-9
"""Landmarks are added until so much of the trace of the sample's Gram matrix is left."""


class KernelBlocks(Protocol):
    """A kernel: blocks of its Gram matrix, and its diagonal."""

    def __call__(self, X: Array, Z: Array) -> Array: ...

    def diag(self, X: Array) -> Array: ...


@dataclass(eq=False)
class PivotMap:
    """Nyström features φ(x) = L⁻¹ k(Z, x), where LLᵀ = K_ZZ is the Cholesky factor.

    Parameters
    ----------
    gram : callable
        The kernel.
    landmarks : array of shape (m, p)
        Z, in the order in which they were chosen.
    linear_ : array of shape (m, m)
        L⁻ᵀ.
    residual : float
        Share of the trace of the sample's Gram matrix that the features miss; the Gram matrix is
        off by no more than that times n in the trace norm.
    """

    gram: KernelBlocks
    landmarks: Array
    linear_: Array | None
    residual: float

    def __post_init__(self) -> None:
        self.n_raw_ = len(self.landmarks)

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return k(x, Z), of shape (k, m)."""
        values = self.gram(X, self.landmarks)
        if out is None:
            return values
        out[...] = values
        return out

    def transform(self, X: Any) -> Rows:
        """Return the features, of shape (k, m)."""
        raw = self.raw(X)
        return raw if self.linear_ is None else raw @ self.linear_


def pivot_map(gram: KernelBlocks, rows: Array, size: int, tolerance: float = TOLERANCE) -> PivotMap:
    """Choose landmarks by a pivoted Cholesky factorisation of the rows' Gram matrix.

    The next landmark is the row whose kernel function is farthest from the span of those before
    it. For a smooth kernel of few columns some twenty are enough; no n×n array is formed.

    Parameters
    ----------
    gram : callable
        The kernel.
    rows : array of shape (n, p)
        A sample.
    size : int
        Largest number of landmarks.
    tolerance : float
        Stop where the residual trace falls below so much of the whole.
    """
    rest = np.array(gram.diag(rows), dtype=np.float64)
    whole, least = rest.sum(), tolerance * rest.sum()
    factor = np.zeros((min(size, len(rows)), len(rows)))
    pivots: list[int] = []
    # The second condition stops at rounding error, where a root would be of nothing.
    while (
        len(pivots) < len(factor) and rest.sum() > least and rest.max() > 1e-13 * whole / len(rows)
    ):
        pivot, m = int(rest.argmax()), len(pivots)
        row = gram(rows[pivot : pivot + 1], rows)[0] - factor[:m, pivot] @ factor[:m]
        factor[m] = row / np.sqrt(row[pivot])
        rest = np.maximum(rest - factor[m] ** 2, 0.0)
        rest[pivot] = 0.0
        pivots.append(pivot)
    L = factor[: len(pivots), pivots].T
    inverse = solve_triangular(L, np.eye(len(pivots)), lower=True, check_finite=False)
    return PivotMap(gram, rows[pivots], np.ascontiguousarray(inverse.T), float(rest.sum() / whole))


def sampled_map(
    name: str, kernel: Any, variable: Variable, values: Array, weight: Array | None, *, size: int
) -> FeatureMap:
    """Return the feature map of a kernel, learnt on a sample of the variable's rows.

    It is exact for categories and for "linear"; else landmarks are chosen until what the features
    miss is negligible, or there are `size` of them. Other arguments as in `gram_of`.
    """
    kernel = check_kernel(name, kernel)
    plain = isinstance(kernel, str) and kernel in ("linear", "categorical")
    if plain or hasattr(kernel, "raw") or (kernel == "auto" and variable.categorical.all()):
        return model_map(name, kernel, variable, values, weight, size=size)
    values, weight = _with_all_groups(kernel, variable, values, weight)
    gram = gram_of(name, kernel, variable, values, weight)
    distinct, _ = distinct_rows(values, np.ones(len(values)) if weight is None else weight)
    return pivot_map(gram, distinct, size)


def model_map(
    name: str, kernel: Any, variable: Variable, values: Array, weight: Array | None, *,
    size: int, seed: int = 0, length_scale: Any = "median",
) -> FeatureMap:  # fmt: skip
    """Return the map that an estimator would make of the same sample: Nyström, `size` landmarks."""
    kernel = check_kernel(name, kernel)
    return mixed_map(
        kernel, length_scale, size, rows=values, weight=weight, categorical=variable.categorical,
        groups=variable.groups, seed=seed, name=name,
    )  # fmt: skip


def _with_all_groups(
    kernel: Any, variable: Variable, values: Array, weight: Array | None
) -> tuple[Array, Array | None]:
    if variable.groups is None:
        return values, weight
    coded = coded_columns(kernel, variable.categorical)
    return with_rare_groups(values, weight, variable.groups, coded)


CHUNK = 2**18
"""Numbers in the feature rows of a chunk."""

ColumnsBeside = Callable[[Array, Array, Array], Array]
"""Further columns of rows, from their features φ and ψ and their weights."""


@dataclass(frozen=True, eq=False)
class FeaturePair:
    """Two variables and the maps of their kernels.

    Parameters
    ----------
    pair : Pair
        The rows.
    phi, psi : FeatureMap
        Of a and of b.
    """

    pair: Pair
    phi: FeatureMap
    psi: FeatureMap

    def moments(self) -> Moments:
        """Return the moments of [φ(a), ψ(b)]."""
        (moments,) = self.fold_moments()
        return moments

    def fold_moments(
        self, folds: Folds = ALL_ROWS, columns: ColumnsBeside | None = None, width: int = 0
    ) -> FoldMoments:
        """Return the moments of [φ, ψ, columns(φ, ψ, w)] of the rows of each fold."""
        start = self.accumulator(folds, columns, width)
        rows = _block_rows(self.phi.n_raw_ + self.psi.n_raw_ + width)
        return self.pair.source.fold(start, rows)  # type: ignore[no-any-return]

    def accumulator(
        self, folds: Folds = ALL_ROWS, columns: ColumnsBeside | None = None, width: int = 0
    ) -> Callable[[], Accumulator]:
        """Return what makes the accumulators of those moments, for a pass over numeric chunks."""
        return partial(_MomentSums, self.phi, self.psi, folds, columns, width)


def _block_rows(width: int) -> int:
    return int(np.clip(CHUNK // width, 256, 16384))


class _MomentSums:
    """The sums of one thread. Rows are whitened: NOCCO divides by their smallest directions."""

    def __init__(
        self,
        phi: FeatureMap,
        psi: FeatureMap,
        folds: Folds,
        columns: ColumnsBeside | None,
        width: int,
    ) -> None:
        self._phi, self._psi, self._columns, self._folds = phi, psi, columns, folds
        self._blocks = {"phi": _width(phi), "psi": _width(psi), "y": width}
        size = sum(self._blocks.values()) + 1
        self._sums = [np.zeros((size, size)) for _ in range(folds.count)]
        self._n_rows, self._squares = [0] * folds.count, [0.0] * folds.count
        self._block = _block_rows(phi.n_raw_ + psi.n_raw_ + width)
        self._shift: Array | None = None
        self._buffer: Array | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in, a block at a time."""
        for start in range(0, chunk.n_rows, self._block):
            self._add_block(cut_chunk(chunk, start, min(start + self._block, chunk.n_rows)))

    def _add_block(self, chunk: Chunk) -> None:
        chunk, row = _counted(chunk)
        if chunk.n_rows == 0:
            return
        rows = self._rows(chunk)
        if self._folds.of is None:
            self._add(0, rows)
            return
        fold = self._folds.of(row)
        for number in range(self._folds.count):
            self._add(number, rows[fold == number])

    def _rows(self, chunk: Chunk) -> Array:
        parts: list[Any] = [whitened(self._phi, chunk.x), whitened(self._psi, chunk.s)]
        if self._columns is not None:
            weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
            parts.append(self._columns(parts[0], parts[1], weight))
        if self._buffer is None or len(self._buffer) < chunk.n_rows:
            self._buffer = np.empty((chunk.n_rows, len(self._sums[0])))
        rows = self._buffer[: chunk.n_rows]
        np.concatenate(parts, axis=1, out=rows[:, :-1])
        rows[:, -1] = 1.0
        if self._shift is None:
            # Near the mean of all, so that the sums do not cancel however large that is.
            self._shift = rows[:256, :-1].mean(axis=0)
        rows[:, :-1] -= self._shift
        if chunk.weight is not None:
            rows *= np.sqrt(chunk.weight)[:, None]
        return rows

    def _add(self, fold: int, rows: Array) -> None:
        rank_k_update(self._sums[fold], rows)
        self._n_rows[fold] += int(np.count_nonzero(rows[:, -1]))
        weight = rows[:, -1] ** 2
        self._squares[fold] += float(weight @ weight)

    def result(self) -> FoldMoments:
        """Return the moments of each fold."""
        return FoldMoments(map(self._moments, self._sums, self._n_rows, self._squares))

    def _moments(self, sums: Array, n_rows: int, squares: float) -> Moments:
        if n_rows == 0 or self._shift is None:
            return Moments.empty(self._blocks)
        sums = mirror_upper(sums.copy())
        weight, total = float(sums[-1, -1]), sums[-1, :-1]
        scatter = sums[:-1, :-1] - np.outer(total, total / weight)
        return Moments(
            self._blocks, n_rows, weight, self._shift, total / weight, scatter,
            squared_weight=squares, units={"psi": units_of(self._psi)},
        )  # fmt: skip


def _width(feature_map: FeatureMap) -> int:
    linear = feature_map.linear_
    return int(feature_map.n_raw_ if linear is None else linear.shape[1])


def _counted(chunk: Chunk) -> tuple[Chunk, NDArray[np.int64]]:
    """Rows of positive weight, and their numbers: the maps need not know the groups of others."""
    row = np.arange(chunk.row, chunk.row + chunk.n_rows)
    if chunk.weight is None or np.all(chunk.weight):
        return chunk, row
    index = np.flatnonzero(chunk.weight)
    return Chunk(chunk.x[index], chunk.s[index], None, chunk.weight[index]), row[index]


def feature_pair(pair: Pair, kernel_a: Any, kernel_b: Any, n_components: int) -> FeaturePair:
    """Fit the maps of both kernels on one sample of the rows."""
    size = check_count("n_components", n_components)
    sample = pair.landmark_rows(size)
    phi = sampled_map("kernel_a", kernel_a, pair.a, sample.x, sample.weight, size=size)
    psi = sampled_map("kernel_b", kernel_b, pair.b, sample.s, sample.weight, size=size)
    return FeaturePair(pair, phi, psi)
