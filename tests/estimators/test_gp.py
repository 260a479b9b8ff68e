"""FairGPRegressor at given hyperparameters: against scikit-learn, dense definitions and ridge."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from scalefair import FairGPClassifier, FairGPRegressor, FairKernelRidge
from scalefair.maps import Identity, Nystroem, RandomFourier
from tests import naive
from tests.naive import close

NOISE, AMPLITUDE, ARD = 0.3, 1.4, (0.7, 1.1, 2.0)
PENALTIES = ["hsic", "normalized"]


def problem(n=50, outputs=None, seed=0):
    """Inputs, one numeric sensitive attribute and targets with a mean."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    X = np.column_stack([rng.normal(size=(n, 2)), s + 0.5 * rng.normal(size=n)])
    signal = np.sin(2 * X[:, 0]) + np.cos(1.5 * X[:, 1]) + np.sin(X[:, 2]) + 3.0
    if outputs:
        signal = signal[:, None] * np.arange(1, outputs + 1)
    return X, s, signal + 0.3 * rng.normal(size=signal.shape)


def given(**params):
    """A model whose hyperparameters are all given."""
    fixed = {"noise": NOISE, "amplitude": AMPLITUDE, "length_scale": ARD, "optimizer": None}
    numbers = {"sensitive_kernel": "rbf", "sensitive_length_scale": 0.7, "eps": 1e-3}
    return FairGPRegressor(**{**fixed, **numbers, "random_state": 0, **params})


def fitted(outputs=None, weight=None, **params):
    X, s, y = problem(outputs=outputs)
    model = given(**params)
    own = {} if model.eta == 0 else {"sensitive_features": s}
    return model.fit(X, y, sample_weight=weight, **own)


# scikit-learn


def sklearn_process(kernel, X, y):
    full = ConstantKernel(AMPLITUDE**2) * kernel + WhiteKernel(NOISE)
    return GaussianProcessRegressor(full, alpha=0.0, optimizer=None).fit(X, y)


@pytest.mark.parametrize(("name", "kernel"), [("rbf", RBF(ARD)), ("matern32", Matern(ARD, nu=1.5))])
def test_the_exact_process_without_penalty_is_that_of_scikit_learn(name, kernel):
    X, _, y = problem()
    new = problem(seed=1)[0]
    mean = y.mean()
    theirs = sklearn_process(kernel, X, y - mean)
    ours = fitted(feature_map="exact", kernel=name, eta=0)
    f, std = ours.predict(new, return_std=True, include_noise=True)
    expected_f, expected_std = theirs.predict(new, return_std=True)
    close(f - mean, expected_f, 1e-8)
    close(std, expected_std, 1e-8)
    cov = ours.predict(new, return_cov=True, include_noise=True)[1]
    close(cov, theirs.predict(new, return_cov=True)[1], 1e-8)
    value, gradient = ours.log_marginal_likelihood(eval_gradient=True)
    expected, slopes = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-8)
    assert ours.log_marginal_likelihood_value_ == value
    # Theirs: log a², log θ, log σ².
    close(gradient, np.concatenate([slopes[1:-1], 2 * slopes[:1], slopes[-1:]]), 1e-8)


# The dense definition


@pytest.mark.parametrize("eta", [0.5, 200.0])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_exact_process_is_the_dense_definition(penalty, eta):
    X, s, y = problem()
    new = problem(seed=1)[0][:8]
    every = np.vstack([X, new])
    K = AMPLITUDE**2 * naive.rbf(every, every, ARD)
    L = naive.rbf(s[:, None], s[:, None], 0.7)
    setting = {"eta": eta, "noise": NOISE, "penalty": penalty, "eps": 1e-3}
    mean, cov = naive.gp(K, L, y - y.mean(), **setting)[:2]
    model = fitted(feature_map="exact", penalty=penalty, eta=eta)
    f, found = model.predict(new, return_cov=True)
    close(f - y.mean(), mean, 1e-8)
    close(found, cov, 1e-8)
    evidence = naive.log_evidence(K[:50, :50], L, y - y.mean(), **setting)
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-8)
    close(model.predict(new, return_std=True)[1], np.sqrt(np.diag(cov)), 1e-8)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_feature_map_is_exact_where_it_is_the_kernel(penalty):
    """K = ΦΦᵀ and L = ΨΨᵀ: linear kernels, in feature space and by n×n matrices."""
    X, _, _ = problem()
    new = problem(seed=1)[0]
    linear = {"kernel": "linear", "sensitive_kernel": "linear", "penalty": penalty, "eta": 3.0}
    low, dense = (fitted(feature_map=kind, **linear) for kind in ("linear", "exact"))
    assert low.log_marginal_likelihood_value_ == pytest.approx(dense.log_marginal_likelihood_value_, rel=1e-8)
    for one, other in zip(low.predict(new, return_cov=True), dense.predict(new, return_cov=True), strict=True):
        close(one, other, 1e-8)
    close(low.predict(X, return_std=True)[1], dense.predict(X, return_std=True)[1], 1e-8)
    assert low.explained_share_ == pytest.approx(dense.explained_share_, rel=1e-6)
    theta = np.log([0.8, 0.9])
    one, other = (model.log_marginal_likelihood(theta, True) for model in (low, dense))
    assert one[0] == pytest.approx(other[0], rel=1e-8)
    close(one[1], other[1], 1e-8)


def test_all_rows_as_landmarks_are_nearly_exact():
    """To the jitter of the landmarks' kernel matrix; rough kernels need it least."""
    dense = fitted(feature_map="exact", kernel="matern12", eta=3.0)
    full = fitted(n_components=50, kernel="matern12", eta=3.0)
    new = problem(seed=1)[0]
    close(full.predict(new), dense.predict(new), 1e-6)
    close(full.predict(new, return_std=True)[1], dense.predict(new, return_std=True)[1], 1e-6)
    close(full.predict(new, return_cov=True)[1], dense.predict(new, return_cov=True)[1], 1e-6)


# Ridge


@pytest.mark.parametrize("eta", [0.0, 2.0, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(
    "phi",
    [
        Identity(),
        RandomFourier("rbf", ARD, n_components=20, random_state=0),
        Nystroem("rbf", ARD, n_components=20, whitening="cholesky", cutoff=1e-6, random_state=0),
    ],
    ids=["linear", "fourier", "nystroem"],
)
def test_the_mean_is_the_ridge_fit_of_centred_targets(phi, penalty, eta):
    X, s, y = problem()
    phi = phi.fit(X)
    # Groups: a smooth kernel's weakest directions are a matter of the cut-off at η = ∞.
    s = np.digitize(s, [0.0])
    same = {"sensitive_kernel": "categorical", "random_state": 0}
    ridge = FairKernelRidge(
        feature_map=phi, alpha=NOISE / len(y), eta=eta, penalty=penalty, fit_intercept=False, eps=1e-3, **same
    ).fit(X, y - y.mean(), sensitive_features=s)
    gp = given(feature_map=phi, amplitude=1.0, eta=eta, penalty=penalty, **same)
    gp.fit(X, y, sensitive_features=s)
    close(gp.predict(X) - y.mean(), ridge.predict(X), 1e-10)
    close(gp.coef_, ridge.coef_, 1e-10)
    assert gp.explained_share_ == pytest.approx(ridge.explained_share_, rel=1e-8, abs=1e-14)


# Invariances


@pytest.mark.parametrize("kind", [FairGPRegressor, FairGPClassifier])
def test_weights_that_add_up_to_one_are_counted_as_one_observation_not_silently(kind):
    X, s = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    model = kind(eta=0.5, n_components=10, max_iter=2, random_state=0)
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X, X[:, 0] > 0, sensitive_features=s, sample_weight=np.full(60, 1 / 60))
    (said,) = [one for one in caught if one.category is UserWarning]
    assert "multiply them by 60 " in str(said.message)
    assert said.filename == __file__  # the line that called fit


@pytest.mark.parametrize("kind", ["exact", "nystroem", "fourier", "linear"])
def test_weight_two_is_the_row_twice(kind):
    X, s, y = problem(20)
    weight = np.arange(20) % 3.0
    times = weight.astype(int)
    params = {"feature_map": kind, "n_components": 10, "eta": 3.0}
    weighted = given(**params).fit(X, y, sensitive_features=s, sample_weight=weight)
    again = [np.repeat(part, times, axis=0) for part in (X, y, s)]
    repeated = given(**params).fit(again[0], again[1], sensitive_features=again[2])
    close(weighted.predict(X), repeated.predict(X), 1e-8)
    close(*(m.predict(X, return_std=True, include_noise=True)[1] for m in (weighted, repeated)), 1e-7)
    assert weighted.log_marginal_likelihood_value_ == pytest.approx(repeated.log_marginal_likelihood_value_, rel=1e-8)
    assert weighted.n_samples_seen_ == np.count_nonzero(weight)


@pytest.mark.parametrize("kind", ["exact", "nystroem"])
def test_several_outputs_are_each_their_own(kind):
    X, s, y = problem(outputs=2)
    new = problem(seed=1)[0]
    both = given(feature_map=kind, n_components=30, eta=3.0).fit(X, y, sensitive_features=s)
    each = [given(feature_map=kind, n_components=30, eta=3.0).fit(X, y[:, k], sensitive_features=s) for k in range(2)]
    close(both.predict(new), np.column_stack([m.predict(new) for m in each]), 1e-10)
    f, std = both.predict(new, return_std=True)
    assert f.shape == std.shape == (50, 2)
    for k, model in enumerate(each):
        close(std[:, k], model.predict(new, return_std=True)[1], 1e-10)
    cov = both.predict(new, return_cov=True)[1]
    assert cov.shape == (50, 50, 2)
    close(cov[:, :, 1], each[1].predict(new, return_cov=True)[1], 1e-9)
    total = sum(model.log_marginal_likelihood_value_ for model in each)
    assert both.log_marginal_likelihood_value_ == pytest.approx(total, rel=1e-10)
    assert both.sample_y(new, 3).shape == (50, 2, 3)


@pytest.mark.filterwarnings("ignore:the mean of f is constant")
@pytest.mark.parametrize("eta", [0.0, 5.0, np.inf])
@pytest.mark.parametrize("kind", ["exact", "nystroem", "fourier", "linear"])
def test_covariances_are_positive_and_shrink_with_data(kind, eta):
    model = fitted(feature_map=kind, n_components=20, eta=eta)
    new = np.vstack([problem(seed=1)[0], problem()[0][:10], [[30.0, 0.0, 0.0]]])
    f, cov = model.predict(new, return_cov=True)
    least, largest = np.linalg.eigvalsh(cov)[[0, -1]]
    assert least >= -1e-10 * largest
    std = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(std**2, np.diag(cov), rtol=1e-6, atol=1e-10)
    assert np.isfinite(f).all()
    prior = model._prior().covariance(np.asarray(new))
    # At eta = ∞ a linear prior is 0 but for rounding.
    size = max(np.linalg.norm(prior, 2), np.finfo(float).eps * AMPLITUDE**2)
    assert np.linalg.eigvalsh(prior - cov)[0] >= -1e-7 * size


# What a low-rank map misses


def test_far_from_the_data_the_prior_variance_is_whole():
    model = fitted(n_components=15, eta=3.0)
    far = np.full((1, 3), 60.0)
    f, std = model.predict(far, return_std=True)
    close(std, [AMPLITUDE], 1e-10)
    close(f, [problem()[2].mean()], 1e-10)
    close(model.predict(far, return_std=True, include_noise=True)[1] ** 2, [AMPLITUDE**2 + NOISE], 1e-10)
    close(model.predict(np.vstack([far, far + 30]), return_cov=True)[1], AMPLITUDE**2 * np.eye(2), 1e-10)


def test_noise_that_was_learnt_is_not_counted_twice():
    """Up to the residual c that 95 % of the rows keep to, the noise contains it."""
    X, _, y = problem(200)
    learnt = given(n_components=10, eta=0, noise="optimize", amplitude=1.0).fit(X, y)
    noise = learnt.noise_
    fixed = given(n_components=10, eta=0, noise=noise, amplitude=1.0).fit(X, y)
    Phi = learnt.phi_.transform(X)
    rest = 1 - np.sum(Phi**2, axis=1)
    weights = np.linalg.inv(Phi.T @ Phi + noise * np.eye(10))
    variance = noise * np.sum((Phi @ weights) * Phi, axis=1)

    def told(model, **options):
        return model.predict(X, return_std=True, **options)[1] ** 2

    close(told(fixed), variance + rest, 1e-8)
    close(told(fixed, include_noise=True), variance + rest + noise, 1e-8)
    c = np.sort(rest)[189]
    excess = np.maximum(rest - c, 0)
    close(told(learnt, include_noise=True), variance + noise + excess, 1e-8)
    inside = min(1, noise / c) * np.minimum(rest, c)
    close(told(learnt), variance + inside + excess, 1e-8)
    close(np.diag(learnt.predict(X, return_cov=True)[1]), told(learnt), 1e-8)
    assert np.count_nonzero(excess) == 10
    assert noise < c


# Draws


@pytest.mark.parametrize("kind", ["exact", "nystroem", "fourier"])
def test_draws_have_the_mean_and_covariance_that_are_told(kind):
    model = fitted(feature_map=kind, n_components=12, eta=3.0)
    new = problem(seed=1)[0][:4]
    f, cov = model.predict(new, return_cov=True, include_noise=True)
    draws = model.sample_y(new, 40_000, random_state=1, include_noise=True)
    assert draws.shape == (4, 40_000)
    np.testing.assert_allclose(draws.mean(axis=1), f, atol=0.02)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.03)
    np.testing.assert_array_equal(model.sample_y(new, 3), model.sample_y(new, 3))
    assert not np.array_equal(model.sample_y(new), model.sample_y(new, random_state=2))


@pytest.mark.parametrize("kind", ["exact", "nystroem"])
def test_draws_of_the_prior_are_fair(kind):
    """The more weight, the less do s and prior functions have to do with each other."""
    X, s, _ = problem()

    def dependence(eta):
        model = fitted(feature_map=kind, n_components=50, eta=eta, penalty="normalized")
        draws = model.sample_prior(X, 300, random_state=3)
        Psi = np.linalg.cholesky(naive.rbf(s[:, None], s[:, None], 0.7) + 1e-9 * np.eye(50))
        return np.mean([naive.share(f, Psi, eps=1e-3) for f in draws.T])

    free, fair, strict = map(dependence, (1e-8, 1.0, 1e4))
    assert strict < 0.02 < fair < 0.6 * free
    model = fitted(feature_map=kind, n_components=50, eta=1e-8)
    cov = np.cov(model.sample_prior(X[:3], 40_000))
    np.testing.assert_allclose(cov, AMPLITUDE**2 * naive.rbf(X[:3], X[:3], ARD), atol=0.06)


@pytest.mark.filterwarnings("ignore:amplitude")
def test_a_limit_is_met_by_a_finite_eta_where_infinity_leaves_a_constant():
    """As many functions of s as features: η = ∞ reaches all of f, and its share is undefined."""
    rng = np.random.default_rng(1)
    group, age = rng.choice([0.0, 1.0], 300), rng.uniform(20, 70, 300)
    X = rng.normal(size=(300, 4)) + np.outer(group, [1.5, 0, 0, 0])
    X[:, 1] += 0.05 * age
    y = X[:, 0] + X[:, 1] + group + 0.03 * age + 0.3 * rng.normal(size=300)
    model = FairGPRegressor(length_scale=[2.0] * 4, n_components=20, unfairness=0.15, optimizer=None, random_state=0)
    s = pd.DataFrame({"group": group.astype(str), "age": age})
    model.fit(X, y, sensitive_features=s)
    assert np.isfinite(model.eta_)
    assert model.explained_share_ == pytest.approx(0.15, rel=1e-6)
