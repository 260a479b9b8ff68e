"""One Python thread per core with BLAS held to one thread each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_lock = Lock()
_users = 0
_limit: Any = None


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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread while at least one caller is inside.

    The limit is global to the process. Callers are counted, so that two fits in two threads do not
    restore each other's limit.
    """
    global _users, _limit  # noqa: PLW0603
    with _lock:
        _users += 1
        if _users == 1:
            _limit = _controller().limit(limits=1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()


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
            wait(futures, return_when=FIRST_EXCEPTION)
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            raise
