"""What came out of a fit: frozen values between the solvers and the estimators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scalefair._typing import Array, FeatureMap
from scalefair.kernels import Kernel
from scalefair.moments import Moments
from scalefair.solve.diagnostics import Diagnostics
from scalefair.solve.ridge.system import Solution


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The fit of a squared loss, at the weight η that was used or found."""

    solution: Solution
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
    at_bounds: tuple[str, ...]  # what ran to a bound, and what that means
    phi: FeatureMap | None  # the dense process has no features and no moments
    moments: Moments | None


@dataclass(frozen=True, eq=False)
class GPFit(ProcessFit):
    """A regression; `evidence` is for other hyperparameters, and knows where the rows are."""

    noise: float
    coef: Array  # mean of β, or the dual coefficients of the dense process
    evidence: Any


@dataclass(frozen=True, eq=False)
class GPClassifierFit(ProcessFit):
    """A classification; `evidence` is for other hyperparameters, as in `GPFit`."""

    n_passes: int
    evidence: Any
