"""The linear system of the fair ridge, read off the moments, and what a solution of it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalefair._linalg import thin_root
from scalefair._typing import Array
from scalefair.moments import Moments
from scalefair.penalties import PENALTIES, Features, attribute, normalized
from scalefair.penalties.share import is_constant, share_of_variance, size_of_block


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
        R of the explained share, whatever the penalty and its ε.
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
        eps: float | None = None,
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
        factor, share_factor = both_factors(moments, penalty, eps, features)
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

    @cached_property
    def covariance(self) -> Any:
        """C_φ, centred also where the Gram matrix is not; all that is asked of it is a product."""
        return self.moments.covariance(self.features, self.features)

    @cached_property
    def deviation(self) -> Array:
        """D with C_φ = DᵀD."""
        return thin_root(self.covariance)

    def variance(self, coef: Array) -> float:
        """βᵀ C_φ β, the variance of the predictions, summed over the outputs."""
        return float(np.sum(coef * (self.covariance @ coef)))

    def explained_share(self, coef: Array) -> float:
        """Explained share in sample; NaN for a constant f, and without sensitive attributes."""
        if attribute(self.moments) is None:
            return float("nan")
        explained = np.sum((self.share_factor.T @ coef) ** 2)
        size = size_of_block(self.moments, "y")
        return float(share_of_variance(explained, self.variance(coef), size))


def both_factors(
    moments: Moments, penalty: str, eps: float | None, features: Features
) -> tuple[Array, Array]:
    """R of the penalty and R of the share; without sensitive attributes they have no columns."""
    if attribute(moments) is None:
        none = np.zeros((sum(moments.blocks[name] for name in features), 0))
        return none, none
    share_factor = normalized(moments, None, features)
    same = PENALTIES[penalty] is normalized and eps is None
    return share_factor if same else PENALTIES[penalty](moments, eps, features), share_factor


def best_scale(system: System, coef: Array) -> Array:
    """a = tr(cᵀβ)/tr(βᵀCβ), the scale of least error, for each β of shape (..., m, t).

    It is free under a limit on the share, which does not depend on it. A constant f keeps its
    scale: there is only rounding error to blow up.
    """
    norm = np.einsum("...mt,...mt->...", coef, np.matmul(system.gram, coef))
    along = np.einsum("...mt,mt->...", coef, system.target)
    constant = is_constant(norm, size_of_block(system.moments, "y"))
    return np.where(constant, 1.0, along / np.where(constant, 1.0, norm))
