"""The exact fair Gaussian process of a kernel: against the dense reference, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from scalefair.kernels import RBF, Laplace, Linear, Matern
from scalefair.solve.dense import forms as exact_forms
from scalefair.solve.dense.gp import ExactGP, ExactProblem
from scalefair.solve.dense.prior import fair_gp, fair_gram
from tests import naive
from tests.naive import close

PENALTIES = ["hsic", "normalized"]
ARD = (0.7, 1.3, 1.9)


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
    gp = ExactGP.fit(kernel, X, L, y, amplitude=1.7, weight=weight, **common)
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
    gp = ExactGP.fit(RBF(ARD), X, L, y, **common)
    np.testing.assert_allclose(
        gp.prior_covariance(X), fair_gram(RBF(ARD)(X), L, **common), atol=1e-9
    )


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_two_forms_agree(penalty, duplicates):
    X, L, y = problem(duplicates=duplicates, outputs=2)
    at = ExactProblem.build(X, L, y, penalty=penalty, weight=naive.weights(len(y)))
    setting = at.at(RBF(ARD), noise=0.1, amplitude=2.0, eta=3.0).setting
    quick, robust = exact_forms.QuickForm.of(setting), exact_forms.RobustForm.of(setting)
    np.testing.assert_allclose(quick.log_evidence, robust.log_evidence, rtol=1e-10)
    close(quick.coef, robust.coef, 1e-9)
    adjoints = [form.adjoint() + form.adjoint().T for form in (quick, robust)]
    close(*adjoints, 1e-8)
    close(quick.prior.gram(setting.gram), robust.prior.gram(setting.gram), 1e-9)
    covariances = [f.spread(setting.gram) @ f.spread(setting.gram).T for f in (quick, robust)]
    close(*covariances, 1e-9)


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
            (
                8 * (value(start + e) - value(start - e))
                - value(start + 2 * e)
                + value(start - 2 * e)
            )
            / 12e-4
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
    gp = ExactGP.fit(Linear(), Phi, Psi @ Psi.T, y, amplitude=1.3, **hyper)

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
    ours = ExactGP.fit(RBF(ARD), X, None, y, noise=0.2, amplitude=1.7)
    value, slope = theirs.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    np.testing.assert_allclose(ours.log_evidence, value, rtol=1e-12)
    # Theirs is in log a², length scales, log σ².
    *in_scale, in_amplitude, in_noise = ours.gradient
    np.testing.assert_allclose([in_amplitude / 2, *in_scale, in_noise], slope, atol=1e-8)
    mean, covariance = theirs.predict(X + 0.1, return_cov=True)
    np.testing.assert_allclose(ours.mean(X + 0.1), mean, atol=1e-10)
    # Their covariance is that of y.
    np.testing.assert_allclose(
        ours.covariance(X + 0.1) + 0.2 * np.eye(len(X)), covariance, atol=1e-10
    )


def test_weight_two_is_the_row_twice():
    X, L, y = problem(outputs=2)
    w = np.random.default_rng(3).integers(0, 4, len(y))
    index = np.repeat(np.arange(len(y)), w)
    hyper = {"noise": 0.4, "eta": 2.0, "amplitude": 1.2}
    once = ExactGP.fit(RBF(ARD), X, L, y, weight=w, **hyper)
    twice = ExactGP.fit(RBF(ARD), X[index], L[np.ix_(index, index)], y[index], **hyper)
    np.testing.assert_allclose(once.log_evidence, twice.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(once.gradient, twice.gradient, rtol=1e-7)
    np.testing.assert_allclose(once.variance(X), twice.variance(X), atol=1e-9)


def test_outputs_are_independent():
    X, L, y = problem(outputs=3)
    hyper = {"noise": 0.4, "eta": 2.0}
    together = ExactGP.fit(RBF(ARD), X, L, y, **hyper)
    alone = [ExactGP.fit(RBF(ARD), X, L, column, **hyper) for column in y.T]
    np.testing.assert_allclose(together.log_evidence, sum(gp.log_evidence for gp in alone))
    np.testing.assert_allclose(together.gradient, sum(gp.gradient for gp in alone))
    np.testing.assert_allclose(together.mean(X), np.column_stack([gp.mean(X) for gp in alone]))


@pytest.mark.parametrize("prior", [False, True])
def test_samples_have_the_mean_and_covariance(prior):
    X, L, y = problem(outputs=2)
    gp = ExactGP.fit(RBF(ARD), X, L, y, noise=0.4, eta=2.0)
    new = X[:3] + 0.5
    draws = gp.sample(new, 40_000, np.random.default_rng(0), prior=prior)
    assert draws.shape == (40_000, 3, 2)
    mean = np.zeros((3, 2)) if prior else gp.mean(new)
    covariance = gp.prior_covariance(new) if prior else gp.covariance(new)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws[:, :, 1].T), covariance, atol=0.03)
    single = ExactGP.fit(RBF(ARD), X, L, y[:, 0], noise=0.4).sample(new, 5, np.random.default_rng())
    assert single.shape == (5, 3)


def test_a_constant_sensitive_attribute_punishes_nothing():
    X, L, y = problem()
    fair = ExactGP.fit(RBF(ARD), X, np.ones_like(L), y, noise=0.4, eta=np.inf)
    plain = ExactGP.fit(RBF(ARD), X, None, y, noise=0.4)
    np.testing.assert_array_equal(fair.mean(X), plain.mean(X))
    assert fair.eta == 0


def test_float32_inputs_are_widened():
    X, L, y = problem()
    narrow = X.astype(np.float32)
    single = ExactGP.fit(RBF(ARD), narrow, L, y, noise=0.4, eta=1.0)
    double = ExactGP.fit(RBF(ARD), narrow.astype(np.float64), L, y, noise=0.4, eta=1.0)
    assert single.log_evidence == double.log_evidence
    np.testing.assert_array_equal(single.mean(narrow), double.mean(narrow.astype(np.float64)))


def test_bad_input_is_named():
    X, L, y = problem()
    for bad, message in [
        ({"noise": 0.0}, "noise=0"),
        ({"amplitude": np.inf}, "amplitude=inf"),
        ({"eta": -1.0}, "eta=-1"),
        ({"penalty": "nocco"}, "nocco"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExactGP.fit(RBF(1.0), X, L, y, **{"noise": 0.1, **bad})
    with pytest.raises(ValueError, match=r"eta=1\.0 needs the Gram matrix L"):
        ExactGP.fit(RBF(1.0), X, None, y, noise=0.1, eta=1.0)
    with pytest.raises(ValueError, match="X has shape"):
        ExactGP.fit(RBF(1.0), y, L, y, noise=0.1)
    with pytest.raises(ValueError, match="X contains NaN"):
        ExactGP.fit(RBF(1.0), np.where(X > 1, np.nan, X), L, y, noise=0.1)
    with pytest.raises(ValueError, match="noise=1e-25 drowns"):
        ExactGP.fit(RBF(1.0), np.zeros_like(X), L, y, noise=1e-25)
