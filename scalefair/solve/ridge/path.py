"""The whole (α, η) grid from one eigendecomposition of the moments.

C = QΛQᵀ once, O(m³). Per α one q×q eigenproblem of R'ᵀ(Λ + α)⁻¹R' with R' = QᵀR, O(mq² + q³).
Then O(mq) per η.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from scalefair._linalg import positive_eigh, thin_root
from scalefair._typing import Array
from scalefair.solve.limit import Quadratic, path_shares
from scalefair.solve.ridge.primal import gain
from scalefair.solve.ridge.system import System


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A system in the eigenbasis of its Gram matrix: β = basis · β'.

    With a ridge by block, C is replaced by D^(−1/2) C D^(−1/2) and basis = D^(−1/2) Q, so that
    the common factor α stays free.
    """

    values: Array
    basis: Array
    target: Array
    factor: Array
    share_factor: Array
    deviation: Array

    @classmethod
    def of(cls, system: System) -> Spectrum:
        """Decompose the system's Gram matrix."""
        scale = 1.0 / np.sqrt(system.ridge)
        values, vectors = positive_eigh(scale[:, None] * system.gram * scale)
        basis = scale[:, None] * vectors
        factor = basis.T @ system.factor
        same = system.share_factor is system.factor
        share_factor = factor if same else basis.T @ system.share_factor
        # Without intercept the Gram matrix is not centred, but the variance of f is.
        deviation = np.sqrt(values)
        if not system.fit_intercept:
            deviation = thin_root(system.covariance) @ basis
        return cls(values, basis, basis.T @ system.target, factor, share_factor, deviation)

    @property
    def covariance(self) -> Array:
        """C_φ in the eigenbasis."""
        D = self.deviation
        return np.diag(D**2) if D.ndim == 1 else D.T @ D

    def at(self, alpha: float) -> AlphaSlice:
        """Return everything that the solutions at this α have in common."""
        shrunk = self.values + alpha
        if shrunk.min(initial=np.inf) <= 1e-15 * shrunk.max(initial=0.0):
            raise LinAlgError(
                f"the {len(shrunk)}×{len(shrunk)} system is singular at alpha={alpha:g} (least "
                f"eigenvalue {shrunk.min():.2g}, largest {shrunk.max():.2g}); use a larger alpha "
                "or fewer features"
            )
        ridge = self.target / shrunk[:, None]
        solved = self.factor / shrunk[:, None]
        strength, turn = positive_eigh((self.factor.T @ solved + solved.T @ self.factor) / 2)
        along = turn.T @ (self.factor.T @ ridge)
        return AlphaSlice(self, alpha, ridge, solved @ turn, strength, along)


@dataclass(frozen=True, eq=False)
class AlphaSlice:
    """Solutions at one α: β'(η) = ridge − directions · gain(η, strength) · along."""

    spectrum: Spectrum
    alpha: float
    ridge: Array
    directions: Array
    strength: Array
    along: Array

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach, of one output."""
        return len(self.ridge)

    @property
    def ridge_coef(self) -> Array:
        """β at η = 0, shape (m, t)."""
        return np.asarray(self.spectrum.basis @ self.ridge)

    def coordinates(self, etas: Array) -> Array:
        """β' for each η, shape (E, m, t)."""
        weighted = gain(np.atleast_1d(etas), self.strength)[:, :, None] * self.along
        return np.asarray(self.ridge - np.matmul(self.directions, weighted))

    def coef(self, etas: Array) -> Array:
        """β for each η, shape (E, m, t)."""
        return np.asarray(np.matmul(self.spectrum.basis, self.coordinates(etas)))

    def shares(self, etas: Array) -> Array:
        """Explained share for each η, shape (E,); NaN where f is constant."""
        at = np.concatenate([self.ridge[None], self.coordinates(etas)])
        return path_shares(self.spectrum.share_factor, self.spectrum.deviation, at)

    def quadratic(self) -> Quadratic:
        """Return what the solutions minimise before the penalty, in the eigenbasis."""
        spectrum = self.spectrum
        hessian = np.diag(spectrum.values + self.alpha)
        return Quadratic(hessian, spectrum.target, spectrum.share_factor, spectrum.covariance)


def grid(spectrum: Spectrum, alphas: Array, etas: Array) -> Array:
    """β for every α and η, shape (A, E, m, t)."""
    return np.stack([spectrum.at(alpha).coef(etas) for alpha in alphas])
