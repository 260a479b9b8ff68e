"""Interrupts at any moment, and threads that cannot be had: nothing is left half done."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from scalefair import FairKernelRidge, FairKernelRidgeCV, load, save, scan_parquet
from scalefair.data.sources import threads
from scalefair.data.sources.threads import run_threads
from scalefair.moments import Checkpoint
from tests.errors import refused
from tests.faults import RNG, SMALL, TIMES, S, X, Y, fitted, nothing_left_running
from tests.models import fit_within


@contextmanager
def interrupted_after(seconds):
    """What Ctrl-C does, so many seconds from now."""

    def interrupt(*_):
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def cross_validated():
    parameters = {name: value for name, value in SMALL.items() if name != "eta"}
    return fit_within(parameters, FairKernelRidgeCV(), X, Y, sensitive_features=S)


def jobs(folder):
    """What may be interrupted: each returns numbers."""
    table = pd.DataFrame(X, columns=list("abc")).assign(s=S, y=Y)
    table.to_parquet(folder / "d.parquet", row_group_size=500)
    model, scan = fitted(), scan_parquet(folder / "d.parquet")

    def fit_files():
        X, y, s = scan[["a", "b", "c"]], scan["y"], scan["s"]
        return fit_within(SMALL, FairKernelRidge(), X, y, sensitive_features=s).coef_

    def save_and_load():
        save(model, folder / "m")
        return load(folder / "m").coef_

    return {
        "fit": lambda: fitted().coef_,
        "cross-validation": lambda: cross_validated().coef_,
        "checkpoints": lambda: fitted(checkpoint=folder / "c").coef_,
        "predict": lambda: model.predict(X),
        "files": fit_files,
        "save": save_and_load,
    }


# Where it comes inside of a callback of the collector, Python can do no more than say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["fit", "cross-validation", "checkpoints", "predict", "files", "save"])
def test_an_interrupt_at_any_moment(name, tmp_path, monkeypatch):
    init = Checkpoint.__init__
    monkeypatch.setattr(Checkpoint, "__init__", lambda s, path: init(s, path, 0.0, 2))
    job = jobs(tmp_path)[name]
    expected = job()
    begin = time.perf_counter()
    np.testing.assert_array_equal(job(), expected)
    usual = time.perf_counter() - begin
    files, came, tries = set(os.listdir(tmp_path)), 0, 0
    # Many more where it comes too late: on a busy machine the usual time is nothing to go by.
    while tries < TIMES or (came < TIMES / 3 and tries < 50 * TIMES):
        tries += 1
        with nothing_left_running():
            begin = time.perf_counter()
            try:
                with interrupted_after(RNG.uniform(1e-5, usual)):
                    np.testing.assert_allclose(job(), expected, rtol=1e-8, atol=1e-9)
                usual = min(usual, time.perf_counter() - begin)
            except KeyboardInterrupt:
                came += 1
        assert set(os.listdir(tmp_path)) - files <= {"c", "m"}, "half-written"
        np.testing.assert_allclose(job(), expected, rtol=1e-8, atol=1e-9)
    assert came >= TIMES / 3


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_interrupt_between_the_starts_of_two_lanes(which, monkeypatch):
    """The lanes that have begun would wait for ever for the one that never came."""
    submit, calls, barrier = ThreadPoolExecutor.submit, [], threading.Barrier(3)

    def interrupt(*args):
        calls.append(args)
        if len(calls) == which + 1:
            raise KeyboardInterrupt
        return submit(*args)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupt)
    with nothing_left_running(), pytest.raises(KeyboardInterrupt):
        run_threads(lambda _: barrier.wait(5), 3, threading.Event())


def test_an_interrupt_while_the_limit_of_blas_is_lifted(monkeypatch):
    """The thread that set the limit would stay, and with it the limit."""
    living, calls = threads.living_threads, []

    def interrupted():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return living()

    monkeypatch.setattr(threads, "living_threads", interrupted)
    with nothing_left_running(), pytest.raises(KeyboardInterrupt), threads.one_blas_thread():
        pass
    assert len(calls) >= 2


def test_no_more_threads_is_a_clear_error(monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if threading.active_count() > before + 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    before = threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with nothing_left_running(), refused("n_jobs", error=MemoryError):
        fitted(n_jobs=4)
