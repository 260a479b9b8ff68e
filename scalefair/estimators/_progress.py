"""The steps of a fit, as scikit-learn's callbacks see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from threading import Lock
from typing import Any

from scalefair._typing import Chunk
from scalefair.data.sources import ChunkSource, DaskSource, FileSource


@contextmanager
def watched(
    estimator: Any, source: ChunkSource, rows: int, n_rows: int | None
) -> Iterator[ChunkSource]:
    """Give the source back, with the estimator's callbacks told of every chunk that is read.

    On a dask cluster they are told of its tasks as they finish.
    """
    if not _has_listeners(estimator):
        yield source
    elif isinstance(source, DaskSource):
        with steps(estimator, "tasks", None) as tell:
            yield source.watched(lambda _done, _all: tell())
    else:
        with steps(estimator, "chunks", _most_chunks(source, rows, n_rows)) as tell:
            yield source.then(_Told(tell))


def _has_listeners(estimator: Any) -> bool:
    """Return True if callbacks listen: they do so during `fit` only, not to `path` or `collect`."""
    return bool(getattr(estimator, "_skl_callbacks", None)) and hasattr(
        estimator, "_callback_fit_ctx"
    )


def _most_chunks(source: ChunkSource, rows: int, n_rows: int | None) -> int | None:
    """Return how many chunks there may be: the last one of every file may be a short one."""
    files = len(source.x.files.found.paths) if isinstance(source, FileSource) else 1
    return None if n_rows is None else ceil(n_rows / rows) + files - 1


class _Told:
    """Passes chunks on and tells of each."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __call__(self, chunk: Chunk) -> Chunk:
        self._tell()
        return chunk


@contextmanager
def steps(estimator: Any, name: str, count: int | None) -> Iterator[Callable[[], None]]:
    """Give a function that tells the callbacks of one more of `count` steps, from any thread."""
    if not _has_listeners(estimator):
        yield lambda: None
        return
    whole = estimator._callback_fit_ctx.subcontext(task_name=name, max_subtasks=count)
    whole.call_on_fit_task_begin(estimator=estimator)
    lock = Lock()

    def tell() -> None:
        with lock:
            step = whole.subcontext(task_name=name)
            step.call_on_fit_task_begin(estimator=estimator)
            step.call_on_fit_task_end(estimator=estimator)

    yield tell
    whole.call_on_fit_task_end(estimator=estimator)
