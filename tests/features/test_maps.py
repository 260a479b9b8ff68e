"""Feature maps: kernels approximated or reproduced, invariances of landmarks, the raw contract."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from scalefair._hash import smallest_hash
from scalefair.features.landmarks import (
    LANDMARK_METHODS,
    _ridge_of_dimension,
    choose_landmarks,
    distinct_rows,
    kmeans_plus_plus,
    ridge_leverage_scores,
    weighted_sample,
)
from scalefair.kernels import RBF, Categorical, Laplace, Matern, make_kernel
from scalefair.maps import Nystroem, RandomFourier

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, 3))
GROUPS = rng.integers(0, 3, size=(60, 1)).astype(float)
MIXED = np.hstack([GROUPS, ROWS])


# Random Fourier features


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "laplace", "matern12", "matern32", "matern52"])
def test_fourier_error_falls_as_theory_says(kernel, pairs):
    # One frequency estimates k by cos ω(x-z), variance (1 + k(2x, 2z))/2 - k²; a random phase adds
    # 1/2. The mean square error over seeds must be that, divided by the number of frequencies.
    X = ROWS[:12]
    k = make_kernel(kernel, 1.5)
    off = ~np.eye(len(X), dtype=bool)
    variance = ((1 + k(2 * X)) / 2 - k(X) ** 2 + (0 if pairs else 0.5))[off].mean()
    for m in (16, 64, 256):
        errors = []
        for seed in range(60):
            phi = RandomFourier(kernel, 1.5, n_components=m, pairs=pairs, random_state=seed)
            Phi = phi.fit_transform(X)
            errors.append(((Phi @ Phi.T - k(X)) ** 2)[off].mean())
        assert np.mean(errors) == pytest.approx(variance / (m / 2 if pairs else m), rel=0.2)


def test_fourier_pairs_have_unit_length():
    Phi = RandomFourier(n_components=10, random_state=1).fit_transform(ROWS)
    assert_allclose((Phi**2).sum(axis=1), 1.0, rtol=1e-13)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_orthogonal_frequencies_are_unbiased_and_better(kernel):
    X = ROWS[:12]
    K = make_kernel(kernel, 2.0)(X)

    def features(seed, orthogonal):
        phi = RandomFourier(kernel, 2.0, n_components=6, orthogonal=orthogonal, random_state=seed)
        return phi.fit_transform(X)

    error = {}
    for orthogonal in (False, True):
        grams = np.array([P @ P.T for P in (features(seed, orthogonal) for seed in range(400))])
        spread = grams.std(axis=0) / np.sqrt(400)
        assert (np.abs(grams.mean(axis=0) - K) <= 5 * spread + 1e-12).all()
        error[orthogonal] = ((grams - K) ** 2).mean()
    assert error[True] < 0.9 * error[False]


def test_fourier_is_the_formula():
    phi = RandomFourier(n_components=8, length_scale=[1.0, 2.0, 3.0], random_state=0).fit(ROWS)
    P = ROWS @ phi.frequencies_
    assert_allclose(phi.transform(ROWS), np.hstack([np.cos(P), np.sin(P)]) / 2, atol=1e-13)
    phi = RandomFourier(n_components=8, pairs=False, random_state=0).fit(ROWS)
    P = ROWS @ phi.frequencies_ + phi.phase_
    assert_allclose(phi.transform(ROWS), np.cos(P) / 2, atol=1e-13)


def test_refit_with_pairs_forgets_the_phase():
    phi = RandomFourier(n_components=8, pairs=False, random_state=0).fit(ROWS)
    phi.set_params(pairs=True).fit(ROWS)
    fresh = RandomFourier(n_components=8, random_state=0).fit(ROWS)
    assert_array_equal(phi.transform(ROWS), fresh.transform(ROWS))


# Nyström features


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "matern32", "linear", "categorical"])
def test_nystroem_with_all_rows_is_the_kernel(kernel):
    nystroem = Nystroem(kernel, cutoff=1e-13, random_state=0).fit(MIXED)
    Phi = nystroem.transform(MIXED)
    assert_allclose(Phi @ Phi.T, make_kernel(kernel, 1.0)(MIXED), atol=1e-9)


def test_nystroem_is_the_projection_on_the_landmarks():
    nystroem = Nystroem(n_components=8, random_state=0).fit(ROWS)
    k, Z = RBF(1.0), nystroem.landmarks_
    projected = k(ROWS, Z) @ np.linalg.solve(k(Z), k(Z, ROWS))
    Phi = nystroem.transform(ROWS)
    assert_allclose(Phi @ Phi.T, projected, atol=1e-10)
    assert np.linalg.eigvalsh(k(ROWS) - Phi @ Phi.T).min() > -1e-10


@pytest.mark.parametrize("cutoff", [0.0, 1e-8, 1e-3, 0.3])
def test_cutoff_is_reported_and_bounds_the_error(cutoff):
    X = np.linspace(-1, 1, 40)[:, None]
    nystroem = Nystroem(cutoff=cutoff).fit(X)
    values = np.linalg.eigvalsh(RBF(1.0)(X))[::-1]
    assert_allclose(nystroem.eigenvalues_, values, atol=1e-12)
    assert nystroem.rank_ == (nystroem.eigenvalues_ > cutoff * nystroem.eigenvalues_[0]).sum()
    assert nystroem.n_features_out == nystroem.rank_ == nystroem.linear_.shape[1]
    Phi = nystroem.transform(X)
    assert Phi.shape[1] == nystroem.rank_
    if cutoff:
        error = np.linalg.norm(Phi @ Phi.T - RBF(1.0)(X), 2)
        assert error <= cutoff * values[0] * (1 + 1e-6) + 1e-10
        assert nystroem.rank_ < 15 < nystroem.n_raw_


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "linear"])
@pytest.mark.parametrize("cutoff", [1e-13, 1e-8, 1e-3])
def test_a_pivoted_factor_drops_landmarks_that_the_others_determine(kernel, cutoff):
    X = np.linspace(-1, 1, 40)[:, None] * [1.0, 2.0]
    nystroem = Nystroem(kernel, whitening="pivoted", cutoff=cutoff).fit(X)
    k, Phi = nystroem.kernel_, nystroem.transform(X)
    assert Phi.shape == (40, nystroem.rank_)
    assert nystroem.rank_ == nystroem.n_raw_ == len(nystroem.landmarks_)
    left = k(X) - Phi @ Phi.T
    # What is left of no row is more than the cut-off.
    assert np.diag(left).max() <= cutoff * k.diag(X).max() + 1e-9
    assert np.linalg.eigvalsh(left).min() > -1e-9
    if kernel == "linear":
        assert nystroem.rank_ == 1
    assert_allclose(nystroem.transform(nystroem.landmarks_), np.linalg.inv(nystroem.linear_).T, atol=1e-9)


def test_cutoff_leaves_ordinary_use_without_warning():
    # Warnings are errors here; a smooth kernel on one column drops most directions.
    assert Nystroem(length_scale="median").fit(ROWS[:, :1]).rank_ < 20


@pytest.mark.parametrize("n_components", [7, 100])
@pytest.mark.parametrize("landmarks", LANDMARK_METHODS)
def test_landmarks_do_not_depend_on_order_copies_or_absent_rows(landmarks, n_components):
    nystroem = Nystroem(length_scale="median", n_components=n_components, landmarks=landmarks, random_state=3)
    weight = np.repeat([1.0, 2.0, 3.0], 20)
    order = np.random.default_rng(1).permutation(60)
    once = clone(nystroem).fit(ROWS, sample_weight=weight)
    permuted = clone(nystroem).fit(ROWS[order], sample_weight=weight[order])
    copied = clone(nystroem).fit(np.repeat(ROWS, weight.astype(int), axis=0))
    absent = clone(nystroem).fit(np.vstack([ROWS + 9, ROWS]), sample_weight=np.r_[np.zeros(60), weight])
    for other in (permuted, copied, absent):
        assert_array_equal(other.landmarks_, once.landmarks_)
        assert other.kernel_ == once.kernel_
        assert_allclose(other.transform(ROWS), once.transform(ROWS), atol=1e-10)
    assert len(once.landmarks_) == min(n_components, 60)
    assert_array_equal(once.landmarks_, np.unique(once.landmarks_, axis=0))


def test_uniform_landmarks_are_the_rows_of_smallest_hash():
    nystroem = Nystroem(n_components=9, random_state=11).fit(ROWS)
    expected = np.unique(ROWS, axis=0)[smallest_hash(11, 0, 60, 9)]
    assert_array_equal(nystroem.landmarks_, expected)


def test_sample_size_limits_the_candidates():
    nystroem = Nystroem(n_components=5, sample_size=5, random_state=0)
    for landmarks in LANDMARK_METHODS:
        nystroem.set_params(landmarks=landmarks).fit(ROWS)
        few = np.unique(ROWS, axis=0)[smallest_hash(2, 0, 60, 5)]
        assert_array_equal(nystroem.landmarks_, few)


def test_weighted_sample_draws_in_proportion():
    weight = np.array([1.0, 2.0, 5.0])
    pairs = [tuple(weighted_sample(weight, 2, seed)) for seed in range(4000)]
    # Without replacement: P{i, j} = p_i p_j/(1 - p_i) + p_j p_i/(1 - p_j).
    p = weight / weight.sum()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        exact = p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
        tolerance = 4 * np.sqrt(exact * (1 - exact) / len(pairs))
        assert pairs.count((i, j)) / len(pairs) == pytest.approx(exact, abs=tolerance)


def test_kmeans_draws_in_proportion_to_the_squared_kernel_distance():
    rows, weight = np.array([[0.0], [1.0], [3.0]]), np.array([1.0, 2.0, 1.0])
    distance = 2 - 2 * RBF(2.0)(rows)
    pairs = [tuple(kmeans_plus_plus(RBF(2.0), rows, weight, 2, seed)) for seed in range(3000)]
    chance = np.zeros((3, 3))
    for i in range(3):
        mass = weight * distance[i]
        chance[i] = weight[i] / weight.sum() * mass / mass.sum()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        exact = chance[i, j] + chance[j, i]
        tolerance = 4 * np.sqrt(exact * (1 - exact) / len(pairs))
        assert pairs.count((i, j)) / len(pairs) == pytest.approx(exact, abs=tolerance)


def test_kmeans_finds_every_cluster_and_stops_where_nothing_is_left():
    centres = np.arange(5)[:, None] * 100.0
    rows = np.unique((centres + 1e-3 * rng.normal(size=(5, 20))).ravel())[:, None]
    for seed in range(5):
        chosen = kmeans_plus_plus(RBF(1.0), rows, np.ones(100), 5, seed)
        assert sorted(np.round(rows[chosen, 0] / 100)) == [0, 1, 2, 3, 4]
    assert len(kmeans_plus_plus(Categorical(), np.zeros((4, 1)), np.ones(4), 3, 0)) == 1


def test_leverage_scores_are_exact_where_the_pilot_is_everything():
    rows, weight = distinct_rows(ROWS, np.repeat([1.0, 2.0, 4.0], 20))
    scores = ridge_leverage_scores(RBF(0.7), rows, weight, 30, seed=0)
    assert scores.sum() == pytest.approx(15.0, rel=1e-8)
    root = np.sqrt(weight)
    B = root[:, None] * RBF(0.7)(rows) * root
    values = np.linalg.eigvalsh(B)
    low, high = 1e-6, 1e6
    for _ in range(200):
        ridge = np.sqrt(low * high)
        low, high = (ridge, high) if (values / (values + ridge)).sum() > 15 else (low, ridge)
    assert_allclose(scores, np.diag(B @ np.linalg.inv(B + ridge * np.eye(60))), rtol=1e-6)


def test_leverage_scores_from_a_pilot_find_the_lonely_rows():
    crowd = 0.05 * np.random.default_rng(2).normal(size=(300, 2))
    lonely = 8.0 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    rows, weight = distinct_rows(np.vstack([crowd, lonely]), np.ones(304))
    chosen = choose_landmarks("leverage", RBF(1.0), rows, weight, size=20, seed=0)
    assert (np.abs(rows[chosen]).max(axis=1) > 7).sum() == 4
    uniform = choose_landmarks("uniform", RBF(1.0), rows, weight, size=20, seed=0)
    assert (np.abs(rows[uniform]).max(axis=1) > 7).sum() < 4


@pytest.mark.parametrize("size", [10, 20, 50])
def test_leverage_landmarks_are_as_good_from_pilots_as_from_all_rows(size):
    # A pilot of the middle alone takes every row of the tails for the only one of its kind.
    rows = np.sort(np.random.default_rng(3).normal(size=(600, 1)), axis=0)
    K = RBF(1.0)(rows)
    values, vectors = np.linalg.eigh(K)
    ridge = _ridge_of_dimension(np.maximum(values, 0.0), size / 2)
    exact = (vectors**2 * (values / (values + ridge))).sum(axis=1)
    lost = {"exact": [], "pilots": []}
    for seed in range(5):
        scores = ridge_leverage_scores(RBF(1.0), rows, np.ones(600), size, seed)
        assert scores.max() <= 1
        for name, weight in (("exact", exact), ("pilots", scores)):
            Z = rows[weighted_sample(weight, size, seed)]
            Phi = Nystroem(RBF(1.0), n_components=size).fit(Z).transform(rows)
            lost[name].append(np.trace(K - Phi @ Phi.T) / 600)
    assert max(lost["pilots"]) < 10 * max(lost["exact"])


def test_standardized_is_the_kernel_of_standardised_columns():
    X = ROWS * [1.0, 50.0, 1e-3] + [5.0, 0.0, 1.0]
    weight = np.repeat([1.0, 3.0], 30)
    mean = np.average(X, axis=0, weights=weight)
    deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    there = Nystroem(length_scale="standardized").fit(X, sample_weight=weight)
    reference = Nystroem(length_scale="median").fit((X - mean) / deviation, sample_weight=weight)
    Phi, Ref = there.transform(X), reference.transform((X - mean) / deviation)
    assert_allclose(Phi @ Phi.T, Ref @ Ref.T, atol=1e-9)
    assert_allclose(there.kernel_.length_scale, reference.kernel_.length_scale * deviation)


def test_standardized_leaves_a_constant_column_alone():
    # The mean of 0.1, …, 0.1 is rounded, so that a naive deviation is 1e-17, not 0.
    X = np.column_stack([np.full(60, 0.1), ROWS[:, 0]])
    both = Nystroem(length_scale="standardized").fit(X).kernel_.length_scale
    one = Nystroem(length_scale="standardized").fit(X[:, 1:]).kernel_.length_scale
    assert_allclose(both, [one / X[:, 1].std(), one])


def test_median_uses_the_metric_of_the_kernel_and_weights():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [100.0, 0.0]])
    for kernel, distance in (("rbf", 5.0), ("laplace", 7.0)):
        for phi in (Nystroem(kernel, "median"), RandomFourier(kernel, "median", n_components=4)):
            fitted = phi.fit(X, sample_weight=[1, 1, 0])
            assert fitted.kernel_.length_scale == pytest.approx(distance)


def test_kernel_object_brings_its_own_length_scale():
    assert Nystroem(Matern(3.0, 2.5), "median").fit(ROWS).kernel_ == Matern(3.0, 2.5)
    assert RandomFourier(Laplace(2.0), n_components=4).fit(ROWS).kernel_ == Laplace(2.0)
