"""Feature maps: kernels approximated or reproduced, invariances of landmarks, the raw contract."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from scalefair import _hash
from scalefair._hash import hash_uniform, row_hash, smallest_hash
from scalefair.kernels import RBF, Categorical, Laplace, Matern, make_kernel
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, ProductMap, RandomFourier
from scalefair.maps._columns import column_numbers
from scalefair.maps.landmarks import (
    METHODS,
    choose_landmarks,
    distinct_rows,
    kmeans_plus_plus,
    ridge_leverage_scores,
    weighted_sample,
)

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, 3))
GROUPS = rng.integers(0, 3, size=(60, 1)).astype(float)
MIXED = np.hstack([GROUPS, ROWS])

MAPS = [
    RandomFourier(n_components=20, random_state=0),
    RandomFourier(n_components=21, pairs=False, length_scale="median", random_state=0),
    Nystroem(n_components=10, random_state=0),
    Nystroem(n_components=10, landmarks="kmeans++", length_scale="standardized", random_state=0),
    Nystroem("laplace", n_components=10, landmarks="leverage", random_state=0),
    Identity(),
    OneHot(),
    OneHot(unknown="group"),
    ProductMap([(OneHot("group"), slice(0, 1)), (Nystroem(n_components=5, random_state=0), [-1])]),
    ProductMap([(Identity(), slice(None)), (Nystroem(random_state=0), [-1])], whiten="rows"),
    ConcatMap([(RandomFourier(n_components=6, random_state=0), slice(0, 2)), (Identity(), 0)]),
]


def expected_failures(estimator):
    if isinstance(estimator, RandomFourier) and estimator.pairs:
        reason = "the check sets n_components=1, which is odd, and pairs are even by definition"
        return dict.fromkeys(
            [
                "check_dont_overwrite_parameters",
                "check_methods_sample_order_invariance",
                "check_methods_subset_invariance",
                "check_fit2d_1sample",
                "check_fit2d_1feature",
                "check_fit2d_predict1d",
            ],
            reason,
        )
    if isinstance(estimator, OneHot) and estimator.unknown == "error":
        reason = "the check transforms rows that fit has not seen, which is an error by choice"
        return dict.fromkeys(
            ["check_sample_weight_equivalence_on_dense_data", "check_fit_idempotent"], reason
        )
    return {}


@parametrize_with_checks(MAPS, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Row hashes


def test_row_hash_is_splitmix64():
    # First outputs published for SplitMix64 with seeds 1234567 and 0.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert row_hash(1234567, np.arange(4)).tolist() == known
    assert row_hash(0, [0, 1]).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_row_hash_of_far_rows_agrees_with_integer_arithmetic():
    def reference(seed, row):
        word = 2**64
        z = (seed + (row + 1) * 0x9E3779B97F4A7C15) % word
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % word
        z = (z ^ z >> 27) * 0x94D049BB133111EB % word
        return z ^ z >> 31

    rows = [0, 1, 2**31, 2**40 + 7, 2**62]
    for seed in (0, 1, 2**63, 2**64 - 1):
        assert row_hash(seed, rows).tolist() == [reference(seed, row) for row in rows]
        assert int(row_hash(seed, 2**40)) == reference(seed, 2**40)


def test_hash_uniform_is_uniform():
    u = hash_uniform(3, np.arange(10_000))
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    # Chi-square with 19 degrees of freedom: 1 in 1000 exceeds 43.8.
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


@given(st.integers(0, 2**63), st.integers(0, 10**12), st.integers(1, 80), st.integers(1, 20))
def test_smallest_hash_is_a_sort(seed, first, count, size):
    rows = np.arange(first, first + count)
    expected = np.sort(rows[np.argsort(row_hash(seed, rows))[:size]])
    assert_array_equal(smallest_hash(seed, first, count, size), expected)


def test_smallest_hash_merges_over_chunks(monkeypatch):
    whole = smallest_hash(5, 0, 1000, 7)
    pieces = np.concatenate([smallest_hash(5, start, 250, 7) for start in range(0, 1000, 250)])
    assert_array_equal(np.sort(pieces[np.argsort(row_hash(5, pieces))[:7]]), whole)
    monkeypatch.setattr(_hash, "_BLOCK", 33)
    assert_array_equal(smallest_hash(5, 0, 1000, 7), whole)


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


def test_cutoff_leaves_ordinary_use_without_warning():
    # Warnings are errors here; a smooth kernel on one column drops most directions.
    assert Nystroem(length_scale="median").fit(ROWS[:, :1]).rank_ < 20


@pytest.mark.parametrize("n_components", [7, 100])
@pytest.mark.parametrize("landmarks", METHODS)
def test_landmarks_do_not_depend_on_order_copies_or_absent_rows(landmarks, n_components):
    nystroem = Nystroem(
        length_scale="median", n_components=n_components, landmarks=landmarks, random_state=3
    )
    weight = np.repeat([1.0, 2.0, 3.0], 20)
    order = np.random.default_rng(1).permutation(60)
    once = clone(nystroem).fit(ROWS, sample_weight=weight)
    permuted = clone(nystroem).fit(ROWS[order], sample_weight=weight[order])
    copied = clone(nystroem).fit(np.repeat(ROWS, weight.astype(int), axis=0))
    absent = clone(nystroem).fit(
        np.vstack([ROWS + 9, ROWS]), sample_weight=np.r_[np.zeros(60), weight]
    )
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
    for landmarks in METHODS:
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


# Exact maps


def test_onehot_is_the_kernel_of_equal_rows():
    S = np.random.default_rng(4).integers(0, 3, size=(50, 3)).astype(float)
    Psi = OneHot().fit_transform(S)
    assert_array_equal(Psi @ Psi.T, Categorical()(S))
    assert_array_equal(Psi @ Psi.T, (S[:, None] == S[None]).all(axis=2))
    assert_array_equal(Psi.sum(axis=1), 1)
    assert (Psi.sum(axis=0) > 0).all()


def test_onehot_is_the_same_for_codes_strings_and_frames():
    codes = np.random.default_rng(5).integers(0, 3, size=(40, 2))
    words = np.array(["a", "bb", "ccc"])[codes]
    frame = pd.DataFrame({"first": pd.Categorical(words[:, 0]), "second": codes[:, 1]})
    expected = OneHot().fit_transform(codes)
    for S in (codes.astype(np.float32), words, words.astype(object), frame):
        assert_array_equal(OneHot().fit_transform(S), expected)


def test_onehot_names_read_well():
    S = pd.DataFrame({"sex": ["F", "M", "F"], "child": [0.0, 1.0, 2.5]})
    onehot = OneHot().set_output(transform="pandas").fit(S)
    assert list(onehot.transform(S)) == [
        "sex=F & child=0",
        "sex=F & child=2.5",
        "sex=M & child=1",
    ]
    assert_array_equal(onehot.combinations_, S.to_numpy()[[0, 2, 1]])


@pytest.mark.parametrize(
    "S", [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([list("ab"), list("ba")])]
)
def test_onehot_unseen_combination(S):
    other = S[:, ::-1].copy()
    other[:, 1] = other[:, 0]
    name = f"x0={str(other[0, 0]).removesuffix('.0')} & x1={str(other[0, 1]).removesuffix('.0')}"
    with pytest.raises(ValueError, match=f"{name}.*row 2.*unknown='group'"):
        OneHot().fit(S).transform(np.vstack([S, other]))
    Psi = OneHot(unknown="group").fit(S).transform(np.vstack([S, other]))
    assert_array_equal(Psi, np.vstack([np.eye(2), np.zeros((2, 2))]))


def test_onehot_unseen_values_between_and_beyond_the_seen():
    onehot = OneHot(unknown="group").fit([[1.0], [3.0]])
    assert_array_equal(onehot.transform([[0.0], [1.0], [2.0], [3.0], [4.0]])[:, 0], [0, 1, 0, 0, 0])


def test_onehot_leaves_out_rows_of_weight_zero():
    onehot = OneHot(unknown="group").fit([[1], [2], [3]], sample_weight=[1, 0, 2])
    assert_array_equal(onehot.transform([[1], [2], [3]]), [[1, 0], [0, 0], [0, 1]])


def test_onehot_crosses_more_columns_than_an_integer_holds():
    S = np.random.default_rng(6).integers(0, 2, size=(30, 200)).astype(float)
    S[20:] = S[:10]
    Psi = OneHot().fit_transform(S)
    assert Psi.shape == (30, 20)
    assert_array_equal(Psi @ Psi.T, Categorical()(S))
    for column in (0, 100, 199):
        # Arithmetic that wraps would forget the first columns.
        other = S.copy()
        other[:, column] = 1 - other[:, column]
        assert_array_equal(OneHot("group").fit(S).transform(other), 0)
        rows = np.vstack([S[:1], other[:1], 1 - S[:1]])
        assert_array_equal(OneHot().fit_transform(rows).sum(axis=0), [1, 1, 1])


def test_onehot_knows_a_category_in_single_precision():
    onehot = OneHot().fit([[0.1], [0.7]])
    Psi = onehot.transform(np.array([[0.7], [0.1]], dtype=np.float32))
    assert_array_equal(Psi, [[0, 1], [1, 0]])
    assert Psi.dtype == np.float32


def test_onehot_refuses_what_it_cannot_sort():
    with pytest.raises(TypeError, match=r"column 0 .*NoneType, str"):
        OneHot().fit(np.array([["a"], [None]], dtype=object))


# Products and sums


def parts():
    return [(OneHot(), [0]), (Nystroem(n_components=8, random_state=0), slice(1, None))]


def gram(phi, X):
    Phi = phi.fit(X).transform(X)
    return Phi @ Phi.T


@pytest.mark.parametrize("whiten", ["moments", "rows"])
def test_product_map_multiplies_kernels(whiten):
    first, second = (gram(part, MIXED[:, where]) for part, where in parts())
    assert_allclose(gram(ProductMap(parts(), whiten=whiten), MIXED), first * second, atol=1e-10)


def test_product_of_three_and_of_one():
    three = [*parts(), (Identity(), [2, 3])]
    factors = [gram(part, MIXED[:, where]) for part, where in three]
    assert_allclose(gram(ProductMap(three), MIXED), np.prod(factors, axis=0), atol=1e-10)
    assert_allclose(gram(ProductMap(three[:1]), MIXED), factors[0])


def test_product_features_are_row_wise_kronecker_products():
    psi = ProductMap(parts()).fit(MIXED)
    (first, _), (second, _) = psi.parts_
    rows = zip(first.transform(MIXED[:, :1]), second.transform(MIXED[:, 1:]), strict=True)
    assert_allclose(psi.transform(MIXED), [np.kron(a, b) for a, b in rows], atol=1e-10)
    assert psi.n_raw_ == first.n_raw_ * second.n_raw_
    assert psi.linear_.shape == (psi.n_raw_, 3 * second.rank_)


def test_whitened_rows_have_fewer_columns():
    smooth = [(OneHot(), [0]), (Nystroem(length_scale=5.0, cutoff=1e-6), [1])]
    rows = ProductMap(smooth, whiten="rows").fit(MIXED)
    moments = ProductMap(smooth).fit(MIXED)
    assert rows.linear_ is None
    assert 5 * rows.n_raw_ < moments.n_raw_
    assert_allclose(rows.transform(MIXED), moments.transform(MIXED), atol=1e-9)


def test_concat_map_adds_kernels():
    first, second = (gram(part, MIXED[:, where]) for part, where in parts())
    assert_allclose(gram(ConcatMap(parts()), MIXED), first + second, atol=1e-10)


@pytest.mark.parametrize("cls", [ProductMap, ConcatMap])
def test_composite_of_exact_maps_has_no_linear_part(cls):
    assert cls([(OneHot(), [0]), (Identity(), [1])]).fit(MIXED).linear_ is None


def test_composites_nest():
    inner = ProductMap(parts())
    outer = ConcatMap([(inner, slice(None)), (Identity(), 1)])
    expected = gram(inner, MIXED) + np.outer(MIXED[:, 1], MIXED[:, 1])
    assert_allclose(gram(outer, MIXED), expected, atol=1e-10)


@pytest.mark.parametrize("whiten", ["moments", "rows"])
def test_product_map_of_a_mixed_frame(whiten):
    words = np.array(["x", "y", "z"])[GROUPS[:, 0].astype(int)]
    frame = pd.DataFrame({"age": ROWS[:, 0], "sex": words, "wage": ROWS[:, 1]})
    pair = [(OneHot(), "sex"), (Nystroem(n_components=5, random_state=0), ["age", "wage"])]
    psi = ProductMap(pair, whiten=whiten).set_output(transform="pandas").fit(frame)
    numbers = ProductMap([(pair[0][0], [0]), (pair[1][0], [1, 2])], whiten=whiten)
    Psi = psi.transform(frame)
    assert_array_equal(Psi, numbers.fit_transform(MIXED[:, :3]))
    assert Psi.columns[0] == "sex=x * nystroem0"
    assert list(ConcatMap(pair).fit(frame).get_feature_names_out())[2:4] == [
        "part0__sex=z",
        "part1__nystroem0",
    ]


class FloatsOnly(Identity):
    def raw(self, X, out=None):
        assert X.dtype == np.float64
        assert X.flags.c_contiguous
        return super().raw(X, out)


def test_parts_get_plain_rows_even_of_a_mixed_frame():
    frame = pd.DataFrame({"sex": ["F", "M"], "age": [1, 2], "wage": [0.5, 0.25]})
    phi = ConcatMap([(OneHot(), "sex"), (FloatsOnly(), ["age", "wage"])])
    assert_array_equal(phi.fit_transform(frame), [[1, 0, 1, 0.5], [0, 1, 2, 0.25]])


def test_composite_passes_weights_on():
    weight = (GROUPS[:, 0] < 2).astype(float)
    psi = ProductMap([(OneHot("group"), [0]), (Nystroem(), [1])]).fit(MIXED, sample_weight=weight)
    assert psi.parts_[0][0].n_raw_ == 2
    assert psi.parts_[1][0].n_raw_ == weight.sum()


def test_parameters_of_parts():
    psi = ProductMap(parts())
    psi.set_params(part0__unknown="group", part1__n_components=3)
    assert psi.get_params()["part1__n_components"] == psi.parts[1][0].n_components == 3
    psi.set_params(part1=Identity())
    assert isinstance(psi.parts[1][0], Identity)
    assert psi.parts[1][1] == slice(1, None)
    assert clone(psi).parts[0][0].unknown == "group"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (1, [1]),
        ([2, 0], [2, 0]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        (np.array([True, False, True]), [0, 2]),
        ("b", [1]),
        (["c", "a"], [2, 0]),
    ],
)
def test_column_numbers(columns, expected):
    assert_array_equal(column_numbers(columns, 3, ["a", "b", "c"]), expected)


@pytest.mark.parametrize(
    ("columns", "names", "error", "message"),
    [
        (3, None, ValueError, "number 3 but X has 3 features"),
        ("d", ["a", "b", "c"], ValueError, r"\['d'\] are not in X"),
        ("a", None, ValueError, "names but X has none"),
        ([True, False], None, ValueError, "mask of shape"),
        ([], None, TypeError, "numbers, names, a slice or a mask"),
        (slice(0, 0), None, ValueError, "selects no column"),
        (1.5, None, TypeError, "numbers, names"),
    ],
)
def test_bad_columns(columns, names, error, message):
    with pytest.raises(error, match=message):
        column_numbers(columns, 3, names)


# What every map promises the engine


def fitted(phi):
    return clone(phi).fit(MIXED)


@pytest.mark.parametrize("phi", MAPS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_raw_writes_into_out_and_agrees_with_transform(phi, dtype):
    phi = fitted(phi)
    X = MIXED.astype(dtype)
    out = np.full((60, phi.n_raw_), np.nan, dtype=dtype)
    assert phi.raw(X, out=out) is out
    assert_array_equal(out, phi.raw(X))
    assert phi.raw(X).dtype == dtype
    Phi = phi.transform(X)
    assert Phi.dtype == dtype
    assert Phi.shape == (60, phi.n_features_out)
    linear = np.eye(phi.n_raw_) if phi.linear_ is None else phi.linear_
    assert linear.dtype == np.float64
    assert_allclose(Phi, out @ linear, atol=1e-10 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("phi", MAPS, ids=str)
def test_single_precision_is_close_to_double(phi):
    phi = fitted(phi)
    single, double = phi.transform(MIXED.astype(np.float32)), phi.transform(MIXED)
    assert_allclose(single, double, atol=2e-3)


@pytest.mark.parametrize("phi", MAPS, ids=str)
def test_out_chooses_the_precision(phi):
    phi = fitted(phi)
    out = np.empty((60, phi.n_raw_), dtype=np.float32)
    assert_allclose(phi.raw(MIXED, out=out), phi.raw(MIXED), atol=2e-3)


@pytest.mark.parametrize("phi", MAPS, ids=str)
def test_raw_is_thread_safe_and_leaves_the_map_alone(phi):
    phi = fitted(phi)
    before = pickle.dumps(phi)
    chunks = [MIXED[np.random.default_rng(seed).permutation(60)] for seed in range(16)]
    alone = [phi.raw(chunk) for chunk in chunks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(phi.raw, chunks * 8))
    for number, rows in enumerate(together):
        assert_array_equal(rows, alone[number % 16])
    assert pickle.dumps(phi) == before


@pytest.mark.parametrize("phi", MAPS, ids=str)
def test_feature_names_are_one_per_feature(phi):
    phi = fitted(phi).set_output(transform="pandas")
    frame = phi.transform(MIXED)
    assert list(frame) == list(phi.get_feature_names_out())
    assert len(set(frame)) == frame.shape[1] == phi.n_features_out


@pytest.mark.parametrize("cls", [RandomFourier, Nystroem])
def test_random_state(cls):
    def features(state):
        return cls(n_components=6, random_state=state).fit_transform(ROWS)

    assert_array_equal(features(7), features(7))
    assert_array_equal(features(7), features(np.int64(7)))
    assert_array_equal(
        features(np.random.RandomState(1)),
        features(np.random.RandomState(1)),
    )
    assert np.abs(features(7) - features(8)).max() > 0.01
    np.random.seed(0)  # noqa: NPY002 - None means numpy's global state, as in scikit-learn
    first, second = features(None), features(None)
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize(
    ("phi", "error", "message"),
    [
        (RandomFourier(n_components=7), ValueError, "n_components=7 is odd"),
        (RandomFourier(n_components=0), ValueError, "n_components=0 must be at least 1"),
        (Nystroem(n_components=2.5), TypeError, "n_components=2.5 is a float"),
        (Nystroem(landmarks="best"), ValueError, "landmarks='best'.*uniform, kmeans"),
        (Nystroem(cutoff=-1), ValueError, r"cutoff=-1 must be in \[0, 1\)"),
        (Nystroem(sample_size=0), ValueError, "sample_size=0"),
        (Nystroem(length_scale="mean"), ValueError, "length_scale='mean'.*median, standardized"),
        (Nystroem(length_scale=[1.0, 2.0]), ValueError, "length_scale has 2 entries"),
        (Nystroem(length_scale=0.0), ValueError, "length_scale"),
        (Nystroem("rbff"), ValueError, "rbff"),
        (RandomFourier("laplace", orthogonal=True), ValueError, "orthogonal"),
        (OneHot(unknown="ignore"), ValueError, "unknown='ignore'.*error, group"),
        (ProductMap([]), ValueError, "at least one pair"),
        (ProductMap([OneHot()]), ValueError, "each part must be a pair"),
        (ConcatMap([(object(), 0)]), TypeError, "no `raw` method"),
        (ProductMap([(OneHot(), 0)], whiten="all"), ValueError, "whiten='all'.*moments, rows"),
    ],
)
def test_bad_parameters(phi, error, message):
    with pytest.raises(error, match=message):
        phi.fit(MIXED)


def test_bad_weights_and_rows():
    with pytest.raises(ValueError, match="at least one non-zero"):
        Nystroem().fit(ROWS, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        Nystroem().fit(ROWS, sample_weight=-np.ones(60))
    with pytest.raises(ValueError, match="1 sample"):
        Nystroem(length_scale="median").fit(ROWS, sample_weight=np.eye(60)[0])
    with pytest.raises(ValueError, match="zero on all 1 landmarks"):
        Nystroem("linear").fit(np.zeros((5, 2)))
