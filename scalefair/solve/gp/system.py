"""The fair Gaussian process from moments alone: one decomposition for all hyperparameters but θ.

f(x) = ȳ + aφ(x)ᵀw, w ~ N(0, (I + (nη/σ²) a²RRᵀ)⁻¹), noise σ². In β = aw, with τ = σ²/a²,

    β ~ N(0, σ² P⁻¹),    P = τI + nηRRᵀ,    A = ΦᵀΦ + P
    mean β = A⁻¹Φᵀy,     cov β = σ² A⁻¹
    −2 log evidence = n log 2πσ² + log|A| − log|P| + (yᵀy − yᵀΦA⁻¹Φᵀy)/σ²

per output: the mean is the ridge fit without intercept at α = τ/n and the same η. With ΦᵀΦ = VΛVᵀ
and R = U diag(s) Wᵀ, all that depends on τ and η goes through one matrix of q columns,

    [√τ (Λ+τ)^(−1/2) VᵀU √c]   [Q₁]
    [        √(1 − c)       ] = [Q₂] T,    c = ρ/(1 + ρ),  ρ = (nη/τ) s²,

    log|A| − log|P| = Σ log(1 + λ/τ) + 2 Σ log|T_kk|,    A⁻¹ = S(I − Q₁Q₁ᵀ)Sᵀ,  S = V(Λ+τ)^(−1/2)

in which every number is bounded by 1. At η = ∞, β lives on {β : Rᵀβ = 0}; the evidence jumps there
where length scales change the numerical rank of R: learn them with a finite η.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from scalefair._linalg import EPS, positive_eigh
from scalefair._typing import Array, Rows
from scalefair.errors import FINITE, check_number
from scalefair.moments import Moments
from scalefair.penalties import attribute_root
from scalefair.solve.dense.ridge import check_positive
from scalefair.solve.ridge.system import NULL


@dataclass(frozen=True, eq=False)
class GaussianSystem:
    """Statistics of the rows in the eigenbasis V of ΦᵀΦ; the O(m³) work of a set of features."""

    moments: Moments
    values: Array  # Λ of the uncentred ΦᵀΦ
    basis: Array  # V
    target: Array  # VᵀΦᵀ(y − ȳ) (m, t)
    strength: Array  # s (r,)
    directions: Array  # VᵀU (m, r)
    right: Array  # TW (q, r), where R = C_φψT
    n: float
    square: float  # Σ w|y − ȳ|² over all outputs
    least_ratio: float  # σ²/a² below which the noise is lost in the rounding error of ΦᵀΦ

    @classmethod
    def build(
        cls,
        moments: Moments,
        *,
        penalty: str = "normalized",
        eps: float | None = None,
        statistics: tuple[Array, Array] | None = None,
    ) -> GaussianSystem:
        """Decompose ΦᵀΦ, Φᵀ(y − ȳ), or other `statistics` such as ΦᵀWΦ, and R of the moments."""
        n, mean = moments.weight, moments.mean("phi")
        if not n > 0:
            raise ValueError("the moments hold no rows of positive weight; accumulate some rows first")
        if not (np.isfinite(moments.scatter).all() and np.isfinite(moments.shift).all()):
            raise ValueError(
                "the moments contain NaN or infinity, so there is no evidence; look for huge "
                "or missing values among the inputs and targets"
            )
        gram, target = statistics or (
            n * (moments.covariance("phi", "phi") + np.outer(mean, mean)),
            n * moments.covariance("phi", "y"),
        )
        values, basis = positive_eigh(gram)
        # R = C_φψT with a T that does not depend on φ: I (`hsic`) or (C_ψ + εκ)^(−1/2)
        if penalty not in ("hsic", "normalized"):
            raise ValueError(f"penalty={penalty!r} has no Gaussian process prior here; choose 'normalized' or 'hsic'")
        root, crossed = np.zeros((0, 0)), np.zeros((len(gram), 0))
        if width := moments.blocks.get("psi", 0):
            check_number("eps", eps or 0.0, 0.0, FINITE)
            root = np.eye(width) if penalty == "hsic" else attribute_root(moments, eps)[1]
            crossed = basis.T @ moments.covariance("phi", "psi") @ root
        directions, strength, right = np.linalg.svd(crossed, full_matrices=False)
        return cls(
            moments, values, basis, basis.T @ target, strength, directions, root @ right.T, n,
            square=float(n * np.trace(moments.covariance("y", "y"))),
            least_ratio=4 * EPS * float(values.max(initial=0.0)),
        )  # fmt: skip

    def slice(self, ratio: float, eta: float) -> GaussianSlice:
        """Return all that depends on τ = σ²/a² and η."""
        weight, s = np.sqrt(self.n * eta / ratio), self.strength
        if np.isinf(weight):
            free = s**2 <= NULL * np.max(s**2, initial=0.0)
            rest = free.astype(np.float64)
            root, lift = 1.0 - rest, (1.0 - rest) / np.where(free, 1.0, s)
        else:
            rest = np.asarray(1.0 / np.hypot(1.0, weight * s))
            root, lift = weight * s * rest, weight * rest
        scale = 1.0 / np.sqrt(self.values + ratio)
        upper = np.sqrt(ratio) * scale[:, None] * self.directions * root
        Q, triangle = np.linalg.qr(np.vstack([upper, np.diag(rest)]))
        upper, lower = Q[: len(scale)], Q[len(scale) :]
        target = scale[:, None] * self.target
        along = upper.T @ target
        coordinates = scale[:, None] * (target - upper @ along)
        explained = float(np.sum(target**2) - np.sum(along**2))
        unfair = np.sum(np.log1p(self.values / ratio))
        degrees = np.sum(self.values * scale**2 * (1.0 - np.sum(upper**2, axis=1)))
        in_eta = np.sum(rest**2) - np.sum(lower**2)
        return GaussianSlice(
            self, ratio, scale, root, rest, lift, upper, lower, triangle, along, coordinates,
            log_det=float(unfair + 2 * np.sum(np.log(np.abs(np.diagonal(triangle))))),
            log_det_slopes=np.array([-degrees - in_eta, in_eta]),
            misfit=max(self.square - explained, 0.0),
            misfit_slopes=np.array([ratio * np.sum(coordinates**2), np.sum((lower @ along) ** 2)]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class GaussianSlice:
    """The process at one τ = σ²/a² and η, for any σ²; slopes are ∂/∂log τ and ∂/∂log η."""

    system: GaussianSystem
    ratio: float  # τ
    scale: Array  # (Λ + τ)^(−1/2)
    root: Array  # √c
    rest: Array  # √(1 − c)
    lift: Array  # √c/s
    upper: Array  # Q₁ (m, r)
    lower: Array  # Q₂ (r, r)
    triangle: Array  # T
    along: Array  # Q₁ᵀz (r, t), z = (Λ + τ)^(−1/2) VᵀΦᵀy
    coordinates: Array  # VᵀA⁻¹Φᵀy (m, t), the mean of β
    log_det: float  # log|A| − log|P|
    log_det_slopes: Array  # the first: minus the effective number of parameters, less the second
    misfit: float  # yᵀy − yᵀΦA⁻¹Φᵀy, over all outputs
    misfit_slopes: Array


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
    def of(cls, system: GaussianSystem, *, noise: float, amplitude: float = 1.0, eta: float = 0.0) -> GaussianPoint:
        """Return the process at σ² = `noise` > 0, a = `amplitude` > 0 and 0 ≤ η ≤ ∞."""
        check_positive("noise", noise)
        check_positive("amplitude", amplitude)
        check_number("eta", eta, 0.0)
        ratio = float(noise) / float(amplitude) ** 2
        if not system.least_ratio <= ratio < np.inf:
            raise ValueError(
                f"noise={noise} is lost in the rounding error of features with amplitude="
                f"{amplitude} and largest eigenvalue {system.values.max(initial=0.0):.3g}; use a "
                f"noise of at least {system.least_ratio * float(amplitude) ** 2:.3g}"
            )
        return cls(system.slice(ratio, eta), float(noise))

    @cached_property
    def log_evidence(self) -> float:
        """log p(y), summed over the outputs."""
        system = self.slice.system
        volume = system.n * np.log(2 * np.pi * self.noise) + self.slice.log_det
        return float(-0.5 * (system.target.shape[1] * volume + self.slice.misfit / self.noise))

    @property
    def gradient(self) -> Array:
        """∂ log evidence / ∂(log σ², log a, log η), shape (3,); zero in log η at 0 and ∞."""
        at, t = self.slice, self.slice.system.target.shape[1]
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
        coef, factor = np.zeros_like(system.target), self.amplitude * (system.basis @ root)
        return GaussianFunction(coef, factor, system.moments.mean("y"), self.noise)

    def posterior(self) -> GaussianFunction:
        """Return the distribution of f given y, cov β = σ²A⁻¹."""
        at, system = self.slice, self.slice.system
        # I − Q₁Q₁ᵀ = (I − L(1 − κ)Lᵀ)², and Q₂ gives κ = √(1 − singular value²) to all digits.
        left, _, right = np.linalg.svd(at.upper, full_matrices=False)
        rest = np.linalg.norm(at.lower @ right.T, axis=0)
        root = np.eye(len(left)) - (left * (1.0 - rest)) @ left.T
        factor = system.basis @ (np.sqrt(self.noise) * at.scale[:, None] * root)
        return GaussianFunction(self.coef, factor, system.moments.mean("y"), self.noise)


@dataclass(frozen=True, eq=False)
class GaussianFunction:
    """f(x) = ȳ + φ(x)ᵀβ with β ~ N(coef, FFᵀ), independently for each output."""

    coef: Array
    factor: Array  # F: a covariance is positive semi-definite by construction
    offset: Array  # ȳ
    noise: float  # σ²

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


def penalty_slopes(at: GaussianSlice) -> tuple[Array, Array]:
    """Return Vᵀ nη(A⁻¹ − P⁻¹)RW and nη WᵀRᵀβ, (m, r) and (r, t); no large η is left in them."""
    lifted = solve_triangular(at.triangle, np.diag(at.lift), trans="T", check_finite=False)
    fitted = np.sqrt(at.ratio) * at.scale[:, None] * (at.upper @ lifted)
    solved = solve_triangular(at.triangle, at.along, check_finite=False)
    pull = np.sqrt(at.ratio) * at.lift[:, None] * solved
    return fitted - at.system.directions * (at.root * at.lift), pull
