"""Minimises the objective with a kernel on f: L-BFGS from the closed form of the linear penalty.

It runs in coordinates z in which J, in its own unit u, is about |z|².
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair._linalg import cholesky
from scalefair._typing import Array
from scalefair.solve.output.hsic import Dependence, OutputObjective

MAX_ITER = 500
ROUND = 50
"""Steps after which the coordinates are chosen anew."""

TOL = 1e-4
"""Largest entry of the gradient in z at which L-BFGS stops."""

LEAST_FALL = 1e-13
"""Fall of J, relative to J or u, in a step below which it stops, whatever the gradient."""


class OutputFit(NamedTuple):
    """A minimum: β of shape (m, t), b of shape (t,), its Q by parts, and the number of steps."""

    coef: Array
    intercept: Array
    dependence: Dependence
    n_iter: int


@dataclass(frozen=True, eq=False)
class Coordinates:
    """z = Lᵀθ, in which J/u is about |z|²; θ = [β, b] of centred features.

    Parameters
    ----------
    root : array of shape (p, p) or (kp, kp)
        L, the Cholesky factor of half the second derivative of J/u: one for all scores, or of all
        at once.
    mean : array of shape (m,)
        Of Φ.
    scores : int
        Their number k.
    intercept : bool
        Whether b is part of θ; else it follows from β.
    """

    root: Array
    mean: Array
    scores: int
    intercept: bool

    @classmethod
    def at(
        cls, objective: OutputObjective, coef: Array, hessian: Array | None, unit: float
    ) -> Coordinates:
        """Return those at a start: of the squared loss, or of a loss's second derivative there."""
        system, scores = objective.system, coef.shape[1]
        rest = np.diag(objective.alpha * system.ridge) + objective.curvature(coef)
        if hessian is None:
            root = cholesky((system.gram + rest) / unit)[0][0]
            return cls(np.tril(root), system.mean, scores, False)
        if system.fit_intercept:
            rest = block_diag(rest, np.zeros((1, 1)))
        root = cholesky((hessian / 2 + np.kron(np.eye(scores), rest)) / unit)[0][0]
        return cls(np.tril(root), system.mean, scores, system.fit_intercept)

    def start(self, coef: Array, intercept: Array) -> Array:
        """z of a predictor."""
        centred = np.vstack([coef, intercept + self.mean @ coef]) if self.intercept else coef
        return np.asarray(self.root.T @ self._stacked(centred)).ravel()

    def point(self, z: Array, intercept: Array) -> tuple[Array, Array]:
        """β and b of uncentred features; `intercept` where it is no part of θ."""
        stacked = solve_triangular(self.root, z.reshape(len(self.root), -1), trans="T", lower=True)
        theta = self._columns(stacked)
        if not self.intercept:
            return theta, intercept
        return theta[:-1], theta[-1] - self.mean @ theta[:-1]

    def slope(self, slope: Array, slope_b: Array) -> Array:
        """Gradient in z from those in β and b."""
        if self.intercept:
            slope = np.vstack([slope - np.outer(self.mean, slope_b), slope_b])
        return np.asarray(solve_triangular(self.root, self._stacked(slope), lower=True)).ravel()

    def _stacked(self, theta: Array) -> Array:
        return theta if len(theta) == len(self.root) else theta.T.reshape(-1, 1)

    def _columns(self, stacked: Array) -> Array:
        return stacked if stacked.shape[1] == self.scores else stacked.reshape(self.scores, -1).T


def solve_output(
    objective: OutputObjective,
    coef: Array,
    intercept: Array,
    *,
    unit: float,
    hessian: Array | None = None,
    tol: float = TOL,
    max_iter: int = MAX_ITER,
    tell: Callable[[], Any] = lambda: None,
) -> OutputFit:
    """Minimise J by L-BFGS from (coef, intercept); warn where it has not converged.

    Every so many steps the coordinates are chosen anew, where it has come to. `unit` is u, the
    natural size of J, by which it is divided. `hessian` is the second derivative of 1/n ΣV in θ at
    the start, where there is a loss.
    """
    if objective.eta == 0:  # the start is the optimum
        return OutputFit(coef, intercept, objective.dependence(coef), 0)
    n_iter, largest, goes_on = 0, np.nan, True
    while goes_on and n_iter < max_iter:
        at = Coordinates.at(objective, coef, hessian, unit)
        options = {"maxiter": min(ROUND, max_iter - n_iter), "gtol": tol}
        found = _descend(objective, at, coef, intercept, unit, options, tell)
        coef, intercept = at.point(found.x, intercept)
        n_iter, largest = n_iter + int(found.nit), float(np.abs(found.jac).max())
        # A search for a step that fails may find one in other coordinates; if none, there is none.
        goes_on = found.status != 0 and found.nit > 0
    # Where rounding error ends it, the gradient is small, but not always as small as asked for.
    if found.status != 0 and largest > 10 * tol:
        warnings.warn(
            f"the fit with a kernel on the output has not converged after {n_iter} steps "
            f"(largest gradient {largest:.2g}); scale the features, or use a smaller eta or a "
            "larger alpha",
            ConvergenceWarning,
            stacklevel=2,
        )
    return OutputFit(coef, intercept, objective.dependence(coef), n_iter)


def _descend(  # noqa: PLR0917
    objective: OutputObjective,
    at: Coordinates,
    coef: Array,
    intercept: Array,
    unit: float,
    options: dict[str, Any],
    tell: Callable[[], Any],
) -> Any:
    """Take so many steps of L-BFGS."""

    def value(z: Array) -> tuple[float, Array]:
        J, slope, slope_b = objective(*at.point(z, intercept))
        return J / unit, at.slope(slope, slope_b) / unit

    options |= {"maxfun": 4 * options["maxiter"], "maxcor": 20, "ftol": LEAST_FALL}
    return minimize(  # type: ignore[call-overload]
        value, at.start(coef, intercept), jac=True, method="L-BFGS-B", options=options,
        callback=lambda _: tell() and None,
    )  # fmt: skip
