"""Kernels of the Euclidean distance: Gaussian and Matérn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair import _jit
from scalefair._typing import Array, Rows
from scalefair.kernels.checks import as_count, as_pair
from scalefair.kernels.frequencies import gaussian_frequencies
from scalefair.kernels.stationary import Stationary


@dataclass(frozen=True)
class Radial(Stationary):
    """k(x, z) = f(r), r² = Σ_l (x_l - z_l)²/θ_l²."""

    @abstractmethod
    def _value(self, D: Rows, xx: Rows, zz: Rows) -> None:
        """Replace inner products by f(r)."""

    @abstractmethod
    def _slope(self, D: Rows, xx: Rows, zz: Rows) -> float:
        """Replace inner products by -f'(r)/r divided by the number returned."""

    @abstractmethod
    def _stretch(self, m: int, rng: np.random.Generator) -> Array | float:
        """Return what each Gaussian frequency is multiplied by."""

    def _fill(self, X: Rows, Z: Rows, out: Rows) -> None:
        A, B = self._standardised(X, Z)
        xx, zz = (self._check_sizes(_jit.squared_norms(rows)) for rows in (A, B))
        np.matmul(A, B.T, out=out)
        self._value(out, xx, zz)

    def against(self, Z: Rows) -> Callable[[Rows, Rows], None]:
        """Return the function that fills `out` with k(X, Z); see `Kernel.against`."""
        standardise = self._standardiser(Z)
        B = standardise(Z)
        zz = self._check_sizes(_jit.squared_norms(B))

        def fill(X: Rows, out: Rows) -> None:
            A = standardise(X)
            xx = self._check_sizes(_jit.squared_norms(A))
            np.matmul(A, B.T, out=out)
            self._value(out, xx, zz)

        return fill

    def _gradient(self, X: Rows, Z: Rows, G: Array) -> Array:
        """Contract W_ij (a_il - b_jl)², W = G ∘ (-f'(r)/r): three matrix products."""
        A, B = self._standardised(X, Z)
        W = A @ B.T
        factor = self._slope(W, _jit.squared_norms(A), _jit.squared_norms(B))
        W *= G
        return self._contracted(A, B, W, factor)

    def _contracted(self, A: Rows, B: Rows, W: Array, factor: float = 1.0) -> Array:
        squares = W.sum(axis=1) @ (A * A) + W.sum(axis=0) @ (B * B)
        return self._per_hyper(factor * (squares - 2.0 * np.einsum("il,il->l", A, W @ B)))

    def _point_gradient(self, X: Rows, Z: Rows, G: Array) -> Array:
        """Contract W_ij (a_il - b_jl)/θ_l, W = G ∘ (-f'(r)/r): two matrix products."""
        A, B = self._standardised(X, Z)
        W = A @ B.T
        factor = self._slope(W, _jit.squared_norms(A), _jit.squared_norms(B))
        W *= G
        moved = W.T @ A - W.sum(axis=0)[:, None] * B
        return np.asarray(factor * moved / self._scale_for(X.shape[1]))

    def spectral_sample(
        self,
        n_features: int,
        n_frequencies: int,
        rng: np.random.Generator | int,
        orthogonal: bool = False,
    ) -> Array:
        """Return frequencies of shape (d, m): Gaussian (RBF) or Student t, 2ν degrees (Matern)."""
        d, m = as_count(n_features, "n_features"), as_count(n_frequencies, "n_frequencies")
        theta = self._scale_for(d)
        generator = np.random.default_rng(rng)
        frequencies = gaussian_frequencies(d, m, generator, orthogonal)
        frequencies *= self._stretch(m, generator)
        frequencies /= theta[:, None] if theta.ndim else theta
        return frequencies


@dataclass(frozen=True)
class RBF(Radial):
    """Gaussian kernel exp(-Σ_l (x_l - z_l)²/(2 θ_l²)).

    Parameters
    ----------
    length_scale : float or one per input
        θ.

    Notes
    -----
    ∂k/∂log θ_l = k (x_l - z_l)²/θ_l². Identical rows give exactly 1.
    """

    def _value(self, D: Rows, xx: Rows, zz: Rows) -> None:
        _jit.gaussian(D, xx, zz)

    def _slope(self, D: Rows, xx: Rows, zz: Rows) -> float:
        _jit.gaussian(D, xx, zz)
        return 1.0

    def log_gradient(self, X: Any, Z: Any, W: Array) -> Array:
        """Return Σ_ij W_ij ∂ log k(x_i, z_j)/∂log θ_l = Σ_ij W_ij (x_il - z_jl)²/θ_l².

        With W = G ∘ cK it is c times `gradient`, without another look at the kernel: the exact
        process has K at hand, with amplitude and weights.
        """
        return self._contracted(*self._standardised(*as_pair(X, Z, double=True)), W)

    def _gradient_at(self, X: Rows, Z: Rows, G: Array, K: Array) -> Array:
        """Here -f'(r)/r is k itself, so that a product and the exponentials are saved."""
        return self._contracted(*self._standardised(X, Z), G * K)

    def _stretch(self, m: int, rng: np.random.Generator) -> float:  # noqa: ARG002
        return 1.0


@dataclass(frozen=True)
class Matern(Radial):
    """Matérn kernel of a = √(2ν) r, r² = Σ_l (x_l - z_l)²/θ_l².

    exp(-a) for ν = 1/2, (1 + a) exp(-a) for 3/2, (1 + a + a²/3) exp(-a) for 5/2.

    Parameters
    ----------
    length_scale : float or one per input
        θ.
    nu : 0.5, 1.5 or 2.5
        Smoothness ν.

    Notes
    -----
    ∂k/∂log θ_l = h (x_l - z_l)²/θ_l² with h = exp(-r)/r, 3 exp(-a), 5/3 (1 + a) exp(-a).
    Identical rows give exactly 1 and contribute nothing to the gradient.
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu={self.nu!r} must be 0.5, 1.5 or 2.5; for smoother, use RBF")

    @property
    def _code(self) -> int:
        return round(2 * self.nu)

    def _value(self, D: Rows, xx: Rows, zz: Rows) -> None:
        _jit.matern(D, xx, zz, self._code)

    def _slope(self, D: Rows, xx: Rows, zz: Rows) -> float:
        _jit.matern_slope(D, xx, zz, self._code)
        return {1: 1.0, 3: 3.0, 5: 5.0 / 3.0}[self._code]

    def _stretch(self, m: int, rng: np.random.Generator) -> Array:
        degrees = 2.0 * self.nu
        return np.sqrt(degrees / rng.chisquare(degrees, size=m))
