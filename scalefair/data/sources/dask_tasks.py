"""Tasks of dask: their arguments, their functions, and how they are run and observed."""

from __future__ import annotations

import pickle  # nosec B403
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import count as counter
from itertools import islice
from operator import add
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Chunk, WithColumns
from scalefair.data import frames
from scalefair.data.sources.base import ArraySource, Change, finite_columns, weights
from scalefair.data.sources.threads import one_of_many
from scalefair.errors import LostWorkersError

if TYPE_CHECKING:
    from scalefair.data.sources.files import Piece, Scan

Keep = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
Delay = Callable[..., Any]

Block = tuple[int, int | None, str, dict[str, int]]
"""Rows of one partition: the first row's number, how many (None: unknown), where, and the number
of pieces in which each part of them comes."""

IN_FLIGHT = 2  # pieces per thread of the cluster that are read ahead of the one that is waited for
DIMENSIONS = {"x": (2,), "s": (1, 2), "y": (1, 2), "weight": (1,), "c": (1, 2)}
_GRAPH_SIZE = "distributed.admin.large-graph-warning-threshold"
_LOST = (
    "the dask scheduler at {address} was lost, or lost what it was given ({reason}); start it "
    "again if necessary, reconnect with distributed.Client, and repeat"
)


def delays(kind: str) -> Delay:
    """Return the function of (function, *args) that makes delayed values, for one pass.

    By keys of one name dask gives neighbours to one worker: half as many bytes move. Delayed values
    must be arguments themselves: inside lists dask would copy their whole graph.
    """
    from dask.delayed import delayed

    name, numbers = f"scalefair-{kind}-{uuid4().hex}", counter()

    def delay(function: Callable[..., Any], *args: Any) -> Any:
        call: Any = delayed(function, pure=False)
        return call(*args, dask_key_name=(name, next(numbers)))

    return delay


class Shared:
    """A value that is pickled once, and unpickled once in each process when it is first used."""

    def __init__(self, value: Any, pickled: bytes = b"") -> None:
        self._value, self._pickled, self._lock = value, pickled, Lock()

    @property
    def pickled(self) -> bytes:
        """The value as bytes."""
        import cloudpickle  # type: ignore[import-untyped]

        with self._lock:
            self._pickled = self._pickled or cloudpickle.dumps(self._value)
        return self._pickled

    @property
    def value(self) -> Any:
        """The value itself."""
        with self._lock:
            if self._value is None:
                self._value = pickle.loads(self._pickled)  # noqa: S301  # nosec B301
        return self._value

    def itself(self) -> Shared:
        """Return itself: as the value of a task it stays in each worker's memory."""
        return self

    def __reduce__(self) -> Any:
        return Shared, (None, self.pickled)


@dataclass(frozen=True)
class Job:
    """What all tasks of a pass have in common."""

    start: Callable[[], Any]  # makes the accumulator or the function of a task
    changes: tuple[Change, ...]  # of every chunk
    rows: int  # of a chunk
    topic: str | None = None  # that finished tasks are reported to
    names: tuple[Any, ...] | None = None  # of the columns of x in every partition, in order

    def chunks(self, block: Chunk) -> Iterator[Chunk]:
        """Yield the chunks of a block of rows, changed."""
        # In another order numbers would change places.
        if self.names is not None and tuple(block.x.columns) != self.names:
            raise ValueError(
                f"{block.where} has the columns {list(block.x.columns)}, but dask says "
                f"{list(self.names)}; give every partition the same columns in the same order"
            )
        for chunk in placed(block, self.rows):
            yield reduce(lambda changed, change: change(changed), self.changes, chunk)


def assembled(blocks: list[Block], pieces: Sequence[Any]) -> Iterator[Chunk]:
    """Yield the chunk of each block, whose parts come in pieces of differing lengths."""
    left = iter(pieces)
    for row, count, where, numbers in blocks:
        parts = dict.fromkeys(DIMENSIONS)
        for name, n_pieces in numbers.items():
            rows = list(islice(left, n_pieces))
            parts[name] = rows[0] if len(rows) == 1 else frames.stack_rows(rows)
            _check_count(parts[name], count, where)
        x, s, y, weight, c = parts.values()
        y, weight = finite_columns(y, "y", where, row), weights(weight, where, row)
        yield Chunk(x, _as_columns(s), y, weight, row, where, _as_columns(c))


def placed(block: Chunk, rows: int) -> Iterator[Chunk]:
    """Yield a block in chunks of at most `rows` rows, with their global row numbers."""
    for chunk in ArraySource(block.x, block.s, block.y, block.weight, block.c).chunks(rows):
        yield replace(chunk, row=block.row + chunk.row, where=block.where)


def cut_rows(rows: Any, length: int, start: int, stop: int) -> Any:
    """Return rows start..stop−1 of a partition that was counted to have `length`."""
    _check_count(rows, length, "a partition")
    return frames.slice_rows(rows, start, stop)


def _as_columns(part: Any) -> Any:
    if part is None or len(part.shape) == 2:
        return part
    return part.reshape(-1, 1) if isinstance(part, np.ndarray) else part.to_frame()


def _check_count(rows: Any, count: int | None, where: str) -> None:
    if count is not None and len(rows) != count:
        raise ValueError(
            f"{where} has {len(rows)} rows, but {count} were counted before: the data changes from "
            "pass to pass; persist it, or fix its random seed"
        )


def read_rows(blocks: list[Block], *pieces: Any) -> list[Chunk]:
    """Return the chunks of all blocks."""
    return list(assembled(blocks, pieces))


def fold_rows(shared: Shared, blocks: list[Block], *pieces: Any) -> Any:
    """Feed all rows to one accumulator and return its result."""
    job: Job = shared.value
    with one_of_many():
        accumulator = job.start()
        for block in assembled(blocks, pieces):
            for chunk in job.chunks(block):
                accumulator.add(chunk)
        result = accumulator.result()
    if job.topic is not None:
        from distributed import get_worker

        with suppress(ValueError):  # a scheduler of this process counts for itself
            get_worker().log_event(job.topic, blocks[0][0])
    return result


def map_rows(shared: Shared, blocks: list[Block], shape: tuple[int, ...], *pieces: Any) -> Array:
    """Return function(chunk) of the rows, stacked."""
    job: Job = shared.value
    (block,) = assembled(blocks, pieces)
    if block.n_rows == 0:
        return np.empty((0, *shape))
    with one_of_many():
        function = job.start()
        return np.concatenate([function(chunk) for chunk in job.chunks(block)], dtype=np.float64)


def gathered(*results: Any) -> list[Any]:
    """Return the results in one list."""
    return list(results)


def array_of(tasks: Sequence[Any], lengths: Sequence[float], shape: tuple[int, ...]) -> Any:
    """Return the dask array of float64 whose partitions the tasks return, empty ones too."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    name = f"scalefair-array-{uuid4().hex}"
    keys: list[Any] = [(name, i, *(0 for _ in shape)) for i in range(len(tasks))]
    layer = {key: Alias(key, task.key) for key, task in zip(keys, tasks, strict=True)}
    return da.Array(  # type: ignore[no-untyped-call]
        HighLevelGraph.from_collections(name, layer, dependencies=tasks),
        name,
        chunks=(tuple(lengths), *((width,) for width in shape)),
        meta=np.empty((0,) * (1 + len(shape))),
    )


def total(*results: Any) -> Any:
    """Return the sum of results."""
    return reduce(add, results)


@contextmanager
def explained(client: Any) -> Iterator[None]:
    """Name in errors of the cluster what happened to it; those of the tasks pass as they are."""
    if client is None:
        yield
        return
    from distributed import CancelledError, KilledWorker
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError

    address = getattr(client.scheduler, "address", "of a closed client")
    if client.status != "running":  # dask would wait for it as long as for a new connection
        raise ConnectionError(_LOST.format(address=address, reason=f"client {client.status}"))
    try:
        yield
    except KilledWorker as error:
        raise LostWorkersError(
            f"dask gave up: {error} Workers that run out of memory are killed: make partitions "
            "smaller, or give workers fewer threads or more memory"
        ) from error
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ConnectionError(_LOST.format(address=address, reason=error)) from error


@contextmanager
def allowing(shared: Shared, client: Any) -> Iterator[None]:
    """Let the graph be larger by what is shared, which dask's warning mistakes for repetition."""
    from dask import config, utils

    if client is None:
        yield
        return
    size = utils.parse_bytes(config.get(_GRAPH_SIZE)) + len(shared.pickled)
    with config.set({_GRAPH_SIZE: size}):
        yield


@contextmanager
def watching(
    tasks: Sequence[Any], topic: str, client: Any, progress: Callable[[int, int], Any] | None
) -> Iterator[None]:
    """Call `progress` with how many of the tasks have finished, whenever one has."""
    if progress is None:
        yield
        return
    from dask.callbacks import Callback

    keys, done = {task.key for task in tasks}, set()  # a task lost with its worker runs twice

    def finished(task: Any) -> None:
        if task not in done:
            done.add(task)
            progress(len(done), len(keys))

    if client is None:
        after: Any = lambda key, *_: finished(key) if key in keys else None  # noqa: E731
        with Callback(posttask=after):  # type: ignore[no-untyped-call]
            yield
        return
    client.subscribe_topic(topic, lambda event: finished(event[1]))
    try:
        yield
    finally:
        client.unsubscribe_topic(topic)


def chosen_rows(value: Any, lengths: Sequence[int], keep: Keep) -> Any:
    """Return the rows of a dask array or frame whose global numbers `keep` chooses."""
    import dask.array as da
    import dask.dataframe as dd

    starts = np.cumsum([0, *lengths])
    counts = [int(keep(np.arange(a, a + n)).sum()) for a, n in zip(starts, lengths, strict=False)]
    delay = delays("choose")
    parts = [
        delay(_chosen, part, keep, int(start))
        for part, start in zip(np.ravel(value.to_delayed()), starts, strict=False)
    ]
    if isinstance(value, da.Array):
        shapes = [(count, *value.shape[1:]) for count in counts]
        arrays = [da.from_delayed(p, s, value.dtype) for p, s in zip(parts, shapes, strict=True)]  # type: ignore[no-untyped-call]
        return da.concatenate(arrays)  # type: ignore[no-untyped-call]
    return dd.from_delayed(parts, meta=value._meta)


def _chosen(rows: Any, keep: Keep, start: int) -> Any:
    numbers = np.arange(start, start + frames.n_rows(rows))
    return frames.take_rows(rows, np.flatnonzero(keep(numbers)))


def made_rows(make: Callable[[int, int], Any], n_rows: int, chunk: int) -> Any:
    """Return a dask frame of rows that `make(first, stop)` makes when they are needed."""
    import dask.dataframe as dd

    starts = list(range(0, n_rows, chunk))
    stops = [min(start + chunk, n_rows) for start in starts]
    from_map: Any = dd.from_map
    return from_map(make, starts, stops, meta=make(0, 0), divisions=(*starts, n_rows - 1))


def without_columns(value: Any, gone: Sequence[int]) -> Any:
    """Return a dask array or frame without some columns, by position."""
    left = np.delete(np.arange(value.shape[1]), gone).tolist()
    named = isinstance(value, WithColumns)
    return value[[value.columns[j] for j in left]] if named else value[:, left]


def dask_frame(scan: Scan) -> Any:
    """Return a scan as a dask frame of pieces, which workers read: they must see the same paths."""
    import dask.dataframe as dd

    from scalefair.data.sources.files import pieces_of, to_pandas

    no_rows = to_pandas(scan.files.schema(scan.columns).empty_table())
    read, pieces = partial(_read_frame, scan), pieces_of(scan)
    from_map: Any = dd.from_map
    return from_map(read, pieces, meta=no_rows, enforce_metadata=False, label="scan")


def _read_frame(scan: Scan, piece: Piece) -> Any:
    # No parameter may be called columns, or dask would read thrice.
    from scalefair.data.sources.files import read_piece, to_pandas

    return to_pandas(read_piece(scan, piece))


def in_order(client: Any, function: Callable[[Any, Any], Any], items: Sequence[Any], shared: Any) -> Iterator[Any]:
    """Yield function(item, shared) of every item, computed by workers, a bounded number ahead."""
    with explained(client):
        everywhere = client.scatter(shared, broadcast=True)
        ahead = IN_FLIGHT * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, everywhere, pure=False))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
