"""One pass over the rows for the dependence of f itself on s: Fourier features of the scalar f.

A Gaussian kernel on u = f/sd(f) is a sum of waves, k(u, v) = Σ_k a_k cos ω_k(u − v). With ψ̃ the
centred and whitened attributes, HSIC is Σ_k a_k |T_k|², T_k = E[exp(iω_k u) ψ̃]. Its gradient in f
needs all T_k first: a row counts g = 2 Re Σ_k a_k iω_k exp(iω_k u) ψ̃ᵀ conj(T_k). So there are two
folds, one for T and one for Σ g φ(x); where 2Kq is small, one fold sums T and its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Chunk, Rows
from scalefair.data.sources import ArraySource, DaskSource
from scalefair.features.design import Design

Complex = NDArray[np.complex128]

PERIOD = 12.5
"""Of the sum of waves, in sd(f): what is further apart than that counts as near again."""

SCALES = (1.0, 0.25)
"""Length scales of the kernel on f, in sd(f): the bulk of its distribution, and its details."""


@dataclass(frozen=True, eq=False)
class OutputKernel:
    """A kernel on u = f/sd(f): linear·uv + Σ_k weights_k cos(k·step·(u − v)).

    Parameters
    ----------
    step : float
        Between frequencies: ω_k = k·step, so that all waves are powers of one.
    weights : array of shape (K,)
        a_k.
    linear : float
        Weight of the linear kernel.
    """

    step: float
    weights: Array
    linear: float

    @classmethod
    def gaussian(cls, scales: tuple[float, ...] = SCALES) -> OutputKernel:
        """Return the mean of a linear and of Gaussian kernels of these length scales.

        Each is scaled so that a small shift of the mean of a normal f counts as much as it does
        with the linear kernel alone: one η means the same for all.
        """
        step = 2 * np.pi / max(PERIOD, 6 * max(scales))
        omega = step * np.arange(1, int(np.ceil(3 / (min(scales) * step))) + 1)
        parts = [np.exp(-((omega * scale) ** 2) / 2) for scale in scales]
        shift = omega**2 * np.exp(-(omega**2))
        weights = np.sum([part / (part @ shift) for part in parts], axis=0)
        linear = 1 / (1 + len(scales))
        return cls(step, np.asarray(weights * linear, dtype=np.float64), linear)

    @property
    def frequencies(self) -> Array:
        """ω, of shape (K,)."""
        return self.step * np.arange(1.0, len(self.weights) + 1)

    def waves(self, u: Array) -> Complex:
        """exp(iω_k u), of shape (n, K)."""
        first = np.exp(1j * self.step * u)[:, None]
        count = (len(u), len(self.weights))
        return np.asarray(np.multiply.accumulate(np.broadcast_to(first, count), axis=1))


@dataclass(frozen=True, eq=False)
class OutputRows:
    """What a row of the penalty on f needs: the features of f, and the whitened attributes.

    Parameters
    ----------
    design : Design
        The maps.
    features : tuple of str
        Blocks that make up Φ; "phi", the first, without its linear part.
    attributes : tuple of str
        Blocks that make up the attributes.
    mean, whiten : arrays of shape (p,) and (p, q)
        ψ̃ = (attributes − mean) @ whiten.
    """

    design: Design
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    mean: Array
    whiten: Array

    @property
    def width(self) -> int:
        """Columns of the features."""
        widths = self.design.blocks | {"phi": self.design.phi.n_raw_}
        return sum(widths[name] for name in self.features)

    def start(self, rows: int) -> Callable[[Chunk], Chunk]:
        """Return what turns chunks into chunks of x = Φ, s = ψ̃, with a buffer of so many rows."""
        buffer = np.empty((rows, self.width), self.design.dtype)

        def prepared(chunk: Chunk) -> Chunk:
            Phi = buffer[: chunk.n_rows]
            self._fill(chunk, Phi)
            attributes = [self.design.rows_of(name, chunk) for name in self.attributes]
            Psi = (np.hstack(attributes) - self.mean) @ self.whiten
            return Chunk(Phi, Psi, chunk.y, chunk.weight, chunk.row, chunk.where)

        return prepared

    def _fill(self, chunk: Chunk, out: Rows) -> None:
        width = self.design.phi.n_raw_
        phi: Rows = np.empty((chunk.n_rows, width), out.dtype)
        out[:, :width] = self.design.phi.raw(chunk.x, out=phi)
        for name in self.features[1:]:
            block = self.design.rows_of(name, chunk)
            out[:, width : width + block.shape[1]] = block
            width += block.shape[1]


@dataclass(frozen=True, eq=False)
class Point:
    """Where the objective is evaluated, in the coordinates of the rows.

    Parameters
    ----------
    coef : array of shape (M, t)
        The scores are Φ coef + intercept.
    intercept, centre, scale : arrays of shape (t,)
        b; the mean of Φ coef; sd(f).
    """

    coef: Array
    intercept: Array
    centre: Array
    scale: Array

    def outputs(self, Phi: Rows) -> Array:
        """Φ coef, of shape (k, t)."""
        return np.asarray(Phi @ self.coef.astype(Phi.dtype, copy=False), np.float64)


class OutputSums(NamedTuple):
    """Sums over rows; `+` adds each of them, and the sum of no rows is 0.

    Parameters
    ----------
    waves : complex array of shape (t, K, q)
        Σ w exp(iω_k u) ψ̃.
    means : complex array of shape (t, K)
        Σ w exp(iω_k u).
    jacobian : array of shape (t, M, 2Kq)
        Σ w φ exp(iω_k u) ψ̃, real and imaginary parts by turns; 0 where not asked for.
    loss : array of shape (1,)
        Σ w V(y, f).
    slope : array of shape (M + 1, t)
        Σ w V' [φ, 1].
    """

    waves: Any
    means: Any
    jacobian: Any
    loss: Any
    slope: Any

    def __add__(self, other: Any) -> OutputSums:
        return OutputSums(*(a + b for a, b in zip(self, other, strict=True)))


class SumsAccumulator:
    """T_k, and where asked for its derivatives and the loss with its gradient, in one pass.

    Parameters
    ----------
    prepared : callable
        Turns a chunk into x = Φ, s = ψ̃.
    kernel : OutputKernel
        On f.
    point : Point
        Where.
    loss : Loss or None
        Pointwise; None where the moments tell it.
    jacobian : bool
        Whether to sum the derivatives, too.
    """

    def __init__(
        self,
        prepared: Callable[[Chunk], Chunk],
        kernel: OutputKernel,
        point: Point,
        loss: Any = None,
        *,
        jacobian: bool = False,
    ) -> None:
        self._prepared, self._kernel, self._point = prepared, kernel, point
        self._loss, self._jacobian = loss, jacobian
        self._sums = OutputSums(0.0, 0.0, 0.0, 0.0, 0.0)

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows == 0:
            return
        rows = self._prepared(chunk)
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        f = self._point.outputs(rows.x)
        new = zip(*(self._column(j, f[:, j], rows, weight) for j in range(f.shape[1])), strict=True)
        waves, means, jacobian = (np.stack(part) for part in new)
        self._sums = self._sums + OutputSums(waves, means, jacobian, *self._losses(f, rows, weight))

    def _column(self, j: int, f: Array, rows: Chunk, weight: Array) -> tuple[Any, Any, Any]:
        point = self._point
        waves = self._kernel.waves((f - point.centre[j]) / point.scale[j])
        weighted = rows.s * weight[:, None]
        both = waves.view(np.float64).T @ weighted  # real and imaginary parts by turns
        summed = both[::2] + 1j * both[1::2]
        jacobian: Any = np.zeros(())
        if self._jacobian:
            each = (waves[:, :, None] * weighted[:, None, :]).reshape(len(f), -1)
            jacobian = rows.x.T @ each.view(np.float64).astype(rows.x.dtype, copy=False)
        return summed, weight @ waves, jacobian

    def _losses(self, f: Array, rows: Chunk, weight: Array) -> tuple[Any, Any]:
        if self._loss is None:
            return 0.0, 0.0
        scores, y = _columns(f + self._point.intercept), _columns(rows.y)
        value = weight @ self._loss.value(scores, y)
        slope = weight[:, None] * self._loss.gradient(scores, y).reshape(f.shape)
        along = rows.x.T @ slope.astype(rows.x.dtype, copy=False)
        return np.asarray(value), np.vstack([along, slope.sum(axis=0)])

    def result(self) -> OutputSums:
        """Return the sums of all rows seen."""
        return self._sums


def _columns(values: Array) -> Array:
    return values[:, 0] if values.shape[1] == 1 else values


class SlopeAccumulator:
    """Σ w g φ, given all T_k: the gradient of HSIC in Φ coef, but for its scale.

    Parameters
    ----------
    prepared, kernel, point
        As in `SumsAccumulator`.
    along : complex array of shape (t, K, q)
        2 a_k iω_k conj(T_k).
    """

    def __init__(
        self,
        prepared: Callable[[Chunk], Chunk],
        kernel: OutputKernel,
        point: Point,
        along: Complex,
    ) -> None:
        self._prepared, self._kernel, self._point = prepared, kernel, point
        self._along = along
        self._slope: Any = 0.0

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows == 0:
            return
        rows, point = self._prepared(chunk), self._point
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        u = (point.outputs(rows.x) - point.centre) / point.scale
        slope = np.empty_like(u)
        for j, along in enumerate(self._along):
            turned = rows.s @ along.T
            slope[:, j] = np.einsum("nk,nk->n", turned, self._kernel.waves(u[:, j])).real
        slope *= weight[:, None]
        self._slope = self._slope + rows.x.T @ slope.astype(rows.x.dtype, copy=False)

    def result(self) -> Any:
        """Return the sum over all rows seen."""
        return self._slope


BUDGET = 2**30
"""Bytes of features that are kept in memory; more are made anew in every pass."""


class OutputPass:
    """The passes over the rows: kept in memory where they fit, else made anew each time.

    Parameters
    ----------
    source : ChunkSource
        Numeric rows.
    rows_of : OutputRows
        What is needed of them.
    rows : int
        Of a chunk.
    n_rows : int or None
        Of all.
    budget : int
        Bytes that may be kept.
    """

    def __init__(
        self, source: Any, rows_of: OutputRows, rows: int, n_rows: int | None, budget: int = BUDGET
    ) -> None:
        self.n_passes = 0
        self._rows, self._source = rows, source
        self._start: Callable[[], Callable[[Chunk], Chunk]] = partial(rows_of.start, rows)
        width = rows_of.width + rows_of.whiten.shape[1] + 2
        size = width * np.dtype(rows_of.design.dtype).itemsize
        self.kept = n_rows is not None and n_rows * size <= budget
        self.kept = self.kept and not isinstance(source, DaskSource)
        if self.kept:
            self._source = kept_rows(source, rows_of, rows)
            self._start = _as_is
            self.n_passes = 1

    def sums(
        self, kernel: OutputKernel, point: Point, loss: Any = None, *, jacobian: bool = False
    ) -> OutputSums:
        """Return the sums of `SumsAccumulator`."""
        start, self.n_passes = self._start, self.n_passes + (not self.kept)
        return self._source.fold(  # type: ignore[no-any-return]
            lambda: SumsAccumulator(start(), kernel, point, loss, jacobian=jacobian), self._rows
        )

    def slope(self, kernel: OutputKernel, point: Point, along: Complex) -> Array:
        """Return the sum of `SlopeAccumulator`."""
        start, self.n_passes = self._start, self.n_passes + (not self.kept)
        return np.asarray(
            self._source.fold(lambda: SlopeAccumulator(start(), kernel, point, along), self._rows)
        )


def _as_is() -> Callable[[Chunk], Chunk]:
    return lambda chunk: chunk


def kept_rows(source: Any, rows_of: OutputRows, rows: int) -> ArraySource:
    """Return the rows, prepared once and kept in memory."""
    width, q = rows_of.width, rows_of.whiten.shape[1]

    def start() -> Callable[[Chunk], Any]:
        prepared = rows_of.start(rows)

        def table(chunk: Chunk) -> Any:
            done = prepared(chunk)
            weight = np.ones(done.n_rows) if done.weight is None else done.weight
            return np.hstack([done.x, done.s, done.y, weight[:, None]], dtype=done.x.dtype)

        return table

    found = source.map(start, rows)
    x, s, y, weight = np.split(found, [width, width + q, found.shape[1] - 1], axis=1)
    s, y, weight = (part.astype(np.float64) for part in (s, y, weight))
    return ArraySource(x, s, y, weight[:, 0], n_threads=source.n_threads)
