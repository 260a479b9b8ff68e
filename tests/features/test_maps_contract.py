"""What every map promises scikit-learn and the engine."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from scalefair.features.base import row_filler
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, ProductMap, RandomFourier
from tests.errors import refused

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
        return dict.fromkeys(["check_sample_weight_equivalence_on_dense_data", "check_fit_idempotent"], reason)
    return {}


@parametrize_with_checks(MAPS, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Row hashes


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
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_filler_writes_what_raw_returns_however_the_rows_are_cut(phi, dtype):
    phi, X = fitted(phi), MIXED
    fill = phi.filler(dtype)
    for start, stop in [(0, 7), (7, 40), (40, 60), (0, 60)]:
        rows = X[start:stop]
        out = np.full((len(rows), phi.n_raw_), np.nan, dtype)
        fill(rows, out)
        expected = phi.raw(rows, out=np.empty_like(out))
        assert_allclose(out, expected, rtol=1e-6 if dtype == np.float32 else 1e-13, atol=1e-14)


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
    assert_array_equal(features(np.random.RandomState(1)), features(np.random.RandomState(1)))
    assert np.abs(features(7) - features(8)).max() > 0.01
    np.random.seed(0)  # noqa: NPY002 - None means numpy's global state, as in scikit-learn
    first, second = features(None), features(None)
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize(
    ("phi", "error", "words"),
    [
        (RandomFourier(n_components=7), ValueError, ["n_components=7", "pairs=False"]),
        (RandomFourier(n_components=0), ValueError, ["n_components=0", 1]),
        (Nystroem(n_components=2.5), TypeError, ["n_components=2.5", "float"]),
        (Nystroem(landmarks="best"), ValueError, ["landmarks='best'", "uniform", "kmeans++"]),
        (Nystroem(cutoff=-1), ValueError, ["cutoff=-1", "[0, 1)"]),
        (Nystroem(sample_size=0), ValueError, ["sample_size=0"]),
        (Nystroem(length_scale="mean"), ValueError, ["length_scale='mean'", "median, standardized"]),
        (Nystroem(length_scale=[1.0, 2.0]), ValueError, ["length_scale", 2, 4]),
        (Nystroem(length_scale=0.0), ValueError, ["length_scale=0.0"]),
        (Nystroem("rbff"), ValueError, ["kernel='rbff'"]),
        (RandomFourier("laplace", orthogonal=True), ValueError, ["orthogonal=True", "Laplace"]),
        (OneHot(unknown="ignore"), ValueError, ["unknown='ignore'", "error", "group"]),
        (ProductMap([]), ValueError, ["parts=[]", "pair"]),
        (ProductMap([OneHot()]), ValueError, ["parts", "OneHot()", "pair"]),
        (ConcatMap([(object(), 0)]), TypeError, ["parts", "object", "raw"]),
        (ProductMap([(OneHot(), 0)], whiten="all"), ValueError, ["whiten='all'", "moments, rows"]),
    ],
)
def test_bad_parameters(phi, error, words):
    with refused(*words, error=error):
        phi.fit(MIXED)


def test_bad_weights_and_rows():
    with refused("eights", "non-zero", error=ValueError):
        Nystroem().fit(ROWS, sample_weight=np.zeros(60))
    with refused("egative", "sample_weight", error=ValueError):
        Nystroem().fit(ROWS, sample_weight=-np.ones(60))
    with refused("median", "1 sample", error=ValueError):
        Nystroem(length_scale="median").fit(ROWS, sample_weight=np.eye(60)[0])
    with refused("kernel='linear'", "1 landmarks", "X", error=ValueError):
        Nystroem("linear").fit(np.zeros((5, 2)))


class Squares:
    """A map of a user's own: what the protocol asks for, and no more."""

    n_raw_, linear_ = 3, 2.0 * np.eye(3)

    def raw(self, X, out=None):
        return np.square(X, out=out)


@pytest.mark.parametrize("whiten", [False, True])
def test_maps_of_ones_own_are_filled_by_raw(whiten):
    X, out = MIXED[:, 1:], np.empty((60, 3))
    row_filler(Squares(), np.float64, whiten=whiten)(X, out)
    assert_array_equal(out, (1 + whiten) * X**2)
