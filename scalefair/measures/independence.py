"""HSIC and its normalised relatives: how far two variables are from independence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array, Chunk
from scalefair.errors import check_choice
from scalefair.features.base import seed_of
from scalefair.kernels.named import plain_name
from scalefair.measures._features import FeaturePair, feature_pair
from scalefair.measures._kernels import (
    PairSums,
    centred,
    check_kernel,
    gram_of,
    pair_sums,
    unbiased,
    unbiased_of,
)
from scalefair.measures._pair import Pair, open_pair
from scalefair.moments import Moments

MAX_EXACT_HSIC_ROWS = 4000
"""Up to so many rows in memory, method="auto" compares every pair."""

MAX_DENSE_NOCCO_ROWS = 5000
"""Most rows whose n×n matrices `nocco` decomposes."""

LEAST_UNBIASED = 4
"""Rows whose quadruples an unbiased estimate takes."""

PAIR_METHODS = ("auto", "exact", "features")


def hsic(
    a: Any,
    b: Any,
    kernel_a: Any = None,
    kernel_b: Any = None,
    *,
    biased: bool = True,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 200,
    random_state: Any = 0,
) -> float:
    """Hilbert–Schmidt independence criterion (Gretton et al. 2005), tr(KHLH)/n².

    The squared norm of the covariance of the features of a and of b, over all of them. With
    Gaussian kernels it is 0 only for independent variables. Its size depends on the kernels:
    compare it only between predictions with the same ones, or use :func:`alignment`.

    Parameters
    ----------
    a, b : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, p)
        Numbers, categories or both, in one or many columns.
    kernel_a, kernel_b : None, str, Kernel or feature map
        None: categories are crossed, 1[s = s'], numbers are standardised and get a Gaussian kernel
        whose length scale is their median distance, and where both occur the product of the two.
        A name is that kernel with the median distance as length scale; a Kernel is used as it is.
    biased : bool
        True: tr(KHLH)/n², never negative, too large by about tr(K̃)tr(L̃)/n³, where variables are
        independent. False: the unbiased estimate of Song et al. (2012), which may be negative.
    sample_weight : array-like, Scan or dask collection of shape (n,), optional
        Relative: a common factor changes nothing. With biased=True weight 2 is the row twice; with
        False the n of the correction is Kish's (Σw)²/Σw², which must be at least 4, and where
        weights differ a bias of order 1/n² is left.
    method : {"auto", "exact", "features"}
        "exact": all pairs, in O(n²) time and O(n) memory; rows in memory. "features": one pass in
        O(n) time, in memory that does not depend on n, from anywhere. "auto": exact up to 4,000
        rows in memory.
    n_components : int
        Most landmarks per variable. They are added until the features miss less than 1e-9 of the
        trace of the sample's Gram matrix, which takes some 20 for one column, 100 for three.
    random_state : int, RandomState or None
        Of the sample of 2,000 rows that length scales and landmarks are chosen from.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 101)
    >>> round(hsic(x, x**2), 4), round(hsic(x, x**2, "linear", "linear"), 4)
    (0.0322, 0.0)
    """
    asked = _Asked(kernel_a, kernel_b, method, n_components)
    pair = asked.opened(a, b, sample_weight, random_state, least=2 if biased else LEAST_UNBIASED)
    if not asked.is_exact(pair):
        features = asked.features(pair)
        return hsic_of(features.moments()) if biased else _unbiased_hsic(features)
    exact = _Exact.of(pair, asked)
    return max(exact.centred()[0], 0.0) if biased else exact.unbiased()


def alignment(
    a: Any,
    b: Any,
    kernel_a: Any = None,
    kernel_b: Any = None,
    *,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 200,
    random_state: Any = 0,
) -> float:
    """Normalised HSIC, or centred kernel alignment, in [0, 1].

        HSIC(a, b) / √(HSIC(a, a) HSIC(b, b))

    The cosine between the two centred Gram matrices (Cortes et al. 2012): 1 where they are
    proportional. It does not change when a kernel is multiplied by a number, nor, with the default
    kernels, when columns are rescaled. In a sample it is positive even for independent variables.

    Parameters
    ----------
    a, b, kernel_a, kernel_b, sample_weight, method, n_components, random_state
        As in :func:`hsic`.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 101)
    >>> round(alignment(x, 3 - 2 * x), 4)
    1.0
    """
    asked = _Asked(kernel_a, kernel_b, method, n_components)
    pair = asked.opened(a, b, sample_weight, random_state)
    if not asked.is_exact(pair):
        return alignment_of(asked.features(pair).moments())
    return _cosine(*_Exact.of(pair, asked).centred())


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
    n_components: int = 200,
    random_state: Any = 0,
) -> float:
    """Normalised cross-covariance operator (Fukumizu et al. 2007), tr(P_a P_b).

    P = K̃(K̃ + nεI)⁻¹ with the centred Gram matrix K̃: every feature counts alike, whatever its
    variance. As n → ∞ and ε → 0 it does not depend on the kernels, which HSIC does; in a sample it
    does, and most of its value is noise where ε is small: two independent numbers have about
    (features of a)·(features of b)/n.

    Parameters
    ----------
    a, b, kernel_a, kernel_b, sample_weight, n_components, random_state
        As in :func:`hsic`.
    eps : float
        ε, positive; the penalty's default.
    method : {"auto", "exact", "features"}
        "exact" decomposes n×n matrices, at most 5,000 rows. "auto": features.

    Returns
    -------
    float
        0 for independent variables of infinite number, at most the number of features.
    """
    asked = _Asked(kernel_a, kernel_b, method, n_components)
    if isinstance(eps, bool | str) or not 0 < eps < np.inf:
        raise ValueError(f"eps={eps!r} must be a positive number; 1e-6 is the penalty's")
    pair = asked.opened(a, b, sample_weight, random_state)
    if method == "exact":
        return _exact_nocco(pair, asked, eps)
    return nocco_of(asked.features(pair).moments(), eps)


def hsic_of(moments: Moments) -> float:
    """Return HSIC, |Cov(φ, ψ)|², from moments of features."""
    return float(np.sum(moments.covariance("phi", "psi") ** 2))


def alignment_of(moments: Moments) -> float:
    """Return normalised HSIC from moments of features."""
    return _cosine(*squared_covariances(moments))


def nocco_of(moments: Moments, eps: float) -> float:
    """Return NOCCO from moments of features."""
    left, right = (inverse_root(moments.covariance(n, n), eps) for n in ("phi", "psi"))
    return float(np.sum((left.T @ moments.covariance("phi", "psi") @ right) ** 2))


def squared_covariances(moments: Moments) -> tuple[float, float, float]:
    """Return |Cov(φ, ψ)|², |Cov(φ, φ)|² and |Cov(ψ, ψ)|²."""
    blocks = (("phi", "psi"), ("phi", "phi"), ("psi", "psi"))
    ab, aa, bb = (float(np.sum(moments.covariance(*names) ** 2)) for names in blocks)
    return ab, aa, bb


def _cosine(ab: float, aa: float, bb: float) -> float:
    if min(aa, bb) <= 0:
        raise ValueError(
            "next to all of the weight is on rows of one value, so that nothing varies; give more "
            "rows, or weights that differ less"
        )
    return float(np.clip(ab / (np.sqrt(aa) * np.sqrt(bb)), 0.0, 1.0))


@dataclass(frozen=True)
class _Asked:
    """How a measure was asked to be computed."""

    kernel_a: Any
    kernel_b: Any
    method: str
    n_components: int

    def __post_init__(self) -> None:
        check_choice("method", self.method, PAIR_METHODS)
        check_kernel("kernel_a", self.kernel_a)
        check_kernel("kernel_b", self.kernel_b)

    def opened(self, a: Any, b: Any, weight: Any, random_state: Any, least: int = 2) -> Pair:
        every = (plain_name(self.kernel_a) == "categorical",
                 plain_name(self.kernel_b) == "categorical")  # fmt: skip
        pair = open_pair(a, b, weight, seed=seed_of(random_state), least=least, every=every)
        if self.method == "exact" and not pair.in_memory:
            raise ValueError(
                "method='exact' compares all pairs of rows, which must be in memory; use "
                "method='features' for scans and dask collections"
            )
        return pair

    def is_exact(self, pair: Pair) -> bool:
        if self.method != "auto":
            return self.method == "exact"
        maps = hasattr(self.kernel_a, "raw") or hasattr(self.kernel_b, "raw")
        return pair.in_memory and pair.n_rows <= MAX_EXACT_HSIC_ROWS and not maps

    def features(self, pair: Pair) -> FeaturePair:
        return feature_pair(pair, self.kernel_a, self.kernel_b, self.n_components)


@dataclass(frozen=True, eq=False)
class _Exact:
    """Sums over all pairs of rows, and the diagonals of both Gram matrices."""

    sums: PairSums
    diagonals: tuple[Array, Array]
    weight: Array

    @classmethod
    def of(cls, pair: Pair, asked: _Asked) -> _Exact:
        rows = pair.rows()
        w = np.ones(len(rows.x)) if rows.weight is None else rows.weight
        w = w * (w.sum() / (w @ w))  # they add up to Kish's count
        K = gram_of("kernel_a", asked.kernel_a, pair.a, rows.x, w)
        L = gram_of("kernel_b", asked.kernel_b, pair.b, rows.s, w)
        return cls(pair_sums(K, L, rows.x, rows.s, w), (K.diag(rows.x), L.diag(rows.s)), w)

    def centred(self) -> tuple[float, float, float]:
        """HSIC of (a, b), (a, a) and (b, b)."""
        s, w = self.sums, self.weight
        parts = ((s.KL, s.k, s.l), (s.KK, s.k, s.k), (s.LL, s.l, s.l))
        ab, aa, bb = (centred(*part, w) for part in parts)
        return ab, aa, bb

    def unbiased(self) -> float:
        _check_enough(self.weight.sum())
        return unbiased(self.sums, *self.diagonals, self.weight)


def _unbiased_hsic(features: FeaturePair) -> float:
    """The unbiased formula from moments of [φ, ψ, |φ|², |ψ|²]; sums are n times means."""
    (m,) = features.fold_moments(columns=_norms, width=2)
    n = m.effective_rows
    _check_enough(n)
    sums = {name: n * m.mean(name) for name in ("phi", "psi", "y")}

    def product(left: str, right: str) -> Array:
        return n * m.covariance(left, right) + np.outer(sums[left], m.mean(right))

    both = product("y", "y")[0, 1]
    k_l = sums["phi"] @ product("phi", "psi") @ sums["psi"]
    k_l -= product("y", "psi")[0] @ sums["psi"] + product("y", "phi")[1] @ sums["phi"] - both
    k, l = (sums[b] @ sums[b] - d for b, d in zip(("phi", "psi"), sums["y"], strict=True))  # noqa: E741
    cross = np.sum(product("phi", "psi") ** 2) - both
    return unbiased_of(n, float(cross), float(k), float(l), float(k_l))


def _check_enough(n: float) -> None:
    if n < LEAST_UNBIASED * (1 - 1e-9):
        raise ValueError(
            f"sample_weight makes the rows of a and b worth {n:.3g} of equal weight, biased=False "
            f"needs at least {LEAST_UNBIASED}; give more rows, or biased=True"
        )


def _norms(Phi: Array, Psi: Array, weight: Array) -> Array:  # noqa: ARG001
    """Diagonals of both Gram matrices, of shape (k, 2)."""
    return np.column_stack([np.einsum("ij,ij->i", F, F) for F in (Phi, Psi)])


def _exact_nocco(pair: Pair, asked: _Asked, eps: float) -> float:
    if pair.n_rows > MAX_DENSE_NOCCO_ROWS:
        raise ValueError(
            f"method='exact' decomposes n×n matrices, at most {MAX_DENSE_NOCCO_ROWS} rows, but "
            f"there are {pair.n_rows}; use method='features'"
        )
    rows: Chunk = pair.rows()
    w = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    K = gram_of("kernel_a", asked.kernel_a, pair.a, rows.x, w)(rows.x, rows.x)
    L = gram_of("kernel_b", asked.kernel_b, pair.b, rows.s, w)(rows.s, rows.s)
    return float(np.sum((_share_root(K, w, eps).T @ _share_root(L, w, eps)) ** 2))


def _share_root(K: Array, w: Array, eps: float) -> Array:
    """A root of K̃(K̃ + nεI)⁻¹, K̃ centred and weighted."""
    n, v = w.sum(), np.sqrt(w)
    mean = K @ w / n
    K = (K - mean[:, None] - mean[None, :] + w @ mean / n) * v[:, None] * v[None, :]
    values, vectors = positive_eigh(K / n)
    keep = values > 1e-14 * values.max(initial=0.0)
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep] / (values[keep] + eps)))
