"""Where the m×m block of the moments is out of reach: all other blocks, and products with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scalefair._typing import Array, Chunk
from scalefair.data.folds import ALL_ROWS
from scalefair.data.sources import ArraySource, ChunkSource
from scalefair.features.base import row_filler
from scalefair.features.design import Design
from scalefair.moments.accumulate import MomentAccumulator
from scalefair.moments.moments import CrossMoments

__all__ = ["CrossMoments", "StreamedGram", "stream_moments"]


class ProductAccumulator:
    """Σ w (r − μ)(r − μ)ᵀ V over the rows r of one thread; V has shape (m, k)."""

    def __init__(self, design: Design, mean: Array, V: Array, rows: int) -> None:
        self._phi_rows = row_filler(design.phi, design.dtype, whiten=design.whiten_rows)
        self._mean = mean
        self._transposed = np.ascontiguousarray(V.T)
        self._centred = np.empty((rows, len(V)))
        # float32 rows are multiplied as float64: rounded products would be another matrix in each
        # iteration, and their rounding error is divided by α.
        self._rows = self._centred if design.dtype == np.float64 else np.empty_like(self._centred, dtype=design.dtype)
        self._product = np.empty_like(self._transposed)
        self._total = np.zeros_like(self._transposed)

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
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


@dataclass(frozen=True, eq=False)
class StreamedGram:
    """C_φ of the rows of a source; `gram @ V` = Tᵀ C_raw (T V) is one pass over raw rows."""

    source: ChunkSource
    design: Design
    mean: Array
    weight: float
    rows: int | None = None

    @property
    def linear(self) -> Array | None:
        """The linear part of φ, where the rows go without."""
        return None if self.design.whiten_rows else self.design.phi.linear_

    def sampled(self, size: int, seed: int) -> StreamedGram:
        """Return the same of `size` rows alone, which are in memory."""
        chunk = self.source.sample(size, seed)
        source = ArraySource(chunk.x, weight=chunk.weight)
        return replace(self, source=source, weight=float(chunk.weights.sum()))

    def __matmul__(self, V: Array) -> Array:
        T = self.linear
        inner = V if T is None else T @ V
        size = self.rows or self.design.chunk_rows(len(inner))
        start = partial(ProductAccumulator, self.design, self.mean, inner, size)
        total = self.source.fold(start, size)
        return np.asarray((total if T is None else T.T @ total) / self.weight)


def stream_moments(
    source: ChunkSource, design: Design, *, rows: int | None = None
) -> tuple[CrossMoments, StreamedGram]:
    """Return all moments but the m×m block, in one pass, and that block as a product."""
    size = rows or design.chunk_rows(design.blocks["phi"])
    start = partial(MomentAccumulator, design, ALL_ROWS, size, gram=False)
    (raw,) = source.fold(start, size)
    gram = StreamedGram(source, design, raw.mean("phi"), raw.weight, rows)
    return raw.transform(phi=gram.linear), gram
