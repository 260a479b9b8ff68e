"""Kernels with an exact finite feature map: linear and categorical."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Rows
from scalefair.kernels.base import Kernel, as_output, as_pair, as_rows


class WithoutLengthScale(Kernel):
    """A kernel without length scale."""

    def with_length_scale(self, theta: Any) -> Self:
        """Return the kernel itself; `theta` must be empty."""
        if np.size(theta) > 0:
            raise ValueError(f"{self!r} has no length scale, got {theta!r}; pass an empty tuple, or scale the inputs")
        return self

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:  # noqa: ARG002
        """Return an empty array: there is no length scale."""
        return np.empty(0)


@dataclass(frozen=True)
class Linear(WithoutLengthScale):
    """Linear kernel xᵀz."""

    def diag(self, X: Any) -> Rows:
        """Return |x_i|², shape (n,)."""
        rows = as_rows(X, "X", numbers=True)
        return np.asarray(np.einsum("ij,ij->i", rows, rows))

    def against(self, Z: Rows) -> Callable[[Rows, Rows], None]:
        """Return the function that fills `out` with XZᵀ; see `Kernel.against`."""

        def fill(X: Rows, out: Rows) -> None:
            np.matmul(X, Z.T, out=out)

        return fill


@dataclass(frozen=True)
class Categorical(WithoutLengthScale):
    """Equality kernel 1[x = z], over all columns: the intersection of the categories.

    Works on numbers (codes), strings and objects. Missing values (NaN) equal each other: missing
    is a category, and k(x, x) = 1 for every row.
    """

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return 1 where the rows are equal, else 0; `out` may be float32 or float64."""
        rows, others = as_pair(X, Z, numbers=False)
        single = rows.dtype == np.float32 and others.dtype == np.float32
        shape = len(rows), len(others)
        if out is None:
            out = np.empty(shape, np.float32 if single else np.float64)
        else:
            out = as_output(out, shape, (np.float64, np.float32))
        out[...] = 1.0
        for x, z in zip(*(part.T for part in _comparable(rows, others)), strict=True):
            out *= (x[:, None] == z) | (np.isnan(x)[:, None] & np.isnan(z))
        return out

    def diag(self, X: Any) -> Rows:
        """Return ones, shape (n,)."""
        rows = as_rows(X, "X")
        return np.ones(len(rows), np.float32 if rows.dtype == np.float32 else np.float64)


def _comparable(X: NDArray[Any], Z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return numbers as they are; of anything else one number per distinct row, shape (n, 1)."""
    if X.dtype.kind in "biuf" and Z.dtype.kind in "biuf":
        return X, Z
    numbers: dict[Hashable, int] = {}

    def code(row: list[Any]) -> int:
        # NaN is not equal to itself, an ellipsis is.
        key = tuple(... if isinstance(v, float | np.floating) and np.isnan(v) else v for v in row)
        return numbers.setdefault(key, len(numbers))

    try:
        left, right = ([[code(row)] for row in part.tolist()] for part in (X, Z))
    except TypeError as error:
        raise TypeError(
            f"Categorical compares hashable values, but a row holds something else ({error}); "
            "convert it to strings or codes"
        ) from None
    return np.array(left), np.array(right)
