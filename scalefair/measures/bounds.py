"""Confidence bounds of explained shares, on rows that did not fit the predictors.

With c = Cov(f, z)/sd(f) for attributes z of unit covariance the share is θ = |c|². On n rows

    ĉ = c + e,   e ~ N(0, Ω/n),   so that   |ĉ|² = (√θ + e₁)² + |e₂|²,

e₁ along c, e₂ across it. Far from 0 the first term decides, and |ĉ|² is normal with the variance Var(u)/n, u = [2gf̃ −
g² − θf̃²]/Var f the influence of a row; near 0 it is a weighted sum of χ², with mean tr Ω/n, which chance explains, and
variance 2 tr Ω²/n². Both are kept: e₁ has Student's distribution, with as many degrees of freedom as its estimated
variance has (rare groups and heavy tails leave few), after Hall's transformation, which takes away what the skewness of
the influences does to it (rows of a rare group are few and far out), and |e₂|² that of a χ² of its mean and variance. A
bound is the share at which the statistic falls below what was observed with a given probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammainc, stdtr, stdtrit

from scalefair._linalg import inverse_root
from scalefair._typing import Array
from scalefair.held_out import LEAST_RESIDUAL
from scalefair.moments import Moments
from scalefair.penalties import (
    CONTROL_EPS,
    HELD_OUT_EPS,
    FunctionSpace,
    control_factor,
    partial_covariance,
    share_of_variance,
)

ERROR_ROWS = 20_000  # Rows that variances of shares are estimated from; of more, a sample of so many
LEAST_FREEDOM = 2.0  # Degrees of freedom of Student's distribution at least
LEAST_VARIANCE = 1e-12  # Of the influence of rows, in units of Var f: where s determines f there is none
MAX_PRODUCTS = 2e7  # Products of a row's features for Ω at most: of many features, fewer rows
MAX_NEEDED = 1e4  # At most so many times the available rows are recommended
PREDICTORS = ("share", "error", "noise", "squares", "along", "freedom", "skew")  # What is held of each predictor

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True, eq=False)
class ShareDistribution:
    """Shares of G predictors, corrected for chance, and what their sampling distribution needs."""

    share: Array  # θ̂, below 0 where chance has it so; NaN for a constant
    error: Array  # √(Var(u)/n + 2 tr(P²)/n²)
    rows: float  # n, by Kish
    noise: Array  # tr Ω
    squares: Array  # tr Ω²
    along: Array  # n Var e₁ = Var(u)/4θ, of the sample
    freedom: Array  # its degrees of freedom
    parts: int = 1  # folds, each of which corrects its own share for chance
    skew: Array | float = 0.0  # skewness of the influences on e₁

    def __getitem__(self, at: Any) -> ShareDistribution:
        """Return some of the predictors."""
        own = {name: np.broadcast_to(vars(self)[name], self.share.shape)[at] for name in PREDICTORS}
        return replace(self, **own)

    def at_rows(self, rows: float) -> ShareDistribution:
        """Return what so many rows would say, if the share were 0 or as estimated."""
        freedom = np.maximum(self.freedom * rows / self.rows, LEAST_FREEDOM)
        return replace(self, rows=rows, freedom=freedom, share=np.maximum(self.share, 0.0))

    def probability(self, share: Any) -> Array:
        """P(θ̂ ≤ what was observed) where the true share is `share`: small, if that is too much.

        ∫ F₂(s − (√θ + e₁)²) dF₁(e₁), F₂ of |e₂|², over e₁ with |√θ + e₁| ≤ √s.
        """
        root, n, K = np.sqrt(np.broadcast_to(share, self.share.shape)), self.rows, self.parts
        deviation = np.sqrt(self.along / n)
        # A share below 0 says no more than 0: else luck would certify what the rows cannot tell.
        statistic = np.sqrt(np.maximum(self.share, 0.0) + K * self.noise / n)
        # Across c, and along it between the folds, there is only chance.
        mean = np.maximum(K * self.noise - self.along, 0.0) / n
        variance = 2 * np.maximum(K * self.squares - self.along**2, 0.0) / n**2
        # t + τ + 2τt² + 4/3τ²t³ has Student's distribution, τ = skewness/6√n (P. Hall, 1992).
        tilt, x = self.skew / (6 * np.sqrt(n)), (np.stack([-statistic, statistic]) - root) / deviation
        first, last = stdtr(self.freedom, x + tilt + 2 * tilt * x**2 + 4 / 3 * tilt**2 * x**3)
        half = (last - first) / 2
        upright = stdtrit(self.freedom, first + half + half * _NODES[:, None])
        k = np.where(np.abs(tilt) < 1e-6, 1.0, tilt)
        tilted = np.where(k == tilt, (np.cbrt(1 + 6 * k * (upright - k)) - 1) / (2 * k), upright - tilt)
        e = deviation * tilted
        left = statistic**2 - (root + e) ** 2
        # P(X ≤ left) for X = aχ²_k of this mean and variance; where there is none, left ≥ 0.
        some = (mean > 0) & (variance > 0)
        mean, variance = np.where(some, mean, 1.0), np.where(some, variance, 1.0)
        inside = gammainc(mean**2 / variance, np.maximum(left, 0.0) * mean / variance)
        return np.asarray(half * (_WEIGHTS @ np.where(some, inside, left >= 0)))

    def upper(self, confidence: float) -> Array:
        """Return the upper bounds: larger shares are refuted at this confidence."""
        return self.lower(1 - confidence)

    def lower(self, confidence: float) -> Array:
        """Return the lower bounds: smaller shares are refuted at this confidence."""
        low, high = np.zeros_like(self.share), np.ones_like(self.share)
        none = self.probability(0.0) <= confidence
        for _ in range(40):
            middle = (low + high) / 2
            above = self.probability(middle) > confidence
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(np.isnan(self.share), np.nan, np.where(none, 0.0, high))

    def rows_for(self, limit: float, confidence: float) -> float:
        """About how many rows the first predictor needs to pass; ∞ where its share is too large."""
        one = self[:1]
        if not one.share[0] < 0.99 * limit:
            return np.inf
        low, high = one.rows / 10, MAX_NEEDED * one.rows
        if one.at_rows(high).probability(limit)[0] > 1 - confidence:
            return np.inf
        while high > 1.02 * low:
            middle = np.sqrt(low * high)
            passes = one.at_rows(middle).probability(limit)[0] <= 1 - confidence
            low, high = (low, middle) if passes else (middle, high)
        return float(high)


def share_distributions(
    moments: Moments, rows: Mapping[str, Array], weight: Array, *, outputs: int = 1,
    size: float = 0.0, epses: Sequence[float] = HELD_OUT_EPS,
) -> list[ShareDistribution]:  # fmt: skip
    """Return the distributions for each ε; functions of groups have none, and one distribution.

    `moments` are of all rows, block "phi" the predictions (G·t columns, t = `outputs` of each
    predictor), and `rows` hold the blocks of some of them. A variance far below `size` is rounding.
    """
    space = FunctionSpace.of(moments)
    centred = {name: part - moments.mean(name) for name, part in rows.items()}
    F, Z, left, held = centred["phi"], centred[space.name], centred["phi"], 1.0
    if "upsilon" in moments.blocks:
        whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
        U = centred["upsilon"] @ whiten
        left = F - U @ control_factor(moments, "phi").T
        Z, held = Z - U @ control_factor(moments, space.name).T, 1.0 + np.sum(U**2, axis=1)
    problem = _Problem(
        moments, space, F, left, Z @ space.basis, weight / weight.sum(),
        held * weight / moments.weight, weight / moments.weight, outputs, size,
    )  # fmt: skip
    return [problem.at(eps) for eps in (epses if space.ridged.any() else epses[:1])]


@dataclass(frozen=True, eq=False)
class _Problem:
    """Rows of predictions F, of what a control leaves of them, and of attributes Z."""

    moments: Moments
    space: FunctionSpace
    F: Array
    left: Array
    Z: Array
    p: Array  # weights of the rows, of sum 1
    held: Array  # leverage of intercept and control
    unit: Array  # weights relative to that of all rows
    outputs: int
    size: float

    def _sum(self, values: Array) -> Array:
        """Sum over the outputs of each predictor, shape (k, G)."""
        return np.asarray(values.reshape(len(values), -1, self.outputs).sum(axis=2))

    def at(self, eps: float) -> ShareDistribution:
        """Return the distribution of the shares with this ε."""
        m, space, n = self.moments, self.space, self.moments.effective_rows
        ridge = space.ridge(eps)
        c = partial_covariance(m, "phi", space.name) @ space.basis
        total = np.diagonal(m.covariance("phi", "phi"))[None]
        variance, explained = self._sum(total)[0], self._sum((c**2 @ (1 / ridge))[None])[0]
        size = np.maximum(self._sum(total + m.mean("phi") ** 2)[0], self.size)
        raw = share_of_variance(explained, variance, size)
        g = self.Z @ (c / ridge).T
        h = self.Z**2 @ (1 / ridge)
        residual = np.maximum(1 - self.held - self.unit * h, LEAST_RESIDUAL)
        variance = np.where(np.isnan(raw), 1.0, variance)
        scatter = self._sum((self.left - g) ** 2) * (self.p / residual)[:, None] / variance
        noise = h @ scatter
        share = raw - noise / n
        parts = (self._sum(part) / variance for part in (g * self.left, g**2, self.F**2))
        error, along, freedom, skew = self._influence(raw, share, *parts)
        error = np.sqrt(error + 2 * np.sum((space.values / ridge) ** 2) / n**2)
        # tr Ω², Ω = Σ_i scatter_i z_i z_iᵀ
        some = slice(int(np.clip(MAX_PRODUCTS // self.Z.shape[1] ** 2, 1000, len(self.Z))))
        Z, factor = (self.Z / np.sqrt(ridge))[some], len(self.Z) / len(self.Z[some])
        omegas = (Z.T @ (factor * column[:, None] * Z) for column in scatter[some].T)
        squares = np.array([np.sum(omega**2) for omega in omegas])
        return ShareDistribution(share, error, n, noise, squares, along, freedom, skew=skew)

    def _influence(
        self, raw: Array, share: Array, product: Array, own: Array, square: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Var(u)/n, u = 2gf̃ − g² − θf̃²; Var(u)/4θ at the θ of the sample; its freedom; and the skewness of u.

        A variance has 2n/(kurtosis − 1) degrees of freedom.
        """
        n, known = self.moments.effective_rows, np.where(raw > 0, raw, 1.0)
        x = (product - own / 2 - known * square / 2) / np.sqrt(known)
        x = x - self.p @ x
        squared = x * x
        along = np.maximum(self.p @ squared, LEAST_VARIANCE)
        spread, skew = self._variance(squared) / along**2, self.p @ (squared * x) / along**1.5
        freedom = np.maximum(2 * n / np.maximum(spread, LEAST_VARIANCE), LEAST_FREEDOM)
        return self._variance(2 * product - own - share * square) / n, along, freedom, skew

    def _variance(self, values: Array) -> Array:
        """Weighted variance of columns."""
        return np.asarray(self.p @ (values - self.p @ values) ** 2)


def pooled(folds: Sequence[ShareDistribution]) -> ShareDistribution:
    """Return the distribution of the mean of the shares of folds, each of other rows."""
    K = len(folds)
    means = {name: np.mean([vars(fold)[name] for fold in folds], axis=0) for name in PREDICTORS}
    squares = np.mean([fold.error**2 for fold in folds], axis=0)
    means |= {"error": np.sqrt(squares / K), "freedom": K * means["freedom"]}
    return ShareDistribution(**means, rows=sum(fold.rows for fold in folds), parts=K)
