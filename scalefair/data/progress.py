"""The steps of a fit, for estimators that have callbacks; a fit without has None instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import ceil
from threading import Lock
from typing import Any, Protocol

from scalefair._typing import Chunk
from scalefair.data.sources import ChunkSource, DaskSource, FileSource


class Progress(Protocol):
    """Reports the steps of a fit."""

    def watched(self, source: ChunkSource, rows: int, n_rows: int | None = None) -> AbstractContextManager[ChunkSource]:
        """Return the source for one pass in chunks of `rows`; every chunk read is a step."""

    def steps(self, name: str, count: int | None = None) -> AbstractContextManager[Callable[[], None]]:
        """Return a function to call after each of `count` steps, from any thread."""


@dataclass(frozen=True, eq=False)
class Callbacks:
    """Reports the steps of `fit` to the callbacks of an estimator that has some."""

    estimator: Any

    @contextmanager
    def watched(self, source: ChunkSource, rows: int, n_rows: int | None = None) -> Iterator[ChunkSource]:
        """Return the source for one pass; on a cluster its tasks are the steps, else chunks."""
        # The last chunk of every file may be a short one.
        files = len(source.x.files.listing.paths) if isinstance(source, FileSource) else 1
        most = None if n_rows is None else ceil(n_rows / rows) + files - 1
        name, most = ("tasks", None) if isinstance(source, DaskSource) else ("chunks", most)
        with self.steps(name, most) as step:
            if isinstance(source, DaskSource):
                yield source.watched(lambda _done, _all: step())
            else:
                yield source.then(_Counted(step))

    @contextmanager
    def steps(self, name: str, count: int | None = None) -> Iterator[Callable[[], None]]:
        """Return a function that reports one more of `count` steps to the callbacks."""
        whole = self.estimator._callback_fit_ctx.subcontext(task_name=name, max_subtasks=count)
        whole.call_on_fit_task_begin(estimator=self.estimator)
        lock = Lock()

        def step() -> None:
            with lock:
                one = whole.subcontext(task_name=name)
                one.call_on_fit_task_begin(estimator=self.estimator)
                one.call_on_fit_task_end(estimator=self.estimator)

        yield step
        whole.call_on_fit_task_end(estimator=self.estimator)


@dataclass(frozen=True, eq=False)
class _Counted:
    """Passes chunks on and counts each."""

    step: Callable[[], None]

    def __call__(self, chunk: Chunk) -> Chunk:
        self.step()
        return chunk
