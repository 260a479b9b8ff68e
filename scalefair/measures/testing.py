"""Tests of independence by HSIC, also given a control."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import distinct
from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.data import Look, PartSurvey, frames, is_stream, table_of
from scalefair.errors import check_choice, check_count
from scalefair.features.base import seed_of
from scalefair.measures._features import Gram, gram_of, grams, pivot_map
from scalefair.measures._null import centred_pair, feature_rows_pair, mixture_sf
from scalefair.measures._pair import Variable, check_kernel, fitted_encoder, open_pair

TEST_METHODS = ("auto", "permutation", "gamma", "spectral", "features")

CONDITIONAL_METHODS = ("auto", "permutation", "features")

MIN_TEST_ROWS = 6  # With fewer rows there are too few pairings for a small p-value
RIDGES = np.logspace(-8, 0, 17)  # What the ridge of the regressions on c is chosen from
MIN_CONDITIONAL_ROWS = 20  # With fewer rows nothing can be learnt about c


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
        Where the null distribution comes from.
    n_rows : int
        Rows that were used.
    """

    __test__ = False  # not for pytest to collect

    statistic: float
    pvalue: float
    method: str
    n_rows: int


def hsic_test(
    a: Any, b: Any, *, kernel_a: Any = None, kernel_b: Any = None, method: str = "auto",
    n_permutations: int = 9999, n_components: int = 200, random_state: Any = 0,
) -> TestResult:  # fmt: skip
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
        - "features": the same with the eigenvalues of the features' covariances: any n, also
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
    pair = open_pair(a, b, kernels=(kernel_a, kernel_b), random_state=seed, least=MIN_TEST_ROWS)
    method, centred = centred_pair(pair, method, n_components)
    pvalue = centred.pvalue(method, count, seed)
    return TestResult(centred.statistic, pvalue, method, pair.n_rows)


def conditional_hsic_test(
    a: Any, b: Any, c: Any, *, kernel_a: Any = None, kernel_b: Any = None, kernel_c: Any = None,
    method: str = "auto", n_permutations: int = 1999, n_components: int = 50,
    random_state: Any = 0,
) -> TestResult:  # fmt: skip
    """Test whether a and b are independent given c, by HSIC of what c leaves of them.

    Features of (a, c) and of b are regressed on features of c; the statistic is n|Cov|² of the
    residuals. (a, c) instead of a, as in the kernel test of Zhang et al. (2011): dependences of
    opposite sign at different c must not cancel.

    Parameters
    ----------
    a, b, c : array-like, Series or frame of shape (n,) or (n, p)
        In memory: predictions, sensitive attributes, and the control, of any kind each.
    kernel_a, kernel_b, kernel_c : None, str or Kernel
        As in :func:`hsic`.
    method : {"auto", "permutation", "features"}
        "permutation": b is permuted within the groups of c, which must be categories: exact for any n. "features": the
        weighted χ² that the statistic tends to. "auto": the first where c is made of categories, else the second.
    n_permutations : int
        Permutations.
    n_components : int
        Most features of each variable.
    random_state : int, RandomState or None
        Of permutations.

    Returns
    -------
    TestResult

    Notes
    -----
    No test of conditional independence is valid without assumptions where c is continuous (Shah and Peters 2020).
    This one assumes that the means of the features of a and b given c are smooth functions of c, and rows enough
    to learn them (their ridge is chosen by generalised cross-validation): what the regressions miss looks like
    dependence. With c = y it is a test of equalised odds.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> c = rng.standard_normal(400)
    >>> a, b = c + rng.standard_normal(400), c + rng.standard_normal(400)
    >>> conditional_hsic_test(a, b, c).pvalue > 0.05
    True
    >>> conditional_hsic_test(a, a + b, c).pvalue < 0.01
    True
    """
    check_choice("method", method, CONDITIONAL_METHODS)
    count, seed = check_count("n_permutations", n_permutations), seed_of(random_state)
    size = check_count("n_components", n_components)
    if any(is_stream(part) for part in (a, b, c)):
        raise TypeError("conditional_hsic_test needs its rows in memory; pass a sample of some 10,000 of them")
    pair = open_pair(a, b, random_state=seed, least=MIN_CONDITIONAL_ROWS)
    control, C, strata = _control(c, pair.n_rows, method)
    rows = pair.rows()
    of_a, of_b, of_c = map(check_kernel, ("kernel_a", "kernel_b", "kernel_c"), (kernel_a, kernel_b, kernel_c))
    K, L = grams(replace(pair, kernels=(of_a, of_b)), rows)
    M = gram_of("kernel_c", of_c, control, C, None)
    # The product of the kernels of a and of c, on their columns side by side.
    joint = Gram((*K.parts, *((kernel, at + rows.x.shape[1]) for kernel, at in M.parts)))
    given = (joint, np.hstack([rows.x, C]), 2 * size), (L, rows.s, size), (M, C, size)
    Phi, Psi, Upsilon = (
        np.asarray(pivot_map(gram, values, most, tolerance=1e-6).transform(values), np.float64)
        for gram, values, most in given
    )
    if strata is None:
        left, right = (_residuals(F, Upsilon) for F in (Phi, Psi))
        statistic = float(np.sum((left.T @ right) ** 2)) / len(C) ** 2
        return TestResult(statistic, _asymptotic(left, right), "features", pair.n_rows)
    order = np.argsort(strata, kind="stable")
    left, right = (_within(F, strata)[order] for F in (Phi, Psi))
    # Orders of rows sorted by group that are random within each.
    within = feature_rows_pair(left, right, lambda rng: np.lexsort((rng.random(len(order)), strata[order])))
    pvalue = within.pvalue("permutation", count, seed)
    return TestResult(within.statistic, pvalue, "permutation", pair.n_rows)


def _control(c: Any, n: int, method: str) -> tuple[Variable, Array, NDArray[np.int64] | None]:
    """Return c, its rows and, where b is to be permuted within the groups of c, their group."""
    table = table_of("c", c)
    if frames.n_rows(table) != n:
        raise ValueError(
            f"c has {frames.n_rows(table)} rows but a and b have {n}; give one row each, in the same order"
        )
    part = PartSurvey.of(Look("c", groups=True), table, np.ones(n))
    encoder = fitted_encoder(part)
    C, categories = np.asarray(encoder.transform(table)), encoder.categorical_.all()
    if method == "permutation" and not categories:
        raise ValueError(
            "method='permutation' permutes within groups of c, but c has numbers; pass categories "
            "(as text), or use method='features'"
        )
    strata = distinct(C).number if categories and method != "features" else None
    return Variable.of(part, encoder), C, strata


def _within(F: Array, strata: NDArray[np.int64]) -> Array:
    """Rows less the mean of their group."""
    counts = np.bincount(strata)
    means = np.stack([np.bincount(strata, column) for column in F.T], axis=1) / counts[:, None]
    return np.asarray(F - means[strata])


def _residuals(F: Array, Upsilon: Array) -> Array:
    """F less its ridge regression on the features of c, the ridge chosen by GCV."""
    n = len(F)
    F, Upsilon = F - F.mean(axis=0), Upsilon - Upsilon.mean(axis=0)
    left, values, _ = np.linalg.svd(Upsilon, full_matrices=False)
    known = left.T @ F
    shrink = values**2 / (values**2 + n * RIDGES[:, None])
    outside = np.sum(F**2) - np.sum(known**2)
    inside = ((1 - shrink) ** 2) @ np.sum(known**2, axis=1)
    scores = (outside + inside) / (1 - (1 + shrink.sum(axis=1)) / n) ** 2
    best = shrink[np.argmin(scores)]
    return np.asarray(F - left @ (best[:, None] * known))


def _asymptotic(left: Array, right: Array) -> float:
    """P(Σ w z² > n|Cov|²), w the eigenvalues of the covariance of the products of residuals."""
    n = len(left)
    left, right = _principal(left), _principal(right)
    products = (left[:, :, None] * right[:, None, :]).reshape(n, -1)
    statistic = float(np.sum(products.mean(axis=0) ** 2)) * n
    gram = products @ products.T if n < products.shape[1] else products.T @ products
    return mixture_sf(statistic, positive_eigh(gram / n)[0])


def _principal(F: Array, most: int = 20) -> Array:
    """Principal components, all but a ten-thousandth of the variance, at most so many."""
    values, vectors = positive_eigh(F.T @ F)
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = int(np.searchsorted(np.cumsum(values), (1 - 1e-4) * values.sum())) + 1
    return np.asarray(F @ vectors[:, : min(enough, most)])
