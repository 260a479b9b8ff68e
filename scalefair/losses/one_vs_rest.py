"""The logistic loss of every class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalefair._typing import Array
from scalefair.losses.base import Loss
from scalefair.losses.classes import Logistic, Multinomial

BINARY = Logistic()


@dataclass(frozen=True)
class OneVsRest(Loss):
    """V = Σ_c log(1 + exp f_c) − y_c f_c for one-hot y: each class has log odds of its own.

    Parameters
    ----------
    n_classes : int
        Number of classes.
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

    def check_targets(self, y: Array) -> None:
        """One-hot rows."""
        Multinomial(self.n_classes).check_targets(y)
