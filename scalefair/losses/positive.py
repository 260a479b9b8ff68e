"""Losses of numbers that are not negative, with a logarithmic link: Poisson and gamma."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalefair._typing import Array
from scalefair.losses.base import Loss, Start, check_domain, one_score_start


@dataclass(frozen=True)
class Poisson(Loss):
    """V = exp f − yf for y ≥ 0; f is the log of the mean."""

    def value(self, f: Array, y: Array) -> Array:
        """exp f − yf."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(f) - y * f)

    def gradient(self, f: Array, y: Array) -> Array:
        """exp f − y."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(f) - y)

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """exp f."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(f))

    def inverse_link(self, f: Array) -> Array:
        """exp f."""
        return self.curvature(f, f)

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
        with np.errstate(over="ignore"):
            return np.asarray(y * np.exp(-f))

    def inverse_link(self, f: Array) -> Array:
        """exp f."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(f))

    def check_targets(self, y: Array) -> None:
        """Positive."""
        remedy = "use the poisson loss where y may be 0"
        check_domain(self, y, (y > 0) & np.isfinite(y), "finite numbers > 0", remedy)

    def start(self, mean: Array) -> Start:
        """At the log of the mean."""
        level = float(mean[0])
        return one_score_start(float(np.log(level)), -1.0 / level, 1.0)
