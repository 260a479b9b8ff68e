"""The dense process from Gram matrices alone, or fitted in one call."""

from __future__ import annotations

import numpy as np

from scalefair.solve.dense.gp import ExactProblem, prior_of
from scalefair.solve.dense.ridge import penalty_spectrum, weighted_rows


def fair_prior(K, L, *, eta, noise, eps=1e-6, penalty="normalized"):
    """The fair prior: k* = k − k_Xᵀ(MK + (σ²/η)I)⁻¹M k_X."""
    rows = weighted_rows(len(K))
    spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    return prior_of(rows.gram("K", K), spectrum, eta=eta, noise=noise)


def fair_gram(K, L, **setting):
    """The fair Gram matrix K − K(MK + (σ²/η)I)⁻¹MK of the training rows."""
    return fair_prior(K, L, **setting).gram(K)


class _Given:
    """A kernel that is known at the training rows, which are numbered, and between new ones."""

    def __init__(self, K):
        self.K, self.between = np.asarray(K, dtype=float), None

    def __call__(self, A, B=None):
        if B is None:
            return self.K[np.ix_(A[:, 0], A[:, 0])] if A.dtype.kind == "i" else self.between
        return A[:, B[:, 0]]

    def diag(self, A):
        return self.between


class GramGP:
    """The posterior from Gram matrices: new points are given by k(X_new, X) and k(X_new, X_new)."""

    def __init__(self, process):
        self.process, self.log_evidence = process, process.log_evidence

    def mean(self, K_new):
        return self.process.mean(K_new)

    def covariance(self, K_new, between):
        self.process.kernel.between = between
        return self.process.covariance(K_new)

    def variance(self, K_new, diagonal):
        self.process.kernel.between = diagonal
        return self.process.variance(K_new)


def fair_gp(K, L, y, *, eta, noise, **build):
    """The posterior from Gram matrices."""
    problem = ExactProblem.build(np.arange(len(K))[:, None], L, y, **build)
    return GramGP(problem.at(_Given(K), noise=noise, eta=eta))


def exact_gp(kernel, X, L, y, *, noise, amplitude=1.0, eta=0.0, **build):
    """The posterior of a kernel."""
    problem = ExactProblem.build(X, L, y, **build)
    return problem.at(kernel, noise=noise, amplitude=amplitude, eta=eta)
