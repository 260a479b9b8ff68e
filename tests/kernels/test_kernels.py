"""Kernels against naive loops, scikit-learn, finite differences and their own spectra."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process import kernels as sk
from sklearn.metrics.pairwise import laplacian_kernel

from scalefair import kernels
from scalefair.kernels import RBF, Categorical, Laplace, Linear, Matern, Product, Scaled, Sum
from tests.errors import refused

make_kernel, median = kernels.make_kernel, kernels.median_length_scale
RNG = np.random.default_rng(0)
X, Z = RNG.normal(0, 1, (7, 3)), RNG.normal(0, 1, (5, 3))
Z[2] = X[4]
ARD = (0.7, 1.9, 1.2)


def naive(kernel, x, z):
    """k(x, z) from its definition, with Python numbers."""
    if isinstance(kernel, Linear):
        return sum(float(a) * float(b) for a, b in zip(x, z, strict=True))
    if isinstance(kernel, Categorical):
        return float(all(a == b for a, b in zip(x, z, strict=True)))
    theta = np.broadcast_to(kernel.length_scale, 3)
    apart = [abs(float(a) - float(b)) / t for a, b, t in zip(x, z, theta, strict=True)]
    r = math.sqrt(sum(a * a for a in apart))
    if isinstance(kernel, RBF):
        return math.exp(-r * r / 2)
    if isinstance(kernel, Laplace):
        return math.exp(-sum(apart))
    a = math.sqrt(2 * kernel.nu) * r
    return {0.5: 1, 1.5: 1 + a, 2.5: 1 + a + a * a / 3}[kernel.nu] * math.exp(-a)


def naive_matrix(kernel, X, Z):
    return np.array([[naive(kernel, x, z) for z in Z] for x in X])


def stationary(length_scale):
    matern = [Matern(length_scale, nu=nu) for nu in (0.5, 1.5, 2.5)]
    return [RBF(length_scale), Laplace(length_scale), *matern]


STATIONARY = stationary(1.3) + stationary(ARD)
SIMPLE = [*STATIONARY, Linear(), Categorical()]
COMBINED = [
    RBF(1.3) * Laplace(ARD) * Linear(),
    RBF(ARD) + Matern(0.8, nu=0.5) + Categorical(),
    Scaled(Matern(ARD, nu=2.5), 1.7),
    Scaled(RBF(0.9), 0.5) * (Linear() + Laplace(2.0)),
]
EVERY = SIMPLE + COMBINED


@pytest.mark.parametrize("kernel", SIMPLE, ids=repr)
def test_values_are_those_of_the_definition(kernel):
    np.testing.assert_allclose(kernel(X, Z), naive_matrix(kernel, X, Z), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(kernel(X), naive_matrix(kernel, X, X), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("theta", [1.3, ARD], ids=["scalar", "ARD"])
def test_values_are_those_of_scikit_learn(theta):
    np.testing.assert_allclose(RBF(theta)(X, Z), sk.RBF(theta)(X, Z), rtol=1e-13)
    for nu in (0.5, 1.5, 2.5):
        expected = sk.Matern(theta, nu=nu)(X, Z)
        np.testing.assert_allclose(Matern(theta, nu)(X, Z), expected, rtol=1e-13)
    expected = laplacian_kernel(X / theta, Z / theta, gamma=1.0)
    np.testing.assert_allclose(Laplace(theta)(X, Z), expected, rtol=1e-13)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_diagonal_symmetry_and_precision(kernel):
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-14)
    single, others = X.astype(np.float32), Z.astype(np.float32)
    assert kernel(single, others).dtype == kernel.diag(single).dtype == np.float32
    assert kernel(single, Z).dtype == kernel(X, others).dtype == np.float64
    np.testing.assert_allclose(kernel(single, others), kernel(X, Z), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_identical_rows_give_exactly_one(kernel, dtype):
    rows = RNG.normal(3, 1, (300, 3)).astype(dtype)
    assert np.all(np.diag(kernel(rows, rows.copy())) == 1)
    assert np.all(kernel.diag(rows) == 1)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_a_common_shift_changes_nothing(kernel):
    # The shift is a power of two and the rows have few bits, so that shifting itself is exact.
    A, B = np.round(X * 1024) / 1024, np.round(Z * 1024) / 1024
    far = 2.0**30
    np.testing.assert_allclose(kernel(A + far, B + far), kernel(A, B), rtol=1e-13)
    G = RNG.normal(0, 1, (7, 5))
    gradient = kernel.gradient(A, B, G)
    np.testing.assert_allclose(kernel.gradient(A + far, B + far, G), gradient, rtol=1e-11)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_out_is_filled_and_returned(kernel):
    out = np.full((7, 5), np.nan)
    assert kernel(X, Z, out=out) is out
    np.testing.assert_array_equal(out, kernel(X, Z))


def test_layout_of_the_input_does_not_matter():
    strided = np.repeat(X, 2, axis=0)[::2]
    for kernel in SIMPLE:
        expected = kernel(X, Z)
        np.testing.assert_allclose(kernel(np.asfortranarray(X), Z), expected, rtol=1e-14)
        np.testing.assert_allclose(kernel(strided, np.asfortranarray(Z)), expected, rtol=1e-14)
    np.testing.assert_array_equal(RBF()([[1, 2]], [[1, 2], [1, 4]]), [[1, math.exp(-2)]])


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_no_rows_give_an_empty_matrix(kernel):
    assert kernel(X[:0], Z).shape == (0, 5)
    assert kernel(X, Z[:0]).shape == (7, 0)
    assert kernel.gradient(X, Z[:0], np.empty((7, 0))).tolist() == [0.0] * kernel.theta.size


def finite_differences(kernel, X, Z, G, step=1e-5):
    """Central differences of Σ G k in log θ, one length scale at a time."""
    slopes = []
    for factor in np.exp(step * np.eye(kernel.theta.size)):
        above = kernel.with_length_scale(kernel.theta * factor)(X, Z)
        below = kernel.with_length_scale(kernel.theta / factor)(X, Z)
        slopes.append(np.sum(G * (above - below)) / (2 * step))
    return np.array(slopes)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_gradient_matches_finite_differences(kernel):
    G = RNG.normal(0, 1, (7, 5))
    gradient = kernel.gradient(X, Z, G)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, finite_differences(kernel, X, Z, G), rtol=1e-7, atol=1e-9)
    square = RNG.normal(0, 1, (7, 7))
    expected = finite_differences(kernel, X, X, square)
    np.testing.assert_allclose(kernel.gradient(X, None, square), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_gradient_matches_the_explicit_tensor(kernel):
    theta = np.broadcast_to(kernel.length_scale, 3)
    apart = np.abs(X[:, None] - Z[None]) / theta
    r = np.sqrt((apart**2).sum(2))[:, :, None]
    if isinstance(kernel, Laplace):
        tensor = np.exp(-apart.sum(2))[:, :, None] * apart
    elif isinstance(kernel, RBF):
        tensor = np.exp(-(r**2) / 2) * apart**2
    else:
        a = math.sqrt(2 * kernel.nu) * r
        safe = np.where(r > 0, r, 1)
        factor = {0.5: 1 / safe, 1.5: 3.0, 2.5: 5 / 3 * (1 + a)}[kernel.nu]
        tensor = factor * np.exp(-a) * apart**2
    G = RNG.normal(0, 1, (7, 5))
    expected = np.einsum("ij,ijl->l", G, tensor)
    if isinstance(kernel.length_scale, float):
        expected = expected.sum(keepdims=True)
    np.testing.assert_allclose(kernel.gradient(X, Z, G), expected, rtol=1e-12, atol=1e-13)
    single = kernel.gradient(X.astype(np.float32), Z.astype(np.float32), G.astype(np.float32))
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-5)


SHAPES = st.tuples(st.integers(1, 8), st.just(3))
POINTS = arrays(np.float64, SHAPES, elements=st.floats(-5, 5, width=16))


@settings(max_examples=40, deadline=None)
@given(POINTS, st.sampled_from(EVERY))
def test_kernel_matrices_are_positive_semi_definite(points, kernel):
    K = kernel(points)
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * max(1.0, np.abs(K).max()) * len(K)


@settings(max_examples=40, deadline=None)
@given(POINTS, POINTS, st.sampled_from(STATIONARY))
def test_values_lie_between_zero_and_one(points, others, kernel):
    K = kernel(points, others)
    assert 0 <= K.min() <= K.max() <= 1


@pytest.mark.parametrize("theta", [1.3, ARD], ids=["scalar", "ARD"])
@pytest.mark.parametrize("orthogonal", [False, True])
def test_spectral_sample_reproduces_the_kernel(theta, orthogonal):
    m = 60_000
    for kernel in stationary(theta):
        if orthogonal and isinstance(kernel, Laplace):
            continue
        frequencies = kernel.spectral_sample(3, m, np.random.default_rng(1), orthogonal)
        assert frequencies.shape == (3, m)
        empirical = np.cos(X @ frequencies) @ np.cos(Z @ frequencies).T
        empirical += np.sin(X @ frequencies) @ np.sin(Z @ frequencies).T
        # cos has variance at most 1/2 around its mean up to 1: five standard errors.
        np.testing.assert_allclose(empirical / m, kernel(X, Z), atol=5 / math.sqrt(2 * m))


@pytest.mark.parametrize("kernel", [RBF(ARD), Matern(ARD, nu=0.5), Matern(2.0, nu=2.5)], ids=repr)
def test_orthogonal_frequencies_are_orthogonal_within_blocks(kernel):
    scaled = kernel.spectral_sample(3, 8, 5, orthogonal=True)
    scaled = scaled * np.broadcast_to(kernel.length_scale, 3)[:, None]
    for start in (0, 3, 6):
        block = scaled[:, start : start + 3]
        gram = block.T @ block
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12 * gram.max())
    assert abs(scaled[:, 2] @ scaled[:, 3]) > 1e-6


def test_spectral_sample_depends_on_the_generator_only():
    same = [RBF(2.0).spectral_sample(4, 10, seed) for seed in (3, np.random.default_rng(3))]
    np.testing.assert_array_equal(*same)
    unit = RBF(1.0).spectral_sample(4, 10, 3)
    np.testing.assert_allclose(same[0], unit / 2.0, rtol=1e-15)


@pytest.mark.parametrize("kernel", [Linear(), Categorical(), *COMBINED], ids=repr)
def test_other_kernels_have_no_spectral_sample(kernel):
    with refused(kernel, error=ValueError):
        kernel.spectral_sample(3, 10, 0)


def test_sums_products_and_multiples():
    a, b, c = RBF(1.3), Laplace(ARD), Linear()
    assert a * b == Product(a, b)
    assert a + b == Sum(a, b)
    assert Product(a, Product(b, c)) == Product(a, b, c) == a * b * c
    assert Sum(Sum(a, b), c) == a + b + c
    np.testing.assert_allclose((a * b * c)(X, Z), a(X, Z) * b(X, Z) * c(X, Z), rtol=1e-14)
    np.testing.assert_allclose((a + b + c)(X, Z), a(X, Z) + b(X, Z) + c(X, Z), rtol=1e-14)
    np.testing.assert_allclose(Scaled(a, 3.0)(X, Z), 9.0 * a(X, Z), rtol=1e-14)


def test_kernels_are_values():
    for kernel in EVERY:
        twin = eval(repr(kernel))
        assert twin == kernel
        assert hash(twin) == hash(kernel)
        assert copy.deepcopy(kernel) == kernel == pickle.loads(pickle.dumps(kernel))
    assert RBF(1) == RBF(np.float32(1)) != Laplace(1)
    assert RBF(np.array([1, 2])) == RBF((1.0, 2.0))
    with pytest.raises(AttributeError):
        RBF(1.0).length_scale = 2.0


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_with_length_scale_is_the_inverse_of_theta(kernel):
    assert kernel.with_length_scale(kernel.theta) == kernel
    other = kernel.with_length_scale(2 * kernel.theta)
    np.testing.assert_array_equal(other.theta, 2 * kernel.theta)
    assert repr(other.with_length_scale(kernel.length_scale)) == repr(kernel)


def test_length_scale_and_metric_are_seen_through_an_amplitude():
    assert Scaled(Laplace(ARD), 2.0).length_scale == ARD
    assert Scaled(RBF(1.5), 2.0).length_scale == 1.5
    assert (Laplace().metric, Scaled(Laplace(), 2.0).metric, RBF().metric) == ("l1", "l1", "l2")
    assert (RBF(1.5) * Laplace(ARD)).length_scale == (1.5, *ARD)
    assert RBF(1.5).with_length_scale(ARD) == RBF(ARD)
    assert Linear().length_scale == () == Categorical().length_scale


CATEGORIES = {
    "strings": (np.array([["a", "x"], ["b", "x"]]), np.array([["b", "x"], ["b", "yy"]])),
    "objects": (
        np.array([["a", None], [1, "x"]], dtype=object),
        np.array([["a", None], [1.0, "x"], ["1", "x"]], dtype=object),
    ),
    "small codes": (np.array([[0, 1], [255, 0]], np.uint8), np.array([[0, 1], [255, 1]], np.uint8)),
    "long codes": (np.array([[2**62]]), np.array([[2**62], [2**62 + 1]])),
    "whole and real": (np.array([[1], [2]]), np.array([[1.0], [2.5]])),
    "truth values": (np.array([[True], [False]]), np.array([[False]])),
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_categorical_compares_whole_rows(name):
    A, B = CATEGORIES[name]
    expected = [[float(all(a == b for a, b in zip(x, z, strict=True))) for z in B] for x in A]
    K = Categorical()(A, B)
    assert K.dtype == np.float64
    np.testing.assert_array_equal(K, expected)
    out = np.empty(K.shape, np.float32)
    assert Categorical()(A, B, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(Categorical()(A), np.eye(len(A)))


def test_missing_is_a_category():
    numbers = np.array([[np.nan, 1.0], [np.nan, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(Categorical()(numbers), np.eye(3))
    objects = np.array([[float("nan"), "a"], [np.float32("nan"), "a"], ["b", "a"]], dtype=object)
    np.testing.assert_array_equal(Categorical()(objects), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


NAMES = ["rbf", "laplace", "matern12", "matern32", "matern52", "linear", "categorical"]


def test_make_kernel():
    expected = [*stationary(0.7), Linear(), Categorical()]
    for name, kernel in zip(NAMES, expected, strict=True):
        assert make_kernel(name, 0.7) == kernel
        assert make_kernel(kernel, 99.0) is kernel


BAD = [
    (lambda: make_kernel("cosine"), ValueError, ["kernel='cosine'", *NAMES]),
    (lambda: make_kernel(3), TypeError, ["kernel=3", *NAMES]),
    (kernels.Kernel, TypeError, ["abstract", "Kernel"]),
    (lambda: RBF(0.0), ValueError, ["length_scale=0.0"]),
    (lambda: RBF((1.0, -1.0)), ValueError, ["length_scale=(1.0, -1.0)"]),
    (lambda: RBF(np.nan), ValueError, ["length_scale=nan"]),
    (lambda: RBF("median"), ValueError, ["length_scale='median'", "median_length_scale"]),
    (lambda: RBF(None), (TypeError, ValueError), ["length_scale=None"]),
    (lambda: RBF(object()), TypeError, ["length_scale=<object"]),
    (lambda: RBF(np.ones((2, 2))), ValueError, ["length_scale", (2, 2)]),
    (lambda: RBF((1.0, 2.0))(X), ValueError, ["length_scale", 2, 3]),
    (lambda: RBF((1.0, 2.0)).spectral_sample(3, 5, 0), ValueError, ["length_scale", 2, 3]),
    (lambda: Matern(1.0, nu=2.0), ValueError, ["nu=2.0", 0.5, 1.5, 2.5]),
    (lambda: RBF()(X[0]), ValueError, ["X has", (3,)]),
    (lambda: RBF()(X, Z[:, :2]), ValueError, ["X has 3", "Z has 2"]),
    (lambda: Categorical()(X, Z[:, :2]), ValueError, ["X has 3", "Z has 2"]),
    (lambda: RBF()(X.astype(complex)), TypeError, ["X is", "complex128"]),
    (lambda: RBF()([["a"]]), ValueError, ["X has", "<U1", "Categorical"]),
    (lambda: RBF()(X, Z, out=np.empty((5, 7))), ValueError, ["out has", (5, 7), (7, 5)]),
    (lambda: RBF()(X, Z, out=np.empty((7, 5), np.float32)), ValueError, ["float32", "float64"]),
    (lambda: RBF()(X, Z, out=np.empty((5, 7)).T), ValueError, ["out has", "C-contiguous"]),
    (lambda: RBF()(X, Z, out=[0.0]), TypeError, ["out is", "list"]),
    (lambda: RBF().gradient(X, Z, np.ones((5, 7))), ValueError, ["G has", (5, 7), (7, 5)]),
    (lambda: Linear().with_length_scale(2.0), ValueError, ["Linear()", 2.0]),
    (lambda: (RBF() * RBF()).with_length_scale(2.0), ValueError, ["theta", (1,), (2,)]),
    (lambda: Laplace().spectral_sample(3, 5, 0, orthogonal=True), ValueError, ["orthogonal=True"]),
    (lambda: RBF().spectral_sample(0, 5, 0), ValueError, ["n_features=0"]),
    (lambda: RBF().spectral_sample(3, 2.5, 0), TypeError, ["n_frequencies=2.5"]),
    (lambda: Scaled(RBF(), -1.0), ValueError, ["amplitude=-1.0"]),
    (lambda: Scaled(RBF(), [1.0]), TypeError, ["amplitude=[1.0]"]),
    (lambda: Scaled("rbf", 1.0), TypeError, ["'rbf'", "RBF"]),
    (Sum, ValueError, ["one kernel"]),
    (lambda: Product(RBF(), 2.0), TypeError, [2.0, "RBF"]),
    (lambda: RBF() * 2.0, TypeError, ["*", "'RBF'", "'float'"]),
    (lambda: RBF() + 2.0, TypeError, ["+", "'RBF'", "'float'"]),
    (lambda: Categorical()(np.array([[{}]], dtype=object)), TypeError, ["hashable", "'dict'"]),
    (lambda: median(X, metric="l3"), ValueError, ["metric='l3'", "'l2'", "'l1'"]),
    (lambda: median(X, np.ones(3)), ValueError, ["weight", (3,), (7,)]),
    (lambda: median(X, -np.ones(7)), ValueError, ["weight", "negative"]),
    (lambda: median(X[:1]), ValueError, ["X", "equal", "length_scale"]),
    (lambda: median(X, np.zeros(7)), ValueError, ["X", "equal", "length_scale"]),
    (lambda: median(np.full((3, 1), np.nan)), ValueError, ["X has", "NaN"]),
    (lambda: median(np.zeros((10_001, 1))), ValueError, ["X has", 10_001, 10_000]),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD, ids=[str(case[2]) for case in BAD])
def test_bad_input_is_named(call, error, words):
    with refused(*words, error=error):
        call()
