"""Conjugate gradients on a block of right-hand sides, and a Nyström preconditioner for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular, svd

from scalefair._typing import Array

Operator = Callable[[Array], Array]
"""V ↦ MV for V of shape (m, k)."""

Progress = Callable[[int, float], Any]
"""Called after every iteration with its number and the largest relative residual."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """UΛUᵀ ≈ C, of low rank; a preconditioner of C + αI for every α.

    Parameters
    ----------
    values : array of shape (r,)
        Λ, descending; r = 0 is no preconditioner.
    vectors : array of shape (m, r)
        U, orthonormal.
    """

    values: Array
    vectors: Array

    @classmethod
    def from_product(cls, probe: Array, product: Array) -> Sketch:
        """Nyström's approximation Y(ΩᵀY)⁻¹Yᵀ from an orthonormal Ω and Y = CΩ, both (m, r).

        A shift in the last digits of Y keeps ΩᵀY positive definite, and is taken off Λ again.
        """
        shift, shifted, lower = _shifted(probe, product)
        half = solve_triangular(lower, shifted.T, lower=True, check_finite=False).T
        vectors, roots, _ = svd(half, full_matrices=False, check_finite=False)
        return cls(np.maximum(roots**2 - shift, 0.0), vectors)

    def whiten(self, alpha: float) -> Operator:
        """T = U (Λ + α)^(−1/2) Uᵀ + (λ_r + α)^(−1/2) (I − UUᵀ) as a function.

        T(C + αI)T is near I, and its condition number about (λ_r + α)/α.
        """
        rest = 1.0 / np.sqrt(self.values.min(initial=self.largest) + alpha)
        change = (1.0 / np.sqrt(self.values + alpha) - rest)[:, None]

        def apply(V: Array) -> Array:
            return np.asarray(rest * V + self.vectors @ (change * (self.vectors.T @ V)))

        return apply

    @property
    def largest(self) -> float:
        """Largest eigenvalue, 0 if there is none."""
        return float(self.values.max(initial=0.0))


def _shifted(probe: Array, product: Array) -> tuple[float, Array, Array]:
    """Return the least shift σ that does, Y + σΩ, and the lower factor of Ωᵀ(Y + σΩ)."""
    size = max(float(np.linalg.norm(product)), np.finfo(float).tiny)
    # A shift beyond |Y| does for any Y. NaN would do too, as a factor of NaN.
    for power in range(18) if np.isfinite(size) else ():
        shift = float(np.finfo(float).eps) * size * 10.0**power
        shifted = product + shift * probe
        core = probe.T @ shifted
        try:
            return shift, shifted, np.asarray(np.linalg.cholesky((core + core.T) / 2), np.float64)
        except LinAlgError:
            continue
    raise LinAlgError(
        f"a product with the Gram matrix of the features has the norm {size}, and no shift makes "
        "it positive definite; look for huge or missing values among the features"
    )


class Solved(NamedTuple):
    """Solution of a block of systems, and the iterations it took."""

    solution: Array
    n_iter: int


def block_cg(
    operator: Operator, right: Array, tol: float, max_iter: int, progress: Progress | None = None
) -> Solved:
    """Solve M Z = B by conjugate gradients that share one Krylov space over all columns of B.

    The residual is kept as QG with orthonormal Q, which stands columns that are equal, zero or
    converged before the others. One step, with S the search directions and W = (SᵀMS)⁻¹:

        Z ← Z + SWG,   Qρ ← Q − MSW (by QR),   G ← ρG,   S ← Q + Sρᵀ

    Parameters
    ----------
    operator : callable
        M, symmetric positive definite.
    right : array of shape (m, k)
        B.
    tol : float
        Norm that the residual of every column is to fall below.
    max_iter : int
        Most products with M.
    progress : callable or None
        Called after every iteration.
    """
    Q, G = np.linalg.qr(right)
    S, Z = Q, np.zeros_like(right)
    n_iter = 0
    while n_iter < max_iter and largest_norm(G) > tol:
        MS = operator(S)
        inner = S.T @ MS
        try:
            step = cho_factor((inner + inner.T) / 2, check_finite=False)
        except LinAlgError:  # rounding error is all that is left of M along some direction
            break
        Z += S @ cho_solve(step, G, check_finite=False)
        Q, turn = np.linalg.qr(Q - cho_solve(step, MS.T, check_finite=False).T)
        G, S = turn @ G, Q + S @ turn.T
        n_iter += 1
        if progress is not None:
            progress(n_iter, largest_norm(G))
    return Solved(Z, n_iter)


def largest_norm(columns: Array) -> float:
    """Largest Euclidean norm of a column."""
    return float(np.linalg.norm(columns, axis=0).max(initial=0.0))
