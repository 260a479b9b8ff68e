"""The one policy for threads: work that can be divided gets one Python thread per core.

Chunks of a pass, folds and permutations each have a thread of their own, with BLAS limited to one.
So are small matrices, of up to `SMALL` columns, that are decomposed one at a time; larger ones get
all of BLAS. A limit that the caller sets (threadpoolctl, joblib, dask) holds throughout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from mmap import mmap
from threading import Event, Lock, Thread
from threading import enumerate as living_threads
from time import sleep
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
# Bytes of address space for the stack of a thread, usually 8 MiB, and its first steps
_STACK_BYTES = 3 * 2**22
# Columns up to which a matrix is decomposed by one thread: more would wait for each other
SMALL = 2000

TINY = 32  # columns up to which BLAS starts no threads, so that nothing need be said to it

_lock = Lock()
_users: set[object] = set()
_keeper: _Keeper | None = None


@cache
def _controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


def available_threads() -> int:
    """Cores this process may use, and no more than BLAS may: joblib and dask limit that."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every operating system
        cores = os.cpu_count() or 1
    blas = [library["num_threads"] for library in _controller().info()]
    return max(1, int(min([cores, *blas])))


class _Keeper(Thread):
    """A thread that holds BLAS to one thread until it is let go.

    threadpoolctl lets only the thread that set a limit lift it (since 3.8, silently), and of two
    fits in two threads the first to begin need not be the last to end.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.limited, self._leave = Event(), Event()

    def run(self) -> None:
        try:
            with _controller().limit(limits=1):
                self.limited.set()
                self._leave.wait()
        finally:
            self.limited.set()

    def let_go(self) -> None:
        """End, and wait for it, even where the start of the thread was interrupted."""
        self._leave.set()
        while self in living_threads():
            self.join() if self.is_alive() else sleep(0.001)


def _forget() -> None:
    """Begin anew in a forked process, where the keeper and whoever held the lock are gone."""
    global _lock, _users, _keeper
    _lock, _users, _keeper = Lock(), set(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread, in the whole process, while at least one caller is inside."""
    global _keeper  # noqa: PLW0603
    user = object()
    try:
        with _lock:
            _users.add(user)
            if len(_users) == 1:
                _keeper = _Keeper()
                with _starting(1):
                    _keeper.start()
                    _keeper.limited.wait()
        # Where the caller holds a limit of its own, the keeper is powerless and the caller is not.
        with _controller().limit(limits=1):
            yield
    finally:
        try:
            _leave(user)
        except BaseException:  # an interrupt: else the limit would stay for ever
            _leave(user)
            raise


@contextmanager
def blas_threads_for(columns: int) -> Iterator[None]:
    """Hold BLAS to one thread for the linear algebra of small matrices, if it uses more at all."""
    with one_blas_thread() if TINY < columns <= SMALL else nullcontext():
        yield


def _leave(user: object) -> None:
    """Let the keeper go with the last user; twice does no harm."""
    global _keeper  # noqa: PLW0603
    with _lock:
        _users.discard(user)
        if not _users and _keeper is not None:
            _keeper.let_go()
            _keeper = None


def run_threads(work: Callable[[int], T], threads: int, stop: Event) -> list[T]:
    """Return [work(0), …] of as many threads; `stop` is set if one fails or the user interrupts."""
    if threads == 1:
        return [work(0)]
    begin, abandoned = Event(), Event()

    def wait_and_work(number: int) -> T:
        # Threads wait for each other's chunks: none may begin unless all have a thread.
        begin.wait()
        if abandoned.is_set():
            raise CancelledError
        return work(number)

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        try:
            with _starting(threads):
                futures = [pool.submit(wait_and_work, number) for number in range(threads)]
            begin.set()
            ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in ended):
                stop.set()  # before the results of the others are waited for
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            if not begin.is_set():
                abandoned.set()
            begin.set()
            raise


def run_each(work: Callable[[int], T], count: int, n_jobs: int | None = None) -> list[T]:
    """Return [work(0), …, work(count − 1)], as many at once as there are cores (or `n_jobs`)."""
    threads = min(count, n_jobs or available_threads())
    stop = Event()

    def run(number: int) -> list[T]:
        return [work(k) for k in range(number, count, threads) if not stop.is_set()]

    parts = run_threads(run, threads, stop)
    return [parts[k % threads][k // threads] for k in range(count)]


@contextmanager
def _starting(count: int) -> Iterator[None]:
    """Start so many threads here, or get a MemoryError."""
    try:  # Python waits for ever for a thread that finds no memory for its first steps
        mmap(-1, count * _STACK_BYTES).close()
        yield
    except (OSError, RuntimeError) as error:
        raise MemoryError(
            f"{error}: no memory for a thread, or too many; use a smaller n_jobs"
        ) from error
