"""Loops over pairs of rows that no BLAS call covers: L1 distances and equality.

The landmarks Z are transposed once, so that the innermost loop runs over them in memory order,
and taken a block at a time, so that the block stays in cache while the rows of X pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import kernel, reduction
from scalefair._jit.vectors import exp_vector

Matrix = NDArray[np.floating[Any]]

BLOCK = 512


@kernel
def _add_l1(x: Matrix, Zt: Matrix, row: Matrix) -> None:
    """Add Σ_l |x_l - z_jl| to row_j; four inputs at a time, to load and store row_j less often."""
    d = x.size
    for k in range(0, d - d % 4, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        z0, z1, z2, z3 = Zt[k], Zt[k + 1], Zt[k + 2], Zt[k + 3]
        for j in range(row.size):
            row[j] += (abs(x0 - z0[j]) + abs(x1 - z1[j])) + (abs(x2 - z2[j]) + abs(x3 - z3[j]))
    for k in range(d - d % 4, d):
        xk = x[k]
        z = Zt[k]
        for j in range(row.size):
            row[j] += abs(xk - z[j])


@kernel
def laplace(X: Matrix, Z: Matrix, out: Matrix) -> None:
    """Write exp(-Σ_l |x_il - z_jl|) into `out`; inputs are already divided by the length scale.

    Parameters
    ----------
    X, Z : arrays of shape (n, d) and (p, d)
    out : array of shape (n, p), C-ordered
    """
    for start in range(0, Z.shape[0], BLOCK):
        Zt = np.ascontiguousarray(Z[start : start + BLOCK].T)
        for i in range(X.shape[0]):
            row = out[i, start : start + BLOCK]
            row[:] = 0
            _add_l1(X[i], Zt, row)
            exp_vector(row, -1.0)


@reduction
def laplace_contraction(X: Matrix, Z: Matrix, W: Matrix) -> Matrix:
    """Return Σ_ij W_ij |x_il - z_jl| for every input l, shape (d,).

    Parameters
    ----------
    X, Z : arrays of shape (n, d) and (p, d)
    W : array of shape (n, p)
        For the gradient, ∂/∂K times K.
    """
    d = X.shape[1]
    sums = np.zeros(d)
    for start in range(0, Z.shape[0], BLOCK):
        Zt = np.ascontiguousarray(Z[start : start + BLOCK].T)
        for i in range(X.shape[0]):
            w = W[i, start : start + BLOCK]
            for k in range(d):
                x = X[i, k]
                z = Zt[k]
                total = 0.0
                for j in range(w.size):
                    total += w[j] * abs(x - z[j])
                sums[k] += total
    return sums


@kernel
def equal_rows(X: Matrix, Z: Matrix, out: Matrix) -> None:
    """Write 1[row i of X equals row j of Z] into `out`; NaN equals NaN.

    Parameters
    ----------
    X, Z : arrays of shape (n, d) and (p, d)
        Codes, of the same type.
    out : array of shape (n, p), C-ordered
    """
    for start in range(0, Z.shape[0], BLOCK):
        Zt = np.ascontiguousarray(Z[start : start + BLOCK].T)
        for i in range(X.shape[0]):
            row = out[i, start : start + BLOCK]
            row[:] = 1
            for k in range(X.shape[1]):
                x = X[i, k]
                z = Zt[k]
                for j in range(row.size):
                    same = (x == z[j]) | (np.isnan(x) & np.isnan(z[j]))
                    row[j] = row[j] if same else 0
