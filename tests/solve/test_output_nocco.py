"""NOCCO of the output: the scalar fixed point against direct minimisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from scalefair import FairRidge
from scalefair.solve.ridge.direct import solve_output_nocco
from scalefair.solve.ridge.path import Spectrum
from tests.errors import refused
from tests.solve.systems import system_of

EPS = 1e-6


def problem(seed, n=300, m=8, q=3, unit=1.0):
    rng = np.random.default_rng(seed)
    Phi = 0.3 * rng.normal(size=(n, m)) @ rng.normal(size=(m, m))
    Psi = Phi[:, :q] + rng.normal(size=(n, q))
    y = unit * (Phi[:, :3].sum(axis=1) + rng.normal(size=n))
    return system_of(Phi, Psi, y, eps=EPS)


def of_groups(seed, n=200, unit=1.0):
    """Features that are functions of s alone: no predictor but a constant has a smaller share."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    y = unit * (group + rng.normal(size=n))
    return system_of(np.eye(3)[group], np.eye(3)[group], y, eps=EPS)


def objective(system, alpha, eta):
    """J in units of the variance of y, as a function of β in units of its deviation."""
    square = float(system.moments.covariance("y", "y")[0, 0])
    C, c, R = system.gram, system.target[:, 0] / np.sqrt(square), system.factor

    def J(beta):
        variance = beta @ C @ beta
        share = np.sum((R.T @ beta) ** 2) / (variance + EPS)
        return variance - 2 * c @ beta + alpha * beta @ beta + eta / square * share

    return J, np.sqrt(square)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.every)])
@pytest.mark.parametrize("make", [problem, of_groups], ids=["some", "all explained"])
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
@pytest.mark.parametrize("eta", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("fixed", [True, False])
def test_no_start_of_a_general_minimiser_does_better(seed, make, alpha, eta, unit, fixed):
    eta = eta if fixed else eta * unit**2
    system = make(seed, unit=unit)
    J, deviation = objective(system, alpha, eta)
    ours = solve_output_nocco(system, Spectrum.of(system), alpha, eta, EPS)[:, 0] / deviation
    starts = [
        solve_output_nocco(system, Spectrum.of(system), alpha, 0.0, EPS)[:, 0] / deviation,
        solve_output_nocco(system, Spectrum.of(system), alpha, np.inf, EPS)[:, 0] / deviation,
        np.random.default_rng(seed).normal(size=len(ours)),
        ours,
    ]
    found = [minimize(J, start, method="BFGS", options={"gtol": 1e-9}).fun for start in starts]
    assert J(ours) <= min(found) + 1e-8


def test_eta_zero_is_ridge_and_infinity_leaves_no_share():
    system = problem(0)
    ridge = np.linalg.solve(system.gram + 0.01 * np.eye(8), system.target)
    np.testing.assert_allclose(solve_output_nocco(system, Spectrum.of(system), 0.01, 0.0, EPS), ridge, rtol=1e-9)
    fair = solve_output_nocco(system, Spectrum.of(system), 0.01, np.inf, EPS)
    assert system.explained_share(fair) < 1e-20


def test_the_share_falls_with_eta():
    system = problem(1)
    fits = [solve_output_nocco(system, Spectrum.of(system), 1e-3, eta, EPS) for eta in (0.0, 3.0, 300.0)]
    shares = [system.explained_share(coef) for coef in fits]
    assert shares[0] > shares[1] > shares[2]


def test_the_estimator_takes_it_and_says_what_it_cannot_do():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    s = X[:, 0] + rng.normal(size=200)
    y = X.sum(axis=1)
    model = FairRidge(penalty="nocco_output", eta=5.0, sensitive_kernel="linear")
    plain = FairRidge(eta=0.0, sensitive_kernel="linear")
    model.fit(X, y, sensitive_features=s)
    assert model.explained_share_ < plain.fit(X, y, sensitive_features=s).explained_share_
    with refused("penalty='nocco_output'", error=ValueError):
        FairRidge(penalty="nocco_output", unfairness=0.1).fit(X, y, sensitive_features=s)
    with refused("penalty='nocco_output'", error=ValueError):
        model.path()
