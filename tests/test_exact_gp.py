"""The dense fair Gaussian process against its definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import null_space

from scalefair.solve.dense.prior import fair_gp, fair_gram, fair_prior
from scalefair.solve.dense.ridge import fair_dual
from tests import naive
from tests.naive import close, features, kernels

PENALTIES = ["hsic", "normalized"]


@pytest.mark.parametrize("length_scale", [(0.5, 0.8, 1.1), 20.0])
@pytest.mark.parametrize("eta", [0.0, 5.0, 1e8, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gp_mean_is_the_ridge(penalty, eta, length_scale):
    K, L, y, X = kernels(4, 40, length_scale, sensitive_length_scale=0.3)
    y = y - y.mean()
    alpha = 1e-3
    common = {"eta": eta, "penalty": penalty, "eps": 1e-3}
    gp = fair_gp(K, L, y, noise=len(y) * alpha, **common)
    ridge = fair_dual(K, L, y, alpha=alpha, fit_intercept=False, **common)
    K_new = naive.rbf(X[:9] + 0.1, X, length_scale)
    np.testing.assert_allclose(gp.mean(K_new), ridge.predict(K_new), rtol=0, atol=2e-11)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_fair_gram_is_the_prior_covariance(penalty):
    K, L, _, _ = kernels(length_scale=0.6)
    setting = {"eta": 8.0, "noise": 0.3, "eps": 1e-3, "penalty": penalty}
    fair = fair_gram(K, L, **setting)
    close(fair, naive.fair_prior_covariance(K, L, **setting), 1e-9)
    joint = naive.joint_fair_covariance(K, L[:20, :20], **setting)
    prior = fair_prior(K[:20, :20], L[:20, :20], **setting)
    close(prior.cross(K, K[:, :20], K[:, :20]), joint, 1e-9)
    close(prior.gram(K[:20, :20]), joint[:20, :20], 1e-9)
    delta = 8.0 / (len(K) * 0.3)
    H = naive.centring(len(K))
    if penalty == "hsic":
        by_delta = np.linalg.inv(np.linalg.inv(K) + delta * H @ L @ H)
        close(fair, by_delta, 1e-9)


def test_printed_gp_kernel_is_not_symmetric():
    K, L, _, _ = kernels(length_scale=0.6)
    n, delta = len(K), 2.0
    centred = naive.centring(n) @ L @ naive.centring(n)
    inverse_delta = np.eye(n) / delta
    printed = K - K @ np.linalg.solve(K @ centred + inverse_delta, centred @ K)
    correct = K - K @ np.linalg.solve(centred @ K + inverse_delta, centred @ K)
    assert np.abs(printed - printed.T).max() > 1e-2
    ours = fair_gram(K, L, eta=delta * n * 0.5, noise=0.5, penalty="hsic")
    np.testing.assert_array_equal(ours, ours.T)
    close(ours, correct, 1e-10)


@pytest.mark.parametrize("eta", [0.0, 6.0])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gp_is_the_conditional_normal(penalty, eta):
    K, L, y, _ = kernels(length_scale=0.6)
    y, train, new = (y - y.mean())[:22], slice(None, 22), slice(22, None)
    L = L[train, train]
    setting = {"eta": eta, "noise": 0.2, "eps": 1e-3, "penalty": penalty}
    gp = fair_gp(K[train, train], L, y, **setting)
    mean, covariance = naive.gp(K, L, y, **setting)
    close(gp.mean(K[new, train]), mean, 1e-9)
    close(gp.covariance(K[new, train], K[new, new]), covariance, 1e-9)
    close(gp.variance(K[new, train], np.diag(K)[new]), np.diag(covariance), 1e-9)
    expected = naive.log_evidence(K[train, train], L, y, **setting)
    np.testing.assert_allclose(gp.log_evidence, expected, rtol=1e-8)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gp_equals_the_weight_space_form(penalty):
    Phi, Psi, y = features()
    y, Phi_new = y - y.mean(), features(seed=9, n=6)[0]
    setting = {"eta": 3.0, "noise": 0.7, "eps": 1e-3, "penalty": penalty}
    mean, covariance, evidence = naive.weight_space_gp(Phi, Psi, y, Phi_new, **setting)
    gp = fair_gp(Phi @ Phi.T, Psi @ Psi.T, y, **setting)
    close(gp.mean(Phi_new @ Phi.T), mean, 1e-9)
    close(gp.covariance(Phi_new @ Phi.T, Phi_new @ Phi_new.T), covariance, 1e-9)
    np.testing.assert_allclose(gp.log_evidence, evidence, rtol=1e-8)


@pytest.mark.parametrize("eta", [1.0, 1e8, np.inf])
def test_gp_covariance_is_positive_and_below_the_unfair_one(eta):
    K, L, y, X = kernels()
    X_new = X[:12] + 0.05
    K_new, K_new_new = (naive.rbf(X_new, Z, (0.5, 0.8, 1.1)) for Z in (X, X_new))
    fair = fair_gp(K, L, y - y.mean(), eta=eta, noise=0.1)
    plain = fair_gp(K, L, y - y.mean(), eta=0.0, noise=0.1)
    covariance = fair.covariance(K_new, K_new_new)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-14)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.linalg.eigvalsh(plain.covariance(K_new, K_new_new) - covariance).min() > -1e-9
    assert np.linalg.eigvalsh(fair_gram(K, L, eta=eta, noise=0.1)).min() > -1e-12


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_infinite_eta_gp_lives_on_the_null_space(penalty, wide):
    """β ~ N(0, projection on {β : C_ψφβ = 0}); a wide and graded ψ leaves nothing of it."""
    Phi, Psi, y = features(m=5, q=2)
    if wide:
        faint = 1e-3 * np.random.default_rng(99).normal(size=(len(y), 20))
        Psi = np.hstack([Phi[:, :2], Psi**2, faint])
    y, noise, Phi_new = y - y.mean(), 0.5, features(seed=50, n=8, m=5, q=2)[0]
    N = null_space(naive.covariance(Psi, Phi))
    assert N.shape[1] == (0 if wide else 3)
    inverse = np.linalg.inv(N.T @ Phi.T @ Phi @ N + noise * np.eye(N.shape[1]))
    gp = fair_gp(Phi @ Phi.T, Psi @ Psi.T, y, eta=np.inf, noise=noise, penalty=penalty)
    mean = Phi_new @ N @ inverse @ N.T @ Phi.T @ y
    np.testing.assert_allclose(gp.mean(Phi_new @ Phi.T), mean, rtol=0, atol=1e-10)
    covariance = noise * Phi_new @ N @ inverse @ N.T @ Phi_new.T
    actual = gp.covariance(Phi_new @ Phi.T, Phi_new @ Phi_new.T)
    np.testing.assert_allclose(actual, covariance, rtol=0, atol=1e-11)
    assert gp.variance(Phi @ Phi.T, np.sum(Phi**2, axis=1)).min() >= 0.0
    fair = fair_gram(Phi @ Phi.T, Psi @ Psi.T, eta=np.inf, noise=noise, penalty=penalty)
    np.testing.assert_allclose(fair, Phi @ N @ N.T @ Phi.T, rtol=0, atol=1e-11)


def test_gp_weight_counts_rows():
    Phi, Psi, y = features(outputs=2)
    y = y - y.mean(axis=0)
    w = np.random.default_rng(3).integers(0, 4, len(y))
    gp = fair_gp(Phi @ Phi.T, Psi @ Psi.T, y, eta=3.0, noise=0.5, weight=w)
    Phi_r, Psi_r, y_r = (np.repeat(a, w, axis=0) for a in (Phi, Psi, y))
    repeated = fair_gp(Phi_r @ Phi_r.T, Psi_r @ Psi_r.T, y_r, eta=3.0, noise=0.5)
    close(gp.mean(Phi @ Phi.T), repeated.mean(Phi @ Phi_r.T), 1e-10)
    close(
        gp.variance(Phi @ Phi.T, np.sum(Phi**2, axis=1)),
        repeated.variance(Phi @ Phi_r.T, np.sum(Phi**2, axis=1)),
        1e-9,
    )
    np.testing.assert_allclose(gp.log_evidence, repeated.log_evidence, rtol=1e-10)
    columns = [fair_gp(Phi @ Phi.T, Psi @ Psi.T, t, eta=3.0, noise=0.5, weight=w) for t in y.T]
    np.testing.assert_allclose(gp.log_evidence, sum(c.log_evidence for c in columns), rtol=1e-10)


def test_bad_noise_is_named():
    K, L, y, _ = kernels()
    with pytest.raises(ValueError, match="noise=0"):
        fair_gp(K, L, y, eta=1.0, noise=0.0)
    with pytest.raises(ValueError, match="noise=1e-25 drowns"):
        fair_gp(np.ones_like(K), L, y, eta=1.0, noise=1e-25)
