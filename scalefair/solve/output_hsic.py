"""HSIC with a nonlinear kernel on f: the dependence of all of its distribution on s.

    J(b, β) = 1/n Σ V(y, b + Φβ) + α|β|²_D + η P(f),    P = σ² Q,    σ² = βᵀC_φβ,
    Q = linear · |Rᵀβ|²/σ² + Σ_k a_k |T_k|²,    T_k = E[exp(iω_k u) ψ̃],    u = (f − E f)/σ.

Q does not change with the scale of f, so that no smaller f is a fairer one. P has the scale of the
linear penalty |Rᵀβ|², and equals it for a normal f whose mean depends a little on s: η means the
same. For `nocco_output` P = Q. L-BFGS runs in coordinates z in which the squared loss and the ridge
are |z|², from the closed form of the linear penalty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair._linalg import cholesky
from scalefair._typing import Array
from scalefair.solve.system import System
from scalefair.statistics.output_features import OutputKernel, OutputPass, OutputSums, Point

MAX_ITER = 500
TOL = 1e-4
"""Largest entry of the gradient in z, relative to the sd of y, at which L-BFGS stops."""


class OutputFit(NamedTuple):
    """A minimum: β of shape (m, t), b of shape (t,), its Q by parts, and the number of steps."""

    coef: Array
    intercept: Array
    dependence: Dependence
    n_iter: int


class Dependence(NamedTuple):
    """What a predictor is worth: Q, and the share of the features of f that s explains."""

    q: float
    share: float


@dataclass(frozen=True, eq=False)
class OutputObjective:
    """J and its gradient.

    Parameters
    ----------
    system : System
        The closed form's: Gram matrix, R, ridge.
    rows : OutputPass
        Passes over the rows.
    kernel : OutputKernel
        On f.
    linear : callable
        Turns coefficients of Φ into those of the rows, which lack the linear part of φ.
    linear_back : callable
        Its transpose.
    alpha, eta : float
        α and η.
    loss : Loss or None
        None: the squared loss, which the moments tell.
    scaled : bool
        P = σ²Q, else P = Q.
    """

    system: System
    rows: OutputPass
    kernel: OutputKernel
    linear: Callable[[Array], Array]
    linear_back: Callable[[Array], Array]
    alpha: float
    eta: float
    loss: Any = None
    scaled: bool = True

    def __call__(self, coef: Array, intercept: Array) -> tuple[float, Array, Array]:
        """Return J and its gradients in β and b."""
        covariance = self._covariance
        variance = np.maximum(np.sum(coef * (covariance @ coef), axis=0), np.finfo(float).tiny)
        point = self._point(coef, intercept, np.sqrt(variance))
        sums, n = self._sums(point), self.system.moments.weight
        value, slope, slope_b = self._loss_part(coef, sums)
        waves = np.asarray(sums.waves) / n
        factor = self.system.share_factor
        along = factor.T @ coef
        linear = self.kernel.linear * np.sum(along**2, axis=0) / variance
        q = linear + np.einsum("k,tkq->t", self.kernel.weights, np.abs(waves) ** 2)
        scale = variance if self.scaled else np.ones_like(variance)
        value += self.eta * float(scale @ q)
        push = 2 * self.kernel.linear / variance * (factor @ along)
        push = push + self._wave_slope(point, sums, waves) / point.scale
        # σ in u and in the linear term: along f itself Q does not change.
        spread = covariance @ coef / variance
        push = push - spread * np.sum(push * coef, axis=0)
        slope = slope + self.eta * scale * push
        if self.scaled:
            slope = slope + self.eta * 2 * q * (covariance @ coef)
        return value, slope, slope_b

    def dependence(self, coef: Array) -> Dependence:
        """Q of a predictor and its share, averaged over the outputs by their variance."""
        variance = np.sum(coef * (self._covariance @ coef), axis=0)
        point = self._point(coef, np.zeros(coef.shape[1]), np.sqrt(variance))
        sums, n = self.rows.sums(self.kernel, point), self.system.moments.weight
        waves, means = np.asarray(sums.waves) / n, np.asarray(sums.means) / n
        explained = np.sum((self.system.share_factor.T @ coef) ** 2, axis=0) / variance
        parts = self.kernel.linear * explained
        parts = parts + np.einsum("k,tkq->t", self.kernel.weights, np.abs(waves) ** 2)
        whole = self.kernel.linear + (1 - np.abs(means) ** 2) @ self.kernel.weights
        weight = variance / variance.sum()
        return Dependence(float(weight @ parts), float(weight @ (parts / whole)))

    def mean_loss(self, coef: Array, intercept: Array) -> float:
        """1/n Σ V of a predictor, by a pass."""
        point = self._point(coef, intercept, np.ones(coef.shape[1]))
        return (
            float(self.rows.sums(self.kernel, point, self.loss).loss) / self.system.moments.weight
        )

    @property
    def _covariance(self) -> Array:
        features = self.system.features
        return self.system.moments.covariance(features, features)

    def _point(self, coef: Array, intercept: Array, scale: Array) -> Point:
        return Point(self.linear(coef), intercept, self.system.mean @ coef, scale)

    @property
    def _fused(self) -> bool:
        """Whether T and its derivatives are summed in one pass: where that is the lesser work."""
        columns = 2 * len(self.kernel.weights) * self.system.share_factor.shape[1]
        return not self.rows.kept and columns <= len(self.system.gram)

    def _sums(self, point: Point) -> OutputSums:
        if self.loss is None and not len(self.kernel.weights):
            shape = point.coef.shape[1], 0, self.system.share_factor.shape[1]
            return OutputSums(np.zeros(shape), np.zeros(shape[:2]), 0.0, 0.0, 0.0)
        return self.rows.sums(self.kernel, point, self.loss, jacobian=self._fused)

    def _wave_slope(self, point: Point, sums: OutputSums, waves: Any) -> Array:
        """Σ w g φ / n, of shape (m, t)."""
        if not len(self.kernel.weights):
            return np.zeros((len(self.system.gram), point.coef.shape[1]))
        rates = 2j * self.kernel.weights * self.kernel.frequencies
        along = rates[:, None] * np.conj(waves)
        if self._fused:
            # Re(jacobian · along): the parts come by turns, and i² = −1.
            flat = along.reshape(len(along), -1)
            turns = np.stack([flat.real, -flat.imag], axis=-1).reshape(len(along), -1)
            slope = np.einsum("tmc,tc->mt", sums.jacobian, turns)
        else:
            slope = self.rows.slope(self.kernel, point, along)
        return self.linear_back(slope / self.system.moments.weight)

    def _loss_part(self, coef: Array, sums: OutputSums) -> tuple[float, Array, Array]:
        system = self.system
        ridge = self.alpha * system.ridge[:, None] * coef
        value, slope = float(np.sum(ridge * coef)), 2 * ridge
        if self.loss is None:
            product = system.gram @ coef
            value += float(np.sum(coef * (product - 2 * system.target)))
            return value, slope + 2 * (product - system.target), np.zeros(coef.shape[1])
        n = system.moments.weight
        along = self.linear_back(sums.slope[:-1] / n)
        return value + float(sums.loss) / n, slope + along, sums.slope[-1] / n


def solve_output(
    objective: OutputObjective,
    coef: Array,
    intercept: Array,
    *,
    tol: float = TOL,
    max_iter: int = MAX_ITER,
    progress: Callable[[], Any] | None = None,
) -> OutputFit:
    """Minimise J by L-BFGS from (coef, intercept); warn where it has not converged."""
    system, free = objective.system, objective.loss is not None and objective.system.fit_intercept
    (L, _), _ = cholesky(system.gram + objective.alpha * np.diag(system.ridge))
    L = np.tril(L)
    size = coef.size

    def unpack(z: Array) -> tuple[Array, Array]:
        beta = solve_triangular(L, z[:size].reshape(coef.shape), trans="T", lower=True)
        return beta, z[size:] if free else intercept

    def value(z: Array) -> tuple[float, Array]:
        J, slope, slope_b = objective(*unpack(z))
        along = solve_triangular(L, slope, lower=True).ravel()
        return J, np.concatenate([along, slope_b]) if free else along

    def told(_: Array) -> None:
        if progress is not None:
            progress()

    start = (L.T @ coef).ravel()
    start = np.concatenate([start, intercept]) if free else start
    if objective.eta == 0:  # the start is the optimum
        return OutputFit(coef, intercept, objective.dependence(coef), 0)
    spread = np.sqrt(np.trace(system.moments.covariance("y", "y")))
    found: Any = minimize(  # type: ignore[call-overload]
        value, start, jac=True, method="L-BFGS-B", callback=told,
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": 20, "ftol": 1e-13,
                 "gtol": tol * max(float(spread), np.finfo(float).tiny)},
    )  # fmt: skip
    if found.status == 1:
        warnings.warn(
            f"the fit with a kernel on the output has not converged after {found.nit} steps "
            f"(largest gradient {np.abs(found.jac).max():.2g}); scale the features, or use a "
            "smaller eta or a larger alpha",
            ConvergenceWarning,
            stacklevel=2,
        )
    beta, b = unpack(found.x)
    return OutputFit(beta, b, objective.dependence(beta), int(found.nit))
