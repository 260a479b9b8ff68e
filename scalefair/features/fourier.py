"""Random Fourier features of a shift-invariant kernel."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from scalefair._jit import cos_phase, cos_sin
from scalefair._typing import Array, Rows
from scalefair.errors import check_count
from scalefair.features.base import Filler, LengthScaleMap, seed_of
from scalefair.features.landmarks import fitted_kernel
from scalefair.kernels import Kernel

LARGEST_ANGLE = {8: 1e13, 4: 1e6}  # Angles whose rounding error is below 0.1, by the size of a number in bytes


class RandomFourier(LengthScaleMap):
    """Random Fourier features: φ(x)ᵀφ(z) ≈ k(x, z) for a shift-invariant kernel.

    With frequencies ω_1, …, ω_h drawn from the spectral density of k,

        pairs:          φ(x) = √(1/h) [cos ω_1ᵀx, …, cos ω_hᵀx, sin ω_1ᵀx, …, sin ω_hᵀx],  h = m/2
        random phase:   φ(x) = √(2/h) [cos(ω_1ᵀx + b_1), …, cos(ω_hᵀx + b_h)],             h = m

    b uniform on [0, 2π). Both are unbiased and their error falls as 1/√m. Pairs have |φ(x)| = 1
    exactly and, for a Gaussian kernel, the smaller variance; they need half as many projections.

    Parameters
    ----------
    kernel : str or Kernel, default="rbf"
        "rbf", "laplace", "matern12", "matern32", "matern52", or a kernel object, which brings its own length scale.
    length_scale : float, array of shape (d,), "median" or "standardized", default=1.0
        See `Nystroem`.
    n_components : int, default=500
        Number m of features; even if `pairs`.
    orthogonal : bool, default=False
        Frequencies orthogonal within blocks of d, which lowers the variance. Not for Laplace.
    pairs : bool, default=True
        Cosine and sine of each frequency; otherwise cosines of random phase.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    frequencies_ : array of shape (d, h)
    phase_ : array of shape (h,) or None
        The phases b with `pairs=False`.
    kernel_ : Kernel
        With the length scale that was found.
    n_raw_ : int
    linear_ : None

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.features import RandomFourier
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> RandomFourier(n_components=20, random_state=0).fit_transform(X).shape
    (5, 20)
    """

    def __init__(
        self, kernel: str | Kernel = "rbf", length_scale: Any = 1.0, *, n_components: int = 500,
        orthogonal: bool = False, pairs: bool = True, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def _learn(self, X: Rows, weight: Array) -> None:
        size = check_count("n_components", self.n_components)
        if self.pairs and size % 2:
            raise ValueError(
                f"n_components={size} is odd but pairs=True makes a cosine and a sine of each "
                f"frequency; give an even number, or pairs=False"
            )
        size = size // 2 if self.pairs else size
        seed = seed_of(self.random_state)
        rng = np.random.default_rng(seed)
        self.kernel_ = fitted_kernel(self.kernel, self.length_scale, X, weight, seed)
        self.frequencies_: Array = self.kernel_.spectral_sample(X.shape[1], size, rng, orthogonal=self.orthogonal)
        self._check_phases(X[weight > 0], X.dtype)
        self.phase_ = None if self.pairs else rng.uniform(0.0, 2 * np.pi, size)
        self.n_raw_ = int(self.n_components)
        self.linear_ = None

    def filler(self, dtype: DTypeLike) -> Filler:
        """Return the function that writes φ(x); see `BaseMap.filler`."""
        dtype = np.dtype(dtype)
        frequencies = self.frequencies_.astype(dtype, copy=False)
        phase = None if self.phase_ is None else self.phase_.astype(dtype, copy=False)
        size = frequencies.shape[1]

        def fill(X: Rows, out: Rows) -> None:
            self._check_phases(X, dtype)
            X = X.astype(dtype, copy=False)
            if phase is None:
                cos_sin(X @ frequencies, out, np.sqrt(1 / size))
            else:
                np.matmul(X, frequencies, out=out)
                cos_phase(out, phase, np.sqrt(2 / size))

        return fill

    def _check_phases(self, X: Rows, dtype: np.dtype[Any]) -> None:
        """Raise ValueError if angles ωᵀx are so large that their cosine is rounding error."""
        spread = float(np.abs(self.frequencies_).max(initial=0.0))
        largest = max(float(X.max(initial=0.0)), -float(X.min(initial=0.0)))
        if not largest * spread <= LARGEST_ANGLE[dtype.itemsize]:
            raise ValueError(
                f"length_scale={self.kernel_.length_scale!r:.80} is too small for the size of X: "
                f"angles of up to {largest * spread:.2g} have no digits left in {dtype}; use a "
                "larger one, rescale X, or use feature_map='nystroem'"
            )

    def with_length_scale(self, theta: Any) -> Self:
        """Return a fitted copy with other length scales; frequencies times θ stay the same."""
        other = copy(self)
        other.kernel_ = self.kernel_.with_length_scale(theta)
        old, new = self.kernel_.theta, other.kernel_.theta
        inputs = len(self.frequencies_)
        if new.size not in (1, inputs):
            raise ValueError(f"theta has {new.size} entries for {inputs} inputs; give one number, or one per input")
        other.frequencies_ = self.frequencies_ * (old / new)[:, None]
        return other

    def raw_gradient(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Contract with ∂(xᵀω_j)/∂log θ_l = −x_l ω_lj; see `LengthScaleMap.raw_gradient`."""
        dProjection = self._through_cosine(X, raw, dRaw)
        per_input = -np.sum(self.frequencies_ * (X.T @ dProjection), axis=1)
        one_scale = self.kernel_.theta.size == 1
        return np.asarray(np.sum(per_input, keepdims=True) if one_scale else per_input)

    def _through_cosine(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Return the adjoint of the projection X @ frequencies, shape (k, h)."""
        size = self.frequencies_.shape[1]
        if self.phase_ is None:
            slope = raw[:, :size] * dRaw[:, size:]
            slope -= raw[:, size:] * dRaw[:, :size]
            return np.asarray(slope)
        slope = X @ self.frequencies_
        # −sin(a) = cos(a + π/2)
        cos_phase(slope, self.phase_ + np.pi / 2, np.sqrt(2 / size))
        slope *= dRaw
        return np.asarray(slope)

    def linear_gradient(self, product: Array) -> Array:  # noqa: ARG002
        """Return zeros: there is no linear part."""
        return np.zeros(self.kernel_.theta.size)
