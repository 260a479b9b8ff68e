"""Kernels of x - z with a length scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.kernels.base import Kernel
from scalefair.kernels.checks import LengthScale, as_length_scale, as_numbers


@dataclass(frozen=True)
class Stationary(Kernel):
    """A function of x - z, with k(x, x) = 1 and a length scale."""

    length_scale: LengthScale = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", as_length_scale(self.length_scale))

    def diag(self, X: Any) -> Rows:
        """Return ones, shape (n,)."""
        rows = as_numbers(X, "X")
        return np.ones(len(rows), rows.dtype)

    def with_length_scale(self, theta: Any) -> Self:
        """Return the same kernel with another length scale.

        An array with one element leaves a scalar length scale scalar.
        """
        value = as_length_scale(theta)
        if isinstance(self.length_scale, float) and isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        return replace(self, length_scale=value)

    def _scale_for(self, n_features: int) -> Array:
        """Return θ, of shape () or (d,)."""
        theta = np.asarray(self.length_scale, dtype=np.float64)
        if theta.ndim and theta.size != n_features:
            raise ValueError(
                f"length_scale has {theta.size} entries for {n_features} inputs; "
                "give one number, or one per input"
            )
        return theta

    def _standardised(self, X: Rows, Z: Rows) -> tuple[Rows, Rows]:
        """Return (X - c)/θ and (Z - c)/θ, with c the mean of Z.

        Differences are the same, and no longer small against the rows: |x|² + |z|² - 2x·z keeps
        its digits. X and Z identical stay one array, so that BLAS returns a symmetric product.
        """
        standardise = self._standardiser(Z)
        others = standardise(Z)
        return (others if X is Z else standardise(X)), others

    def _standardiser(self, Z: Rows) -> Callable[[Rows], Rows]:
        """Return the function (X - c)/θ, with c the mean of Z."""
        # A length scale beyond the largest float32 is as good as that one: the kernel is 1.
        theta = np.minimum(self._scale_for(Z.shape[1]), np.finfo(Z.dtype).max).astype(Z.dtype)
        centre = Z.mean(axis=0, dtype=np.float64) if len(Z) else np.zeros(Z.shape[1])
        centre = centre.astype(Z.dtype)

        def standardise(X: Rows) -> Rows:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                shifted: Rows = np.subtract(X, centre, order="C")
                shifted /= theta  # checked by the sum of squares
            return shifted

        return standardise

    def _check_sizes(self, sizes: Rows) -> Rows:
        """Refuse rows whose squares, in units of the length scale, overflow; return the squares."""
        largest = 1e300 if sizes.dtype == np.float64 else 1e36
        if not float(sizes.max(initial=0.0)) <= largest:
            raise ValueError(
                f"length_scale={self.length_scale!r:.80} is too small for the size of X: squares "
                f"of X / length_scale overflow in {sizes.dtype}; use a larger one, rescale X, or "
                "use float64"
            )
        return sizes

    def _per_hyper(self, per_input: Array) -> Array:
        """Return the gradient per input as it is for ARD, else its sum."""
        if isinstance(self.length_scale, tuple):
            return per_input
        return np.asarray(np.sum(per_input, keepdims=True))
