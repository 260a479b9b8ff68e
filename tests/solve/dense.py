"""The dense process from Gram matrices alone, or fitted in one call."""

from __future__ import annotations

import numpy as np

from scalefair.solve.dense.gp import ExactProblem, FairGP, prior_of
from scalefair.solve.dense.ridge import penalty_spectrum, weighted_rows


def fair_prior(K, L, *, eta, noise, eps=1e-6, penalty="normalized"):
    """The fair prior: k* = k − k_Xᵀ(MK + (σ²/η)I)⁻¹M k_X."""
    rows = weighted_rows(len(K))
    spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    return prior_of(rows.gram("K", K), spectrum, eta=eta, noise=noise)


def fair_gram(K, L, **setting):
    """The fair Gram matrix K − K(MK + (σ²/η)I)⁻¹MK of the training rows."""
    return fair_prior(K, L, **setting).gram(K)


def fair_gp(K, L, y, *, eta, noise, eps=1e-6, penalty="normalized", weight=None):
    """The posterior from Gram matrices."""
    rows = weighted_rows(len(np.atleast_1d(y)), weight)
    gram, target = rows.gram("K", K), rows.values("y", y)
    spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    return FairGP.of(rows, gram, target, spectrum, eta=eta, noise=noise)


def exact_gp(kernel, X, L, y, *, noise, amplitude=1.0, eta=0.0, **build):
    """The posterior of a kernel."""
    problem = ExactProblem.build(X, L, y, **build)
    return problem.at(kernel, noise=noise, amplitude=amplitude, eta=eta)
