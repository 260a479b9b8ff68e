"""The paper's kernel ridge: one decomposition gives what one fit at a time gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.data import gram
from benchmarks.paper.ridge import Decomposed, Grid, chosen, cross_validated, factors, validation_errors
from scalefair.datasets import make_toy1
from scalefair.kernels import RBF
from scalefair.solve.dense.ridge import fair_dual

ALPHAS, ETAS = np.geomspace(1e-5, 1.0, 4), np.array([0.0, 0.5, 200.0])


@pytest.fixture(scope="module")
def toy():
    return make_toy1(60, random_state=0)


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
def test_one_decomposition_gives_every_ridge_and_weight(toy, penalty):
    K, L = RBF(1.0)(toy.data), gram(toy.sensitive_features)
    new = make_toy1(7, random_state=1)
    cross = RBF(1.0)(new.data, toy.data)
    model = Decomposed(K, toy.target)
    found = model.predict(cross, model.dual(factors(L, (penalty,), ETAS)[penalty], ALPHAS, ETAS))
    for a, alpha in enumerate(ALPHAS):
        for e, eta in enumerate(ETAS):
            fit = fair_dual(K, L, toy.target, alpha=alpha, eta=eta, penalty=penalty)
            np.testing.assert_allclose(found[:, a, e], fit.predict(cross), atol=3e-4)


def one_fold(toy, out, length_scale, alpha, eta):
    """Squared errors of one fold, by definition."""
    X, s, y = toy.data, toy.sensitive_features, toy.target
    kernel = RBF(length_scale)
    K, L = kernel(X[~out]), gram(s[~out])
    fit = fair_dual(K, L, y[~out], alpha=alpha, eta=eta, penalty="hsic")
    return np.sum((fit.predict(kernel(X[out], X[~out])) - y[out]) ** 2)


def test_validation_errors_are_those_of_refits(toy):
    grid = Grid(np.array([0.5, 2.0]), ALPHAS, ETAS)
    L = gram(toy.sensitive_features)
    found = validation_errors(toy.data, toy.target, L, grid, penalties=("hsic",), folds=3)["hsic"]
    assert found.shape == (2, 4, 3)
    folds = [np.arange(60) % 3 == fold for fold in range(3)]
    for i, a, e in [(0, 0, 0), (1, 2, 1), (0, 3, 2), (1, 1, 2)]:
        setting = (grid.length_scales[i], ALPHAS[a], ETAS[e])
        expected = sum(one_fold(toy, out, *setting) for out in folds) / 60
        assert found[i, a, e] == pytest.approx(expected, abs=1e-3)


def test_the_choice_is_the_least_error_at_every_weight_or_once():
    errors = np.array([[[3.0, 1.0], [2.0, 5.0]], [[4.0, 0.5], [9.0, 9.0]]])
    assert chosen(errors, "anew") == [(0, 1), (1, 0)]
    assert chosen(errors, "once") == [(0, 1), (0, 1)]


def test_predictions_are_those_of_the_chosen_fits(toy):
    grid = Grid(np.array([0.5, 2.0]), ALPHAS, ETAS)
    L, new = gram(toy.sensitive_features), make_toy1(9, random_state=2).data
    errors = validation_errors(toy.data, toy.target, L, grid, penalties=("hsic",), folds=5)["hsic"]
    for choice in ("anew", "once"):
        found = cross_validated(toy.data, toy.target, L, new, grid, choices=(choice,))
        for e, (i, a) in enumerate(chosen(errors, choice)):
            kernel = RBF(grid.length_scales[i])
            fit = fair_dual(kernel(toy.data), L, toy.target, alpha=ALPHAS[a], eta=ETAS[e], penalty="hsic")
            expected = fit.predict(kernel(new, toy.data))
            np.testing.assert_allclose(found["hsic", choice][:, e], expected, atol=3e-4)


def objective(K, L, y, c, penalty, alpha, eta):
    """Squared error + ridge + η × penalty of the dual coefficients c, by definition."""
    n = len(y)
    H = np.eye(n) - 1.0 / n
    M = H @ L @ H / n
    if penalty == "normalized":
        M = H @ L @ H @ np.linalg.inv(H @ L @ H + n * 1e-6 * np.eye(n))
    f, residual = K @ c, H @ (y - K @ c)
    return residual @ residual / n + alpha * c @ f + eta * f @ M @ f / n


@pytest.mark.parametrize(("mine", "other"), [("hsic", "normalized"), ("normalized", "hsic")])
def test_no_curve_lies_below_another_by_the_measure_that_it_minimises(toy, mine, other):
    """Why the paper's claim about toy 2 depends on the measure."""
    K, L = RBF(1.0)(toy.data), gram(toy.sensitive_features)
    alpha, weights = np.array([1e-3]), np.geomspace(1e-3, 1e3, 7)
    model, V = Decomposed(K, toy.target), factors(L, (mine, other), weights)
    rival = model.dual(V[other], alpha, weights)[:, 0].T
    for eta in weights:
        best = model.dual(V[mine], alpha, np.array([eta]))[:, 0, 0]
        least = objective(K, L, toy.target, best, mine, 1e-3, eta)
        for c in rival:
            assert least <= objective(K, L, toy.target, c, mine, 1e-3, eta) * (1 + 1e-3)
