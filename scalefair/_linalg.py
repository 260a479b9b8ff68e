"""Dense linear algebra that every package uses: rank-k updates, positive solves, roots."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cython_blas
from scipy.linalg.lapack import dpstrf

from scalefair._typing import Array, Rows

EPS = float(np.finfo(np.float64).eps)
BLOCK_ROWS = 256  # of a matrix at a time, where a second one would take memory
_LOWER, _NO_TRANSPOSE = ctypes.c_char(b"L"), ctypes.c_char(b"N")


def _blas_routine(name: str) -> Any:
    """Return a BLAS routine without the interpreter lock, which SciPy's wrappers hold."""
    capsule = cython_blas.__pyx_capi__[name]  # type: ignore[literal-required]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 10)(address)


_SYRK = {
    np.dtype(np.float64): (_blas_routine("dsyrk"), ctypes.c_double),
    np.dtype(np.float32): (_blas_routine("ssyrk"), ctypes.c_float),
}


def rank_k_update(triangle: Rows, rows: Rows, keep: float = 1.0) -> None:
    """Upper triangle of `triangle` ← keep · itself + rowsᵀ rows, in place; all C-ordered."""
    if not (rows.flags.c_contiguous and triangle.flags.c_contiguous):
        raise ValueError("rank_k_update needs C-ordered arrays; copy with numpy.ascontiguousarray")
    if rows.dtype != triangle.dtype or triangle.shape != (rows.shape[1],) * 2:
        raise ValueError(
            f"rank_k_update got rows {rows.dtype}{rows.shape} for a triangle "
            f"{triangle.dtype}{triangle.shape}; dtypes must agree and shapes be (k, m), (m, m)"
        )
    syrk, scalar = _SYRK[rows.dtype]
    k, m = (ctypes.c_int(size) for size in rows.shape)
    one, beta = scalar(1.0), scalar(keep)
    # A C-ordered (k, m) array is the Fortran-ordered (m, k) matrix rowsᵀ, and Fortran's lower
    # triangle is C's upper one.
    at = ctypes.addressof
    syrk(
        at(_LOWER), at(_NO_TRANSPOSE), at(m), at(k), at(one), rows.ctypes.data, at(m),
        at(beta), triangle.ctypes.data, at(m),
    )  # fmt: skip


def mirror_upper(triangle: Array) -> Array:
    """Make a matrix symmetric in place, from its upper triangle; return it."""
    for start in range(0, len(triangle), BLOCK_ROWS):
        block, below = slice(start, start + BLOCK_ROWS), slice(start + BLOCK_ROWS, None)
        triangle[below, block] = triangle[block, below].T
        corner = triangle[block, block]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
    return triangle


def add_outer(matrix: Array, left: Array, right: Array) -> None:
    """matrix += left rightᵀ in place, without a second matrix."""
    for start in range(0, len(matrix), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        matrix[block] += left[block, None] * right


def times_each(matrix: Array, stack: Array) -> Array:
    """Return matrix · β for each β of shape (…, m, t), by one product instead of many."""
    columns = np.moveaxis(stack, -2, 0)
    product = matrix @ columns.reshape(len(columns), math.prod(columns.shape[1:]))
    return np.moveaxis(product.reshape(len(matrix), *columns.shape[1:]), 0, -2)


class Factor(NamedTuple):
    """Lower Cholesky factor of a matrix (its upper triangle holds anything), and the jitter."""

    lower: Array
    jitter: float

    def solve(self, right: Array) -> Array:
        """Solve matrix · X = right."""
        return np.asarray(cho_solve((self.lower, True), right, check_finite=False))


def factorize(matrix: Array, max_jitter: float = 1e-8) -> Factor:
    """Cholesky factor of `matrix` + jitter·I, with the least jitter of 0, 1e-14, 1e-12, … to do."""
    scale = float(np.mean(np.diagonal(matrix))) if matrix.size else 1.0
    jitters = [0.0, *(10.0**power for power in range(-14, 0, 2) if 10.0**power <= max_jitter)]
    for jitter in jitters:
        try:
            shifted = matrix if jitter == 0 else matrix + jitter * scale * np.eye(len(matrix))
            return Factor(cho_factor(shifted.T, lower=True, check_finite=False)[0], jitter)
        except LinAlgError:
            continue
    raise LinAlgError(
        f"the {matrix.shape[0]}×{matrix.shape[0]} system is singular (not positive definite even "
        f"with a relative jitter of {max_jitter:g}); use a larger alpha or fewer features"
    )


def positive_eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending, floored at 0) and eigenvectors of a positive semi-definite matrix."""
    # Not SciPy's, which holds the interpreter lock: folds are decomposed side by side.
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values, 0.0), vectors


def pivoted_root(gram: Array, tol: float = EPS) -> Array:
    """Return B of shape (r, n) with BᵀB = K for a positive semi-definite K of rank r; Kᵀ is in LAPACK's order."""
    triangle, pivots, rank, _ = dpstrf(gram.T, tol=tol * gram.diagonal().max(initial=0.0))
    root = np.empty((rank, len(gram)))
    root[:, pivots - 1] = np.triu(triangle[:rank])
    return root


def low_rank_eigh(matrix: Array) -> tuple[Array, Array]:
    """As `positive_eigh`, but r values and vectors if the rank r is low: K = BᵀB = UΣ²Uᵀ where B = VΣUᵀ, O(nr²)."""
    if len(pivoted_root(matrix[::4, ::4])) == len(matrix[::4]):  # of a part of the rows, to see which is faster
        return positive_eigh(matrix)
    _, roots, vectors = np.linalg.svd(pivoted_root(matrix, 10 * EPS), full_matrices=False)
    return roots[::-1] ** 2, vectors[::-1].T


def thin_root(matrix: Array) -> Array:
    """Return D of shape (r, p) with `matrix` = DᵀD, positive semi-definite of rank r."""
    values, vectors = positive_eigh(matrix)
    live = values > EPS * values.max(initial=0.0)
    return np.asarray(np.sqrt(values[live])[:, None] * vectors[:, live].T)


def inverse_root(matrix: Array, eps: float, cutoff: float = 1e-14) -> Array:
    """Return T (p×r) with T Tᵀ = (matrix + eps·I)⁻¹ on the range of `matrix`, above `cutoff`."""
    values, vectors = positive_eigh(matrix)
    keep = values > cutoff * values.max(initial=0.0)
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep] + eps))
