"""Gradients of the evidence in the statistics, the rows and the length scales."""

from __future__ import annotations

from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest

from scalefair.data.sources import ArraySource
from scalefair.data.sources.dask import DaskSource
from scalefair.features.design import Design
from scalefair.kernels import RBF, Linear, Matern
from scalefair.maps import Identity, Nystroem, OneHot, RandomFourier
from scalefair.moments import Moments, accumulate
from scalefair.moments.gradient import length_scale_gradient
from scalefair.solve.gp.evidence import row_adjoint
from scalefair.solve.gp.profile import profile_noise
from scalefair.solve.gp.system import GaussianPoint, GaussianSystem
from tests import naive
from tests.errors import refused
from tests.naive import close, features
from tests.solve.systems import moments_of
from tests.solve.test_gaussian import central

ARD = [0.7, 1.1, 2.0]
MAPS = {
    "pairs": RandomFourier("rbf", ARD, n_components=12, random_state=0),
    "phase": RandomFourier("matern32", ARD, n_components=11, pairs=False, random_state=0),
    "laplace": RandomFourier("laplace", 1.3, n_components=12, random_state=0),
    "scalar": RandomFourier("rbf", 0.9, n_components=12, orthogonal=True, random_state=0),
    "nystroem": Nystroem("rbf", ARD, n_components=9, whitening="cholesky", random_state=0),
    "matern": Nystroem("matern52", 1.4, n_components=9, whitening="cholesky", random_state=0),
    "l1": Nystroem("laplace", ARD, n_components=9, whitening="cholesky", random_state=0),
    "sum": Nystroem(RBF(ARD) * Matern(1.5, 2.5) + Linear(), n_components=9, whitening="cholesky", random_state=0),
}
SETTINGS = [("hsic", 4.0), ("normalized", 4.0), ("normalized", 1e8), ("hsic", np.inf)]


def problem(n=60, outputs=1, seed=0):
    """Inputs, two numeric sensitive attributes, targets and weights with zeros among them."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 2))
    x = np.column_stack([rng.normal(size=(n, 2)), s[:, 0] + 0.5 * rng.normal(size=n)])
    y = np.sin(2 * x[:, :1]) + x[:, 2:] * rng.normal(size=outputs) + 3.0
    return x, s, y + 0.2 * rng.normal(size=(n, outputs)), rng.integers(0, 4, n) * 0.5


def source_of(outputs=1, n_threads=1, n=60):
    return ArraySource(*problem(n, outputs), n_threads=n_threads)


def design(phi, outputs=1, whiten_rows=True):
    x, s, _, weight = problem()
    psi = Nystroem("rbf", 1.0, n_components=5, random_state=1).fit(s)
    fitted = phi if hasattr(phi, "n_raw_") else phi.fit(x, sample_weight=weight)
    return Design(fitted, psi, outputs, whiten_rows=whiten_rows)


def evidence_point(source, rows, penalty="normalized", eta=4.0):
    (moments,) = accumulate(source, rows)
    system = GaussianSystem.build(moments, penalty=penalty, eps=1e-3)
    return GaussianPoint.of(system, noise=0.3, amplitude=1.4, eta=eta)


def at_theta(rows, logs):
    phi = rows.phi.with_length_scale(np.exp(logs))
    return Design(phi, rows.psi, rows.n_targets, whiten_rows=rows.whiten_rows)


# Statistics and rows


@pytest.mark.parametrize(("penalty", "eta"), SETTINGS)
def test_row_adjoint_is_the_derivative_in_every_feature(penalty, eta):
    Phi, Psi, y = features(n=12, m=4, q=2, outputs=2)
    weight = naive.weights(12)

    def point(at):
        system = GaussianSystem.build(moments_of(at.reshape(Phi.shape), Psi, y, weight), penalty=penalty, eps=1e-3)
        return GaussianPoint.of(system, noise=0.6, amplitude=1.3, eta=eta)

    adjoint = row_adjoint(point(Phi))
    expected = central(lambda at: point(at).log_evidence, Phi.ravel(), step=1e-3)
    dPhi = adjoint.rows(Phi, Psi, y, weight)
    close(dPhi.ravel(), expected, 1e-8)
    close(adjoint.product, Phi.T @ dPhi, 1e-11)
    # The evidence does not see a rotation of the features.
    close(adjoint.product, adjoint.product.T, 1e-11)
    single = [adjoint.rows(Phi[i : i + 1], Psi[i : i + 1], y[i : i + 1]) for i in range(12)]
    close(np.concatenate(single) * weight[:, None], dPhi, 1e-12)


@pytest.mark.parametrize(("penalty", "eta"), [("hsic", 4.0), ("normalized", 4.0)])
def test_row_adjoint_is_the_derivative_in_the_scatter(penalty, eta):
    """The moments as free numbers: ΦᵀΦ by the scatter of φ, Φᵀy and C_φψ by the crossed ones."""
    moments = moments_of(*features(n=20, m=3, q=2, outputs=2))

    def point(scatter):
        free = Moments(moments.blocks, 20, 20.0, moments.shift, moments.offset, scatter)
        system = GaussianSystem.build(free, penalty=penalty, eps=1e-3)
        return GaussianPoint.of(system, noise=0.6, amplitude=1.3, eta=eta)

    def slope(i, j):
        change = np.zeros_like(moments.scatter)
        change[i, j] = change[j, i] = 1.0
        step = lambda h: point(moments.scatter + h[0] * change).log_evidence  # noqa: E731
        return central(step, np.zeros(1), step=1e-2)[0]

    adjoint = row_adjoint(point(moments.scatter))
    slopes = np.array([[slope(i, j) for j in range(7)] for i in range(3)])
    doubled = adjoint.G1 / 2 * (2 - np.eye(3))
    close(slopes[:, :3], doubled, 1e-7)
    close(slopes[:, 3:5], adjoint.G3.T, 1e-7)
    close(slopes[:, 5:], adjoint.g2, 1e-7)


def test_without_a_psi_block():
    x, _, y, weight = problem()
    rows = Design(MAPS["pairs"].fit(x), None, 1)
    source = ArraySource(x, None, y, weight)
    found = length_scale_gradient(source, rows, row_adjoint(evidence_point(source, rows)))
    expected = central(lambda logs: evidence_point(source, at_theta(rows, logs)).log_evidence, np.log(ARD), 1e-3)
    close(found, expected, 1e-8)


# Maps


def pullback(phi, X, dPhi):
    """Σ_ij dPhi_ij ∂φ_ij/∂log θ: a sum over rows, and one term of the linear part."""
    raw = phi.raw(X, out=np.empty((len(X), phi.n_raw_)))
    linear = np.eye(phi.n_raw_) if phi.linear_ is None else phi.linear_
    return phi.raw_gradient(X, raw, dPhi @ linear.T) + phi.linear_gradient((raw @ linear).T @ dPhi)


@pytest.mark.parametrize("name", MAPS)
def test_pullback_is_the_derivative_of_the_features(name):
    """Against any dPhi, not only those that are symmetric in ΦᵀdΦ."""
    x = problem()[0]
    phi = MAPS[name].fit(x)
    dPhi = np.random.default_rng(7).normal(size=(len(x), phi.n_features_out))

    def value(logs):
        return float(np.sum(phi.with_length_scale(np.exp(logs)).transform(x) * dPhi))

    logs = np.log(phi.kernel_.theta)
    found = pullback(phi, x, dPhi)
    close(found, central(value, logs, step=1e-3), 1e-6)
    chunks = sum(pullback(phi, x[i : i + 7], dPhi[i : i + 7]) for i in range(0, len(x), 7))
    close(chunks, found, 1e-8)
    close(pullback(phi, x.astype(np.float32), dPhi), found, 1e-4)


@pytest.mark.parametrize("name", MAPS)
def test_with_length_scale_is_the_map_of_another_length_scale(name):
    x = problem()[0]
    phi = MAPS[name].fit(x)
    theta = phi.kernel_.theta
    moved = phi.with_length_scale(3.0 * theta)
    np.testing.assert_allclose(moved.kernel_.theta, 3.0 * theta)
    assert moved.kernel_ == phi.kernel_.with_length_scale(3.0 * theta)
    np.testing.assert_array_equal(phi.kernel_.theta, theta)
    if isinstance(phi, RandomFourier):
        close(moved.transform(3.0 * x), phi.transform(x), 1e-12)
    else:
        np.testing.assert_array_equal(moved.landmarks_, phi.landmarks_)
        np.testing.assert_array_equal(moved.raw(x), moved.kernel_(x, phi.landmarks_))
    close(moved.with_length_scale(theta).transform(x), phi.transform(x), 1e-12)


def test_one_length_scale_becomes_one_per_input():
    x = problem()[0]
    one = RandomFourier("rbf", 0.9, n_components=12, random_state=0).fit(x)
    many = RandomFourier("rbf", ARD, n_components=12, random_state=0).fit(x)
    close(one.with_length_scale(ARD).transform(x), many.transform(x), 1e-13)
    with refused("theta", "2 entries", "3 inputs", error=ValueError):
        one.with_length_scale([1.0, 2.0])


@pytest.mark.parametrize("cutoff", [1e-8, 1e-4])
def test_cholesky_whitening_is_the_jittered_nystroem_kernel(cutoff):
    x = problem()[0]
    phi = Nystroem("rbf", 0.5, n_components=20, whitening="cholesky", cutoff=cutoff, random_state=0)
    Phi = phi.fit_transform(x)
    Z = phi.landmarks_
    K = naive.rbf(Z, Z, 0.5) + cutoff * np.eye(len(Z))
    k = naive.rbf(x, Z, 0.5)
    close(Phi @ Phi.T, k @ np.linalg.inv(K) @ k.T, 1e-9)
    assert phi.rank_ == phi.n_features_out == 20
    np.testing.assert_array_equal(phi.linear_, np.triu(phi.linear_))
    eigen = Nystroem("rbf", 0.5, n_components=20, random_state=0).fit_transform(x)
    close(Phi @ Phi.T, eigen @ eigen.T, 100 * cutoff)


def test_maps_without_this_gradient_say_so():
    x, s, y, _ = problem()
    eigen = Nystroem(n_components=5).fit(x)
    with refused("whitening='eigen'", error=ValueError):
        pullback(eigen, x, np.zeros((len(x), eigen.n_features_out)))
    with refused("whitening='qr'", error=ValueError):
        Nystroem(whitening="qr").fit(x)
    with refused("cutoff=0.0", error=ValueError):
        Nystroem("rbf", 1e3, n_components=50, whitening="cholesky", cutoff=0.0).fit(x)
    rows = Design(Identity().fit(x), OneHot().fit((s > 0).astype(float)))
    source = ArraySource(x, (s > 0).astype(float), y)
    adjoint = row_adjoint(evidence_point(source, rows))
    with refused("Identity", error=TypeError):
        length_scale_gradient(source, rows, adjoint)


# Length scales


@pytest.mark.parametrize("whiten_rows", [True, False])
@pytest.mark.parametrize(("penalty", "eta"), SETTINGS[:3])
@pytest.mark.parametrize("name", MAPS)
def test_length_scale_gradient_equals_central_differences(name, penalty, eta, whiten_rows):
    outputs = 2
    source = source_of(outputs)
    rows = design(MAPS[name], outputs, whiten_rows)
    point = partial(evidence_point, source, penalty=penalty, eta=eta)
    found = length_scale_gradient(source, rows, row_adjoint(point(rows)))
    logs = np.log(rows.phi.kernel_.theta)
    expected = central(lambda at: point(at_theta(rows, at)).log_evidence, logs, step=1e-3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_gradient_of_the_profile():
    """Where noise and amplitude are the best ones, only the features move the maximum."""
    source, rows = source_of(), design(MAPS["nystroem"])

    def profile(logs):
        (moments,) = accumulate(source, at_theta(rows, logs))
        return profile_noise(GaussianSystem.build(moments), 4.0).point

    logs = np.log(ARD)
    found = length_scale_gradient(source, rows, row_adjoint(profile(logs)))
    close(found, central(lambda at: profile(at).log_evidence, logs, step=1e-3), 1e-6)


@pytest.mark.parametrize("name", ["pairs", "nystroem"])
@pytest.mark.parametrize("whiten_rows", [True, False])
def test_chunks_and_threads_do_not_matter(name, whiten_rows):
    source, rows = source_of(), design(MAPS[name], 1, whiten_rows)
    adjoint = row_adjoint(evidence_point(source, rows))
    whole = length_scale_gradient(source, rows, adjoint)
    for size in (1, 7, 59):
        close(length_scale_gradient(source, rows, adjoint, rows=size), whole, 1e-9)
    close(length_scale_gradient(source_of(n_threads=2), rows, adjoint, rows=7), whole, 1e-9)


@pytest.mark.parametrize("name", ["pairs", "nystroem"])
def test_dask_gives_the_same_gradient(name):
    parts = [da.from_array(part, chunks=(17, *part.shape[1:])) for part in problem()]
    rows, source = design(MAPS[name]), source_of()
    adjoint = row_adjoint(evidence_point(source, rows))
    expected = length_scale_gradient(source, rows, adjoint)
    with dask.config.set(scheduler="synchronous"):
        found = length_scale_gradient(DaskSource(*parts, rows_per_task=20), rows, adjoint)
    close(found, expected, 1e-9)


@pytest.mark.parametrize("name", ["pairs", "nystroem"])
def test_weight_two_is_the_row_twice_in_the_gradient(name):
    x, s, y, weight = problem()
    rows = design(MAPS[name])
    times = (2 * weight).astype(int)
    doubled = ArraySource(x, s, y, 2 * weight)
    repeated = ArraySource(*(np.repeat(a, times, axis=0) for a in (x, s, y)))
    found, expected = (
        length_scale_gradient(source, rows, row_adjoint(evidence_point(source, rows))) for source in (doubled, repeated)
    )
    close(found, expected, 1e-9)


def test_smooth_kernel_with_many_landmarks():
    """K_ZZ of condition 1e8: whitened rows and whitened moments agree with differences."""
    x, s, y, _ = problem(120)
    phi = Nystroem("rbf", [2.0, 2.0, 2.0], n_components=60, whitening="cholesky", random_state=0)
    psi = OneHot().fit((s > 0).astype(float))
    source = ArraySource(x, (s > 0).astype(float), y)
    logs = np.log([2.0, 2.0, 2.0])
    for whiten_rows in (True, False):
        rows = Design(phi.fit(x), psi, whiten_rows=whiten_rows)
        found = length_scale_gradient(source, rows, row_adjoint(evidence_point(source, rows)))
        expected = central(
            lambda at, rows=rows: evidence_point(source, at_theta(rows, at)).log_evidence, logs, step=1e-2
        )
        close(found, expected, 1e-5)
