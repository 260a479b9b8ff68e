"""The closed form at one α and one η, by a Cholesky factor and Woodbury's identity."""

from __future__ import annotations

import numpy as np

from scalefair._linalg import Factor, factorize, positive_eigh
from scalefair._typing import Array
from scalefair.solve.diagnostics import Diagnostics, diagnose
from scalefair.solve.ridge.system import System

NULL = 1e-13
"""Penalty directions below this share of the strongest are numerically none."""


def gain(eta: Array | float, strength: Array) -> Array:
    """1 / (1/η + s), what Woodbury multiplies each direction of strength s ≥ 0 with.

    η = ∞ is the limit 1/s. Directions too weak to be told from none get 0 there: the penalty
    cannot reach them.
    """
    eta = np.asarray(eta, dtype=float)
    with np.errstate(divide="ignore", over="ignore"):  # of the smallest numbers, too, it is ∞
        inverse = 1.0 / eta[..., None]
    weak = strength <= NULL * strength.max(initial=0.0)
    nothing = (eta[..., None] == 0) | ((inverse == 0) & weak)
    return np.where(nothing, 0.0, 1.0 / np.where(nothing, 1.0, inverse + strength))


def solve_primal(system: System, alpha: float, eta: float) -> tuple[Array, float]:
    """Solve (C + αD + ηRRᵀ) β = c; return β of shape (m, t) and the relative jitter needed.

    β = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c with A = C + αD. ηRRᵀ is never formed: at η = 1e8 it
    would swallow eight digits of C. η = ∞ is allowed.
    """
    factor = factorize(ridged(system, alpha))
    return _solution(system, factor, eta), factor.jitter


def judged_primal(
    system: System, alpha: float, eta: float, rounding: float
) -> tuple[Array, Diagnostics]:
    """Return β as `solve_primal` does, and what rounding has left of it."""
    A = ridged(system, alpha)
    factor = factorize(A)
    coef = _solution(system, factor, eta)
    return coef, diagnose(A, system.gram, rounding=rounding, factor=factor)


def _solution(system: System, factor: Factor, eta: float) -> Array:
    coef = factor.solve(system.target)
    if eta == 0 or system.factor.shape[1] == 0:
        return coef
    solved = factor.solve(system.factor)
    strength, basis = positive_eigh(_symmetric(system.factor.T @ solved))
    along = basis.T @ (system.factor.T @ coef)
    return np.asarray(coef - solved @ (basis @ (gain(eta, strength)[:, None] * along)))


def ridged(system: System, alpha: float) -> Array:
    """C + αD."""
    return np.asarray(system.gram + alpha * np.diag(system.ridge))


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
