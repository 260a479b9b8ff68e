"""What is fitted, and what came out: frozen values between the solvers and the estimators."""

from __future__ import annotations

from dataclasses import dataclass

from scalefair._typing import Array
from scalefair.solve.diagnostics import Diagnostics
from scalefair.solve.ridge.system import Solution


@dataclass(frozen=True)
class Spec:
    """What to fit: 1/n ΣV + α|β|² + ηP, with a weight η or a limit that finds it.

    Parameters
    ----------
    alpha : float
        Ridge of φ.
    eta : float
        Weight of the penalty, where there is no limit.
    unfairness : float or None
        Limit on the explained share.
    penalty : str
        Name of the penalty.
    eps : float or None
        Its ε; None: the default.
    dtype : str
        Of the rows, whose rounding error the solution inherits.
    """

    alpha: float
    eta: float
    unfairness: float | None
    penalty: str = "normalized"
    eps: float | None = None
    dtype: str = "float64"


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The fit of a squared loss.

    Parameters
    ----------
    solution : Solution
        β and the intercept.
    eta : float
        The weight that was used or found.
    explained_share : float
        In sample; NaN without sensitive attributes, and for a constant f.
    diagnostics : Diagnostics
        What rounding has left of the solution.
    n_iter : int or None
        Steps of an iterative solution.
    output_share : float or None
        With a kernel on f: the share of its features that s explains.
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

    Parameters
    ----------
    coef, intercept : arrays of shape (m, k) and (k,)
        Of the scores that were solved for.
    mean_loss : float
        1/n ΣV.
    n_iter, n_passes : int
        Steps, and passes over the rows.
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
