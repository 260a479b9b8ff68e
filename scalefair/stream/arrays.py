"""Rows that are in memory: numpy arrays, memory maps and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from scalefair import _frames
from scalefair._hash import row_hash
from scalefair._typing import Accumulator, Array, Chunk
from scalefair.stream._threads import available_threads, run_lanes


class ArraySource:
    """Rows held in arrays or frames of equal length.

    Parameters
    ----------
    x, s, y : arrays or frames of shape (n, ·), or None
        Inputs, sensitive attributes, targets.
    weight : array of shape (n,) or None
        Row weights.
    n_threads : int or None
        Chunks in flight at once; None: one per core that BLAS may use.
    then : callable or None
        Applied to every chunk when it is read, such as an encoding.
    """

    def __init__(
        self,
        x: Any,
        s: Any = None,
        y: Any = None,
        weight: Array | None = None,
        *,
        n_threads: int | None = None,
        then: Callable[[Chunk], Chunk] | None = None,
    ) -> None:
        self.x, self.s, self.y, self.weight = x, s, y, weight
        self.n_threads = n_threads
        self._then = then

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def then(self, change: Callable[[Chunk], Chunk]) -> ArraySource:
        """Return the same rows with `change` applied to every chunk as it is read."""
        return ArraySource(
            self.x, self.s, self.y, self.weight, n_threads=self.n_threads, then=change
        )

    def _read(self, take: Callable[[Any], Any], row: int) -> Chunk:
        x, s, y, weight = (None if part is None else take(part) for part in self._parts)
        chunk = Chunk(x, s, y, weight, row)
        return chunk if self._then is None else self._then(chunk)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.x, self.s, self.y, self.weight

    def _span(self, start: int, rows: int) -> Chunk:
        return self._read(lambda part: _frames.slice_rows(part, start, start + rows), start)

    def chunks(self, rows: int) -> Iterator[Chunk]:
        """Yield the rows in order, at most `rows` at a time."""
        for start in range(0, self.n_rows, rows):
            yield self._span(start, rows)

    def fold(self, start: Callable[[], Accumulator], rows: int) -> Any:
        """Feed every chunk once to accumulators made by `start`; return the sum of their results.

        Chunk i goes to lane i modulo the number of threads, whichever thread is quicker, so that
        the same data give the same bits every time.
        """
        firsts = range(0, max(self.n_rows, 1), rows)
        lanes = min(self.n_threads or available_threads(), len(firsts))

        def run(lane: int) -> Any:
            accumulator = start()
            for first in firsts[lane::lanes]:
                accumulator.add(self._span(first, rows))
            return accumulator.result()

        return reduce(add, run_lanes(run, lanes))

    def map(self, start: Callable[[], Callable[[Chunk], Array]], rows: int) -> Array:
        """Return function(chunk) of all chunks, stacked in row order.

        `start` makes the function of each thread, which may keep buffers of its own.
        """
        firsts = range(0, max(self.n_rows, 1), rows)
        lanes = min(self.n_threads or available_threads(), len(firsts))

        def run(lane: int) -> list[Array]:
            function = start()
            return [function(self._span(first, rows)) for first in firsts[lane::lanes]]

        parts = run_lanes(run, lanes)
        return np.concatenate([parts[i % lanes][i // lanes] for i in range(len(firsts))])

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number).

        The rows come in row order. The choice depends on nothing but the seed and the number of
        each row, so that every chunking and every cluster draws the same sample.
        """
        rows = np.arange(self.n_rows)
        if self.weight is not None:
            rows = rows[np.asarray(self.weight) > 0]
        if len(rows) > size:
            smallest = np.argpartition(row_hash(seed, rows), size)[:size]
            rows = np.sort(rows[smallest])
        return self._read(lambda part: _frames.take_rows(part, rows), 0)
