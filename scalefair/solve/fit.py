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
    """The fit of a squared loss, at the weight η that was used or found.

    `explained_share` is in sample; NaN without sensitive attributes, and for a constant f. With a
    kernel on f, `output_share` is the share of its features that s explains.
    """

    solution: Solution
    eta: float
    explained_share: float
    diagnostics: Diagnostics
    n_iter: int | None = None
    output_share: float | None = None


@dataclass(frozen=True, eq=False)
class LossFit:
    """The fit of a general loss; as `RidgeFit`, of all scores that were solved for.

    `n_iter` counts steps, `n_passes` passes over the rows.
    """

    coef: Array
    intercept: Array
    eta: float
    explained_share: float
    diagnostics: Diagnostics
    mean_loss: float
    n_iter: int
    n_passes: int
    output_share: float | None = None


@dataclass(frozen=True, eq=False)
class Search:
    """Where the search for hyperparameters ended: the best of all starts, and its log evidence.

    `converged`: the run that found it ended by its tolerance, or where no slope is left; `message`
    says how. The counts are of all runs, and the history has every evaluation.
    """

    hyper: Array
    value: float
    converged: bool = True
    message: str = "nothing to search for"
    n_iter: int = 0
    n_evaluations: int = 0
    history: list[float] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ProcessFit:
    """A Gaussian process at the hyperparameters that were learnt or given.

    `distribution` is that of f given y, `kernel` a²k, and `theta` log length scales, log a and,
    with noise, log σ². The share is that of the mean on the training rows, of which `n_rows` have a
    positive weight. `at_bounds` says what ran to a bound, and what that means. The dense process
    has no features and no moments.
    """

    distribution: Any
    psi: FeatureMap | None
    kernel: Kernel | None
    theta: Array
    amplitude: float
    eta: float
    log_evidence: float
    share: float
    n_rows: int
    diagnostics: Diagnostics
    search: Search
    at_bounds: tuple[str, ...]
    phi: FeatureMap | None
    moments: Moments | None


@dataclass(frozen=True, eq=False)
class GPFit(ProcessFit):
    """A regression; `coef` is the mean of β, or the dual coefficients of the dense process.

    `evidence` is for other hyperparameters; it knows where the training rows are.
    """

    noise: float
    coef: Array
    evidence: Any


@dataclass(frozen=True, eq=False)
class GPClassifierFit(ProcessFit):
    """A classification; `evidence` is for other hyperparameters, as in `GPFit`."""

    n_passes: int
    evidence: Any
