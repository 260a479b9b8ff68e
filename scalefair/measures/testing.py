"""Tests of independence by HSIC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._hash import distinct
from scalefair._typing import Array, FeatureMap
from scalefair.errors import check_choice, check_count
from scalefair.features.base import seed_of, whitened
from scalefair.measures._features import FeaturePair, feature_pair
from scalefair.measures._kernels import check_kernel, gram_of
from scalefair.measures._null import (
    Dense,
    Factors,
    Levels,
    Streamed,
    centre,
    gamma_sf,
    permutation_moments,
    spectral_sf,
)
from scalefair.measures._pair import Pair, open_pair
from scalefair.moments import Moments

TEST_METHODS = ("auto", "permutation", "gamma", "spectral", "features")

MAX_DENSE_TEST_ROWS = 3000
"""Most rows whose n×n Gram matrices are held, 72 MB each."""

MAX_ROWS_IN_MEMORY = 20_000
"""Most rows whose features are held for the terms of order 1/n of the null distribution."""

FEW_TEST_ROWS = 60
"""Below this the spectral null is not close enough, and permutations cost next to nothing."""

MAX_TABLE_CELLS = 400
"""Up to so many pairs of distinct values HSIC jumps from one table to the next."""

LEAST_TEST_ROWS = 6
"""Of fewer rows there are too few pairings for a small p-value."""


@dataclass(frozen=True)
class TestResult:
    """Outcome of a test of independence.

    Parameters
    ----------
    statistic : float
        HSIC, biased; of a conditional test, that of the residuals.
    pvalue : float
        Probability of at least such a statistic if the variables were independent.
    method : str
        How the null distribution was found.
    n_rows : int
        Rows that were used.
    """

    __test__ = False  # not for pytest to collect

    statistic: float
    pvalue: float
    method: str
    n_rows: int


def hsic_test(
    a: Any,
    b: Any,
    *,
    kernel_a: Any = None,
    kernel_b: Any = None,
    method: str = "auto",
    n_permutations: int = 9999,
    n_components: int = 200,
    random_state: Any = 0,
) -> TestResult:
    """Test whether a and b are independent, by HSIC.

    Parameters
    ----------
    a, b : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, p)
        Variables of any kind; rows must be independent of each other.
    kernel_a, kernel_b : None, str or Kernel
        As in :func:`hsic`.
    method : {"auto", "permutation", "gamma", "spectral", "features"}
        Where the null distribution of n·HSIC comes from.

        - "permutation": rows are paired at random. Exact for any n; rows in memory. No n×n array
          beyond 3,000 rows, features instead.
        - "gamma": a gamma distribution with the mean and the variance over all pairings, which
          are known in closed form. Quick, and off by up to 0.03.
        - "spectral": Σ λ_i μ_j z_ij², with the eigenvalues of both centred Gram matrices, moved
          and scaled to the same two moments. At most 3,000 rows.
        - "features": the same with the eigenvalues of the features' covariances: one pass, any n,
          from files or dask.
        - "auto": "permutation" below 60 rows and where both variables have few distinct values, so
          that HSIC has few possible values, "features" otherwise.
    n_permutations : int
        Pairings; p-values are multiples of 1/(n_permutations + 1).
    n_components : int
        Most features per variable; see :func:`hsic`.
    random_state : int, RandomState or None
        Of pairings and landmarks.

    Returns
    -------
    TestResult
        With `statistic`, `pvalue`, `method` and `n_rows`.

    Notes
    -----
    Where both variables have few distinct values, the smooth nulls ("gamma", "spectral",
    "features") miss the jumps of HSIC: for two yes/no columns by up to 0.2 with 50 rows and 0.03
    with 500. "auto" permutes there, but cannot where rows are streamed.

    A small p-value says that there is a dependence, not that it is large: with many rows the
    slightest one is found. How large it is, say :func:`explained_share` and :func:`alignment`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 300)
    >>> hsic_test(x, x**2).pvalue < 1e-6, hsic_test(x, rng.standard_normal(300)).pvalue < 0.05
    (True, False)
    """
    check_choice("method", method, TEST_METHODS)
    count, seed = check_count("n_permutations", n_permutations), seed_of(random_state)
    kernels = check_kernel("kernel_a", kernel_a), check_kernel("kernel_b", kernel_b)
    every = (kernels[0] == "categorical", kernels[1] == "categorical")
    pair = open_pair(a, b, seed=seed, least=LEAST_TEST_ROWS, every=every)
    if method == "spectral":
        _check_dense(pair)
        centred: Any = _dense(pair, kernels)
    else:
        features = feature_pair(pair, *kernels, n_components)
        method, centred = _chosen(features, method, kernels)
    pvalue = _pvalue(centred, method, count, seed)
    return TestResult(centred.statistic, pvalue, method, pair.n_rows)


def _chosen(features: FeaturePair, method: str, kernels: tuple[Any, Any]) -> tuple[str, Any]:
    """Return the method that "auto" means, and the Gram matrices in the form it needs."""
    pair = features.pair
    if method == "permutation" and not pair.in_memory:
        raise ValueError(
            "method='permutation' needs the rows in memory; use method='features' for scans and "
            "dask collections"
        )
    if not pair.in_memory:
        return _named(method, "features"), Streamed(features.moments())
    if method in ("auto", "permutation"):
        levels = _levels(features)
        if levels is not None:
            return "permutation", levels
    if method == "auto" and pair.n_rows < FEW_TEST_ROWS:
        method = "permutation"
    if _prefers_dense(features, method):
        return method, _dense(pair, kernels)
    if pair.n_rows <= MAX_ROWS_IN_MEMORY or method == "permutation":
        return _named(method, "features"), _factors(features)
    return _named(method, "features"), Streamed(features.moments())


def _named(method: str, otherwise: str) -> str:
    return otherwise if method == "auto" else method


def _levels(features: FeaturePair) -> Levels | None:
    """Tabulate variables of few distinct values; None where there are too many."""
    rows = features.pair.rows(MAX_TABLE_CELLS)
    if _n_distinct(rows.x) * _n_distinct(rows.s) > MAX_TABLE_CELLS:
        return None  # already among the first few hundred rows
    rows = features.pair.rows()
    (A, _, i), (B, _, j) = distinct(rows.x), distinct(rows.s)
    if len(A) * len(B) > MAX_TABLE_CELLS:
        return None
    cells = np.bincount(i * len(B) + j, minlength=len(A) * len(B))
    Phi, Psi = _features(features.phi, A), _features(features.psi, B)
    return Levels(cells.reshape(len(A), len(B)), Phi, Psi)


def _n_distinct(rows: Array) -> int:
    return len(distinct(rows).rows)


def _prefers_dense(features: FeaturePair, method: str) -> bool:
    """Exact matrices where the features are not exact, or not cheaper to permute."""
    n = features.pair.n_rows
    if method not in ("permutation", "gamma") or n > MAX_DENSE_TEST_ROWS:
        return False
    inexact = max(getattr(m, "residual", 0.0) for m in (features.phi, features.psi)) > 1e-8
    return inexact or features.phi.n_raw_ * features.psi.n_raw_ > n


def _dense(pair: Pair, kernels: tuple[Any, Any]) -> Dense:
    rows = pair.rows()
    sides = (("kernel_a", pair.a, rows.x), ("kernel_b", pair.b, rows.s))
    K, L = (
        centre(gram_of(name, kernel, variable, values, None)(values, values))
        for (name, variable, values), kernel in zip(sides, kernels, strict=True)
    )
    return Dense(K, L)


def _factors(features: FeaturePair) -> Factors:
    rows = features.pair.rows()
    return Factors.of(_features(features.phi, rows.x), _features(features.psi, rows.s))


def _features(feature_map: FeatureMap, rows: Array) -> Array:
    return np.asarray(whitened(feature_map, rows), dtype=np.float64)


def _check_dense(pair: Pair) -> None:
    if not pair.in_memory or pair.n_rows > MAX_DENSE_TEST_ROWS:
        raise ValueError(
            f"method='spectral' needs the eigenvalues of n×n matrices, at most "
            f"{MAX_DENSE_TEST_ROWS} rows in memory, but there are {pair.n_rows}; use "
            "method='features', which needs none"
        )


def _pvalue(centred: Any, method: str, count: int, seed: int) -> float:
    n, x = centred.n, centred.n * centred.statistic
    if method == "permutation":
        return permutation_pvalue(centred.statistic, centred.permuted_statistics(count, seed))
    if method == "gamma":
        return gamma_sf(x, *permutation_moments(n, *centred.spectra))
    return spectral_sf(x, n, *centred.spectra)


def pvalue_of(moments: Moments) -> float:
    """Return the p-value of independence from moments of features of many rows."""
    return _pvalue(Streamed(moments), "features", 0, 0)


def permutation_pvalue(statistic: float, null: Array) -> float:
    """(1 + number at least as large)/(B + 1); rounding must not tell equal values apart."""
    return float((1 + np.sum(null >= statistic * (1 - 1e-10))) / (len(null) + 1))
