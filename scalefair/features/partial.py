"""Rows without s or without y: NaN in their chunks, and the probability that a row has s."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from scalefair._typing import Array, Chunk
from scalefair.data.columns import TableStatistics
from scalefair.data.encoding import SensitiveEncoder
from scalefair.data.frames import Kind
from scalefair.errors import UselessColumnError

# Rows that P(known | x) is learnt from, and ψ from those among them that have s
KNOWN_SAMPLE_ROWS = 10_000
STRENGTHS = (1e-3, 1e-2, 1e-1)  # inverse ridges of P(known | x) that are tried
# Largest weight of a row that has s, relative to the mean, so that no single row decides
MAX_RATIO = 20.0
LEAST_OF_EACH = 20  # rows with and without s below which P(known | x) is taken to be constant


class PartialEncoder(SensitiveEncoder):
    """`SensitiveEncoder` of rows that may lack s: NaN in all columns of a row that lacks one."""

    @classmethod
    def check_present(cls, statistics: TableStatistics) -> None:
        """Raise ValueError if no row has an attribute."""
        for column in statistics.columns:
            if not (column.spread.weight or any(column.levels.values())):
                what = f"{cls.role} column {column.name!r} is missing in all {statistics.n_rows} rows"
                remedy = "give it for some rows, in sensitive_features or as sensitive_data=(X2, S2)"
                raise UselessColumnError(f"{what}, so dependence on it cannot be limited", remedy, column=column.name)

    def encode(self, s: Any) -> Array:
        """Return the rows of numbers and codes, or of NaN, float64 of shape (n, p)."""
        out = super().encode(s)
        out[np.isnan(out).any(axis=1)] = np.nan
        return out

    def _check_absent(self, name: str, kind: Kind, count: int) -> None:
        """Rows may lack s."""


def lacks(values: Any) -> NDArray[np.bool_]:
    """Return which rows have NaN."""
    return np.asarray(np.isnan(np.asarray(values, dtype=float)).any(axis=1))


@dataclass(frozen=True)
class Unknown:
    """Gives rows of a table without s, or without y, NaN in its place."""

    encoder: Any  # of the attributes
    n_targets: int

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the numeric chunk with s, y and weights."""
        n, s, y = chunk.n_rows, chunk.s, chunk.y
        s = np.full((n, self.encoder.n_features_in_), np.nan) if s is None else s
        y = np.full((n, self.n_targets), np.nan) if y is None else y
        return replace(chunk, s=s, y=y, weight=chunk.weights)


@dataclass(frozen=True, eq=False)
class WithoutTargets:
    """Sets y to NaN in the rows that are flagged, after the checks that y is finite."""

    flags: NDArray[np.bool_]

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with its missing targets."""
        y = np.array(chunk.y, dtype=float)
        y[self.flags[chunk.row : chunk.row + chunk.n_rows]] = np.nan
        return replace(chunk, y=y)


@dataclass(frozen=True, eq=False)
class Propensity:
    """P(s known | x) = 1/(1 + exp(−b − aᵀx)); rows that have s weigh P(known)/P(known | x)."""

    coef: Array
    intercept: float
    rate: float

    def weights(self, x: Any) -> Array:
        """Return P(known)/P(known | x), at most `MAX_RATIO`."""
        chance = expit(np.asarray(x, dtype=float) @ self.coef + self.intercept)
        return np.asarray(np.minimum(self.rate / np.maximum(chance, 1e-12), MAX_RATIO))

    @classmethod
    def learn(cls, sample: Chunk) -> Propensity | None:
        """Return the model; None unless it predicts the other half, by two standard errors."""
        known = ~lacks(sample.s)
        weight = sample.weights
        if min(known.sum(), (~known).sum()) < LEAST_OF_EACH:
            return None
        x = np.asarray(sample.x, dtype=float)
        center, scale = x.mean(axis=0), x.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        z, rate = (x - center) / scale, float(np.average(known, weights=weight))
        gains = []
        for C in STRENGTHS:
            half = LogisticRegression(C=C).fit(z[::2], known[::2], weight[::2])
            gains.append(_log_likelihood(half.predict_proba(z[1::2])[:, 1], known[1::2]))
        best = int(np.argmax(np.mean(gains, axis=1)))
        gain = gains[best] - _log_likelihood(np.full(len(known[1::2]), rate), known[1::2])
        if gain.mean() < 2 * gain.std() / np.sqrt(len(gain)):
            return None
        model = LogisticRegression(C=STRENGTHS[best]).fit(z, known, weight)
        coef = model.coef_[0] / scale
        return cls(coef, float(model.intercept_[0] - center @ coef), rate)


def _log_likelihood(chance: Array, known: NDArray[np.bool_]) -> Array:
    """Log of the chance of what happened, for each row."""
    return np.asarray(np.log(np.clip(np.where(known, chance, 1 - chance), 1e-12, 1.0)))
