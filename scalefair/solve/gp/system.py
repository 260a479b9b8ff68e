"""The fair Gaussian process from moments alone: one decomposition for all hyperparameters but θ.

The features φ have an amplitude a, f(x) = ȳ + aφ(x)ᵀw with the prior
w ~ N(0, (I + (nη/σ²) a²RRᵀ)⁻¹), and y − ȳ has noise of variance σ². R is that of the features
without amplitude. In β = aw, with the ratio τ = σ²/a²,

    β ~ N(0, σ² P⁻¹),    P = τI + nηRRᵀ,    A = ΦᵀΦ + P
    mean β = A⁻¹Φᵀy,     cov β = σ² A⁻¹
    −2 log evidence = n log 2πσ² + log|A| − log|P| + (yᵀy − yᵀΦA⁻¹Φᵀy)/σ²

per output. So η is in the units of the ridge objective J: it weighs the variance of f that s
explains against the squared error, whatever σ² and a are, and the mean is the ridge fit without
intercept at α = τ/n and the same η. The prior of f in turn tightens as σ² falls, as η/σ².

With ΦᵀΦ = VΛVᵀ and R = U diag(s) Wᵀ, all that depends on τ and η goes through one matrix of q
columns, with orthonormal columns once decomposed,

    [√τ (Λ+τ)^(−1/2) VᵀU √c]   [Q₁]
    [        √(1 − c)       ] = [Q₂] T,    c = ρ/(1 + ρ),  ρ = (nη/τ) s²,

    log|A| − log|P| = Σ log(1 + λ/τ) + 2 Σ log|T_kk|,    A⁻¹ = S(I − Q₁Q₁ᵀ)Sᵀ,  S = V(Λ+τ)^(−1/2)

in which every number is bounded by 1 for any η. η = ∞ is the limit: β lives on {β : Rᵀβ = 0}. Its
evidence is finite; as directions of R below a relative cut-off count as none, it jumps where
length scales change the numerical rank of R. Learn them with a finite η. Noise, amplitude and η
cost no pass over the data and no O(m³) work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array, Rows
from scalefair.errors import FINITE, check_number
from scalefair.moments import Moments
from scalefair.penalties import attribute_root
from scalefair.solve.dense.ridge import EPS, check_positive
from scalefair.solve.ridge.system import NULL


@dataclass(frozen=True, eq=False)
class GaussianSystem:
    """What the moments say, in the eigenbasis V of ΦᵀΦ; the O(m³) work of a set of features.

    - `moments`: Moments of [φ, ψ, y]; without a block "psi" there is no penalty.
    - `values`, `basis` (m,) and (m, m): Λ and V of ΦᵀΦ, uncentred.
    - `target` (m, t): VᵀΦᵀ(y − ȳ).
    - `strength`, `directions` (r,) and (m, r): s and VᵀU of the factor R.
    - `right` (q, r): TW, where R = C_φψT: what joins the rows of ψ to the directions.
    """

    moments: Moments
    values: Array
    basis: Array
    target: Array
    strength: Array
    directions: Array
    right: Array

    @classmethod
    def build(
        cls, moments: Moments, *, penalty: str = "normalized", eps: float | None = None
    ) -> GaussianSystem:
        """Decompose the statistics; `penalty` is "normalized" or "hsic"."""
        n, mean = moments.weight, moments.mean("phi")
        if not n > 0:
            raise ValueError(
                "the moments hold no rows of positive weight; accumulate some rows first"
            )
        if not (np.isfinite(moments.scatter).all() and np.isfinite(moments.shift).all()):
            raise ValueError(
                "the moments contain NaN or infinity, so that there is no evidence; look for huge "
                "or missing values among the inputs and targets"
            )
        gram = n * (moments.covariance("phi", "phi") + np.outer(mean, mean))
        target = n * moments.covariance("phi", "y")
        return cls.decompose(moments, gram, target, penalty, eps)

    @classmethod
    def decompose(
        cls, moments: Moments, gram: Array, target: Array, penalty: str, eps: float | None
    ) -> GaussianSystem:
        """Decompose a Gram matrix ΦᵀΦ (or ΦᵀWΦ) with the target Φᵀy, and R of the moments."""
        values, basis = positive_eigh(gram)
        root = sensitive_root(moments, penalty, eps)
        crossed = np.zeros((len(gram), 0))
        if "psi" in moments.blocks:
            crossed = basis.T @ moments.covariance("phi", "psi") @ root
        directions, strength, right = np.linalg.svd(crossed, full_matrices=False)
        return cls(moments, values, basis, basis.T @ target, strength, directions, root @ right.T)

    @property
    def n(self) -> float:
        """Sum of the weights."""
        return self.moments.weight

    @property
    def outputs(self) -> int:
        """Number of outputs t, which share the hyperparameters."""
        return int(self.target.shape[1])

    @cached_property
    def square(self) -> float:
        """Σ w|y − ȳ|², over all outputs."""
        return float(self.n * np.trace(self.moments.covariance("y", "y")))

    @property
    def least_ratio(self) -> float:
        """σ²/a² below which the noise drowns in the rounding error of ΦᵀΦ."""
        return 4 * EPS * float(self.values.max(initial=0.0))

    def slice(self, ratio: float, eta: float) -> GaussianSlice:
        """Return all that depends on τ = σ²/a² and η."""
        check_number("eta", eta, 0.0)
        root, rest, lift = _shrinkage(self.n * eta / ratio, self.strength)
        scale = 1.0 / np.sqrt(self.values + ratio)
        upper = np.sqrt(ratio) * scale[:, None] * self.directions * root
        Q, triangle = np.linalg.qr(np.vstack([upper, np.diag(rest)]))
        m, target = len(scale), scale[:, None] * self.target
        return GaussianSlice(self, ratio, scale, target, root, rest, lift, Q[:m], Q[m:], triangle)


@dataclass(frozen=True, eq=False)
class GaussianSlice:
    """The process at one τ = σ²/a² and η, for any σ².

    - `ratio`: τ.
    - `scale` (m,): (Λ + τ)^(−1/2).
    - `scaled_target` (m, t): z = (Λ + τ)^(−1/2) VᵀΦᵀy.
    - `root`, `rest`, `lift` (r,): √c, √(1 − c) and √c/s.
    - `upper`, `lower`, `triangle` (m, r), (r, r) and (r, r): Q₁, Q₂ and T.
    """

    system: GaussianSystem
    ratio: float
    scale: Array
    scaled_target: Array
    root: Array
    rest: Array
    lift: Array
    upper: Array
    lower: Array
    triangle: Array

    @cached_property
    def along(self) -> Array:
        """Q₁ᵀz: what the penalty takes away, shape (r, t)."""
        return np.asarray(self.upper.T @ self.scaled_target)

    @cached_property
    def coordinates(self) -> Array:
        """Mean of β in the eigenbasis, VᵀA⁻¹Φᵀy, shape (m, t)."""
        return np.asarray(self.scale[:, None] * (self.scaled_target - self.upper @ self.along))

    @cached_property
    def log_det(self) -> float:
        """log|A| − log|P|."""
        unfair = np.sum(np.log1p(self.system.values / self.ratio))
        return float(unfair + 2 * np.sum(np.log(np.abs(np.diagonal(self.triangle)))))

    @cached_property
    def misfit(self) -> float:
        """yᵀy − yᵀΦA⁻¹Φᵀy, over all outputs."""
        explained = np.sum(self.scaled_target**2) - np.sum(self.along**2)
        return max(self.system.square - float(explained), 0.0)

    @property
    def log_det_slopes(self) -> Array:
        """∂log_det/∂log τ and ∂log_det/∂log η.

        The first is −tr(ΦᵀΦA⁻¹), the effective number of parameters, less the second.
        """
        left = 1.0 - np.sum(self.upper**2, axis=1)
        degrees = float(np.sum(self.system.values * self.scale**2 * left))
        in_eta = float(np.sum(self.rest**2) - np.sum(self.lower**2))
        return np.array([-degrees - in_eta, in_eta])

    @property
    def misfit_slopes(self) -> Array:
        """∂misfit/∂log τ and ∂misfit/∂log η."""
        penalty = np.sum((self.lower @ self.along) ** 2)
        return np.array([self.ratio * np.sum(self.coordinates**2), penalty])


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
        check_positive("noise", noise)
        check_positive("amplitude", amplitude)
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
        coef, factor = np.zeros_like(system.target), self.amplitude * (system.basis @ root)
        return GaussianFunction(coef, factor, system.moments.mean("y"), self.noise)

    def posterior(self) -> GaussianFunction:
        """Return the distribution of f given y, cov β = σ²A⁻¹."""
        at, system = self.slice, self.slice.system
        # I − Q₁Q₁ᵀ = (I − L(1 − κ)Lᵀ)², and Q₂ knows κ = √(1 − singular value²) to all digits.
        left, _, right = np.linalg.svd(at.upper, full_matrices=False)
        rest = np.linalg.norm(at.lower @ right.T, axis=0)
        root = np.eye(len(left)) - (left * (1.0 - rest)) @ left.T
        factor = system.basis @ (np.sqrt(self.noise) * at.scale[:, None] * root)
        return GaussianFunction(self.coef, factor, system.moments.mean("y"), self.noise)


@dataclass(frozen=True, eq=False)
class GaussianFunction:
    """f(x) = ȳ + φ(x)ᵀβ with β ~ N(coef, FFᵀ), independently for each output.

    - `coef` (m, t): Mean of β.
    - `factor` (m, m): F; a covariance is positive semi-definite by construction.
    - `offset` (t,): ȳ.
    - `noise`: σ², the variance of y about f.
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


def sensitive_root(moments: Moments, penalty: str, eps: float | None) -> Array:
    """Return T of R = C_φψT, which does not depend on φ: I (`hsic`) or (C_ψ + εκ)^(−1/2)."""
    if eps is not None:
        check_number("eps", eps, 0.0, FINITE)
    if penalty not in ("hsic", "normalized"):
        raise ValueError(
            f"penalty={penalty!r} has no Gaussian process prior here; choose 'normalized' or 'hsic'"
        )
    width = moments.blocks.get("psi", 0)
    if penalty == "hsic" or width == 0:
        return np.eye(width)
    return attribute_root(moments, eps)[1]


def _shrinkage(weight: float, strength: Array) -> tuple[Array, Array, Array]:
    """Return √c, √(1 − c) and √c/s with c = ρ/(1 + ρ), ρ = weight·s², for 0 ≤ weight ≤ ∞."""
    if np.isinf(weight):
        real = strength**2 > NULL * np.max(strength**2, initial=0.0)
        lift = np.where(real, 1.0 / np.where(real, strength, 1.0), 0.0)
        return real.astype(np.float64), (~real).astype(np.float64), lift
    root = np.sqrt(weight)
    rest = 1.0 / np.hypot(1.0, root * strength)
    return root * strength * rest, rest, root * rest
