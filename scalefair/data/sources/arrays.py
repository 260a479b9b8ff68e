"""Rows that are in memory: numpy arrays, memory maps and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, TypeVar

from scalefair._typing import Array, Chunk
from scalefair.data.sources.base import ChunkSource, Sampler, cut_chunk, until
from scalefair.data.sources.threads import available_threads, run_threads

T = TypeVar("T")


class ArraySource(ChunkSource):
    """Rows in arrays or frames of equal length.

    Inputs x, sensitive attributes s, targets y and control features c are of shape (n, ·), weights
    of shape (n,); all but x may be None.
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
        self.n_threads = n_threads
        self.x, self.s, self.y, self.weight, self.c = x, s, y, weight, c
        self._whole = Chunk(x, s, y, weight, c=c)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def _read(self, rows: int, first: int = 0, step: int = 1) -> Iterator[Chunk]:
        """Yield every `step`-th chunk, from number `first` on."""
        n = self.n_rows
        for start in range(first * rows, max(n, 1), step * rows):
            yield self._whole if rows >= n else cut_chunk(self._whole, start, start + rows)

    def _run(self, run: Callable[[Iterator[Chunk]], T], rows: int) -> list[T]:
        """Every thread slices its own chunks: in memory there is nothing to wait for."""
        n_chunks = -(-self.n_rows // rows)
        if n_chunks <= 1 or self.n_threads == 1:
            return [run(self._read(rows))]
        threads = min(self.n_threads or available_threads(), n_chunks)
        stop = Event()

        def work(number: int) -> T:
            return run(until(stop, self._read(rows, number, threads)))

        return run_threads(work, threads, stop)

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number)."""
        sampler = Sampler(size, seed)
        sampler.add(self._whole)
        return self._changed(sampler.result().chunk())
