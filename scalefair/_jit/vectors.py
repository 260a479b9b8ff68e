"""Elementary functions along one contiguous vector, and Fourier features from a projection.

The test of `itemsize` is a constant once compiled: the other loop vanishes. All loops are free of
branches and calls, hence vectorised; what needs care (huge arguments) comes in a second loop.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from scalefair._jit._compile import Matrix, kernel
from scalefair._jit.elementary import FAST_LIMIT, ONE, cos64, exp32, exp64, sincos32, sincos64

ELEMENTS_AT_ONCE = 512  # Elements per step: argument and result stay in the first-level cache


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
def repair(x: Matrix, out: Matrix, scale: float, sine: bool) -> None:
    """Overwrite scale·cos(x), or its sine, beyond the fast range: libm's, NaN where x is not finite."""
    for j in large_positions(x):
        angle = np.float64(x[j])
        if math.isfinite(angle):
            out[j] = scale * (math.sin(angle) if sine else math.cos(angle))
        else:
            out[j] = np.nan


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


@kernel
def cos_phase(P: Matrix, phase: Matrix, scale: float) -> None:
    """Replace the projection P = X @ frequencies, of shape (k, m), by scale·cos(P + phase).

    The cosine of the rounded sum is within 1 ulp (float32: 2 ulp) for |P + phase| ≤ 1e5, libm's
    beyond, NaN for NaN and infinity. The result of an element does not depend on its neighbours.
    """
    x = np.empty(ELEMENTS_AT_ONCE, P.dtype)
    for i in range(P.shape[0]):
        for start in range(0, P.shape[1], ELEMENTS_AT_ONCE):
            row = P[i, start : start + ELEMENTS_AT_ONCE]
            shift = phase[start : start + ELEMENTS_AT_ONCE]
            argument = x[: row.size]
            for j in range(row.size):
                argument[j] = row[j] + shift[j]
            cos_into(argument, row, scale)
            if count_large(argument) > 0:
                repair(argument, row, scale, False)


@kernel
def cos_sin(P: Matrix, out: Matrix, scale: float) -> None:
    """Write scale·[cos(P), sin(P)] into `out`, (k, 2m), apart from P; accuracy as in `cos_phase`."""
    m = P.shape[1]
    for i in range(P.shape[0]):
        for start in range(0, m, ELEMENTS_AT_ONCE):
            stop = min(start + ELEMENTS_AT_ONCE, m)
            x = P[i, start:stop]
            cosine = out[i, start:stop]
            sine = out[i, m + start : m + stop]
            sincos_into(x, sine, cosine, scale)
            if count_large(x) > 0:
                repair(x, sine, scale, True)
                repair(x, cosine, scale, False)
