"""Losses of numbers: squared, Huber and quantile of the residual r = y − f; Poisson and gamma.

The last two are for numbers that are not negative, with a logarithmic link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit

from scalefair._typing import Array
from scalefair.kernels.stationary import weighted_middle
from scalefair.losses.base import Loss, Start, check_domain, one_score_start

WIDTHS = 20  # default widths of the quantile loss in a standard deviation of y


@dataclass(frozen=True)
class Squared(Loss):
    """V = (y − f)²: the fit is that of :class:`scalefair.FairKernelRidge` with the same alpha."""

    def value(self, f: Array, y: Array) -> Array:
        """(y − f)²."""
        return np.asarray((y - f) ** 2)

    def gradient(self, f: Array, y: Array) -> Array:
        """2(f − y)."""
        return np.asarray(2.0 * (f - y))

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """2."""
        return np.full(np.shape(f), 2.0)

    def scale(self, mean: Array, spread: float) -> float:  # noqa: ARG002
        """The spread of y: it has no other unit."""
        return spread

    def start(self, mean: Array) -> Start:
        """At the mean."""
        return one_score_start(float(mean[0]), -2.0, 2.0)


@dataclass(frozen=True)
class Huber(Loss):
    """V = r² for |r| ≤ δ and 2δ|r| − δ² beyond, r = y − f: squared, but robust.

    Parameters
    ----------
    delta : float or None
        δ in the units of y; None: 1.345 robust standard deviations of y.
    """

    delta: float | None = None

    def fitted(self, y: Array, weight: Array | None) -> Huber:
        """Set δ if it is None."""
        delta = 1.345 * robust_deviation(y, weight) if self.delta is None else self.delta
        return replace(self, delta=_positive("delta", delta))

    @property
    def _delta(self) -> float:
        return _given(self, "delta", self.delta)

    def value(self, f: Array, y: Array) -> Array:
        """r² or 2δ|r| − δ²."""
        size = np.abs(y - f)
        near = np.minimum(size, self._delta)
        return np.asarray(near * (2.0 * size - near))

    def gradient(self, f: Array, y: Array) -> Array:
        """−2r, cut at ±2δ."""
        return np.asarray(2.0 * np.clip(f - y, -self._delta, self._delta))

    def curvature(self, f: Array, y: Array) -> Array:
        """2 or 0."""
        return np.asarray(2.0 * (np.abs(y - f) <= self._delta))

    def scale(self, mean: Array, spread: float) -> float:  # noqa: ARG002
        """δ, or the spread of y where that is less: outliers do not change it."""
        return min(self._delta, spread)

    def start(self, mean: Array) -> Start:
        """The squared loss's."""
        return Squared().start(mean)._replace(exact=False)


@dataclass(frozen=True)
class Quantile(Loss):
    """V = τr + h log(1 + exp(−r/h)), r = y − f: the pinball loss, rounded off over a width h.

    It tends to max(τr, (τ − 1)r) as h → 0. f is then the τ-quantile of y plus logistic noise of scale h.

    Parameters
    ----------
    level : float in (0, 1)
        τ.
    width : float or None
        h in the units of y; None: a twentieth of the robust standard deviation of y.
    """

    level: float = 0.5
    width: float | None = None

    def fitted(self, y: Array, weight: Array | None) -> Quantile:
        """Set h if it is None."""
        if not (isinstance(self.level, Real) and 0.0 < self.level < 1.0):
            raise ValueError(f"level={self.level!r} must be between 0 and 1, such as 0.5 or 0.9")
        width = robust_deviation(y, weight) / WIDTHS if self.width is None else self.width
        return replace(self, width=_positive("width", width))

    @property
    def _width(self) -> float:
        return _given(self, "width", self.width)

    def value(self, f: Array, y: Array) -> Array:
        """τr + h log(1 + exp(−r/h))."""
        residual = y - f
        bend = self._width * np.log1p(np.exp(-np.abs(residual) / self._width))
        return np.asarray(self.level * residual + np.maximum(-residual, 0.0) + bend)

    def gradient(self, f: Array, y: Array) -> Array:
        """σ((f − y)/h) − τ."""
        return np.asarray(expit((f - y) / self._width) - self.level)

    def curvature(self, f: Array, y: Array) -> Array:
        """σ(1 − σ)/h."""
        u = (f - y) / self._width
        return np.asarray(expit(u) * expit(-u) / self._width)

    def scale(self, mean: Array, spread: float) -> float:  # noqa: ARG002
        """20 widths, or the spread of y where that is less: outliers do not change it."""
        return min(WIDTHS * self._width, spread)

    def start(self, mean: Array) -> Start:
        """The least-squares fit, with the curvature of a normal density 20 widths wide."""
        density = 0.4 / (WIDTHS * self._width)
        return one_score_start(float(mean[0]), -density, density)._replace(exact=False)


@dataclass(frozen=True)
class Poisson(Loss):
    """V = exp f − yf for y ≥ 0; f is the log of the mean."""

    def value(self, f: Array, y: Array) -> Array:
        """exp f − yf."""
        return _exp(f) - y * f

    def gradient(self, f: Array, y: Array) -> Array:
        """exp f − y."""
        return _exp(f) - y

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """exp f."""
        return _exp(f)

    def inverse_link(self, f: Array) -> Array:
        """exp f."""
        return _exp(f)

    def check_targets(self, y: Array) -> None:
        """Not negative."""
        remedy = "use the huber or quantile loss for numbers of any sign"
        check_domain(self, y, (y >= 0) & np.isfinite(y), "finite numbers ≥ 0", remedy)

    def scale(self, mean: Array, spread: float) -> float:  # noqa: ARG002
        """1, or what one row of a large count leaves open of its logarithm."""
        return float(1.0 / np.sqrt(max(1.0, float(mean[0]))))

    def start(self, mean: Array) -> Start:
        """At the log of the mean."""
        level = max(float(mean[0]), 1e-12)
        return one_score_start(float(np.log(level)), -1.0, level)


@dataclass(frozen=True)
class Gamma(Loss):
    """V = f + y exp(−f) for y > 0; f is the log of the mean."""

    def value(self, f: Array, y: Array) -> Array:
        """f + y exp(−f)."""
        return np.asarray(f + self.curvature(f, y))

    def gradient(self, f: Array, y: Array) -> Array:
        """1 − y exp(−f)."""
        return np.asarray(1.0 - self.curvature(f, y))

    def curvature(self, f: Array, y: Array) -> Array:
        """y exp(−f)."""
        return y * _exp(-f)

    def inverse_link(self, f: Array) -> Array:
        """exp f."""
        return _exp(f)

    def check_targets(self, y: Array) -> None:
        """Positive."""
        remedy = "use the poisson loss where y may be 0"
        check_domain(self, y, (y > 0) & np.isfinite(y), "finite numbers > 0", remedy)

    def start(self, mean: Array) -> Start:
        """At the log of the mean."""
        level = float(mean[0])
        return one_score_start(float(np.log(level)), -1.0 / level, 1.0)


def robust_deviation(y: Array, weight: Array | None) -> float:
    """1.4826 × the median distance from the median; where 0 the standard deviation, or 1."""
    y = np.ravel(y)
    weight = np.ones(len(y)) if weight is None else weight
    centre = np.mean(weighted_middle(y, weight))
    spread = 1.4826 * float(np.mean(weighted_middle(np.abs(y - centre), weight)))
    if spread == 0:
        mean = np.average(y, weights=weight)
        spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
    return spread if spread > 0 else 1.0


def _positive(name: str, value: Any) -> float:
    if not (isinstance(value, Real) and 0.0 < float(value) < np.inf):
        raise ValueError(f"{name}={value!r} must be a positive number, in the units of y")
    return float(value)


def _given(loss: Loss, name: str, value: float | None) -> float:
    if value is None:
        raise ValueError(
            f"{name}=None of the {type(loss).__name__} loss is set from the targets; give a "
            f"number, or call fitted(y, weight) first"
        )
    return value


def _exp(f: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(f))
