"""The promises of docs/theory/determinism.md: the same bits, or ten digits, and when."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import cache

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from scalefair import (
    BatchSource,
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRegressor,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
)
from scalefair.maps import Nystroem
from tests.cli_tools import ENV
from tests.containers import contained
from tests.models import fit_within

N = 900
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
S = X[:, 0] + RNG.normal(size=N)
Y = X @ [1.0, 2.0, 0.5] + S + RNG.normal(size=N)
LABELS = np.where(Y > 0, "yes", "no")
MANY = 5000
NEW = RNG.normal(size=(MANY, 3))
SMALL = {"n_components": 30, "random_state": 0}

LEVERAGE = Nystroem(n_components=30, landmarks="leverage", length_scale=2.0, random_state=0)
MODELS = {
    "linear": (FairRidge, {"eta": 1.0, "random_state": 0}, Y),
    "nystroem": (FairKernelRidge, SMALL, Y),
    "leverage": (FairKernelRidge, {**SMALL, "feature_map": LEVERAGE}, Y),
    "fourier": (FairKernelRidge, {**SMALL, "feature_map": "fourier", "unfairness": 0.1}, Y),
    "float32": (FairKernelRidge, {**SMALL, "dtype": "float32"}, Y),
    "cross-validated": (FairKernelRidgeCV, SMALL, Y),
    "classifier": (FairKernelClassifier, SMALL, LABELS),
    "poisson": (FairKernelRegressor, {**SMALL, "loss": "poisson"}, np.exp(Y / 10)),
    "gp": (FairGPRegressor, {**SMALL, "eta": 1.0, "noise": 0.5, "optimizer": None}, Y),
    "gp classifier": (FairGPClassifier, {**SMALL, "eta": 1.0, "optimizer": None}, LABELS),
}
every_model = pytest.mark.parametrize("name", MODELS)


def fit(name, X=X, y=None, s=S, **parameters):
    cls, own, target = MODELS[name]
    options = {**own, **parameters}
    if isinstance(X, BatchSource):
        return fit_within(options, cls(), X, None)
    y = target if y is None else y
    return fit_within(options, cls(), X, y, sensitive_features=s)


def scores(model, rows=X):
    """What is predicted, as numbers."""
    if hasattr(model, "feature_names_in_"):
        rows = pd.DataFrame(rows, columns=model.feature_names_in_)
    known = getattr(model, "predict_proba", None)
    return np.asarray(model.predict(rows) if known is None else known(rows))


@cache
def reference(name):
    return scores(fit(name, chunk_rows=100, n_jobs=2))


def ten_digits(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@every_model
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_the_same_fit_again_gives_the_same_bits(name, n_jobs):
    first, second = (fit(name, chunk_rows=100, n_jobs=n_jobs) for _ in range(2))
    np.testing.assert_array_equal(scores(first), scores(second))
    for attribute in ("coef_", "intercept_", "explained_share_"):
        np.testing.assert_array_equal(getattr(first, attribute, 0), getattr(second, attribute, 0), attribute)


@every_model
def test_predictions_have_the_same_bits_for_any_number_of_threads(name):
    model = fit(name)
    expected = scores(model.set_params(n_jobs=1), NEW)
    for n_jobs in (2, 3, 5, None):
        np.testing.assert_array_equal(scores(model.set_params(n_jobs=n_jobs), NEW), expected)


@every_model
def test_fits_agree_for_any_number_of_threads_and_any_chunks(name):
    digits = ten_digits if name != "float32" else seven_digits
    for n_jobs, chunk_rows in [(1, 100), (3, 100), (2, 7), (2, 333), (1, 10**6), (None, None)]:
        digits(scores(fit(name, n_jobs=n_jobs, chunk_rows=chunk_rows)), reference(name))


def seven_digits(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.fixture(scope="module")
def containers(tmp_path_factory):
    """The same rows in every place they may come from: (X, y, s) each."""
    table = pd.DataFrame(X, columns=list("abc")).assign(y=Y, s=S)
    roles = {"X": ["a", "b", "c"], "y": "y", "sensitive_features": "s"}
    found = {
        kind: contained(kind, table, tmp_path_factory.mktemp(kind), **roles)
        for kind in ("parquet", "csv", "dask", "batches")
    }
    found["dask arrays"] = da.from_array(X, (110, 3)), da.from_array(Y, 90), da.from_array(S, N)
    return found


@pytest.mark.parametrize("where", ["parquet", "csv", "dask", "dask arrays", "batches"])
@pytest.mark.parametrize("name", ["linear", "nystroem", "leverage", "fourier", "cross-validated"])
def test_fits_agree_wherever_the_rows_come_from(name, where, containers):
    x, y, s = containers[where]
    ten_digits(scores(fit(name, x, y, s, chunk_rows=100)), reference(name))


@pytest.mark.parametrize(
    "scheduler", ["synchronous", "threads", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_fits_agree_on_every_scheduler(scheduler, containers):
    x, y, s = containers["dask arrays"]
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = scores(fit("nystroem", x, y, s))
    ten_digits(found, reference("nystroem"))


@pytest.mark.parametrize("where", ["parquet", "csv", "dask arrays", "batches"])
def test_the_landmarks_are_the_same_rows(where, containers):
    """Chosen by a hash of their numbers, so that no container or chunking can tell."""
    expected = fit("nystroem").phi_.landmarks_
    x, y, s = containers[where]
    found = fit("nystroem", x, y, s, chunk_rows=77, n_jobs=3).phi_.landmarks_
    np.testing.assert_array_equal(found, expected)


@pytest.mark.processes
def test_another_process_gets_the_same_bits():
    """Whatever the seed of Python's hashes."""
    code = (
        "import hashlib, sys\nfrom tests.estimators.test_determinism import fit, scores\n"
        "both = [scores(fit(n, chunk_rows=100, n_jobs=2)) for n in ('nystroem', 'cross-validated')]"
        "\nprint(hashlib.sha256(b''.join(x.tobytes() for x in both)).hexdigest())"
    )
    with threadpool_limits(1, user_api="blas"):  # as in the other process
        both = [scores(fit(n, chunk_rows=100, n_jobs=2)) for n in ("nystroem", "cross-validated")]
    expected = hashlib.sha256(b"".join(x.tobytes() for x in both)).hexdigest()
    done = subprocess.run(
        [sys.executable, "-c", code], env={**ENV, "PYTHONHASHSEED": "1234"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
