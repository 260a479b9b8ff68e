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
from scalefair.data import ChunkSum
from scalefair.data.sources import ArraySource, DaskSource
from scalefair.features.base import row_filler
from scalefair.features.design import Design
from scalefair.moments.accumulate import squeezed

Complex = NDArray[np.complex128]
PERIOD = 12.5  # of the sum of waves, in sd(f): what is further apart than that counts as near again
# Length scales of the kernel on f, in sd(f): the bulk of its distribution, and its details
SCALES = (1.0, 0.25)


@dataclass(frozen=True, eq=False)
class OutputKernel:
    """A kernel on u = f/sd(f): linear·uv + Σ_k weights_k cos(k·step·(u − v))."""

    step: float  # between frequencies: ω_k = k·step, so that all waves are powers of one
    weights: Array  # a_k
    linear: float  # weight of the linear kernel

    @classmethod
    def gaussian(cls, scales: tuple[float, ...] = SCALES) -> OutputKernel:
        """Return the mean of a linear and Gaussian kernels, scaled alike for a small shift of f."""
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


class OutputMap:
    """Features of f whose share is `output_share_`: √a u, and waves of u = f/sd(f)."""

    def __init__(self, kernel: OutputKernel, deviation: Array) -> None:
        self._kernel, self._deviation = kernel, deviation
        self.n_raw_ = len(deviation) * (1 + 2 * len(kernel.weights))
        self.linear_: Array | None = None

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return the features of rows of f."""
        parts: list[Array] = []
        for u in (np.asarray(X) / self._deviation).T:
            waves = np.sqrt(self._kernel.weights) * self._kernel.waves(u)
            parts += [np.sqrt(self._kernel.linear) * u[:, None], waves.real, waves.imag]
        return np.concatenate(parts, axis=1, out=out)

    def transform(self, X: Any) -> Rows:
        """Return the features of rows of f."""
        return self.raw(X)


@dataclass(frozen=True, eq=False)
class OutputRows:
    """What a row of the penalty on f needs: Φ, and ψ̃ = (attributes − mean) @ whiten."""

    design: Design
    features: tuple[str, ...]  # blocks of Φ, the first of them "phi" without its linear part
    attributes: tuple[str, ...]
    mean: Array
    whiten: Array

    @property
    def width(self) -> int:
        """Columns of the features."""
        widths = self.design.blocks | {"phi": self.design.phi.n_raw_}
        return sum(widths[name] for name in self.features)

    def start(self, rows: int) -> Callable[[Chunk], Chunk]:
        """Return what turns chunks into x = Φ, s = ψ̃, weighted, with a buffer of so many rows."""
        m, dtype, rows_of = self.design.phi.n_raw_, self.design.dtype, self.design.rows_of
        phi, buffer = np.empty((rows, m), dtype), np.empty((rows, self.width), dtype)
        fill = row_filler(self.design.phi, dtype, whiten=False)

        def prepared(chunk: Chunk) -> Chunk:
            raw, Phi = phi[: chunk.n_rows], buffer[: chunk.n_rows]
            fill(chunk.x, raw)
            np.concatenate(
                [raw, *(rows_of(name, chunk) for name in self.features[1:])], axis=1, out=Phi, casting="same_kind"
            )
            attributes = np.hstack([rows_of(name, chunk) for name in self.attributes])
            return Chunk(Phi, (attributes - self.mean) @ self.whiten, chunk.y, chunk.weights)

        return prepared


@dataclass(frozen=True, eq=False)
class Point:
    """Where the objective is evaluated, in coordinates of the rows: scores Φ coef + intercept."""

    coef: Array
    intercept: Array
    centre: Array  # mean of Φ coef
    scale: Array  # sd(f)

    def outputs(self, Phi: Rows) -> Array:
        """Φ coef, of shape (k, t)."""
        return np.asarray(Phi @ self.coef.astype(Phi.dtype, copy=False), np.float64)


class OutputSums(NamedTuple):
    """Sums over rows; `+` adds each of them, and the sum of no rows is 0."""

    waves: Any  # Σ w exp(iω_k u) ψ̃, of shape (t, K, q)
    means: Any  # Σ w exp(iω_k u), of shape (t, K)
    jacobian: Any  # Σ w φ exp(iω_k u) ψ̃, (t, M, 2Kq), real and imaginary by turns; 0 if not requested
    loss: Any  # Σ w V(y, f)
    slope: Any  # Σ w V' [φ, 1], of shape (M + 1, t)

    def __add__(self, other: Any) -> OutputSums:
        return OutputSums(*(a + b for a, b in zip(self, other, strict=True)))


def output_sums(
    rows: Chunk, kernel: OutputKernel, point: Point, loss: Any = None, *, jacobian: bool = False
) -> OutputSums:
    """T_k of weighted rows x = Φ, s = ψ̃; its derivatives (`jacobian`); and the loss."""
    f, weighted = point.outputs(rows.x), rows.s * rows.weight[:, None]
    waves = [kernel.waves(u) for u in ((f - point.centre) / point.scale).T]
    # Products of reals: real and imaginary parts by turns.
    turns = np.stack([wave.view(np.float64).T @ weighted for wave in waves])
    summed = turns[:, ::2] + 1j * turns[:, 1::2]
    means = np.stack([rows.weight @ wave for wave in waves])
    slopes: Any = 0.0
    if jacobian:
        each = [(wave[:, :, None] * weighted[:, None, :]).reshape(len(f), -1) for wave in waves]
        slopes = np.stack([rows.x.T @ part.view(np.float64).astype(rows.x.dtype) for part in each])
    if loss is None:
        return OutputSums(summed, means, slopes, 0.0, 0.0)
    scores, y = squeezed(f + point.intercept), squeezed(rows.y)
    value = rows.weight @ loss.value(scores, y)
    slope = rows.weight[:, None] * loss.gradient(scores, y).reshape(f.shape)
    along = rows.x.T @ slope.astype(rows.x.dtype, copy=False)
    return OutputSums(summed, means, slopes, value, np.vstack([along, slope.sum(axis=0)]))


def output_slope(rows: Chunk, kernel: OutputKernel, point: Point, along: Complex) -> Array:
    """Σ w g φ, the gradient of HSIC in Φ coef but for its scale; along = 2 a_k iω_k conj(T_k)."""
    u = (point.outputs(rows.x) - point.centre) / point.scale
    slope = np.empty_like(u)
    for j, part in enumerate(along):
        slope[:, j] = np.einsum("nk,nk->n", rows.s @ part.T, kernel.waves(u[:, j])).real
    slope *= rows.weight[:, None]
    return np.asarray(rows.x.T @ slope.astype(rows.x.dtype, copy=False))


MAX_CACHED_BYTES = 2**30  # of features in memory; more are computed again in every pass


class OutputPass:
    """The passes over numeric rows: cached in memory where all fit, else computed again each time."""

    def __init__(self, source: Any, rows_of: OutputRows, rows: int, n_rows: int | None) -> None:
        self.n_passes = 0
        self._rows, self._source = rows, source
        self._start: Callable[[], Callable[[Chunk], Chunk]] = partial(rows_of.start, rows)
        width = rows_of.width + rows_of.whiten.shape[1] + 2
        size = width * np.dtype(rows_of.design.dtype).itemsize
        self.cached = n_rows is not None and n_rows * size <= MAX_CACHED_BYTES
        self.cached = self.cached and not isinstance(source, DaskSource)
        if self.cached:
            self._source = cached_rows(source, rows_of, rows)
            self._start = lambda: lambda chunk: chunk
            self.n_passes = 1

    def sums(self, kernel: OutputKernel, point: Point, loss: Any = None, *, jacobian: bool = False) -> OutputSums:
        """Return `output_sums` of all rows."""
        options = {"kernel": kernel, "point": point, "loss": loss, "jacobian": jacobian}
        return self._sum(partial(output_sums, **options), lambda: OutputSums(*[0.0] * 5))  # type: ignore[no-any-return]

    def slope(self, kernel: OutputKernel, point: Point, along: Complex) -> Array:
        """Return `output_slope` of all rows."""
        function = partial(output_slope, kernel=kernel, point=point, along=along)
        return np.asarray(self._sum(function, float))

    def _sum(self, function: Callable[[Chunk], Any], empty: Callable[[], Any]) -> Any:
        self.n_passes += not self.cached
        start = self._start

        def accumulator() -> ChunkSum:
            prepared = start()
            return ChunkSum(lambda chunk: function(prepared(chunk)), empty)

        return self._source.fold(accumulator, self._rows)


def cached_rows(source: Any, rows_of: OutputRows, rows: int) -> ArraySource:
    """Return the rows, prepared once, in memory."""
    width, q = rows_of.width, rows_of.whiten.shape[1]

    def start() -> Callable[[Chunk], Any]:
        prepared = rows_of.start(rows)

        def table(chunk: Chunk) -> Any:
            done = prepared(chunk)
            return np.hstack([done.x, done.s, done.y, done.weight[:, None]], dtype=done.x.dtype)

        return table

    table_of_all = source.map(start, rows)
    x, s, y, weight = np.split(table_of_all, [width, width + q, table_of_all.shape[1] - 1], axis=1)
    s, y, weight = (part.astype(np.float64) for part in (s, y, weight))
    return ArraySource(x, s, y, weight[:, 0], n_threads=source.n_threads)
