"""What maps with length scales share: how the features change with log θ, and other θ."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.features._base import BaseMap
from scalefair.kernels import Kernel


class LengthScaleMap(BaseMap):
    """A feature map of a kernel with length scales θ, one or one per input.

    A function L of the features Φ has the gradient Σ_ij ∂L/∂Φ_ij · ∂φ_ij/∂log θ_l. With
    Φ = raw @ linear_ it is a sum over rows, `raw_gradient`, and one term for all rows together,
    `linear_gradient`.

    Attributes
    ----------
    kernel_ : Kernel
        Its `theta` are the length scales, in the order of the gradients.
    """

    kernel_: Kernel

    @abstractmethod
    def with_length_scale(self, theta: Any) -> Self:
        """Return a fitted copy with other length scales: the same landmarks, or the same draw.

        Parameters
        ----------
        theta : float or array of shape (n_hyper,)
        """

    @abstractmethod
    def raw_gradient(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Return Σ_ij dRaw_ij ∂raw_ij/∂log θ_l of some rows.

        Parameters
        ----------
        X : array of shape (k, d)
        raw : array of shape (k, n_raw_)
            `raw(X)`, which the caller has at hand.
        dRaw : array of shape (k, n_raw_)
            ∂L/∂raw.

        Returns
        -------
        array of shape (n_hyper,)
        """

    @abstractmethod
    def linear_gradient(self, product: Array) -> Array:
        """Return what the linear part's dependence on θ adds, for all rows at once.

        Parameters
        ----------
        product : array of shape (n_features_out, n_features_out)
            Φᵀ(∂L/∂Φ), summed over the rows. It is all that the gradient through `linear_` needs.

        Returns
        -------
        array of shape (n_hyper,)
        """

    def pullback(self, X: Any, dPhi: Any) -> Array:
        """Return Σ_ij dPhi_ij ∂φ_ij/∂log θ_l; a sum over rows, so that chunks add up.

        Parameters
        ----------
        X : array-like of shape (k, d)
        dPhi : array-like of shape (k, n_features_out)
            ∂L/∂Φ.

        Returns
        -------
        array of shape (n_hyper,)
            One entry for a scalar length scale, d for one per input.
        """
        X, dPhi = self._validated(X, reset=False), np.asarray(dPhi, dtype=np.float64)
        if dPhi.shape != (len(X), self.n_features_out):
            raise ValueError(
                f"dPhi has shape {dPhi.shape}, expected {(len(X), self.n_features_out)}: one "
                "number for each row of X and each feature"
            )
        raw = self.raw(X, out=np.empty((len(X), self.n_raw_)))
        Phi, dRaw = raw, dPhi
        if self.linear_ is not None:
            Phi, dRaw = raw @ self.linear_, dPhi @ self.linear_.T
        return self.raw_gradient(X, raw, dRaw) + self.linear_gradient(Phi.T @ dPhi)
