"""The fair kernel as a kernel of its own, and inside scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from scalefair import FairKernel, SensitiveRows, SklearnFairKernel
from scalefair.kernels import RBF, Matern, Scaled
from tests import naive
from tests.errors import refused
from tests.naive import close
from tests.solve.dense import exact_gp

PENALTIES = ["hsic", "normalized"]
ARD = (0.7, 1.3, 1.9)
RNG = np.random.default_rng(0)
S = RNG.normal(size=(24, 1))
X = np.hstack([RNG.normal(size=(24, 2)), S + 0.3 * RNG.normal(size=(24, 1))])
NEW = X[:7] + 0.3 * RNG.normal(size=(7, 3))
L = naive.rbf(S, S, 0.7)
Y = np.sin(X[:, 0]) + X[:, 2] + 0.1 * RNG.normal(size=24)
Y -= Y.mean()


def sensitive(penalty="normalized", weight=None):
    return SensitiveRows.of(X, L, penalty=penalty, eps=1e-3, weight=weight)


@pytest.mark.parametrize("eta", [0.0, 4.0, 1e8])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_it_is_the_dense_definition(penalty, eta):
    base = Scaled(RBF(ARD), 1.4)
    k = FairKernel(base, sensitive(penalty), eta=eta, noise=0.3)
    both = np.vstack([X, NEW])
    expected = naive.joint_fair_covariance(base(both), L, eta=eta, noise=0.3, penalty=penalty, eps=1e-3)
    # The explicit inverses of the reference lose digits as eta grows.
    tolerance = 1e-8 if eta < 1e8 else 2e-5
    np.testing.assert_allclose(k(both), expected, atol=tolerance)
    np.testing.assert_allclose(k(NEW, X), expected[24:, :24], atol=tolerance)
    np.testing.assert_allclose(k.diag(both), np.diag(expected), atol=tolerance)
    np.testing.assert_array_equal(k(both), k(both).T)
    assert np.linalg.eigvalsh(k(both)).min() > -1e-10


@pytest.mark.parametrize("penalty", PENALTIES)
def test_infinite_eta_is_the_projection(penalty):
    """With ψ = s: functions whose covariance with s is zero."""
    k = FairKernel(RBF(ARD), SensitiveRows.of(X, S @ S.T, penalty=penalty), eta=np.inf, noise=0.3)
    direction = S - S.mean()
    assert np.abs(direction.T @ k(X, NEW)).max() < 1e-12
    plain = RBF(ARD)(X, NEW)
    gone = RBF(ARD)(X) @ direction @ (direction.T @ plain)
    close(k(X, NEW), plain - gone / (direction.T @ RBF(ARD)(X) @ direction), 1e-10)


def test_weight_two_is_the_row_twice():
    weight = np.random.default_rng(1).integers(0, 3, 24)
    index = np.repeat(np.arange(24), weight)
    repeated = SensitiveRows.of(X[index], L[np.ix_(index, index)], eps=1e-3)
    ours = FairKernel(RBF(ARD), sensitive(weight=weight), eta=3.0, noise=0.3)
    close(ours(NEW), FairKernel(RBF(ARD), repeated, eta=3.0, noise=0.3)(NEW), 1e-8)


@pytest.mark.parametrize("kernel", [RBF(ARD), Matern(0.9, nu=2.5)])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradient_is_the_central_difference(penalty, kernel):
    k = FairKernel(kernel, sensitive(penalty), eta=3.0, noise=0.3)
    theta = np.log(k.theta)
    for A, B in [(NEW, None), (NEW, X[:5])]:
        G = np.random.default_rng(2).normal(size=k(A, B).shape)
        steps = 1e-5 * np.eye(len(theta))
        ends = [[k.with_length_scale(np.exp(theta + e)) for e in (d, -d)] for d in steps]
        expected = [np.sum(G * (up(A, B) - down(A, B))) / 2e-5 for up, down in ends]
        np.testing.assert_allclose(k.gradient(A, B, G), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("eta", [0.0, 5.0, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_an_ordinary_process_with_it_is_the_fair_one(penalty, eta):
    k = FairKernel(RBF(ARD), sensitive(penalty), eta=eta, noise=0.3)
    ordinary = exact_gp(k, X, None, Y, noise=0.3)
    fair = exact_gp(RBF(ARD), X, L, Y, noise=0.3, eta=eta, penalty=penalty, eps=1e-3)
    np.testing.assert_allclose(ordinary.log_evidence, fair.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(ordinary.mean(NEW), fair.mean(NEW), atol=1e-9)
    np.testing.assert_allclose(ordinary.covariance(NEW), fair.covariance(NEW), atol=1e-9)
    np.testing.assert_allclose(ordinary.gradient[:3], fair.gradient[:3], rtol=1e-6, atol=1e-8)


def adapter(penalty="normalized", eta=4.0, **more):
    base = sk.ConstantKernel(1.4**2) * sk.RBF(ARD)
    return SklearnFairKernel(base, sensitive(penalty), eta=eta, noise=0.3, **more)


@pytest.mark.parametrize("eta", [0.0, 4.0, np.inf])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_scikit_learn_finds_our_posterior(penalty, eta):
    model = GaussianProcessRegressor(adapter(penalty, eta), alpha=0.3, optimizer=None).fit(X, Y)
    ours = exact_gp(RBF(ARD), X, L, Y, noise=0.3, amplitude=1.4, eta=eta, penalty=penalty, eps=1e-3)
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, ours.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(std, np.sqrt(ours.variance(NEW)), atol=1e-8)
    value, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(value, ours.log_evidence, rtol=1e-9)
    *in_scale, in_amplitude, _ = ours.gradient
    np.testing.assert_allclose(slope, [in_amplitude / 2, *in_scale], atol=1e-7)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_scikit_learn_learns_what_we_learn(penalty):
    """With the noise inside, every hyperparameter, at held eta."""
    kernel = adapter(penalty, add_noise=True)
    model = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, Y)
    found = model.kernel_
    base = found.kernel
    hyper = {"amplitude": np.sqrt(base.k1.constant_value), "noise": found.noise, "eta": 4.0}
    ours = exact_gp(RBF(base.k2.length_scale), X, L, Y, **hyper, penalty=penalty, eps=1e-3)
    before = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, Y)
    assert model.log_marginal_likelihood_value_ > before.log_marginal_likelihood_value_ + 1.0
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, ours.log_evidence, rtol=1e-8)
    inside = np.abs(found.theta - found.bounds.T).min(axis=0) > 1e-3
    *in_scale, in_amplitude, in_noise = ours.gradient
    ordered = np.array([in_amplitude / 2, *in_scale, in_noise])
    assert inside.sum() >= 3
    np.testing.assert_allclose(ordered[inside], 0.0, atol=2e-2)


@pytest.mark.parametrize("rows", [X, NEW])
@pytest.mark.parametrize("add_noise", [False, True])
def test_adapter_derivatives_are_differences(add_noise, rows):
    kernel = adapter(add_noise=add_noise)
    value, slopes = kernel(rows, eval_gradient=True)
    np.testing.assert_array_equal(value, kernel(rows))
    np.testing.assert_allclose(np.diag(value), kernel.diag(rows), atol=1e-12)
    assert slopes.shape == (len(rows), len(rows), len(kernel.theta))
    for j, step in enumerate(1e-5 * np.eye(len(kernel.theta))):
        up, down = (kernel.clone_with_theta(kernel.theta + d)(rows) for d in (step, -step))
        np.testing.assert_allclose(slopes[:, :, j], (up - down) / 2e-5, atol=1e-8)


def test_adapter_keeps_scikit_learns_protocol():
    kernel = adapter(add_noise=True)
    copy = clone(kernel)
    assert copy is not kernel
    assert copy == kernel
    assert copy.sensitive is kernel.sensitive
    assert copy.kernel is not kernel.kernel
    assert kernel.n_dims == len(kernel.bounds) == 5
    assert kernel.hyperparameters[-1].name == "noise"
    assert not kernel.is_stationary()
    assert adapter().n_dims == 4
    moved = kernel.clone_with_theta(kernel.theta + 0.1)
    assert moved != kernel
    assert moved != "kernel"
    np.testing.assert_allclose(moved.theta, kernel.theta + 0.1)
    assert kernel.set_params(kernel__k2__length_scale=2.0).kernel.k2.length_scale == 2.0
    assert "eta=4" in repr(kernel)
    # Sums and products with scikit-learn's own kernels.
    np.testing.assert_allclose((2.0 * adapter() + sk.WhiteKernel(0.1))(X, X), 2.0 * adapter()(X, X))
    restored = pickle.loads(pickle.dumps(adapter()))
    np.testing.assert_array_equal(restored(NEW), adapter()(NEW))


def test_bad_input_is_named():
    rows = sensitive()
    with refused("kernel='rbf'", error=TypeError):
        FairKernel("rbf", rows)
    with refused("sensitive", "ndarray", "SensitiveRows", error=TypeError):
        FairKernel(RBF(1.0), X)
    with refused("eta=-1", error=ValueError):
        FairKernel(RBF(1.0), rows, eta=-1.0)
    with refused("noise=0", error=ValueError):
        FairKernel(RBF(1.0), rows, noise=0.0)
    with refused("L ", (24, 1), (24, 24), error=ValueError):
        SensitiveRows.of(X, S)
    with refused("Y ", error=ValueError):
        adapter()(X, X, eval_gradient=True)
    with refused("noise=-1", error=ValueError):
        SklearnFairKernel(sk.RBF(), rows, noise=-1.0)(X)
