"""What n·HSIC would be if the variables were independent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr

from scalefair._typing import Array

SMALL = 1e-6
"""Part of the variance whose weights are merged into one of the same mean and variance."""

TERMS = 2**17
"""Most terms of the inversion; only a single weight, whose characteristic function falls slowly,
comes near them."""


@dataclass(frozen=True, eq=False)
class Spectrum:
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


def permutation_moments(n: float, a: Spectrum, b: Spectrum) -> tuple[float, float]:
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


def spectral_sf(x: float, n: float, a: Spectrum, b: Spectrum) -> float:
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
    small = np.cumsum(w**2) <= SMALL * (w @ w)
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
    while start < TERMS:
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
