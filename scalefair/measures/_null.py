"""What n·HSIC would be if the variables were independent, from centred Gram matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr
from scipy.stats import random_table

from scalefair import _jit
from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.data.sources.threads import available_threads, run_threads
from scalefair.moments import Moments

NEGLIGIBLE_VARIANCE = 1e-6
"""Part of the variance whose weights are merged into one of the same mean and variance."""

MAX_TERMS = 2**17
"""Most terms of the inversion; only a single weight, whose characteristic function falls slowly,
comes near them."""


@dataclass(frozen=True, eq=False)
class NullSpectrum:
    """What a null distribution depends on, for one variable: its centred Gram matrix K̃.

    Parameters
    ----------
    values : array of shape (r,)
        Eigenvalues of K̃/n, which are those of the covariance of the features.
    diagonal : float or None
        Σ_i K̃_ii², None where it was not summed: it matters only for few rows.
    """

    values: Array
    diagonal: float | None = None

    @property
    def trace(self) -> float:
        """tr K̃/n."""
        return float(self.values.sum())

    @property
    def square(self) -> float:
        """tr K̃²/n²."""
        return float(self.values @ self.values)


def permutation_moments(n: float, a: NullSpectrum, b: NullSpectrum) -> tuple[float, float]:
    """Mean and variance of n·HSIC over all n! pairings of the rows.

    The mean is tr K̃ tr L̃ / (n(n−1)); the variance is that of Kazi-Aoual et al. (1995). Without
    the diagonals, which matter to order 1/n, it is 2 tr K̃² tr L̃² / n⁴.
    """
    mean = a.trace * b.trace * n / (n - 1)
    if a.diagonal is None or b.diagonal is None or n < 4:
        return mean, 2 * a.square * b.square
    T, U = n * a.trace, n * b.trace
    T2, U2 = n**2 * a.square, n**2 * b.square
    first = 2 * ((n - 1) * T2 - T**2) * ((n - 1) * U2 - U**2) / ((n - 1) ** 2 * (n + 1) * (n - 2))
    odd = [
        n * (n + 1) * d - (n - 1) * (t**2 + 2 * t2)
        for d, t, t2 in ((a.diagonal, T, T2), (b.diagonal, U, U2))
    ]
    second = odd[0] * odd[1] / ((n + 1) * n * (n - 1) * (n - 2) * (n - 3))
    return mean, max((first + second) / n**2, 0.0)


def gamma_sf(x: float, mean: float, variance: float) -> float:
    """P(Q > x) of a gamma distribution of that mean and variance."""
    return float(gammaincc(mean**2 / variance, max(x, 0.0) * mean / variance))


def spectral_sf(x: float, n: float, a: NullSpectrum, b: NullSpectrum) -> float:
    """P(Q > x), Q = Σ_ij λ_i μ_j z_ij², moved and scaled to the moments of the permutations.

    Q is the limit of n·HSIC for many rows; with few of them the mean and the variance over the
    pairings of the rows differ from it by terms of order 1/n, which this puts right.
    """
    weights = np.multiply.outer(a.values, b.values).ravel()
    mean, variance = permutation_moments(n, a, b)
    own, spread = weights.sum(), 2 * (weights @ weights)
    if variance > 0:
        x = own + (x - mean) * np.sqrt(spread / variance)
    return mixture_sf(x, weights)


def mixture_sf(x: float, weights: Array) -> float:
    """P(Σ_j w_j z_j² > x) for independent normal z and w ≥ 0.

    By inversion of the characteristic function (Davies 1973), accurate to 1e-6; where that is not
    enough, below 1e-4, by a saddlepoint (Kuonen 1999), accurate to a few per cent.
    """
    if x <= 0:
        return 1.0
    scale = weights.max()
    x, (w, dof) = x / scale, _merged(weights / scale)
    tail = _saddlepoint(x, w, dof)
    return float(np.clip(tail if tail < 1e-4 else _inverted(x, w, dof), 0.0, 1.0))


def _merged(weights: Array) -> tuple[Array, Array]:
    """Weights and degrees of freedom, the many smallest made one of equal mean and variance."""
    w = np.sort(weights[weights > 0])
    small = np.cumsum(w**2) <= NEGLIGIBLE_VARIANCE * (w @ w)
    rest, kept = w[small], w[~small]
    if len(rest) < 2:
        return w, np.ones(len(w))
    one = rest @ rest / rest.sum()
    return np.append(kept, one), np.append(np.ones(len(kept)), rest.sum() / one)


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

    def slope(t: float) -> float:
        return float(np.sum(dof * w / (1 - 2 * t * w)) - x)

    if slope(0.0) >= 0:
        return 1.0  # below the mean
    # K′ ≥ dof·w/(1 − 2tw) of the largest weight, which alone reaches x at the upper end.
    t = brentq(slope, 0.0, 0.5 - 0.5 * dof[w.argmax()] / (2 * x))
    K = -0.5 * float(dof @ np.log1p(-2 * t * w))
    curvature = float(np.sum(2 * dof * (w / (1 - 2 * t * w)) ** 2))
    r, v = np.sqrt(2 * (t * x - K)), t * np.sqrt(curvature)
    return float(ndtr(-(r + np.log(v / r) / r)))


Order = NDArray[np.int64]


def permuted_statistics(
    statistic: Callable[[Order], float],
    n: int,
    count: int,
    seed: int,
    draw: Callable[[np.random.Generator], Order] | None = None,
) -> Array:
    """Return the statistic of `count` random orders of n rows, whatever the number of threads."""
    lanes = min(available_threads(), count)
    stop = Event()

    def one(number: int) -> float:
        rng = np.random.default_rng([seed, number])
        return statistic(rng.permutation(n) if draw is None else draw(rng))

    def work(lane: int) -> list[float]:
        return [one(number) for number in range(lane, count, lanes) if not stop.is_set()]

    return np.concatenate([np.array(part) for part in run_threads(work, lanes, stop)])


@dataclass(frozen=True, eq=False)
class Dense:
    """n×n arrays K̃ and L̃."""

    K: Array
    L: Array

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.K)

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.vdot(self.K, self.L)) / self.n**2

    @cached_property
    def spectra(self) -> tuple[NullSpectrum, NullSpectrum]:
        """By eigenvalues of the n×n arrays."""
        first, second = (
            NullSpectrum(positive_eigh(G)[0] / self.n, float(np.sum(np.diagonal(G) ** 2)))
            for G in (self.K, self.L)
        )
        return first, second

    def permuted(self, order: NDArray[np.int64]) -> float:
        """HSIC with the rows of the second variable in another order."""
        return float(_jit.permuted_product(self.K, self.L, order)) / self.n**2

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows."""
        return permuted_statistics(self.permuted, self.n, count, seed)


def centre(K: Array) -> Array:
    """HKH, in place."""
    mean = K.mean(axis=0)
    K -= mean
    K -= mean[:, None] - mean.mean()
    return K


@dataclass(frozen=True, eq=False)
class Factors:
    """Centred feature rows, K̃ = ΦΦᵀ and L̃ = ΨΨᵀ, of shapes (n, r) and (n, q)."""

    Phi: Array
    Psi: Array

    @classmethod
    def of(cls, Phi: Array, Psi: Array) -> Factors:
        """Centre the rows."""
        return cls(Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.Phi)

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.sum((self.Phi.T @ self.Psi) ** 2)) / self.n**2

    @cached_property
    def spectra(self) -> tuple[NullSpectrum, NullSpectrum]:
        """By eigenvalues of the covariances of the features."""
        first, second = (
            NullSpectrum(
                positive_eigh(F.T @ F / self.n)[0],
                float(np.sum(np.einsum("ij,ij->i", F, F) ** 2)),
            )
            for F in (self.Phi, self.Psi)
        )
        return first, second

    def permuted(self, order: NDArray[np.int64]) -> float:
        """HSIC with the rows of the second variable in another order."""
        return float(np.sum((self.Phi.T @ self.Psi[order]) ** 2)) / self.n**2

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows."""
        return permuted_statistics(self.permuted, self.n, count, seed)


@dataclass(frozen=True, eq=False)
class Streamed:
    """Moments of feature rows that are not kept."""

    moments: Moments

    @property
    def n(self) -> float:
        """Number of rows of equal weight."""
        return self.moments.effective_rows

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.sum(self.moments.covariance("phi", "psi") ** 2))

    @cached_property
    def spectra(self) -> tuple[NullSpectrum, NullSpectrum]:
        """By eigenvalues of the covariances; diagonals unknown, n being large."""
        first, second = (
            NullSpectrum(positive_eigh(self.moments.covariance(name, name))[0])
            for name in ("phi", "psi")
        )
        return first, second


@dataclass(frozen=True, eq=False)
class Levels:
    """Variables of few distinct values each: HSIC is a function of how often they occur together.

    Parameters
    ----------
    table : array of shape (g, h)
        Number of rows of each pair of values.
    Phi, Psi : arrays of shape (g, r) and (h, q)
        Features of the values.
    """

    table: NDArray[np.int64]
    Phi: Array
    Psi: Array

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.sum())

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(self.of(self.table[None])[0])

    def of(self, tables: NDArray[Any]) -> Array:
        """HSIC of tables with the same margins, stacked along the first axis."""
        share = self.table / self.n
        expected = np.outer(share.sum(axis=1), share.sum(axis=0))
        covariance = self.Phi.T @ (tables / self.n - expected) @ self.Psi
        return np.asarray(np.sum(covariance**2, axis=(1, 2)))

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows, drawn as tables of these margins."""
        margins = self.table.sum(axis=1), self.table.sum(axis=0)
        return self.of(random_table(*margins, seed=seed).rvs(count))
