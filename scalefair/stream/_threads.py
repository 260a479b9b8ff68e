"""One Python thread per core with BLAS held to one thread each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_lock = Lock()
_users = 0
_keeper: _Keeper | None = None


@cache
def _controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


def available_threads() -> int:
    """Cores this process may use, and no more than BLAS may.

    joblib, dask and careful users limit BLAS where several fits share the machine; the number of
    chunk threads follows the same limit instead of asking for one more setting.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every operating system
        cores = os.cpu_count() or 1
    blas = [library["num_threads"] for library in _controller().info()]
    return max(1, int(min([cores, *blas])))


class _Keeper:
    """A thread that holds BLAS to one thread until it is let go.

    threadpoolctl lets only the thread that set a limit lift it (since 3.8, silently), and of two
    fits in two threads the first to begin need not be the last to end.
    """

    def __init__(self) -> None:
        self._leave, held = Event(), Event()
        self._thread = Thread(target=self._hold, args=(held,), daemon=True)
        self._thread.start()
        held.wait()

    def _hold(self, held: Event) -> None:
        try:
            with _controller().limit(limits=1):
                held.set()
                self._leave.wait()
        finally:
            held.set()

    def let_go(self) -> None:
        self._leave.set()
        self._thread.join()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread while at least one caller is inside.

    The limit is global to the process. Callers are counted, so that two fits in two threads do not
    restore each other's limit.
    """
    global _users, _keeper  # noqa: PLW0603
    with _lock:
        _users += 1
        if _users == 1:
            _keeper = _Keeper()
    try:
        # Where the caller holds a limit of its own, the keeper is powerless and the caller is not.
        with _controller().limit(limits=1):
            yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _keeper is not None:
                _keeper.let_go()


def run_lanes(work: Callable[[int], T], lanes: int, stop: Event) -> list[T]:
    """Return [work(0), …, work(lanes − 1)], each in a thread of its own.

    `stop` is set as soon as one of them fails or the user interrupts; workers that look at it then
    end early instead of finishing their rows.
    """
    if lanes == 1:
        return [work(0)]
    with one_blas_thread(), ThreadPoolExecutor(lanes) as pool:
        futures = [pool.submit(work, lane) for lane in range(lanes)]
        try:
            ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in ended):
                stop.set()  # before the results of the others are waited for
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            raise
