"""Losses against their definitions, finite differences, and what must hold at the ends."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import gamma, poisson

from scalefair.losses import Gamma, Huber, Logistic, Loss, Multinomial, Poisson, Quantile, Squared, robust_deviation
from tests.errors import refused

ONE_SCORE = [Squared(), Logistic(), Poisson(), Gamma(), Huber(0.7), Quantile(0.3, 0.2)]
ALL = [*ONE_SCORE, Multinomial(2), Multinomial(4)]


def name(loss):
    return type(loss).__name__


def targets(loss, n, rng):
    if isinstance(loss, Logistic):
        return rng.integers(0, 2, n).astype(float)
    if isinstance(loss, Multinomial):
        return np.eye(loss.n_classes)[rng.integers(0, loss.n_classes, n)]
    if isinstance(loss, Poisson):
        return rng.poisson(2.0, n).astype(float)
    return rng.gamma(2.0, size=n)


def scores(loss, n, rng):
    f = 2 * rng.standard_normal((n, loss.n_scores))
    return f[:, 0] if loss.n_scores == 1 else f


def directional(loss, function, f, y, direction, step=1e-6):
    return (function(f + step * direction, y) - function(f - step * direction, y)) / (2 * step)


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_gradient_and_curvature_are_derivatives(loss):
    rng = np.random.default_rng(0)
    f, y = scores(loss, 200, rng), targets(loss, 200, rng)
    if isinstance(loss, Huber):  # its second derivative jumps there
        away = np.abs(np.abs(y - f) - loss.delta) > 1e-4
        f, y = f[away], y[away]
    u = rng.standard_normal(f.shape)
    gradient = loss.gradient(f, y)
    along = np.sum((gradient * u).reshape(len(f), -1), axis=1)
    np.testing.assert_allclose(directional(loss, loss.value, f, y, u), along, atol=2e-8, rtol=1e-7)
    curvature = loss.curvature(f, y).reshape(len(f), -1)
    D = loss.directions
    second = np.einsum("nj,jk,jl,nl->nk", curvature, D, D, u.reshape(len(f), -1))
    found = directional(loss, loss.gradient, f, y, u).reshape(len(f), -1)
    np.testing.assert_allclose(found, second, atol=1e-7, rtol=1e-6)
    assert (curvature >= 0).all()


@pytest.mark.parametrize(
    ("loss", "log_p"),
    [
        (Poisson(), lambda f, y: poisson.logpmf(y, np.exp(f)) + gammaln(y + 1)),
        (Gamma(), lambda f, y: gamma.logpdf(y, 1.0, scale=np.exp(f))),
        (Logistic(), lambda f, y: np.log(np.where(y == 1, 1, np.exp(-f)) / (1 + np.exp(-f)))),
    ],
    ids=["poisson", "gamma", "logistic"],
)
def test_a_loss_is_minus_a_log_density(loss, log_p):
    rng = np.random.default_rng(1)
    f, y = scores(loss, 50, rng), targets(loss, 50, rng)
    np.testing.assert_allclose(loss.value(f, y), -log_p(f, y), rtol=1e-10)


def test_multinomial_of_two_classes_is_logistic():
    rng = np.random.default_rng(2)
    f, y = scores(Logistic(), 50, rng), targets(Logistic(), 50, rng)
    both, one_hot = np.column_stack([np.zeros(50), f]), np.column_stack([1 - y, y])
    multi = Multinomial(2)
    np.testing.assert_allclose(multi.value(both, one_hot), Logistic().value(f, y), rtol=1e-12)
    np.testing.assert_allclose(multi.inverse_link(both)[:, 1], Logistic().inverse_link(f))


def test_huber_is_squared_inside_and_linear_outside():
    loss = Huber(1.0)
    np.testing.assert_allclose(loss.value(np.zeros(3), np.array([0.5, 1.0, 3.0])), [0.25, 1, 5])
    assert Huber(1e6).value(np.zeros(1), np.array([7.0])) == Squared().value(np.zeros(1), 7.0)


def test_quantile_tends_to_the_pinball_loss():
    r = np.array([-3.0, -0.5, 0.5, 2.0])
    found = Quantile(0.3, 1e-3).value(np.zeros(4), r)
    np.testing.assert_allclose(found, np.maximum(0.3 * r, -0.7 * r), atol=1e-12)


@pytest.mark.parametrize("loss", ONE_SCORE, ids=name)
@pytest.mark.parametrize("f", [-800.0, -40.0, 40.0, 800.0])
def test_far_scores_give_no_nan_and_no_warning(loss, f):
    rng = np.random.default_rng(3)
    y = targets(loss, 20, rng)
    at = np.full(20, f)
    parts = loss.value(at, y), loss.gradient(at, y), loss.curvature(at, y), loss.inverse_link(at)
    assert not any(np.isnan(part).any() for part in parts)


def test_digits_are_kept_where_the_class_is_certain():
    f = np.array([50.0])
    one = np.ones(1)
    np.testing.assert_allclose(Logistic().value(f, one), np.exp(-50), rtol=1e-12)
    np.testing.assert_allclose(Logistic().gradient(f, one), -np.exp(-50), rtol=1e-12)
    np.testing.assert_allclose(Logistic().curvature(f, one), np.exp(-50), rtol=1e-12)
    far = Multinomial(3).value(np.array([[1e4, 0.0, -1e4]]), np.array([[0.0, 1.0, 0.0]]))
    np.testing.assert_allclose(far, 1e4)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson(), Gamma()], ids=name)
def test_the_start_is_the_best_constant_and_its_derivatives(loss):
    y = targets(loss, 400, np.random.default_rng(4))
    start = loss.start(np.array([y.mean()]))
    best = minimize_scalar(lambda c: loss.value(np.full(400, c), y).mean(), (-1, 1), tol=1e-12).x
    np.testing.assert_allclose(start.intercept, best, atol=1e-6)
    at = np.full(400, start.intercept[0])
    gradient = loss.gradient(at, y)
    np.testing.assert_allclose(gradient, (y - y.mean()) * start.slope[0, 0], atol=1e-10)
    np.testing.assert_allclose(loss.curvature(at, y).mean(), start.curvature[0])


def test_the_multinomial_start_too():
    loss = Multinomial(3)
    y = targets(loss, 300, np.random.default_rng(5))
    start = loss.start(y.mean(axis=0))
    at = np.tile(start.intercept, (300, 1))
    np.testing.assert_allclose(loss.inverse_link(at[:1])[0], y.mean(axis=0))
    np.testing.assert_allclose(loss.gradient(at, y), (y - y.mean(axis=0)) @ start.slope, atol=1e-12)
    np.testing.assert_allclose(loss.curvature(at, y).mean(axis=0), start.curvature)


@pytest.mark.parametrize(
    ("loss", "wrong", "words"),
    [
        (Logistic(), 2.0, [2.0, "Logistic", "0 and 1", "multinomial"]),
        (Poisson(), -1.0, [-1.0, "Poisson", "≥ 0", "huber"]),
        (Gamma(), 0.0, [0.0, "Gamma", "> 0", "poisson"]),
        (Huber(), np.inf, ["such as inf", "Huber", "finite"]),
        (Squared(), np.nan, ["nan", "Squared", "finite"]),
    ],
    ids=["logistic", "poisson", "gamma", "huber", "squared"],
)
def test_targets_outside_the_domain_are_named(loss, wrong, words):
    loss.check_targets(np.array([1.0, 1.0]))
    with refused("y has", *words, error=ValueError):
        loss.check_targets(np.array([1.0, wrong]))


def test_multinomial_wants_one_hot_rows():
    with refused("Multinomial", "one-hot", 3, error=ValueError):
        Multinomial(3).check_targets(np.array([[1.0, 0.0, 1.0]]))


def test_open_scales_follow_the_targets_and_their_weights():
    y = np.random.default_rng(6).standard_normal(20_000)
    assert abs(robust_deviation(y, None) - 1) < 0.03
    spoilt = np.where(np.arange(20_000) < 4_000, 1e9, y)
    assert robust_deviation(spoilt, None) < 1.6
    weight = np.random.default_rng(7).integers(0, 3, 20_000)
    kept = weight > 0
    twice = robust_deviation(np.repeat(y, weight), None)
    assert robust_deviation(y[kept], weight[kept].astype(float)) == twice
    assert Huber().fitted(y, None).delta == pytest.approx(1.345 * robust_deviation(y, None))
    assert Quantile(0.9).fitted(100 * y, None).width == pytest.approx(5 * robust_deviation(y, None))
    assert robust_deviation(np.array([0.0, 0.0, 0.0, 3.0]), None) == pytest.approx(1.299038)
    assert robust_deviation(np.ones(3), None) == 1.0


def test_bad_parameters_are_named():
    with refused("level=1.5", error=ValueError):
        Quantile(1.5).fitted(np.ones(2), None)
    with refused("level='high'", error=ValueError):
        Quantile("high").fitted(np.ones(2), None)
    with refused("delta=-1", error=ValueError):
        Huber(-1.0).fitted(np.ones(2), None)
    with refused("delta=None", "fitted", error=ValueError):
        Huber().value(np.zeros(1), np.zeros(1))


def test_a_loss_of_ones_own_needs_three_methods():
    class Cosh(Loss):
        def value(self, f, y):
            return np.log(np.cosh(f - y))

        def gradient(self, f, y):
            return np.tanh(f - y)

        def curvature(self, f, y):
            return 1 - np.tanh(f - y) ** 2

    loss = Cosh().fitted(np.ones(2), None)
    assert loss.start(np.ones(1)) is None
    assert loss.inverse_link(np.ones(2)) is not None
    loss.check_targets(np.ones(2))
