"""Fits under a limit on the explained share: the limit is met, and nothing better meets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.optimize import minimize

from scalefair.features.mixed import all_columns
from scalefair.moments import Moments
from scalefair.solve.limit import NotAttainableError, least_eta, optimum_within
from scalefair.solve.ridge.direct import limited, ridge_fit, solve_primal
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System, rescale
from tests import naive
from tests.errors import refused
from tests.naive import close, features
from tests.solve.systems import moments_of, system_of

INTERCEPT = [True, False]


class Limited(NamedTuple):
    coef: Any
    eta: float


def solve_under_limit(system, alpha, unfairness):
    return Limited(*limited(Spectrum.of(system).at(alpha), unfairness))


def least_share(system):
    return Spectrum.of(system).at(1.0).quadratic().least_share()


def optimum_at_share(system, alpha, unfairness):
    spectrum = Spectrum.of(system)
    return spectrum.basis @ optimum_within(spectrum.at(alpha).quadratic(), unfairness).coef


def full_rank(m=3, q=4, seed=0, n=60):
    """More attributes than features: no predictor is free of s."""
    rng = np.random.default_rng(seed)
    Psi = rng.normal(size=(n, q))
    Phi = Psi @ rng.normal(size=(q, m)) + rng.normal(size=(n, m)) + 1.0
    return Phi, Psi, Phi @ rng.normal(size=m) + Psi[:, 0] + rng.normal(size=n)


def sample_share(system, coef, Phi, Psi):
    share = naive.share(Phi @ coef, Psi)
    np.testing.assert_allclose(system.explained_share(coef), share, rtol=1e-8, atol=1e-11)
    return share


def generalised_least_share(Phi, Psi):
    R = naive.factor(Phi, Psi)
    return eigh(R @ R.T, naive.covariance(Phi, Phi), eigvals_only=True)[0]


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 1.0])
def test_an_active_limit_is_met_exactly(penalty, fit_intercept, outputs, alpha):
    for seed in range(3):
        Phi, Psi, y = features(seed, outputs=outputs)
        system = system_of(Phi, Psi, y, penalty=penalty, fit_intercept=fit_intercept)
        free = system.explained_share(solve_primal(system, alpha, 0.0)[0])
        for unfairness in np.array([1e-4, 0.01, 0.3, 0.9, 0.999]) * free:
            fit = solve_under_limit(system, alpha, unfairness)
            assert 0 < fit.eta < np.inf
            share = sample_share(system, fit.coef, Phi, Psi)
            np.testing.assert_allclose(share, unfairness, rtol=0, atol=1e-6 * min(1, unfairness))
            # Up to its length it is the closed form at the eta that is reported.
            direct = rescale(system, solve_primal(system, alpha, fit.eta)[0])
            close(fit.coef, direct, 1e-7)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
def test_a_limit_is_met_in_any_units(penalty, unit):
    """hsic of s in other units needs another eta, by the square of the unit."""
    Phi, Psi, y = features()
    for inputs, attributes, alpha in ((Phi, unit * Psi, 1e-2), (unit * Phi, Psi, 1e-2 * unit**2)):
        moments = moments_of(inputs, attributes, y)
        moments = replace(moments, units={"psi": all_columns("columns", Psi.shape[1])})
        system = System.build(moments, penalty=penalty)
        for unfairness in (1e-3, 0.05):
            fit = solve_under_limit(system, alpha, unfairness)
            assert fit.eta < np.inf
            share = naive.share(inputs @ fit.coef, Psi, eps=1e-6 * Psi.var(axis=0))
            np.testing.assert_allclose(share, unfairness, rtol=1e-6)


@given(
    seed=st.integers(0, 200),
    unfairness=st.floats(0, 1),
    log_alpha=st.floats(-8, 1),
    penalty=st.sampled_from(["hsic", "normalized", "nocco"]),
    fit_intercept=st.booleans(),
    shape=st.sampled_from([(5, 2), (4, 4), (3, 5), (1, 1), (1, 3), (2, 1)]),
)
@settings(deadline=None, max_examples=60)
def test_the_limit_holds_or_is_refused(seed, unfairness, log_alpha, penalty, fit_intercept, shape):
    Phi, Psi, y = full_rank(*shape, seed=seed, n=30)
    system = system_of(Phi, Psi, y, penalty=penalty, fit_intercept=fit_intercept)
    alpha = 10.0**log_alpha
    least = generalised_least_share(Phi, Psi)
    if unfairness < least - 1e-9:
        with pytest.raises(NotAttainableError):
            solve_under_limit(system, alpha, unfairness)
        return
    assume(least < 1e-12 or unfairness > least + 1e-9)
    fit = solve_under_limit(system, alpha, unfairness)
    assert sample_share(system, fit.coef, Phi, Psi) <= unfairness + 1e-6


def non_monotone():
    """A share that is not monotone in η: C = diag(16, 1), R = (2.423, .789), C_φy = (3, 1)."""
    C, R, c = np.diag([16.0, 1.0]), np.array([2.423, 0.789]), np.array([3.0, 1.0])
    of_y = R @ np.linalg.solve(C, c)
    scatter = np.block([[C, R[:, None], c[:, None]], [R, 1.0, of_y], [c, of_y, 4.0]])
    assert (np.linalg.eigvalsh(scatter) > 0).all()
    blocks = {"phi": 2, "psi": 1, "y": 1}
    return System.build(Moments(blocks, 1, 1.0, np.zeros(4), np.zeros(4), scatter), eps=0.0)


def test_the_share_of_the_example_is_not_monotone():
    along = Spectrum.of(non_monotone()).at(1.0)
    shares = along.shares(np.array([0.0, 30.0, 1e3]))
    # R is printed with three digits there, hence the tolerance.
    np.testing.assert_allclose(shares, [0.904, 0.984, 0.018], atol=2e-3)


@pytest.mark.parametrize("unfairness", [0.02, 0.5, 0.9, 0.903])
def test_the_eta_found_is_beyond_the_bump(unfairness):
    """At 0.903, just below the share of the ridge fit, the share rises at first."""
    along = Spectrum.of(non_monotone()).at(1.0)
    eta = least_eta(along, unfairness)
    assert eta > 30
    np.testing.assert_allclose(along.shares(np.array([eta])), unfairness, atol=1e-9)
    beyond = eta * np.logspace(1e-9, 12, 2000)
    assert (along.shares(beyond) <= unfairness).all()
    # It is the smallest such eta: just before it the limit is exceeded.
    assert along.shares(np.array([0.999 * eta]))[0] > unfairness


def test_a_finite_eta_counts_where_infinity_leaves_a_constant():
    """β_i = c_i/(1 + α + ηr_i²): the free feature knows nothing of y, so that β(∞) = 0."""
    r, c = np.array([0.9, 0.1, 0.0]), np.array([1.0, 1.0, 0.0])
    scatter = np.block(
        [
            [np.eye(3), np.diag(r)[:, :2], c[:, None]],
            [np.diag(r)[:2], np.eye(2), (r * c)[:2, None]],
            [c, (r * c)[:2], 4.0],
        ]
    )
    blocks = {"phi": 3, "psi": 2, "y": 1}
    moments = Moments(blocks, 1, 1.0, np.zeros(6), np.zeros(6), scatter)
    along = Spectrum.of(System.build(moments, eps=0.0)).at(1.0)
    assert np.isnan(along.shares(np.array([np.inf]))[0])
    for unfairness in (0.4, 0.15, 0.0102):
        assert least_eta(along, unfairness) is None  # there is better beyond the path
        eta = least_eta(along, unfairness, on_path=True)
        beta = c / (2.0 + eta * r**2)
        np.testing.assert_allclose(r**2 @ beta**2 / (beta @ beta), unfairness, rtol=2e-6)
    # Σr⁻²/Σr⁻⁴ is what it tends to: no η does it below, however close to a constant f is.
    assert least_eta(along, 0.0101, on_path=True) is None


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_an_inactive_limit_is_the_ridge_fit(fit_intercept):
    Phi, Psi, y = features()
    system = system_of(Phi, Psi, y, fit_intercept=fit_intercept)
    ridge = solve_primal(system, 1e-1, 0.0)[0]
    for unfairness in (1.0, system.explained_share(ridge) * (1 + 1e-9)):
        fit = solve_under_limit(system, 1e-1, unfairness)
        assert fit.eta == 0
        close(fit.coef, ridge, 1e-12)  # not rescaled


@pytest.mark.parametrize("below", [0, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10, 1e-6])
def test_a_limit_next_to_the_ridge_fit(below):
    Phi, Psi, y = features()
    system = system_of(Phi, Psi, y)
    free = system.explained_share(solve_primal(system, 1e-2, 0.0)[0])
    fit = solve_under_limit(system, 1e-2, free * (1 - below))
    np.testing.assert_allclose(system.explained_share(fit.coef), free * (1 - below), atol=1e-9)
    assert fit.eta < 1e-3


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
def test_no_unfairness_is_infinite_eta(penalty, fit_intercept):
    Phi, Psi, y = features(outputs=2)
    system = system_of(Phi, Psi, y, penalty=penalty, fit_intercept=fit_intercept)
    fit = solve_under_limit(system, 1e-3, 0.0)
    assert fit.eta == np.inf
    close(fit.coef, rescale(system, solve_primal(system, 1e-3, np.inf)[0]), 1e-9)
    assert np.abs(naive.covariance(Phi @ fit.coef, Psi)).max() < 1e-12
    assert naive.share(Phi @ fit.coef, Psi) < 1e-20


@pytest.mark.parametrize("unfairness", [0.0, 1e-300, 1e-13])
@pytest.mark.parametrize("penalty", ["hsic", "normalized", "nocco"])
def test_next_to_no_unfairness_is_none(penalty, unfairness):
    """Also for nocco, whose path does not end there."""
    Phi, Psi, y = features()
    fit = solve_under_limit(system_of(Phi, Psi, y, penalty=penalty), 1e-3, unfairness)
    expected = naive.ridge_without_covariance(Phi, Psi, y, alpha=1e-3)[1][:, None]
    close(fit.coef / np.linalg.norm(fit.coef), expected / np.linalg.norm(expected), 1e-9)


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (1, 1)])
def test_least_share_is_the_generalised_eigenvalue(shape):
    Phi, Psi, y = full_rank(*shape)
    least = generalised_least_share(Phi, Psi)
    assert least > 1e-3
    system = system_of(Phi, Psi, y)
    np.testing.assert_allclose(least_share(system), least, rtol=1e-9)
    rng = np.random.default_rng(0)
    shares = [system.explained_share(rng.normal(size=(shape[0], 1))) for _ in range(200)]
    assert min(shares) >= least * (1 - 1e-9)


@pytest.mark.parametrize("penalty", ["hsic", "normalized", "nocco"])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_less_than_the_least_share_is_refused_and_named(penalty, fit_intercept):
    Phi, Psi, y = full_rank()
    system = system_of(Phi, Psi, y, penalty=penalty, fit_intercept=fit_intercept)
    least = generalised_least_share(Phi, Psi)
    for unfairness in (0.0, 0.5 * least, 0.999 * least):
        with refused(f"unfairness={unfairness:.6g}", f"{least:.6g}", error=NotAttainableError):
            solve_under_limit(system, 1e-2, unfairness)
    fit = solve_under_limit(system, 1e-2, 1.01 * least)
    np.testing.assert_allclose(sample_share(system, fit.coef, Phi, Psi), 1.01 * least, rtol=1e-6)


def test_fewer_attributes_than_features_leave_a_share_of_zero():
    assert least_share(system_of(*features())) == 0


def with_copies(Phi):
    """A constant, a column twice, and their sum: C is singular."""
    return np.column_stack([Phi, np.ones(len(Phi)), Phi[:, 0], Phi[:, 0] + Phi[:, 1]])


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("alpha", [1e-8, 1e-2])
def test_features_that_say_the_same_do_not_make_a_limit_attainable(penalty, fit_intercept, alpha):
    """R has rank 3 of 6, but on the range of C it is full: what is left of f is rounding error."""
    Phi, Psi, y = full_rank()
    system = system_of(with_copies(Phi), Psi, y, penalty=penalty, fit_intercept=fit_intercept)
    least = generalised_least_share(Phi, Psi)
    np.testing.assert_allclose(least_share(system), least, rtol=1e-6)
    for unfairness in (0.0, 0.5 * least):
        with pytest.raises(NotAttainableError):
            solve_under_limit(system, alpha, unfairness)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_groups_as_the_only_inputs_cannot_be_fair(fit_intercept):
    """s itself, one-hot, is X: every predictor is explained by s, up to ε."""
    groups = np.random.default_rng(0).integers(0, 3, 200)
    onehot = np.eye(3)[groups]
    system = system_of(onehot, onehot, groups + 0.1, fit_intercept=fit_intercept)
    for unfairness in (0.0, 0.05, 0.5):
        with refused(f"unfairness={unfairness:g}", "0.9999", error=NotAttainableError):
            solve_under_limit(system, 1e-3, unfairness)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_singular_features_under_an_attainable_limit(fit_intercept):
    Phi, Psi, y = features()
    X = with_copies(Phi)
    system = system_of(X, Psi, y, fit_intercept=fit_intercept)
    for unfairness in (0.0, 0.01, 0.1):
        fit = solve_under_limit(system, 1e-3, unfairness)
        np.testing.assert_allclose(naive.share(X @ fit.coef, Psi), unfairness, atol=1e-6)
        assert np.std(X @ fit.coef) > 0.1


def criterion(system, alpha, coef):
    """1/n|y − Φβ|² + α|β|² up to a constant, y and Φ centred where there is an intercept."""
    A = system.gram + alpha * np.diag(system.ridge)
    return float(np.sum(coef * (A @ coef)) - 2 * np.sum(coef * system.target))


def excess(system, unfairness, coef):
    """βᵀ(RRᵀ − uC)β ≤ 0: the share is at most u, also for a constant f."""
    C = system.moments.covariance("phi", "phi")
    explained = np.sum((system.share_factor.T @ coef) ** 2)
    return float(explained - unfairness * np.sum(coef * (C @ coef)))


def best_by_optimiser(system, alpha, unfairness, starts=5):
    """Least criterion that SLSQP finds under the limit, from several starts."""
    m = len(system.gram)
    rng = np.random.default_rng(0)
    limit = {"type": "ineq", "fun": lambda b: -excess(system, unfairness, b[:, None])}
    found = []
    for _ in range(starts):
        start = rng.normal(size=m)
        best = minimize(
            lambda b: criterion(system, alpha, b[:, None]),
            start,
            method="SLSQP",
            constraints=[limit],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        if excess(system, unfairness, best.x[:, None]) <= 1e-8:
            found.append(best.fun)
    assert found
    return min(found)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("ridge", [None, np.array([1.0, 10.0, 0.1])])
@pytest.mark.parametrize("above", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", [0, 1])
def test_optimum_at_share_is_the_optimum(fit_intercept, ridge, above, seed):
    Phi, Psi, y = full_rank(seed=seed)
    system = system_of(Phi, Psi, y, fit_intercept=fit_intercept, ridge=ridge)
    free = system.explained_share(solve_primal(system, 0.1, 0.0)[0])
    least = least_share(system)
    unfairness = least + above * (free - least)
    coef = optimum_at_share(system, 0.1, unfairness)
    np.testing.assert_allclose(system.explained_share(coef), unfairness, rtol=1e-8)
    value = criterion(system, 0.1, coef)
    best = best_by_optimiser(system, 0.1, unfairness)
    np.testing.assert_allclose(value, best, rtol=1e-5)
    assert value <= best + 1e-7 * abs(best)


def test_no_feasible_step_improves_the_optimum_at_share():
    Phi, Psi, y = full_rank(m=4, q=5)
    system = system_of(Phi, Psi, np.column_stack([y, y**2]))
    unfairness = 1.3 * least_share(system)
    coef = optimum_at_share(system, 0.05, unfairness)
    value = criterion(system, 0.05, coef)
    rng = np.random.default_rng(0)
    feasible = 0
    for size in (1e-3, 1e-2, 1e-1, 1.0):
        for _ in range(200):
            other = coef + size * np.abs(coef).max() * rng.normal(size=coef.shape)
            if excess(system, unfairness, other) <= 0:
                feasible += 1
                assert criterion(system, 0.05, other) > value
    assert feasible > 20


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
def test_rescale_has_the_least_error_of_its_direction(fit_intercept):
    Phi, Psi, y = features(outputs=2)
    system = system_of(Phi, Psi, y, fit_intercept=fit_intercept)
    shrunk = solve_primal(system, 1.0, 5.0)[0]
    best = rescale(system, shrunk)
    close(best / shrunk, np.full_like(best, best[0, 0] / shrunk[0, 0]), 1e-12)

    def error(coef):
        f = Phi @ coef + ridge_fit(system, coef, 0.1, 0.0, None).solution.intercept
        return np.mean((y - f) ** 2)

    assert error(best) < error(shrunk)
    for scale in (0.9, 0.999, 1.001, 1.1):
        assert error(scale * best) > error(best)
    np.testing.assert_allclose(system.explained_share(best), system.explained_share(shrunk))


def test_rescale_leaves_zero_alone():
    system = system_of(*features())
    np.testing.assert_array_equal(rescale(system, np.zeros((7, 1))), np.zeros((7, 1)))
