"""The fair Gaussian process from moments alone: evidence, its gradient, prior and posterior.

`scalefair.solve.gp.system` has the formulas. Noise, amplitude and η cost no pass over the
data and no O(m³) work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.moments import Moments
from scalefair.solve.dense.ridge import check_number
from scalefair.solve.gp.system import GaussianSlice, GaussianSystem


@dataclass(frozen=True, eq=False)
class GaussianPoint:
    """The process at one noise variance, amplitude and η."""

    slice: GaussianSlice
    noise: float

    @property
    def amplitude(self) -> float:
        """a = √(σ²/τ)."""
        return float(np.sqrt(self.noise / self.slice.ratio))

    @classmethod
    def of(
        cls, system: GaussianSystem, *, noise: float, amplitude: float = 1.0, eta: float = 0.0
    ) -> GaussianPoint:
        """Return the process at σ² = `noise` > 0, a = `amplitude` > 0 and 0 ≤ η ≤ ∞."""
        check_number("noise", noise)
        check_number("amplitude", amplitude)
        ratio = float(noise) / float(amplitude) ** 2
        if not system.least_ratio <= ratio < np.inf:
            raise ValueError(
                f"noise={noise} drowns in the rounding error of features with amplitude="
                f"{amplitude} and largest eigenvalue {system.values.max(initial=0.0):.3g}; use a "
                f"noise of at least {system.least_ratio * float(amplitude) ** 2:.3g}"
            )
        return cls(system.slice(ratio, eta), float(noise))

    @cached_property
    def log_evidence(self) -> float:
        """log p(y), summed over the outputs."""
        system = self.slice.system
        volume = system.n * np.log(2 * np.pi * self.noise) + self.slice.log_det
        return float(-0.5 * (system.outputs * volume + self.slice.misfit / self.noise))

    @property
    def gradient(self) -> Array:
        """∂ log evidence / ∂(log σ², log a, log η), shape (3,); zero in log η at 0 and ∞."""
        at, t = self.slice, self.slice.system.outputs
        in_ratio, in_eta = -0.5 * (t * at.log_det_slopes + at.misfit_slopes / self.noise)
        direct = -0.5 * (t * at.system.n - at.misfit / self.noise)
        return np.array([direct + in_ratio, -2.0 * in_ratio, in_eta])

    @property
    def coef(self) -> Array:
        """Mean of β, shape (m, t): E f(x) = ȳ + φ(x)ᵀβ, the amplitude included in β."""
        return np.asarray(self.slice.system.basis @ self.slice.coordinates)

    def prior(self) -> GaussianFunction:
        """Return the fair prior of f, cov β = σ²P⁻¹."""
        at, system = self.slice, self.slice.system
        faded = system.directions * (1.0 - at.rest)
        root = np.eye(len(system.values)) - faded @ system.directions.T
        return self._function(np.zeros_like(at.coordinates), self.amplitude * root)

    def posterior(self) -> GaussianFunction:
        """Return the distribution of f given y, cov β = σ²A⁻¹."""
        at = self.slice
        # I − Q₁Q₁ᵀ = (I − L(1 − κ)Lᵀ)², and Q₂ knows κ = √(1 − singular value²) to all digits.
        left, _, right = np.linalg.svd(at.upper, full_matrices=False)
        rest = np.linalg.norm(at.lower @ right.T, axis=0)
        root = np.eye(len(left)) - (left * (1.0 - rest)) @ left.T
        return self._function(at.coordinates, np.sqrt(self.noise) * at.scale[:, None] * root)

    def _function(self, coordinates: Array, root: Array) -> GaussianFunction:
        basis, offset = self.slice.system.basis, self.slice.system.moments.mean("y")
        return GaussianFunction(basis @ coordinates, basis @ root, offset, self.noise)


@dataclass(frozen=True, eq=False)
class GaussianFunction:
    """f(x) = ȳ + φ(x)ᵀβ with β ~ N(coef, FFᵀ), independently for each output.

    Parameters
    ----------
    coef : array of shape (m, t)
        Mean of β.
    factor : array of shape (m, m)
        F; a covariance is positive semi-definite by construction.
    offset : array of shape (t,)
        ȳ.
    noise : float
        σ², the variance of y about f.
    """

    coef: Array
    factor: Array
    offset: Array
    noise: float

    def mean(self, Phi: Rows) -> Array:
        """Return E f of rows of φ, shape (k, t)."""
        return np.asarray(self.offset + Phi @ self.coef)

    def variance(self, Phi: Rows) -> Array:
        """Return var f of rows of φ, shape (k,), the same for every output; without noise."""
        return np.asarray(np.sum((Phi @ self.factor) ** 2, axis=1))

    def covariance(self, Phi: Rows) -> Array:
        """Return cov f of rows of φ, shape (k, k)."""
        spread = Phi @ self.factor
        return np.asarray(spread @ spread.T)


def log_evidence(
    moments: Moments,
    *,
    noise: float,
    amplitude: float = 1.0,
    eta: float = 0.0,
    penalty: str = "normalized",
    eps: float | None = None,
) -> float:
    """Log evidence of y − ȳ, summed over the outputs.

    Parameters
    ----------
    moments : Moments
        Moments of [φ, ψ, y].
    noise, amplitude, eta : float
        σ² > 0, a > 0 and 0 ≤ η ≤ ∞.
    penalty : {"normalized", "hsic"}
        What R is.
    eps : float
        ε of `normalized`.
    """
    system = GaussianSystem.build(moments, penalty=penalty, eps=eps)
    return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta).log_evidence


def posterior(
    moments: Moments,
    *,
    noise: float,
    amplitude: float = 1.0,
    eta: float = 0.0,
    penalty: str = "normalized",
    eps: float | None = None,
) -> GaussianFunction:
    """Distribution of f given y; parameters as in `log_evidence`."""
    system = GaussianSystem.build(moments, penalty=penalty, eps=eps)
    return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta).posterior()
