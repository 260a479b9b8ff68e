"""The dense (n×n) fair Gaussian process: the fair kernel k*, posterior, evidence, and its gradient.

The prior of the weights is β ~ N(0, (I + (nη/σ²) RRᵀ)⁻¹), and RRᵀ = ΦᵀMΦ/n with the M of `scalefair.solve.dense.ridge`.
So f at the training rows has the prior precision K⁻¹ + (η/σ²) M, and everywhere f ~ GP(0, k*),

    k*(x, x') = k(x, x') − k_X(x)ᵀ (MK + (σ²/η) I)⁻¹ M k_X(x') = k − gᵀg,    g = Gᵀk_X.

The ridge fit without intercept is the posterior mean at σ² = nα. The mean is zero: centre y. With
K* = k*(X, X), LLᵀ = K* + σ²I and a = (LLᵀ)⁻¹y, in the weighted coordinates of the ridge,

    mean k_Xᵀc,  c = a − Gg_Xᵀa          covariance k* − k*_Xᵀ(LLᵀ)⁻¹k*_X
    log evidence = −½(t(n log 2πσ² + log|LLᵀ/σ²|) + yᵀa)

n the sum of the weights, which makes weight 2 the row twice. As dK* = BᵀdKB with B = I − Gg_Xᵀ, the
adjoint A = ∂ log evidence/∂K = −½B(t(LLᵀ)⁻¹ − aaᵀ)Bᵀ gives every derivative,

    ∂/∂log θ_l = Σ_ij A_ij ∂K_ij/∂log θ_l      ∂/∂log amplitude = 2 Σ_ij A_ij K_ij
    ∂/∂log σ² = −½(tn − yᵀa) − Σ_ij A_ij K_ij

the last, because K*/σ² depends on K/σ² and η alone: noise acts through the prior, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular, svd

from scalefair._linalg import EPS, pivoted_root
from scalefair._typing import Array
from scalefair.errors import check_number
from scalefair.kernels import Kernel
from scalefair.kernels.base import as_rows
from scalefair.solve.dense import ridge


@dataclass(frozen=True)
class FairPrior:
    """The fair kernel k*(x, x') = k(x, x') − g(x)ᵀg(x') with g(x) = Gᵀk_X(x)."""

    factor: Array  # G (n, r); GGᵀ = (MK + (σ²/η) I)⁻¹ M
    train: Array  # KG, by a root of K times orthonormal columns: K − KG(KG)ᵀ stays positive

    def gram(self, K: Array) -> Array:
        """Return k* at the training rows, (K⁻¹ + (η/σ²) M)⁻¹ for invertible K, shape (n, n)."""
        return K - self.train @ self.train.T


def prior_of(gram: Array, spectrum: ridge.Spectrum, *, eta: float, noise: float) -> FairPrior:
    """Return G = U√τ V Σ⁻¹/√a from the SVD  [BU√τ; √(1 − τ)] = PΣVᵀ,  BᵀB = K/a, a ≥ |K|."""
    ridge.check_positive("noise", noise)
    check_number("eta", eta, 0.0)
    s, U = spectrum
    scale = float(np.abs(gram).sum(axis=0).max(initial=0.0)) or 1.0
    weight, rest = ridge.shrinkage(float(eta) * scale / float(noise), s)
    if not weight.any():
        return FairPrior(np.zeros((len(gram), 0)), np.zeros((len(gram), 0)))
    root = pivoted_root(gram / scale)
    stacked = np.vstack([root @ (U * weight), np.diag(rest)])
    P, sigma, Vt = svd(stacked, full_matrices=False, check_finite=False)
    keep = sigma > np.sqrt(EPS) * sigma.max()
    factor = (U * weight) @ (Vt[keep].T / sigma[keep]) / np.sqrt(scale)
    return FairPrior(factor, np.sqrt(scale) * (root.T @ P[: len(root), keep]))


@dataclass(frozen=True, eq=False)
class ExactProblem:
    """What the evidence of an exact process does not change: rows, targets, penalty."""

    X: Any  # of the rows of positive weight
    rows: ridge.WeightedRows
    target: Array  # y in weighted coordinates
    spectrum: ridge.Spectrum | None  # of M; None without sensitive attributes

    @classmethod
    def build(
        cls, X: Any, L: Any, y: Any, *, penalty: str = "normalized", eps: float = 1e-6, weight: Any = None
    ) -> ExactProblem:
        """Decompose the penalty of the Gram matrix L of s (None for ``eta=0``); y is centred."""
        inputs = as_rows(X, "X")
        rows = ridge.weighted_rows(len(inputs), weight)
        counted = widened(inputs[rows.index])
        if counted.dtype.kind in "fc" and not np.all(np.isfinite(counted)):
            raise ValueError("X contains NaN or infinity; give those rows weight 0 or remove them")
        spectrum = None if L is None else ridge.penalty_spectrum(rows, L, eps=eps, penalty=penalty)
        return cls(counted, rows, rows.values("y", y), spectrum)

    def at(self, kernel: Kernel, *, noise: float, amplitude: float = 1.0, eta: float = 0.0) -> ExactGP:
        """Return the process of the kernel amplitude² · k and the noise σ² > 0, at 0 ≤ η ≤ ∞."""
        ridge.check_positive("noise", noise)
        ridge.check_positive("amplitude", amplitude)
        check_number("eta", eta, 0.0)
        if self.spectrum is None and eta != 0:
            raise ValueError(
                f"eta={eta} needs the Gram matrix L of the sensitive attributes, got None; "
                "pass L, or eta=0 for an ordinary Gaussian process"
            )
        root = self.rows.root
        K = np.asarray(kernel(self.X), dtype=np.float64)
        gram = float(amplitude) ** 2 * (root[:, None] * K * root)
        spectrum = self.spectrum or ridge.Spectrum(np.zeros(0), np.zeros((len(gram), 0)))
        # A constant s has no direction to punish: then the ordinary process, whatever eta.
        eta = float(eta) if len(spectrum.values) else 0.0
        prior = prior_of(gram, spectrum, eta=eta, noise=noise)
        try:
            lower = cholesky(prior.gram(gram) + noise * np.eye(len(gram)), lower=True)
        except LinAlgError as error:
            raise ValueError(
                f"noise={noise} is lost in the rounding error of a Gram matrix with trace "
                f"{np.trace(gram):.3g}; use a larger noise variance"
            ) from error
        return ExactGP(self, kernel, float(amplitude), float(noise), eta, gram, prior, lower)


@dataclass(frozen=True, eq=False)
class ExactGP:
    """Posterior of f given y = f(X) + N(0, σ²), f ~ GP(0, k*), in weighted coordinates."""

    problem: ExactProblem
    kernel: Kernel  # k without the amplitude
    amplitude: float
    noise: float
    eta: float  # 0 where s is constant
    gram: Array  # K
    prior: FairPrior  # k*
    lower: Array  # the Cholesky factor L

    @cached_property
    def _solved(self) -> Array:
        """a."""
        return np.asarray(cho_solve((self.lower, True), self.problem.target, check_finite=False))

    @property
    def scale(self) -> float:
        """n times the number of outputs t."""
        return float(self.problem.rows.total * self.problem.target[0].size)

    @property
    def misfit(self) -> float:
        """yᵀ(K* + σ²I)⁻¹y, summed over the outputs."""
        return float(np.sum(self.problem.target * self._solved))

    @property
    def log_evidence(self) -> float:
        """log N(y | 0, k*(X, X) + σ²I), summed over the outputs."""
        n, k, t = self.problem.rows.total, len(self.gram), self.problem.target[0].size
        log_det = 2.0 * float(np.sum(np.log(np.diag(self.lower))))
        volume = n * np.log(2 * np.pi) + (n - k) * np.log(self.noise) + log_det
        return float(-0.5 * (t * volume + self.misfit))

    def adjoint(self) -> Array:
        """A with d log evidence = Σ_ij A_ij dK_ij for symmetric dK, shape (k, k)."""
        eye, a = np.eye(len(self.gram)), self._solved.reshape(len(self.gram), -1)
        B = eye - self.prior.factor @ self.prior.train.T
        inverse = cho_solve((self.lower, True), eye, check_finite=False)
        return np.asarray(-0.5 * B @ (a.shape[1] * inverse - a @ a.T) @ B.T)

    @cached_property
    def gradient(self) -> Array:
        """∂ log evidence/∂(log θ, log amplitude, log σ²), shape (n_hyper + 2,), at fixed η."""
        adjoint, root = self.adjoint(), self.problem.rows.root
        volume = float(np.vdot(adjoint, self.gram))
        plain = self.amplitude**2 * (root[:, None] * adjoint * root)
        in_scale = self.kernel.gradient(self.problem.X, None, plain)
        in_noise = -0.5 * (self.scale - self.misfit) - volume
        return np.concatenate([in_scale, [2.0 * volume, in_noise]])

    @cached_property
    def dual_coef(self) -> Array:
        """c of the mean k(x, X) c, amplitude included; (n,) or (n, t), zero at weight zero."""
        c = self._solved - self.prior.factor @ (self.prior.train.T @ self._solved)
        return self.amplitude**2 * self.problem.rows.scatter(c)

    def mean(self, X_new: Any) -> Array:
        """Return E f at new points, shape (p,) or (p, t)."""
        K_new = np.asarray(self.kernel(widened(X_new), self.problem.X), dtype=np.float64)
        return np.asarray(K_new @ self.dual_coef[self.problem.rows.index])

    def variance(self, X_new: Any) -> Array:
        """Return var f at new points without noise, the same for every output, shape (p,)."""
        prior = self.amplitude**2 * np.asarray(self.kernel.diag(widened(X_new)), dtype=np.float64)
        return np.asarray(np.maximum(prior - np.sum(self._spread(X_new) ** 2, axis=1), 0.0))

    def covariance(self, X_new: Any) -> Array:
        """Return k*(·,·) − k*_X(·)ᵀ (K* + σ²I)⁻¹ k*_X(·) at new points, shape (p, p)."""
        spread = self._spread(X_new)
        return self._gram(X_new) - spread @ spread.T

    def prior_covariance(self, X_new: Any) -> Array:
        """Return the fair prior k* at any points, before y is seen, shape (p, p)."""
        g = self._weighted(X_new) @ self.prior.factor
        return self._gram(X_new) - g @ g.T

    def _spread(self, X_new: Any) -> Array:
        """g and k*_Xᵀ L⁻ᵀ side by side, shape (p, r + k): the covariance is k − their square."""
        scaled = self._weighted(X_new)
        g = scaled @ self.prior.factor
        fair = scaled - g @ self.prior.train.T
        solved = solve_triangular(self.lower, fair.T, lower=True, check_finite=False).T
        return np.hstack([g, solved])

    def _gram(self, A: Any, B: Any = None) -> Array:
        """Return amplitude² k(A, B)."""
        return self.amplitude**2 * np.asarray(self.kernel(widened(A), B), dtype=np.float64)

    def _weighted(self, X_new: Any) -> Array:
        return self._gram(X_new, self.problem.X) * self.problem.rows.root


def widened(X: Any) -> Any:
    """Return X with float32 widened: an evidence needs all digits of its kernel."""
    array = np.asarray(X)
    return array.astype(np.float64) if array.dtype == np.float32 else array
