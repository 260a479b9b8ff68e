"""How much a solution is worth: condition number, jitter, rank, and the digits that are left."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, LinAlgWarning, lapack

from scalefair._linalg import Factor, factorize, row_blocks
from scalefair._typing import Array

FEW = 4.0
"""Digits below which a fit warns."""

RANKED = 2000
"""Features up to which the rank is counted: it takes as long as the solution."""

ROUNDING = float(np.finfo(np.float64).eps) / 2
SINGLE = float(np.finfo(np.float32).eps) / 2


@dataclass(frozen=True)
class Diagnostics:
    """What rounding has left of a solution of (C + αD) β = c.

    Parameters
    ----------
    condition : float
        Condition number κ in the 1-norm (an estimate within a small factor), or of eigenvalues
        where those are at hand. Where a Cholesky factor solves the system, that of the matrix
        scaled to a unit diagonal: columns of different units cost no digits there.
    jitter : float
        What was added to the diagonal, relative to its mean.
    rank : int or None
        Numerical rank of the features' covariance; None where nobody has counted it (more than
        2,000 features).
    n_features : int
        Their number m.
    digits : float
        −log₁₀(u κ), u the rounding error of the sums or the jitter, whichever is larger, between 0
        and 16: so many digits of the coefficients are right. Predictions have more.
    """

    condition: float
    jitter: float
    rank: int | None
    n_features: int
    digits: float


def diagnose(
    matrix: Array,
    gram: Array,
    *,
    rounding: float = ROUNDING,
    scaled: bool = True,
    factor: Factor | None = None,
) -> Diagnostics:
    """Judge the solution of a positive definite system.

    Parameters
    ----------
    matrix : array of shape (m, m)
        What is solved for.
    gram : array of shape (m, m)
        The covariance of the features, without ridge.
    rounding : float
        Relative error of its entries; see `rounding_of`.
    scaled : bool
        Whether the solver stands columns of different scales, as a Cholesky factor does and an
        eigendecomposition does not.
    factor : Factor, optional
        Of the matrix; it is overwritten.
    """
    rank = _rank(gram)
    try:
        factor = factorize(matrix) if factor is None else factor
    except LinAlgError:
        return Diagnostics(np.inf, np.inf, rank, len(gram), 0.0)
    condition = _condition(matrix, factor, _scale(matrix) if scaled else np.ones(len(matrix)))
    return judged(condition, rank, len(gram), rounding, factor.jitter)


def of_eigenvalues(values: Array, ridge: float, rounding: float = ROUNDING) -> Diagnostics:
    """Judge the solution in an eigenbasis, of values + ridge."""
    largest = float(values.max(initial=0.0))
    rank = int(np.sum(values > len(values) * 2 * ROUNDING * largest))
    least = float(values.min(initial=np.inf)) + ridge
    condition = (largest + ridge) / least if least > 0 else np.inf
    return judged(condition, rank, len(values), rounding)


def judged(
    condition: float, rank: int | None, size: int, rounding: float, jitter: float = 0.0
) -> Diagnostics:
    """Return the diagnostics with the digits that these leave."""
    error = max(rounding, jitter) * condition
    digits = 16.0 if error == 0 else float(np.clip(-np.log10(error), 0.0, 16.0))
    return Diagnostics(float(condition), float(jitter), rank, size, digits)


def rounding_of(dtype: str, n_rows: int) -> float:
    """Relative error of sums over rows: that of one row in float32, averaged over all of them."""
    single = np.dtype(dtype) == np.float32
    return SINGLE / np.sqrt(max(n_rows, 1)) if single else ROUNDING


def warn_of_few_digits(found: Diagnostics, name: str) -> None:
    """Warn of a solution with fewer than four digits."""
    if found.digits < FEW:
        warnings.warn(
            f"{name}: about {found.digits:.1f} digits of the coefficients are left (condition "
            f"number {found.condition:.2g}, jitter {found.jitter:.2g}, rank {found.rank} of "
            f"{found.n_features} features); use a larger alpha, fewer or rescaled features, or "
            "dtype='float64'",
            LinAlgWarning,
            stacklevel=4,
        )


def _scale(matrix: Array) -> Array:
    diagonal = np.diagonal(matrix)
    return 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _condition(matrix: Array, factor: Factor, scale: Array) -> float:
    """κ₁ of the scaled matrix, O(m²): its factor is the factor with scaled rows."""
    sums = np.zeros(len(matrix))
    for block in row_blocks(matrix):
        sums += scale[block] @ np.abs(matrix[block])
    lower = factor.lower
    lower *= scale[:, None]
    inverse, failed = lapack.dpocon(lower, float(np.max(sums * scale)), uplo="L")
    return np.inf if failed or not inverse > 0 else 1.0 / float(inverse)


def _rank(gram: Array) -> int | None:
    if len(gram) > RANKED:
        return None
    scale = _scale(gram)
    *_, rank, _ = lapack.dpstrf(scale[:, None] * gram * scale, tol=4 * len(gram) * ROUNDING)
    return int(rank)
