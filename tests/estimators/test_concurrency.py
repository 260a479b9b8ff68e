"""Fits and predictions from many threads and processes at once: the bits of one alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import ClassVar

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import ThreadpoolController

from scalefair import (
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
    held_out,
    load,
    save,
)
from scalefair.data.sources.threads import available_threads
from scalefair.features import Nystroem, base_model
from scalefair.kernels import RBF
from tests.cli_tools import ENV
from tests.models import fit_within

N = 1200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
S = X[:, 0] + RNG.normal(size=N)
Y = X @ [1.0, 2.0, 0.5] + S
COMMON = {"random_state": 0, "chunk_rows": 100, "n_jobs": 2}


def jobs(folder):
    """Things to do at once, each of which gives an array."""

    def work(cls, y=Y, **parameters):
        model = fit_within(parameters | COMMON, cls(), X, y, sensitive_features=S)
        return model.predict(X)

    model = fit_within(COMMON, FairKernelRidge(n_components=20), X, Y, sensitive_features=S)

    def save_and_load():
        save(model, folder / "m")  # all of them to the same file
        return load(folder / "m").predict(X)

    return [
        lambda: work(FairRidge, eta=1.0),
        lambda: work(FairKernelRidge, n_components=30),
        lambda: work(FairKernelRidge, n_components=30, feature_map="fourier", unfairness=0.1),
        lambda: work(FairKernelRidgeCV, n_components=20),
        lambda: work(FairKernelClassifier, y=Y > 0, n_components=20),
        lambda: work(FairGPRegressor, n_components=20, eta=1.0, noise=0.5),
        lambda: model.predict(X),
        save_and_load,
    ]


# Otherwise a solver sees the limit that another fit has set for its chunks.
@pytest.mark.usefixtures("one_blas_thread")
def test_many_threads_at_once_get_the_bits_of_one(tmp_path):
    todo = jobs(tmp_path)
    alone = [job() for job in todo]
    barrier = Barrier(len(todo), timeout=60)

    def run(i):
        barrier.wait()
        return [todo[(i + k) % len(todo)]() for k in range(len(todo))]

    with ThreadPoolExecutor(len(todo)) as pool:
        found = list(pool.map(run, range(len(todo))))
    for i, results in enumerate(found):
        for k, result in enumerate(results):
            np.testing.assert_array_equal(result, alone[(i + k) % len(todo)])
    assert os.listdir(tmp_path) == ["m"]
    (tmp_path / "new").touch()
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "new").stat().st_mode


PROCESSES = """
import hashlib, json, multiprocessing, sys, threading
import numpy as np
from numba import njit, prange, threading_layer
from scalefair import FairKernelRidge, config_context
from scalefair.data.sources.threads import one_blas_thread

@njit(parallel=True)
def of_the_user(x):
    total = 0.0
    for i in prange(len(x)):
        total += x[i]
    return total

def fit(number=0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    model = FairKernelRidge(n_components=30, random_state=0, n_jobs=2)
    with config_context(chunk_rows=100):
        model.fit(X, X[:, 0], sensitive_features=X[:, 1])
    return hashlib.sha256(model.coef_.tobytes() + model.predict(X).tobytes()).hexdigest()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    of_the_user(np.ones(1000))
    found = [fit()]
    with context.Pool(2) as pool:
        found += pool.map(fit, range(6), chunksize=1)
    if sys.argv[1] == "fork":  # which may happen while another thread computes
        with one_blas_thread(), context.Pool(2) as pool:
            found += pool.map(fit, range(2), chunksize=1)
    print(json.dumps([threading_layer(), found, threading.active_count()]))
"""


@pytest.mark.processes
@pytest.mark.parametrize("layer", ["workqueue", "omp"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_made_in_any_way_get_the_same_bits(method, layer, tmp_path):
    """With a parallel kernel of the user's own in the parent, whatever layer runs it."""
    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("no fork")
    (tmp_path / "script.py").write_text(PROCESSES)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", tmp_path / "script.py", method]
    env = {**ENV, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=300)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"no {layer} here")
    assert done.returncode == 0, done.stderr
    found_layer, digests, threads = json.loads(done.stdout)
    assert found_layer == layer
    assert len(digests) == (9 if method == "fork" else 7)
    assert len(set(digests)) == 1
    assert threads == 1


@pytest.mark.processes
def test_without_the_lock_of_the_interpreter_the_refusal_is_clear():
    """What a free-threaded build answers, if numba has not switched the lock on."""
    code = "import numba, sys\nsys._is_gil_enabled = lambda: False\nimport scalefair\nscalefair.FairRidge"
    done = subprocess.run([sys.executable, "-c", code], check=False, env=ENV, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: scalefair" in done.stderr
    assert "-X gil=1" in done.stderr


class Recording(HistGradientBoostingRegressor):
    """Trees that record how many threads OpenMP has where they predict."""

    seen: ClassVar[list[int]] = []

    def predict(self, X):
        openmp = ThreadpoolController().select(user_api="openmp").info()
        self.seen.extend(library["num_threads"] for library in openmp)
        return super().predict(X)


@pytest.mark.skipif(available_threads() < 2, reason="one core, or one thread of BLAS")
def test_threads_of_small_products_do_not_wait_for_each_other(monkeypatch):
    """On a busy machine threads of BLAS or OpenMP take ten times as long as one."""
    seen = {}

    def watch(owner, name):
        function = getattr(owner, name)

        def watched(*args):
            blas = ThreadpoolController().select(user_api="blas").info()
            seen.setdefault(name, set()).update(library["num_threads"] for library in blas)
            return function(*args)

        monkeypatch.setattr(owner, name, watched)

    watch(base_model, "whitened")  # of the functions of s that models of s learn
    watch(held_out, "partial_covariance")  # of the folds' shares
    model = FairKernelRidgeCV(base_estimator=Recording(max_iter=5), n_components=50, random_state=0, unfairness=0.1)
    model.fit(X, Y, sensitive_features=np.column_stack([S, Y]))
    watch(RBF, "against")  # K_ZZ of a map
    Nystroem(n_components=100).fit(X)
    assert Recording.seen
    assert {*Recording.seen} == {1}
    assert seen == {"whitened": {1}, "partial_covariance": {1}, "against": {1}}
