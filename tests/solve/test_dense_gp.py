"""The dense fair Gaussian process: Gram matrices against their definitions, kernels, gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from scalefair._linalg import pivoted_root
from scalefair.kernels import RBF, Laplace, Linear, Matern
from scalefair.solve.dense.gp import ExactProblem
from scalefair.solve.dense.ridge import fair_dual
from tests import naive
from tests.errors import refused
from tests.naive import close, features, kernels
from tests.solve.dense import exact_gp, fair_gp, fair_gram, fair_prior

PENALTIES = ["hsic", "normalized"]
ARD = (0.7, 1.3, 1.9)


# Of Gram matrices


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
    # At η = ∞ directions of relative size 7e-7 of a nearly constant kernel are taken out in full,
    # and show the rounding of K.
    atol = 5e-9 if (eta, length_scale) == (np.inf, 20.0) else 2e-11
    np.testing.assert_allclose(gp.mean(K_new), ridge.predict(K_new), rtol=0, atol=atol)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_fair_gram_is_the_prior_covariance(penalty):
    K, L, _, _ = kernels(length_scale=0.6)
    setting = {"eta": 8.0, "noise": 0.3, "eps": 1e-3, "penalty": penalty}
    fair = fair_gram(K, L, **setting)
    close(fair, naive.fair_prior_covariance(K, L, **setting), 1e-9)
    joint = naive.joint_fair_covariance(K, L[:20, :20], **setting)
    prior = fair_prior(K[:20, :20], L[:20, :20], **setting)
    g = K[:, :20] @ prior.factor
    close(K - g @ g.T, joint, 1e-9)
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
        gp.variance(Phi @ Phi.T, np.sum(Phi**2, axis=1)), repeated.variance(Phi @ Phi_r.T, np.sum(Phi**2, axis=1)), 1e-9
    )
    np.testing.assert_allclose(gp.log_evidence, repeated.log_evidence, rtol=1e-10)
    columns = [fair_gp(Phi @ Phi.T, Psi @ Psi.T, t, eta=3.0, noise=0.5, weight=w) for t in y.T]
    np.testing.assert_allclose(gp.log_evidence, sum(c.log_evidence for c in columns), rtol=1e-10)


# Of a kernel


def problem(seed=0, n=25, outputs=None, duplicates=False):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 1))
    X = np.hstack([rng.normal(size=(n, 2)), s + 0.3 * rng.normal(size=(n, 1))])
    if duplicates:
        X[n // 2 :] = X[: n - n // 2]
        s[n // 2 :] = s[: n - n // 2]
    y = np.sin(X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=n)
    if outputs:
        y = np.column_stack([y**power for power in range(1, outputs + 1)])
    return X, naive.rbf(s, s, 0.7), y - y.mean(axis=0)


def gram(kernel, amplitude, *points):
    return amplitude**2 * kernel(*points)


@pytest.mark.parametrize("eta", [0.0, 5.0, 1e8, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_it_is_the_dense_definition(penalty, eta):
    X, L, y = problem(outputs=2)
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    kernel, common = RBF(ARD), {"eta": eta, "noise": 0.2, "eps": 1e-3, "penalty": penalty}
    gp = exact_gp(kernel, X, L, y, amplitude=1.7, weight=weight, **common)
    dense = fair_gp(gram(kernel, 1.7, X), L, y, weight=weight, **common)
    new = X[:6] + 0.2
    K_new, K_new_new = gram(kernel, 1.7, new, X), gram(kernel, 1.7, new)
    np.testing.assert_allclose(gp.log_evidence, dense.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(gp.mean(new), dense.mean(K_new), atol=1e-9)
    covariance = dense.covariance(K_new, K_new_new)
    np.testing.assert_allclose(gp.covariance(new), covariance, atol=1e-9)
    np.testing.assert_allclose(gp.variance(new), np.diag(covariance), atol=1e-9)
    assert not gp.dual_coef[weight == 0].any()


@pytest.mark.parametrize("eta", [4.0, 1e8, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_prior_is_the_fair_kernel(penalty, eta):
    X, L, y = problem()
    common = {"eta": eta, "noise": 0.3, "eps": 1e-3, "penalty": penalty}
    gp = exact_gp(RBF(ARD), X, L, y, **common)
    np.testing.assert_allclose(gp.prior_covariance(X), fair_gram(RBF(ARD)(X), L, **common), atol=1e-9)


@pytest.mark.parametrize("rank", [3, 25])
def test_the_pivoted_root_is_a_root(rank):
    Phi = np.random.default_rng(0).normal(size=(25, rank)) * np.logspace(0, -6, rank)
    root = pivoted_root(Phi @ Phi.T)
    np.testing.assert_allclose(root.T @ root, Phi @ Phi.T, atol=1e-14 * len(Phi))


def central(kernel, at, *, noise, amplitude, eta):
    """Gradient by central differences of the log evidence, in all log hyperparameters."""

    def value(log_hyper):
        *theta, a, sigma2 = np.exp(log_hyper)
        k = kernel.with_length_scale(np.array(theta))
        return at.at(k, noise=sigma2, amplitude=a, eta=eta).log_evidence

    start = np.log(np.concatenate([kernel.theta, [amplitude, noise]]))
    steps = 1e-4 * np.eye(len(start))
    # Richardson: the error of the difference is of fourth order.
    return np.array(
        [
            (8 * (value(start + e) - value(start - e)) - value(start + 2 * e) + value(start - 2 * e)) / 12e-4
            for e in steps
        ]
    )


@pytest.mark.parametrize("eta", [0.0, 3.0, 1e7, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(
    "kernel", [RBF(ARD), RBF(0.8), Matern(ARD, nu=2.5), Laplace(ARD), Linear(), RBF(ARD) + Linear()]
)
def test_gradient_is_the_central_difference(kernel, penalty, eta):
    X, L, y = problem(outputs=2)
    at = ExactProblem.build(X, L, y, penalty=penalty, eps=1e-3, weight=naive.weights(len(y)))
    hyper = {"noise": 0.3, "amplitude": 1.4, "eta": eta}
    expected = central(kernel, at, **hyper)
    actual = at.at(kernel, **hyper).gradient
    assert actual.shape == (kernel.theta.size + 2,)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("eta", [0.0, 3.0, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradient_with_duplicate_rows(penalty, eta):
    X, L, y = problem(duplicates=True)
    at = ExactProblem.build(X, L, y, penalty=penalty)
    hyper = {"noise": 0.3, "amplitude": 1.4, "eta": eta}
    expected = central(RBF(ARD), at, **hyper)
    actual = at.at(RBF(ARD), **hyper).gradient
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("penalty", PENALTIES)
def test_it_is_the_weight_space_form(penalty):
    """K = ΦΦᵀ: the moments' process, in value and in gradient of noise and amplitude."""
    Phi, Psi, y = naive.features()
    y, new = y - y.mean(), naive.features(seed=9, n=6)[0]
    hyper = {"noise": 0.7, "eta": 3.0, "eps": 1e-3, "penalty": penalty}
    gp = exact_gp(Linear(), Phi, Psi @ Psi.T, y, amplitude=1.3, **hyper)

    def weight_space(log_hyper):
        a, noise = np.exp(log_hyper)
        scaled = {**hyper, "noise": noise}
        return naive.weight_space_gp(a * Phi, Psi, y, a * new, **scaled)

    start = np.log([1.3, 0.7])
    mean, covariance, evidence = weight_space(start)
    close(gp.mean(new), mean, 1e-9)
    close(gp.covariance(new), covariance, 1e-9)
    np.testing.assert_allclose(gp.log_evidence, evidence, rtol=1e-9)
    slope = approx_fprime(start, lambda at: weight_space(at)[2], 1e-6)
    np.testing.assert_allclose(gp.gradient, slope, rtol=1e-4)


def test_without_fairness_it_is_scikit_learn():
    X, _, y = problem(n=40)
    kernel = sk.ConstantKernel(1.7**2) * sk.RBF(ARD) + sk.WhiteKernel(0.2)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    ours = exact_gp(RBF(ARD), X, None, y, noise=0.2, amplitude=1.7)
    value, slope = theirs.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    np.testing.assert_allclose(ours.log_evidence, value, rtol=1e-12)
    # Theirs is in log a², length scales, log σ².
    *in_scale, in_amplitude, in_noise = ours.gradient
    np.testing.assert_allclose([in_amplitude / 2, *in_scale, in_noise], slope, atol=1e-8)
    mean, covariance = theirs.predict(X + 0.1, return_cov=True)
    np.testing.assert_allclose(ours.mean(X + 0.1), mean, atol=1e-10)
    # Their covariance is that of y.
    np.testing.assert_allclose(ours.covariance(X + 0.1) + 0.2 * np.eye(len(X)), covariance, atol=1e-10)


def test_weight_two_is_the_row_twice_in_the_gradient():
    X, L, y = problem(outputs=2)
    w = np.random.default_rng(3).integers(0, 4, len(y))
    index = np.repeat(np.arange(len(y)), w)
    hyper = {"noise": 0.4, "eta": 2.0, "amplitude": 1.2}
    once = exact_gp(RBF(ARD), X, L, y, weight=w, **hyper)
    twice = exact_gp(RBF(ARD), X[index], L[np.ix_(index, index)], y[index], **hyper)
    np.testing.assert_allclose(once.log_evidence, twice.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(once.gradient, twice.gradient, rtol=1e-7)
    np.testing.assert_allclose(once.variance(X), twice.variance(X), atol=1e-9)


def test_outputs_are_independent():
    X, L, y = problem(outputs=3)
    hyper = {"noise": 0.4, "eta": 2.0}
    together = exact_gp(RBF(ARD), X, L, y, **hyper)
    alone = [exact_gp(RBF(ARD), X, L, column, **hyper) for column in y.T]
    np.testing.assert_allclose(together.log_evidence, sum(gp.log_evidence for gp in alone))
    np.testing.assert_allclose(together.gradient, sum(gp.gradient for gp in alone))
    np.testing.assert_allclose(together.mean(X), np.column_stack([gp.mean(X) for gp in alone]))


def test_a_constant_sensitive_attribute_punishes_nothing():
    X, L, y = problem()
    fair = exact_gp(RBF(ARD), X, np.ones_like(L), y, noise=0.4, eta=np.inf)
    plain = exact_gp(RBF(ARD), X, None, y, noise=0.4)
    np.testing.assert_array_equal(fair.mean(X), plain.mean(X))
    assert fair.eta == 0


def test_float32_inputs_are_widened():
    X, L, y = problem()
    narrow = X.astype(np.float32)
    single = exact_gp(RBF(ARD), narrow, L, y, noise=0.4, eta=1.0)
    double = exact_gp(RBF(ARD), narrow.astype(np.float64), L, y, noise=0.4, eta=1.0)
    assert single.log_evidence == double.log_evidence
    np.testing.assert_array_equal(single.mean(narrow), double.mean(narrow.astype(np.float64)))


def test_bad_input_is_named():
    X, L, y = problem()
    for bad, word in [
        ({"noise": 0.0}, "noise=0"),
        ({"amplitude": np.inf}, "amplitude=inf"),
        ({"eta": -1.0}, "eta=-1"),
        ({"penalty": "nocco"}, "penalty='nocco'"),
    ]:
        with refused(word, error=ValueError):
            exact_gp(RBF(1.0), X, L, y, **{"noise": 0.1, **bad})
    with refused("eta=1.0", "L ", error=ValueError):
        exact_gp(RBF(1.0), X, None, y, noise=0.1, eta=1.0)
    with refused("X ", y.shape, error=ValueError):
        exact_gp(RBF(1.0), y, L, y, noise=0.1)
    with refused("X ", "NaN", error=ValueError):
        exact_gp(RBF(1.0), np.where(X > 1, np.nan, X), L, y, noise=0.1)
    with refused("noise=1e-25", error=ValueError):
        exact_gp(RBF(1.0), np.zeros_like(X), L, y, noise=1e-25)
    K, L, y, _ = kernels()
    with refused("noise=0", error=ValueError):
        fair_gp(K, L, y, eta=1.0, noise=0.0)
    with refused("noise=1e-25", error=ValueError):
        fair_gp(np.ones_like(K), L, y, eta=1.0, noise=1e-25)
