"""Kernels of pairs of rows: Gaussian and Matérn from inner products, Laplace.

The inner products X Zᵀ come from BLAS; |x - z|² = |x|² + |z|² - 2 x·z. Inputs are already divided
by the length scale, and shifted to a common point near both X and Z: else the difference cancels.

Where |x|² and |z|² agree to the last bit and the difference is within rounding (64 ulp of |x|²),
the points are taken to be identical and their distance is exactly 0. With norms from
`squared_norms`, which adds in the same order for every row, identical rows always qualify.

L1 distances have no BLAS call: the landmarks Z are transposed once, so that the innermost loop runs over them in memory
order, and taken a block at a time, so that the block stays in cache while the rows of X pass.
"""

from __future__ import annotations

import numpy as np

from scalefair._jit._compile import Matrix, kernel, reduction
from scalefair._jit.elementary import HALF
from scalefair._jit.vectors import exp_negative, quadratic_exp

ROUNDING64 = np.float32(2.0**-46)
ROUNDING32 = np.float32(2.0**-17)
ZERO = np.float32(0.0)
LANDMARKS_AT_ONCE = 512  # So many stay in the cache while a loop runs over them


@kernel
def squared_norms(X: Matrix) -> Matrix:
    """Return |x_i|² for the rows of X, shape (n,), in the precision of X."""
    norms = np.zeros(X.shape[0], X.dtype)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            norms[i] += X[i, j] * X[i, j]
    return norms


@kernel
def _half_squared(row: Matrix, norm: float, zz: Matrix) -> None:
    """Replace inner products x·z_j by |x - z_j|²/2."""
    noise = norm * (ROUNDING32 if row.itemsize == 4 else ROUNDING64)
    for j in range(row.size):
        half = HALF * (norm + zz[j]) - row[j]
        same = (norm == zz[j]) & (half <= noise)
        row[j] = ZERO if same | (half < ZERO) else half


@kernel
def _distance(row: Matrix, norm: float, zz: Matrix, two_nu: int) -> None:
    """Replace inner products x·z_j by √(2ν) |x - z_j|."""
    _half_squared(row, norm, zz)
    factor = np.float32(2 * two_nu)
    for j in range(row.size):
        row[j] = np.sqrt(factor * row[j])


@kernel
def gaussian(D: Matrix, xx: Matrix, zz: Matrix) -> None:
    """Replace D = XZᵀ, C-ordered, by exp(-|x_i - z_j|²/2); xx and zz are `squared_norms` of X and Z."""
    for i in range(D.shape[0]):
        row = D[i]
        _half_squared(row, xx[i], zz)
        exp_negative(row)


@kernel
def matern(D: Matrix, xx: Matrix, zz: Matrix, nu_code: int) -> None:
    """Replace inner products by the Matérn kernel, a = √(2ν) |x_i - z_j|.

    exp(-a) for ν = 1/2, (1 + a) exp(-a) for 3/2, (1 + a + a²/3) exp(-a) for 5/2. Arguments as in
    `gaussian`; `nu_code` is 2ν: 1, 3 or 5.
    """
    for i in range(D.shape[0]):
        row = D[i]
        _distance(row, xx[i], zz, nu_code)
        if nu_code == 1:
            exp_negative(row)
        else:
            quadratic_exp(row, 1.0 / 3.0 if nu_code == 5 else 0.0)


@kernel
def matern_slope(D: Matrix, xx: Matrix, zz: Matrix, nu_code: int) -> None:
    """Replace inner products by h = -k'(r)/r, r = |x_i - z_j|, up to a factor.

    exp(-r)/r (0 where r = 0) for ν = 1/2, h/3 = exp(-a) for 3/2, 3h/5 = (1 + a) exp(-a) for 5/2.
    ∂k/∂log θ_l = h (x_il - z_jl)²/θ_l². Arguments as in `matern`.
    """
    distance = np.empty(D.shape[1], D.dtype)
    for i in range(D.shape[0]):
        row = D[i]
        _distance(row, xx[i], zz, nu_code)
        if nu_code == 5:
            quadratic_exp(row, 0.0)
        else:
            for j in range(row.size):
                distance[j] = row[j]
            exp_negative(row)
        if nu_code == 1:
            for j in range(row.size):
                row[j] = row[j] / distance[j] if distance[j] > ZERO else ZERO


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
    """Write exp(-Σ_l |x_il - z_jl|) into `out`, of shape (n, p) and C-ordered."""
    for start in range(0, Z.shape[0], LANDMARKS_AT_ONCE):
        Zt = np.ascontiguousarray(Z[start : start + LANDMARKS_AT_ONCE].T)
        for i in range(X.shape[0]):
            row = out[i, start : start + LANDMARKS_AT_ONCE]
            row[:] = 0
            _add_l1(X[i], Zt, row)
            exp_negative(row)


@reduction
def laplace_contraction(X: Matrix, Z: Matrix, W: Matrix) -> Matrix:
    """Return Σ_ij W_ij |x_il - z_jl| for every input l, shape (d,)."""
    d = X.shape[1]
    sums = np.zeros(d)
    for start in range(0, Z.shape[0], LANDMARKS_AT_ONCE):
        Zt = np.ascontiguousarray(Z[start : start + LANDMARKS_AT_ONCE].T)
        for i in range(X.shape[0]):
            w = W[i, start : start + LANDMARKS_AT_ONCE]
            for k in range(d):
                x = X[i, k]
                z = Zt[k]
                total = 0.0
                for j in range(w.size):
                    total += w[j] * abs(x - z[j])
                sums[k] += total
    return sums
