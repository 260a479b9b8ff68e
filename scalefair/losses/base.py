"""The base class of losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from scalefair._typing import Array, Chunk
from scalefair.errors import located

# What an object must have to be a loss
LOSS_METHODS = ["value", "gradient", "curvature", "inverse_link", "check_targets", "fitted", "scale", "start"]


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
    exact : bool
        False if all this is approximate, for a loss whose gradient is not linear in y.
    """

    intercept: Array
    slope: Array
    curvature: Array
    exact: bool = True


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
        """Return the mean (or the probabilities, or the quantile) of y that a score represents."""
        return f

    def check_targets(self, y: Array) -> None:
        """Raise a ValueError that names a target outside the domain."""
        check_domain(self, y, np.isfinite(y), "finite numbers", "leave those rows out")

    def fitted(self, y: Array, weight: Array | None) -> Loss:  # noqa: ARG002
        """Return the loss with open parameters set from a sample of the targets."""
        return self

    def scale(self, mean: Array, spread: float) -> float:  # noqa: ARG002
        """Return how far f must move for V to change its shape: the unit of f in tolerances.

        `mean` is that of y, of shape (t,); `spread` is its standard deviation, or its root mean
        square without intercept.
        The default is 1, or the spread where f is in the units of y and that is less.
        """
        return min(1.0, spread) if type(self).inverse_link is Loss.inverse_link else 1.0

    def start(self, mean: Array) -> Start | None:  # noqa: ARG002
        """Return the start for targets of this mean, of shape (t,); None: f = 0."""
        return None


def check_domain(loss: Any, y: Array, allowed: Any, expected: str, remedy: str) -> None:
    """Raise a ValueError that names the first target that is not allowed."""
    if np.all(allowed):
        return
    wrong = np.asarray(y)[~np.asarray(allowed)].ravel().tolist()
    raise ValueError(
        f"y has {len(wrong)} value(s) such as {wrong[0]!r} outside the domain of the "
        f"{type(loss).__name__} loss, which expects {expected}; {remedy}"
    )


def one_score_start(intercept: float, slope: float, curvature: float) -> Start:
    """Return the start of a loss with one score and one target."""
    return Start(np.array([intercept]), np.array([[slope]]), np.array([curvature]))


def check_row_targets(loss: Loss, chunk: Chunk) -> Chunk:
    """Pass a chunk on whose targets are in the domain of the loss, where they count."""
    y = np.asarray(chunk.y)[chunk.weights > 0]
    with located(chunk.where):
        loss.check_targets(y[:, 0] if loss.n_targets == 1 else y)
    return chunk
