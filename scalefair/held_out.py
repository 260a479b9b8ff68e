"""Explained shares on rows that did not fit the predictor, and how they are held to a limit.

With r the share of `penalties` on such rows, and t = ρ tr[C(C + εκ)⁻¹]/(n − 1) what chance explains of them, the
held-out share is (r − t)/(1 − t): for numbers the largest of the means over the folds for ε = 1e-6, 1e-4 and 1e-2. n is
Kish's count, and ρ is 1 where f varies as much at rare s as at common s (`ChanceRatio`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scalefair._linalg import inverse_root
from scalefair._typing import Array
from scalefair.moments import Moments
from scalefair.penalties import (
    CONTROL_EPS,
    HELD_OUT_EPS,
    MOST_CHANCE,
    Features,
    FunctionSpace,
    control_factor,
    corrected,
    degrees_of_freedom,
    partial_covariance,
    share_of_variance,
    size_of_block,
    variance_of,
)

LEAST_RESIDUAL = 0.25  # 1 − leverage of a row at least: two rows of a group have ½
RATIO_EPS = HELD_OUT_EPS[1]  # ridge of the functions of numbers that ρ is measured with
MARGIN = 0.75  # standard errors between a held-out share and its limit


class HeldOut(NamedTuple):
    """Shares on held-out rows, not yet floored at 0, shape (number of ε, G)."""

    shares: Array
    chance: Array

    @classmethod
    def joined(cls, parts: list[HeldOut]) -> HeldOut:
        """Return the shares that several judges say, side by side as for more ε."""
        shares, chance = zip(*parts, strict=True)
        return cls(np.concatenate(shares), np.concatenate(chance))


@dataclass(frozen=True, eq=False)
class ChanceRatio:
    """How much more chance explains of f = φᵀβ than if f varied as much at every s.

    Chance explains Σ hᵢ Var(f|sᵢ)/n² with h = ψᵀ(C + εκ)⁻¹ψ the leverages, so that rare s count as
    much as common ones. ρ = βᵀDβ/βᵀEβ: the mean of the squares of f − g with weights h, and
    without. Equal variances (ρ = 1) would take too much off a share where f varies less at rare s.
    """

    weighted: Array  # D
    plain: Array  # E

    @classmethod
    def of(cls, moments: Moments, features: Features, rows: Mapping[str, Array], weight: Array) -> ChanceRatio:
        """Return the ratio from the moments of a fold, and blocks of some of its rows."""
        space, w = FunctionSpace.of(moments), weight / moments.weight
        F = np.hstack([rows[name] for name in features]) - moments.mean(*features)
        Z = rows[space.name] - moments.mean(space.name)
        if "upsilon" in moments.blocks:
            whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
            U = (rows["upsilon"] - moments.mean("upsilon")) @ whiten
            F = F - U @ control_factor(moments, features).T
            Z = Z - U @ control_factor(moments, space.name).T
        Z, ridge = Z @ space.basis, space.ridge(RATIO_EPS)
        h = Z**2 @ (1 / ridge)
        # E(f − g)² = Var(f|s)(1 − 2H + H²)ᵢᵢ; rows that are nearly alone with their s say nothing.
        left = 1 - w * (1 + 2 * h - Z**2 @ (space.noise / ridge**2))
        w = np.where(left > LEAST_RESIDUAL, w, 0.0)
        along = partial_covariance(moments, features, space.name) @ space.basis
        R = (F - Z @ (along / ridge).T) / np.sqrt(np.maximum(left, LEAST_RESIDUAL))[:, None]
        roots = (np.sqrt(each / max(each.sum(), np.finfo(float).tiny))[:, None] * R for each in (w * w * h, w))
        weighted, plain = (root.T @ root for root in roots)  # half the work, as both are symmetric
        return cls(weighted, plain)

    def of_predictors(self, coef: Array, outputs: int) -> Array:
        """Return ρ of each predictor, coef (m, G·t)."""
        each = [np.sum(coef * (matrix @ coef), axis=0) for matrix in (self.weighted, self.plain)]
        weighted, plain = _by_predictor(np.stack(each), outputs)
        return np.where(plain > 0, weighted / np.where(plain > 0, plain, 1.0), 1.0)


def held_out_shares(
    moments: Moments, features: Features, coef: Array, outputs: int, ratio: ChanceRatio | None = None, *,
    var_f: Array | None = None,
) -> HeldOut:  # fmt: skip
    """Return the corrected share of G predictors, coef (m, G·t), on rows that did not fit them."""
    space = FunctionSpace.of(moments)
    along = (partial_covariance(moments, features, space.name) @ space.basis).T @ coef
    squares = _by_predictor(along**2, outputs)
    var_f = variance_of(moments, features, coef) if var_f is None else var_f
    variance = _by_predictor(var_f.reshape(1, -1), outputs)[0]
    size = size_of_block(moments, "y")
    explained = np.stack([(1 / space.ridge(eps)) @ squares for eps in HELD_OUT_EPS])
    controlled = _by_predictor((control_factor(moments, features).T @ coef) ** 2, outputs)
    left = 1 - share_of_variance(controlled.sum(axis=0), variance, size)
    chance = np.array([space.freedom(eps) for eps in HELD_OUT_EPS]) / degrees_of_freedom(moments)
    raw, expected = share_of_variance(explained, variance, size), chance[:, None]
    if ratio is not None:
        # Few rows may say anything of ρ: chance does not explain more than all. Of numbers at rare s
        # residuals hold what the ridge left of their means, which must not pass for chance.
        most = 1.0 if space.ridged.any() else 1 / np.sqrt(np.maximum(expected, np.finfo(float).tiny))
        expected = expected * np.minimum(ratio.of_predictors(coef, outputs), most)
    return HeldOut(corrected(raw, expected, left), chance)


def _by_predictor(values: Array, outputs: int) -> Array:
    """Sum rows of numbers for each predictor and output over the outputs."""
    return np.asarray(values.reshape(len(values), values.shape[1] // outputs, outputs).sum(axis=2))


def worst_of(folds: Sequence[HeldOut]) -> Array:
    """Return the shares of each fold, shape (K, G), for the ε of the largest mean over the folds.

    An ε with which chance explains more than half of any fold is left out where another is there.
    """
    shares = np.stack([fold.shares for fold in folds], axis=1)  # (number of ε, K, G)
    chance = np.max([fold.chance for fold in folds], axis=0)
    usable = chance <= MOST_CHANCE
    usable[int(np.argmin(chance))] = True
    shares = shares[usable]
    mean = shares.mean(axis=1)
    worst = np.argmax(np.where(np.isnan(mean), -np.inf, mean), axis=0)
    return np.asarray(np.take_along_axis(shares, worst[None, None], axis=0)[0])


@dataclass(frozen=True, eq=False)
class ShareEstimate:
    """The mean of held-out shares over the folds, floored at 0, and its standard error.

    Few folds say little of an error, and too little just where they say too little of the share:
    it is at least the one that normal predictions would have.
    """

    value: Array
    error: Array
    rows: float  # Kish's count of the rows that judge

    @classmethod
    def of(cls, folds: Array, rows: float) -> ShareEstimate:
        """Return the estimate from the shares of each fold, along the first axis."""
        mean, error = mean_and_error(folds)
        value = np.maximum(mean, 0.0)
        return cls(value, np.maximum(error, _normal_error(value, rows)), rows)

    def __getitem__(self, index: Any) -> ShareEstimate:
        """Return the estimate of some predictors."""
        return ShareEstimate(self.value[index], self.error[index], self.rows)

    def bound(self, limit: float) -> Array:
        """Return what must be within a limit: the mean and a margin for choosing just inside it."""
        return self.value + MARGIN * np.maximum(self.error, _normal_error(limit, self.rows))


def _normal_error(share: Any, rows: float) -> Array:
    """√(4θ(1 − θ)²/n), the standard error of a share θ of normal predictions."""
    return np.asarray(2 * (1 - share) * np.sqrt(share / rows))


NO_SHARE = ShareEstimate(np.asarray(np.nan), np.asarray(np.nan), np.nan)


def mean_and_error(folds: Array) -> tuple[Array, Array]:
    """Mean over the folds (axis 0) and its standard error."""
    return folds.mean(axis=0), folds.std(axis=0, ddof=1) / np.sqrt(len(folds))
