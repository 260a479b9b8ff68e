"""The base class of kernels; sums, products and multiples of kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.errors import FINITE, TINY, check_number

LengthScale = float | tuple[float, ...]
"""One length scale for all inputs, or one per input (ARD)."""


class Kernel(ABC):
    """A positive semi-definite function k(x, z); frozen, hashable, comparable.

    A subclass defines `__call__`, or `against`, by which this one computes the matrix.

    """

    metric: ClassVar[str] = "l2"
    """The distance that θ divides, "l2" or "l1": what the median heuristic should measure."""

    @property
    def length_scale(self) -> LengthScale:
        """One number, or one per input; empty for a kernel without length scale."""
        return ()

    @property
    def theta(self) -> Array:
        """The length scales as an array of shape (n_hyper,), in the order of `gradient`."""
        return np.atleast_1d(np.asarray(self.length_scale, dtype=np.float64))

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return the matrix k(x_i, z_j).

        Parameters
        ----------
        X : array of shape (n, d)
        Z : array of shape (p, d), default X
        out : array of shape (n, p), C-ordered, optional
            Written into and returned; of the precision of the result.

        Returns
        -------
        array of shape (n, p)
            float32 if X and Z are, else float64.
        """
        rows, others = as_pair(X, Z)
        shape = len(rows), len(others)
        out = np.empty(shape, rows.dtype) if out is None else as_output(out, shape, (rows.dtype,))
        self.against(others)(rows, out)
        return out

    def against(self, Z: Rows) -> Callable[[Rows, Rows], None]:
        """Return the function that fills `out` with k(X, Z) for one Z and any rows X of its dtype, not checked."""

        def fill(X: Rows, out: Rows) -> None:
            self(X, Z, out)

        return fill

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:
        """Return Σ_ij G_ij ∂k(x_i, z_j)/∂log θ_l.

        Parameters
        ----------
        X, Z : arrays of shape (n, d) and (p, d)
            Z None: X.
        G, K : arrays of shape (n, p)
            The adjoint of the kernel matrix and, optional, the matrix itself, which is quicker.

        Returns
        -------
        array of shape (n_hyper,), float64
            One entry for a scalar length scale, d for ARD, none for kernels without length scale.
            No array larger than (n, p) or (n, d) is formed.
        """
        rows, others = as_pair(X, Z, double=True)
        adjoint = as_adjoint(G, (len(rows), len(others)))
        known = K is not None and K.dtype == np.float64 and K.shape == adjoint.shape
        per_input = self._gradient(rows, others, adjoint, K if known else None)
        shared = not isinstance(self.length_scale, tuple)
        return np.sum(per_input, keepdims=True) if shared else per_input

    def point_gradient(self, X: Any, Z: Any, G: Any) -> Array:
        """Return Σ_i G_ij ∂k(x_i, z_j)/∂z_jl: how a function of the matrix changes with Z.

        Parameters
        ----------
        X, Z, G : arrays of shape (n, d), (p, d) and (n, p)
            As in `gradient`; Z is not None.

        Returns
        -------
        array of shape (p, d), float64
        """
        rows, others = as_pair(X, Z, double=True)
        return self._point_gradient(rows, others, as_adjoint(G, (len(rows), len(others))))

    def spectral_sample(self, n_features: int, n_frequencies: int, rng: Any, orthogonal: bool = False) -> Array:
        """Return frequencies ω with E cos(ωᵀ(x - z)) = k(x, z).

        Parameters
        ----------
        n_features, n_frequencies : int
            Numbers of inputs d and of frequencies m.
        rng : numpy Generator or seed
        orthogonal : bool
            Frequencies (times θ) orthogonal within blocks of d, each with its usual distribution.

        Returns
        -------
        array of shape (d, m), already divided by the length scale
        """
        del n_features, n_frequencies, rng, orthogonal
        raise ValueError(
            f"{self!r} has no spectral sample: only RBF, Laplace and Matern have one; use a Nyström map for this kernel"
        )

    @abstractmethod
    def diag(self, X: Any) -> Rows:
        """Return k(x_i, x_i), shape (n,)."""

    @abstractmethod
    def with_length_scale(self, theta: Any) -> Self:
        """Return the same kernel with another length scale."""

    def __add__(self, other: Kernel) -> Sum:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def _gradient(self, X: Rows, Z: Rows, G: Array, K: Array | None) -> Array:
        """Return the gradient as if every input had a length scale of its own, shape (d,)."""
        raise NotImplementedError

    def _point_gradient(self, X: Rows, Z: Rows, G: Array) -> Array:
        del X, Z, G
        raise ValueError(
            f"{self!r} has no gradient in its points: only RBF and Matern have one; choose one of "
            "them, or keep the landmarks where they are"
        )


@dataclass(frozen=True, eq=False)
class KernelOf(Kernel):
    """A kernel made of another one, whose length scales are its own."""

    kernel: Kernel

    @property
    def metric(self) -> str:  # type: ignore[override]
        """The metric of the kernel inside."""
        return self.kernel.metric

    @property
    def length_scale(self) -> LengthScale:
        """The length scale of the kernel inside."""
        return self.kernel.length_scale

    def with_length_scale(self, theta: Any) -> Self:
        """Return the same of the kernel inside with another length scale."""
        return replace(self, kernel=self.kernel.with_length_scale(theta))


@dataclass(frozen=True)
class Scaled(KernelOf):
    """amplitude² · k(x, z).

    Parameters
    ----------
    kernel : Kernel
    amplitude : float
        Positive. Its gradient needs no pass over the data, so `gradient` is that of the length scales only.
    """

    amplitude: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise _not_a_kernel(self.kernel)
        amplitude = check_number("amplitude", self.amplitude, TINY, FINITE)
        object.__setattr__(self, "amplitude", amplitude)

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return amplitude² k(x_i, z_j); see `Kernel.__call__`."""
        out = self.kernel(X, Z, out)
        out *= self.amplitude**2
        return out

    def diag(self, X: Any) -> Rows:
        """Return amplitude² k(x_i, x_i), shape (n,)."""
        values = self.kernel.diag(X)
        values *= self.amplitude**2
        return values

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:  # noqa: ARG002
        """Return amplitude² times the gradient of the kernel inside."""
        return self.amplitude**2 * self.kernel.gradient(X, Z, G)

    def point_gradient(self, X: Any, Z: Any, G: Any) -> Array:
        """Return amplitude² times that of the kernel inside."""
        return self.amplitude**2 * self.kernel.point_gradient(X, Z, G)


@dataclass(frozen=True, init=False, repr=False)
class Combined(Kernel):
    """Several kernels of the same inputs; length scales and gradients are concatenated."""

    kernels: tuple[Kernel, ...]
    _join: ClassVar[np.ufunc]

    def __init__(self, *kernels: Kernel) -> None:
        if not kernels:
            raise ValueError("a sum or product needs at least one kernel, got none")
        for kernel in kernels:
            if not isinstance(kernel, Kernel):
                raise _not_a_kernel(kernel)
        parts = [k.kernels if type(k) is type(self) else (k,) for k in kernels]
        object.__setattr__(self, "kernels", sum(parts, ()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.kernels))})"

    @property
    def length_scale(self) -> LengthScale:
        """All length scales, in the order of the kernels."""
        return tuple(np.concatenate([kernel.theta for kernel in self.kernels]).tolist())

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return the sum or product of all k_a(x_i, z_j)."""
        first, *others = self.kernels
        out = first(X, Z, out)
        for kernel in others:
            self._join(out, kernel(X, Z), out=out)
        return out

    def diag(self, X: Any) -> Rows:
        """Return the sum or product of all k_a(x_i, x_i), shape (n,)."""
        return reduce(self._join, [kernel.diag(X) for kernel in self.kernels])

    def with_length_scale(self, theta: Any) -> Self:
        """Return the same combination; `theta` holds all length scales, as `theta` returns them."""
        sizes = [kernel.theta.size for kernel in self.kernels]
        values = np.atleast_1d(np.asarray(theta, dtype=np.float64))
        if values.shape != (sum(sizes),):
            raise ValueError(
                f"theta has shape {values.shape}, expected ({sum(sizes)},): the length scales of all kernels, in order"
            )
        pieces = np.split(values, np.cumsum(sizes)[:-1])
        pairs = zip(self.kernels, pieces, strict=True)
        return type(self)(*(kernel.with_length_scale(piece) for kernel, piece in pairs))


class Sum(Combined):
    """Sum Σ_a k_a(x, z) of kernels; also written `k1 + k2`.

    Parameters
    ----------
    kernels : list of kernels
    """

    _join = np.add

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:  # noqa: ARG002
        """Return the gradients of the summands, one after the other."""
        return np.concatenate([kernel.gradient(X, Z, G) for kernel in self.kernels])


class Product(Combined):
    """Product Π_a k_a(x, z) of kernels; also written `k1 * k2`.

    Parameters
    ----------
    kernels : list of kernels
    """

    _join = np.multiply

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:  # noqa: ARG002
        """Return the gradients of the factors, each with the other factors multiplied into G."""
        values = [kernel(X, Z) for kernel in self.kernels]
        adjoint = as_adjoint(G, values[0].shape)
        gradients = []
        for a, kernel in enumerate(self.kernels):
            others = values[:a] + values[a + 1 :]
            gradients.append(kernel.gradient(X, Z, reduce(np.multiply, others, adjoint)))
        return np.concatenate(gradients)


def _not_a_kernel(value: Any) -> TypeError:
    return TypeError(f"{value!r} is not a kernel; expected RBF(...), Linear(), ...")


def as_rows(X: Any, name: str, *, numbers: bool = False) -> np.ndarray[Any, Any]:
    """Return X as an array with rows and columns; float32 or float64 where `numbers` are needed."""
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}, expected (rows, columns); reshape one column with {name}.reshape(-1, 1)"
        )
    if not numbers or array.dtype == np.float32:
        return array
    if np.iscomplexobj(array):
        raise TypeError(f"{name} is complex ({array.dtype}), expected real numbers; pass {name}.real")
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} has dtype {array.dtype} with values that are not numbers; "
            "encode categories first, or use Categorical()"
        ) from None


def as_pair(X: Any, Z: Any, *, numbers: bool = True, double: bool = False) -> tuple[Any, Any]:
    """Return X and Z (None: X itself); numbers in one precision: float32 if both are."""
    rows = as_rows(X, "X", numbers=numbers)
    others = rows if Z is None else as_rows(Z, "Z", numbers=numbers)
    if rows.shape[1] != others.shape[1]:
        raise ValueError(
            f"X has {rows.shape[1]} columns and Z has {others.shape[1]}, expected the same; "
            "pass rows of the same inputs"
        )
    same = rows.dtype == others.dtype and not (double and rows.dtype == np.float32)
    if same or not numbers:
        return rows, others
    wide = rows.astype(np.float64)
    return wide, wide if others is rows else others.astype(np.float64)


def as_output(out: Any, shape: tuple[int, int], dtypes: tuple[Any, ...]) -> Rows:
    """Return `out` if it can hold the result, or raise an error that says what is expected."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}, expected a numpy array or None")
    usable = out.flags.c_contiguous and out.flags.writeable
    if out.shape != shape or out.dtype not in dtypes or not usable:
        expected = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise ValueError(
            f"out has shape {out.shape} and dtype {out.dtype}, expected {shape} and {expected}, "
            "C-contiguous and writeable; allocate it with numpy.empty"
        )
    return out


def as_adjoint(G: Any, shape: tuple[int, int]) -> Array:
    """Return G as a C-ordered float64 array of the kernel's shape."""
    array = np.ascontiguousarray(G, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"G has shape {array.shape}, expected {shape}: one entry per row of X and row of Z")
    return array
