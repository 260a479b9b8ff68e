"""Explicit features converge to the exact kernel fit as they grow in number."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair import FairKernelRidge


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    s = (X[:, 0] + 0.5 * rng.normal(size=250) > 0).astype(str)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=250)
    fit = {"sensitive_features": s}
    exact = FairKernelRidge(feature_map="exact", length_scale=1.5, alpha=1e-2, eta=1.0)
    return X, y, fit, exact.fit(X, y, **fit).predict(X)


def error(problem, seed, **parameters):
    X, y, fit, exact = problem
    model = FairKernelRidge(length_scale=1.5, alpha=1e-2, eta=1.0, random_state=seed, **parameters)
    return np.sqrt(np.mean((model.fit(X, y, **fit).predict(X) - exact) ** 2))


def test_fourier_at_the_rate_of_monte_carlo(problem):
    """The kernel's error falls as m^(−1/2), and the fit is a smooth function of the kernel.

    The mean over 24 seeds of a log error whose deviation is about 0.25 has a standard error of
    0.05; over two factors of 4 in m that is ±0.05 in the slope, so ±0.12 is more than two of them.
    """
    sizes = np.array([64, 256, 1024])
    means = [
        np.mean([np.log(error(problem, seed, feature_map="fourier", n_components=m)) for seed in range(24)])
        for m in sizes
    ]
    slope = np.polyfit(np.log(sizes), means, 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)


def test_nystroem_down_to_rounding_error_when_every_row_is_a_landmark(problem):
    means = [np.mean([error(problem, seed, n_components=m) for seed in range(6)]) for m in (25, 100, 250)]
    assert means[0] > 3 * means[1] > 9 * means[2]
    assert means[2] < 1e-7
