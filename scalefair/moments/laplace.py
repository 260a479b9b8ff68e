"""Passes over a source for the slopes of a Laplace evidence.

At the mode β of −ΣV − ½βᵀPβ, with A = ΦᵀWΦ + P, the evidence depends on every row by its score, by
its curvature W and, since the mode moves, by the third derivative W' of the loss. All scores of a
row are treated alike and added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, Rows, Source
from scalefair.features.base import whitened
from scalefair.features.design import Design, chunk_rows
from scalefair.moments.gradient import LengthScaleMap, with_gradient


@dataclass(frozen=True, eq=False)
class Mode:
    """Where the evidence is differentiated.

    Parameters
    ----------
    design : Design
        The maps; φ whitens rows.
    loss : Loss
        V, with the third derivative `skew`.
    coef : array of shape (m, k)
        β of each score.
    factors : array of shape (k, m, m)
        F of each score, FFᵀ = A⁻¹.
    """

    design: Design
    loss: Any
    coef: Array
    factors: Array

    def derivatives(self, Phi: Rows, chunk: Chunk) -> tuple[Array, Array, Array]:
        """Return −V', W = V'' and q = −½W'·φᵀA⁻¹φ, weighted, shape (rows, k) each."""
        f, y = self._scores(Phi), np.asarray(chunk.y)
        y = y[:, 0] if self.loss.n_targets == 1 else y
        weight = 1.0 if chunk.weight is None else np.asarray(chunk.weight)[:, None]
        of = [getattr(self.loss, name)(f, y) for name in ("gradient", "curvature", "skew")]
        g, W, slope = (weight * np.reshape(part, (len(Phi), -1)) for part in of)
        leverage = np.stack([np.sum((Phi @ F) ** 2, axis=1) for F in self.factors], axis=1)
        return -g, W, -0.5 * slope * leverage

    def _scores(self, Phi: Rows) -> Array:
        f = Phi @ self.coef
        return f[:, 0] if self.loss.n_scores == 1 else f


class _Sum:
    """Accumulator of function(chunk), an array."""

    def __init__(self, function: Callable[[Chunk], Array], shape: tuple[int, ...]) -> None:
        self._function = function
        self._total: Array = np.zeros(shape)

    def add(self, chunk: Chunk) -> None:
        if chunk.n_rows:
            self._total += self._function(chunk)

    def result(self) -> Array:
        return self._total


def skew_sums(source: Source, mode: Mode, *, rows: int | None = None) -> Array:
    """Φᵀq, the slope of −½ log|A| in the mode, by one pass; shape (m, k)."""

    def of(chunk: Chunk) -> Array:
        Phi = whitened(mode.design.phi, chunk.x)
        return np.asarray(Phi.T @ mode.derivatives(Phi, chunk)[2])

    size = rows or chunk_rows(2 * len(mode.coef), np.float64)
    return np.asarray(source.fold(lambda: _Sum(of, mode.coef.shape), size))


@dataclass(frozen=True, eq=False)
class LaplaceAdjoint:
    """∂L/∂Φ of any rows: w ∘ Σ (−W ΦA⁻¹ + (g + q − WΦs)βᵀ + g sᵀ) + w ∘ (Ψ − ψ̄)G₃.

    Parameters
    ----------
    mode : Mode
    inverses : array of shape (k, m, m)
        A⁻¹ of each score.
    drift : array of shape (m, k)
        s = A⁻¹Φᵀq: how the mode answers.
    G3 : array of shape (p, m)
        As in `RowAdjoint`; so is `mean_psi`.
    mean_psi : array of shape (p,)
    product : array of shape (m, m)
        Φᵀ(∂L/∂Φ) over all rows.
    """

    mode: Mode
    inverses: Array
    drift: Array
    G3: Array
    mean_psi: Array
    product: Array

    def rows(self, Phi: Rows, chunk: Chunk) -> Array:
        """Return ∂L/∂Φ of a chunk."""
        mode = self.mode
        g, W, q = mode.derivatives(Phi, chunk)
        adjoint = (g + q - W * (Phi @ self.drift)) @ mode.coef.T + g @ self.drift.T
        for c, inverse in enumerate(self.inverses):
            adjoint -= W[:, c : c + 1] * (Phi @ inverse)
        if self.G3.size:
            side = mode.design.psi_rows(chunk) - self.mean_psi
            weight = 1.0 if chunk.weight is None else np.asarray(chunk.weight)[:, None]
            adjoint += (weight * side) @ self.G3
        return np.asarray(adjoint)


def laplace_scale_gradient(
    source: Source, adjoint: LaplaceAdjoint, *, rows: int | None = None
) -> Array:
    """∂L/∂log θ by one pass, shape (n_hyper,); see `length_scale_gradient`."""
    phi: LengthScaleMap = with_gradient(adjoint.mode.design.phi)
    at_once = phi.linear_gradient(adjoint.product)
    linear = phi.linear_

    def of(chunk: Chunk) -> Array:
        raw = phi.raw(chunk.x, out=np.empty((chunk.n_rows, phi.n_raw_)))
        dPhi = adjoint.rows(raw if linear is None else raw @ linear, chunk)
        return phi.raw_gradient(chunk.x, raw, dPhi if linear is None else dPhi @ linear.T)

    # Some six arrays of that width are in flight.
    size = rows or chunk_rows(6 * phi.n_raw_, np.float64)
    return np.asarray(source.fold(lambda: _Sum(of, at_once.shape), size) + at_once)
