"""Rows in dask arrays and data frames, folded where they are. The home of dask.

dask is imported by what needs it, so that `import scalefair` does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from inspect import ismethod
from itertools import accumulate
from math import ceil, nan
from typing import Any
from uuid import uuid4

import numpy as np

from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data.sources.base import SAMPLE_CHUNK, ChunkSource, Sampler
from scalefair.data.sources.dask_parts import Part, Span, delayed_partitions, first_column, spans
from scalefair.data.sources.dask_tasks import (
    DIMENSIONS,
    Block,
    Delay,
    Job,
    Keep,
    Shared,
    allowing,
    array_of,
    assembled,
    chosen_rows,
    delays,
    explained,
    fold_rows,
    gathered,
    map_rows,
    placed,
    read_rows,
    total,
    watching,
)

# Tasks per thread of the cluster where there are rows enough: a slow worker can take fewer
TASKS_PER_THREAD = 3

LEAST_ROWS, MOST_ROWS = 2**14, 2**17
"""Rows of a task. A row costs m² operations and a result is m² numbers to move, whatever m is: with
fewer than 2¹⁴ rows the moving shows. A task holds its rows at once: no more than 2¹⁷ are joined."""

FAN_IN = 8  # results that one task of the reduction adds up


def connect(address: str, *, timeout: float = 10.0, security: Any = None) -> Any:
    """Return a distributed.Client of the dask scheduler at `address`, such as tcp://10.0.0.1:8786.

    One that does not answer within `timeout` seconds is a ConnectionError. Addresses of tls:// need
    the certificates of a distributed.Security.
    """
    from distributed import Client

    try:
        return Client(  # type: ignore[no-untyped-call]
            address, timeout=timeout, security=security
        )
    except (OSError, TypeError) as error:  # TypeError: tls:// without certificates
        raise ConnectionError(
            f"no dask scheduler answered at {address} within {timeout:g} s; check the address, "
            "that the scheduler runs, and the certificates if it uses TLS"
        ) from error


class DaskSource(ChunkSource):
    """Rows of dask arrays and data frames, read and folded by dask's workers.

    The number of a row is its position in `x`: samples and folds do not depend on the partitions. Only results come to
    the client, once per pass. Parts in memory are cut up and sent to the workers. Without `client` the active one
    computes, else the scheduler of ``dask.config``, else threads. Partitions are joined or split to `rows_per_task`;
    None: three tasks per thread of the cluster, but at least 2¹⁴ rows each (2¹⁵ where rows are wide), and at most 2¹⁷
    where partitions are joined. `progress` is called with the numbers of finished and of all tasks of a pass.
    """

    def __init__(
        self, x: Any, s: Any = None, y: Any = None, weight: Any = None, c: Any = None, *,
        client: Any = None, rows_per_task: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> None:  # fmt: skip
        if rows_per_task is not None and rows_per_task < 1:
            raise ValueError(f"rows_per_task={rows_per_task}: expected at least 1, or None")
        self.client, self.rows_per_task, self.progress = client, rows_per_task, progress
        given = zip(DIMENSIONS, (x, s, y, weight, c), strict=True)
        self._parts = {name: Part(name, value) for name, value in given if value is not None}
        in_dask = [part for part in self._parts.values() if part.in_dask]
        partitions = delayed_partitions([part.value for part in in_dask])
        for part, delayed in zip(in_dask, partitions, strict=True):
            part.partitions = delayed
        self._check_lengths()

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None until `count` or a pass where dask does not know it."""
        return self._parts["x"].n_rows

    def count(self) -> int:
        """Return the number of rows, counted once if dask does not know it."""
        unknown = [part for part in self._parts.values() if part.lengths is None]
        if unknown:
            narrow = delayed_partitions([first_column(part.value) for part in unknown])
            delay = delays("count")
            each = [delay(len, partition) for column in narrow for partition in column]
            lengths = iter(self._compute(delay(gathered, *each)))
            for part, column in zip(unknown, narrow, strict=True):
                part.set_lengths([next(lengths) for _ in column])
            self._check_lengths()
        return int(self.n_rows or 0)

    def _check_lengths(self) -> None:
        """Raise a ValueError if two parts are known to differ in length."""
        known = [(part.name, part.n_rows) for part in self._parts.values() if part.lengths]
        for name, n in known[1:]:
            if n != known[0][1]:
                raise ValueError(
                    f"{known[0][0]} has {known[0][1]} rows but {name} has {n}; give one row of "
                    f"{name} for each row of {known[0][0]}, in the same order"
                )

    def fold(self, start: Callable[[], Accumulator], rows: int) -> Any:
        """Feed every chunk once to accumulators; a tree of tasks adds their results up."""
        return self._fold(start, rows, self._spans(rows))

    def rounds(
        self, start: Callable[[], Accumulator], rows: int, chunks: int, first_row: int = 0
    ) -> Iterator[tuple[Any, int]]:
        """Yield sums of so many chunks, or a task per thread if more, and the next row."""
        left = [
            [(i, max(first, first_row), end) for i, first, end in span if end > first_row] for span in self._spans(rows)
        ]
        left = [span for span in left if span]
        group: list[Span] = []
        least = self._n_threads()
        for i, span in enumerate(left):
            group.append(span)
            end = span[-1][-1]
            full = len(group) >= least and end - group[0][0][1] >= chunks * rows
            if full or i == len(left) - 1:
                yield self._fold(start, rows, group), end
                group = []

    def _fold(self, start: Callable[[], Accumulator], rows: int, of_tasks: list[Span]) -> Any:
        topic = f"scalefair-{uuid4().hex}"
        names = self._parts["x"].columns
        shared = Shared(Job(start, self._changes, rows, topic if self.progress else None, names))
        delay = delays("fold")
        everywhere = delay(Shared.itself, shared)
        tasks = [delay(fold_rows, everywhere, *self._blocks(delay, span)) for span in of_tasks]
        results = tasks
        while len(results) > 1:
            groups = [results[i : i + FAN_IN] for i in range(0, len(results), FAN_IN)]
            results = [delay(total, *group) for group in groups]
        client = self._cluster()
        with allowing(shared, client), watching(tasks, topic, client, self.progress):
            return self._compute(results[0])

    def _blocks(self, delay: Delay, span: Span) -> tuple[Any, ...]:
        """Return the arguments of a task for its rows: the blocks, then all pieces of them."""
        blocks: list[Block] = []
        pieces: list[Any] = []
        for i, first, stop in span:
            parts = {
                name: [part.piece(delay, i, first, stop)] if name == "x" else part.pieces(delay, first, stop)
                for name, part in self._parts.items()
            }
            count = None if self.n_rows is None else stop - first
            numbers = {name: len(rows) for name, rows in parts.items()}
            blocks.append((first, count, f"partition {i}", numbers))
            pieces += [piece for rows in parts.values() for piece in rows]
        return blocks, *pieces

    def map(
        self, start: Callable[[], Callable[[Chunk], Array]], rows: int, *, shape: tuple[int, ...] | None = None
    ) -> Any:
        """Return function(chunk) of all chunks, stacked in row order: a dask array, not computed.

        It has the partitions of `x`, also if that is a data frame. Where dask does not know their
        lengths they are nan, and `row` of a chunk counts from the start of its partition. `shape`,
        of the value of one row, is () or (t,); by default a call with no rows finds it.
        """
        if len(self._parts) > 1:
            self.count()
        if shape is None:
            parts = {name: part.no_rows() for name, part in self._parts.items()}
            (chunk,) = assembled([(0, 0, "", dict.fromkeys(parts, 1))], list(parts.values()))
            shape = start()(self._changed(chunk)).shape[1:]
        x = self._parts["x"]
        job = Job(start, self._changes, rows, names=x.columns)
        delay = delays("map")
        everywhere = delay(Shared.itself, Shared(job))
        lengths = x.lengths or [0] * len(x.partitions)
        tasks = []
        for i, (length, stop) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
            blocks, *pieces = self._blocks(delay, [(i, stop - length, stop)])
            tasks.append(delay(map_rows, everywhere, blocks, shape, *pieces))
        return array_of(tasks, x.lengths or [nan] * len(tasks), shape)

    def collections(self, keep: Keep) -> dict[str, Any]:
        """Return x, y and weight (where there are any) of the rows whose numbers `keep` chooses."""
        self.count()
        parts = {name: self._parts.get(name) for name in ("x", "y", "weight")}
        return {
            name: chosen_rows(part.value, part.lengths or [], keep)
            if part.in_dask
            else part.value[keep(np.arange(len(part.value)))]
            for name, part in parts.items()
            if part is not None
        }

    def watched(self, progress: Callable[[int, int], Any]) -> DaskSource:
        """Return the same rows; `progress` is called with the tasks of every pass."""
        other = copy(self)
        other.progress = progress
        return other

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number)."""
        # Changes go row by row: only the chosen rows need them.
        plain = copy(self)
        plain._changes = ()
        return self._changed(plain.fold(lambda: Sampler(size, seed), SAMPLE_CHUNK).chunk)

    def _read(self, rows: int) -> Iterator[Chunk]:
        """Fetch the rows of one task after the other."""
        for span in self._spans(rows):
            delay = delays("read")
            for block in self._compute(delay(read_rows, *self._blocks(delay, span))):
                yield from placed(block, rows)

    def _spans(self, rows: int) -> list[Span]:
        n = self.count()
        lengths = self._parts["x"].lengths or []
        if self.rows_per_task is not None:
            return spans(lengths, self.rows_per_task, self.rows_per_task)
        # Chunks have few rows where rows, and so results, are wide.
        least = max(LEAST_ROWS, 2**23 // max(rows, 256))
        split = max(least, ceil(n / (TASKS_PER_THREAD * self._n_threads())))
        return spans(lengths, split, min(split, MOST_ROWS))

    def _n_threads(self) -> int:
        from dask import config, system

        client = self._cluster()
        if client is None:
            return int(config.get("num_workers", None) or system.CPU_COUNT)
        with explained(client):
            return max(1, int(sum(client.nthreads().values())))

    def _cluster(self) -> Any:
        """Return the client that dask will use, None for a scheduler of this process."""
        from dask.base import get_scheduler

        get = get_scheduler(scheduler=self.client)  # type: ignore[no-untyped-call]
        owner = get.__self__ if ismethod(get) else None
        return owner if hasattr(owner, "nthreads") else None

    def _compute(self, value: Any) -> Any:
        from dask.base import compute

        with explained(self._cluster()):
            return compute(value, scheduler=self.client)[0]  # type: ignore[no-untyped-call]
