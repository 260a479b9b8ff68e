"""The explained share: one definition for every estimator, measure and report.

    θ(f) = Cov(f, g) / Var f,    g the best function of s in the span of ψ

For groups that is the between-group share of the variance. For numbers g is a ridge fit, with εκ
on its coefficients (κ: `features.mixed.units_of`), and Cov(f, g) is meant, never Var g. The ε of a
penalty plays no part: measured with it, a large ε would hide what it leaves unpunished.

- In sample there is no correction for chance, and ε is 1e-6 for numbers, none for groups.
- Held out, with r the share on rows that did not fit f, and t = tr[C(C + εκ)⁻¹]/(n − 1) what
  chance explains of them, it is (r − t)/(1 − t): for numbers the largest of the means over the
  folds for ε = 1e-6, 1e-4 and 1e-2. n is Kish's count.
- A constant f has no share: it is NaN, not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.moments import Moments
from scalefair.penalties.factors import (
    CONTROL_EPS,
    Features,
    FunctionSpace,
    control_factor,
    normalized,
    partial_covariance,
)

HELD_OUT_EPS = (1e-6, 1e-4, 1e-2)
"""Ridges of g on held-out rows; the largest share counts."""

MOST_CHANCE = 0.5
"""Share that chance may explain before a larger ε is used instead, if there is one."""

CONSTANT = 1e-20
"""Variance of f, relative to that of what it was computed from, that is rounding error."""


def share_of_variance(explained: Any, variance: Any, size: Any) -> Array:
    """Cov(f, g) / Var f, each summed over the outputs; NaN where f is constant.

    `size` is the mean square of what f was computed from, whose rounding error is no variance.
    """
    constant = ~(np.asarray(variance) > CONSTANT * np.asarray(size))
    return np.where(constant, np.nan, explained / np.where(constant, 1.0, variance))


def corrected(raw: Any, chance: Any, left: Any = 1.0) -> Array:
    """(r − t)/(1 − t): the share without what chance explains; NaN where that is everything.

    Under control, t is a share of the variance `left` of f beyond what the control explains.
    """
    chance = np.asarray(chance, dtype=float)
    usable = chance < 1
    rest = np.where(usable, 1 - chance, 1.0)
    return np.where(usable, (raw - chance * left) / rest, np.nan)


def variance_of(moments: Moments, features: Features, coef: Array) -> Array:
    """βᵀC_φβ for each column β of `coef`."""
    return np.asarray(np.sum(coef * (moments.covariance(features, features) @ coef), axis=0))


def share_of_block(moments: Moments, eps: float | None = None) -> float:
    """Explained share in sample of rows whose φ is f itself, its columns being the outputs."""
    variance = float(np.trace(moments.covariance("phi", "phi")))
    explained = np.sum(normalized(moments, eps) ** 2)
    return float(share_of_variance(explained, variance, size_of_block(moments)))


def size_of_block(moments: Moments, name: str = "phi") -> float:
    """Mean square of a block, summed over its columns."""
    variance, mean = np.diagonal(moments.covariance(name, name)), moments.mean(name)
    return float(np.sum(variance + mean**2))


class HeldOut(NamedTuple):
    """Shares on held-out rows, not yet floored at 0, shape (number of ε, G)."""

    shares: Array
    chance: Array


def held_out_shares(moments: Moments, features: Features, coef: Array, outputs: int) -> HeldOut:
    """Return the corrected share of G predictors on rows that did not fit them, for each ε.

    `coef` (m, G·t) are of predictors of t = `outputs` outputs each.
    """
    space = FunctionSpace.of(moments)
    along = (partial_covariance(moments, features, space.name) @ space.basis).T @ coef
    squares = _by_predictor(along**2, outputs)
    variance = _by_predictor(variance_of(moments, features, coef)[None], outputs)[0]
    size = size_of_block(moments, "y")
    explained = np.stack([(1 / space.ridge(eps)) @ squares for eps in HELD_OUT_EPS])
    controlled = _by_predictor((control_factor(moments, features).T @ coef) ** 2, outputs)
    left = 1 - share_of_variance(controlled.sum(axis=0), variance, size)
    chance = np.array([space.freedom(eps) for eps in HELD_OUT_EPS]) / degrees_of_freedom(moments)
    raw = share_of_variance(explained, variance, size)
    return HeldOut(corrected(raw, chance[:, None], left), chance)


def degrees_of_freedom(moments: Moments) -> float:
    """n − 1, less what a control takes; n is Kish's count."""
    rows = moments.effective_rows - 1
    if "upsilon" in moments.blocks:
        values, _ = positive_eigh(moments.covariance("upsilon", "upsilon"))
        rows -= float(np.sum(values / (values + CONTROL_EPS)))
    return max(rows, np.finfo(float).tiny)


def _by_predictor(values: Array, outputs: int) -> Array:
    """Sum rows of numbers for each predictor and output over the outputs."""
    return np.asarray(values.reshape(len(values), values.shape[1] // outputs, outputs).sum(axis=2))


def group_counts(moments: Moments) -> Array:
    """Rows of each group of categories, shape (G,); none where s has no categories."""
    square = np.diagonal(moments.covariance("psi", "psi")) + moments.mean("psi") ** 2
    rows = square * moments.effective_rows
    counts: list[Array] = [np.zeros(0)]
    for kind, columns in moments.units.get("psi", ()):
        if kind == "groups":
            counts.append(rows[columns])
        elif kind == "cell":
            counts.append(rows[columns].sum(keepdims=True))
    return np.concatenate(counts)


def chance_of(moments: Moments) -> float:
    """Share that chance explains of a fold, with the largest ridge of g."""
    return FunctionSpace.of(moments).freedom(HELD_OUT_EPS[-1]) / degrees_of_freedom(moments)


def worst_of(folds: list[HeldOut]) -> Array:
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
    """The mean of held-out shares over the folds, floored at 0, and its standard error."""

    value: Array
    error: Array

    @classmethod
    def of(cls, folds: Array) -> ShareEstimate:
        """Return the estimate from the shares of each fold, along the first axis."""
        mean, error = mean_and_error(folds)
        return cls(np.maximum(mean, 0.0), error)

    def is_within(self, limit: float) -> NDArray[np.bool_]:
        """Return True where mean + ½ standard error ≤ limit.

        The half pays for taking the least error just inside the limit.
        """
        return np.asarray(self.value + self.error / 2 <= limit)


def mean_and_error(folds: Array) -> tuple[Array, Array]:
    """Mean over the folds (axis 0) and its standard error."""
    return folds.mean(axis=0), folds.std(axis=0, ddof=1) / np.sqrt(len(folds))
