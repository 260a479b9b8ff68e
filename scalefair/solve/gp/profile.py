"""Noise, amplitude and η of a fair Gaussian process at fixed length scales, without a pass.

    max over σ², a of log p(y | σ², a) = max over τ of −½(nt log 2πσ² + t log_det(τ) + misfit(τ)/σ²)

At a ratio τ = σ²/a² the best noise is known, σ² = misfit/(nt), or the bound next to it. What is
left is a smooth function of log τ alone. It is scanned, since it may have several maxima, and each
is refined to a root of its exact slope. Under a limit, η is the least one with

    share(ȳ + Φβ) ≤ limit,    β = (ΦᵀΦ + τI + nηRRᵀ)⁻¹Φᵀy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from scalefair.moments import Moments
from scalefair.solve.fit import Bounds
from scalefair.solve.gp.system import GaussianPoint, GaussianSlice, GaussianSystem
from scalefair.solve.limit import least_eta, not_on_path
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System

NOISE_BOUNDS = (1e-8, 1e2)  # default bounds of σ², in units of the variance of y
AMPLITUDE_BOUNDS = (1e-3, 1e3)  # default bounds of a, in units of the standard deviation of y
PER_DECADE = 3  # points of the scan: the curve is made of sigmoids in log τ, two decades wide
# What it means to run to the lower, and to the upper bound
MEANING = {
    "noise": (
        "the features fit y almost exactly, or rows repeat; the variance is a guess",
        "y varies more than its bounds allow",
    ),
    "amplitude": (
        "y shows no signal that these features follow; predictions are nearly flat",
        "the features vary too little, usually for too large length scales",
    ),
}
# η, relative to the penalty, that is as good as ∞ for learning: the evidence jumps at ∞
MAX_LEARNING_ETA = 1e4
ROUNDED_VARIANCE = 1e-28  # of y relative to its squared mean: y is constant
CONSTANT_TARGET = (
    "y is constant, so that any noise explains it and the evidence has no maximum; a Gaussian "
    "process needs a target that varies"
)
MAX_ROUNDS = 20  # alternations between η and the noise


@dataclass(frozen=True, eq=False)
class Profile:
    """Where the evidence is largest."""

    point: GaussianPoint
    at_bounds: tuple[str, ...]  # a sentence for each of noise and amplitude that reached a bound


def profile_noise(
    system: GaussianSystem,
    eta: float = 0.0,
    *,
    noise_bounds: Bounds | None = None,
    amplitude_bounds: Bounds | None = None,
) -> Profile:
    """Maximise the log evidence over noise and amplitude at one η; equal bounds fix either."""
    variance = system.square / (system.n * system.target.shape[1])
    if variance <= ROUNDED_VARIANCE * np.mean(system.moments.mean("y") ** 2):
        raise ValueError(CONSTANT_TARGET)
    noise = tuple(noise_bounds or variance * np.array(NOISE_BOUNDS))
    amplitude = tuple(amplitude_bounds or np.sqrt(variance) * np.array(AMPLITUDE_BOUNDS))
    ratio = max(noise[0] / amplitude[1] ** 2, system.least_ratio), noise[1] / amplitude[0] ** 2
    if not ratio[0] <= ratio[1]:
        raise ValueError(
            f"noise_bounds={noise} are lost in the rounding error of features with amplitude at least "
            f"{amplitude[0]:g}; allow a noise of {system.least_ratio * amplitude[0] ** 2:.3g}"
        )
    box = _Box(noise, amplitude, ratio)
    curve, (low, high) = _Curve(system, float(eta), box), np.log(ratio)
    steps = max(2, int(np.ceil(PER_DECADE * (high - low) / np.log(10))))
    grid = np.linspace(low, high, steps + 1) if low < high else np.array([low])
    slopes = np.array([curve.slope(x) for x in grid])
    valleys = [
        brentq(curve.slope, grid[i], grid[i + 1], xtol=1e-12)
        for i in np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
    ]
    ends = [*grid[:1][slopes[:1] >= 0], *grid[-1:][slopes[-1:] <= 0]]
    slices = [system.slice(float(np.exp(x)), curve.eta) for x in [*valleys, *ends]]
    points = [GaussianPoint(at, curve.noise(at)[0]) for at in slices]
    point = max(points, key=lambda point: point.log_evidence)
    return Profile(point, _sentences(point, box))


class _Box(NamedTuple):
    noise: Bounds
    amplitude: Bounds
    ratio: Bounds


@dataclass(frozen=True)
class _Curve:
    """−2 log evidence at the best noise, as a function of log τ."""

    system: GaussianSystem
    eta: float
    box: _Box

    def slope(self, log_ratio: float) -> float:
        """Return the total derivative in log τ: continuous, whichever bound is active."""
        at = self.system.slice(float(np.exp(log_ratio)), self.eta)
        noise, tied = self.noise(at)
        t = self.system.target.shape[1]
        slope = t * at.log_det_slopes[0] + at.misfit_slopes[0] / noise
        return float(slope + tied * (t * self.system.n - at.misfit / noise))

    def noise(self, at: GaussianSlice) -> tuple[float, bool]:
        """Return the best noise within bounds, and whether the amplitude's bound ties it to τ."""
        free = at.misfit / (self.system.n * self.system.target.shape[1])
        low, high = (at.ratio * bound**2 for bound in self.box.amplitude)
        best = np.clip(free, *self.box.noise)
        # At the ends of the range of τ the two intervals meet in a point, up to rounding.
        noise = np.clip(np.clip(best, low, high), *self.box.noise)
        return float(noise), not low < best < high


def _sentences(point: GaussianPoint, box: _Box) -> tuple[str, ...]:
    values = {"noise": point.noise, "amplitude": point.amplitude}
    bounds = {"noise": box.noise, "amplitude": box.amplitude}
    hits = [
        (name, end)
        for name, value in values.items()
        for end in (0, 1)
        if bounds[name][0] < bounds[name][1] and abs(np.log(value / bounds[name][end])) < 1e-6
    ]
    if not hits and point.slice.ratio <= box.ratio[0] * (1 + 1e-6) < box.ratio[1]:
        hits = [("noise", 0)]
    return tuple(_sentence(name, values[name], end) for name, end in hits)


def log_bounds(given: float | None, bounds: Bounds | None, default: Bounds, unit: float = 1.0) -> Bounds:
    """Return the bounds of a logarithm that is searched for; equal where the number is given."""
    if given is not None:
        bounds = given, given
    low, high = np.log(bounds or (unit * default[0], unit * default[1]))
    return float(low), float(high)


def at_log_bounds(name: str, value: float, bounds: Bounds, meaning: tuple[str, str] | None = None) -> list[str]:
    """Describe a hyperparameter whose logarithm is at a bound."""
    near = (np.log(10.0) if name == "amplitude" else 1e-6, 1e-6)
    return [
        _sentence(name, float(np.exp(value)), end, meaning)
        for end in (0, 1)
        if bounds[0] < bounds[1] and abs(value - bounds[end]) < near[end]
    ]


def _sentence(name: str, value: float, end: int, meaning: tuple[str, str] | None = None) -> str:
    return (
        f"{name}={value:.3g} reached its {('lower', 'upper')[end]} bound: "
        f"{(meaning or MEANING[name])[end]}; widen {name}_bounds, fix it, or look at the data"
    )


def largest_eta(penalty: str, moments: Moments) -> float:
    """Return the largest η to learn with: relative to 1, or to the variance of ψ for `hsic`."""
    if penalty == "normalized" or "psi" not in moments.blocks:
        return MAX_LEARNING_ETA
    largest = np.linalg.norm(moments.covariance("psi", "psi"), 2)
    return MAX_LEARNING_ETA / (float(largest) or 1.0)


def limiting_eta(point: GaussianPoint, eps: float | None, penalty: str, unfairness: float) -> float:
    """Return the least η that keeps the posterior mean, not rescaled, within the limit."""
    moments = point.slice.system.moments
    system = System.build(moments, penalty=penalty, eps=eps, fit_intercept=False)
    # The mean has no intercept, but y is centred.
    system = replace(system, target=moments.covariance("phi", "y"))
    path = Spectrum.of(system).at(point.slice.ratio / moments.weight)
    eta = least_eta(path, unfairness, on_path=True)
    if eta is None:
        raise not_on_path(path, unfairness)
    return eta


def profile_within(
    profile: Callable[[float], Profile], eps: float | None, penalty: str, unfairness: float
) -> tuple[Profile, float]:
    """Return noise and amplitude at their best for the η that meets the limit at them, in turn."""
    eta = 0.0
    for _ in range(MAX_ROUNDS):
        best = profile(eta)
        last, eta = eta, limiting_eta(best.point, eps, penalty, unfairness)
        if eta == last or abs(eta - last) <= 1e-8 * last:
            break
    point = best.point
    system = point.slice.system
    moved = GaussianPoint(system.slice(point.slice.ratio, eta), point.noise)
    return replace(best, point=moved), eta
