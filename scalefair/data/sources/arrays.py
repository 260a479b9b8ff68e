"""Rows that are in memory: numpy arrays, memory maps and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import Any, TypeVar

import numpy as np

from scalefair._hash import row_hash
from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.sources._source import ChunkSource, until
from scalefair.data.sources._threads import available_threads, run_lanes

T = TypeVar("T")


class ArraySource(ChunkSource):
    """Rows held in arrays or frames of equal length.

    Parameters
    ----------
    x, s, y : arrays or frames of shape (n, ·), or None
        Inputs, sensitive attributes, targets.
    weight : array of shape (n,) or None
        Row weights.
    c : array or frame of shape (n, ·) or None
        Control features.
    n_threads : int or None
        Chunks in flight at once; None: one per core that BLAS may use.
    """

    def __init__(
        self,
        x: Any,
        s: Any = None,
        y: Any = None,
        weight: Array | None = None,
        c: Any = None,
        *,
        n_threads: int | None = None,
    ) -> None:
        super().__init__(n_threads)
        self.x, self.s, self.y, self.weight, self.c = x, s, y, weight, c

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def _chunk(self, take: Callable[[Any], Any], row: int) -> Chunk:
        parts = (self.x, self.s, self.y, self.weight, self.c)
        x, s, y, weight, c = (None if part is None else take(part) for part in parts)
        return Chunk(x, s, y, weight, row, c=c)

    def _spans(self, firsts: range, rows: int) -> Iterator[Chunk]:
        for start in firsts:
            take = partial(frames.slice_rows, start=start, stop=start + rows)
            yield self._chunk(take, start)

    def _read(self, rows: int) -> Iterator[Chunk]:
        return self._spans(range(0, max(self.n_rows, 1), rows), rows)

    def _run(self, run: Callable[[Iterator[Chunk]], T], rows: int) -> list[T]:
        """Every thread slices its own chunks: in memory there is nothing to wait for."""
        firsts = range(0, max(self.n_rows, 1), rows)
        lanes = min(self.n_threads or available_threads(), len(firsts))
        stop = Event()

        def work(lane: int) -> T:
            return run(until(stop, self._spans(firsts[lane::lanes], rows)))

        return run_lanes(work, lanes, stop)

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number)."""
        rows = np.arange(self.n_rows)
        if self.weight is not None:
            rows = rows[np.asarray(self.weight) > 0]
        if len(rows) > size:
            rows = np.sort(rows[np.argpartition(row_hash(seed, rows), size)[:size]])
        return self._changed(self._chunk(lambda part: frames.take_rows(part, rows), 0))
