"""Laplace's evidence in weight space: dense definitions, true integrals, finite differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import norm

from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.losses import Logistic, OneVsRest
from scalefair.maps import Identity, Nystroem, OneHot, RandomFourier
from scalefair.moments import accumulate
from scalefair.moments.gradient import laplace_scale_gradient
from scalefair.solve.gp.classes import find_mode
from scalefair.solve.gp.distribution import averaged_probability
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import System
from tests.errors import refused
from tests.naive import close

N, AMPLITUDE, SCALES = 70, 1.7, (0.8, 1.2, 1.5)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    s = (X[:, :1] + rng.normal(size=(N, 1)) > 0).astype(float)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * s[:, 0] + rng.logistic(size=N)
    return X, s, f, rng.integers(0, 3, N).astype(float)


def nystroem(X, scales):
    options = {"n_components": 25, "whitening": "cholesky", "random_state": 0}
    return Nystroem("rbf", scales, **options).fit(X)


def fourier(X, scales):
    return RandomFourier("rbf", scales, n_components=30, random_state=0).fit(X)


MAPS = {"nystroem": nystroem, "fourier": fourier, "linear": lambda X, _: Identity().fit(X)}


def problem(name="nystroem", *, classes=2, weighted=False, scales=SCALES, penalty="normalized"):
    X, s, f, weight = rows()
    loss = Logistic() if classes == 2 else OneVsRest(classes)
    y = (f > 0).astype(float)[:, None] if classes == 2 else np.eye(3)[np.digitize(f, [-0.7, 0.8])]
    design = Design(MAPS[name](X, scales), OneHot().fit(s), loss.n_targets, whiten_rows=True)
    source = ArraySource(X, s, y, weight if weighted else None)
    (moments,) = accumulate(source, design)
    system = System.build(moments, fit_intercept=False, penalty=penalty)
    return Problem(source, design, loss, system, rows=16)


def dense(of, eta, penalty):
    """The mode of each class by a general minimiser, and the evidence from the full matrices."""
    chunk = next(of.source.chunks(N))
    Phi, Psi = (np.asarray(part) for part in (of.design.phi.transform(chunk.x), chunk.s == [0, 1]))
    w = np.ones(N) if chunk.weight is None else np.asarray(chunk.weight)
    centred = [part - np.average(part, axis=0, weights=w) for part in (Phi, Psi)]
    C, own = ((part * w[:, None]).T @ centred[1] / w.sum() for part in centred)
    values, vectors = np.linalg.eigh(own)
    keep = values > 1e-14
    root = (vectors[:, keep] / np.sqrt(values[keep])) @ vectors[:, keep].T
    R = C @ (np.eye(2) if penalty == "hsic" else root)
    P = np.eye(Phi.shape[1]) / AMPLITUDE**2 + 2 * w.sum() * eta * R @ R.T
    modes, total = [], 0.0
    for sign in 2 * np.asarray(chunk.y).T - 1:

        def energy(beta, sign=sign):
            return -w @ log_expit(sign * (Phi @ beta)) + beta @ P @ beta / 2

        def slope(beta, sign=sign):
            return -Phi.T @ (w * sign * expit(-sign * (Phi @ beta))) + P @ beta

        def curvature(beta):
            p = expit(Phi @ beta)
            return (Phi * (w * p * (1 - p))[:, None]).T @ Phi + P

        start = np.zeros(Phi.shape[1])
        found = minimize(energy, start, jac=slope, hess=curvature, method="trust-exact", tol=1e-12)
        modes.append(found.x)
        gap = np.linalg.slogdet(curvature(found.x))[1] - np.linalg.slogdet(P)[1]
        total += -found.fun - gap / 2
    return np.column_stack(modes), total


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("penalty", ["normalized", "hsic"])
@pytest.mark.parametrize(("name", "weighted"), [("nystroem", True), ("linear", False)])
def test_mode_and_evidence_are_those_of_the_dense_definition(name, weighted, penalty, classes):
    of = problem(name, classes=classes, weighted=weighted, penalty=penalty)
    for eta in (0.0, 0.7, 50.0):
        point = find_mode(of, amplitude=AMPLITUDE, eta=eta, penalty=penalty)
        mode, evidence = dense(of, eta, penalty)
        close(point.coef, mode, 1e-7)
        assert point.log_evidence == pytest.approx(evidence, rel=1e-9)


def test_the_evidence_is_near_the_true_integral():
    of = problem("linear")
    chunk = next(of.source.chunks(N))
    x, sign = np.asarray(chunk.x[:, :1]), 2 * chunk.y[:, 0] - 1
    design = Design(Identity().fit(x), None, 1, whiten_rows=True)
    source = ArraySource(x, None, np.asarray(chunk.y))
    (moments,) = accumulate(source, design)
    one = Problem(source, design, Logistic(), System.build(moments, fit_intercept=False))
    point = find_mode(one, amplitude=AMPLITUDE)

    def joint(beta):
        log_likelihood = log_expit(sign * x[:, 0] * beta).sum()
        return np.exp(log_likelihood + 50.0) * norm.pdf(beta, scale=AMPLITUDE)

    truth = np.log(quad(joint, -6, 6, epsabs=0, points=[0.0])[0]) - 50.0
    assert point.log_evidence == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize("eta", [0.0, 0.3, 1e3])
@pytest.mark.parametrize(("name", "classes"), [("nystroem", 2), ("nystroem", 3), ("fourier", 2)])
def test_slopes_are_finite_differences(name, classes, eta):
    def at(theta):
        of = problem(name, classes=classes, weighted=True, scales=np.exp(theta[:-1]))
        return find_mode(of, amplitude=np.exp(theta[-1]), eta=eta)

    theta, h = np.log([*SCALES, AMPLITUDE]), 1e-4
    point = at(theta)
    slopes = point.slopes()
    in_scale = laplace_scale_gradient(point.problem.source, slopes.adjoint(), rows=16)
    expected = [(at(theta + h * step).log_evidence - at(theta - h * step).log_evidence) / (2 * h) for step in np.eye(4)]
    close(np.append(in_scale, slopes.in_log_amplitude), np.array(expected), 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_large_weights_go_to_the_limit_without_losing_digits(classes):
    of = problem(classes=classes)
    limit = find_mode(of, amplitude=AMPLITUDE, eta=np.inf)
    assert of.share(limit.coef) < 1e-20
    for eta in (1e8, 1e12):
        point = find_mode(of, amplitude=AMPLITUDE, eta=eta)
        close(point.coef, limit.coef, 20 / eta + 1e-9)
        assert point.log_evidence == pytest.approx(limit.log_evidence, abs=100 / eta + 1e-8)
        assert np.isfinite(point.slopes().in_log_amplitude)


def test_a_start_and_the_chunks_change_nothing():
    of = problem(weighted=True)
    point = find_mode(of, amplitude=AMPLITUDE, eta=0.5)
    start = np.random.default_rng(0).normal(size=point.coef.shape)
    again = find_mode(replace(of, rows=7), amplitude=AMPLITUDE, eta=0.5, start=start)
    close(again.coef, point.coef, 1e-10)
    assert again.log_evidence == pytest.approx(point.log_evidence, rel=1e-11)


def test_factors_are_roots_of_the_posterior_covariance():
    of = problem()
    point = find_mode(of, amplitude=AMPLITUDE, eta=0.5)
    A = point.n * (point.local.hessian + np.eye(25) / (point.n * AMPLITUDE**2))
    A += 2 * point.n * 0.5 * of.system.factor @ of.system.factor.T
    close(point.factors[0] @ point.factors[0].T, np.linalg.inv(A), 1e-9)


@pytest.mark.parametrize("mean", [0.0, 0.4, -3.0, 14.0])
@pytest.mark.parametrize("sd", [0.0, 1e-3, 0.5, 0.999, 1.001, 4.0, 60.0, 1e4])
def test_averaged_probabilities_are_the_integral(mean, sd):
    def integrand(z):
        return expit(mean + sd * z) * norm.pdf(z)

    step = -mean / sd if sd else 0.0
    width = 40 / sd if sd else 1.0
    ends = np.clip([-12, step - width, step, step + width, 12], -12, 12)
    parts = [quad(integrand, a, b, epsabs=1e-14, limit=200)[0] for a, b in pairwise(ends)]
    expected = sum(parts) if sd else expit(mean)
    found = averaged_probability(np.array([mean, -mean]), np.array([sd**2, sd**2]))
    assert found[0] == pytest.approx(expected, abs=1e-12)
    assert found.sum() == pytest.approx(1.0, abs=1e-13)


def test_one_against_the_rest_is_a_loss():
    loss, rng, h = OneVsRest(3), np.random.default_rng(0), 1e-6
    f, y = rng.normal(size=(20, 3)), np.eye(3)[rng.integers(0, 3, 20)]
    for c in range(3):
        step = h * np.eye(3)[c]
        for lower, upper in (("value", "gradient"), ("gradient", "curvature"), ("curvature", "skew")):
            ends = [getattr(loss, lower)(f + sign * step, y) for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * h)
            slope = slope if slope.ndim == 1 else slope[:, c]
            np.testing.assert_allclose(getattr(loss, upper)(f, y)[:, c], slope, atol=1e-8)
    assert loss.inverse_link(f).sum(axis=1) == pytest.approx(1.0)
    with refused("OneVsRest", "one-hot", "3 classes", error=ValueError):
        loss.check_targets(np.ones((2, 3)))
