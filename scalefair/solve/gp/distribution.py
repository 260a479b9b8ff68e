"""The distribution of f at new rows: mean, deviation, covariance, draws, class probabilities.

A Nyström map sees the prior variance |φ(x)|² of the kernel's k(x, x). What is missing,
r(x) = a²(k(x, x) − |φ(x)|²), is the variance of f given its values at the landmarks, added to the
variance of f, and a²(k − φᵀφ) to the covariance, as in FITC. The penalty is one on φ(x)ᵀβ; the rest
of f is independent of it and has mean zero, so that the mean stays as fair as it is.

A noise σ² that was learnt contains what is missing on the training rows; adding both would count it twice. With c,
which r exceeds on 5 % of these, and κ = min(1, σ²/c), the rest of f is given the variance κ min(r, c) + (r − c)₊, and
new y that of φᵀβ plus σ² + (r − c)₊. For a noise that was given c = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, ndtr

from scalefair._linalg import positive_eigh
from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.features import Nystroem
from scalefair.features.base import whitened
from scalefair.solve.gp.system import GaussianFunction

USUAL_SHARE = 0.95  # share of the weight of the rows whose residual counts as usual
NORMAL = np.linspace(-9.5, 9.5, 39)
NORMAL_WEIGHT = np.exp(-(NORMAL**2) / 2) * (NORMAL[1] - NORMAL[0]) / np.sqrt(2 * np.pi)
LOGISTIC = np.linspace(-36.0, 36.0, 145)
LOGISTIC_WEIGHT = expit(LOGISTIC) * expit(-LOGISTIC) * (LOGISTIC[1] - LOGISTIC[0])


def residual(phi: Any, x: Array, Phi: Rows) -> Array:
    """Return k(x, x) − |φ(x)|² of rows and their features, shape (k,)."""
    return np.asarray(np.maximum(phi.kernel_.diag(x) - np.sum(Phi**2, axis=1), 0.0))


class Distribution(Protocol):
    """The distribution of f, prior or posterior; rows x are arrays of shape (k, d)."""

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and what the noise adds to it, both of shape (k,)."""

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k), the same for every output."""


@dataclass(frozen=True, eq=False)
class FeatureDistribution:
    """f(x) = ȳ + φ(x)ᵀβ, `weights` the distribution of β, and what features miss of the kernel."""

    phi: FeatureMap
    weights: GaussianFunction
    missing: float  # a² for a Nyström map; 0 for others
    contained: float  # c

    @classmethod
    def of(
        cls, phi: FeatureMap, weights: GaussianFunction, amplitude: float, sample: Chunk | None
    ) -> FeatureDistribution:
        """Return the distribution; c is what a²(k − |φ|²) exceeds on 5 % of a sample, or 0."""
        missing = amplitude**2 if isinstance(phi, Nystroem) else 0.0
        if sample is None or not missing:
            return cls(phi, weights, missing, 0.0)
        x = np.asarray(sample.x, dtype=np.float64)
        missed = residual(phi, x, whitened(phi, x))
        order = np.argsort(missed)
        below = np.cumsum(sample.weights[order])
        usual = float(missed[order][np.searchsorted(below, USUAL_SHARE * below[-1])])
        return cls(phi, weights, missing, missing * usual)

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""
        return np.asarray(self.weights.offset + self.phi.raw(np.asarray(x, dtype=np.float64)) @ self._raw_coef)

    @cached_property
    def _raw_coef(self) -> Array:
        """Coefficients of the raw rows, which saves the linear part."""
        linear, coef = self.phi.linear_, self.weights.coef
        return coef if linear is None else linear @ coef

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and what the noise adds to it, both of shape (k,)."""
        x = np.asarray(x, dtype=np.float64)
        Phi = whitened(self.phi, x)
        inside, excess = self._rest(self._missed(x, Phi))
        return self.weights.variance(Phi) + inside + excess, self.weights.noise - inside

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k)."""
        x = np.asarray(x, dtype=np.float64)
        Phi = whitened(self.phi, x)
        covariance = self.weights.covariance(Phi)
        if self.missing:
            kernel: Any = self.phi.kernel_  # type: ignore[attr-defined]
            missed = self._missed(x, Phi)
            # With the correlations of the kernel and the variances that are reported.
            reported = sum(self._rest(missed))
            root = np.sqrt(self.missing * reported / np.where(missed > 0, missed, 1.0))
            rest = positive_part(kernel(x) - Phi @ Phi.T)
            covariance = covariance + root[:, None] * rest * root
        return covariance

    def _rest(self, missed: Array) -> tuple[Array, Array]:
        """κ min(r, c), which the noise contains, and (r − c)₊."""
        share = min(1.0, self.weights.noise / self.contained) if self.contained else 1.0
        inside = share * np.minimum(missed, self.contained)
        return inside, np.maximum(missed - self.contained, 0.0)

    def _missed(self, x: Array, Phi: Rows) -> Array:
        return self.missing * residual(self.phi, x, Phi) if self.missing else np.zeros(len(x))


@dataclass(frozen=True, eq=False)
class LatentDistribution:
    """f(x) = φ(x)ᵀβ, β ~ N(coef, FFᵀ) for each score, and what the features miss of the kernel."""

    phi: FeatureMap
    coef: Array
    factors: Array
    missing: float  # a² for a Nyström map; 0 for others

    def mean(self, x: Array) -> Array:
        """Return E f, shape (rows, k)."""
        return np.asarray(whitened(self.phi, np.asarray(x, dtype=np.float64)) @ self.coef)

    def mean_and_variance(self, x: Array) -> Array:
        """Return E f and var f side by side, shape (rows, 2k)."""
        x = np.asarray(x, dtype=np.float64)
        Phi = whitened(self.phi, x)
        variance = np.stack([np.sum((Phi @ F) ** 2, axis=1) for F in self.factors], axis=1)
        if self.missing:
            variance += self.missing * residual(self.phi, x, Phi)[:, None]
        return np.hstack([Phi @ self.coef, variance])

    def probabilities(self, x: Array) -> Array:
        """Return the probabilities of the classes, averaged over f; shape (rows, classes)."""
        mean, variance = np.hsplit(self.mean_and_variance(x), 2)
        if mean.shape[1] == 1:
            # Each by itself: 1 − p would lose the digits of a small probability.
            return averaged_probability(np.hstack([-mean, mean]), np.hstack([variance] * 2))
        p = np.maximum(averaged_probability(mean, variance), np.finfo(float).tiny)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def codes(self, x: Array) -> Array:
        """Return the position of the most likely class, shape (rows,)."""
        if self.coef.shape[1] == 1:
            # Averaging moves a probability towards ½, but never across.
            return np.asarray(self.mean(x)[:, 0] > 0, dtype=np.float64)
        return np.asarray(np.argmax(self.probabilities(x), axis=1), dtype=np.float64)


def covariance_of(distribution: Distribution, x: Array, *, include_noise: bool) -> Array:
    """Return the covariance of f, or of new y, at rows x; shape (k, k)."""
    covariance = distribution.covariance(x)
    if include_noise:
        covariance = covariance + np.diag(distribution.variances(x)[1])
    return covariance


def draw(distribution: Distribution, x: Array, size: int, seed: Any, *, include_noise: bool) -> Array:
    """Return joint draws of f, or of new y, at rows x; shape (k, t, size)."""
    values, vectors = positive_eigh(covariance_of(distribution, x, include_noise=include_noise))
    mean = distribution.mean(x)
    white = np.random.default_rng(seed).standard_normal((mean.shape[1], len(x), size))
    draws = np.matmul(vectors * np.sqrt(values), white)
    return np.asarray(mean[:, :, None] + np.swapaxes(draws, 0, 1))


def mean_and_deviation(distribution: Distribution, x: Array, *, include_noise: bool) -> Array:
    """Return E f and, as a last column, the deviation of f or of new y; shape (k, t + 1)."""
    variance, noise = distribution.variances(x)
    total = variance + noise if include_noise else variance
    return np.column_stack([distribution.mean(x), np.sqrt(total)])


def positive_part(matrix: Array) -> Array:
    """Return the symmetric positive semi-definite matrix that rounding has moved it from."""
    values, vectors = positive_eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * values) @ vectors.T)


def averaged_probability(mean: Array, variance: Array) -> Array:
    """E σ(f) for f ~ N(mean, variance), elementwise, within 1e-13; at −mean it is the rest to 1.

    The trapezoidal rule converges exponentially, the faster the farther poles are: for v ≤ 1 over
    the normal density, beyond over p = E Φ((μ − t)/√v), t of the logistic distribution.
    """
    mean, spread = np.asarray(mean), np.sqrt(variance)
    result = np.empty(mean.shape)
    narrow = spread <= 1.0
    at, sd = mean[narrow], spread[narrow]
    result[narrow] = expit(at[:, None] + sd[:, None] * NORMAL) @ NORMAL_WEIGHT
    at, sd = mean[~narrow], spread[~narrow]
    result[~narrow] = ndtr((at[:, None] - LOGISTIC) / sd[:, None]) @ LOGISTIC_WEIGHT
    return result
