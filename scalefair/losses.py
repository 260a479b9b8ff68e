"""Losses V(f, y), one number a row: what the data term 1/n ΣV of the objective is made of.

V = −log p(y | f) up to constants, convex in f. A loss of one's own is a subclass of :class:`Loss`
with three methods, or any object with the same attributes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from scalefair._typing import Array


class Start(NamedTuple):
    """A loss near its best constant, so that the first Newton step follows from the moments.

    Parameters
    ----------
    intercept : array of shape (k,)
        The constant scores of least loss.
    slope : array of shape (t, k)
        There, the gradient of a row with target y is y @ slope plus a constant.
    curvature : array of shape (j,)
        The mean curvature there, along the loss's directions.
    """

    intercept: Array
    slope: Array
    curvature: Array


class Loss(ABC):
    """A loss, pointwise. f and y have shape (n,), or (n, k) and (n, t) where there are several.

    Attributes
    ----------
    n_scores : int
        Number k of scores of a row; f has shape (n,) where it is 1.
    n_targets : int
        Number t of columns of y; y has shape (n,) where it is 1.
    directions : array of shape (j, k)
        The second derivative of a row is Σⱼ curvatureⱼ dⱼdⱼᵀ; curvature has shape (n,) where j
        is 1, else (n, j), and is never negative.
    """

    n_scores: int = 1
    n_targets: int = 1

    @property
    def directions(self) -> Array:
        """Directions of curvature; by default the scores do not interact."""
        return np.eye(self.n_scores)

    @abstractmethod
    def value(self, f: Array, y: Array) -> Array:
        """V of each row, shape (n,)."""

    @abstractmethod
    def gradient(self, f: Array, y: Array) -> Array:
        """∂V/∂f of each row, the shape of f."""

    @abstractmethod
    def curvature(self, f: Array, y: Array) -> Array:
        """∂²V/∂f² of each row, along the directions; shape (n,) or (n, j)."""

    def inverse_link(self, f: Array) -> Array:
        """Return the mean (or the probabilities, or the quantile) of y that a score stands for."""
        return f

    def check_targets(self, y: Array) -> None:
        """Raise a ValueError that names a target outside the domain."""
        check_domain(self, y, np.isfinite(y), "finite numbers", "leave those rows out")

    def fitted(self, y: Array, weight: Array | None) -> Loss:  # noqa: ARG002
        """Return the loss with what it leaves open found from a sample of the targets."""
        return self

    def start(self, mean: Array) -> Start | None:  # noqa: ARG002
        """Return the start for targets of this mean, of shape (t,); None: f = 0."""
        return None


def check_domain(loss: Any, y: Array, allowed: Any, expected: str, remedy: str) -> None:
    """Raise a ValueError that names the first target that is not allowed."""
    if np.all(allowed):
        return
    wrong = np.asarray(y)[~np.asarray(allowed)]
    raise ValueError(
        f"y has {wrong.size} value(s) such as {wrong.ravel()[0]!r} outside the domain of the "
        f"{type(loss).__name__} loss, which expects {expected}; {remedy}"
    )


def _plain_start(intercept: float, slope: float, curvature: float) -> Start:
    return Start(np.array([intercept]), np.array([[slope]]), np.array([curvature]))


@dataclass(frozen=True)
class Squared(Loss):
    """V = (y − f)²: with the same alpha and eta the fit is that of :class:`FairKernelRidge`."""

    def value(self, f: Array, y: Array) -> Array:
        """(y − f)²."""
        return np.asarray((y - f) ** 2)

    def gradient(self, f: Array, y: Array) -> Array:
        """2(f − y)."""
        return np.asarray(2.0 * (f - y))

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """2."""
        return np.full(np.shape(f), 2.0)

    def start(self, mean: Array) -> Start:
        """At the mean."""
        return _plain_start(float(mean[0]), -2.0, 2.0)


@dataclass(frozen=True)
class Logistic(Loss):
    """V = log(1 + exp f) − yf for y in {0, 1}; f is the log odds of 1."""

    def value(self, f: Array, y: Array) -> Array:
        """max(f, 0) − yf + log(1 + exp(−|f|)), exact at both ends."""
        return np.asarray(np.maximum(f, 0.0) - y * f + np.log1p(np.exp(-np.abs(f))))

    def gradient(self, f: Array, y: Array) -> Array:
        """p − y, without cancellation where p is near y."""
        return np.asarray((1.0 - y) * expit(f) - y * expit(-f))

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """p(1 − p)."""
        return np.asarray(expit(f) * expit(-f))

    def inverse_link(self, f: Array) -> Array:
        """Probability of 1."""
        return np.asarray(expit(f))

    def check_targets(self, y: Array) -> None:
        """0 or 1."""
        remedy = "use the multinomial loss for more than two classes"
        check_domain(self, y, (y == 0) | (y == 1), "0 and 1", remedy)

    def start(self, mean: Array) -> Start:
        """At the log odds of the mean."""
        p = float(_inside(mean)[0])
        return _plain_start(float(np.log(p) - np.log1p(-p)), -1.0, p * (1.0 - p))


def _inside(share: Array) -> Array:
    """A share, kept off 0 and 1, where log odds are infinite."""
    return np.clip(share, 1e-12, 1.0 - 1e-12)


@dataclass(frozen=True)
class Multinomial(Loss):
    """V = log Σ exp f_k − Σ y_k f_k for one-hot y; f are log probabilities up to a constant.

    The second derivative diag(p) − ppᵀ is Σ_{a<b} p_a p_b (e_a − e_b)(e_a − e_b)ᵀ.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    """

    n_classes: int

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """One score per class."""
        return self.n_classes

    @property
    def n_targets(self) -> int:  # type: ignore[override]
        """One indicator per class."""
        return self.n_classes

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Every pair of classes, a < b."""
        return np.triu_indices(self.n_classes, 1)

    @property
    def directions(self) -> Array:
        """e_a − e_b for every pair of classes."""
        eye = np.eye(self.n_classes)
        a, b = self.pairs
        return np.asarray(eye[a] - eye[b])

    def value(self, f: Array, y: Array) -> Array:
        """log Σ exp f_k − Σ y_k f_k."""
        # About the score of the row's own class: then nothing cancels where that is the largest.
        return np.asarray(logsumexp(f - np.sum(y * f, axis=1, keepdims=True), axis=1))

    def gradient(self, f: Array, y: Array) -> Array:
        """p − y."""
        return np.asarray(softmax(f, axis=1) - y)

    def curvature(self, f: Array, y: Array) -> Array:  # noqa: ARG002
        """p_a p_b for every pair of classes."""
        p, (a, b) = softmax(f, axis=1), self.pairs
        return np.asarray(p[:, a] * p[:, b])

    def inverse_link(self, f: Array) -> Array:
        """Probabilities of the classes."""
        return np.asarray(softmax(f, axis=1))

    def check_targets(self, y: Array) -> None:
        """One-hot rows."""
        one_hot = ((y == 0) | (y == 1)) & (np.sum(y, axis=1, keepdims=True) == 1)
        remedy = "give integer codes as one-hot rows"
        check_domain(self, y, one_hot, f"one-hot rows of {self.n_classes} classes", remedy)

    def start(self, mean: Array) -> Start:
        """At the log frequencies."""
        p, (a, b) = _inside(mean), self.pairs
        log_p = np.log(p)
        return Start(log_p - log_p.mean(), -np.eye(self.n_classes), p[a] * p[b])


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

    def start(self, mean: Array) -> Start:
        """At the log of the mean."""
        level = max(float(mean[0]), 1e-12)
        return _plain_start(float(np.log(level)), -1.0, level)


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
        level = max(float(mean[0]), 1e-300)
        return _plain_start(float(np.log(level)), -1.0 / level, 1.0)


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
        """Find δ if it is left open."""
        found = 1.345 * robust_deviation(y, weight) if self.delta is None else self.delta
        return replace(self, delta=_positive("delta", found))

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

    def start(self, mean: Array) -> Start:
        """The squared loss's."""
        return Squared().start(mean)


@dataclass(frozen=True)
class Quantile(Loss):
    """V = τr + h log(1 + exp(−r/h)), r = y − f: the pinball loss, rounded off over a width h.

    It tends to max(τr, (τ − 1)r) as h → 0. f is then the τ-quantile of y plus logistic noise of
    scale h.

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
        """Find h if it is left open."""
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level!r} must be between 0 and 1, such as 0.5 or 0.9")
        found = 0.05 * robust_deviation(y, weight) if self.width is None else self.width
        return replace(self, width=_positive("width", found))

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

    def start(self, mean: Array) -> Start:
        """The least-squares fit, with the curvature of a normal density 20 widths wide."""
        return _plain_start(float(mean[0]), -0.02 / self._width, 0.02 / self._width)


def robust_deviation(y: Array, weight: Array | None) -> float:
    """1.4826 × the median distance from the median; the standard deviation, or 1, where that is 0.

    Equal to the standard deviation for a normal distribution, whatever happens to half the rows.
    """
    y = np.ravel(y)
    weight = np.ones(len(y)) if weight is None else weight
    spread = 1.4826 * _median(np.abs(y - _median(y, weight)), weight)
    if spread == 0:
        mean = np.average(y, weights=weight)
        spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
    return spread if spread > 0 else 1.0


def _median(values: Array, weight: Array) -> float:
    """Weighted median: weight 2 is the value twice."""
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    lower, upper = (values[order][np.searchsorted(below, below[-1] / 2, side)]
                    for side in ("left", "right"))  # fmt: skip
    return float((lower + upper) / 2)


def _positive(name: str, value: Any) -> float:
    if not (np.isreal(value) and 0.0 < float(value) < np.inf):
        raise ValueError(f"{name}={value!r} must be a positive number, in the units of y")
    return float(value)


def _given(loss: Loss, name: str, value: float | None) -> float:
    if value is None:
        raise ValueError(
            f"{name}=None of the {type(loss).__name__} loss is found from the targets; give a "
            f"number, or call fitted(y, weight) first"
        )
    return value


LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "logistic": Logistic,
    "poisson": Poisson,
    "gamma": Gamma,
    "huber": Huber,
    "quantile": Quantile,
}
"""Losses by name; "multinomial" also needs to know the number of classes."""
