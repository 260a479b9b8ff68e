"""The speed table: each line a ratio to something measured in the same run."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from benchmarks._measure import keep, ratio
from benchmarks._problems import (
    LENGTH_SCALE,
    N_FEATURES,
    bare_calls,
    bare_calls_with_blas_threads,
    bare_projection,
    fourier_map,
    nystroem_map,
    table,
)
from scalefair import FairKernelRidge, FairKernelRidgeCV, config_context


@pytest.fixture(scope="module")
def data():
    return table()


def fitter(data, feature_map, **settings):
    X, y, s = data
    model = FairKernelRidge(feature_map=feature_map, sensitive_kernel="categorical", eta=1.0, alpha=1e-4)

    def fit():
        with config_context(**settings):
            return model.fit(X, y, sensitive_features=s)

    return fit


def record(benchmark, name, value, target):
    seconds = benchmark.stats.stats.median if benchmark.stats else 0.0
    keep(
        name,
        value,
        target,
        seconds=f"{seconds:.3f}",
        reference_seconds=f"{benchmark.extra_info['reference_seconds']:.3f}",
    )


def test_fourier_fit_against_bare_blas(benchmark, data):
    X, _, _ = data
    fit = fitter(data, fourier_map(X))
    value = ratio(benchmark, fit, bare_calls(X, N_FEATURES))
    record(benchmark, "Fourier fit / bare BLAS calls", value, "<= 1.15")


def test_threads_of_chunks_against_threads_of_blas(benchmark, data):
    X, _, _ = data
    other = bare_calls_with_blas_threads(X, N_FEATURES)
    value = ratio(benchmark, bare_calls(X, N_FEATURES), other)
    record(benchmark, "bare calls: chunk threads / BLAS threads", value, "the quicker is used")


def test_nystroem_fit_against_bare_blas(benchmark, data):
    X, _, _ = data
    fit = fitter(data, nystroem_map(X))
    value = ratio(benchmark, fit, bare_calls(X, N_FEATURES))
    record(benchmark, "Nyström fit / bare BLAS calls", value, "<= 1.25")


def test_fourier_fit_against_scikit_learn(benchmark, data):
    X, y, _ = data
    gamma = 0.5 / LENGTH_SCALE**2
    peer = make_pipeline(RBFSampler(gamma=gamma, n_components=N_FEATURES, random_state=0), Ridge())
    value = ratio(benchmark, fitter(data, fourier_map(X)), lambda: peer.fit(X, y), rounds=3)
    record(benchmark, "scikit-learn RBFSampler + Ridge / Fourier fit", 1 / max(value, 1e-9), ">= 3")


def test_float32_against_float64(benchmark, data):
    X, _, _ = data
    double = fitter(data, fourier_map(X))
    single = fitter(data, fourier_map(X), dtype="float32")
    value = ratio(benchmark, single, double)
    record(benchmark, "float64 fit / float32 fit", 1 / max(value, 1e-9), ">= 1.6")


def test_cross_validation_against_one_fit(benchmark, data):
    X, y, s = data
    phi = fourier_map(X)
    search = FairKernelRidgeCV(
        feature_map=phi,
        sensitive_kernel="categorical",
        alphas=np.logspace(-6, 0, 10),
        etas=np.logspace(-2, 6, 25),
        cv=5,
        random_state=0,
    )
    value = ratio(benchmark, lambda: search.fit(X, y, sensitive_features=s), fitter(data, phi), rounds=3)
    record(benchmark, "5-fold CV of 10 x 25 / one fit", value, "<= 2")


def test_path_against_one_fit(benchmark, data):
    X, _, _ = data
    fit = fitter(data, fourier_map(X))
    model = fit()
    alphas, etas = np.logspace(-6, 0, 10), np.logspace(-2, 6, 25)
    value = ratio(benchmark, lambda: model.path(alphas, etas).table, fit, rounds=3)
    record(benchmark, "path of 10 x 25 / one fit", value, "<= 0.15")


def test_predict_against_projection(benchmark, data):
    X, _, _ = data
    model = fitter(data, fourier_map(X))()
    value = ratio(benchmark, lambda: model.predict(X), bare_projection(X, N_FEATURES))
    record(benchmark, "predict / bare projection", value, "<= 1.5")
