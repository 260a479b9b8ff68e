"""One pass over a source: the gradient in log length scales of a function of the moments.

A function L of the moments of rows [φ, ψ, y] depends on the features by way of ΦᵀΦ, Φᵀy and C_φψ,
so that ∂L/∂Φ = ΦG₁ + yg₂ᵀ + HΨG₃ with small adjoints. Each chunk contracts it with ∂Φ/∂log θ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap, Rows, Source
from scalefair.features.design import Design, chunk_rows


class LengthScaleMap(FeatureMap, Protocol):
    """A feature map that knows how its rows and its linear part change with log θ."""

    kernel_: Any

    def raw_gradient(self, X: Any, raw: Rows, dRaw: Array) -> Array:
        """Return Σ_ij dRaw_ij ∂raw_ij/∂log θ_l of some rows, shape (n_hyper,)."""
        ...

    def linear_gradient(self, product: Array) -> Array:
        """Return what `linear_` adds, from Φᵀ(∂L/∂Φ) of all rows, shape (n_hyper,)."""
        ...


@dataclass(frozen=True, eq=False)
class RowAdjoint:
    """∂L/∂Φ of any rows: w ∘ (ΦG₁ + (y − ȳ)g₂ᵀ + (Ψ − ψ̄)G₃).

    Parameters
    ----------
    G1 : array of shape (m, m)
        Twice the adjoint of ΦᵀΦ.
    g2 : array of shape (m, t)
        The adjoint of Φᵀ(y − ȳ).
    G3 : array of shape (q, m)
        The transposed adjoint of Φᵀ(Ψ − ψ̄).
    mean_y, mean_psi : arrays of shape (t,) and (q,)
        Weighted means of y and ψ.
    product : array of shape (m, m)
        Φᵀ(∂L/∂Φ) over all rows. The moments know it, so that the pass need not sum it.
    """

    G1: Array = field(repr=False)
    g2: Array = field(repr=False)
    G3: Array = field(repr=False)
    mean_y: Array = field(repr=False)
    mean_psi: Array = field(repr=False)
    product: Array = field(repr=False)

    def rows(self, Phi: Rows, Psi: Rows, y: Rows, weight: Array | None = None) -> Array:
        """Return ∂L/∂Φ of a chunk.

        Parameters
        ----------
        Phi, Psi, y : arrays of shape (k, m), (k, q) and (k, t)
        weight : array of shape (k,) or None
            Row weights; None means one each.

        Returns
        -------
        array of shape (k, m)
        """
        side = np.hstack([y - self.mean_y, Psi - self.mean_psi])
        adjoint = Phi @ self.G1
        adjoint += side @ np.vstack([self.g2.T, self.G3])
        if weight is not None:
            adjoint *= weight[:, None]
        return adjoint

    def through(self, linear: Array, *, whitened: bool) -> RowAdjoint:
        """Return the adjoint whose `rows` are ∂L/∂raw = (∂L/∂Φ) linearᵀ, where Φ = raw @ linear.

        Parameters
        ----------
        linear : array of shape (n_raw, m)
        whitened : bool
            Its `rows` take Φ; otherwise they take the raw rows, which saves a product but squares
            the condition number of `linear`.
        """
        G1 = self.G1 @ linear.T
        G1 = G1 if whitened else linear @ G1
        return replace(self, G1=G1, g2=linear @ self.g2, G3=self.G3 @ linear.T)


class GradientAccumulator:
    """The sum over rows of one thread: Σ_ij (∂L/∂raw)_ij ∂raw_ij/∂log θ_l.

    Parameters
    ----------
    design : Design
    adjoint : RowAdjoint
        Of the raw rows of φ: it went through the linear part already.
    rows : int
        Most rows of a chunk.
    """

    def __init__(self, design: Design, adjoint: RowAdjoint, rows: int) -> None:
        self._map, self._adjoint, self._phi = design, adjoint, with_gradient(design.phi)
        self._raw = np.empty((rows, self._phi.n_raw_))
        scales = self._phi.kernel_.theta.size
        self._total: Array = np.zeros(getattr(self._phi, "n_hyper", scales))

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows == 0:
            return
        raw = self._phi.raw(chunk.x, out=self._raw[: chunk.n_rows])
        linear = self._phi.linear_ if self._map.whiten_rows else None
        Phi = raw if linear is None else raw @ linear
        dRaw = self._adjoint.rows(Phi, self._map.psi_rows(chunk), chunk.y, chunk.weight)
        self._total += self._phi.raw_gradient(chunk.x, raw, dRaw)

    def result(self) -> Array:
        """Return the gradient of the rows seen, shape (n_hyper,)."""
        return self._total


def length_scale_gradient(
    source: Source, design: Design, adjoint: RowAdjoint, *, rows: int | None = None
) -> Array:
    """Return ∂L/∂log θ, in one pass.

    Parameters
    ----------
    source : Source
        The rows.
    design : Design
        The maps that the moments behind `adjoint` were accumulated with. φ must be a map with
        length scales (`RandomFourier`, or `Nystroem` with `whitening="cholesky"`). Without
        `whiten_rows` moments and gradient are good as long as σ²/a² is far above n·1e-16/cutoff,
        which learning does not know beforehand: prefer to whiten the rows of a `Nystroem` map.
        The dtype plays no part: gradients are float64.
    adjoint : RowAdjoint
        ∂L/∂Φ of any rows.
    rows : int or None
        Rows per chunk; None chooses them.

    Returns
    -------
    array of shape (n_hyper,)
        One entry for a scalar length scale, d for one per input.
    """
    phi = with_gradient(design.phi)
    # Before the pass: a map without this gradient is found out at once.
    at_once = phi.linear_gradient(adjoint.product)
    if phi.linear_ is not None:
        adjoint = adjoint.through(phi.linear_, whitened=design.whiten_rows)
    # Four arrays of that width are in flight: raw rows, their adjoint, and two of the kernel's.
    size = rows or chunk_rows(4 * phi.n_raw_, np.float64)
    by_rows = source.fold(lambda: GradientAccumulator(design, adjoint, size), size)
    return np.asarray(by_rows + at_once)


def with_gradient(phi: FeatureMap) -> LengthScaleMap:
    """Return φ, or complain that it has no length scales."""
    if not hasattr(phi, "raw_gradient"):
        raise TypeError(
            f"{type(phi).__name__} has no length scales to take a gradient in; use RandomFourier, "
            "or Nystroem with whitening='cholesky'"
        )
    return cast("LengthScaleMap", phi)
