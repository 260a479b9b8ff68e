"""What all sources share: chunks in order, folded by threads, sampled by row number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from operator import add
from queue import Queue
from threading import Event
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import row_hash
from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data import frames
from scalefair.data.sources._threads import available_threads, run_lanes

Change = Callable[[Chunk], Chunk]
PARTS = ("x", "s", "y", "weight", "c", "h")
"""What a chunk holds of each row."""
T = TypeVar("T")


class ChunkSource(ABC):
    """Rows that are read chunk by chunk, in order.

    Parameters
    ----------
    n_threads : int or None
        Chunks in flight at once; None: one per core that BLAS may use.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads
        self._changes: tuple[Change, ...] = ()

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, None where only a pass can tell."""

    @abstractmethod
    def _read(self, rows: int) -> Iterator[Chunk]:
        """Yield the chunks as they are, at most `rows` rows each."""

    def then(self, change: Change) -> Self:
        """Return the same rows with `change` applied, after what was before, to every chunk."""
        other = copy(self)
        other._changes = (*self._changes, change)
        return other

    def _changed(self, chunk: Chunk) -> Chunk:
        return reduce(lambda changed, change: change(changed), self._changes, chunk)

    def chunks(self, rows: int) -> Iterator[Chunk]:
        """Yield the rows in order, at most `rows` at a time."""
        return map(self._changed, self._read(rows))

    def fold(self, start: Callable[[], Accumulator], rows: int) -> Any:
        """Feed every chunk once to accumulators that `start` makes; return the sum of results.

        Chunk i goes to lane i modulo the number of threads, whichever thread is quicker, so that
        the same data give the same bits every time.
        """
        return reduce(add, self._run(self._folder(start), rows))

    def _folder(self, start: Callable[[], Accumulator]) -> Callable[[Iterator[Chunk]], Any]:
        def run(chunks: Iterator[Chunk]) -> Any:
            accumulator = start()
            for chunk in chunks:
                accumulator.add(self._changed(chunk))
            return accumulator.result()

        return run

    def rounds(
        self, start: Callable[[], Accumulator], rows: int, chunks: int, first_row: int = 0
    ) -> Iterator[tuple[Any, int]]:
        """Fold so many chunks at a time, in one pass; yield each sum and the row that comes next.

        Between two rounds every row before that one has been counted and none after it.
        """
        reading = from_row(first_row, self._read(rows))
        lanes = self.n_threads or available_threads()
        ahead = next(reading, None)
        while ahead is not None:
            ends = [first_row]
            part = noted(ends, chain([ahead], islice(reading, chunks - 1)))
            sums = deal(part, self._folder(start), lanes)
            ahead = next(reading, None)
            yield reduce(add, sums), ends[-1]

    def map(self, start: Callable[[], Callable[[Chunk], Array]], rows: int) -> Array:
        """Return function(chunk) of all chunks, stacked in row order.

        `start` makes the function of each thread, which may keep buffers of its own.
        """

        def run(chunks: Iterator[Chunk]) -> list[Array]:
            function = start()
            return [function(self._changed(chunk)) for chunk in chunks]

        parts = self._run(run, rows)
        count = sum(len(part) for part in parts)
        return np.concatenate([parts[i % len(parts)][i // len(parts)] for i in range(count)])

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number).

        The rows come in row order. The choice depends on nothing but the seed and the number of
        each row, so that every chunking and every cluster draws the same sample.
        """
        return self.fold(lambda: Sampler(size, seed), 65536).chunk()  # type: ignore[no-any-return]

    def _run(self, run: Callable[[Iterator[Chunk]], T], rows: int) -> list[T]:
        """Run one lane per thread; a further thread reads ahead and deals the chunks out."""
        lanes = self.n_threads or available_threads()
        if lanes == 1:
            return [run(self._read(rows))]
        return deal(self._read(rows), run, lanes)


def deal(chunks: Iterator[Chunk], run: Callable[[Iterator[Chunk]], T], lanes: int) -> list[T]:
    """Deal chunks out to `lanes` threads in turn, reading at most two ahead of each."""
    queues: list[Queue[Chunk | None]] = [Queue(maxsize=2) for _ in range(lanes)]
    stop = Event()

    def read() -> Any:
        try:
            for i, chunk in enumerate(until(stop, chunks)):
                queues[i % lanes].put(chunk)
        finally:
            for queue in queues:
                queue.put(None)

    def work(lane: int) -> Any:
        queued = iter(queues[lane].get, None)
        try:
            return run(until(stop, queued))
        except BaseException:
            stop.set()  # before the queue is drained, or the reader would read on to the end
            raise
        finally:
            for _ in queued:  # where it ended early: let the reader finish its put
                pass

    def role(number: int) -> Any:
        return read() if number == lanes else work(number)

    return run_lanes(role, lanes + 1, stop)[:lanes]


def from_row(first_row: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks from a row on, the first one cut if need be."""
    for chunk in chunks:
        skip = first_row - chunk.row
        if skip <= 0:
            yield chunk
        elif skip < chunk.n_rows:
            yield cut_chunk(chunk, skip, chunk.n_rows)


def cut_chunk(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return the rows from `start` to `stop` of a chunk."""
    parts: dict[str, Any] = {
        name: frames.slice_rows(part, start, stop)
        for name in PARTS
        if (part := getattr(chunk, name)) is not None
    }
    return replace(chunk, row=chunk.row + start, **parts)


def noted(ends: list[int], chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks and note the row after each."""
    for chunk in chunks:
        ends.append(chunk.row + chunk.n_rows)
        yield chunk


def until(stop: Event, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield chunks until there are no more or `stop` is set."""
    for chunk in chunks:
        if stop.is_set():
            return
        yield chunk


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of the smallest hashes so far; `+` keeps the smallest of both."""

    size: int
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int64]
    parts: tuple[Any, ...]

    def __add__(self, other: Sample) -> Sample:
        if len(self.rows) == 0 or len(other.rows) == 0:
            return other if len(self.rows) == 0 else self
        hashes = np.concatenate([self.hashes, other.hashes])
        rows = np.concatenate([self.rows, other.rows])
        parts = tuple(_joined(a, b) for a, b in zip(self.parts, other.parts, strict=True))
        return Sample(self.size, hashes, rows, parts)._smallest()

    def _smallest(self) -> Sample:
        if len(self.rows) <= self.size:
            return self
        return self._take(np.argpartition(self.hashes, self.size)[: self.size])

    def _take(self, index: NDArray[np.int64]) -> Sample:
        parts = tuple(
            None if part is None else frames.take_rows(part, index) for part in self.parts
        )
        return Sample(self.size, self.hashes[index], self.rows[index], parts)

    def in_row_order(self) -> Sample:
        """Return the same rows, sorted by their number."""
        return self._take(np.argsort(self.rows))

    def smallest(self, size: int) -> NDArray[np.int64]:
        """Return the positions, in row order, of the rows that a sample of `size` would have."""
        hashes = self.in_row_order().hashes
        return np.sort(np.argsort(hashes)[:size])

    def chunk(self) -> Chunk:
        """Return the rows in row order."""
        parts = self.in_row_order().parts
        return Chunk(**dict(zip(PARTS, parts, strict=True)))


def _joined(a: Any, b: Any) -> Any:
    return None if a is None else frames.stack_rows([a, b])


class Sampler:
    """Accumulator of a sample of rows of positive weight."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._kept: Sample | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        rows = np.arange(chunk.row, chunk.row + chunk.n_rows)
        parts = tuple(getattr(chunk, name) for name in PARTS)
        new = Sample(self._size, row_hash(self._seed, rows), rows, parts)
        weight = chunk.weight
        index = np.arange(len(rows)) if weight is None else np.flatnonzero(np.asarray(weight) > 0)
        if self._kept is not None and len(self._kept.rows) == self._size:
            index = index[new.hashes[index] < self._kept.hashes.max()]
        if len(index):
            new = new._take(index)._smallest()
            self._kept = new if self._kept is None else self._kept + new

    def result(self) -> Sample:
        """Return the sample of all rows seen."""
        none = np.empty(0, np.uint64), np.empty(0, np.int64), (None,) * len(PARTS)
        return Sample(self._size, *none) if self._kept is None else self._kept
