"""What all sources share: chunks in order, folded by threads, sampled by row number.

And the source of rows in memory: numpy arrays, memory maps and frames.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
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
from scalefair.data.sources.threads import available_threads, run_threads
from scalefair.errors import CLASSES_REMEDY, InputError

Change = Callable[[Chunk], Chunk]
ARGUMENTS = {"x": "X", "s": "sensitive_features", "y": "y", "weight": "sample_weight", "c": "control_features"}
"""What users call the parts of a chunk, in errors."""

SAMPLE_CHUNK = 65536  # rows per chunk where a pass only draws a sample
T = TypeVar("T")


class ChunkSource(ABC):
    """Rows that are read chunk by chunk, in order."""

    n_threads: int | None = None
    """Number of chunks read at once; None means one per core that BLAS may use."""

    _changes: tuple[Change, ...] = ()

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, None if unknown before a pass."""

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

        Of k threads, number i gets the chunks i, i + k, …, whichever is quicker, so that the same
        data give the same bits every time.
        """
        return reduce(add, self._run(partial(self._accumulate, start), rows))

    def _accumulate(self, start: Callable[[], Accumulator], chunks: Iterator[Chunk]) -> Any:
        accumulator = start()
        for chunk in chunks:
            accumulator.add(self._changed(chunk))
        return accumulator.result()

    def rounds(
        self, start: Callable[[], Accumulator], rows: int, chunks: int, first_row: int = 0
    ) -> Iterator[tuple[Any, int]]:
        """Fold so many chunks at a time, in one pass; yield each sum and the row before which all are counted."""
        reading = _from_row(first_row, self._read(rows))
        threads = self.n_threads or available_threads()
        ahead = next(reading, None)
        while ahead is not None:
            ends = [first_row]
            part = _noted(ends, chain([ahead], islice(reading, chunks - 1)))
            sums = _deal(part, partial(self._accumulate, start), threads)
            ahead = next(reading, None)
            yield reduce(add, sums), ends[-1]

    def map(self, start: Callable[[], Callable[[Chunk], Array]], rows: int) -> Array:
        """Return function(chunk) of all chunks, stacked in row order; `start` makes the function of each thread."""

        def run(chunks: Iterator[Chunk]) -> list[Array]:
            function = start()
            return [function(self._changed(chunk)) for chunk in chunks]

        parts = self._run(run, rows)
        count = sum(len(part) for part in parts)
        return np.concatenate([parts[i % len(parts)][i // len(parts)] for i in range(count)])

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number).

        The rows come in row order. The choice depends only on the seed and the number of
        each row, so that every chunking and every cluster draws the same sample.
        """
        sample: Sample = self.fold(lambda: Sampler(size, seed), SAMPLE_CHUNK)
        return sample.chunk

    def _run(self, run: Callable[[Iterator[Chunk]], T], rows: int) -> list[T]:
        """Call `run` in every thread; a further thread reads ahead and deals the chunks out."""
        threads = self.n_threads or available_threads()
        if threads == 1:
            return [run(self._read(rows))]
        return _deal(self._read(rows), run, threads)


def _deal(chunks: Iterator[Chunk], run: Callable[[Iterator[Chunk]], T], threads: int) -> list[T]:
    """Deal chunks out to threads in turn, reading at most two ahead of each."""
    queues: list[Queue[Chunk | None]] = [Queue(maxsize=2) for _ in range(threads)]
    stop = Event()

    def read() -> Any:
        try:
            for i, chunk in enumerate(until(stop, chunks)):
                queues[i % threads].put(chunk)
        finally:
            for queue in queues:
                queue.put(None)

    def work(number: int) -> Any:
        queued = iter(queues[number].get, None)
        try:
            return run(until(stop, queued))
        except BaseException:
            stop.set()  # before the queue is drained, or the reader would read on to the end
            raise
        finally:
            for _ in queued:  # where it ended early: let the reader finish its put
                pass

    def role(number: int) -> Any:
        return read() if number == threads else work(number)

    return run_threads(role, threads + 1, stop)[:threads]


def until(stop: Event, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield chunks until there are no more or `stop` is set."""
    for chunk in chunks:
        if stop.is_set():
            return
        yield chunk


def _from_row(first_row: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks from a row on, the first one cut if need be."""
    for chunk in chunks:
        skip = first_row - chunk.row
        if skip <= 0:
            yield chunk
        elif skip < chunk.n_rows:
            yield cut_chunk(chunk, skip, chunk.n_rows)


def _noted(ends: list[int], chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks and append the number of the row after each to `ends`."""
    for chunk in chunks:
        ends.append(chunk.row + chunk.n_rows)
        yield chunk


def regrouped(
    items: Iterable[T], rows: int, cut: Callable[[T, int, int], T], count: Callable[[T], int]
) -> Iterator[list[T]]:
    """Yield lists of items, cut to have `rows` rows together; the last list has the rest."""
    pending: list[T] = []
    left = rows
    for item in items:
        start, end = 0, count(item)
        while start < end:
            stop = min(start + left, end)
            pending.append(cut(item, start, stop))
            start, left = stop, left - (stop - start)
            if left == 0:
                yield pending
                pending, left = [], rows
    if pending:
        yield pending


def cut_chunk(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return the rows from `start` to `stop` of a chunk."""
    parts: dict[str, Any] = {
        name: frames.slice_rows(part, start, stop) for name, part in chunk.parts.items() if part is not None
    }
    return replace(chunk, row=chunk.row + start, **parts)


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of the smallest hashes, in row order; `+` keeps the smallest of both."""

    size: int
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    chunk: Chunk = field(default_factory=lambda: Chunk(None))  # of these rows

    @classmethod
    def of(cls, chunk: Chunk, size: int, seed: int, before: Sample | None = None) -> Sample:
        """Return the rows of smallest hash(seed, row number) that would stay in one `before`."""
        rows = np.arange(chunk.row, chunk.row + chunk.n_rows)
        hashes = row_hash(seed, rows)
        index = np.arange(len(rows))
        if chunk.weight is not None:
            index = np.flatnonzero(np.asarray(chunk.weight) > 0)
        if before is not None and len(before.rows) == size > 0:
            index = index[hashes[index] < before.hashes.max()]
        if len(index) > size:
            index = np.sort(index[np.argpartition(hashes[index], size)[:size]])
        # A copy even of all rows: models keep samples, and users may change their arrays.
        return cls(size, hashes, rows, chunk).take(index)

    def __add__(self, other: Sample) -> Sample:
        if not (len(self.rows) and len(other.rows)):
            return self if len(self.rows) else other
        hashes = np.concatenate([self.hashes, other.hashes])
        rows = np.concatenate([self.rows, other.rows])
        more = other.chunk.parts
        parts: dict[str, Any] = {
            name: None if part is None else frames.stack_rows([part, more[name]])
            for name, part in self.chunk.parts.items()
        }
        joined = Sample(self.size, hashes, rows, Chunk(**parts))
        chosen = np.arange(len(rows))
        if len(rows) > self.size:
            chosen = np.argpartition(hashes, self.size)[: self.size]
        elif self.rows[-1] < other.rows[0]:
            return joined  # in order already, as within one thread
        return joined.take(chosen[np.argsort(rows[chosen])])

    def take(self, index: NDArray[np.int64]) -> Sample:
        """Return the rows at some positions."""
        parts: dict[str, Any] = {
            name: None if part is None else frames.take_rows(part, index) for name, part in self.chunk.parts.items()
        }
        return Sample(self.size, self.hashes[index], self.rows[index], Chunk(**parts))


@dataclass(eq=False)
class Sampler:
    """Accumulator of a sample."""

    size: int
    seed: int
    _sample: Sample | None = None

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
        new = Sample.of(chunk, self.size, self.seed, self._sample)
        self._sample = new if self._sample is None else self._sample + new

    def result(self) -> Sample:
        """Return the sample of all rows seen."""
        return self._sample or Sample(self.size)


@dataclass(eq=False)
class ArraySource(ChunkSource):
    """Rows in arrays or frames (n, ·), weights (n,); all but x may be None."""

    x: Any
    s: Any = None
    y: Any = None
    weight: Array | None = None
    c: Any = None
    n_threads: int | None = field(default=None, kw_only=True)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def _read(self, rows: int, first: int = 0, step: int = 1) -> Iterator[Chunk]:
        """Yield every `step`-th chunk, from number `first` on."""
        whole = Chunk(self.x, self.s, self.y, self.weight, c=self.c)
        n = whole.n_rows
        for start in range(first * rows, max(n, 1), step * rows):
            yield whole if rows >= n else cut_chunk(whole, start, start + rows)

    def _run(self, run: Callable[[Iterator[Chunk]], T], rows: int) -> list[T]:
        """Every thread slices its own chunks: rows in memory need no reader."""
        n_chunks = -(-self.x.shape[0] // rows)
        if n_chunks <= 1 or self.n_threads == 1:
            return [run(self._read(rows))]
        threads = min(self.n_threads or available_threads(), n_chunks)
        stop = Event()

        def work(number: int) -> T:
            return run(until(stop, self._read(rows, number, threads)))

        return run_threads(work, threads, stop)

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number)."""
        (whole,) = self._read(sys.maxsize)
        return self._changed(Sample.of(whole, size, seed).chunk)


def is_dask(X: Any) -> bool:
    """Return True if `X` is a dask collection; dask is not imported to find out."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def weights(weight: Any, where: str, row: int) -> Array | None:
    """Return the weights of a chunk, of shape (k,), checked as `finite_columns` does."""
    values = finite_columns(weight, "sample_weight", where, row)
    if values is None:
        return None
    if values.shape[1] != 1:
        shown = frames.column_names(weight) or values.shape[1]
        what = f"{where}: sample_weight has the columns {shown}; expected one"
        raise InputError(what, where=where)
    if (values < 0).any():
        first = row + int(np.argmax(values < 0))
        raise InputError(
            f"{where}: sample_weight is negative ({values.min():g}, first in row {first}); "
            "expected weights of at least 0",
            "set such rows to 0",
            column="sample_weight",
            where=where,
        )
    return values[:, 0]


def finite_columns(part: Any, name: str, where: str, row: int) -> Array | None:
    """Return a chunk as float64 (k, t), all finite; None for None. `where` and the first `row` are for errors."""
    if part is None:
        return None
    table = frames.as_table(part, one_column=True)
    columns = frames.columns(table, name)
    # A single column without a name goes by that of the argument.
    alone = len(columns) == 1 and frames.column_names(table) is None
    if not columns:
        raise InputError(f"{where}: {name} has no columns", "give at least one", where=where)
    out = np.empty(table.shape)
    for j, column in enumerate(columns):
        shown = name if alone else column.name
        if column.kind == "categorical":
            what = f"{where}: column {shown!r} is text; expected numbers"
            remedy = CLASSES_REMEDY if name == ARGUMENTS["y"] else "convert it"
            raise InputError(what, remedy, column=shown, where=where)
        out[:, j] = column.floats()
        good = np.isfinite(out[:, j])
        if not good.all():
            first = row + int(np.argmin(good))
            raise InputError(
                f"{where}: column {shown!r} is missing or infinite in {int((~good).sum())} rows "
                f"(first in row {first} of the data); expected finite numbers",
                "drop such rows",
                column=shown,
                where=where,
            )
    return out
