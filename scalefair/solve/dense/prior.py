"""The prior of the fair Gaussian process: the fair kernel k*.

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
from scipy.linalg import svd
from scipy.linalg.lapack import dpstrf

from scalefair._typing import Array
from scalefair.solve.dense.ridge import (
    EPS,
    Spectrum,
    check_number,
    penalty_spectrum,
    shrinkage,
    weighted_rows,
)


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
    return prior_of(rows.gram("K", K), spectrum, eta=eta, noise=noise)


def fair_gram(
    K: Any, L: Any, *, eta: float, noise: float, eps: float = 1e-6, penalty: str = "normalized"
) -> Array:
    """Fair Gram matrix K − K(MK + (σ²/η)I)⁻¹MK of the training rows; see `fair_prior`."""
    prior = fair_prior(K, L, eta=eta, noise=noise, eps=eps, penalty=penalty)
    return prior.gram(np.asarray(K, dtype=np.float64))


def prior_of(gram: Array, spectrum: Spectrum, *, eta: float, noise: float) -> FairPrior:
    """Return G = U√τ V Σ⁻¹/√a from the SVD  [BU√τ; √(1 − τ)] = PΣVᵀ,  BᵀB = K/a, a ≥ |K|.

    τ = (ηa/σ²)s / (1 + (ηa/σ²)s) keeps every quantity bounded by 1, for η = ∞ too.
    """
    check_number("noise", noise)
    check_number("eta", eta, positive=False, finite=False)
    s, U = spectrum
    scale = float(np.abs(gram).sum(axis=0).max(initial=0.0)) or 1.0
    weight, rest = shrinkage(float(eta) * scale / float(noise), s)
    if not weight.any():
        return FairPrior(np.zeros((len(gram), 0)), np.zeros((len(gram), 0)))
    root = pivoted_root(gram / scale)
    stacked = np.vstack([root @ (U * weight), np.diag(rest)])
    P, sigma, Vt = svd(stacked, full_matrices=False, check_finite=False)
    keep = sigma > np.sqrt(EPS) * sigma.max()
    factor = (U * weight) @ (Vt[keep].T / sigma[keep]) / np.sqrt(scale)
    return FairPrior(factor, np.sqrt(scale) * (root.T @ P[: len(root), keep]))


def pivoted_root(gram: Array) -> Array:
    """Return B of shape (r, n) with BᵀB = K for a positive semi-definite K of rank r."""
    # Transposed, a symmetric matrix has LAPACK's order, so that it need not be reordered first.
    triangle, pivots, rank, _ = dpstrf(gram.T, tol=EPS * gram.diagonal().max(initial=0.0))
    root = np.empty((rank, len(gram)))
    root[:, pivots - 1] = np.triu(triangle[:rank])
    return root
