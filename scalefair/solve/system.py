"""The linear system of the fair ridge, read off the moments, and what a solution of it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.penalties import PENALTIES, Features, normalized
from scalefair.statistics import Moments


class Solution(NamedTuple):
    """f(x) = intercept + φ(x)ᵀ coef, with coef of shape (m, t) and intercept of shape (t,)."""

    coef: Array
    intercept: Array


@dataclass(frozen=True, eq=False)
class System:
    """(gram + α·diag(ridge) + ηRRᵀ) β = target, for any α and η.

    Parameters
    ----------
    moments : Moments
        Moments of [φ, ψ, y].
    gram : array of shape (m, m)
        C_φ, or the uncentred ΦᵀΦ/n without intercept.
    target : array of shape (m, t)
        C_φy, or the uncentred Φᵀy/n without intercept.
    factor : array of shape (m, q)
        R of the penalty; always centred.
    share_factor : array of shape (m, q)
        R of `normalized`, which the explained share is defined by.
    ridge : array of shape (m,)
        Ridge of each feature relative to α.
    fit_intercept : bool
        Whether f has an intercept.
    features : tuple of str
        The blocks that make up Φ.
    """

    moments: Moments
    gram: Array
    target: Array
    factor: Array
    share_factor: Array
    ridge: Array
    fit_intercept: bool
    features: Features

    @classmethod
    def build(
        cls,
        moments: Moments,
        *,
        penalty: str = "normalized",
        eps: float = 1e-6,
        fit_intercept: bool = True,
        features: Features = ("phi",),
        ridge: Array | None = None,
    ) -> System:
        """Read the system off the moments; without a block "psi" there is no penalty."""
        gram = moments.covariance(features, features)
        target = moments.covariance(features, "y")
        if not fit_intercept:
            mean = moments.mean(*features)
            gram = gram + np.outer(mean, mean)
            target = target + np.outer(mean, moments.mean("y"))
        factor = share_factor = np.zeros((len(gram), 0))
        if "psi" in moments.blocks:
            share_factor = normalized(moments, eps, features)
            plain = PENALTIES[penalty] is normalized
            factor = share_factor if plain else PENALTIES[penalty](moments, eps, features)
        ridge = np.ones(len(gram)) if ridge is None else ridge
        return cls(moments, gram, target, factor, share_factor, ridge, fit_intercept, features)

    @property
    def mean(self) -> Array:
        """Mean of Φ."""
        return self.moments.mean(*self.features)

    def solution(self, coef: Array) -> Solution:
        """Join the intercept b = mean(y) − mean(Φ)β to the coefficients."""
        mean_y = self.moments.mean("y")
        intercept = mean_y - self.mean @ coef if self.fit_intercept else np.zeros_like(mean_y)
        return Solution(coef, intercept)

    def variance(self, coef: Array) -> float:
        """βᵀ C_φ β, the variance of the predictions, summed over the outputs."""
        total = float(np.sum(coef * (self.gram @ coef)))
        return total if self.fit_intercept else total - float(np.sum((self.mean @ coef) ** 2))

    def explained_share(self, coef: Array) -> float:
        """tr(BᵀRRᵀB) / tr(BᵀC_φB) with the normalised R; NaN for a constant f, where it is 0/0."""
        explained = np.asarray(np.sum((self.share_factor.T @ coef) ** 2))
        return float(shares(explained, np.asarray(self.variance(coef)), self.moments))


def shares(explained: Array, variance: Array, moments: Moments) -> Array:
    """explained / variance, NaN where f is constant."""
    constant = is_constant(variance, moments)
    return np.where(constant, np.nan, explained / np.where(constant, 1.0, variance))


def is_constant(variance: Array, moments: Moments) -> NDArray[np.bool_]:
    """Say whether a variance of f is no more than rounding error of y."""
    size = float(np.sum(np.diagonal(moments.covariance("y", "y")) + moments.mean("y") ** 2))
    return np.asarray(variance <= 1e-24 * size)


def best_scale(system: System, coef: Array) -> Array:
    """a = tr(cᵀβ)/tr(βᵀCβ), the scale of least error, for each β of shape (..., m, t).

    It is free under a limit on the share, which does not depend on it. A constant f keeps its
    scale: there is only rounding error to blow up.
    """
    norm = np.einsum("...mt,...mt->...", coef, np.matmul(system.gram, coef))
    along = np.einsum("...mt,mt->...", coef, system.target)
    constant = is_constant(norm, system.moments)
    return np.where(constant, 1.0, along / np.where(constant, 1.0, norm))
