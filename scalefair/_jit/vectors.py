"""Elementary functions along one contiguous vector, in the precision of the array.

The test of `itemsize` is a constant once compiled: the other loop vanishes. All loops are free of
branches and calls, hence vectorised; what needs care (huge arguments) comes in a second loop.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import Matrix, kernel
from scalefair._jit.elementary import FAST_LIMIT, ONE, cos64, exp32, exp64, sincos32, sincos64


@kernel
def count_large(x: Matrix) -> int:
    """Return how many elements are beyond the fast range, NaN included."""
    count = 0
    for j in range(x.size):
        count += not abs(x[j]) <= FAST_LIMIT
    return count


@kernel
def cos_into(x: Matrix, out: Matrix, scale: float) -> None:
    """Write scale·cos(x) into `out`, another array than x."""
    if x.itemsize == 4:
        for j in range(x.size):
            out[j] = np.float32(scale) * sincos32(x[j])[1]
    else:
        for j in range(x.size):
            out[j] = scale * cos64(x[j])


@kernel
def sincos_into(x: Matrix, sine: Matrix, cosine: Matrix, scale: float) -> None:
    """Write scale·sin(x) and scale·cos(x) into two other arrays."""
    if x.itemsize == 4:
        for j in range(x.size):
            s, c = sincos32(x[j])
            sine[j] = np.float32(scale) * s
            cosine[j] = np.float32(scale) * c
    else:
        for j in range(x.size):
            s, c = sincos64(x[j])
            sine[j] = scale * s
            cosine[j] = scale * c


@kernel
def large_positions(x: Matrix) -> NDArray[np.int64]:
    """Return where x is beyond the fast range.

    A list, not a condition around the call of libm: LLVM holds a cosine to be free of side effects
    and may compute it for every element, to drop what the condition excludes.
    """
    positions = np.empty(x.size, np.int64)
    count = 0
    for j in range(x.size):
        positions[count] = j
        count += not abs(x[j]) <= FAST_LIMIT
    return positions[:count]


@kernel
def repair_cos(x: Matrix, out: Matrix, scale: float) -> None:
    """Overwrite scale·cos(x) beyond the fast range: libm's, NaN where x is not finite."""
    for j in large_positions(x):
        out[j] = scale * math.cos(np.float64(x[j])) if math.isfinite(x[j]) else np.nan


@kernel
def repair_sin(x: Matrix, out: Matrix, scale: float) -> None:
    """Overwrite scale·sin(x) beyond the fast range: libm's, NaN where x is not finite."""
    for j in large_positions(x):
        out[j] = scale * math.sin(np.float64(x[j])) if math.isfinite(x[j]) else np.nan


@kernel
def exp_negative(x: Matrix) -> None:
    """Replace x by exp(-x)."""
    if x.itemsize == 4:
        for j in range(x.size):
            x[j] = exp32(-x[j])
    else:
        for j in range(x.size):
            x[j] = exp64(-x[j])


@kernel
def quadratic_exp(a: Matrix, square: float) -> None:
    """Replace a by (1 + a + square·a²) exp(-a)."""
    if a.itemsize == 4:
        for j in range(a.size):
            b = np.float32(a[j])
            a[j] = (ONE + b * (ONE + np.float32(square) * b)) * exp32(-b)
    else:
        for j in range(a.size):
            c = a[j]
            a[j] = (ONE + c * (ONE + square * c)) * exp64(-c)
