"""Passes over a source for gradients in log length scales of a function L of the rows.

An evidence of the moments depends on the features by way of ΦᵀΦ, Φᵀy and C_φψ, so that
∂L/∂Φ = ΦG₁ + yg₂ᵀ + HΨG₃ with small adjoints. A Laplace evidence, at the mode β of −ΣV − ½βᵀPβ
with A = ΦᵀWΦ + P, depends on every row by its score, by its curvature W and, since the mode moves,
by the third derivative W' of the loss. Each chunk contracts ∂L/∂Φ with ∂Φ/∂log θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, Rows
from scalefair.data import ChunkSum
from scalefair.data.sources import ChunkSource
from scalefair.features.base import LengthScaleMap, whitened
from scalefair.features.design import Design
from scalefair.moments.accumulate import squeezed


@dataclass(frozen=True, eq=False, repr=False)
class RowAdjoint:
    """∂L/∂Φ of any rows: w ∘ (ΦG₁ + (y − ȳ)g₂ᵀ + (Ψ − ψ̄)G₃), means weighted."""

    G1: Array  # twice the adjoint of ΦᵀΦ, of shape (m, m)
    g2: Array  # the adjoint of Φᵀ(y − ȳ), of shape (m, t)
    G3: Array  # the transposed adjoint of Φᵀ(Ψ − ψ̄), of shape (q, m)
    mean_y: Array
    mean_psi: Array
    product: Array  # Φᵀ(∂L/∂Φ) over all rows: known to the moments, so that no pass sums it

    def rows(self, Phi: Rows, Psi: Rows, y: Rows, weight: Array | None = None) -> Array:
        """Return ∂L/∂Φ of a chunk, of shape (k, m); without weights, one each."""
        side = np.hstack([y - self.mean_y, Psi - self.mean_psi])
        adjoint = Phi @ self.G1
        adjoint += side @ np.vstack([self.g2.T, self.G3])
        if weight is not None:
            adjoint *= weight[:, None]
        return adjoint


@dataclass(frozen=True, eq=False)
class Mode:
    """Where the evidence is differentiated; φ whitens rows."""

    design: Design
    loss: Any  # V, with the third derivative `skew`
    coef: Array  # β of each score, of shape (m, k)
    factors: Array  # F of each score, FFᵀ = A⁻¹, of shape (k, m, m)

    def derivatives(self, Phi: Rows, chunk: Chunk) -> tuple[Array, Array, Array]:
        """Return −V', W = V'' and q = −½W'·φᵀA⁻¹φ, weighted, shape (rows, k) each."""
        f, y = squeezed(Phi @ self.coef), squeezed(np.asarray(chunk.y))
        weight = chunk.weights[:, None]
        of = (self.loss.gradient, self.loss.curvature, self.loss.skew)
        g, W, slope = (weight * np.reshape(part(f, y), (len(Phi), -1)) for part in of)
        leverage = np.stack([np.sum((Phi @ F) ** 2, axis=1) for F in self.factors], axis=1)
        return -g, W, -0.5 * slope * leverage


@dataclass(frozen=True, eq=False)
class LaplaceAdjoint:
    """∂L/∂Φ of any rows: w ∘ Σ (−W ΦA⁻¹ + (g + q − WΦs)βᵀ + g sᵀ) + w ∘ (Ψ − ψ̄)G₃."""

    mode: Mode
    inverses: Array  # A⁻¹ of each score, of shape (k, m, m)
    drift: Array  # s = A⁻¹Φᵀq, of shape (m, k): how the mode answers
    G3: Array
    mean_psi: Array
    product: Array  # Φᵀ(∂L/∂Φ) over all rows

    def rows(self, Phi: Rows, chunk: Chunk) -> Array:
        """Return ∂L/∂Φ of a chunk."""
        mode = self.mode
        g, W, q = mode.derivatives(Phi, chunk)
        adjoint = (g + q - W * (Phi @ self.drift)) @ mode.coef.T + g @ self.drift.T
        for c, inverse in enumerate(self.inverses):
            adjoint -= W[:, c : c + 1] * (Phi @ inverse)
        if self.G3.size:
            side = mode.design.psi_rows(chunk) - self.mean_psi
            adjoint += (chunk.weights[:, None] * side) @ self.G3
        return np.asarray(adjoint)


def skew_sums(source: ChunkSource, mode: Mode, *, rows: int | None = None) -> Array:
    """Φᵀq, the slope of −½ log|A| in the mode, by one pass; shape (m, k). All scores are alike."""

    def of(chunk: Chunk) -> Array:
        Phi = whitened(mode.design.phi, chunk.x)
        return np.asarray(Phi.T @ mode.derivatives(Phi, chunk)[2])

    size = rows or mode.design.chunk_rows(2 * len(mode.coef), np.float64)
    return np.asarray(source.fold(lambda: ChunkSum(of, lambda: np.zeros(mode.coef.shape)), size))


def length_scale_gradient(
    source: ChunkSource, design: Design, adjoint: RowAdjoint, *, rows: int | None = None
) -> Array:
    """Return ∂L/∂log θ in one pass, shape (n_hyper,); better of rows that are whitened."""
    linear, of_raw = design.phi.linear_, adjoint
    if linear is not None:
        # ∂L/∂raw = (∂L/∂Φ) linearᵀ. Of raw rows that are not whitened, its G₁ saves a product, but
        # squares the condition number of the linear part.
        G1 = adjoint.G1 @ linear.T if design.whiten_rows else linear @ adjoint.G1 @ linear.T
        of_raw = replace(adjoint, G1=G1, g2=linear @ adjoint.g2, G3=adjoint.G3 @ linear.T)

    def d_raw(raw: Array, chunk: Chunk) -> Array:
        Phi = raw if linear is None or not design.whiten_rows else raw @ linear
        return of_raw.rows(Phi, design.psi_rows(chunk), chunk.y, chunk.weight)

    # Four arrays of that width are in flight: raw rows, their adjoint, and two of the kernel's.
    size = rows or design.chunk_rows(4 * design.phi.n_raw_, np.float64)
    return _scale_gradient(source, design.phi, adjoint.product, d_raw, size)


def laplace_scale_gradient(source: ChunkSource, adjoint: LaplaceAdjoint, *, rows: int | None = None) -> Array:
    """∂L/∂log θ by one pass, shape (n_hyper,); see `length_scale_gradient`."""
    phi = adjoint.mode.design.phi
    linear = phi.linear_

    def d_raw(raw: Array, chunk: Chunk) -> Array:
        dPhi = adjoint.rows(raw if linear is None else raw @ linear, chunk)
        return dPhi if linear is None else dPhi @ linear.T

    # Some six arrays of that width are in flight.
    size = rows or adjoint.mode.design.chunk_rows(6 * phi.n_raw_, np.float64)
    return _scale_gradient(source, phi, adjoint.product, d_raw, size)


def _scale_gradient(
    source: ChunkSource, phi: Any, product: Array, d_raw: Callable[[Array, Chunk], Array], size: int
) -> Array:
    """Σ_ij (∂L/∂raw)_ij ∂raw_ij/∂log θ_l over all rows, and what the linear part adds at once."""
    if not isinstance(phi, LengthScaleMap):
        raise TypeError(
            f"{type(phi).__name__} has no length scales to take a gradient in; use RandomFourier, "
            "or Nystroem with whitening='cholesky'"
        )
    # Before the pass, so that a map whose linear part has no gradient is refused at once.
    at_once = phi.linear_gradient(product)

    def start() -> ChunkSum:
        buffer, fill = np.empty((size, phi.n_raw_)), phi.filler(np.float64)

        def of(chunk: Chunk) -> Array:
            raw = buffer[: len(chunk.x)]
            fill(chunk.x, raw)
            return phi.raw_gradient(chunk.x, raw, d_raw(raw, chunk))

        return ChunkSum(of, lambda: np.zeros(at_once.shape))

    return np.asarray(source.fold(start, size) + at_once)
