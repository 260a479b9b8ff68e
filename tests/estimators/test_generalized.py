"""Fair regression with other losses against scikit-learn and direct minimisation."""

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import GammaRegressor, PoissonRegressor

import scalefair
from scalefair import FairKernelRegressor, FairKernelRidge
from scalefair.losses import Gamma, Huber, Multinomial, Poisson, Quantile
from tests import naive
from tests.errors import refused

N = 400
NAMES = ["squared", "poisson", "gamma", "huber", "quantile"]


def table(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 4))
    s = (X[:, 0] + rng.standard_normal(N) > 0).astype(int)
    signal = X @ np.array([0.5, -0.4, 0.2, 0.0]) + 0.3 * s
    if loss == "poisson":
        return X, rng.poisson(np.exp(signal)).astype(float), s
    if loss == "gamma":
        return X, rng.gamma(2.0, np.exp(signal)), s
    return X, signal + rng.standard_t(3, N), s


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("loss", "rival"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)])
def test_eta_zero_is_scikit_learn(loss, rival, fit_intercept):
    X, y, _ = table(loss)
    weight = np.random.default_rng(1).integers(0, 4, N).astype(float)
    ours = FairKernelRegressor(loss=loss, feature_map="linear", eta=0, alpha=1e-2, fit_intercept=fit_intercept).fit(
        X, y, sample_weight=weight
    )
    # Half the mean deviance is the mean of V up to a constant; theirs is a/2 |β|², so a = 2α.
    theirs = rival(alpha=2e-2, solver="newton-cholesky", tol=1e-12, max_iter=1000, fit_intercept=fit_intercept).fit(
        X, y, sample_weight=weight
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-5)


@pytest.mark.parametrize("loss", [Huber(0.9), Quantile(0.8, 0.2), Quantile(0.5, 0.05)])
def test_robust_losses_are_minimised(loss):
    X, y, _ = table("huber")
    fit = FairKernelRegressor(loss=loss, feature_map="linear", eta=0, alpha=1e-2).fit(X, y)
    best = naive.linear_by_optimiser(loss, X, y, 1e-2)
    np.testing.assert_allclose(np.append(fit.coef_, fit.intercept_), best, atol=1e-5)
    assert fit.mean_loss_ == pytest.approx(loss.value(fit.predict(X), y).mean(), abs=1e-8)


def test_a_quantile_is_exceeded_as_often_as_it_says():
    X, y, s = table("quantile")
    for level in (0.1, 0.5, 0.9):
        fit = FairKernelRegressor(loss=Quantile(level), n_components=20, random_state=0)
        below = y <= fit.fit(X, y, sensitive_features=s).predict(X)
        assert abs(below.mean() - level) < 0.04


@pytest.mark.parametrize("settings", [{"eta": 0.0}, {"eta": 2.0}, {"eta": np.inf}])
def test_squared_is_the_ridge_with_the_same_alpha(settings):
    X, y, s = table("squared")
    settings = {"n_components": 30, "random_state": 0, "alpha": 1e-3, **settings}
    ours = FairKernelRegressor(loss="squared", **settings).fit(X, y, sensitive_features=s)
    ridge = FairKernelRidge(**settings).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(ours.predict(X), ridge.predict(X), atol=1e-8)
    assert ours.explained_share_ == pytest.approx(ridge.explained_share_, abs=1e-10)


def test_exact_is_the_exact_ridge():
    X, y, s = table("squared")
    X, y, s = X[:80], y[:80], s[:80]
    settings = {"feature_map": "exact", "eta": 2.0, "random_state": 0, "alpha": 1e-2}
    ours = FairKernelRegressor(loss="squared", **settings).fit(X, y, sensitive_features=s)
    ridge = FairKernelRidge(**settings).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(ours.predict(X), ridge.predict(X), atol=1e-6)


@pytest.mark.parametrize("loss", NAMES)
def test_eta_to_infinity_leaves_nothing_explained(loss):
    X, y, s = table(loss)
    settings = {"loss": loss, "n_components": 30, "random_state": 0}
    fit = FairKernelRegressor(eta=np.inf, **settings).fit(X, y, sensitive_features=s)
    f = fit.predict_scores(X)
    assert abs(f[s == 0].mean() - f[s == 1].mean()) < 1e-9
    assert fit.explained_share_ < 1e-15
    free = FairKernelRegressor(eta=0, **settings).fit(X, y, sensitive_features=s)
    assert free.explained_share_ > 0.02
    limited = FairKernelRegressor(unfairness=0.01, **settings).fit(X, y, sensitive_features=s)
    assert limited.explained_share_ == pytest.approx(0.01, rel=1e-6)
    assert limited.n_passes_ <= 12


@pytest.mark.parametrize("loss", NAMES)
def test_weight_two_is_the_row_twice(loss):
    X, y, s = table(loss)
    weight = np.random.default_rng(2).integers(0, 3, N)
    twice = np.repeat(np.arange(N), weight)
    settings = {"loss": loss, "feature_map": "linear", "eta": 0.5}
    weighted = FairKernelRegressor(**settings).fit(X, y, sensitive_features=s, sample_weight=weight)
    repeated = FairKernelRegressor(**settings).fit(X[twice], y[twice], sensitive_features=s[twice])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-8)
    assert weighted.loss_ == repeated.loss_


def test_outliers_move_the_squared_loss_and_not_huber():
    X, y, s = table("huber")
    wild = np.where(np.arange(N) < 20, 1e4, y)
    gaps = {}
    for loss in ("huber", "squared"):
        clean, spoilt = (
            FairKernelRegressor(loss=loss, eta=1.0, n_components=20, random_state=0)
            .fit(X, target, sensitive_features=s)
            .predict(X)
            for target in (y, wild)
        )
        gaps[loss] = np.median(np.abs(clean - spoilt))
    assert gaps["huber"] < 0.5
    assert gaps["squared"] > 100


@pytest.mark.parametrize("loss", [*NAMES, Quantile(0.9), Huber(2.0)])
def test_saved_and_loaded_it_predicts_the_same_bits(loss, tmp_path):
    X, y, s = table(loss if isinstance(loss, str) else "huber")
    fit = FairKernelRegressor(loss=loss, n_components=10, random_state=0)
    fit.fit(X, y, sensitive_features=s)
    scalefair.save(fit, tmp_path / "model")
    assert (scalefair.load(tmp_path / "model").predict(X) == fit.predict(X)).all()


def test_the_path_is_monotone_and_warm():
    X, y, s = table("poisson")
    fit = FairKernelRegressor(loss="poisson", n_components=20, random_state=0)
    fit.fit(X, y, sensitive_features=s)
    path = fit.path(X, y, sensitive_features=s)
    assert (np.diff(path.table["loss"]) > -1e-12).all()
    assert path.table["explained_share"].iloc[-1] < 1e-15
    assert path.table["passes"].iloc[1:-1].max() <= 5
    with refused("sensitive_features=s"):
        FairKernelRegressor(eta=0).fit(X, y).path(X, y, [0.0])


@pytest.mark.parametrize(
    ("loss", "y", "named"),
    [
        ("poisson", -1.0, ["y has 1 value", "-1.0", "Poisson"]),
        (Poisson(), np.nan, ["y", "NaN"]),
        ("gamma", 0.0, ["y has 1 value", "0.0", "Gamma"]),
        (Gamma(), -3.0, ["y has 1 value", "-3.0", "Gamma"]),
    ],
)
def test_targets_outside_the_domain_are_named(loss, y, named):
    X, target, s = table("gamma")
    target[7] = y
    with refused(*named):
        FairKernelRegressor(loss=loss).fit(X, target, sensitive_features=s)


def test_targets_that_do_not_count_may_be_anything():
    X, y, s = table("gamma")
    weight = np.ones(N)
    y[7], weight[7] = -5.0, 0.0
    fit = FairKernelRegressor(loss="gamma", feature_map="linear").fit(X, y, sensitive_features=s, sample_weight=weight)
    kept = np.arange(N) != 7
    without = FairKernelRegressor(loss="gamma", feature_map="linear")
    without.fit(X[kept], y[kept], sensitive_features=s[kept])
    np.testing.assert_allclose(fit.coef_, without.coef_, atol=1e-8)


def test_bad_input_is_named():
    X, y, s = table("huber")
    fit = FairKernelRegressor(n_components=10)
    with refused("y has 2 columns"):
        fit.fit(X, np.column_stack([y, y]), sensitive_features=s)
    with refused("y has 1 columns", "Multinomial"):
        FairKernelRegressor(loss=Multinomial(3)).fit(X, y, sensitive_features=s)
    with refused("loss", "'logistic'", "poisson"):
        FairKernelRegressor(loss="logistic").fit(X, y, sensitive_features=s)
    with refused("level=2.0"):
        FairKernelRegressor(loss=Quantile(2.0)).fit(X, y, sensitive_features=s)
    with refused("sample_weight"):
        fit.fit(X, y, sensitive_features=s, sample_weight=np.zeros(N))
    with pytest.warns(DataConversionWarning):
        fit.fit(X, y[:, None], sensitive_features=s)
    with refused("sensitive_features=s", "sensitive_columns"):
        fit.fit(X, y)
