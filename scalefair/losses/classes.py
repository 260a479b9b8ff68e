"""Losses of classes: logistic, multinomial, each class against the rest; weighted ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from scalefair._typing import Array
from scalefair.losses.base import Loss, Start, check_domain

INSIDE = 1e-12, 1.0 - 1e-12  # Where a share is moved to from 0 and 1, at which log odds are infinite


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

    def skew(self, f: Array, y: Array) -> Array:
        """p(1 − p)(1 − 2p), the slope of the curvature."""
        return np.asarray(self.curvature(f, y) * -np.tanh(f / 2))

    def inverse_link(self, f: Array) -> Array:
        """Probability of 1."""
        return np.asarray(expit(f))

    def check_targets(self, y: Array) -> None:
        """0 or 1."""
        remedy = "use the multinomial loss for more than two classes"
        check_domain(self, y, (y == 0) | (y == 1), "0 and 1", remedy)

    def start(self, mean: Array) -> Start:
        """At the log odds of the mean."""
        p = np.clip(mean, *INSIDE)
        return Start(np.log(p) - np.log1p(-p), -np.eye(1), p * (1.0 - p))


@dataclass(frozen=True)
class _OneHot(Loss):
    """One score for each of `n_classes`, and y as one-hot rows."""

    n_classes: int

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """One score per class."""
        return self.n_classes

    @property
    def n_targets(self) -> int:  # type: ignore[override]
        """One indicator per class."""
        return self.n_classes

    def check_targets(self, y: Array) -> None:
        """One-hot rows."""
        one_hot = ((y == 0) | (y == 1)) & (np.sum(y, axis=1, keepdims=True) == 1)
        remedy = "give integer codes as one-hot rows"
        check_domain(self, y, one_hot, f"one-hot rows of {self.n_classes} classes", remedy)


@dataclass(frozen=True)
class Multinomial(_OneHot):
    """V = log Σ exp f_k − Σ y_k f_k for one-hot y; f are log probabilities up to a constant.

    The second derivative diag(p) − ppᵀ is Σ_{a<b} p_a p_b (e_a − e_b)(e_a − e_b)ᵀ.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    """

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

    def start(self, mean: Array) -> Start:
        """At the log frequencies."""
        p, (a, b) = np.clip(mean, *INSIDE), self.pairs
        log_p = np.log(p)
        return Start(log_p - log_p.mean(), -np.eye(self.n_classes), p[a] * p[b])


BINARY = Logistic()


@dataclass(frozen=True)
class OneVsRest(_OneHot):
    """V = Σ_c log(1 + exp f_c) − y_c f_c for one-hot y: each class has log odds of its own.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    """

    def value(self, f: Array, y: Array) -> Array:
        """Sum over the classes."""
        return np.asarray(BINARY.value(f, y).sum(axis=1))

    def gradient(self, f: Array, y: Array) -> Array:
        """p_c − y_c."""
        return BINARY.gradient(f, y)

    def curvature(self, f: Array, y: Array) -> Array:
        """p_c(1 − p_c)."""
        return BINARY.curvature(f, y)

    def skew(self, f: Array, y: Array) -> Array:
        """p_c(1 − p_c)(1 − 2p_c)."""
        return BINARY.skew(f, y)

    def inverse_link(self, f: Array) -> Array:
        """Probabilities of each class against the rest, made to add up to 1."""
        p = BINARY.inverse_link(f)
        return np.asarray(p / p.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Wrapped(Loss):
    """A loss that changes another one in part."""

    loss: Loss

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """That of the wrapped loss."""
        return self.loss.n_scores

    @property
    def n_targets(self) -> int:  # type: ignore[override]
        """That of the wrapped loss."""
        return self.loss.n_targets

    @property
    def directions(self) -> Array:
        """Those of the wrapped loss."""
        return self.loss.directions

    def inverse_link(self, f: Array) -> Array:
        """That of the wrapped loss."""
        return self.loss.inverse_link(f)

    def scale(self, mean: Array, spread: float) -> float:
        """That of the wrapped loss."""
        return self.loss.scale(mean, spread)

    def check_targets(self, y: Array) -> None:
        """That of the wrapped loss."""
        self.loss.check_targets(y)


@dataclass(frozen=True, eq=False)
class ClassWeighted(Wrapped):
    """c_y V(f, y): each class y counts c_y times.

    Parameters
    ----------
    loss : Logistic or Multinomial
        V.
    weights : array of shape (k,)
        c, one for each class.
    """

    weights: Array

    def _of(self, y: Array) -> Array:
        if self.n_targets == 1:
            return np.asarray(self.weights[0] + (self.weights[1] - self.weights[0]) * y)
        return np.asarray(y @ self.weights)

    def _times(self, y: Array, part: Array) -> Array:
        weight = self._of(y)
        return part * (weight if part.ndim == 1 else weight[:, None])

    def value(self, f: Array, y: Array) -> Array:
        """c_y V."""
        return self._times(y, self.loss.value(f, y))

    def gradient(self, f: Array, y: Array) -> Array:
        """c_y ∂V/∂f."""
        return self._times(y, self.loss.gradient(f, y))

    def curvature(self, f: Array, y: Array) -> Array:
        """c_y ∂²V/∂f²."""
        return self._times(y, self.loss.curvature(f, y))

    def start(self, mean: Array) -> Start | None:
        """At the weighted frequencies."""
        weight = float(self._of(mean[0] if self.n_targets == 1 else mean))
        most = self.weights[1] if self.n_targets == 1 else self.weights
        inner = self.loss.start(mean * most / weight)
        if inner is None:
            return None
        intercept, curvature, exact = inner.intercept, weight * inner.curvature, inner.exact
        # The gradient is linear in y: its value at each class determines it.
        if self.n_targets == 1:
            none, one = self.gradient(np.repeat(intercept, 2), np.array([0.0, 1.0]))
            return Start(intercept, np.array([[one - none]]), curvature, exact)
        classes = np.eye(self.n_targets)
        slope = self.gradient(np.tile(intercept, (self.n_targets, 1)), classes)
        return Start(intercept, slope, curvature, exact)


@dataclass(frozen=True, eq=False)
class SumToZero(Wrapped):
    """The multinomial loss in k − 1 scores g, f = g contrastsᵀ, which are orthonormal.

    Parameters
    ----------
    loss : Multinomial
    """

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """One less than there are classes."""
        return self.loss.n_scores - 1

    @cached_property
    def contrasts(self) -> Array:
        """Orthonormal basis of the scores that add up to zero, shape (k, k − 1)."""
        rows = np.arange(1, self.loss.n_scores)
        basis = np.tril(np.ones((len(rows), self.loss.n_scores)))
        basis[rows - 1, rows] = -rows
        return np.asarray((basis / np.sqrt(rows * (rows + 1.0))[:, None]).T)

    @property
    def directions(self) -> Array:
        """Those of f, in g."""
        return np.asarray(self.loss.directions @ self.contrasts)

    def full(self, g: Array) -> Array:
        """Return f."""
        return np.asarray(g.reshape(len(g), -1) @ self.contrasts.T)

    def value(self, f: Array, y: Array) -> Array:
        """V."""
        return self.loss.value(self.full(f), y)

    def gradient(self, f: Array, y: Array) -> Array:
        """∂V/∂g."""
        gradient = self.loss.gradient(self.full(f), y) @ self.contrasts
        return np.asarray(gradient.reshape(np.shape(f)))

    def curvature(self, f: Array, y: Array) -> Array:
        """∂²V/∂g² along the directions."""
        return self.loss.curvature(self.full(f), y)

    def inverse_link(self, f: Array) -> Array:
        """Probabilities of the classes."""
        return self.loss.inverse_link(self.full(f))

    def start(self, mean: Array) -> Start | None:
        """That of the wrapped loss, in g."""
        inner = self.loss.start(mean)
        if inner is None:
            return None
        intercept, slope, curvature, exact = inner
        return Start(intercept @ self.contrasts, slope @ self.contrasts, curvature, exact)
