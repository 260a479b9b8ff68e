"""Features of any kernel from few landmarks, as many as its error asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from scalefair._typing import Array, Rows

TOLERANCE = 1e-9
"""Landmarks are added until so much of the trace of the sample's Gram matrix is left."""


class Block(Protocol):
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

    gram: Block
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


def pivot_map(gram: Block, rows: Array, size: int, tolerance: float = TOLERANCE) -> PivotMap:
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
