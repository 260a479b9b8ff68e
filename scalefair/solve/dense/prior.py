"""The dense n×n reference of the fair Gaussian process.

The prior of the weights is β ~ N(0, (I + (nη/σ²) RRᵀ)⁻¹), and RRᵀ = ΦᵀMΦ/n with the M of
`scalefair.solve.dense.ridge`. So f at the training rows has the prior precision K⁻¹ + (η/σ²) M, and
everywhere f ~ GP(0, k*),

    k*(x, x') = k(x, x') − k_X(x)ᵀ (MK + (σ²/η) I)⁻¹ M k_X(x').

For `hsic` M = L̃/n, so (η/σ²) M = δL̃ with δ = η/(nσ²); for `normalized` M = P. The ridge fit
without intercept is the posterior mean at σ² = nα, hence δ = η/(n²α). The mean is zero: centre y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular, svd
from scipy.linalg.lapack import dpotrf

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.solve.dense.ridge import (
    EPS,
    Spectrum,
    WeightedRows,
    check_number,
    penalty_spectrum,
    shrinkage,
    weighted_rows,
)

LARGEST_CONDITION = 1e8
"""Above this bound a Cholesky factor may lose more than half of the digits."""


@dataclass(frozen=True)
class FairPrior:
    """The fair kernel k*(x, x') = k(x, x') − g(x)ᵀg(x') with g(x) = Gᵀk_X(x).

    Parameters
    ----------
    factor : array of shape (n, r)
        G; GGᵀ = (MK + (σ²/η) I)⁻¹ M.
    train : array of shape (n, r)
        g at the training rows. It is KG, but computed as a root of K times orthonormal columns,
        which keeps K − KG(KG)ᵀ positive where G itself is huge.
    """

    factor: Array
    train: Array

    def gram(self, K: Array) -> Array:
        """Return k* at the training rows, (K⁻¹ + (η/σ²) M)⁻¹ for invertible K, shape (n, n)."""
        return K - self.train @ self.train.T

    def cross(self, K_ab: Array, K_a: Array, K_b: Array) -> Array:
        """Return k*(A, B) from k(A, B), k(A, X) and k(B, X), shape (p, q)."""
        return np.asarray(K_ab - (K_a @ self.factor) @ (K_b @ self.factor).T)


def fair_prior(
    K: Any,
    L: Any,
    *,
    eta: float,
    noise: float,
    eps: float = 1e-6,
    penalty: str = "normalized",
) -> FairPrior:
    """Fair prior covariance: k* = k − k_Xᵀ(MK + (σ²/η)I)⁻¹M k_X.

    Parameters
    ----------
    K, L : array of shape (n, n)
        Gram matrices of inputs and sensitive attributes.
    eta, noise, eps : float
        Weight of the penalty (may be ``numpy.inf``), noise variance σ², and ε of `normalized`.
    penalty : {"normalized", "hsic"}
        What M is.
    """
    rows = weighted_rows(len(np.atleast_1d(K)))
    spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    return spectral_prior(rows.gram("K", K), spectrum, eta=eta, noise=noise)


def fair_gram(
    K: Any, L: Any, *, eta: float, noise: float, eps: float = 1e-6, penalty: str = "normalized"
) -> Array:
    """Fair Gram matrix K − K(MK + (σ²/η)I)⁻¹MK of the training rows; see `fair_prior`."""
    prior = fair_prior(K, L, eta=eta, noise=noise, eps=eps, penalty=penalty)
    return prior.gram(np.asarray(K, dtype=np.float64))


@dataclass(frozen=True)
class FairGP:
    """Posterior of f given y = f(X) + N(0, σ²) under the prior GP(0, k*).

    Parameters
    ----------
    dual_coef : array of shape (n,) or (n, t)
        c of the mean k(x, X) c, zero for rows of weight zero.
    log_evidence : float
        log N(y | 0, k*(X, X) + σ²I), summed over the outputs.
    rows : WeightedRows
        Which training rows count.
    prior : FairPrior
        k* in weighted coordinates.
    cholesky : array of shape (k, k)
        Lower factor of k*(X, X) + σ²I in weighted coordinates.
    """

    dual_coef: Array
    log_evidence: float
    rows: WeightedRows
    prior: FairPrior
    cholesky: Array

    def mean(self, K_new: Array) -> Array:
        """Return E f at new points from K_new = k(X_new, X), shape (p,) or (p, t)."""
        return np.asarray(K_new @ self.dual_coef)

    def covariance(self, K_new: Array, K_new_new: Array) -> Array:
        """Return k*(·,·) − k*_X(·)ᵀ (k*(X, X) + σ²I)⁻¹ k*_X(·), shape (p, p)."""
        g, reduction = self._reduction(K_new)
        return np.asarray(K_new_new - g @ g.T - reduction.T @ reduction)

    def variance(self, K_new: Array, diagonal: Array) -> Array:
        """Return the diagonal of `covariance` from k(x, x) at the new points, shape (p,)."""
        g, reduction = self._reduction(K_new)
        value = diagonal - np.sum(g**2, axis=1) - np.sum(reduction**2, axis=0)
        return np.asarray(np.maximum(value, 0.0))

    def _reduction(self, K_new: Array) -> tuple[Array, Array]:
        scaled = K_new[:, self.rows.index] * self.rows.root
        g = scaled @ self.prior.factor
        fair = scaled - g @ self.prior.train.T
        return g, solve_triangular(self.cholesky, fair.T, lower=True, check_finite=False)


def fair_gp(
    K: Any,
    L: Any,
    y: Any,
    *,
    eta: float,
    noise: float,
    eps: float = 1e-6,
    penalty: str = "normalized",
    weight: Any = None,
) -> FairGP:
    """Fair GP regression: an ordinary GP with the kernel k*, which depends on η/σ².

    Parameters
    ----------
    K, L : array of shape (n, n)
        Gram matrices of inputs (amplitude included) and sensitive attributes.
    y : array of shape (n,) or (n, t)
        Targets, centred by the caller; outputs are independent and share the covariance.
    eta, noise, eps, penalty
        As in `fair_prior`.
    weight : array of shape (n,) or None
        Row weights: the noise variance of a row is σ²/w, and the evidence counts a row of weight 2
        as two rows with that target.
    """
    rows = weighted_rows(len(np.atleast_1d(y)), weight)
    gram, target = rows.gram("K", K), rows.values("y", y)
    spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    prior = spectral_prior(gram, spectrum, eta=eta, noise=noise)
    triangle = cholesky_of_noisy(prior.gram(gram), noise)
    a = cho_solve((triangle, True), target, check_finite=False)
    # k*_X(x) a = k_X(x)(a − G gᵀa): the mean needs the plain kernel only.
    dual_coef = rows.scatter(a - prior.factor @ (prior.train.T @ a))
    outputs = target[0].size
    # n log σ² + log|I + K*/σ²|, n the sum of the weights, is what makes weight 2 the row twice.
    log_det = (rows.total - len(gram)) * np.log(noise) + 2 * np.sum(np.log(np.diag(triangle)))
    constant = rows.total * np.log(2 * np.pi)
    log_evidence = -0.5 * float(outputs * (constant + log_det) + np.sum(target * a))
    return FairGP(dual_coef, log_evidence, rows, prior, triangle)


def spectral_prior(gram: Array, spectrum: Spectrum, *, eta: float, noise: float) -> FairPrior:
    """Return G = U√τ V Σ⁻¹/√a from the SVD  [K₁^½U√τ; √(1 − τ)] = PΣVᵀ,  K₁ = K/a, a = |K|.

    τ = (ηa/σ²)s / (1 + (ηa/σ²)s) keeps every quantity bounded by 1, for η = ∞ too.
    """
    check_number("noise", noise)
    check_number("eta", eta, positive=False, finite=False)
    s, U = spectrum
    lam, Q = positive_eigh(gram)
    scale = float(lam.max(initial=0.0)) or 1.0
    weight, rest = shrinkage(float(eta) * scale / float(noise), s)
    if not weight.any():
        return FairPrior(np.zeros((len(gram), 0)), np.zeros((len(gram), 0)))
    root = np.sqrt(lam / scale)
    stacked = np.vstack([root[:, None] * (Q.T @ U) * weight, np.diag(rest)])
    P, sigma, Vt = svd(stacked, full_matrices=False, check_finite=False)
    keep = sigma > np.sqrt(EPS) * sigma.max()
    factor = (U * weight) @ (Vt[keep].T / sigma[keep]) / np.sqrt(scale)
    return FairPrior(factor, (Q * np.sqrt(lam)) @ P[: len(lam), keep])


def cholesky_prior(
    gram: Array, spectrum: Spectrum, *, eta: float, noise: float
) -> tuple[Array, float]:
    """Return G and log|I + (η/σ²)MK| by a Cholesky factor of 1 − τ + √τ UᵀK₁U √τ, K₁ = K/a.

    With the τ of `spectral_prior`, and an error of the order of `condition_bound`; η finite.
    """
    scale = size_bound(gram)
    weight, rest = shrinkage(eta * scale / noise, spectrum.values)
    weighted = spectrum.vectors * weight
    inner = weighted.T @ (gram @ weighted) / scale
    inner[np.diag_indices_from(inner)] += rest**2
    triangle = cholesky(inner, lower=True, check_finite=False)
    log_det = 2.0 * float(np.sum(np.log(np.diag(triangle))) - np.sum(np.log(rest)))
    factor = solve_triangular(triangle, weighted.T, lower=True, check_finite=False).T
    return np.asarray(factor / np.sqrt(scale)), log_det


def quickest_prior(gram: Array, spectrum: Spectrum, *, eta: float, noise: float) -> FairPrior:
    """Return the fair prior by Cholesky where that keeps its digits, else by singular values."""
    bound = condition_bound(gram, spectrum, eta=eta, noise=noise)
    if not 0 < bound <= LARGEST_CONDITION:
        return spectral_prior(gram, spectrum, eta=eta, noise=noise)
    factor, _ = cholesky_prior(gram, spectrum, eta=eta, noise=noise)
    return FairPrior(factor, gram @ factor)


def condition_bound(gram: Array, spectrum: Spectrum, *, eta: float, noise: float) -> float:
    """|K|(1 + ηs)/σ² with the largest s; 0 where the penalty does nothing."""
    if eta == 0 or not len(spectrum.values):
        return 0.0
    return size_bound(gram) * (1.0 + eta * float(spectrum.values.max())) / noise


def size_bound(gram: Array) -> float:
    """Return the largest row sum of a Gram matrix, a bound of its norm; 1 if it is zero."""
    return float(np.abs(gram).sum(axis=0).max(initial=0.0)) or 1.0


def cholesky_of_noisy(gram: Array, noise: float) -> Array:
    """Lower factor of gram + σ²I; a ValueError where σ² drowns in the rounding error of gram."""
    shifted = np.array(gram, order="C")
    shifted.ravel()[:: len(gram) + 1] += noise
    # The transpose of a symmetric matrix is the matrix itself in LAPACK's order, without a copy.
    factor, info = dpotrf(shifted.T, lower=1, clean=1, overwrite_a=1)
    if info:
        raise ValueError(
            f"noise={noise} drowns in the rounding error of a Gram matrix with trace "
            f"{np.trace(gram):.3g}; use a larger noise variance"
        )
    return np.asarray(factor)
