"""HSIC with a nonlinear kernel on f: the dependence of all of its distribution on s.

    J(b, β) = 1/n Σ V(y, b + Φβ) + α|β|²_D + η P(f),    P = σ² Q,    σ² = βᵀC_φβ,
    Q = linear · |Rᵀβ|²/σ² + Σ_k a_k |T_k|²,    T_k = E[exp(iω_k u) ψ̃],    u = (f − E f)/σ.

Q does not change with the scale of f, so that no smaller f is a fairer one. P has the scale of the
linear penalty |Rᵀβ|², and equals it for a normal f whose mean depends a little on s: η means the
same. For `nocco_output` P = Q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scalefair._typing import Array
from scalefair.moments.output_features import OutputKernel, OutputPass, OutputSums, Point
from scalefair.penalties.share import share_of_variance
from scalefair.solve.ridge.system import System

COLUMNS = 2048
"""Derivatives of waves that are summed to scale the steps; with more only the linear part is."""


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
    judge : array of shape (q, r)
        Turns attributes that are whitened with the ε of the penalty into those of the share.
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
    judge: Array
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
        variance = self._variance(coef)
        point = self._point(coef, np.zeros(coef.shape[1]), np.sqrt(variance))
        sums, n = self.rows.sums(self.kernel, point), self.system.moments.weight
        waves, means = np.asarray(sums.waves) / n, np.asarray(sums.means) / n
        weight = variance / variance.sum()
        q = self._parts(self.system.factor, waves, coef, variance)
        explained = self._parts(self.system.share_factor, waves @ self.judge, coef, variance)
        whole = self.kernel.linear + (1 - np.abs(means) ** 2) @ self.kernel.weights
        share = share_of_variance(explained, whole, 1.0)
        return Dependence(float(weight @ q), float(weight @ share))

    def _parts(self, factor: Array, waves: Any, coef: Array, variance: Array) -> Array:
        """Q of each output, by a factor R and the waves of attributes whitened as R is."""
        linear = self.kernel.linear * np.sum((factor.T @ coef) ** 2, axis=0) / variance
        return np.asarray(linear + np.einsum("k,tkq->t", self.kernel.weights, np.abs(waves) ** 2))

    def _variance(self, coef: Array) -> Array:
        """Variance of each output; a constant one, which depends on nothing, is refused."""
        variance = np.sum(coef * (self._covariance @ coef), axis=0)
        if not variance.min() > 0:
            raise ValueError(
                "the predictions are constant, so that there is no distribution of them to make "
                "independent; give features that explain y, use a smaller alpha, or eta=0"
            )
        return np.asarray(variance)

    def curvature(self, coef: Array) -> Array:
        """About half the second derivative of ηP, by one pass: Gauss and Newton's, σ held.

        Of several scores the mean, since all it is for is to scale the steps.
        """
        covariance = self._covariance
        variance = np.maximum(np.sum(coef * (covariance @ coef), axis=0), np.finfo(float).tiny)
        point = self._point(coef, np.zeros(coef.shape[1]), np.sqrt(variance))
        weight = (1.0 if self.scaled else 1 / variance) * np.ones_like(variance)
        factor = self.system.factor
        found = self.kernel.linear * weight.mean() * (factor @ factor.T)
        if 0 < self._columns <= COLUMNS:
            sums, n = self.rows.sums(self.kernel, point, jacobian=True), self.system.moments.weight
            rates = np.repeat(self.kernel.weights * self.kernel.frequencies**2, 2 * factor.shape[1])
            for jacobian, w in zip(np.asarray(sums.jacobian), weight, strict=True):
                along = self.linear_back(jacobian / n) * np.sqrt(rates * w / len(weight))
                found += along @ along.T
        if self.scaled:
            found += self.dependence(coef).q * covariance
        return np.asarray(self.eta * found)

    @property
    def _columns(self) -> int:
        """Real numbers that T has."""
        return 2 * len(self.kernel.weights) * int(self.system.factor.shape[1])

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
