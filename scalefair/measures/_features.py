"""Kernels of variables of any kind: Gram matrices, feature maps, and moments of the features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.data import ChunkSum
from scalefair.errors import check_count
from scalefair.features.base import is_map, n_features, whitened
from scalefair.features.landmarks import distinct_rows, fitted_kernel
from scalefair.features.mixed import mixed_map, units_of, with_rare_groups
from scalefair.kernels import Categorical, Kernel
from scalefair.measures._pair import Pair, Variable
from scalefair.moments import ALL_ROWS, FoldMoments, Folds, Moments

TOLERANCE = 1e-9  # Landmarks are added until so much of the trace of the sample's Gram matrix is left
CHUNK_ROWS = 8192  # Rows that a thread takes at a time
MAX_BLOCK_NUMBERS = 2**19
"""Numbers in the feature rows that are computed at a time: many, since moments of all folds are added each time."""


@dataclass(frozen=True, eq=False)
class Gram:
    """A kernel of mixed columns: the product (or the sum) of kernels of some columns each."""

    parts: tuple[tuple[Kernel, NDArray[np.intp]], ...]
    product: bool = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Return the block k(x_i, z_j), of shape (n, p)."""
        blocks = [k(np.take(X, at, axis=1), np.take(Z, at, axis=1)) for k, at in self.parts]
        return np.asarray(reduce(np.multiply if self.product else np.add, blocks))

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), of shape (n,)."""
        values = [kernel.diag(np.take(X, at, axis=1)) for kernel, at in self.parts]
        return np.asarray(reduce(np.multiply if self.product else np.add, values))


def gram_of(name: str, kernel: Any, variable: Variable, rows: Array, weight: Array | None) -> Gram:
    """Return the exact kernel, its length scale learnt from the rows where none is given; `name` is for errors."""
    codes, numbers = np.flatnonzero(variable.categorical), np.flatnonzero(~variable.categorical)
    if is_map(kernel):
        raise TypeError(f"{name}={kernel!r} is a feature map; give method='features' or a kernel")
    if kernel == "categorical":
        return Gram(((Categorical(), np.arange(rows.shape[1])),))
    if len(codes) and kernel not in ("auto", "linear"):
        raise ValueError(
            f"{name}={kernel!r} needs numbers, but {variable.name} has categories in columns "
            f"{codes}; use {name}=None for mixed columns, or 'categorical'"
        )
    smooth, scale = ("rbf", "standardized") if kernel == "auto" else (kernel, "median")
    parts: list[tuple[Kernel, NDArray[np.intp]]] = [(Categorical(), codes)] if len(codes) else []
    if len(numbers):
        w = np.ones(len(rows)) if weight is None else weight
        parts.append((fitted_kernel(smooth, scale, rows[:, numbers], w, 0), numbers))
    return Gram(tuple(parts), product=kernel != "linear")


def grams(pair: Pair, rows: Chunk, weight: Array | None = None) -> tuple[Gram, Gram]:
    """Return the exact kernels of both variables, learnt from some rows."""
    of_a = gram_of("kernel_a", pair.kernels[0], pair.a, rows.x, weight)
    return of_a, gram_of("kernel_b", pair.kernels[1], pair.b, rows.s, weight)


@dataclass(eq=False)
class PivotMap:
    """Nyström features φ(x) = L⁻¹ k(Z, x), where LLᵀ = K_ZZ is the Cholesky factor."""

    gram: Any
    landmarks: Array
    linear_: Array | None  # L⁻ᵀ
    n_raw_: int
    residual: float  # share of the trace of the sample's Gram matrix that the features miss

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return k(x, Z), of shape (k, m)."""
        values: Rows = self.gram(X, self.landmarks)
        if out is not None:
            out[...] = values
        return values

    def transform(self, X: Any) -> Rows:
        """Return the features, of shape (k, m)."""
        return whitened(self, X)


def pivot_map(gram: Any, rows: Array, size: int, tolerance: float = TOLERANCE) -> PivotMap:
    """Choose at most `size` landmarks by pivoted Cholesky factorisation, up to a relative residual trace."""
    # The next one is the row farthest from the span of those before it; no n×n array is formed.
    rest = np.array(gram.diag(rows), dtype=np.float64)
    whole, least = rest.sum(), tolerance * rest.sum()
    factor = np.zeros((min(size, len(rows)), len(rows)))
    pivots: list[int] = []
    # The second condition stops at rounding error, where a root would be of nothing.
    while len(pivots) < len(factor) and rest.sum() > least and rest.max() > 1e-13 * whole / len(rows):
        pivot, m = int(rest.argmax()), len(pivots)
        row = gram(rows[pivot : pivot + 1], rows)[0] - factor[:m, pivot] @ factor[:m]
        factor[m] = row / np.sqrt(row[pivot])
        rest = np.maximum(rest - factor[m] ** 2, 0.0)
        rest[pivot] = 0.0
        pivots.append(pivot)
    m, L = len(pivots), factor[: len(pivots), pivots].T
    inverse = solve_triangular(L, np.eye(m), lower=True, check_finite=False)
    residual = float(rest.sum() / whole)
    return PivotMap(gram, rows[pivots], np.ascontiguousarray(inverse.T), m, residual)


def sampled_map(
    name: str, kernel: Any, variable: Variable, values: Array, weight: Array | None, *, size: int
) -> FeatureMap:
    """Return the feature map of a kernel, exact for categories and "linear"; see `gram_of`."""
    plain = isinstance(kernel, str) and kernel in ("linear", "categorical")
    if plain or is_map(kernel) or (kernel == "auto" and variable.categorical.all()):
        return mixed_map(
            kernel, "median", size, rows=values, weight=weight, categorical=variable.categorical,
            groups=variable.groups, seed=0, name=name,
        )  # fmt: skip
    if variable.groups is not None:
        coded = variable.categorical | (kernel == "categorical")
        values, weight = with_rare_groups(values, weight, variable.groups, coded)
    gram = gram_of(name, kernel, variable, values, weight)
    distinct, _ = distinct_rows(values, np.ones(len(values)) if weight is None else weight)
    return pivot_map(gram, distinct, size)


ColumnsBeside = Callable[[Array, Array, Array], Array]
"""Further columns of rows, from their features φ and ψ and their weights."""


@dataclass(frozen=True, eq=False)
class FeaturePair:
    """Two variables and the maps φ of a and ψ of b; `centre` is near the mean of a."""

    pair: Pair
    phi: FeatureMap
    psi: FeatureMap
    centre: Array

    def moments(self, folds: Folds = ALL_ROWS, columns: ColumnsBeside | None = None, width: int = 0) -> FoldMoments:
        """Return the moments of [φ, ψ, columns(φ, ψ, w)] of the rows of each fold."""
        start = partial(moment_sums, self.phi, self.psi, folds, columns, width)
        return self.pair.source.fold(start, CHUNK_ROWS)  # type: ignore[no-any-return]


def feature_pair(pair: Pair, n_components: int = 200) -> FeaturePair:
    """Fit the maps of both kernels on one sample of the rows."""
    size = check_count("n_components", n_components)
    sample, (kernel_a, kernel_b) = pair.landmark_rows(size), pair.kernels
    phi = sampled_map("kernel_a", kernel_a, pair.a, sample.x, sample.weight, size=size)
    psi = sampled_map("kernel_b", kernel_b, pair.b, sample.s, sample.weight, size=size)
    return FeaturePair(pair, phi, psi, sample.x.mean(axis=0))


def moment_sums(
    phi: FeatureMap, psi: FeatureMap, folds: Folds = ALL_ROWS, columns: ColumnsBeside | None = None, width: int = 0
) -> ChunkSum:
    """Return an accumulator of moments of a `FeaturePair`, whitened: NOCCO divides by their smallest directions."""
    blocks, units = {"phi": n_features(phi), "psi": n_features(psi), "y": width}, {"psi": units_of(psi)}
    size = max(MAX_BLOCK_NUMBERS // (phi.n_raw_ + psi.n_raw_ + width), 256)

    def nothing() -> FoldMoments:
        return FoldMoments([Moments.empty(blocks)] * folds.count)

    def of(chunk: Chunk) -> FoldMoments:
        # Rows of weight 0 are left out: the maps need not know their groups. Blocks are added as they come:
        # the moments of many folds are larger than the rows.
        total, weight, index = None, chunk.weights, np.flatnonzero(chunk.weights)
        for at in (index[start : start + size] for start in range(0, len(index), size)):
            Phi, Psi = whitened(phi, chunk.x[at]), whitened(psi, chunk.s[at])
            rows = {"phi": Phi, "psi": Psi, "y": columns(Phi, Psi, weight[at]) if columns else Phi[:, :0]}
            fold = None if folds.of is None else folds.of(chunk.row + at)
            some = [slice(None)] if fold is None else [fold == k for k in range(folds.count)]
            more = FoldMoments(
                Moments.of_rows({n: rows[n][own] for n in rows}, weight[at][own], units)
                if len(at[own])
                else Moments.empty(blocks)
                for own in some
            )
            total = more if total is None else total + more
        return total or nothing()

    return ChunkSum(of, nothing)
