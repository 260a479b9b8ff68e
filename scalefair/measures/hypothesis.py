"""Tests of independence by HSIC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import gamma

from scalefair._typing import Array
from scalefair.maps._base import check_choice, seed_of
from scalefair.measures._features import feature_pair
from scalefair.measures._rows import open_pair
from scalefair.measures.independence import KERNELS

METHODS = ("auto", "permutation", "gamma", "spectral", "features")


@dataclass(frozen=True)
class TestResult:
    """Outcome of a test of independence.

    Parameters
    ----------
    statistic : float
        HSIC, biased.
    pvalue : float
        Probability of at least such a statistic if the variables were independent.
    method : str
        How the null distribution was found.
    n_rows : int
        Rows that were used.
    """

    __test__ = False

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
    n_permutations: int = 1000,
    n_components: int = 100,
    random_state: Any = 0,
) -> TestResult:
    """Test the independence of a and b."""
    check_choice("method", method, METHODS)
    pair = open_pair(a, b, seed=seed_of(random_state), least=6)
    moments = feature_pair(pair, kernel_a, kernel_b, n_components, KERNELS).moments()
    statistic = float(np.sum(moments.covariance("phi", "psi") ** 2))
    A, B = (np.linalg.eigvalsh(moments.covariance(n, n)) for n in ("phi", "psi"))
    mean, variance = A.sum() * B.sum(), 2 * (A @ A) * (B @ B)
    pvalue = gamma.sf(pair.n_rows * statistic, mean**2 / variance, scale=variance / mean)
    return TestResult(statistic, float(pvalue), "gamma", pair.n_rows)


def conditional_hsic_test(a: Any, b: Any, c: Any, **options: Any) -> TestResult:
    """Test the independence of a and b given c."""
    raise NotImplementedError


Rows = Array
