"""The closed forms: each (α, η) minimises J, and the path solves the same systems."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import LinAlgError, block_diag
from sklearn.linear_model import Ridge

from scalefair.features.mixed import all_columns
from scalefair.moments import Moments
from scalefair.penalties import PENALTIES
from scalefair.solve.ridge.direct import ridge_fit, solve_primal
from scalefair.solve.ridge.path import Spectrum, grid
from scalefair.solve.ridge.system import System, gain, rescale
from tests import naive
from tests.errors import refused
from tests.naive import close, features, weights
from tests.solve.systems import moments_of, system_of, variance_of

NAMES = sorted(set(PENALTIES) - {"nocco_output"})  # which has no closed form
INTERCEPT = [True, False]
ALPHAS = np.array([1e-7, 1e-4, 1e-2, 1.0])
ETAS = np.array([0.0, 1e-3, 1.0, 50.0, 1e4, 1e8, np.inf])
BLOCK_RIDGE = np.array([1.0, 1.0, 1e-3, 1.0, 20.0, 1.0, 1.0])


def solved(system, alpha, eta):
    """(b, β) as naive returns them for one output."""
    coef, left = solve_primal(system, alpha, eta)
    jitter = left.jitter
    assert jitter == 0
    solution = ridge_fit(system, coef, 0.1, 0.0, None).solution
    return solution.intercept, solution.coef


@pytest.mark.parametrize("penalty", NAMES)
def test_factor_is_that_of_the_table(penalty):
    """R itself may be turned from the right; what counts is |Rᵀβ|²."""
    Phi, Psi, y = features()
    moments = moments_of(Phi, Psi, y)
    R = PENALTIES[penalty](moments, 1e-3, ("phi",))
    expected = naive.factor(Phi, Psi, penalty=penalty, eps=1e-3)
    close(R @ R.T, expected @ expected.T, 1e-12)


def test_normalized_penalty_does_not_change_when_psi_is_rescaled():
    Phi, Psi, y = features()
    turn = np.random.default_rng(0).normal(size=(3, 3)) * 10
    a, b = (system_of(Phi, P, y, eps=1e-12) for P in (Psi, Psi @ turn))
    close(a.factor @ a.factor.T, b.factor @ b.factor.T, 1e-9)


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", NAMES)
def test_primal_minimises_the_objective(penalty, fit_intercept, weighted, outputs):
    Phi, Psi, y = features(outputs=outputs)
    weight = weights(len(y)) if weighted else None
    options = {"penalty": penalty, "eps": 1e-3, "fit_intercept": fit_intercept}
    system = system_of(Phi, Psi, y, weight, **options)
    for alpha in (1e-4, 1e-1):
        for eta in (0.0, 1e-2, 3.0, 1e3):
            b, coef = solved(system, alpha, eta)
            b2, coef2 = naive.ridge(Phi, Psi, y, alpha=alpha, eta=eta, weight=weight, **options)
            close(coef, coef2.reshape(coef.shape), 1e-9)
            np.testing.assert_allclose(b, np.atleast_1d(b2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", NAMES)
def test_no_step_from_the_solution_lowers_the_objective(penalty, fit_intercept):
    """Of J by its definition, which shares no code with the normal equations."""
    Phi, Psi, y = features()
    options = {"penalty": penalty, "eps": 1e-2}
    b, coef = solved(system_of(Phi, Psi, y, fit_intercept=fit_intercept, **options), 1e-2, 2.0)
    b, coef = b[0], coef[:, 0]

    def J(b, coef):
        return naive.objective(b, coef, Phi, Psi, y, alpha=1e-2, eta=2.0, **options)

    rng = np.random.default_rng(0)
    least = J(b, coef)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            step = size * rng.normal(size=len(coef) + 1)
            assert J(b + fit_intercept * step[0], coef + step[1:]) > least


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
def test_ridge_by_block(penalty, fit_intercept):
    """Rescaled features: |D^(1/2)β|² of Φ is |β|² of ΦD^(−1/2)."""
    Phi, Psi, y = features()
    options = {"penalty": penalty, "eps": 1e-3, "fit_intercept": fit_intercept}
    system = system_of(Phi, Psi, y, ridge=BLOCK_RIDGE, **options)
    scaled = Phi / np.sqrt(BLOCK_RIDGE)
    for eta in (0.0, 4.0):
        b, coef = solved(system, 1e-2, eta)
        b2, coef2 = naive.ridge(scaled, Psi, y, alpha=1e-2, eta=eta, **options)
        close(coef[:, 0], coef2 / np.sqrt(BLOCK_RIDGE), 1e-9)
        np.testing.assert_allclose(b[0], b2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("weighted", [False, True])
def test_eta_zero_is_scikit_learns_ridge(fit_intercept, weighted):
    Phi, Psi, y = features(outputs=2)
    weight = weights(len(y)) if weighted else np.ones(len(y))
    b, coef = solved(system_of(Phi, Psi, y, weight, fit_intercept=fit_intercept), 1e-2, 0.0)
    theirs = Ridge(alpha=weight.sum() * 1e-2, fit_intercept=fit_intercept, solver="svd")
    theirs.fit(Phi, y, sample_weight=weight)
    close(coef, theirs.coef_.T, 1e-10)
    np.testing.assert_allclose(b, theirs.intercept_, rtol=1e-10, atol=1e-12)


def test_psi_may_be_among_the_features():
    """Φ = [φ, ψ]: the system is that of the joined rows."""
    Phi, Psi, y = features()
    joined = system_of(Phi, Psi, y, eps=1e-3, features=("phi", "psi"))
    b, coef = solved(joined, 1e-2, 2.0)
    both = np.hstack([Phi, Psi])
    b2, coef2 = naive.ridge(both, Psi, y, alpha=1e-2, eta=2.0, eps=1e-3)
    close(coef[:, 0], coef2, 1e-9)
    np.testing.assert_allclose(b[0], b2, rtol=1e-9)


def exact_solution(system, alpha, eta):
    """β without rounding: Gauss-Jordan elimination in fractions."""
    A, R = naive.rational(system.gram), naive.rational(system.factor)
    A = A + Fraction(alpha) * naive.rational(np.diag(system.ridge))
    target = naive.rational(system.target)
    return naive.rational_solve(A + Fraction(eta) * (R @ R.T), target).astype(float)


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", NAMES)
@pytest.mark.parametrize("alpha", [1e-7, 1e-2])
def test_large_eta_keeps_its_digits(penalty, fit_intercept, alpha):
    Phi, Psi, y = features(outputs=2)
    system = system_of(Phi, Psi, y, penalty=penalty, eps=1e-6, fit_intercept=fit_intercept)
    spectrum = Spectrum.of(system)
    for eta in (1e4, 1e8, 1e12):
        expected = exact_solution(system, alpha, eta)
        close(solve_primal(system, alpha, eta)[0], expected, 1e-9)
        close(spectrum.at(alpha).coef(np.array([eta]))[0], expected, 1e-9)


def test_large_eta_where_the_penalty_reaches_every_direction():
    """β → 0 as 1/η: its error stays small against the ridge fit, which is what f is judged by."""
    rng = np.random.default_rng(0)
    Phi, Psi, y = features(m=3, q=3)
    system = system_of(Phi, np.hstack([Psi, rng.normal(size=(40, 2))]), y)
    size = np.abs(solve_primal(system, 1e-2, 0.0)[0]).max()
    for eta in (1e4, 1e8):
        error = solve_primal(system, 1e-2, eta)[0] - exact_solution(system, 1e-2, eta)
        assert np.abs(error).max() <= 1e-13 * size
    assert np.abs(solve_primal(system, 1e-2, np.inf)[0]).max() <= 1e-13 * size


@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("weighted", [False, True])
def test_infinite_eta_leaves_no_covariance(penalty, fit_intercept, weighted):
    Phi, Psi, y = features(outputs=2)
    weight = weights(len(y)) if weighted else None
    system = system_of(Phi, Psi, y, weight, penalty=penalty, fit_intercept=fit_intercept)
    b, coef = solved(system, 1e-3, np.inf)
    f = Phi @ coef + b
    assert np.abs(naive.covariance(f, Psi, weight)).max() < 1e-12
    options = {"alpha": 1e-3, "weight": weight, "fit_intercept": fit_intercept}
    b2, coef2 = naive.ridge_without_covariance(Phi, Psi, y, **options)
    close(coef, coef2, 1e-9)
    np.testing.assert_allclose(b, b2, rtol=1e-9, atol=1e-12)


def test_infinite_eta_with_one_hot_groups():
    """The covariance of one-hot features is singular; the limit must not care."""
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 4, 200)
    Phi = rng.normal(size=(200, 9)) + 0.3 * groups[:, None]
    y = Phi.sum(axis=1) + groups
    system = system_of(Phi, np.eye(4)[groups], y)
    for coef in (solve_primal(system, 1e-3, np.inf)[0], Spectrum.of(system).at(1e-3).coef(np.array([np.inf]))[0]):
        f = Phi @ coef[:, 0]
        gaps = [f[groups == g].mean() - f.mean() for g in range(4)]
        assert np.abs(gaps).max() < 1e-11
        assert f.std() > 0.1


@pytest.mark.parametrize("ridge", [None, BLOCK_RIDGE])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", NAMES)
def test_path_is_one_primal_after_another(penalty, fit_intercept, ridge):
    Phi, Psi, y = features(outputs=2)
    options = {"penalty": penalty, "fit_intercept": fit_intercept, "ridge": ridge}
    system = system_of(Phi, Psi, y, **options)
    coef = grid(Spectrum.of(system), ALPHAS, ETAS).reshape(7, 4, 7, 2)
    scaled = grid(Spectrum.of(system), ALPHAS, ETAS, size=0.0).reshape(7, 4, 7, 2)
    for i, alpha in enumerate(ALPHAS):
        for j, eta in enumerate(ETAS):
            expected = solve_primal(system, alpha, eta)[0]
            close(coef[:, i, j], expected, 1e-9)
            close(scaled[:, i, j], rescale(system, expected) if eta > 0 else expected, 1e-9)


@pytest.mark.parametrize("ridge", [None, BLOCK_RIDGE])
@pytest.mark.parametrize("fit_intercept", INTERCEPT)
@pytest.mark.parametrize("penalty", NAMES)
def test_shares_along_the_path_are_those_of_the_predictions(penalty, fit_intercept, ridge):
    Phi, Psi, y = features(outputs=2)
    options = {"penalty": penalty, "fit_intercept": fit_intercept, "ridge": ridge}
    system = system_of(Phi, Psi, y, **options)
    for alpha in ALPHAS:
        along = Spectrum.of(system).at(alpha)
        for eta, share in zip(ETAS, along.shares(ETAS), strict=True):
            coef = along.coef(np.array([eta]))[0]
            expected = naive.share(Phi @ coef, Psi)
            np.testing.assert_allclose(share, expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(system.explained_share(coef), expected, rtol=1e-9, atol=1e-12)
            variance = np.trace(naive.covariance(Phi @ coef, Phi @ coef))
            np.testing.assert_allclose(variance_of(system, coef), variance, rtol=1e-9)


def test_share_of_one_hot_groups_is_the_between_group_share():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 60)
    Phi = rng.normal(size=(60, 4)) + groups[:, None]
    coef = rng.normal(size=(4, 1))
    moments = moments_of(Phi, np.eye(3)[groups], Phi[:, 0])
    expected = naive.between_group_share(Phi @ coef[:, 0], groups)
    for eps in (None, 0.1):  # that of the penalty plays no part
        system = System.build(replace(moments, units={"psi": all_columns("groups", 3)}), eps=eps)
        np.testing.assert_allclose(system.explained_share(coef), expected, rtol=1e-9)


def test_share_of_a_constant_is_undefined():
    Phi, Psi, y = features()
    system = system_of(Phi, Psi, y)
    assert np.isnan(system.explained_share(np.zeros((7, 1))))
    rounding = 1e-16 * solve_primal(system, 1e-2, 0.0)[0]
    assert np.isnan(system.explained_share(rounding))


def test_without_sensitive_attributes_eta_changes_nothing():
    Phi, Psi, y = features()
    whole = naive.moment_parts(Phi, Psi[:, :0], y)
    del whole["blocks"]["psi"]
    system = System.build(Moments(**whole))
    ridge = solve_primal(system, 1e-2, 0.0)[0]
    np.testing.assert_array_equal(solve_primal(system, 1e-2, 5.0)[0], ridge)
    for coef in Spectrum.of(system).at(1e-2).coef(ETAS):
        close(coef, ridge, 1e-12)


def test_attributes_that_do_not_vary_are_no_penalty():
    Phi, Psi, y = features()
    system = system_of(Phi, np.ones_like(Psi), y)
    ridge = solve_primal(system, 1e-2, 0.0)[0]
    for eta in (1.0, np.inf):
        close(solve_primal(system, 1e-2, eta)[0], ridge, 1e-12)


def test_gain():
    strength = np.array([0.0, 1e-20, 0.5, 2.0])
    np.testing.assert_array_equal(gain(0.0, strength), np.zeros(4))
    np.testing.assert_allclose(gain(3.0, strength), 1 / (1 / 3 + strength))
    np.testing.assert_array_equal(gain(np.inf, strength), [0, 0, 2, 0.5])
    table = gain(np.array([0.0, 3.0, np.inf]), strength)
    np.testing.assert_array_equal(table[1], gain(3.0, strength))
    assert table.shape == (3, 4)
    np.testing.assert_array_equal(gain(np.inf, np.zeros(2)), np.zeros(2))


def test_singular_systems_are_refused_with_a_remedy():
    Phi, Psi, y = features()
    twice = np.hstack([Phi, Phi])
    system = system_of(twice, Psi, y)
    with refused("14×14", "alpha", error=LinAlgError):
        Spectrum.of(system).at(0.0)
    negative = replace(system, gram=block_diag(system.gram[:13, :13], -1.0))
    with refused("14×14", "alpha", error=LinAlgError):
        solve_primal(negative, 0.0, 1.0)
