"""HSIC with a nonlinear kernel on f: the dependence of all of its distribution on s.

    J(b, β) = 1/n Σ V(y, b + Φβ) + α|β|²_D + η P(f),    P = σ² Q,    σ² = βᵀC_φβ,
    Q = linear · |Rᵀβ|²/σ² + Σ_k a_k |T_k|²,    T_k = E[exp(iω_k u) ψ̃],    u = (f − E f)/σ.

Q does not change with the scale of f. P equals the linear penalty |Rᵀβ|² for a normal f whose mean
depends a little on s; for `nocco_output` P = Q. L-BFGS starts from the closed form of the linear
penalty, in coordinates z in which J, in its own unit u, is about |z|².
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

from scalefair._linalg import factorize
from scalefair._typing import Array
from scalefair.moments.output_features import OutputKernel, OutputPass, OutputSums, Point
from scalefair.penalties import share_of_variance
from scalefair.solve.ridge.system import System

# Derivatives of waves that are summed to scale the steps; with more only the linear part is
MAX_CURVATURE_COLUMNS = 2048
MAX_ITER = 500
ROUND = 50  # steps after which the coordinates are chosen again
TOL = 1e-4  # largest entry of the gradient in z at which L-BFGS stops
# Fall of J, relative to J or u, in a step below which it stops, whatever the gradient
LEAST_FALL = 1e-13


class Dependence(NamedTuple):
    """Q of a predictor, and the share of the features of f that s explains."""

    q: float
    share: float


@dataclass(frozen=True, eq=False)
class OutputObjective:
    """J and its gradient; `loss=None` is the squared loss, which follows from the moments."""

    system: System
    rows: OutputPass
    kernel: OutputKernel
    linear: Callable[[Array], Array]  # coefficients of Φ to those of rows without a linear part
    linear_back: Callable[[Array], Array]  # its transpose
    to_share: Array  # from attributes whitened with the ε of the penalty to the share's
    alpha: float
    eta: float
    loss: Any = None
    scaled: bool = True  # whether P = σ²Q, else P = Q

    def __call__(self, coef: Array, intercept: Array) -> tuple[float, Array, Array]:
        """Return J and its gradients in β and b."""
        covariance = self.system.covariance
        variance = np.maximum(np.sum(coef * (covariance @ coef), axis=0), np.finfo(float).tiny)
        point = self._point(coef, intercept, np.sqrt(variance))
        sums, n = self._sums(point), self.system.moments.weight
        value, slope, slope_b = self._loss_part(coef, sums)
        waves = np.asarray(sums.waves) / n
        factor = self.system.factor
        along = factor.T @ coef
        q = self._parts(factor, waves, coef, variance)
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
        variance = np.sum(coef * (self.system.covariance @ coef), axis=0)
        if not variance.min() > 0:
            raise ValueError(
                "the predictions are constant, so there is no distribution of them to make "
                "independent; give features that explain y, use a smaller alpha, or eta=0"
            )
        point = self._point(coef, np.zeros(coef.shape[1]), np.sqrt(variance))
        sums, n = self.rows.sums(self.kernel, point), self.system.moments.weight
        waves, means = np.asarray(sums.waves) / n, np.asarray(sums.means) / n
        weight = variance / variance.sum()
        q = self._parts(self.system.factor, waves, coef, variance)
        explained = self._parts(self.system.share_factor, waves @ self.to_share, coef, variance)
        whole = self.kernel.linear + (1 - np.abs(means) ** 2) @ self.kernel.weights
        share = share_of_variance(explained, whole, 1.0)
        return Dependence(float(weight @ q), float(weight @ share))

    def _parts(self, factor: Array, waves: Any, coef: Array, variance: Array) -> Array:
        """Q of each output, by a factor R and the waves of attributes whitened as R is."""
        linear = self.kernel.linear * np.sum((factor.T @ coef) ** 2, axis=0) / variance
        return np.asarray(linear + np.einsum("k,tkq->t", self.kernel.weights, np.abs(waves) ** 2))

    def curvature(self, coef: Array) -> Array:
        """About half the second derivative of ηP at fixed σ (Gauss–Newton), by one pass."""
        covariance = self.system.covariance
        variance = np.maximum(np.sum(coef * (covariance @ coef), axis=0), np.finfo(float).tiny)
        point = self._point(coef, np.zeros(coef.shape[1]), np.sqrt(variance))
        weight = (1.0 if self.scaled else 1 / variance) * np.ones_like(variance)
        factor = self.system.factor
        curvature = self.kernel.linear * weight.mean() * (factor @ factor.T)
        if 0 < self._columns <= MAX_CURVATURE_COLUMNS:
            sums, n = self.rows.sums(self.kernel, point, jacobian=True), self.system.moments.weight
            rates = np.repeat(self.kernel.weights * self.kernel.frequencies**2, 2 * factor.shape[1])
            for jacobian, w in zip(np.asarray(sums.jacobian), weight, strict=True):
                along = self.linear_back(jacobian / n) * np.sqrt(rates * w / len(weight))
                curvature += along @ along.T
        if self.scaled:
            curvature += self.dependence(coef).q * covariance
        return np.asarray(self.eta * curvature)

    @property
    def _columns(self) -> int:
        """Real numbers that T has."""
        return 2 * len(self.kernel.weights) * int(self.system.factor.shape[1])

    def mean_loss(self, coef: Array, intercept: Array) -> float:
        """1/n Σ V of a predictor, by a pass."""
        point = self._point(coef, intercept, np.ones(coef.shape[1]))
        return float(self.rows.sums(self.kernel, point, self.loss).loss) / self.system.moments.weight

    def _point(self, coef: Array, intercept: Array, scale: Array) -> Point:
        return Point(self.linear(coef), intercept, self.system.mean @ coef, scale)

    @property
    def _fused(self) -> bool:
        """Whether T and its derivatives are summed in one pass: where that is the lesser work."""
        return not self.rows.cached and self._columns <= len(self.system.gram)

    def _sums(self, point: Point) -> OutputSums:
        if self.loss is None and not len(self.kernel.weights):
            shape = point.coef.shape[1], 0, self.system.factor.shape[1]
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


class OutputFit(NamedTuple):
    """A minimum: β of shape (m, t), b of shape (t,), its Q by parts, and the number of steps."""

    coef: Array
    intercept: Array
    dependence: Dependence
    n_iter: int


@dataclass(frozen=True, eq=False)
class Coordinates:
    """z = Lᵀθ, in which J/u is about |z|²; θ = [β, b] of centred features, mean that of Φ."""

    root: Array  # L, Cholesky's of half the Hessian of J/u: (p, p) for all scores, or (kp, kp)
    mean: Array
    scores: int
    intercept: bool  # else b follows from β

    @classmethod
    def at(cls, objective: OutputObjective, coef: Array, hessian: Array | None, unit: float) -> Coordinates:
        """Return those at a start: of the squared loss, or of a loss's second derivative there."""
        system, scores = objective.system, coef.shape[1]
        rest = np.diag(objective.alpha * system.ridge) + objective.curvature(coef)
        if hessian is None:
            root = factorize((system.gram + rest) / unit).lower
            return cls(np.tril(root), system.mean, scores, False)
        if system.fit_intercept:
            rest = block_diag(rest, np.zeros((1, 1)))
        root = factorize((hessian / 2 + np.kron(np.eye(scores), rest)) / unit).lower
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
    objective: OutputObjective, coef: Array, intercept: Array, *, unit: float,
    hessian: Array | None = None, tol: float = TOL, max_iter: int = MAX_ITER,
    progress: Callable[[], Any] | None = None,
) -> OutputFit:  # fmt: skip
    """Minimise J, of natural size `unit`, by L-BFGS in coordinates chosen again at times."""
    if objective.eta == 0:  # the start is the optimum
        return OutputFit(coef, intercept, objective.dependence(coef), 0)
    n_iter, largest, goes_on = 0, np.nan, True
    while goes_on and n_iter < max_iter:
        at = Coordinates.at(objective, coef, hessian, unit)
        result = _descend(
            objective, at, coef, intercept, unit=unit, tol=tol, progress=progress, steps=min(ROUND, max_iter - n_iter)
        )
        coef, intercept = at.point(result.x, intercept)
        n_iter, largest = n_iter + int(result.nit), float(np.abs(result.jac).max())
        # A search for a step that fails may find one in other coordinates; if none, there is none.
        goes_on = result.status != 0 and result.nit > 0
    # Where rounding error ends it, the gradient is small, but not always as small as asked for.
    if result.status != 0 and largest > 10 * tol:
        warnings.warn(
            f"the fit with a kernel on the output has not converged after {n_iter} steps "
            f"(largest gradient {largest:.2g}); scale the features, or use a smaller eta or a "
            "larger alpha",
            ConvergenceWarning,
            stacklevel=2,
        )
    return OutputFit(coef, intercept, objective.dependence(coef), n_iter)


def _descend(
    objective: OutputObjective, at: Coordinates, coef: Array, intercept: Array, *, unit: float,
    tol: float, progress: Callable[[], Any] | None, steps: int,
) -> Any:  # fmt: skip
    """Take so many steps of L-BFGS."""

    def value(z: Array) -> tuple[float, Array]:
        J, slope, slope_b = objective(*at.point(z, intercept))
        return J / unit, at.slope(slope, slope_b) / unit

    options = {"maxiter": steps, "gtol": tol, "maxfun": 4 * steps, "maxcor": 20, "ftol": LEAST_FALL}
    return minimize(  # type: ignore[call-overload]
        value,
        at.start(coef, intercept),
        jac=True,
        method="L-BFGS-B",
        options=options,
        callback=None if progress is None else lambda _: progress(),
    )
