"""The closed form at one α and one η, by a Cholesky factor and Woodbury's identity."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from scalefair._linalg import cholesky, positive_eigh
from scalefair._typing import Array
from scalefair.solve.system import System

NULL = 1e-13
"""Penalty directions below this share of the strongest are numerically none."""


def gain(eta: Array | float, strength: Array) -> Array:
    """1 / (1/η + s), what Woodbury multiplies each direction of strength s ≥ 0 with.

    η = ∞ is the limit 1/s. Directions too weak to be told from none get 0 there: the penalty
    cannot reach them.
    """
    eta = np.asarray(eta, dtype=float)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / eta[..., None]
    weak = strength <= NULL * strength.max(initial=0.0)
    nothing = (eta[..., None] == 0) | ((inverse == 0) & weak)
    return np.where(nothing, 0.0, 1.0 / np.where(nothing, 1.0, inverse + strength))


def solve_primal(system: System, alpha: float, eta: float) -> tuple[Array, float]:
    """Solve (C + αD + ηRRᵀ) β = c; return β of shape (m, t) and the relative jitter needed.

    β = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c with A = C + αD. ηRRᵀ is never formed: at η = 1e8 it
    would swallow eight digits of C. η = ∞ is allowed.
    """
    A = system.gram + alpha * np.diag(system.ridge)
    factor, jitter = cholesky(A)
    coef = cho_solve(factor, system.target, check_finite=False)
    if eta == 0 or system.factor.shape[1] == 0:
        return coef, jitter
    solved = cho_solve(factor, system.factor, check_finite=False)
    strength, basis = positive_eigh(_symmetric(system.factor.T @ solved))
    along = basis.T @ (system.factor.T @ coef)
    return coef - solved @ (basis @ (gain(eta, strength)[:, None] * along)), jitter


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
