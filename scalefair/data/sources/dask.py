"""Rows in dask arrays and data frames, folded where they are. The home of dask.

dask is imported by what needs it, so that `is_dask` costs nothing where dask is not in use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from math import ceil, nan
from typing import Any

import numpy as np

from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data.sources._dask_parts import (
    Span,
    Table,
    first_column,
    keys_of,
    optimized,
    spans,
    spans_from,
)
from scalefair.data.sources._dask_rows import Keep, chosen_rows
from scalefair.data.sources._dask_tasks import (
    Job,
    Tasks,
    explained,
    fold_rows,
    list_of,
    map_rows,
    placed,
    ref,
    room_for,
    total,
    watched,
)  # fmt: skip
from scalefair.data.sources.base import ChunkSource, Sampler

TASKS_PER_THREAD = 3
"""Tasks per thread of the cluster where there are rows enough: a slow worker can take fewer."""

LEAST_ROWS, MOST_ROWS = 2**14, 2**17
"""Rows of a task. A row costs m² operations and a result is m² numbers to move, whatever m is: with
fewer than 2¹⁴ rows the moving shows. A task holds its rows at once: no more than 2¹⁷ are joined."""

FAN_IN = 8
"""Results that one task of the reduction adds up."""


def is_dask(X: Any) -> bool:
    """Return True if `X` is a dask collection; dask is not imported to find out."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def in_memory(part: Any) -> Any:
    """Return rows that go beside others which are not in dask: computed if they are in dask."""
    return part.compute() if is_dask(part) else part


def connect(address: str, *, timeout: float = 10.0, security: Any = None) -> Any:
    """Return a distributed.Client of the dask scheduler at `address`.

    Parameters
    ----------
    address : str
        For instance ``"tcp://10.0.0.1:8786"``, or ``"tls://…"`` with `security`.
    timeout : float
        Seconds after which a scheduler that does not answer is a ConnectionError.
    security : distributed.Security, optional
        Certificates for TLS.
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

    The number of a row is its position in `x`: samples and folds do not depend on the partitions.
    Only results come to the client, once per pass.

    Parameters
    ----------
    x, s, y, weight, c : dask array, data frame or series, or the same in memory
        Inputs, sensitive attributes (None: none), targets (None: none), row weights (None: one
        each) and control features (None: none), in partitions of their own. Parts in memory are
        cut up and sent to the workers.
    client : distributed.Client or None
        Who computes; None: the active client, else the scheduler of ``dask.config``, else threads.
    rows_per_task : int or None
        Smaller partitions are joined and larger ones split to this many rows. None: three tasks
        per thread of the cluster, but at least 2¹⁴ rows each (2¹⁵ where rows are wide), and at
        most 2¹⁷ where partitions are joined.
    progress : callable or None
        Called with the numbers of finished and of all tasks of a pass.
    """

    def __init__(
        self,
        x: Any,
        s: Any = None,
        y: Any = None,
        weight: Any = None,
        c: Any = None,
        *,
        client: Any = None,
        rows_per_task: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> None:
        super().__init__()
        if rows_per_task is not None and rows_per_task < 1:
            raise ValueError(f"rows_per_task={rows_per_task}: expected at least 1, or None")
        self.client, self.rows_per_task, self.progress = client, rows_per_task, progress
        self._table = Table(x=x, s=s, y=y, weight=weight, c=c)

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None until `count` or a pass where dask does not know it."""
        return self._table.n_rows

    def count(self) -> int:
        """Return the number of rows, counted once if dask does not know it."""
        unknown = [part for part in self._table.parts.values() if part.lengths is None]
        if unknown:
            tasks = Tasks("count")
            narrow = optimized([first_column(part.value) for part in unknown])
            lengths = [list_of(tasks.add(len, ref(key)) for key in keys_of(c)) for c in narrow]
            found = self._compute(tasks, tasks.add(list, list_of(lengths)), narrow)
            for part, counted in zip(unknown, found, strict=True):
                part.lengths = counted
            self._table.check_lengths()
        return int(self._table.n_rows or 0)

    def fold(self, start: Callable[[], Accumulator], rows: int) -> Any:
        """Feed every chunk once to accumulators that `start` makes; return the sum of results.

        A task feeds its rows in order to one accumulator; a tree of tasks adds the results up, in
        an order that does not depend on who is quicker. `start` goes once to each worker.
        """
        return self._fold(start, rows, self._spans(rows))

    def rounds(
        self, start: Callable[[], Accumulator], rows: int, chunks: int, first_row: int = 0
    ) -> Iterator[tuple[Any, int]]:
        """Fold so many chunks at a time, or one task per thread if that is more.

        Yield each sum and the row that comes next.
        """
        group: list[Span] = []
        left = spans_from(first_row, self._spans(rows))
        least = self._n_threads()
        for i, span in enumerate(left):
            group.append(span)
            end = span[-1][-1]
            full = len(group) >= least and end - group[0][0][1] >= chunks * rows
            if full or i == len(left) - 1:
                yield self._fold(start, rows, group), end
                group = []

    def _fold(self, start: Callable[[], Accumulator], rows: int, found: list[Span]) -> Any:
        tasks = Tasks("fold")
        topic = tasks.name if self.progress else None
        shared = tasks.share(Job(start, self._changes, rows, topic, self._table.names))
        results = [
            tasks.add(fold_rows, shared, self._table.rows(span, tasks), key=(tasks.name, "rows", i))
            for i, span in enumerate(found)
        ]
        tasks.count = len(results)
        while len(results) > 1:
            groups = [results[i : i + FAN_IN] for i in range(0, len(results), FAN_IN)]
            results = [tasks.add(total, list_of(group)) for group in groups]
        return self._compute(tasks, results[0], self._table.collections)

    def map(
        self,
        start: Callable[[], Callable[[Chunk], Array]],
        rows: int,
        *,
        shape: tuple[int, ...] | None = None,
    ) -> Any:
        """Return function(chunk) of all chunks, stacked in row order: a dask array, not computed.

        Parameters
        ----------
        start : callable
            Makes the function of each task.
        rows : int
            Rows per chunk.
        shape : tuple of int, optional
            Shape of the value of one row, () or (t,); by default found by a call with no rows.

        Returns
        -------
        dask array of float64, of shape (n,) or (n, t)
            In the partitions of `x`, also if that is a data frame. Where dask does not know their
            lengths they are nan, and `row` of a chunk counts from the start of its partition.
        """
        import dask.array as da

        if len(self._table.parts) > 1:
            self.count()
        if shape is None:
            shape = start()(self._changed(self._table.no_rows())).shape[1:]
        tasks = Tasks("map")
        shared = tasks.share(Job(start, self._changes, rows, names=self._table.names))
        lengths = self._table.parts["x"].lengths
        for i, block in enumerate(self._table.partitions(tasks)):
            tasks.add(map_rows, shared, block, shape, key=(tasks.name, i, *(0 for _ in shape)))
        known = [nan] * (len(tasks) - 1) if lengths is None else lengths
        return da.Array(  # type: ignore[no-untyped-call]
            tasks.graph(self._table.collections),
            tasks.name,
            chunks=(tuple(known), *((width,) for width in shape)),
            meta=np.empty((0,) * (1 + len(shape))),
        )

    def collections(self, keep: Keep) -> dict[str, Any]:
        """Return x, y and weight (where there are any) as dask collections of some rows.

        Parameters
        ----------
        keep : callable
            Says which, from global row numbers.
        """
        self.count()
        parts = {name: self._table.parts.get(name) for name in ("x", "y", "weight")}
        return {
            name: chosen_rows(part.value, part.lengths or [], keep)
            if part.in_dask
            else part.value[keep(np.arange(len(part.value)))]
            for name, part in parts.items()
            if part is not None
        }

    def watched(self, progress: Callable[[int, int], Any]) -> DaskSource:
        """Return the same rows with `progress` told of the tasks of every pass."""
        other = copy(self)
        other.progress = progress
        return other

    def sample(self, size: int, seed: int) -> Chunk:
        """Return the `size` rows of positive weight with the smallest hash(seed, row number)."""
        # Changes go row by row: only the chosen rows need them.
        plain = copy(self)
        plain._changes = ()
        return self._changed(plain.fold(lambda: Sampler(size, seed), 65536).chunk())

    def _read(self, rows: int) -> Iterator[Chunk]:
        """Fetch the rows of one task after the other."""
        for span in self._spans(rows):
            tasks = Tasks("read")
            blocks = tasks.add(list, self._table.rows(span, tasks))
            for block in self._compute(tasks, blocks, self._table.collections):
                yield from placed(block, rows)

    def _spans(self, rows: int) -> list[Span]:
        n = self.count()
        lengths = self._table.parts["x"].lengths or []
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
        owner = getattr(get, "__self__", None)
        return owner if hasattr(owner, "nthreads") else None

    def _compute(self, tasks: Tasks, result: Any, collections: Sequence[Any]) -> Any:
        """Run the tasks and return the value of one of them."""
        from dask.base import compute
        from dask.delayed import Delayed

        client, graph = self._cluster(), tasks.graph(collections)
        value = Delayed(result.key, graph, layer=tasks.name)  # type: ignore[no-untyped-call]
        with explained(client), room_for(tasks, client), watched(tasks, client, self.progress):
            return compute(value, scheduler=self.client)[0]  # type: ignore[no-untyped-call]
