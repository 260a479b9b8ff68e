"""Losses made of another loss: classes that count more than once, scores that add up to zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalefair._typing import Array
from scalefair.losses.base import Loss, Start


@dataclass(frozen=True, eq=False)
class Wrapped(Loss):
    """A loss that changes another one, and is it otherwise."""

    loss: Loss

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """That of the loss within."""
        return self.loss.n_scores

    @property
    def n_targets(self) -> int:  # type: ignore[override]
        """That of the loss within."""
        return self.loss.n_targets

    @property
    def directions(self) -> Array:
        """Those of the loss within."""
        return self.loss.directions

    def inverse_link(self, f: Array) -> Array:
        """That of the loss within."""
        return self.loss.inverse_link(f)

    def scale(self, mean: Array, spread: float) -> float:
        """That of the loss within."""
        return self.loss.scale(mean, spread)

    def check_targets(self, y: Array) -> None:
        """That of the loss within."""
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
        intercept, curvature, exact = inner.intercept, inner.curvature, inner.exact
        # The gradient is linear in y: its value at each class determines it.
        if self.n_targets == 1:
            none, one = self.gradient(np.repeat(intercept, 2), np.array([0.0, 1.0]))
            return Start(intercept, np.array([[one - none]]), weight * curvature, exact)
        classes = np.eye(self.n_targets)
        slope = self.gradient(np.tile(intercept, (self.n_targets, 1)), classes)
        return Start(intercept, slope, weight * curvature, exact)


@dataclass(frozen=True, eq=False)
class SumToZero(Wrapped):
    """The multinomial loss in k − 1 scores g, f = g contrastsᵀ, which are orthonormal."""

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """One less than there are classes."""
        return self.loss.n_scores - 1

    @cached_property
    def contrasts(self) -> Array:
        """Orthonormal basis of the scores that add up to zero, shape (k, k − 1)."""
        return contrasts(self.loss.n_scores)

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
        """That of the loss within, in g."""
        inner = self.loss.start(mean)
        if inner is None:
            return None
        intercept, slope, curvature, exact = inner
        return Start(intercept @ self.contrasts, slope @ self.contrasts, curvature, exact)


def contrasts(k: int) -> Array:
    """Orthonormal basis of the vectors of length k that add up to zero, shape (k, k − 1)."""
    rows = np.arange(1, k)
    basis = np.tril(np.ones((k - 1, k)))
    basis[rows - 1, rows] = -rows
    return np.asarray((basis / np.sqrt(rows * (rows + 1.0))[:, None]).T)
