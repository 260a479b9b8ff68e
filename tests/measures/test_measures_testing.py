"""Tests of independence: valid under independence, close to permutations, and with power."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, kstest

from scalefair import _jit, scan_parquet
from scalefair.kernels import RBF
from scalefair.measures import conditional_hsic_test, hsic, hsic_test
from scalefair.measures._null import dense_pair, feature_rows_pair, mixture_sf, permutation_moments
from tests.errors import refused

rng = np.random.default_rng(5)


def pair(kind, n, r=rng):
    a = r.normal(size=n)
    if kind == "numbers":
        return a, r.exponential(size=n)
    if kind == "categories":
        return a, np.array(list("uvw"))[r.integers(0, 3, n)]
    if kind == "table":
        return r.integers(0, 2, n), np.array(list("uvw"))[r.integers(0, 3, n)]
    return r.normal(size=(n, 3)), pd.DataFrame({"g": r.integers(0, 2, n).astype(str), "x": a})


KINDS = ["numbers", "categories", "table", "mixed"]


def test_permuted_product_is_the_permuted_trace():
    K, L = (M + M.T for M in rng.normal(size=(2, 40, 40)))
    order = rng.permutation(40)
    expected = np.sum(K * L[np.ix_(order, order)])
    assert _jit.permuted_product(K, L, order) == pytest.approx(expected, rel=1e-12)


def test_permutation_moments_are_those_of_all_pairings():
    x, y = rng.normal(size=(2, 7, 1))
    K, L = RBF(1.0)(x), RBF(0.5)(y)
    mean, variance = permutation_moments(7, *dense_pair(K, L).spectra())
    orders = [np.array(order) for order in permutations(range(7))]
    values = np.array([np.sum(K * L[np.ix_(order, order)]) for order in orders]) / 7
    assert mean == pytest.approx(values.mean(), rel=1e-10)
    assert variance == pytest.approx(values.var(), rel=1e-8)


def test_dense_and_factors_agree():
    Phi, Psi = rng.normal(size=(30, 4)), rng.normal(size=(30, 3))
    factors, dense = feature_rows_pair(Phi, Psi), dense_pair(Phi @ Phi.T, Psi @ Psi.T)
    assert factors.statistic == pytest.approx(dense.statistic, rel=1e-10)
    np.testing.assert_allclose(factors.permuted(5, 0), dense.permuted(5, 0), rtol=1e-10)
    for one, other in zip(factors.spectra(), dense.spectra(), strict=True):
        assert one.diagonal == pytest.approx(other.diagonal, rel=1e-10)
        np.testing.assert_allclose(one.values, other.values[-len(one.values) :], atol=1e-10)


@pytest.mark.parametrize("degrees", [1, 2, 5, 40])
@pytest.mark.parametrize("p", [0.9, 0.3, 0.05, 1e-3, 1e-8, 1e-30])
def test_mixture_of_equal_weights_is_chi_squared(degrees, p):
    x = 0.7 * chi2.isf(p, degrees)
    assert mixture_sf(x, np.full(degrees, 0.7)) == pytest.approx(p, rel=0.1, abs=1e-6)


def test_mixture_of_pairs_of_weights_has_a_closed_form():
    """Σ w_j χ²₂ is a sum of exponentials: P(Q > x) = Σ_j e^(−x/2w_j) Π_{i≠j} w_j/(w_j − w_i)."""
    w = np.array([1.0, 0.6, 0.1, 0.01])
    for x in (0.1, 2.0, 9.0):
        products = [np.prod([u / (u - v) for v in w if v != u]) for u in w]
        expected = np.sum(np.exp(-x / (2 * w)) * products)
        assert mixture_sf(x, np.repeat(w, 2)) == pytest.approx(expected, abs=1e-6)


def test_many_small_weights_may_be_merged():
    weights = np.multiply.outer(0.5 ** np.arange(25), 0.3 ** np.arange(25)).ravel()
    draws = np.zeros(20000)
    r = np.random.default_rng(0)
    for w in weights[weights > 1e-5]:
        draws += w * r.chisquare(1, len(draws))
    for p in (0.5, 0.1, 0.01):
        assert mixture_sf(np.quantile(draws, 1 - p), weights) == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [30, 150])
def test_auto_is_within_two_hundredths_of_many_permutations(kind, n):
    a, b = pair(kind, n, np.random.default_rng(n))
    many = hsic_test(a, b, method="permutation", n_permutations=10_000, random_state=1).pvalue
    assert hsic_test(a, b).pvalue == pytest.approx(many, abs=0.02)


def test_methods_agree_and_say_what_they_are():
    a, b = pair("numbers", 200)
    found = {m: hsic_test(a, b, method=m) for m in ("permutation", "gamma", "spectral", "features")}
    for method, result in found.items():
        assert result.method == method
        assert result.n_rows == 200
        assert result.statistic == pytest.approx(hsic(a, b), rel=1e-7)
        assert result.pvalue == pytest.approx(found["permutation"].pvalue, abs=0.04)
    assert hsic_test(a, b).method == "features"
    assert hsic_test(a[:40], b[:40]).method == "permutation"


def test_permutations_of_matrices_and_of_features_agree():
    x = rng.normal(size=(200, 8))  # too many columns for exact features
    y = x[:, 0] * 0.3 + rng.normal(size=200)
    exact = hsic_test(x, y, method="permutation", n_permutations=500)
    assert exact.statistic == pytest.approx(hsic(x, y), rel=1e-9)
    low = hsic_test(x[:, :1], y, method="permutation", n_permutations=500)
    assert low.statistic == pytest.approx(hsic(x[:, :1], y), rel=1e-7)


def test_a_test_does_not_depend_on_row_order_and_repeats_itself():
    a, b = pair("mixed", 150)
    order = rng.permutation(150)
    first = hsic_test(a, b)
    assert hsic_test(a, b) == first
    again = hsic_test(a[order], b.iloc[order])
    assert again.pvalue == pytest.approx(first.pvalue, rel=1e-6)
    assert hsic_test(a, b, method="permutation", n_permutations=50, random_state=3) == hsic_test(
        a, b, method="permutation", n_permutations=50, random_state=3
    )


def shape(name, n, r):
    t, noise = r.uniform(0, 1, n), r.normal(size=(2, n))
    match name:
        case "sinusoid":
            x = 2 * t - 1
            return x, np.sin(4 * np.pi * x) + 0.1 * noise[0]
        case "circle":
            return np.cos(2 * np.pi * t) + 0.1 * noise[0], np.sin(2 * np.pi * t) + 0.1 * noise[1]
        case "two parabolas":
            x = 2 * t - 1
            return x, (x**2 + 0.1 * t) * r.choice([-1, 1], n) + 0.05 * noise[0]
        case "spiral":
            u = 5 * t
            return u * np.cos(np.pi * u), u * np.sin(np.pi * u) + 0.1 * noise[0]
        case "variance":
            return t, (0.2 + t) * noise[0]
    return np.sign(noise[0]) * np.abs(noise[1]), noise[1]  # "w": uncorrelated, |x| = |y|


@pytest.mark.parametrize("name", ["sinusoid", "circle", "two parabolas", "spiral", "variance", "w"])
def test_power_against_the_shapes_of_the_literature(name):
    r = np.random.default_rng(9)
    found = [hsic_test(*shape(name, 300, r)).pvalue < 0.05 for _ in range(6)]
    assert np.mean(found) >= 0.8
    shuffled = [hsic_test(r.permutation(x), y).pvalue < 0.01 for x, y in [shape(name, 300, r)] * 6]
    assert np.mean(shuffled) <= 0.34


@pytest.mark.parametrize("kind", ["numbers", "mixed"])
def test_p_values_are_uniform_under_independence(kind):
    r = np.random.default_rng(11)
    found = [hsic_test(*pair(kind, 80, r)).pvalue for _ in range(60)]
    assert kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "categories", "mixed"])
@pytest.mark.parametrize(("n", "method"), [(100, "auto"), (100, "spectral"), (2000, "features")])
def test_p_values_are_uniform_over_500_seeds(kind, n, method):
    found = [hsic_test(*pair(kind, n, np.random.default_rng(seed)), method=method).pvalue for seed in range(500)]
    assert kstest(found, "uniform").pvalue > 0.01


def test_streams(tmp_path):
    n = 30_000
    frame = pd.DataFrame({"p": rng.normal(size=n), "age": rng.normal(size=n)})
    frame["q"] = frame["p"] + 0.02 * frame["age"]
    frame.to_parquet(tmp_path / "rows.parquet")
    scan = scan_parquet(tmp_path / "rows.parquet")
    for name in ("p", "q"):
        streamed = hsic_test(scan[name], scan["age"])
        memory = hsic_test(frame[name], frame["age"])
        assert streamed.pvalue == pytest.approx(memory.pvalue, rel=1e-4)
    with refused("method='permutation'", "memory", error=ValueError):
        hsic_test(scan["p"], scan["age"], method="permutation")
    with refused("method='spectral'", "3000 rows", 30000, error=ValueError):
        hsic_test(frame["p"], frame["age"], method="spectral")


def controlled(kind, n, r, effect=0.0):
    u = effect * r.normal(size=n)
    if kind == "categories":
        c = r.integers(0, 4, n)
        return c + r.normal(size=n) + u, 0.3 * c**2 + r.normal(size=n) + u, c.astype(str)
    c = r.normal(size=n)
    return 2 * np.sin(c) + r.normal(size=n) + u, c + r.normal(size=n) + u, c


@pytest.mark.parametrize("kind", ["categories", "numbers"])
def test_conditional_test_has_its_size_and_power(kind):
    r = np.random.default_rng(2)
    options = {"n_permutations": 99}
    null = [conditional_hsic_test(*controlled(kind, 150, r), **options).pvalue for _ in range(25)]
    assert kstest(null, "uniform").pvalue > 1e-3
    a, b, _ = controlled(kind, 300, r)
    assert hsic_test(a, b).pvalue < 0.01, "dependent, were it not for c"
    found = conditional_hsic_test(*controlled(kind, 300, r, effect=0.9))
    assert found.pvalue < 0.01
    assert found.method == ("permutation" if kind == "categories" else "features")


def test_opposite_dependence_at_different_controls_does_not_cancel():
    r = np.random.default_rng(4)
    g = np.array(["u", "v"])[r.integers(0, 2, 400)]
    a = r.normal(size=400)
    b = np.where(g == "u", a, -a) + r.normal(size=400)
    assert hsic_test(a, b, kernel_a="linear", kernel_b="linear").pvalue > 0.01
    for method in ("permutation", "features"):
        assert conditional_hsic_test(a, b, g, method=method).pvalue < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["categories", "numbers"])
def test_conditional_p_values_are_uniform(kind):
    r = np.random.default_rng(6)
    found = [conditional_hsic_test(*controlled(kind, 300, r), n_permutations=199).pvalue for _ in range(200)]
    assert np.mean(np.array(found) < 0.05) < 0.1
    assert kstest(found, "uniform").pvalue > 1e-3
