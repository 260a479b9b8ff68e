"""The compiled loops against definitions: longdouble arithmetic and naive Python loops."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

from scalefair import _jit
from scalefair._jit import _compile
from scalefair._jit.elementary import FAST_LIMIT
from scalefair._jit.vectors import exp_negative

ROOT = Path(__file__).parents[2]
DTYPES = [np.float64, np.float32]
# Where longdouble is no longer than double, the reference itself is half a unit off.
EXTENDED = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
LIMIT_ULPS = {np.float64: 0.9 if EXTENDED else 1.0, np.float32: 1.6}
RNG = np.random.default_rng(0)


def ulps(got, reference):
    """Largest error in units in the last place of the reference, rounded to the type of `got`."""
    unit = np.spacing(np.abs(reference).astype(got.dtype)).astype(np.longdouble)
    return float(np.max(np.abs(got.astype(np.longdouble) - reference) / unit))


def cosine_and_sine(x):
    out = np.empty((1, 2 * x.size), x.dtype)
    _jit.cos_sin(x[None], out, 1.0)
    return out[0, : x.size], out[0, x.size :]


def pi_times(bits):
    """π·2^bits, by Machin's formula in whole numbers."""

    def arctan_of_inverse(k):
        term = total = (1 << bits + 20) // k
        n, sign = 1, 1
        while term:
            term //= k * k
            n, sign = n + 2, -sign
            total += sign * (term // n)
        return total

    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)) >> 20


ARGUMENTS = {
    "ordinary": RNG.normal(0, 5, 200_000),
    "whole fast range": RNG.uniform(-1e5, 1e5, 200_000),
    "every magnitude": 10 ** RNG.uniform(-30, 5, 200_000),
    "quadrant borders": RNG.integers(-60_000, 60_000, 100_000) * (np.pi / 2) + np.pi / 4,
    "edge": np.array([0.0, -0.0, float(FAST_LIMIT), np.nextafter(float(FAST_LIMIT), np.inf)]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_cosine_and_sine_are_accurate(name, dtype):
    x = ARGUMENTS[name].astype(dtype)
    cosine, sine = cosine_and_sine(x)
    wide = x.astype(np.longdouble)
    assert ulps(cosine, np.cos(wide)) <= LIMIT_ULPS[dtype]
    assert ulps(sine, np.sin(wide)) <= LIMIT_ULPS[dtype]


def test_reduction_survives_the_worst_cancellation():
    # Every double of the fast range that is nearest to a multiple of π/2.
    pi = pi_times(200)
    x = np.array([n * pi / (2 << 200) for n in range(1, int(2e5 / math.pi) + 1)])
    assert x.max() < 1e5 < x.max() + 2
    cosine, sine = cosine_and_sine(x)
    wide = x.astype(np.longdouble)
    assert ulps(cosine, np.cos(wide)) <= LIMIT_ULPS[np.float64]
    assert ulps(sine, np.sin(wide)) <= LIMIT_ULPS[np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_huge_arguments_are_exact_and_leave_their_neighbours_alone(dtype):
    x = np.linspace(-3, 3, 2000).astype(dtype)
    alone = cosine_and_sine(x)
    huge = 10 ** RNG.uniform(5.01, 300 if dtype == np.float64 else 38, 700)
    mixed = x.copy()
    mixed[100:800] = huge * RNG.choice([-1, 1], 700)
    mixed[1500] = 1e300 if dtype == np.float64 else 1e38
    cosine, sine = cosine_and_sine(mixed)
    wide = mixed.astype(np.longdouble)
    assert ulps(cosine, np.cos(wide)) <= LIMIT_ULPS[dtype]
    assert ulps(sine, np.sin(wide)) <= LIMIT_ULPS[dtype]
    same = mixed == x
    np.testing.assert_array_equal(cosine[same], alone[0][same])
    np.testing.assert_array_equal(sine[same], alone[1][same])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cosine_and_sine_of_what_is_not_finite_are_nan(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 0.0], dtype)
    cosine, sine = cosine_and_sine(x)
    np.testing.assert_array_equal(cosine, [np.nan, np.nan, np.nan, 1])
    np.testing.assert_array_equal(sine, [np.nan, np.nan, np.nan, 0])
    P = x[None].copy()
    _jit.cos_phase(P, np.zeros(4, dtype), 1.0)
    np.testing.assert_array_equal(P[0], cosine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 7, 600])
def test_cos_phase_is_the_scaled_cosine_of_the_sum(dtype, m):
    P, phase = RNG.normal(0, 9, (5, m)).astype(dtype), RNG.uniform(0, 7, m).astype(dtype)
    expected = np.longdouble(dtype(0.3)) * np.cos((P + phase).astype(np.longdouble))
    _jit.cos_phase(P, phase, 0.3)
    # A unit of the cosine may be two units of the product, which is rounded once more.
    assert ulps(P, expected) <= 2 * LIMIT_ULPS[dtype] + 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_does_not_depend_on_its_place(dtype):
    # Vector body, remainder and single elements must round alike: results are free of chunking.
    P, phase = RNG.normal(0, 9, (1, 93)).astype(dtype), np.zeros(93, dtype)
    whole, parts, exps = P.copy(), P.copy(), P.copy()
    _jit.cos_phase(whole, phase, 0.7)
    exp_negative(exps[0])
    for j in range(93):
        single = P[:, j : j + 1].copy()
        exp_negative(single[0])
        assert single[0, 0] == exps[0, j]
        element = np.ascontiguousarray(parts[:, j : j + 1])
        _jit.cos_phase(element, phase[:1], 0.7)
        assert element[0, 0] == whole[0, j]


EXPONENTS = {
    "whole range": (-745.0, 709.7, -103.0, 88.7),
    "near zero": (-1.0, 1.0, -1.0, 1.0),
    "tiny": (-1e-9, 1e-9, -1e-6, 1e-6),
    "subnormal results": (-745.13, -708.4, -103.2, -87.4),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXPONENTS)
def test_exp_is_accurate(name, dtype):
    low, high = EXPONENTS[name][:2] if dtype == np.float64 else EXPONENTS[name][2:]
    x = RNG.uniform(low, high, 100_000).astype(dtype)
    expected = np.exp(x.astype(np.longdouble))
    found = -x
    exp_negative(found)
    assert ulps(found, expected) <= LIMIT_ULPS[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_at_the_ends(dtype):
    top, bottom = np.log(np.finfo(dtype).max), np.log(np.finfo(dtype).smallest_subnormal)
    x = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, top + 0.1, bottom - 0.7]
    found = -np.array(x, dtype)
    exp_negative(found)
    np.testing.assert_array_equal(found, [np.nan, np.inf, 0, 1, 1, np.inf, 0, np.inf, 0])


def inner_products(dtype, k=9, p=531, d=5):
    X, Z = RNG.normal(0, 1, (k, d)).astype(dtype), RNG.normal(0, 1, (p, d)).astype(dtype)
    Z[3], Z[500] = X[0], X[8]
    distance = np.sqrt(((X[:, None].astype(float) - Z[None].astype(float)) ** 2).sum(2))
    return X @ Z.T, _jit.squared_norms(X), _jit.squared_norms(Z), distance


def tolerance(dtype):
    return 200 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian(dtype):
    D, xx, zz, r = inner_products(dtype)
    _jit.gaussian(D, xx, zz)
    np.testing.assert_allclose(D, np.exp(-(r**2) / 2), atol=tolerance(dtype))
    assert D[0, 3] == D[8, 500] == 1
    assert D.max() <= 1


MATERN = {
    1: lambda r: np.exp(-r),
    3: lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
    5: lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
}
MATERN_SLOPE = {
    1: lambda r: np.where(r > 0, np.exp(-r) / np.where(r > 0, r, 1), 0),
    3: lambda r: np.exp(-(3**0.5) * r),
    5: lambda r: (1 + 5**0.5 * r) * np.exp(-(5**0.5) * r),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", MATERN)
def test_matern(dtype, code):
    D, xx, zz, r = inner_products(dtype)
    slope = D.copy()
    _jit.matern(D, xx, zz, code)
    _jit.matern_slope(slope, xx, zz, code)
    np.testing.assert_allclose(D, MATERN[code](r), atol=tolerance(dtype))
    np.testing.assert_allclose(slope, MATERN_SLOPE[code](r), atol=tolerance(dtype))
    assert D[0, 3] == D[8, 500] == 1


def test_nan_reaches_the_kernel_values():
    D, xx, zz, _ = inner_products(np.float64)
    D[1, 2] = np.nan
    for kernel, arguments in ((_jit.gaussian, ()), (_jit.matern, (1,)), (_jit.matern, (5,))):
        K = D.copy()
        kernel(K, xx, zz, *arguments)
        assert np.argwhere(np.isnan(K)).tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [0, 1, 3, 4, 6, 9])
def test_laplace_and_its_contraction(dtype, d):
    X, Z = RNG.normal(0, 1, (4, d)).astype(dtype), RNG.normal(0, 1, (515, d)).astype(dtype)
    W = RNG.normal(0, 1, (4, 515)).astype(dtype)
    apart = np.abs(X[:, None] - Z[None]).astype(float)
    out = np.full((4, 515), np.nan, dtype)
    _jit.laplace(X, Z, out)
    np.testing.assert_allclose(out, np.exp(-apart.sum(2)), atol=tolerance(dtype))
    expected = np.einsum("ij,ijl->l", W.astype(float), apart)
    np.testing.assert_allclose(_jit.laplace_contraction(X, Z, W), expected, atol=515 * tolerance(dtype))


def test_many_threads_get_the_same_bits():
    P, phase = RNG.normal(0, 9, (200, 300)), RNG.uniform(0, 7, 300)
    X, Z = RNG.normal(0, 1, (200, 6)), RNG.normal(0, 1, (300, 6))

    def work(_):
        features, gaussian, laplace = P.copy(), X @ Z.T, np.empty((200, 300))
        _jit.cos_phase(features, phase, 1.0)
        _jit.gaussian(gaussian, _jit.squared_norms(X), _jit.squared_norms(Z))
        _jit.laplace(X, Z, laplace)
        return features, gaussian, laplace

    alone = work(None)
    with ThreadPoolExecutor(8) as pool:
        for together in pool.map(work, range(40)):
            np.testing.assert_array_equal(together, alone)


def test_read_only_inputs_are_accepted():
    arrays = [RNG.normal(0, 1, shape) for shape in ((3, 4), (4,), (5, 4))]
    for array in arrays:
        array.flags.writeable = False
    X, phase, Z = arrays
    out = np.empty((3, 8))
    _jit.cos_sin(X, out, 1.0)
    np.testing.assert_allclose(out[:, :4], np.cos(X))
    P = X.copy()
    _jit.cos_phase(P, phase, 1.0)
    np.testing.assert_allclose(P, np.cos(X + phase))
    K = np.empty((3, 5))
    _jit.laplace(X, Z, K)
    np.testing.assert_allclose(K, np.exp(-np.abs(X[:, None] - Z).sum(2)))


EVERYTHING = """
import sys
import numpy as np
from scalefair import _jit
from scalefair._jit.vectors import exp_negative

def results(dtype):
    rng = np.random.default_rng(1)
    X, Z = rng.normal(0, 2, (3, 5)).astype(dtype), rng.normal(0, 2, (4, 5)).astype(dtype)
    Z[1] = X[2]
    D, xx, zz = X @ Z.T, _jit.squared_norms(X), _jit.squared_norms(Z)
    P = np.array([[0.1, -30.0, 9e4, 1e5, 1e20, np.inf, np.nan, 1e30]], dtype)
    yield from (xx, zz)
    features = P.copy()
    _jit.cos_phase(features, np.ones(8, dtype), 0.5)
    pairs = np.empty((1, 16), dtype)
    _jit.cos_sin(P, pairs, 0.5)
    exps = -np.array([-1e9, -740.0, -100.0, -2.5, 0.0, 3.0, 80.0, np.nan], dtype)
    exp_negative(exps)
    yield from (features, pairs, exps)
    for kernel in (_jit.matern, _jit.matern_slope):
        for code in (1, 3, 5):
            K = D.copy()
            kernel(K, xx, zz, code)
            yield K
    K = D.copy()
    _jit.gaussian(K, xx, zz)
    yield K
    K = np.empty((3, 4), dtype)
    _jit.laplace(X, Z, K)
    yield K.copy()
    yield _jit.laplace_contraction(X, Z, K)

def everything():
    with np.errstate(all="ignore"):
        return [*results(np.float64), *results(np.float32)]
"""


@pytest.mark.processes
def test_same_values_without_compilation(tmp_path):
    compiled: dict = {}
    exec(EVERYTHING, compiled)
    script = EVERYTHING + "np.savez(sys.argv[1], *everything())\n"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    path = tmp_path / "plain.npz"
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=True)
    arrays = compiled["everything"]()
    with np.load(path) as plain:
        for position, (got, name) in enumerate(zip(arrays, plain.files, strict=True)):
            assert got.dtype == plain[name].dtype
            # Fused multiply-add may move the last bits, cancellation in D a few more.
            rtol = 1e-13 if position < len(arrays) // 2 else 2e-5
            np.testing.assert_allclose(got, plain[name], rtol=rtol)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("dtype", ["double", "float"])
def test_loops_are_vectorised(dtype):
    array = numba.float64 if dtype == "double" else numba.float32
    features = numba.njit(fastmath={"contract"})(_jit.cos_phase.py_func)
    features.compile((array[:, ::1], array[::1], numba.float64))
    gaussian = numba.njit(fastmath={"contract"})(_jit.gaussian.py_func)
    gaussian.compile((array[:, ::1], array[::1], array[::1]))
    for function in (features, gaussian):
        code = next(iter(function.inspect_llvm().values()))
        # A polynomial leaves many multiplications of whole vectors behind.
        assert len(re.findall(rf"fmul contract <\d+ x {dtype}>", code)) > 10


def test_without_a_place_for_the_cache_functions_still_compile(monkeypatch):
    calls = []

    def njit(**options):
        calls.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(_compile, "njit", njit)
    assert _compile.kernel(math.sqrt) is math.sqrt
    assert [options.get("cache", False) for options in calls] == [True, False]
    assert all(options["nogil"] and "parallel" not in options for options in calls)
