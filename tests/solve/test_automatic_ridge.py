"""alpha="auto" of the ridges: generalised cross-validation, against the matrix written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from scalefair import FairRidge
from scalefair.solve.ridge.path import Spectrum, Tridiagonal, best_alpha


def naive_gcv(Phi, y, alpha, fit_intercept):
    """|y − Hy|²/(1 − 1.4 tr H/n)², with the n×n matrix H written out."""
    n = len(y)
    centred = Phi - Phi.mean(axis=0) if fit_intercept else Phi
    ridge = n * alpha * np.eye(Phi.shape[1])
    H = centred @ np.linalg.solve(centred.T @ centred + ridge, centred.T)
    H += fit_intercept * np.full((n, n), 1 / n)
    room = 1 - 1.4 * np.trace(H) / n
    return np.sum((y - H @ y) ** 2) / room**2 if room > 0 else np.inf


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("noise", [3.0, 30.0])
@pytest.mark.parametrize("width", [25, 60])  # eigenvectors, or a tridiagonal matrix
def test_the_automatic_ridge_has_the_least_generalised_error(width, noise, fit_intercept):
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(500, width)) + 1
    y = Phi[:, :2] + noise * rng.normal(size=(500, 2))
    s = rng.normal(size=500)
    model = FairRidge(eta=0.5, fit_intercept=fit_intercept, random_state=0)
    model.fit(Phi, y, sensitive_features=s)
    grid = model.alpha_ * np.logspace(-3, 3, 361)
    errors = [naive_gcv(Phi, y, alpha, fit_intercept) for alpha in grid]
    # α is one of a grid with eight steps a decade.
    best = grid[int(np.argmin(errors))]
    at_most = np.trace(np.cov(Phi.T, bias=True)) if fit_intercept else np.sum(Phi**2) / 500
    assert abs(np.log10(model.alpha_ / min(best, at_most))) <= 1 / 14
    given = clone(model).set_params(alpha=model.alpha_).fit(Phi, y, sensitive_features=s)
    np.testing.assert_allclose(given.coef_, model.coef_, rtol=1e-10)


@pytest.mark.parametrize("width", [2, 3, 40])
def test_a_tridiagonal_matrix_explains_what_eigenvectors_do(width):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, width)) * 10.0 ** rng.uniform(-1, 1, width), rng.normal(size=(500, 2))
    model = FairRidge().fit(X, y + X[:, :1], sensitive_features=rng.normal(size=500))
    system = replace(model._system(model._design, model.moments_), ridge=rng.uniform(1, 2, width))
    reduced, spectrum, alphas = Tridiagonal.of(system), Spectrum.of(system), np.logspace(-9, 3, 9)
    np.testing.assert_allclose(reduced.values, spectrum.values, atol=1e-13 * spectrum.values.max())
    np.testing.assert_allclose(reduced.explained(alphas), spectrum.explained(alphas), rtol=1e-10)
    assert best_alpha(system, reduced) == best_alpha(system, spectrum)


def test_the_automatic_ridge_of_an_exact_fit_does_not_depend_on_rounding():
    X = np.random.default_rng(0).normal(size=(500, 5))
    y, s = X @ np.arange(5.0), np.arange(500.0) % 3
    ridges = [
        FairRidge(eta=0.0).fit(X[order], y[order], sensitive_features=s[order]).alpha_
        for order in (np.random.default_rng(k).permutation(500) for k in range(5))
    ]
    np.testing.assert_allclose(ridges, ridges[0], rtol=1e-12)


def test_the_automatic_ridge_has_no_units():
    """y = 1e7 ± 1, y in other units, and weights of 100 get the ridge of y itself."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 20))
    y, s = X[:, 0] + 3 * rng.normal(size=500), np.array(["a", "b", "c", "d"] * 125)
    ridge = FairRidge().fit(X, y, sensitive_features=s).alpha_
    assert 1e-3 < ridge < 1
    for other in (y + 1e7, 1e-6 * y, -1e6 * y):
        assert FairRidge().fit(X, other, sensitive_features=s).alpha_ == pytest.approx(ridge)
    for weight in (1 / 500, 100.0):
        weighted = FairRidge().fit(X, y, sensitive_features=s, sample_weight=np.full(500, weight))
        assert weighted.alpha_ == pytest.approx(ridge)
