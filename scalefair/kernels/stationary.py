"""Kernels of x - z with a length scale, its median heuristic, and all kernels by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import pdist

from scalefair import _jit
from scalefair._typing import Array, Rows
from scalefair.errors import check_count
from scalefair.kernels.base import Kernel, LengthScale, as_rows
from scalefair.kernels.exact import Categorical, Linear

MAX_ROWS = 10_000  # Beyond this the pairs alone need more than 400 MB; a sample gives the same length scale
WEIGHT_ROUNDING = 1e-10  # Share of the total that summing up millions of weights may be off by


@dataclass(frozen=True)
class Stationary(Kernel):
    """A function of x - z, with k(x, x) = 1 and a length scale."""

    length_scale: LengthScale = 1.0

    def __post_init__(self) -> None:
        value: Any = self.length_scale
        if isinstance(value, str):
            raise ValueError(
                f"length_scale={value!r} must be a number or one number per input; "
                "resolve 'median' on rows first, with median_length_scale(X)"
            )
        try:
            theta = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"length_scale={value!r} must be a number or one per input") from None
        if theta.ndim > 1:
            raise ValueError(
                f"length_scale has shape {theta.shape}, expected a number or a one-dimensional array; ravel it"
            )
        if not np.all(np.isfinite(theta) & (theta > 0)):
            raise ValueError(
                f"length_scale={value!r} must be positive and finite; drop constant inputs, or give them length scale 1"
            )
        scale = tuple(theta.tolist()) if theta.ndim else float(theta)
        object.__setattr__(self, "length_scale", scale)

    def diag(self, X: Any) -> Rows:
        """Return ones, shape (n,)."""
        rows = as_rows(X, "X", numbers=True)
        return np.ones(len(rows), rows.dtype)

    def with_length_scale(self, theta: Any) -> Self:
        """Return the kernel with another length scale; one element leaves a scalar a scalar."""
        if isinstance(self.length_scale, float) and np.shape(theta) == (1,):
            theta = theta[0]
        return replace(self, length_scale=theta)

    def spectral_sample(self, n_features: int, n_frequencies: int, rng: Any, orthogonal: bool = False) -> Array:
        """Return frequencies; Gaussian for RBF, Student's for Matern, Cauchy for Laplace."""
        d, m = check_count("n_features", n_features), check_count("n_frequencies", n_frequencies)
        theta = self._scale_for(d)
        frequencies = self._unit_frequencies(d, m, np.random.default_rng(rng), orthogonal)
        return np.asarray(frequencies / (theta[:, None] if theta.ndim else theta))

    @abstractmethod
    def _unit_frequencies(self, d: int, m: int, rng: np.random.Generator, orthogonal: bool) -> Array:
        """Return frequencies for θ = 1, shape (d, m)."""

    def _scale_for(self, n_features: int) -> Array:
        """Return θ, of shape () or (d,)."""
        theta = np.asarray(self.length_scale, dtype=np.float64)
        if theta.ndim and theta.size != n_features:
            raise ValueError(
                f"length_scale has {theta.size} entries for {n_features} inputs; give one number, or one per input"
            )
        return theta

    def _standardiser(self, Z: Rows) -> Callable[[Rows], tuple[Rows, Rows]]:
        """Return X -> A = (X − mean of Z)/θ and |a_i|², so that |x|² + |z|² − 2x·z keeps digits."""
        # A length scale beyond the largest float32 is as good as that one: the kernel is 1.
        theta = np.minimum(self._scale_for(Z.shape[1]), np.finfo(Z.dtype).max).astype(Z.dtype)
        centre = (Z.mean(axis=0, dtype=float) if len(Z) else np.zeros(Z.shape[1])).astype(Z.dtype)
        largest = 1e300 if Z.dtype == np.float64 else 1e36
        own: tuple[Rows, Rows] | None = None

        def standardise(X: Rows) -> tuple[Rows, Rows]:
            if X is Z and own is not None:
                return own
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                shifted: Rows = np.subtract(X, centre, order="C")
                shifted /= theta
            sizes = _jit.squared_norms(shifted)
            if not float(sizes.max(initial=0.0)) <= largest:
                raise ValueError(
                    f"length_scale={self.length_scale!r:.80} is too small for the size of X: squares of X / "
                    f"length_scale overflow in {sizes.dtype}; use a larger one, rescale X, or use float64"
                )
            return shifted, sizes

        own = standardise(Z)
        return standardise


@dataclass(frozen=True)
class Radial(Stationary):
    """k(x, z) = f(r), r² = Σ_l (x_l - z_l)²/θ_l²."""

    slope_is_value: ClassVar[bool] = False
    """Whether -f'(r)/r is f(r): then the kernel matrix, where it is known, gives the gradient."""

    slope_factor: ClassVar[float] = 1.0
    """What `_slope` is to be multiplied by."""

    @abstractmethod
    def _value(self, D: Rows, xx: Rows, zz: Rows) -> None:
        """Replace inner products by f(r)."""

    @abstractmethod
    def _slope(self, D: Rows, xx: Rows, zz: Rows) -> None:
        """Replace inner products by -f'(r)/r, but for a factor."""

    def against(self, Z: Rows) -> Callable[[Rows, Rows], None]:
        """Return the function that fills `out` with k(X, Z); see `Kernel.against`."""
        standardise = self._standardiser(Z)
        B, zz = standardise(Z)

        def fill(X: Rows, out: Rows) -> None:
            A, xx = standardise(X)
            np.matmul(A, B.T, out=out)
            self._value(out, xx, zz)

        return fill

    def _gradient(self, X: Rows, Z: Rows, G: Array, K: Array | None) -> Array:
        """Contract W_ij (a_il - b_jl)², W = G ∘ (-f'(r)/r): three matrix products."""
        standardise = self._standardiser(Z)
        (A, xx), (B, zz) = standardise(X), standardise(Z)
        if K is not None and self.slope_is_value:
            W = G * K
        else:
            W = A @ B.T
            self._slope(W, xx, zz)
            W *= G
        squares = W.sum(axis=1) @ (A * A) + W.sum(axis=0) @ (B * B)
        contracted = squares - 2.0 * np.einsum("il,il->l", A, W @ B)
        return np.asarray(self.slope_factor * contracted)

    def _point_gradient(self, X: Rows, Z: Rows, G: Array) -> Array:
        """Contract W_ij (a_il - b_jl)/θ_l, W = G ∘ (-f'(r)/r): two matrix products."""
        standardise = self._standardiser(Z)
        (A, xx), (B, zz) = standardise(X), standardise(Z)
        W = A @ B.T
        self._slope(W, xx, zz)
        W *= G
        moved = W.T @ A - W.sum(axis=0)[:, None] * B
        return np.asarray(self.slope_factor * moved / self._scale_for(X.shape[1]))

    def _unit_frequencies(self, d: int, m: int, rng: np.random.Generator, orthogonal: bool) -> Array:
        """Return m columns, each N(0, I_d); an orthogonal block is a rotation times χ lengths."""
        if not orthogonal:
            return rng.standard_normal((d, m))
        count = -(-m // d)
        Q, R = np.linalg.qr(rng.standard_normal((count, d, d)))
        # The signs of R's diagonal make Q uniform over all rotations and reflections.
        signs = np.where(np.diagonal(R, axis1=1, axis2=2) < 0, -1.0, 1.0)
        lengths = np.sqrt(rng.chisquare(d, size=(count, d)))
        blocks = Q * (signs * lengths)[:, None, :]
        return np.ascontiguousarray(np.concatenate(list(blocks), axis=1)[:, :m])


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

    slope_is_value: ClassVar[bool] = True
    _value = _slope = staticmethod(_jit.gaussian)


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
    def slope_factor(self) -> float:  # type: ignore[override]
        """Of h, by the smoothness."""
        return {0.5: 1.0, 1.5: 3.0, 2.5: 5.0 / 3.0}[self.nu]

    def _value(self, D: Rows, xx: Rows, zz: Rows) -> None:
        _jit.matern(D, xx, zz, round(2 * self.nu))

    def _slope(self, D: Rows, xx: Rows, zz: Rows) -> None:
        _jit.matern_slope(D, xx, zz, round(2 * self.nu))

    def _unit_frequencies(self, d: int, m: int, rng: np.random.Generator, orthogonal: bool) -> Array:
        gaussian = super()._unit_frequencies(d, m, rng, orthogonal)
        return np.asarray(gaussian * np.sqrt(2.0 * self.nu / rng.chisquare(2.0 * self.nu, size=m)))


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

    def against(self, Z: Rows) -> Callable[[Rows, Rows], None]:
        """Return the function that fills `out` with k(X, Z); see `Kernel.against`."""
        standardise = self._standardiser(Z)
        B, _ = standardise(Z)
        return lambda X, out: _jit.laplace(standardise(X)[0], B, out)

    def _gradient(self, X: Rows, Z: Rows, G: Array, K: Array | None) -> Array:  # noqa: ARG002
        standardise = self._standardiser(Z)
        (A, _), (B, _) = standardise(X), standardise(Z)
        W = np.empty(G.shape)
        _jit.laplace(A, B, W)
        W *= G
        return np.asarray(_jit.laplace_contraction(A, B, W))

    def _unit_frequencies(self, d: int, m: int, rng: np.random.Generator, orthogonal: bool) -> Array:
        if orthogonal:
            raise ValueError(
                "orthogonal=True is not defined for the Laplace kernel, whose frequencies are "
                "independent per coordinate; use orthogonal=False, or Matern(nu=0.5)"
            )
        return rng.standard_cauchy((d, m))


NAMES: dict[str, Callable[[Any], Kernel]] = {
    "rbf": RBF,
    "laplace": Laplace,
    "matern12": lambda length_scale: Matern(length_scale, nu=0.5),
    "matern32": lambda length_scale: Matern(length_scale, nu=1.5),
    "matern52": lambda length_scale: Matern(length_scale, nu=2.5),
    "linear": lambda _: Linear(),
    "categorical": lambda _: Categorical(),
}


def plain_name(kernel: Any) -> Any:
    """Return the name of a kernel without parameters, which is the same thing; others as given."""
    return type(kernel).__name__.lower() if isinstance(kernel, Categorical | Linear) else kernel


def make_kernel(kernel: str | Kernel, length_scale: Any = 1.0) -> Kernel:
    """Return the kernel of that name.

    Parameters
    ----------
    kernel : str or Kernel
        "rbf", "laplace", "matern12", "matern32", "matern52", "linear" or "categorical"; a Kernel
        is returned as it is, with its own length scale.
    length_scale : float or one per input
        Not used by "linear" and "categorical".
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise TypeError(f"kernel={kernel!r} must be a name or a Kernel; names: {', '.join(NAMES)}")
    if kernel not in NAMES:
        raise ValueError(f"kernel={kernel!r} is unknown; expected one of {', '.join(NAMES)}")
    return NAMES[kernel](length_scale)


def median_length_scale(X: Any, weight: Any = None, metric: str = "l2") -> float:
    """Return the weighted median of the non-zero distances between rows.

    Parameters
    ----------
    X : array of shape (n, d)
        A sample of rows, at most 10,000 of positive weight.
    weight : array of shape (n,), optional
        Row weights; a pair weighs the product. Rows of weight 0 are left out, and a row of weight
        2 counts as the row twice, exactly.
    metric : "l2" or "l1"
        The kernel's distance: `kernel.metric`.

    Returns
    -------
    float
        The middle distance, or the mean of the two middle ones, as `numpy.median` has it.
    """
    if metric not in ("l2", "l1"):
        raise ValueError(f"metric={metric!r} must be 'l2' or 'l1'; use kernel.metric")
    rows = np.ascontiguousarray(as_rows(X, "X", numbers=True), dtype=np.float64)
    weights = np.ones(len(rows)) if weight is None else np.asarray(weight, dtype=np.float64)
    if weights.shape != (len(rows),) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError(
            f"weight has shape {weights.shape}, expected ({len(rows)},): one finite number per row "
            "of X, not negative; use 0 to leave a row out"
        )
    rows, weights = rows[weights > 0], weights[weights > 0]
    if len(rows) > MAX_ROWS:
        raise ValueError(f"X has {len(rows)} rows, expected at most {MAX_ROWS}; pass a sample")
    if not np.isfinite(rows).all():
        raise ValueError("X has NaN or infinite values in rows of positive weight; leave them out")
    # Roots keep the order: those of the two in the middle are enough.
    distances: Array = pdist(rows, "cityblock" if metric == "l1" else "sqeuclidean")
    apart = None if distances.min(initial=np.inf) > 0 else distances > 0
    distances = distances if apart is None else distances[apart]
    if not distances.size:
        raise ValueError(
            "all rows of X with positive weight are equal, so no length scale can be found; "
            "give length_scale as a number, or pass rows that differ"
        )
    if weights.min() == weights.max():  # ten times as fast without a sort
        distances.partition(half := len(distances) // 2)
        middle = np.array([distances[half] if len(distances) % 2 else distances[:half].max(), distances[half]])
    else:
        products = np.concatenate([w * weights[i:] for i, w in enumerate(weights, 1)])
        middle = weighted_middle(distances, products if apart is None else products[apart])
    return float(np.mean(middle if metric == "l1" else np.sqrt(middle)))


def weighted_middle(values: Array, weights: Array) -> Array:
    """Return the value at half the total weight, twice; or both where the half falls between."""
    order = np.argsort(values)
    values, below = values[order], np.cumsum(weights[order])
    # A sum that misses the half by rounding alone has reached it: a common factor of the weights
    # must not decide between one value and the mean of two.
    half = 0.5 * below[-1] * np.array([1 - WEIGHT_ROUNDING, 1 + WEIGHT_ROUNDING])
    return np.asarray(values[np.searchsorted(below, half)])
