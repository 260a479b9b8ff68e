"""HSIC and its normalised relatives: how far two variables are from independence."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.data.sources.threads import available_threads, run_threads
from scalefair.features.base import is_map
from scalefair.measures._features import FeaturePair, feature_pair, grams
from scalefair.measures._pair import Pair, UndefinedError, open_pair
from scalefair.moments import Moments

MAX_EXACT_HSIC_ROWS = 4000
"""Up to so many rows in memory, method="auto" compares every pair."""

MAX_DENSE_NOCCO_ROWS = 5000  # Most rows whose n×n matrices `nocco` decomposes
MIN_UNBIASED_ROWS = 4  # Rows whose quadruples an unbiased estimate takes
TILE_ROWS = 512  # Rows and columns of a tile: two tiles of float64 take 4 MB


def hsic(
    a: Any, b: Any, kernel_a: Any = None, kernel_b: Any = None, *, biased: bool = True,
    sample_weight: Any = None, method: str = "auto", n_components: int = 200,
    random_state: Any = 0,
) -> float:  # fmt: skip
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
        Relative: a common factor changes nothing. With biased=True weight 2 is the row twice; with False the n of the
        correction is Kish's (Σw)²/Σw², which must be at least 4, and where weights differ a bias of order 1/n² is left.
    method : {"auto", "exact", "features"}
        "exact": all pairs, in O(n²) time and O(n) memory; rows in memory. "features": O(n) time, in memory that does
        not depend on n, from any container. "auto": exact up to 4,000 rows in memory.
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
    pair = open_pair(
        a, b, sample_weight, kernels=(kernel_a, kernel_b), random_state=random_state,
        method=method, least=2 if biased else MIN_UNBIASED_ROWS,
    )  # fmt: skip
    if (exact := _exact_sums(pair, method)) is not None:
        sums, (diagonal_k, diagonal_l) = exact
        if biased:
            return max(sums.covariances()[0], 0.0)
        # Less the diagonal. The weights add up to Kish's (Σw)²/Σw²: on average what is taken off is
        # what the sums have.
        w, k, l = sums.weight, sums.k - diagonal_k, sums.l - diagonal_l  # noqa: E741
        cross = sums.KL - w @ (diagonal_k * diagonal_l)
        return _unbiased(float(w.sum()), cross, w @ k, w @ l, w @ (k * l))
    features = feature_pair(pair, n_components)
    return hsic_of(features.moments()[0]) if biased else _unbiased_of_features(features)


def alignment(
    a: Any, b: Any, kernel_a: Any = None, kernel_b: Any = None, *, sample_weight: Any = None,
    method: str = "auto", n_components: int = 200, random_state: Any = 0,
) -> float:  # fmt: skip
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
    pair = open_pair(a, b, sample_weight, kernels=(kernel_a, kernel_b), random_state=random_state, method=method)
    if (exact := _exact_sums(pair, method)) is not None:
        return cosine(*exact[0].covariances())
    return alignment_of(feature_pair(pair, n_components).moments()[0])


normalized_hsic = alignment


def nocco(
    a: Any, b: Any, kernel_a: Any = None, kernel_b: Any = None, *, eps: float = 1e-6,
    sample_weight: Any = None, method: str = "auto", n_components: int = 200,
    random_state: Any = 0,
) -> float:  # fmt: skip
    """Normalised cross-covariance operator (Fukumizu et al. 2007), tr(P_a P_b).

    P = K̃(K̃ + nεI)⁻¹ with the centred Gram matrix K̃: every feature counts alike, whatever its variance. As n → ∞ and
    ε → 0 it does not depend on the kernels, which HSIC does; in a sample it does, and most of its value is noise where
    ε is small: two independent numbers have about (features of a)·(features of b)/n.

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
    if isinstance(eps, bool | str) or not 0 < eps < np.inf:
        raise ValueError(f"eps={eps!r} must be a positive number; 1e-6 is the penalty's")
    pair = open_pair(a, b, sample_weight, kernels=(kernel_a, kernel_b), random_state=random_state, method=method)
    if method != "exact":
        return nocco_of(feature_pair(pair, n_components).moments()[0], eps)
    if pair.n_rows > MAX_DENSE_NOCCO_ROWS:
        raise ValueError(
            f"method='exact' decomposes n×n matrices, at most {MAX_DENSE_NOCCO_ROWS} rows, but "
            f"there are {pair.n_rows}; use method='features'"
        )
    rows = pair.rows()
    w = rows.weights
    K, L = grams(pair, rows, w)
    left, right = _share_root(K(rows.x, rows.x), w, eps), _share_root(L(rows.s, rows.s), w, eps)
    return float(np.sum((left.T @ right) ** 2))


def hsic_of(moments: Moments) -> float:
    """HSIC = |Cov(φ, ψ)|², from moments of features."""
    return float(np.sum(moments.covariance("phi", "psi") ** 2))


def alignment_of(moments: Moments) -> float:
    """Normalised HSIC from moments of features."""
    return cosine(*squared_covariances(moments))


def nocco_of(moments: Moments, eps: float) -> float:
    """NOCCO = |(C_φ + ε)^(−1/2) Cov(φ, ψ) (C_ψ + ε)^(−1/2)|², from moments of features."""
    left, right = (inverse_root(moments.covariance(n, n), eps) for n in ("phi", "psi"))
    return float(np.sum((left.T @ moments.covariance("phi", "psi") @ right) ** 2))


def squared_covariances(moments: Moments) -> tuple[float, float, float]:
    """Return |Cov(φ, ψ)|², |Cov(φ, φ)|² and |Cov(ψ, ψ)|²."""
    blocks = (("phi", "psi"), ("phi", "phi"), ("psi", "psi"))
    ab, aa, bb = (float(np.sum(moments.covariance(*names) ** 2)) for names in blocks)
    return ab, aa, bb


def cosine(ab: float, aa: float, bb: float, least: float = 0.0) -> float:
    """ab/√(aa·bb), in [0, 1], of squared covariances; below `least` they have lost digits."""
    if not min(aa, bb) > least:
        raise UndefinedError(
            "a or b hardly varies: almost all of the weight is on rows of one value, or the "
            "squares of its distances vanish; give more rows, weights that differ less, or rescale "
            "it"
        )
    return float(np.clip(ab / (np.sqrt(aa) * np.sqrt(bb)), 0.0, 1.0))


class PairSums(NamedTuple):
    """Σ_ij w_i w_j K_ij L_ij and so on of two Gram matrices, and Σ_j w_j K_ij of every row i."""

    KL: float
    KK: float
    LL: float
    k: Array
    l: Array  # noqa: E741
    weight: Array

    def covariances(self) -> tuple[float, float, float]:
        """tr(KHLH)/n² = Σww KL/n² − 2Σw kl/n³ + (Σwk)(Σwl)/n⁴, n = Σw; that of KK and of LL."""
        w, n = self.weight, self.weight.sum()
        k, l = self.k / n, self.l / n  # noqa: E741
        ab, aa, bb = (
            float(cross / n**2 - 2 * (w @ (u * v)) / n + (w @ u) * (w @ v) / n**2)
            for cross, u, v in ((self.KL, k, l), (self.KK, k, k), (self.LL, l, l))
        )
        return ab, aa, bb


def pair_sums(
    K: Callable[[Array, Array], Array], L: Callable[[Array, Array], Array], A: Array, B: Array, weight: Array
) -> PairSums:
    """Return sums over all pairs of rows, diagonal included: O(n²) time, O(n + 512²) memory per thread."""
    n = len(A)
    cuts = [slice(start, min(start + TILE_ROWS, n)) for start in range(0, n, TILE_ROWS)]
    tiles = [(rows, columns) for j, columns in enumerate(cuts) for rows in cuts[: j + 1]]
    threads = min(available_threads(), len(tiles)) if len(tiles) > 1 else 1
    stop = Event()

    def work(thread: int) -> tuple[Array, Array]:
        products, sums = np.zeros(3), np.zeros((2, n))
        for rows, columns in tiles[thread::threads]:
            if stop.is_set():
                break
            w, v, apart = weight[rows], weight[columns], rows != columns
            blocks = K(A[rows], A[columns]), L(B[rows], B[columns])
            # A tile off the diagonal also represents its mirror image.
            products += (2.0 if apart else 1.0) * np.array(
                [w @ (blocks[i] * blocks[j]) @ v for i, j in ((0, 1), (0, 0), (1, 1))]
            )
            for block, of_row in zip(blocks, sums, strict=True):
                of_row[rows] += block @ v
                if apart:
                    of_row[columns] += w @ block
        return products, sums

    parts = run_threads(work, threads, stop)
    (KL, KK, LL), (k, l) = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))  # noqa: E741
    return PairSums(float(KL), float(KK), float(LL), k, l, weight)


def _exact_sums(pair: Pair, method: str) -> tuple[PairSums, tuple[Array, Array]] | None:
    """Return the sums over pairs, and the diagonals of both Gram matrices; None for features."""
    few = pair.in_memory and pair.n_rows <= MAX_EXACT_HSIC_ROWS
    exact = method == "auto" and few and not any(map(is_map, pair.kernels))
    if not (exact or method == "exact"):
        return None
    rows = pair.rows()
    w = rows.weights
    w = w * (w.sum() / (w @ w))  # they add up to Kish's count
    K, L = grams(pair, rows, w)
    return pair_sums(K, L, rows.x, rows.s, w), (K.diag(rows.x), L.diag(rows.s))


def _unbiased_of_features(features: FeaturePair) -> float:
    """HSIC without bias from moments of [φ, ψ, |φ|², |ψ|²]; sums are n times means."""

    def norms(*maps: Array) -> Array:  # diagonals of both Gram matrices, and no weights
        return np.column_stack([np.einsum("ij,ij->i", F, F) for F in maps[:2]])

    (m,) = features.moments(columns=norms, width=2)
    n = m.effective_rows
    sums = {name: n * m.mean(name) for name in ("phi", "psi", "y")}

    def product(left: str, right: str) -> Array:
        return n * m.covariance(left, right) + np.outer(sums[left], m.mean(right))

    both = product("y", "y")[0, 1]
    k_l = sums["phi"] @ product("phi", "psi") @ sums["psi"]
    k_l -= product("y", "psi")[0] @ sums["psi"] + product("y", "phi")[1] @ sums["phi"] - both
    k, l = (sums[b] @ sums[b] - d for b, d in zip(("phi", "psi"), sums["y"], strict=True))  # noqa: E741
    return _unbiased(n, np.sum(product("phi", "psi") ** 2) - both, k, l, k_l)


def _unbiased(n: float, cross: Any, k: Any, l: Any, kl: Any) -> float:  # noqa: E741
    """Song et al. (2012), from Σ_{i≠j} K_ij L_ij, Σ_{i≠j} K_ij, Σ_{i≠j} L_ij and Σ_i k_i l_i."""
    if n < MIN_UNBIASED_ROWS * (1 - 1e-9):
        raise ValueError(
            f"sample_weight makes the rows of a and b worth {n:.3g} of equal weight, biased=False "
            f"needs at least {MIN_UNBIASED_ROWS}; give more rows, or biased=True"
        )
    return float((cross + k * l / ((n - 1) * (n - 2)) - 2 * kl / (n - 2)) / (n * (n - 3)))


def _share_root(K: Array, w: Array, eps: float) -> Array:
    """A root of K̃(K̃ + nεI)⁻¹, K̃ centred and weighted."""
    n, v = w.sum(), np.sqrt(w)
    mean = K @ w / n
    K = (K - mean[:, None] - mean[None, :] + w @ mean / n) * v[:, None] * v[None, :]
    values, vectors = positive_eigh(K / n)
    keep = values > 1e-14 * values.max(initial=0.0)
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep] / (values[keep] + eps)))
