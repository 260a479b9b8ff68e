"""What a kernel accepts: rows, length scales, and the array to write into."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array, Rows

LengthScale = float | tuple[float, ...]
"""One length scale for all inputs, or one per input (ARD)."""


def as_length_scale(value: Any) -> LengthScale:
    """Return `value` as a float or a tuple of floats; all must be positive and finite."""
    if isinstance(value, str):
        raise ValueError(
            f"length_scale={value!r} must be a number or one number per input; "
            "resolve 'median' on rows first, with median_length_scale(X)"
        )
    try:
        theta = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"length_scale={value!r} must be a number or one number per input"
        ) from None
    if theta.ndim > 1:
        raise ValueError(
            f"length_scale has shape {theta.shape}, expected a number or a one-dimensional array; "
            "ravel it"
        )
    if not np.all(np.isfinite(theta) & (theta > 0)):
        raise ValueError(
            f"length_scale={value!r} must be positive and finite; drop constant inputs, "
            "or give them length scale 1"
        )
    return float(theta) if theta.ndim == 0 else tuple(theta.tolist())


def as_rows(X: Any, name: str) -> np.ndarray[Any, Any]:
    """Return X as an array of any type with rows and columns."""
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(
            f"{name} has shape {array.shape}, expected (rows, columns); "
            f"reshape one column with {name}.reshape(-1, 1)"
        )
    return array


def as_numbers(X: Any, name: str) -> Rows:
    """Return X as float32 rows if it is float32, else as float64."""
    array = as_rows(X, name)
    if np.iscomplexobj(array):
        raise TypeError(
            f"{name} is complex ({array.dtype}), expected real numbers; pass {name}.real"
        )
    if array.dtype == np.float32:
        return array
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} has dtype {array.dtype} with values that are not numbers; "
            "encode categories first, or use Categorical()"
        ) from None


def same_columns(X: np.ndarray[Any, Any], Z: np.ndarray[Any, Any]) -> None:
    """Raise unless X and Z have as many columns."""
    if X.shape[1] != Z.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and Z has {Z.shape[1]}, expected the same; "
            "pass rows of the same inputs"
        )


def as_pair(X: Any, Z: Any, double: bool = False) -> tuple[Rows, Rows]:
    """Return X and Z (None: X itself) in one precision: float32 if both are, else float64."""
    rows = as_numbers(X, "X")
    others = rows if Z is None else as_numbers(Z, "Z")
    same_columns(rows, others)
    if rows.dtype == others.dtype and not (double and rows.dtype == np.float32):
        return rows, others
    wide = rows.astype(np.float64)
    return wide, wide if others is rows else others.astype(np.float64)


def as_output(out: Any, shape: tuple[int, int], dtypes: tuple[Any, ...]) -> Rows:
    """Return `out` if it can hold the result, a new array if it is None."""
    if out is None:
        return np.empty(shape, dtypes[0])
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}, expected a numpy array or None")
    if out.shape != shape or out.dtype not in dtypes:
        expected = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise ValueError(
            f"out has shape {out.shape} and dtype {out.dtype}, expected {shape} and {expected}; "
            "allocate it with numpy.empty"
        )
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writeable; allocate it with numpy.empty")
    return out


def as_adjoint(G: Any, shape: tuple[int, int]) -> Array:
    """Return G as a C-ordered float64 array of the kernel's shape."""
    array = np.ascontiguousarray(G, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(
            f"G has shape {array.shape}, expected {shape}: one entry per row of X and row of Z"
        )
    return array


def as_count(value: Any, name: str) -> int:
    """Return a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}={value!r} must be an integer")
    if value < 1:
        raise ValueError(f"{name}={value!r} must be at least 1")
    return int(value)
