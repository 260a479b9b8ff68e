"""The dense dual and the explained share against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from scalefair.moments import Moments
from scalefair.penalties import share_of_block
from scalefair.solve.dense.ridge import fair_dual
from tests import naive
from tests.errors import refused
from tests.naive import close, features, kernels, weights

PENALTIES = ["hsic", "normalized"]
INTERCEPT = [True, False]


def explained_share(f, L, *, eps=1e-6, weight=None):
    """The library's share, of features of a Gram matrix."""
    values, vectors = np.linalg.eigh(L)
    Psi = vectors * np.sqrt(np.where(values > 1e-13 * values.max(), values, 0.0))
    blocks = {"phi": naive.columns(f), "psi": Psi, "y": naive.columns(f)}
    return share_of_block(Moments.of_rows(blocks, naive.ones_if_none(weight, len(f))), eps)


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_dual_is_primal_minimiser(penalty, fit_intercept, weighted, outputs):
    Phi, Psi, y = features(outputs=outputs)
    common = {
        "alpha": 1e-2,
        "eta": 5.0,
        "eps": 1e-3,
        "penalty": penalty,
        "fit_intercept": fit_intercept,
        "weight": weights(len(y)) if weighted else None,
    }
    b, coef = naive.ridge(Phi, Psi, y, **common)
    fit = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, **common)
    close(Phi.T @ fit.dual_coef, coef, 1e-9)
    assert fit.dual_coef.shape == y.shape
    np.testing.assert_allclose(fit.intercept, b, rtol=1e-9, atol=0)
    Phi_new = features(seed=1)[0]
    close(fit.predict(Phi_new @ Phi.T), b + Phi_new @ coef, 1e-9)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [*PENALTIES, "nocco"])
def test_reference_minimises_the_objective(penalty, weighted, fit_intercept):
    """The normal equations in naive.py against an optimiser, so that they can be trusted."""
    Phi, Psi, y = features()
    common = {"alpha": 1e-2, "eta": 2.0, "eps": 1e-2, "penalty": penalty}
    common["weight"] = weights(len(y)) if weighted else None
    b, coef = naive.ridge(Phi, Psi, y, fit_intercept=fit_intercept, **common)
    b2, coef2 = naive.ridge_by_optimiser(Phi, Psi, y, fit_intercept=fit_intercept, **common)
    close(coef2, coef, 1e-6)
    np.testing.assert_allclose(b2, b, rtol=1e-6, atol=1e-12)


def test_reference_covariance_is_the_one_with_explicit_centring():
    Phi, Psi, _ = features()
    H = naive.centring(len(Phi))
    np.testing.assert_allclose(naive.covariance(Phi, Psi), Phi.T @ H @ Psi / len(Phi), atol=1e-13)
    w = np.random.default_rng(0).integers(0, 4, len(Phi))
    twice = naive.covariance(np.repeat(Phi, w, axis=0), np.repeat(Psi, w, axis=0))
    np.testing.assert_allclose(naive.covariance(Phi, Psi, w), twice, atol=1e-13)


def optimal_dual(K, L, y, fit_intercept, **common):
    """Minimise J(b, c) over b and c by a trust-region Newton method on its exact derivatives."""
    n = len(y)
    M = naive.penalty_matrix(L, penalty=common["penalty"], eps=common["eps"])
    design = np.hstack([np.full((n, 1), float(fit_intercept)), K])
    curvature = 2 * design.T @ design / n
    curvature[1:, 1:] += 2 * common["alpha"] * K + 2 * common["eta"] / n * K @ M @ K
    slope = 2 * design.T @ y / n

    def value(packed):
        return naive.dual_objective(packed[0] * fit_intercept, packed[1:], K, L, y, **common)

    best = minimize(
        value,
        np.zeros(n + 1),
        jac=lambda packed: curvature @ packed - slope,
        hess=lambda _: curvature,
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    return best.fun, design @ best.x


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_dual_minimises_the_objective_for_a_gaussian_kernel(penalty, fit_intercept):
    K, L, y, _ = kernels()
    common = {"alpha": 1e-2, "eta": 20.0, "eps": 1e-3, "penalty": penalty}
    least, f = optimal_dual(K, L, y, fit_intercept, **common)
    fit = fair_dual(K, L, y, fit_intercept=fit_intercept, **common)
    ours = naive.dual_objective(fit.intercept, fit.dual_coef, K, L, y, **common)
    assert ours <= least + 1e-12
    close(fit.predict(K), f, 1e-6)


def test_printed_order_of_products_does_not_minimise_the_objective():
    K, L, y, _ = kernels()
    n, alpha, eta = len(y), 1e-2, 20.0
    common = {"alpha": alpha, "eta": eta, "eps": 1e-3, "penalty": "normalized"}
    P = naive.penalty_matrix(L, eps=1e-3)
    printed = np.linalg.solve(K + n * alpha * np.eye(n) + eta * K @ P, y)
    correct = np.linalg.solve(K + n * alpha * np.eye(n) + eta * P @ K, y)
    ours = fair_dual(K, L, y, fit_intercept=False, **common)
    close(ours.dual_coef, correct, 1e-10)
    least = naive.dual_objective(0.0, ours.dual_coef, K, L, y, **common)
    assert naive.dual_objective(0.0, printed, K, L, y, **common) > 1.05 * least


def test_without_penalty_it_is_kernel_ridge():
    K, L, y, X = kernels()
    alpha = 1e-2
    fit = fair_dual(K, L, y, alpha=alpha, eta=0.0, fit_intercept=False)
    reference = KernelRidge(alpha=len(y) * alpha, kernel="precomputed").fit(K, y)
    close(fit.dual_coef, reference.dual_coef_, 1e-10)
    assert fit.intercept == 0.0
    linear = fair_dual(X @ X.T, L, y, alpha=alpha, eta=0.0)
    reference = Ridge(alpha=len(y) * alpha, solver="svd").fit(X, y)
    close(X.T @ linear.dual_coef, reference.coef_, 1e-10)
    np.testing.assert_allclose(linear.intercept, reference.intercept_, rtol=1e-10)


@pytest.mark.parametrize("eta", [3.0, np.inf])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_weight_counts_rows(penalty, fit_intercept, eta):
    Phi, Psi, y = features(outputs=2)
    w = np.random.default_rng(3).integers(0, 4, len(y))
    assert (w == 0).any()
    common = {"alpha": 1e-2, "eta": eta, "penalty": penalty, "fit_intercept": fit_intercept}
    fit = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, weight=w, **common)
    Phi_r, Psi_r, y_r = (np.repeat(a, w, axis=0) for a in (Phi, Psi, y))
    repeated = fair_dual(Phi_r @ Phi_r.T, Psi_r @ Psi_r.T, y_r, **common)
    close(fit.predict(Phi @ Phi.T), repeated.predict(Phi @ Phi_r.T), 1e-10)
    assert np.all(fit.dual_coef[w == 0] == 0.0)
    f = fit.predict(Phi @ Phi.T)
    shares = (explained_share(f, Psi @ Psi.T, weight=w), explained_share(np.repeat(f, w, axis=0), Psi_r @ Psi_r.T))
    np.testing.assert_allclose(*shares, rtol=1e-10, atol=1e-14)


def test_rows_of_weight_zero_may_hold_anything():
    K, L, y, _ = kernels()
    w = weights(len(y))
    w[[2, 11]] = 0.0
    clean = fair_dual(K, L, y, alpha=1e-2, eta=4.0, weight=w)
    for a in (K, L):
        a[[2, 11]] = a[:, [2, 11]] = np.nan
    y[[2, 11]] = np.inf
    dirty = fair_dual(K, L, y, alpha=1e-2, eta=4.0, weight=w)
    np.testing.assert_array_equal(dirty.dual_coef, clean.dual_coef)
    assert dirty.intercept == clean.intercept


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_infinite_eta_removes_the_covariance(penalty, fit_intercept, weighted):
    Phi, Psi, y = features()
    w = weights(len(y)) if weighted else None
    common = {"alpha": 1e-2, "weight": w, "fit_intercept": fit_intercept}
    fit = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, eta=np.inf, penalty=penalty, **common)
    f = fit.predict(Phi @ Phi.T)
    assert np.abs(naive.covariance(f, Psi, w)).max() < 1e-11
    assert explained_share(f, Psi @ Psi.T, weight=w) < 1e-20
    b, coef = naive.ridge_without_covariance(Phi, Psi, y, **common)
    close(f, b + Phi @ coef, 1e-10)
    almost = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, eta=1e11, penalty=penalty, **common)
    close(almost.predict(Phi @ Phi.T), f, 1e-8)
    assert np.abs(naive.covariance(almost.predict(Phi @ Phi.T), Psi, w)).max() < 1e-8


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_infinite_eta_removes_one_centred_attribute(fit_intercept):
    """L̃ = L of rank one, the case in which |L| is an eigenvalue."""
    Phi, _, y = features(q=1)
    psi = np.where(np.arange(len(y)) < len(y) / 2, 1.0, -1.0) + 0.3 * Phi[:, 0]
    psi -= psi.mean()
    common = {"alpha": 1e-2, "fit_intercept": fit_intercept}
    fit = fair_dual(Phi @ Phi.T, np.outer(psi, psi), y, eta=np.inf, **common)
    assert np.abs(psi @ fit.predict(Phi @ Phi.T)) < 1e-9 < 1.0 < np.abs(psi @ y)


def test_infinite_eta_is_the_limit_for_gaussian_kernels():
    """Also where L has no gap between its eigenvalues and rounding error."""
    K, L, y, _ = kernels()
    limit = fair_dual(K, L, y, alpha=1e-2, eta=np.inf).predict(K)
    path = [fair_dual(K, L, y, alpha=1e-2, eta=eta).predict(K) for eta in (1e1, 1e4, 1e7, 1e14)]
    errors = [np.abs(f - limit).max() for f in path]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6
    assert explained_share(limit, L, eps=1e-6) < 1e-12
    hsic = fair_dual(K, L, y, alpha=1e-2, eta=np.inf, penalty="hsic").predict(K)
    close(hsic, limit, 1e-9)


@pytest.mark.parametrize("eta", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_large_eta_costs_no_digits(penalty, eta):
    """Against exact rational arithmetic; groups and dyadic numbers make L exact in floats."""
    rng = np.random.default_rng(7)
    n = 10
    X = rng.normal(size=(n, 2))
    K = naive.rbf(X, X, 0.7)
    Psi = np.column_stack([np.eye(3)[np.arange(n) % 3], rng.integers(-8, 8, n) / 4])
    y = rng.normal(size=(n, 2)) + Psi[:, [0, 3]]
    common = {"alpha": 2.0**-10, "eta": eta, "penalty": penalty, "eps": 2.0**-20}
    expected = naive.rational_dual(K, Psi, y, **common)
    fit = fair_dual(K, Psi @ Psi.T, y, **common)
    close(fit.dual_coef, expected, 1e-11)


@pytest.mark.parametrize("eta", [1e8, np.inf])
def test_penalty_wider_than_the_features(eta):
    """Two features, a penalty of rank five: f can only be constant, without division by zero."""
    Phi, Psi, y = features(m=2, q=2)
    Psi = np.hstack([Psi, Psi**2, Psi[:, :1] * Phi[:, 1:]])
    fit = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, alpha=1e-3, eta=eta)
    np.testing.assert_allclose(fit.predict(Phi @ Phi.T), y.mean(), rtol=1e-6)


@pytest.mark.parametrize("eta", [1.0, np.inf])
def test_small_ridge_costs_no_digits(eta):
    """c grows as 1/α, f does not."""
    Phi, Psi, y = features()
    b, coef = naive.ridge(Phi, Psi, y, alpha=1e-6, eta=min(eta, 1.0), penalty="hsic")
    if eta == np.inf:
        b, coef = naive.ridge_without_covariance(Phi, Psi, y, alpha=1e-6)
    fit = fair_dual(Phi @ Phi.T, Psi @ Psi.T, y, alpha=1e-6, eta=eta, penalty="hsic")
    close(fit.predict(Phi @ Phi.T), b + Phi @ coef, 1e-8)


def test_constant_sensitive_attribute_is_no_penalty():
    K, _, y, _ = kernels()
    L = np.full_like(K, 0.1)
    plain = fair_dual(K, L, y, alpha=1e-2, eta=0.0)
    for eta in (1e10, np.inf):
        np.testing.assert_allclose(fair_dual(K, L, y, alpha=1e-2, eta=eta).dual_coef, plain.dual_coef, rtol=1e-12)
    assert explained_share(y, L) < 1e-12


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    eta=st.sampled_from([0.0, 0.3, 50.0, 1e6, np.inf]),
    penalty=st.sampled_from(PENALTIES),
    fit_intercept=st.booleans(),
)
def test_row_order_does_not_matter(seed, eta, penalty, fit_intercept):
    Phi, Psi, y = features(n=20)
    K, L, w = Phi @ Phi.T, Psi @ Psi.T, weights(20)
    common = {"alpha": 1e-2, "eta": eta, "penalty": penalty, "fit_intercept": fit_intercept}
    fit = fair_dual(K, L, y, weight=w, **common)
    order = np.random.default_rng(seed).permutation(len(y))
    square = np.ix_(order, order)
    shuffled = fair_dual(K[square], L[square], y[order], weight=w[order], **common)
    close(shuffled.predict(K[:, order]), fit.predict(K), 1e-9)
    f = fit.predict(K)
    share = explained_share(f, L, weight=w)
    reordered = explained_share(f[order], L[square], weight=w[order])
    np.testing.assert_allclose(reordered, share, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [None, 3])
def test_share_is_its_definition(outputs, weighted):
    _, Psi, y = features(outputs=outputs)
    w = weights(len(y)) if weighted else None
    for eps in (1e-6, 1e-1):
        share = explained_share(y, Psi @ Psi.T, eps=eps, weight=w)
        np.testing.assert_allclose(share, naive.share(y, Psi, eps=eps, weight=w), rtol=1e-9)
    shifted = explained_share(-3.0 * y + 100.0, Psi @ Psi.T, weight=w)
    np.testing.assert_allclose(shifted, explained_share(y, Psi @ Psi.T, weight=w), rtol=1e-9)


def test_share_known_answers():
    groups = np.arange(24) % 3
    L = (groups[:, None] == groups).astype(float)
    f = np.random.default_rng(2).normal(size=24) + groups
    expected = naive.between_group_share(f, groups)
    np.testing.assert_allclose(explained_share(f, L, eps=0.0), expected, rtol=1e-12)
    assert explained_share(groups * 2.0, L, eps=0.0) == pytest.approx(1.0, abs=1e-14)
    assert np.isnan(explained_share(np.full(24, 0.1), L))
    assert np.isnan(explained_share(np.full((24, 2), 1e9 / 3), L))
    one = np.column_stack([np.full(24, 1e6 / 3), f])
    np.testing.assert_allclose(explained_share(one, L), explained_share(f, L), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": 0.0}, ["alpha=0.0"]),
        ({"alpha": np.nan}, ["alpha=nan"]),
        ({"eta": -1.0}, ["eta=-1.0"]),
        ({"eta": np.nan}, ["eta=nan"]),
        ({"eps": -1e-3}, ["eps=-0.001"]),
        ({"penalty": "nocco"}, ["penalty='nocco'", "'normalized'", "'hsic'"]),
        ({"weight": np.ones(3)}, ["weight", (3,), (30,)]),
        ({"weight": -np.ones(30)}, ["weight", -1.0]),
        ({"weight": np.zeros(30)}, ["weight", "positive", 0.0]),
        ({"K": np.ones((30, 29))}, ["K ", (30, 29), (30, 30)]),
        ({"L": np.ones((29, 29))}, ["L ", (29, 29), (30, 30)]),
        ({"K": np.triu(np.ones((30, 30)))}, ["K ", "symmetric"]),
        ({"y": np.full(30, np.nan)}, ["y ", "NaN"]),
        ({"y": np.ones((30, 1, 1))}, ["y ", (30, 1, 1)]),
    ],
)
def test_bad_input_is_named(change, words):
    K, L, y, _ = kernels()
    arguments = {"K": K, "L": L, "y": y, "alpha": 1e-2, "eta": 1.0} | change
    with refused(*words, error=ValueError):
        fair_dual(**arguments)
