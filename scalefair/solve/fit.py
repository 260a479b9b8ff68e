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
    """The fit of a squared loss.

    - `solution`: β and the intercept.
    - `eta`: The weight that was used or found.
    - `explained_share`: In sample; NaN without sensitive attributes, and for a constant f.
    - `diagnostics`: What rounding has left of the solution.
    - `n_iter`: Steps of an iterative solution.
    - `output_share`: With a kernel on f: the share of its features that s explains.
    """

    solution: Solution
    eta: float
    explained_share: float
    diagnostics: Diagnostics
    n_iter: int | None = None
    output_share: float | None = None


@dataclass(frozen=True, eq=False)
class LossFit:
    """The fit of a general loss; as `RidgeFit`, and more.

    - `coef`, `intercept` (m, k) and (k,): Of the scores that were solved for.
    - `mean_loss`: 1/n ΣV.
    - `n_iter`, `n_passes`: Steps, and passes over the rows.
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
    """Where the search for hyperparameters ended.

    - `hyper` (p,): The best hyperparameters of all starts.
    - `value`: Log evidence there.
    - `converged`: Whether the run that found it ended by its tolerance, or where no slope is left.
    - `message`: How that run ended.
    - `n_iter`, `n_evaluations`: Of all runs.
    - `history`: Log evidence of every evaluation.
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

    - `distribution`: Of f given y.
    - `kernel`: a²k.
    - `theta`: log length scales, log a and, with noise, log σ².
    - `log_evidence`, `share`: The share is that of the mean on the training rows; NaN where there
      is none.
    - `n_rows`: Rows of positive weight.
    - `search`: How the search went.
    - `at_bounds`: What ran to a bound, and what that means.
    - `moments`: Of the training rows; the dense process has no features and none.
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
    """A regression.

    - `noise`: σ².
    - `coef` (m, t), or (n, t) of the dense process: Mean of β, or the dual coefficients.
    - `evidence`: For other hyperparameters; it knows where the training rows are.
    """

    noise: float
    coef: Array
    evidence: Any


@dataclass(frozen=True, eq=False)
class GPClassifierFit(ProcessFit):
    """A classification.

    - `n_passes`: Passes over the rows.
    - `evidence`: For other hyperparameters; it knows where the training rows are.
    """

    n_passes: int
    evidence: Any
