"""HSIC of centred Gram matrices in any form, and its distribution under independence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr
from scipy.stats import random_table

from scalefair import _jit
from scalefair._hash import distinct
from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.data.sources.threads import run_each
from scalefair.features.base import whitened
from scalefair.measures._features import FeaturePair, PivotMap, feature_pair, grams
from scalefair.measures._pair import Pair
from scalefair.moments import Moments

NEGLIGIBLE_VARIANCE = 1e-6  # Part of the variance whose weights are merged into one of the same mean and variance
MAX_TERMS = 2**17
"""Most terms of the inversion; only a single weight, whose characteristic function falls slowly,
comes near them."""

MAX_DENSE_TEST_ROWS = 3000  # Most rows whose n×n Gram matrices are formed, 72 MB each
MAX_ROWS_IN_MEMORY = 20_000  # Most rows whose features are stored for the terms of order 1/n of the null distribution
FEW_TEST_ROWS = 60  # Below this the spectral null is not close enough, and permutations cost next to nothing
MAX_TABLE_CELLS = 400  # Up to so many pairs of distinct values HSIC jumps from one table to the next

Order = NDArray[np.int64]
Draw = Callable[[np.random.Generator], Order]


class Spectrum(NamedTuple):
    """Eigenvalues of K̃/n, or of the covariance of the features, and Σ_i K̃_ii²."""

    values: Array
    diagonal: float | None = None  # not summed where rows are many


@dataclass(frozen=True, eq=False)
class CentredPair:
    """HSIC of two centred Gram matrices of n rows, and what its null distribution takes."""

    n: float
    statistic: float
    spectra: Callable[[], list[Spectrum]]  # of both variables
    permuted: Callable[[int, int], Array] | None = None  # HSIC of `count` pairings by a seed

    def pvalue(self, method: str, n_permutations: int = 0, seed: int = 0) -> float:
        """Return P(at least this HSIC) by "permutation", "gamma" or the spectra."""
        if method == "permutation" and self.permuted is not None:
            null = self.permuted(n_permutations, seed)
            # (1 + number at least as large)/(B + 1); rounding must not tell equal values apart.
            return float((1 + np.sum(null >= self.statistic * (1 - 1e-10))) / (len(null) + 1))
        x, (a, b) = self.n * self.statistic, self.spectra()
        mean, variance = permutation_moments(self.n, a, b)
        if method == "gamma":
            return float(gammaincc(mean**2 / variance, max(x, 0.0) * mean / variance))
        # Σ_ij λ_i μ_j z_ij² is the limit of n·HSIC for many rows. With few of them the mean and the
        # variance over the pairings differ from it by terms of order 1/n: moved and scaled to them.
        weights = np.multiply.outer(a.values, b.values).ravel()
        if variance > 0:
            x = weights.sum() + (x - mean) * np.sqrt(2 * (weights @ weights) / variance)
        return mixture_sf(x, weights)


def centred_pair(pair: Pair, method: str, n_components: int) -> tuple[str, CentredPair]:
    """Return the method that "auto" means, and the Gram matrices in the form it needs."""
    if method == "spectral":
        return method, _dense(pair)
    features = feature_pair(pair, n_components)
    if method == "permutation" and not pair.in_memory:
        raise ValueError(
            "method='permutation' needs the rows in memory; use method='features' for scans and dask collections"
        )
    if method in ("auto", "permutation") and pair.in_memory:
        table = _table(pair)
        if table is not None:
            A, B, cells = table
            Phi, Psi = whitened(features.phi, A), whitened(features.psi, B)
            return "permutation", table_pair(cells, np.asarray(Phi), np.asarray(Psi))
    if method == "auto":
        few = pair.in_memory and pair.n_rows < FEW_TEST_ROWS
        method = "permutation" if few else "features"
    permutes = method in ("permutation", "gamma")
    if permutes and pair.in_memory and _prefers_dense(features):
        return method, _dense(pair)
    if pair.in_memory and (pair.n_rows <= MAX_ROWS_IN_MEMORY or method == "permutation"):
        rows = pair.rows()
        Phi, Psi = whitened(features.phi, rows.x), whitened(features.psi, rows.s)
        return method, feature_rows_pair(np.asarray(Phi), np.asarray(Psi))
    return method, streamed_pair(features.moments()[0])


def takes_moments(pair: Pair) -> bool:
    """Return True if "auto" means moments of features."""
    return not pair.in_memory or (pair.n_rows > MAX_ROWS_IN_MEMORY and _table(pair) is None)


def _table(pair: Pair) -> tuple[Array, Array, NDArray[np.int64]] | None:
    """Tabulate variables of few distinct values; None where there are too many."""
    for size in (MAX_TABLE_CELLS, None):  # most have too many among the first few hundred rows
        rows = pair.rows(size)
        (A, _, i), (B, _, j) = distinct(rows.x), distinct(rows.s)
        if len(A) * len(B) > MAX_TABLE_CELLS:
            return None
    cells = np.bincount(i * len(B) + j, minlength=len(A) * len(B)).reshape(len(A), len(B))
    return A, B, cells


def _prefers_dense(features: FeaturePair) -> bool:
    """Exact matrices where the features are not exact, or not cheaper to permute."""
    n, maps = features.pair.n_rows, (features.phi, features.psi)
    if n > MAX_DENSE_TEST_ROWS:
        return False
    inexact = any(isinstance(m, PivotMap) and m.residual > 1e-8 for m in maps)
    return inexact or features.phi.n_raw_ * features.psi.n_raw_ > n


def _dense(pair: Pair) -> CentredPair:
    if not pair.in_memory or pair.n_rows > MAX_DENSE_TEST_ROWS:
        raise ValueError(
            f"method='spectral' needs the eigenvalues of n×n matrices, at most "
            f"{MAX_DENSE_TEST_ROWS} rows in memory, but there are {pair.n_rows}; use "
            "method='features', which needs none"
        )
    rows = pair.rows()
    K, L = grams(pair, rows)
    return dense_pair(K(rows.x, rows.x), L(rows.s, rows.s))


def dense_pair(K: Array, L: Array) -> CentredPair:
    """Return the pair of two Gram matrices, n×n arrays, which are centred in place."""
    n = len(K)
    for G in (K, L):
        mean = G.mean(axis=0)
        G[...] -= mean
        G[...] -= mean[:, None] - mean.mean()

    def spectra() -> list[Spectrum]:
        diagonals = [float(np.sum(np.diagonal(G) ** 2)) for G in (K, L)]
        return [Spectrum(positive_eigh(G)[0] / n, d) for G, d in zip((K, L), diagonals, strict=True)]

    def statistic(order: Order) -> float:
        return float(_jit.permuted_product(K, L, order)) / n**2

    return CentredPair(n, float(np.vdot(K, L)) / n**2, spectra, partial(permuted, statistic, n))


def feature_rows_pair(Phi: Array, Psi: Array, draw: Draw | None = None) -> CentredPair:
    """Return the pair of K̃ = ΦΦᵀ and L̃ = ΨΨᵀ, feature rows of shapes (n, r) and (n, q)."""
    n = len(Phi)
    Phi, Psi = Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0)

    def spectra() -> list[Spectrum]:
        diagonals = [float(np.sum(np.einsum("ij,ij->i", F, F) ** 2)) for F in (Phi, Psi)]
        values = [positive_eigh(F.T @ F / n)[0] for F in (Phi, Psi)]
        return list(map(Spectrum, values, diagonals))

    def statistic(order: Order) -> float:
        return float(np.sum((Phi.T @ Psi[order]) ** 2)) / n**2

    observed = float(np.sum((Phi.T @ Psi) ** 2)) / n**2
    return CentredPair(n, observed, spectra, partial(permuted, statistic, n, draw=draw))


def streamed_pair(moments: Moments) -> CentredPair:
    """Return the pair of many feature rows, of which only the moments are known."""

    def spectra() -> list[Spectrum]:
        names = ("phi", "psi")
        return [Spectrum(positive_eigh(moments.covariance(name, name))[0]) for name in names]

    statistic = float(np.sum(moments.covariance("phi", "psi") ** 2))
    return CentredPair(moments.effective_rows, statistic, spectra)


def table_pair(table: NDArray[np.int64], Phi: Array, Psi: Array) -> CentredPair:
    """Return a pair of variables with few values each: `table` (g, h) counts them, Φ and Ψ are their features."""
    n, margins = int(table.sum()), (table.sum(axis=1), table.sum(axis=0))
    expected = np.outer(margins[0] / n, margins[1] / n)

    def statistics(tables: NDArray[Any]) -> Array:
        covariance = Phi.T @ (tables / n - expected) @ Psi
        return np.asarray(np.sum(covariance**2, axis=(1, 2)))

    def permuted_tables(count: int, seed: int) -> Array:
        return statistics(random_table(*margins, seed=seed).rvs(count))

    return CentredPair(n, float(statistics(table[None])[0]), list, permuted_tables)


def permuted(statistic: Callable[[Order], float], n: int, count: int, seed: int, draw: Draw | None = None) -> Array:
    """Return the statistic of `count` random orders of n rows, whatever the number of threads."""

    def one(number: int) -> float:
        rng = np.random.default_rng([seed, number])
        return statistic(rng.permutation(n) if draw is None else draw(rng))

    return np.array(run_each(one, count))


def permutation_moments(n: float, a: Spectrum, b: Spectrum) -> tuple[float, float]:
    """Mean and variance of n·HSIC over all n! pairings of the rows.

    The mean is tr K̃ tr L̃ / (n(n−1)); the variance is that of Kazi-Aoual et al. (1995). Without
    the diagonals, which matter to order 1/n, it is 2 tr K̃² tr L̃² / n⁴.
    """
    traces = [float(s.values.sum()) for s in (a, b)]  # tr K̃/n
    squares = [float(s.values @ s.values) for s in (a, b)]  # tr K̃²/n²
    mean = traces[0] * traces[1] * n / (n - 1)
    if a.diagonal is None or b.diagonal is None or n < 4:
        return mean, 2 * squares[0] * squares[1]
    (T, U), (T2, U2) = (n * t for t in traces), (n**2 * q for q in squares)
    first = 2 * ((n - 1) * T2 - T**2) * ((n - 1) * U2 - U**2) / ((n - 1) ** 2 * (n + 1) * (n - 2))
    odd = [n * (n + 1) * d - (n - 1) * (t**2 + 2 * t2) for d, t, t2 in ((a.diagonal, T, T2), (b.diagonal, U, U2))]
    second = odd[0] * odd[1] / ((n + 1) * n * (n - 1) * (n - 2) * (n - 3))
    return mean, max((first + second) / n**2, 0.0)


def mixture_sf(x: float, weights: Array) -> float:
    """P(Σ_j w_j z_j² > x) for independent normal z and w ≥ 0.

    By inversion of the characteristic function (Davies 1973), accurate to 1e-6; where that is not
    enough, below 1e-4, by a saddlepoint (Kuonen 1999), accurate to a few per cent.
    """
    if x <= 0:
        return 1.0
    scale = weights.max()
    x, w = x / scale, np.sort(weights / scale)
    w = w[w > 0]
    dof = np.ones(len(w))
    small = np.cumsum(w**2) <= NEGLIGIBLE_VARIANCE * (w @ w)
    rest, large = w[small], w[~small]
    if len(rest) > 1:  # the many smallest become one of equal mean and variance
        one = rest @ rest / rest.sum()
        w, dof = np.append(large, one), np.append(np.ones(len(large)), rest.sum() / one)
    tail = _saddlepoint(x, w, dof)
    return float(np.clip(tail if tail < 1e-4 else _inverted(x, w, dof), 0.0, 1.0))


def _inverted(x: float, w: Array, dof: Array) -> float:
    """½ + Σ_k Im[φ(u_k) e^(−i u_k x)]/(π(k + ½)), u_k = (k + ½)Δ; the largest weight is 1."""
    t = 0.45  # Chernoff: beyond `span` there is less than 1e-9 of the distribution
    span = max(x, float(21 - 0.5 * dof @ np.log1p(-2 * t * w)) / t)
    step, total, start, size = 2 * np.pi / span, 0.0, 0, 512
    while start < MAX_TERMS:
        k = np.arange(start, start + size) + 0.5
        log_phi = -0.5 * (np.log1p(-2j * np.multiply.outer(k * step, w)) @ dof)
        terms = np.exp(log_phi - 1j * k * step * x).imag / (np.pi * k)
        total += terms.sum()
        if np.exp(log_phi[-1].real) / k[-1] < 1e-8:
            break
        start, size = start + size, min(2 * size, 2**14)
    return float(0.5 + total)


def _saddlepoint(x: float, w: Array, dof: Array) -> float:
    """Lugannani and Rice's formula at K′(t) = x."""
    if dof @ w >= x:
        return 1.0  # below the mean
    # K′ ≥ dof·w/(1 − 2tw) of the largest weight, which alone reaches x at the upper end.
    most = 0.5 - 0.5 * dof[w.argmax()] / (2 * x)
    t = brentq(lambda t: float(np.sum(dof * w / (1 - 2 * t * w)) - x), 0.0, most)
    K = -0.5 * float(dof @ np.log1p(-2 * t * w))
    curvature = float(np.sum(2 * dof * (w / (1 - 2 * t * w)) ** 2))
    r, v = np.sqrt(2 * (t * x - K)), t * np.sqrt(curvature)
    return float(ndtr(-(r + np.log(v / r) / r)))
