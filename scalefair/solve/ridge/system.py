"""The linear system of the fair ridge, read off the moments, and what its solutions have in common.

    (C + αD + ηRRᵀ) β = c,    β(η) = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c,    A = C + αD

ηRRᵀ is never formed: at η = 1e8 it would swallow eight digits of C. η = ∞ is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from scalefair import penalties
from scalefair._linalg import factorize, positive_eigh, thin_root, times_each
from scalefair._typing import Array
from scalefair.moments import Moments

NULL = 1e-13  # penalty directions below this share of the strongest are numerically none


class Solution(NamedTuple):
    """f(x) = intercept + φ(x)ᵀ coef, with coef of shape (m, t) and intercept of shape (t,)."""

    coef: Array
    intercept: Array


@dataclass(frozen=True, eq=False)
class System:
    """(gram + α·diag(ridge) + ηRRᵀ) β = target, for any α and η."""

    moments: Moments
    mean: Array  # of Φ, (m,)
    covariance: Any  # C_φ of the rows with s; only products with it are needed
    gram: Any  # C_φ, or the uncentred ΦᵀΦ/n without intercept
    target: Array  # C_φy, or the uncentred Φᵀy/n without intercept, (m, t)
    factor: Array  # R of the penalty, always centred, (m, q)
    share_factor: Array  # R of the explained share, whatever the penalty and its ε
    ridge: Array  # of each feature, relative to α
    fit_intercept: bool
    features: penalties.Features  # the blocks that make up Φ

    @classmethod
    def build(
        cls, moments: Moments, *, covariance: Any = None, gram: Any = None,
        penalty: str = "normalized", eps: float | None = None, fit_intercept: bool = True,
        features: penalties.Features = ("phi",), ridge: Array | None = None,
    ) -> Self:  # fmt: skip
        """Read the system off the moments; `covariance` and `gram` where these lack them."""
        mean = moments.mean(*features)
        target = moments.covariance(features, "y")
        if not fit_intercept:
            target = target + np.outer(mean, moments.mean("y"))
        judged = moments.judged
        if covariance is None:
            covariance = moments.covariance(features, features)
            gram = covariance if fit_intercept else covariance + np.outer(mean, mean)
            if judged is not moments:
                covariance = judged.covariance(features, features)
        share_factor = factor = np.zeros((len(mean), 0))
        if penalties.attribute(moments) is not None:
            share_factor = factor = penalties.normalized(judged, None, features)
            ordinary = judged is moments and penalties.PENALTIES[penalty] is penalties.normalized
            if eps is not None or not ordinary:
                factor = penalties.PENALTIES[penalty](moments, eps, features)
        ridge = np.ones(len(mean)) if ridge is None else ridge
        return cls(moments, mean, covariance, gram, target, factor, share_factor, ridge, fit_intercept, features)

    @cached_property
    def deviation(self) -> Array:
        """D with C_φ = DᵀD."""
        return thin_root(self.covariance)

    def explained_share(self, coef: Array) -> float:
        """Explained share in sample; NaN for a constant f, and without sensitive attributes."""
        if penalties.attribute(self.moments) is None:
            return float("nan")
        explained = np.sum((self.share_factor.T @ coef) ** 2)
        variance = np.sum(coef * (self.covariance @ coef))
        size = penalties.size_of_block(self.moments, "y")
        return float(penalties.share_of_variance(explained, variance, size))


def gain(eta: Array | float, strength: Array) -> Array:
    """1/(1/η + s), Woodbury's factor for the strength s; 0 where η = ∞ cannot reach a direction."""
    eta = np.asarray(eta, dtype=float)
    with np.errstate(divide="ignore", over="ignore"):  # of the smallest numbers, too, it is ∞
        inverse = 1.0 / eta[..., None]
    weak = strength <= NULL * strength.max(initial=0.0)
    nothing = (eta[..., None] == 0) | ((inverse == 0) & weak)
    return np.where(nothing, 0.0, 1.0 / np.where(nothing, 1.0, inverse + strength))


def largest_strength(system: System, alpha: float) -> float:
    """Largest eigenvalue of RᵀA⁻¹R; 0 without penalty."""
    solved = factorize(system.gram + alpha * np.diag(system.ridge)).solve(system.factor)
    return float(positive_eigh(system.factor.T @ solved)[0].max(initial=0.0))


class Directions(NamedTuple):
    """β(η) = A⁻¹c − vectors · gain(η, strength) · along: Woodbury's identity in the eigenbasis."""

    vectors: Array  # A⁻¹R turned, (m, q)
    strength: Array  # eigenvalues of RᵀA⁻¹R, (q,)
    along: Array  # how far A⁻¹c goes along each, (q, t)

    @classmethod
    def of(cls, factor: Array, solved: Array, coef: Array) -> Directions:
        """Decompose RᵀA⁻¹R, from R, A⁻¹R and A⁻¹c."""
        inner = factor.T @ solved
        strength, turn = positive_eigh((inner + inner.T) / 2)
        return cls(solved @ turn, strength, turn.T @ (factor.T @ coef))

    def step(self, eta: float) -> Array:
        """Return what the penalty takes away, A⁻¹c − β(η)."""
        return np.asarray(self.vectors @ (gain(eta, self.strength)[:, None] * self.along))


def best_scale(coef: Array, product: Array, target: Array, size: float = 0.0) -> Array:
    """a = tr(cᵀβ)/tr(βᵀCβ), the scale of least error, for each β (…, m, t); 1 if f is constant."""
    norm = np.einsum("...mt,...mt->...", coef, product)
    along = np.einsum("...mt,mt->...", coef, target)
    return np.nan_to_num(penalties.share_of_variance(along, norm, size), nan=1.0)


def rescale(system: System, coef: Array) -> Array:
    """β ← aβ with the scale of least error, for each β of shape (..., m, t)."""
    product = times_each(system.gram, coef)
    scale = best_scale(coef, product, system.target, penalties.size_of_block(system.moments, "y"))
    return np.asarray(coef * scale[..., None, None])


def spread(system: System) -> float:
    """Standard deviation of y, or its root mean square without intercept; 1 where y is 0."""
    mean_counts = 1e-24 if system.fit_intercept else 1.0
    variance, mean = np.diagonal(system.moments.covariance("y", "y")), system.moments.mean("y")
    return float(np.sqrt(np.sum(variance + mean_counts * mean**2))) or 1.0
