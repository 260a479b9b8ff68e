"""Specifications of fits, their results, and how many digits rounding errors leave of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, LinAlgWarning, lapack

from scalefair._linalg import BLOCK_ROWS, Factor, factorize
from scalefair._typing import Array, FeatureMap
from scalefair.kernels import Kernel
from scalefair.moments import Moments
from scalefair.solve.ridge.system import Solution

MIN_DIGITS = 4.0  # digits below which a fit warns
MAX_RANKED = 1000  # features up to which the rank is counted: it takes as long as the solution
ROUNDING = float(np.finfo(np.float64).eps) / 2
SINGLE = float(np.finfo(np.float32).eps) / 2


@dataclass(frozen=True)
class Diagnostics:
    """Accuracy of a solution of (C + αD) β = c after rounding errors.

    Parameters
    ----------
    condition : float
        Condition number κ in the 1-norm (an estimate within a small factor), or of eigenvalues
        where those are available. Where a Cholesky factor solves the system, that of the matrix
        scaled to a unit diagonal: columns of different units cost no digits there.
    jitter : float
        What was added to the diagonal, relative to its mean.
    rank : int or None
        Numerical rank of the features' covariance; None where it was not computed (more than 1,000 features).
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
    matrix: Array, gram: Array, *, rounding: float = ROUNDING, scaled: bool = True, factor: Factor | None = None
) -> Diagnostics:
    """Return the accuracy of a solution, overwriting `factor`; `scaled`: the solver does not depend on scales."""
    rank = None
    # What makes the diagonals 1.
    diagonals = np.diagonal(gram), np.diagonal(matrix)
    unit, scale = (1.0 / np.sqrt(np.where(d > 0, d, 1.0)) for d in diagonals)
    if len(gram) <= MAX_RANKED:
        *_, count, _ = lapack.dpstrf((unit[:, None] * gram * unit).T, tol=4 * len(gram) * ROUNDING, overwrite_a=1)
        rank = int(count)
    try:
        factor = factorize(matrix) if factor is None else factor
    except LinAlgError:
        return Diagnostics(np.inf, np.inf, rank, len(gram), 0.0)
    scale = scale if scaled else np.ones(len(matrix))
    # κ₁ of the scaled matrix, O(m²): its factor is the factor with scaled rows.
    starts = range(0, len(matrix), BLOCK_ROWS)
    blocks = [slice(start, start + BLOCK_ROWS) for start in starts]
    sums = sum(scale[block] @ np.abs(matrix[block]) for block in blocks)
    lower = factor.lower
    lower *= scale[:, None]
    inverse, failed = lapack.dpocon(lower, float(np.max(sums * scale)), uplo="L")
    condition = np.inf if failed or not inverse > 0 else 1.0 / float(inverse)
    return digits_left(condition, rank, len(gram), rounding, factor.jitter)


def of_eigenvalues(values: Array, ridge: float, rounding: float = ROUNDING) -> Diagnostics:
    """Return the accuracy of a solution in an eigenbasis, of values + ridge."""
    largest = float(values.max(initial=0.0))
    rank = int(np.sum(values > len(values) * 2 * ROUNDING * largest))
    least = float(values.min(initial=np.inf)) + ridge
    condition = (largest + ridge) / least if least > 0 else np.inf
    return digits_left(condition, rank, len(values), rounding)


def digits_left(condition: float, rank: int | None, size: int, rounding: float, jitter: float = 0.0) -> Diagnostics:
    """Return the diagnostics with the digits −log₁₀(u κ) that these leave."""
    error = max(rounding, jitter) * condition
    digits = 16.0 if error == 0 else float(np.clip(-np.log10(error), 0.0, 16.0))
    return Diagnostics(float(condition), float(jitter), rank, size, digits)


def single_rounding(n_rows: int) -> float:
    """Relative error of sums over float32 rows: that of one row, averaged over all of them."""
    return SINGLE / float(np.sqrt(max(n_rows, 1)))


def warn_of_few_digits(diagnostics: Diagnostics, name: str) -> None:
    """Warn that a solution has fewer than `MIN_DIGITS`."""
    condition, jitter, rank, m, digits = vars(diagnostics).values()
    warnings.warn(
        f"{name}: about {digits:.1f} digits of the coefficients are left (condition number "
        f"{condition:.2g}, jitter {jitter:.2g}, rank {rank} of {m} features); use a larger "
        "alpha, fewer or rescaled features, or dtype='float64'",
        LinAlgWarning,
        stacklevel=4,
    )


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The fit of a squared loss, at the weight η that was given or that meets the limit."""

    solution: Solution
    alpha: float
    eta: float
    explained_share: float  # in sample; NaN without attributes, and for a constant f
    diagnostics: Diagnostics
    n_iter: int | None = None
    output_share: float | None = None  # with a kernel on f: of its features


@dataclass(frozen=True, eq=False)
class LossFit:
    """The fit of a general loss; as `RidgeFit`, of all scores that were solved for."""

    coef: Array
    intercept: Array
    eta: float
    explained_share: float
    diagnostics: Diagnostics
    mean_loss: float
    n_iter: int
    n_passes: int  # over the rows
    output_share: float | None = None


@dataclass(frozen=True, eq=False)
class Search:
    """Where the search for hyperparameters ended: the best of all starts, and its log evidence."""

    hyper: Array
    value: float
    converged: bool = True
    message: str = "nothing to search for"
    n_iter: int = 0  # of all runs
    n_evaluations: int = 0
    history: list[float] = field(default_factory=list)  # every evaluation


@dataclass(frozen=True, eq=False)
class ProcessFit:
    """A Gaussian process at the hyperparameters that were learnt or given."""

    distribution: Any  # of f given y
    psi: FeatureMap | None
    kernel: Kernel | None  # a²k
    theta: Array  # log length scales, log a and, with noise, log σ²
    amplitude: float
    eta: float
    log_evidence: float
    share: float  # of the mean, on the training rows
    n_rows: int
    diagnostics: Diagnostics
    search: Search
    at_bounds: tuple[str, ...]  # what reached a bound, and what that means
    phi: FeatureMap | None  # the dense process has no features and no moments
    moments: Moments | None
    evidence: Any  # at other hyperparameters; it refers to the training rows


@dataclass(frozen=True, eq=False)
class GPFit(ProcessFit):
    """A regression."""

    noise: float
    coef: Array  # mean of β, or the dual coefficients of the dense process


@dataclass(frozen=True, eq=False)
class GPClassifierFit(ProcessFit):
    """A classification."""

    n_passes: int


Bounds = tuple[float, float]


@dataclass(frozen=True)
class Spec:
    """What to fit: 1/n ΣV + α|β|² + ηP, with a weight η or a limit that finds it."""

    alpha: float
    eta: float
    unfairness: float | None
    penalty: str = "normalized"
    eps: float | None = None
    rounding: float = ROUNDING  # relative error of sums over the rows


@dataclass(frozen=True, eq=False)
class ProcessSpec:
    """A Gaussian process to fit, and how its hyperparameters are learnt."""

    eta: float
    unfairness: float | None = None
    penalty: str = "normalized"
    eps: float | None = None
    noise: float | None = None  # σ²; None: learnt, as the amplitude. Classes have none
    amplitude: float | None = None
    noise_bounds: Bounds | None = None
    amplitude_bounds: Bounds | None = None
    length_scale_bounds: Bounds | None = None
    learn_scales: bool = True  # else length scales and landmarks stay where they start
    n_restarts: int = 0
    max_iter: int = 100
    tol: float = 1e-5
    seed: int = 0
    inputs: tuple[str, ...] = ()  # names for messages

    def fixed(self, eta: float, amplitude: float, noise: float | None = None) -> ProcessSpec:
        """Return the same process at a weight, with hyperparameters that were learnt before."""
        return replace(
            self, eta=eta, unfairness=None, amplitude=amplitude, noise=noise, learn_scales=False, n_restarts=0
        )
