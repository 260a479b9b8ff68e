"""Adjoints of the evidence: its derivative in the statistics, and from there in every row of Φ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from scalefair._typing import Array
from scalefair.moments.gradient import RowAdjoint
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.system import GaussianSlice


@dataclass(frozen=True, eq=False)
class StatisticsAdjoint:
    """∂ log evidence in the statistics of features without amplitude, at fixed σ², a and η.

    Parameters
    ----------
    gram : array of shape (m, m)
        In ΦᵀΦ: −½(tA⁻¹ + ββᵀ/σ²), symmetric.
    target : array of shape (m, t)
        In Φᵀ(y − ȳ): β/σ².
    cross : array of shape (m, q)
        In C_φψ: R̄Tᵀ with R = C_φψT and R̄ = −nη(t(A⁻¹ − P⁻¹) + ββᵀ/σ²)R.
    """

    gram: Array
    target: Array
    cross: Array


def statistics_adjoint(point: GaussianPoint) -> StatisticsAdjoint:
    """Differentiate the log evidence in ΦᵀΦ, Φᵀ(y − ȳ) and C_φψ."""
    at, system = point.slice, point.slice.system
    basis, coordinates, t = system.basis, at.coordinates, system.outputs
    inverse = (basis * at.scale**2) @ basis.T
    half = basis @ (at.scale[:, None] * at.upper)
    coef = basis @ coordinates
    gram = -0.5 * (t * (inverse - half @ half.T) + coef @ (coef.T / point.noise))
    of_factor = -(t * volume_slope(at) + coordinates @ (pull(at).T / point.noise))
    return StatisticsAdjoint(gram, coef / point.noise, basis @ of_factor @ system.right.T)


def volume_slope(at: GaussianSlice) -> Array:
    """Return Vᵀ nη(A⁻¹ − P⁻¹)R W, shape (m, r): no η is left in it that could be large."""
    lifted = solve_triangular(at.triangle, np.diag(at.lift), trans="T", check_finite=False)
    fitted = np.sqrt(at.ratio) * at.scale[:, None] * (at.upper @ lifted)
    return np.asarray(fitted - at.system.directions * (at.root * at.lift))


def pull(at: GaussianSlice) -> Array:
    """Return nη WᵀRᵀβ, shape (r, t)."""
    solved = solve_triangular(at.triangle, at.along, check_finite=False)
    return np.asarray(np.sqrt(at.ratio) * at.lift[:, None] * solved)


def row_adjoint(point: GaussianPoint) -> RowAdjoint:
    """Return ∂ log evidence/∂Φ of any rows, at fixed noise, amplitude and η.

    Where noise and amplitude maximise the evidence, this is also the derivative of that maximum.
    """
    adjoint, moments = statistics_adjoint(point), point.slice.system.moments
    n, mean = moments.weight, moments.mean("phi")
    G1, g2, G3 = 2.0 * adjoint.gram, adjoint.target, adjoint.cross.T / n
    gram = moments.covariance("phi", "phi") + np.outer(mean, mean)
    product = n * (gram @ G1 + moments.covariance("phi", "y") @ g2.T)
    mean_psi = np.zeros(0)
    if "psi" in moments.blocks:
        product += n * (moments.covariance("phi", "psi") @ G3)
        mean_psi = moments.mean("psi")
    return RowAdjoint(G1, g2, G3, moments.mean("y"), mean_psi, product)
