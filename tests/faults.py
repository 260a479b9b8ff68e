"""A small fit for things to happen to, and a look at what they leave behind."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager

import numpy as np
from threadpoolctl import ThreadpoolController

from scalefair import FairKernelRidge
from tests.models import fit_within

TIMES = 3 * int(os.environ.get("SCALEFAIR_FUZZ", "1"))
"""How often a fault comes, at moments that differ; ``SCALEFAIR_FUZZ=20``: sixty times."""

N = 3000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
S = X[:, 0] + RNG.normal(size=N)
Y = X @ [1.0, 2.0, 0.5] + S + RNG.normal(size=N)
SMALL = {"eta": 1.0, "n_components": 30, "random_state": 0, "chunk_rows": 100, "n_jobs": 2}


def fitted(cls=FairKernelRidge, **parameters):
    return fit_within({**SMALL, **parameters}, cls(), X, Y, sensitive_features=S)


def blas_threads():
    return [lib["num_threads"] for lib in ThreadpoolController().select(user_api="blas").info()]


@contextmanager
def nothing_left_running():
    """Threads, open files and the limit of BLAS are afterwards what they were before."""
    threads, limit = set(threading.enumerate()), blas_threads()
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    yield
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.001)
    assert set(threading.enumerate()) <= threads
    assert blas_threads() == limit
    assert not files or len(os.listdir("/proc/self/fd")) <= files + 1
