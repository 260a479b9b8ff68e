"""The kernel of the L1 distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from scalefair import _jit
from scalefair._typing import Array, Rows
from scalefair.kernels.checks import as_count
from scalefair.kernels.stationary import Stationary


@dataclass(frozen=True)
class Laplace(Stationary):
    """Laplace kernel exp(-Σ_l |x_l - z_l|/θ_l).

    Parameters
    ----------
    length_scale : float or one per input
        θ.

    Notes
    -----
    ∂k/∂log θ_l = k |x_l - z_l|/θ_l. Identical rows give exactly 1.
    """

    metric: ClassVar[str] = "l1"

    def _fill(self, X: Rows, Z: Rows, out: Rows) -> None:
        A, B = self._standardised(X, Z)
        for rows in (A, B):
            self._check_sizes(_jit.squared_norms(rows))
        _jit.laplace(A, B, out)

    def _gradient(self, X: Rows, Z: Rows, G: Array) -> Array:
        A, B = self._standardised(X, Z)
        W = np.empty(G.shape)
        _jit.laplace(A, B, W)
        W *= G
        return self._per_hyper(_jit.laplace_contraction(A, B, W))

    def spectral_sample(
        self,
        n_features: int,
        n_frequencies: int,
        rng: np.random.Generator | int,
        orthogonal: bool = False,
    ) -> Array:
        """Return frequencies of shape (d, m), each coordinate Cauchy with scale 1/θ_l."""
        if orthogonal:
            raise ValueError(
                "orthogonal=True is not defined for the Laplace kernel, whose frequencies are "
                "independent per coordinate; use orthogonal=False, or Matern(nu=0.5)"
            )
        d, m = as_count(n_features, "n_features"), as_count(n_frequencies, "n_frequencies")
        theta = self._scale_for(d)
        frequencies = np.random.default_rng(rng).standard_cauchy((d, m))
        return np.asarray(frequencies / (theta[:, None] if theta.ndim else theta))
