"""What a task of dask does with its rows, and how a graph of such tasks is run."""

from __future__ import annotations

import pickle  # nosec B403
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np

from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.sources.arrays import ArraySource
from scalefair.data.sources.base import Change, targets, weights
from scalefair.data.sources.threads import one_blas_thread
from scalefair.errors import LostWorkersError

_GRAPH_SIZE = "distributed.admin.large-graph-warning-threshold"
_LOST = (
    "the dask scheduler at {address} was lost, or lost what it was given ({reason}); start it "
    "again if need be, connect anew (scalefair.data.sources.connect) and repeat"
)


class Tasks(dict[Any, Any]):
    """A layer of a graph of dask: tasks by key.

    Parameters
    ----------
    kind : str
        What they do, for dask's dashboard.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.name = f"scalefair-{kind}-{uuid4().hex}"
        self.shared: Shared | None = None
        self.count = 0

    def add(self, function: Callable[..., Any], *args: Any, key: Any = None) -> Any:
        """Add function(*args) and return the reference to its value."""
        key = (self.name, "step", len(self)) if key is None else key
        self[key] = task(function, *args, key=key)
        return ref(key)

    def share(self, value: Any) -> Any:
        """Add a value that every worker gets once; return the reference to it."""
        self.shared = Shared(value)
        return self.add(Shared.itself, self.shared)

    def graph(self, collections: Sequence[Any]) -> Any:
        """Return the graph of these tasks on top of the collections' own."""
        from dask.highlevelgraph import HighLevelGraph

        return HighLevelGraph.from_collections(self.name, dict(self), dependencies=collections)


def task(function: Callable[..., Any], *args: Any, key: Any = None) -> Any:
    """Return the task function(*args)."""
    from dask.task_spec import Task

    return Task(key, function, *args)


def ref(key: Any) -> Any:
    """Return the argument that stands for the value of a key."""
    from dask.task_spec import TaskRef

    return TaskRef(key)


def list_of(args: Iterable[Any]) -> Any:
    """Return the argument that stands for a list of arguments."""
    from dask.task_spec import List

    return List(*args)


class Shared:
    """A value that is pickled once, and unpickled once in each process when it is first used.

    Feature maps of many megabytes travel as bytes: the scheduler never builds them.

    Parameters
    ----------
    value : object
        Anything that cloudpickle can pickle; within one process nothing is pickled.
    """

    def __init__(self, value: Any) -> None:
        self._value, self._pickled, self._lock = value, b"", Lock()

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

    @classmethod
    def _from_bytes(cls, pickled: bytes) -> Shared:
        shared = cls(None)
        shared._pickled = pickled
        return shared

    def __reduce__(self) -> Any:
        return self._from_bytes, (self.pickled,)


@dataclass(frozen=True)
class Job:
    """What all tasks of a pass have in common.

    Parameters
    ----------
    start : callable
        Makes the accumulator or the function of a task.
    changes : tuple of callables
        Applied to every chunk.
    rows : int
        Rows per chunk.
    topic : str or None
        Where workers report finished tasks.
    names : tuple or None
        Names of the columns that x must have in every partition, in this order.
    """

    start: Callable[[], Any]
    changes: tuple[Change, ...]
    rows: int
    topic: str | None = None
    names: tuple[Any, ...] | None = None

    def chunks(self, block: Chunk) -> Iterator[Chunk]:
        """Yield the chunks of a block of rows, changed."""
        _check_names(block, self.names)
        for chunk in placed(block, self.rows):
            yield reduce(lambda changed, change: change(changed), self.changes, chunk)


def _check_names(block: Chunk, names: tuple[Any, ...] | None) -> None:
    """Refuse a partition with other columns than dask says: numbers would change places."""
    if names is not None and tuple(block.x.columns) != names:
        raise ValueError(
            f"{block.where} has the columns {list(block.x.columns)}, but dask says {list(names)}; "
            "give every partition the same columns in the same order"
        )


def placed(block: Chunk, rows: int) -> Iterator[Chunk]:
    """Yield a block in chunks of at most `rows` rows that know their place in the data set."""
    for chunk in ArraySource(block.x, block.s, block.y, block.weight, block.c).chunks(rows):
        yield replace(chunk, row=block.row + chunk.row, where=block.where)


def cut(rows: Any, length: int, start: int, stop: int) -> Any:
    """Return rows start..stop−1 of a partition that was counted to have `length`."""
    _check_count(rows, length, "a partition")
    return frames.slice_rows(rows, start, stop)


def assemble(row: int, count: int | None, where: str, *parts: list[Any] | None) -> Chunk:
    """Return the chunk of `count` rows whose parts come in pieces of differing lengths."""
    x, s, y, weight, c = (None if pieces is None else _joined(pieces) for pieces in parts)
    for part in (x, s, y, weight, c):
        if part is not None and count is not None:
            _check_count(part, count, where)
    y, weight = targets(y, where, row), weights(weight, where, row)
    return Chunk(x, _columns(s), y, weight, row, where, _columns(c))


def _columns(part: Any) -> Any:
    if part is None or len(part.shape) == 2:
        return part
    return part.to_frame() if hasattr(part, "to_frame") else part.reshape(-1, 1)


def _joined(pieces: list[Any]) -> Any:
    return pieces[0] if len(pieces) == 1 else frames.stack_rows(pieces)


def _check_count(rows: Any, count: int, where: str) -> None:
    if len(rows) != count:
        raise ValueError(
            f"{where} has {len(rows)} rows, but {count} were counted before: the data changes from "
            "pass to pass; persist it, or fix its random seed"
        )


def fold_rows(shared: Shared, blocks: list[Chunk]) -> Any:
    """Feed all rows to one accumulator and return its result."""
    job: Job = shared.value
    with one_blas_thread():
        accumulator = job.start()
        for block in blocks:
            for chunk in job.chunks(block):
                accumulator.add(chunk)
        result = accumulator.result()
    if job.topic is not None:
        _report(job.topic, blocks[0].row)
    return result


def map_rows(shared: Shared, block: Chunk, shape: tuple[int, ...]) -> Array:
    """Return function(chunk) of the rows, stacked."""
    if block.n_rows == 0:
        return np.empty((0, *shape))
    job: Job = shared.value
    with one_blas_thread():
        function = job.start()
        return np.concatenate([function(chunk) for chunk in job.chunks(block)], dtype=np.float64)


def total(results: list[Any]) -> Any:
    """Return the sum of results."""
    return reduce(add, results)


def _report(topic: str, row: int) -> None:
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # a scheduler of this process counts for itself
        return
    worker.log_event(topic, row)


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
def room_for(tasks: Tasks, client: Any) -> Iterator[None]:
    """Let the graph be larger by what is shared, which dask's warning takes for repetition."""
    from dask import config, utils

    if client is None or tasks.shared is None:
        yield
        return
    room = utils.parse_bytes(config.get(_GRAPH_SIZE)) + len(tasks.shared.pickled)
    with config.set({_GRAPH_SIZE: room}):
        yield


@contextmanager
def watched(
    tasks: Tasks, client: Any, progress: Callable[[int, int], Any] | None
) -> Iterator[None]:
    """Call `progress` whenever one of the tasks that were counted has finished."""
    if progress is None or not tasks.count:
        yield
        return
    done: set[Any] = set()  # a task that was lost with its worker runs twice

    def finished(task: Any) -> None:
        if task not in done:
            done.add(task)
            progress(len(done), tasks.count)

    with _locally(tasks, finished) if client is None else _remotely(tasks, client, finished):
        yield


def _locally(tasks: Tasks, finished: Callable[[Any], None]) -> Any:
    from dask.callbacks import Callback

    def after(key: Any, *_: Any) -> None:
        if key[:2] == (tasks.name, "rows"):
            finished(key)

    return Callback(posttask=after)  # type: ignore[no-untyped-call]


@contextmanager
def _remotely(tasks: Tasks, client: Any, finished: Callable[[Any], None]) -> Iterator[None]:
    client.subscribe_topic(tasks.name, lambda event: finished(event[1]))
    try:
        yield
    finally:
        client.unsubscribe_topic(tasks.name)
