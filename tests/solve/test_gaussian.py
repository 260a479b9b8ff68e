"""The weight-space Gaussian process from moments, against dense definitions and other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct

from scalefair import FairGPRegressor
from scalefair.maps import Identity
from scalefair.moments import Moments
from scalefair.solve.gp.distribution import FeatureDistribution, draw
from scalefair.solve.gp.profile import profile_noise
from scalefair.solve.gp.system import GaussianPoint, GaussianSystem
from scalefair.solve.ridge.direct import solve_primal
from scalefair.solve.ridge.system import System
from tests import naive
from tests.errors import refused
from tests.naive import close, features
from tests.solve.dense import fair_gp, fair_gram
from tests.solve.systems import moments_of

PENALTIES = ["hsic", "normalized"]
NOISE, AMPLITUDE = 0.7, 1.6


def without_psi(moments):
    keep = np.r_[: moments.blocks["phi"], -moments.blocks["y"] : 0]
    blocks = {"phi": moments.blocks["phi"], "y": moments.blocks["y"]}
    return Moments(
        blocks,
        moments.n_rows,
        moments.weight,
        moments.shift[keep],
        moments.offset[keep],
        moments.scatter[np.ix_(keep, keep)],
    )


def setting(penalty="normalized", eta=3.0, noise=NOISE, eps=1e-3):
    return {"penalty": penalty, "eta": eta, "noise": noise, "eps": eps}


def point_of(moments, *, noise, amplitude=1.0, eta=0.0, penalty="normalized", eps=None):
    system = GaussianSystem.build(moments, penalty=penalty, eps=eps)
    return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta)


def central(function, x, step=1e-4):
    """Central differences of the fourth order, one argument at a time."""
    slopes = []
    for i in range(len(x)):
        h = step * np.eye(len(x))[i]
        slopes.append(
            (8 * (function(x + h) - function(x - h)) - function(x + 2 * h) + function(x - 2 * h)) / (12 * step)
        )
    return np.array(slopes)


# Evidence and posterior


@pytest.mark.parametrize("eta", [0.0, 3.0, 1e4, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_equals_the_dense_reference(penalty, eta):
    Phi, Psi, y = features(outputs=2)
    new = features(seed=9, n=6)[0]
    K, L, K_new = ((AMPLITUDE**2 * a @ b.T) for a, b in ((Phi, Phi), (Psi, Psi), (new, Phi)))
    gp = fair_gp(K, L / AMPLITUDE**2, y - y.mean(axis=0), **setting(penalty, eta))
    found = {**setting(penalty, eta), "amplitude": AMPLITUDE}
    moments = moments_of(Phi, Psi, y)
    np.testing.assert_allclose(point_of(moments, **found).log_evidence, gp.log_evidence, rtol=1e-8)
    fit = point_of(moments, **found).posterior()
    close(fit.mean(new) - y.mean(axis=0), gp.mean(K_new), 1e-8)
    close(fit.covariance(new), gp.covariance(K_new, AMPLITUDE**2 * new @ new.T), 1e-8)
    close(fit.variance(new), np.diag(fit.covariance(new)), 1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_equals_the_definitions(penalty):
    """The formulas of the weight-space form, and the normal density of y under the fair prior."""
    Phi, Psi, y = features()
    new, centred = features(seed=9, n=6)[0], y - y.mean()
    mean, covariance, evidence = naive.weight_space_gp(
        AMPLITUDE * Phi, Psi, centred, AMPLITUDE * new, **setting(penalty)
    )
    point = GaussianPoint.of(
        GaussianSystem.build(moments_of(Phi, Psi, y), penalty=penalty, eps=1e-3),
        noise=NOISE,
        amplitude=AMPLITUDE,
        eta=3.0,
    )
    np.testing.assert_allclose(point.amplitude, AMPLITUDE, rtol=1e-14)
    np.testing.assert_allclose(point.log_evidence, evidence, rtol=1e-10)
    close(point.posterior().mean(new)[:, 0] - y.mean(), mean, 1e-9)
    close(point.posterior().covariance(new), covariance, 1e-9)
    prior = point.prior()
    close(prior.mean(new), np.full((6, 1), y.mean()), 1e-14)
    K, L = AMPLITUDE**2 * Phi @ Phi.T, Psi @ Psi.T
    close(prior.covariance(Phi), fair_gram(K, L, **setting(penalty)), 1e-9)
    spread = prior.covariance(Phi) + NOISE * np.eye(len(y))
    density = multivariate_normal.logpdf(centred, np.zeros(len(y)), spread)
    np.testing.assert_allclose(point.log_evidence, density, rtol=1e-8)


@pytest.mark.parametrize("outputs", [None, 3])
def test_without_penalty_it_is_scikit_learns(outputs):
    Phi, Psi, y = features(outputs=outputs)
    new, offset = features(seed=9, n=6)[0], y.mean(axis=0)
    kernel = DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
    gp = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(Phi, y - offset)
    mean, covariance = gp.predict(new, return_cov=True)
    covariance = covariance if outputs is None else covariance[..., 0]
    moments = moments_of(Phi, Psi, y)
    np.testing.assert_allclose(
        point_of(moments, noise=NOISE).log_evidence, gp.log_marginal_likelihood_value_, rtol=1e-8
    )
    fit = point_of(moments, noise=NOISE).posterior()
    close(fit.mean(new).reshape(mean.shape) - offset, mean, 1e-8)
    close(fit.covariance(new), covariance, 1e-8)


@pytest.mark.parametrize("eta", [0.0, 3.0, 1e8, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_mean_is_the_ridge_without_intercept(penalty, eta):
    """α = σ²/(na²) and the same η, on centred y."""
    Phi, Psi, y = features()
    alpha = 0.02
    ridge = moments_of(Phi, Psi, y - y.mean())
    system = System.build(ridge, penalty=penalty, fit_intercept=False)
    coef = solve_primal(system, alpha, eta)[0]
    for amplitude in (1.0, 5.0):
        noise = len(y) * alpha * amplitude**2
        fit = point_of(moments_of(Phi, Psi, y), noise=noise, amplitude=amplitude, eta=eta, penalty=penalty).posterior()
        close(fit.coef, coef, 1e-10)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("eta", [3.0, np.inf])
def test_weight_two_is_the_row_twice(penalty, eta):
    Phi, Psi, y = features(outputs=2)
    weight = np.random.default_rng(3).integers(0, 4, len(y))
    found = {**setting(penalty, eta), "amplitude": AMPLITUDE}
    repeated = moments_of(*(np.repeat(a, weight, axis=0) for a in (Phi, Psi, y)))
    weighted = moments_of(Phi, Psi, y, weight)
    np.testing.assert_allclose(
        point_of(weighted, **found).log_evidence, point_of(repeated, **found).log_evidence, rtol=1e-12
    )
    fit, other = point_of(weighted, **found).posterior(), point_of(repeated, **found).posterior()
    close(fit.mean(Phi), other.mean(Phi), 1e-11)
    close(fit.covariance(Phi), other.covariance(Phi), 1e-11)


def test_outputs_add_up_and_share_the_covariance():
    Phi, Psi, y = features(outputs=3)
    single = [point_of(moments_of(Phi, Psi, t), **setting()).log_evidence for t in y.T]
    np.testing.assert_allclose(point_of(moments_of(Phi, Psi, y), **setting()).log_evidence, sum(single), rtol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_large_eta_loses_no_digits(penalty):
    """Beyond every digit of C the evidence and the posterior go to their limits as 1/η."""
    Phi, Psi, y = features(n=30, m=5, q=2)
    moments = moments_of(Phi, Psi, y)
    limit = point_of(moments, **setting(penalty, np.inf)).log_evidence
    fit = point_of(moments, **setting(penalty, np.inf)).posterior()
    gaps = []
    for eta in (1e6, 1e8, 1e10, 1e14):
        gaps.append(point_of(moments, **setting(penalty, eta)).log_evidence - limit)
        far = point_of(moments, **setting(penalty, eta)).posterior()
        close(far.coef, fit.coef, 1e4 / eta + 1e-12)
        close(far.covariance(Phi), fit.covariance(Phi), 1e4 / eta + 1e-12)
    # The gap to the limit falls as 1/η until it is rounding error of the evidence.
    np.testing.assert_allclose(gaps[1] * 1e8, gaps[0] * 1e6, rtol=1e-3)
    assert np.abs(gaps[2:]).max() <= 2 * abs(gaps[1]) / 100 + 1e-12 * abs(limit)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_infinite_eta_lives_on_the_null_space(penalty, wide):
    """β ~ N(0, a² projection on {β : C_ψφβ = 0}); a wide ψ leaves nothing of it."""
    Phi, Psi, y = features(m=5, q=2)
    if wide:
        Psi = np.hstack([Phi[:, :2], Psi**2, np.abs(Psi), Psi])
    N = null_space(naive.covariance(Psi, Phi))
    assert N.shape[1] == (0 if wide else 3)
    moments = moments_of(Phi, Psi, y)
    found = {**setting(penalty, np.inf), "amplitude": AMPLITUDE}
    centred, scaled = y - y.mean(), AMPLITUDE * Phi @ N
    spread = scaled @ scaled.T + NOISE * np.eye(len(y))
    density = multivariate_normal.logpdf(centred, np.zeros(len(y)), spread)
    np.testing.assert_allclose(point_of(moments, **found).log_evidence, density, rtol=1e-10)
    fit = point_of(moments, **found).posterior()
    inverse = np.linalg.inv(scaled.T @ scaled + NOISE * np.eye(N.shape[1]))
    expected = AMPLITUDE * N @ inverse @ scaled.T @ centred
    np.testing.assert_allclose(fit.coef[:, 0], expected, rtol=0, atol=1e-11)
    covariance = NOISE * scaled @ inverse @ scaled.T
    np.testing.assert_allclose(fit.covariance(Phi), covariance, rtol=0, atol=1e-11)
    assert np.abs(naive.covariance(Psi, Phi @ fit.coef)).max() < 1e-10


@pytest.mark.parametrize("eta", [0.0, 1.0, 1e8, np.inf])
@pytest.mark.parametrize("noise", [1e-6, 1.0])
def test_covariances_are_positive_and_shrink(eta, noise):
    """More features than rows: prior ≥ posterior ≥ 0, and fair ≤ unfair."""
    Phi, Psi, y = features(n=15, m=25)
    system = GaussianSystem.build(moments_of(Phi, Psi, y))
    point = GaussianPoint.of(system, noise=noise, amplitude=AMPLITUDE, eta=eta)
    unfair = GaussianPoint.of(system, noise=noise, amplitude=AMPLITUDE)
    new = features(seed=9, n=40, m=25)[0]
    prior, after = point.prior().covariance(new), point.posterior().covariance(new)
    size = np.trace(prior)
    assert np.linalg.eigvalsh(after).min() > -1e-14 * size
    assert np.linalg.eigvalsh(prior - after).min() > -1e-12 * size
    assert np.linalg.eigvalsh(unfair.prior().covariance(new) - prior).min() > -1e-12 * size
    assert point.posterior().variance(new).min() >= 0


def test_samples_have_the_distribution():
    Phi, Psi, y = features(outputs=2)
    fit = point_of(moments_of(Phi, Psi, y), **setting()).posterior()
    new = features(seed=9, n=3)[0]
    of_f = FeatureDistribution(Identity().fit(Phi), fit, 0.0, 0.0)
    draws = draw(of_f, new, 200_000, 0, include_noise=False)
    assert draws.shape == (3, 2, 200_000)
    close(draws.mean(axis=2), fit.mean(new), 0.005)
    for output in (0, 1):
        close(np.cov(draws[:, output]), fit.covariance(new), 0.02)


def test_without_a_psi_block_there_is_no_penalty():
    moments = moments_of(*features(outputs=2))
    bare = without_psi(moments)
    expected = point_of(moments, noise=NOISE, eta=0.0).log_evidence
    np.testing.assert_allclose(point_of(bare, noise=NOISE, eta=5.0).log_evidence, expected, rtol=1e-13)
    fit = point_of(bare, noise=NOISE, eta=5.0).posterior()
    close(fit.factor @ fit.factor.T, point_of(moments, noise=NOISE).posterior().covariance(np.eye(7)), 1e-12)


# Gradients in noise, amplitude and η


@pytest.mark.parametrize("eta", [1e-3, 2.0, 1e3])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradient_equals_central_differences(penalty, outputs, eta):
    Phi, Psi, y = features(outputs=outputs)
    system = GaussianSystem.build(moments_of(Phi, Psi, y, naive.weights(len(y))), penalty=penalty, eps=1e-3)

    def point(logs):
        noise, amplitude, eta = np.exp(logs)
        return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta)

    logs = np.log([0.4, 1.3, eta])
    differences = central(lambda at: point(at).log_evidence, logs, step=1e-3)
    close(point(logs).gradient, differences, 1e-9)
    np.testing.assert_allclose(point(logs).gradient, differences, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("eta", [0.0, np.inf])
def test_gradient_at_the_ends_of_eta(eta):
    system = GaussianSystem.build(moments_of(*features()))

    def point(logs):
        noise, amplitude = np.exp(logs)
        return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta)

    gradient = point(np.log([0.4, 1.3])).gradient
    close(gradient[:2], central(lambda at: point(at).log_evidence, np.log([0.4, 1.3])), 1e-8)
    np.testing.assert_allclose(gradient[2], 0.0, atol=1e-12)


# Profile


@pytest.mark.parametrize("eta", [0.0, 3.0, 1e8, np.inf])
@pytest.mark.parametrize("outputs", [None, 2])
def test_profile_is_the_best_of_a_fine_grid(outputs, eta):
    system = GaussianSystem.build(moments_of(*features(outputs=outputs, n=60)))
    profile = profile_noise(system, eta)
    np.testing.assert_allclose(profile.point.gradient[:2], 0.0, atol=1e-7)
    assert profile.at_bounds == ()
    best = profile.point.log_evidence
    for noise in np.geomspace(1e-3, 1e3, 40):
        for amplitude in np.geomspace(1e-2, 1e2, 40):
            at = GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta)
            assert at.log_evidence <= best


def test_profile_with_one_of_them_fixed():
    system = GaussianSystem.build(moments_of(*features(n=60)))
    unit = profile_noise(system, 2.0, amplitude_bounds=(1.0, 1.0))
    assert unit.point.amplitude == pytest.approx(1.0, rel=1e-12)
    assert unit.point.gradient[0] == pytest.approx(0.0, abs=1e-7)
    known = profile_noise(system, 2.0, noise_bounds=(0.5, 0.5))
    assert known.point.noise == 0.5
    assert known.point.gradient[1] == pytest.approx(0.0, abs=1e-7)
    both = profile_noise(system, 2.0, noise_bounds=(0.5, 0.5), amplitude_bounds=(2.0, 2.0))
    assert (both.point.noise, both.point.amplitude) == (0.5, pytest.approx(2.0))
    assert unit.at_bounds == known.at_bounds == both.at_bounds == ()


@pytest.mark.parametrize(("signal", "first"), [(0.3, False), (0.5, True)])
def test_profile_finds_the_higher_of_two_maxima(signal, first):
    """Three strong directions and seven faint ones: what these say is either noise or signal."""
    rng = np.random.default_rng(2)
    Phi = np.linalg.qr(rng.normal(size=(20, 10)))[0] * np.r_[[1.0] * 3, [0.01] * 7]
    y = Phi @ (rng.normal(size=10) * np.r_[[1.0] * 3, [signal / 0.01] * 7])
    y = y + 0.1 * rng.normal(size=20)
    system = GaussianSystem.build(moments_of(Phi, np.ones((20, 1)), y))
    slices = [system.slice(ratio, 0.0) for ratio in np.geomspace(1e-8, 1e3, 111)]
    values = np.array([GaussianPoint(at, at.misfit / 20).log_evidence for at in slices])
    peaks = np.flatnonzero((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) + 1
    assert len(peaks) == 2
    assert (values[peaks[0]] > values[peaks[1]]) == first
    best = profile_noise(system, amplitude_bounds=(1e-3, 1e5)).point
    assert values.max() <= best.log_evidence < values.max() + 0.1
    np.testing.assert_allclose(best.slice.ratio, slices[values.argmax()].ratio, rtol=0.3)


@pytest.mark.parametrize(
    ("bounds", "start"),
    [
        ({"noise_bounds": (1e-9, 1e-6)}, "noise=1e-06 reached its upper bound"),
        ({"noise_bounds": (30.0, 1e3)}, "noise=30 reached its lower bound"),
        ({"amplitude_bounds": (1e-3, 1e-2)}, "amplitude=0.01 reached its upper bound"),
        ({"amplitude_bounds": (50.0, 1e3)}, "amplitude=50 reached its lower bound"),
    ],
)
def test_profile_reports_bounds(bounds, start):
    system = GaussianSystem.build(moments_of(*features(n=60)))
    profile = profile_noise(system, 1.0, **bounds)
    assert any(sentence.startswith(start) for sentence in profile.at_bounds)
    # At a bound the evidence still grows outwards, and is stationary along the other one.
    along, other = profile.point.gradient[:2][:: -1 if "amplitude_bounds" in bounds else 1]
    assert (along > 0) == ("upper" in start)
    assert abs(other) < 1e-6


def test_no_signal_and_no_noise_are_reported():
    Phi, Psi, _ = features(n=60, m=4)
    noise = np.random.default_rng(1).normal(size=60)
    noise -= Phi @ np.linalg.lstsq(Phi, noise, rcond=None)[0]
    (flat,) = profile_noise(GaussianSystem.build(moments_of(Phi, Psi, noise)), 0.0).at_bounds
    assert flat.startswith("amplitude=")
    centred = Phi - Phi.mean(axis=0)
    system = GaussianSystem.build(moments_of(centred, Psi, centred @ np.arange(1.0, 5.0)))
    profile = profile_noise(system, 0.0)
    assert profile.at_bounds[0].startswith("noise=")
    assert np.isfinite(profile.point.log_evidence)
    assert np.isfinite(profile.point.coef).all()


# Bad input


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise", 0.0),
        ("noise", np.nan),
        ("noise", 1e-30),
        ("amplitude", -1.0),
        ("eta", -1.0),
        ("eps", -1.0),
        ("penalty", "nocco"),
    ],
)
def test_bad_hyperparameters_are_named(name, value):
    with refused(f"{name}={value!r}", error=ValueError):
        point_of(moments_of(*features()), **{**setting(), name: value})


def test_bad_moments_and_bounds_are_named():
    Phi, Psi, y = features()
    with refused("no rows", error=ValueError):
        GaussianSystem.build(Moments.empty({"phi": 2, "psi": 1, "y": 1}))
    with refused("NaN", error=ValueError):
        GaussianSystem.build(moments_of(np.where(Phi > 1, np.nan, Phi), Psi, y))
    with refused("y ", "constant", error=ValueError):
        profile_noise(GaussianSystem.build(moments_of(Phi, Psi, np.full(len(y), 0.1))))
    system = GaussianSystem.build(moments_of(Phi, Psi, y))
    with refused(f"noise_bounds={(2.0, 1.0)}", error=ValueError):
        FairGPRegressor(eta=0.0, noise_bounds=(2.0, 1.0)).fit(Phi, y)
    with refused(f"noise_bounds={(1e-30, 1e-29)}", error=ValueError):
        profile_noise(system, noise_bounds=(1e-30, 1e-29), amplitude_bounds=(1.0, 2.0))
