"""The one policy for threads: work that can be divided gets one Python thread per core.

Chunks of a pass, folds and permutations each have a thread of their own, with BLAS limited to one.
So are folds' matrices of up to `SMALL` columns, side by side, and one alone of up to `ALONE`; larger
ones get all of BLAS. A limit that the caller sets (threadpoolctl, joblib, dask) holds throughout; our own
says nothing about the threads of a pass inside, but one of several threads starts no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from mmap import mmap
from threading import Event, Lock, Thread, local
from threading import enumerate as living_threads
from time import sleep
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
# Bytes of address space for the stack of a thread, usually 8 MiB, and its first steps
_STACK_BYTES = 3 * 2**22
# Columns up to which matrices are decomposed by one thread: beside others, and one at a time
SMALL, ALONE = 2000, 1000

TINY = 32  # columns up to which BLAS starts no threads, so that no limit is needed


class _Own(local):
    """What each thread has for itself."""

    is_one_of_many = False  # that work side by side, so that it starts no more


_own = _Own()
_lock = Lock()
_users: set[object] = set()
_limit: _Limit | None = None


@cache
def _controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


def available_threads() -> int:
    """Cores this process may use, and no more than the caller leaves to BLAS: joblib and dask limit that."""
    limit = _limit
    if _own.is_one_of_many:
        return 1
    if limit is not None:  # our own, which does not count
        return limit.before
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every operating system
        cores = os.cpu_count() or 1
    blas = [library["num_threads"] for library in _controller().info()]
    return max(1, int(min([cores, *blas])))


class _Limit(NamedTuple):
    """A limit of one BLAS thread, set and lifted by a thread of its own.

    threadpoolctl lets only the thread that set a limit lift it (since 3.8, silently), and of two
    fits in two threads the first to begin need not be the last to end.
    """

    thread: Thread
    is_set: Event
    end: Event
    before: int  # threads that were available


def _limit_until(is_set: Event, end: Event) -> None:
    """Limit BLAS to one thread until `end` is set."""
    try:
        with _controller().limit(limits=1):
            is_set.set()
            end.wait()
    finally:
        is_set.set()


def _forget() -> None:
    """Reset the state in a forked process, which has no other threads."""
    global _lock, _users, _limit, _own
    _lock, _users, _limit, _own = Lock(), set(), None, _Own()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def one_blas_thread(columns: int = ALONE) -> Iterator[None]:
    """Limit BLAS to one thread, in the whole process, while at least one caller is inside.

    Matrices with few `columns` need no limit, those with many none either: BLAS divides them well.
    """
    global _limit  # noqa: PLW0603
    if not TINY < columns <= ALONE:
        yield
        return
    user = object()
    try:
        with _lock:
            _users.add(user)
            if len(_users) == 1:
                events = Event(), Event()
                thread = Thread(target=_limit_until, args=events, daemon=True)
                _limit = _Limit(thread, *events, available_threads())
                with _starting(1):
                    thread.start()
                    _limit.is_set.wait()
        # Where the caller has set a limit of its own, only the caller's thread can lower it.
        with _controller().limit(limits=1):
            yield
    finally:
        try:
            _leave(user)
        except BaseException:  # an interrupt: else the limit would stay for ever
            _leave(user)
            raise


def _leave(user: object) -> None:
    """Lift the limit with the last user; a second call changes nothing."""
    global _limit  # noqa: PLW0603
    with _lock:
        _users.discard(user)
        if not _users and _limit is not None:
            _limit.end.set()
            # The start of the thread may have been interrupted.
            while _limit.thread in living_threads():
                _limit.thread.join() if _limit.thread.is_alive() else sleep(0.001)
            _limit = None


@contextmanager
def one_of_many() -> Iterator[None]:
    """Work in this thread alone, beside others: with one thread of BLAS, and no more of ours."""
    before = _own.is_one_of_many
    _own.is_one_of_many = True
    try:
        with one_blas_thread():
            yield
    finally:
        _own.is_one_of_many = before


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
        _own.is_one_of_many = True  # until this thread ends, with the pool
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
        raise MemoryError(f"{error}: no memory for a thread, or too many; use a smaller n_jobs") from error


def physical_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
