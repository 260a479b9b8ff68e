"""Where the m×m block of the moments is out of reach: all other blocks, and products with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from scalefair._typing import Array, Chunk, Source
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design, chunk_rows
from scalefair.moments.accumulate import CrossSums, RowBuffer
from scalefair.moments.moments import Moments


@dataclass(frozen=True, eq=False)
class CrossMoments(Moments):
    """Moments of rows z = [φ, t], t = [ψ, y], without the scatter of φ with itself.

    They add up, and answer `mean` and `covariance`, as other moments do; only the covariance of
    "phi" with "phi" is not there. `scatter` has shape (p, p − m): Σ w (z − mean)(t − mean)ᵀ.
    """

    @classmethod
    def empty(cls, blocks: Mapping[str, int], key: str = "") -> CrossMoments:
        """Return the moments of no rows."""
        width = sum(blocks.values())
        zeros = np.zeros(width)
        scatter = np.zeros((width, width - blocks["phi"]))
        return cls(dict(blocks), 0, 0.0, zeros, zeros, scatter, key)

    def __add__(self, other: Moments) -> CrossMoments:
        if not isinstance(other, CrossMoments):
            return NotImplemented
        self._check_same_rows(other)
        if self.weight == 0 or other.weight == 0:
            return self if other.weight == 0 else other
        weight = self.weight + other.weight
        delta = (other.shift - self.shift) + (other.offset - self.offset)
        between = delta[self.blocks["phi"] :] * (self.weight * other.weight / weight)
        scatter = self.scatter + other.scatter + np.outer(delta, between)
        offset = self.offset + delta * (other.weight / weight)
        return self._joined(other, offset, scatter)

    def _scatter_shape(self) -> tuple[int, int]:
        width = sum(self.blocks.values())
        return width, width - self.blocks["phi"]

    def covariance(self, rows: str | tuple[str, ...], columns: str | tuple[str, ...]) -> Array:
        """Return the centred covariance of two (groups of) blocks, divided by n."""
        left, right = (_names(rows), _names(columns))
        if "phi" not in right:
            at = np.ix_(self._span(*left), self._span(*right) - self.blocks["phi"])
            return np.asarray(self.scatter[at] / self.weight)
        if "phi" not in left:
            return self.covariance(columns, rows).T
        raise ValueError(
            f"the {self.blocks['phi']}×{self.blocks['phi']} covariance of phi with itself was left "
            "out of these moments, which are those of the iterative solver; use solver='direct', "
            "or fewer features, for what needs it"
        )

    def transform(self, **linear: Array | None) -> CrossMoments:
        """Return the moments of rows whose block φ is multiplied by a matrix from the right."""
        matrix = linear.pop("phi", None)
        if linear:
            raise ValueError(f"only phi can be transformed here, not {', '.join(sorted(linear))}")
        if matrix is None:
            return self
        width = self.blocks["phi"]
        shift, offset, scatter = (
            np.concatenate([matrix.T @ part[:width], part[width:]])
            for part in (self.shift, self.offset, self.scatter)
        )
        blocks = {**self.blocks, "phi": matrix.shape[1]}
        return replace(self, blocks=blocks, shift=shift, offset=offset, scatter=scatter)


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


class CrossAccumulator:
    """The mutable sum of one thread."""

    def __init__(self, design: Design, rows: int) -> None:
        self._buffer = RowBuffer(design, rows)
        self._sums = CrossSums(self._buffer.width, self._buffer.rest_width)

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows > 0:
            Phi, rest = self._buffer.fill(chunk)
            self._sums.add(Phi.astype(np.float64, copy=False), rest)

    def result(self) -> CrossMoments:
        """Return the moments of all rows seen."""
        sums, blocks = self._sums, self._buffer.blocks
        weight = float(sums.rest[-1, -1])
        if weight == 0:
            return CrossMoments.empty(blocks)
        sides = np.concatenate([sums.cross, sums.rest[:-1]])
        total = sides[:, -1]
        scatter = sides[:, :-1] - np.outer(total, total[self._buffer.width :] / weight)
        return CrossMoments(
            blocks, sums.n_rows, weight, self._buffer.shift, total / weight, scatter,
            squared_weight=sums.squared_weight,
        )  # fmt: skip


class ProductAccumulator:
    """Σ w (r − μ)(r − μ)ᵀ V over the rows r of one thread; V has shape (m, k).

    Both products are taken transposed: for few columns BLAS is up to twice as fast with them lying
    along the rows.
    """

    def __init__(self, design: Design, mean: Array, V: Array, rows: int) -> None:
        self._phi_rows, self._mean = design.start_phi(), mean
        self._transposed = np.ascontiguousarray(V.T)
        self._centred = np.empty((rows, len(V)))
        # float32 rows are multiplied as float64: rounded products would be another matrix in each
        # iteration, and their rounding error is divided by α.
        self._rows = (
            self._centred
            if design.dtype == np.float64
            else np.empty_like(self._centred, dtype=design.dtype)
        )
        self._product = np.empty_like(self._transposed)
        self._total = np.zeros_like(self._transposed)

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        if chunk.n_rows == 0:
            return
        rows, centred = self._rows[: chunk.n_rows], self._centred[: chunk.n_rows]
        self._phi_rows(chunk.x, rows)
        np.subtract(rows, self._mean, out=centred)
        values = self._transposed @ centred.T
        if chunk.weight is not None:
            values *= np.asarray(chunk.weight)
        np.matmul(values, centred, out=self._product)
        self._total += self._product

    def result(self) -> Array:
        """Return the sum over all rows seen."""
        return self._total.T


def gram_times(
    source: Source, design: Design, V: Array, mean: Array, *, rows: int | None = None
) -> Array:
    """Σ w (r − μ)(r − μ)ᵀ V over all rows, in one pass, without an m×m or an n×m array.

    Parameters
    ----------
    source : Source
        The rows.
    design : Design
        The map φ and the dtype. The rows r are those it writes: raw ones unless `whiten_rows`.
    V : array of shape (m, k)
        What to multiply.
    mean : array of shape (m,)
        Mean μ of the rows r.
    rows : int or None
        Rows per chunk; None chooses them.

    Returns
    -------
    array of shape (m, k)
    """
    size = rows or chunk_rows(len(V), design.dtype)
    total = source.fold(lambda: ProductAccumulator(design, mean, V, size), size)
    return np.asarray(total)


@dataclass(frozen=True, eq=False)
class StreamedGram:
    """C_φ of the rows of a source; `gram @ V` is one pass over them.

    The linear part T of φ is applied to V and to the result, C_φV = Tᵀ C_raw (T V), so that the
    rows stay raw.
    """

    source: Source
    design: Design
    mean: Array
    weight: float
    rows: int | None = None

    @property
    def linear(self) -> Array | None:
        """The linear part of φ, where the rows go without."""
        return None if self.design.whiten_rows else self.design.phi.linear_

    def sampled(self, size: int, seed: int) -> StreamedGram:
        """Return the same of `size` rows alone, which are held in memory."""
        chunk = self.source.sample(size, seed)
        weight = chunk.n_rows if chunk.weight is None else float(np.sum(chunk.weight))
        source = ArraySource(chunk.x, weight=chunk.weight)
        return replace(self, source=source, weight=weight)

    def __matmul__(self, V: Array) -> Array:
        T = self.linear
        inner = V if T is None else T @ V
        total = gram_times(self.source, self.design, inner, self.mean, rows=self.rows)
        return np.asarray((total if T is None else T.T @ total) / self.weight)


def stream_moments(
    source: Source, design: Design, *, rows: int | None = None
) -> tuple[CrossMoments, StreamedGram]:
    """Return all moments but the m×m block, in one pass, and that block as a product.

    Parameters
    ----------
    source : Source
        The rows.
    design : Design
        The feature maps and the dtype.
    rows : int or None
        Rows per chunk; None chooses them.
    """
    size = rows or chunk_rows(design.blocks["phi"], design.dtype)
    raw: CrossMoments = source.fold(lambda: CrossAccumulator(design, size), size)
    gram = StreamedGram(source, design, raw.mean("phi"), raw.weight, rows)
    moments = raw.transform(phi=gram.linear)
    return replace(moments, key=design.key, units=design.units), gram
