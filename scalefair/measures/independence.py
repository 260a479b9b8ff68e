"""HSIC and its normalised relatives: how far two variables are from independence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.maps._base import check_choice, seed_of
from scalefair.maps.mixed import SAMPLE_ROWS
from scalefair.measures._features import FeaturePair, diagonals, feature_pair
from scalefair.measures._kernels import Gram, gram_of
from scalefair.measures._rows import Pair, open_pair
from scalefair.measures._sums import PairSums, centred, pair_sums, unbiased, unbiased_of

EXACT_ROWS = 4000
"""Up to so many rows in memory, method="auto" compares every pair."""

METHODS = ("auto", "exact", "features")
KERNELS = ("kernel_a", "kernel_b")


def hsic(
    a: Any,
    b: Any,
    kernel_a: Any = None,
    kernel_b: Any = None,
    *,
    biased: bool = True,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 100,
    random_state: Any = 0,
) -> float:
    """Hilbert–Schmidt independence criterion, tr(KHLH)/n²."""
    pair = _opened(
        a, b, sample_weight, (kernel_a, kernel_b), method, random_state, 2 if biased else 4
    )
    if _is_exact(pair, method):
        sums, grams, (A, B, w) = _exact(pair, kernel_a, kernel_b)
        if biased:
            return max(centred(sums.KL, sums.k, sums.l, w), 0.0)
        return unbiased(sums, grams[0].diag(A), grams[1].diag(B), w)
    features = feature_pair(pair, kernel_a, kernel_b, n_components, KERNELS)
    if biased:
        return float(np.sum(features.moments().covariance("phi", "psi") ** 2))
    return _unbiased_features(features, kernel_a, kernel_b)


def alignment(
    a: Any,
    b: Any,
    kernel_a: Any = None,
    kernel_b: Any = None,
    *,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 100,
    random_state: Any = 0,
) -> float:
    """Normalised HSIC (centred kernel alignment), HSIC(a,b)/√(HSIC(a,a) HSIC(b,b)), in [0, 1]."""
    pair = _opened(a, b, sample_weight, (kernel_a, kernel_b), method, random_state, 2)
    if _is_exact(pair, method):
        sums, _, (_, _, w) = _exact(pair, kernel_a, kernel_b)
        ab = centred(sums.KL, sums.k, sums.l, w)
        aa, bb = centred(sums.KK, sums.k, sums.k, w), centred(sums.LL, sums.l, sums.l, w)
    else:
        moments = feature_pair(pair, kernel_a, kernel_b, n_components, KERNELS).moments()
        blocks = (("phi", "psi"), ("phi", "phi"), ("psi", "psi"))
        ab, aa, bb = (float(np.sum(moments.covariance(*names) ** 2)) for names in blocks)
    return float(np.clip(ab / np.sqrt(aa * bb), 0.0, 1.0))


normalized_hsic = alignment


def nocco(
    a: Any,
    b: Any,
    kernel_a: Any = None,
    kernel_b: Any = None,
    *,
    eps: float = 1e-6,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 100,
    random_state: Any = 0,
) -> float:
    """Normalised cross-covariance (NOCCO), tr(P_a P_b) with P = K̃(K̃ + nεI)⁻¹."""
    pair = _opened(a, b, sample_weight, (kernel_a, kernel_b), method, random_state, 2)
    if not eps > 0:
        raise ValueError(f"eps={eps!r} must be positive; 1e-6 is the penalty's")
    if method == "exact":
        return _nocco_exact(pair, kernel_a, kernel_b, eps)
    moments = feature_pair(pair, kernel_a, kernel_b, n_components, KERNELS).moments()
    left, right = (inverse_root(moments.covariance(n, n), eps) for n in ("phi", "psi"))
    return float(np.sum((left.T @ moments.covariance("phi", "psi") @ right) ** 2))


def _opened(
    a: Any,
    b: Any,
    weight: Any,
    kernels: tuple[Any, Any],
    method: str,
    random_state: Any,
    least: int,
) -> Pair:
    check_choice("method", method, METHODS)
    every = (_is_categorical(kernels[0]), _is_categorical(kernels[1]))
    pair = open_pair(a, b, weight, seed=seed_of(random_state), least=least, every=every)
    if method == "exact" and not pair.in_memory:
        raise ValueError(
            "method='exact' compares all pairs of rows, which must be in memory; use "
            "method='features' for scans and dask collections"
        )
    return pair


def _is_categorical(kernel: Any) -> bool:
    return kernel == "categorical" or type(kernel).__name__ == "Categorical"


def _is_exact(pair: Pair, method: str) -> bool:
    return method == "exact" or (method == "auto" and pair.in_memory and pair.n_rows <= EXACT_ROWS)


def _grams(
    pair: Pair, kernel_a: Any, kernel_b: Any, A: Array, B: Array, w: Array
) -> tuple[Gram, Gram]:
    return (
        gram_of("kernel_a", kernel_a, pair.a, A, w),
        gram_of("kernel_b", kernel_b, pair.b, B, w),
    )


def _exact(
    pair: Pair, kernel_a: Any, kernel_b: Any
) -> tuple[PairSums, tuple[Gram, Gram], tuple[Array, Array, Array]]:
    rows = pair.rows()
    w = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    grams = _grams(pair, kernel_a, kernel_b, rows.x, rows.s, w)
    return pair_sums(*grams, rows.x, rows.s, w), grams, (rows.x, rows.s, w)


def _unbiased_features(features: FeaturePair, kernel_a: Any, kernel_b: Any) -> float:
    """The unbiased formula from moments of [φ, ψ, K_ii, L_ii]."""
    sample = features.pair.rows(SAMPLE_ROWS)
    w = np.ones(len(sample.x)) if sample.weight is None else sample.weight
    grams = _grams(features.pair, kernel_a, kernel_b, sample.x, sample.s, w)
    (m,) = features.moments_with(partial(diagonals, *grams), 2)
    n = m.weight
    total = {name: n * m.mean(name) for name in ("phi", "psi", "y")}

    def product(left: str, right: str) -> Array:
        return n * m.covariance(left, right) + np.outer(total[left], m.mean(right))

    diagonal = product("y", "y")[0, 1]
    k_l = total["phi"] @ product("phi", "psi") @ total["psi"]
    d_l = product("y", "psi")[0] @ total["psi"]
    k_d = product("y", "phi")[1] @ total["phi"]
    cross = np.sum(product("phi", "psi") ** 2) - diagonal
    k, l = (total[b] @ total[b] - d for b, d in zip(("phi", "psi"), total["y"], strict=True))  # noqa: E741
    return unbiased_of(n, float(cross), float(k), float(l), float(k_l - d_l - k_d + diagonal))


def _nocco_exact(pair: Pair, kernel_a: Any, kernel_b: Any, eps: float) -> float:
    rows = pair.rows()
    n = len(rows.x)
    w = np.ones(n) if rows.weight is None else rows.weight
    first, second = _grams(pair, kernel_a, kernel_b, rows.x, rows.s, w)
    roots = [_share_root(g(R, R), w, eps) for g, R in ((first, rows.x), (second, rows.s))]
    return float(np.sum((roots[0].T @ roots[1]) ** 2))


def _share_root(K: Array, w: Array, eps: float) -> Array:
    """A root of K̃(K̃ + nεI)⁻¹, K̃ centred and weighted."""
    n, v = w.sum(), np.sqrt(w)
    mean = K @ w / n
    K = (K - mean[:, None] - mean[None, :] + w @ mean / n) * v[:, None] * v[None, :]
    values, vectors = positive_eigh(K / n)
    keep = values > 1e-14 * values.max(initial=0.0)
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep] / (values[keep] + eps)))
