"""Random Fourier features from a projection, fused and in place."""

from __future__ import annotations

import numpy as np

from scalefair._jit._compile import Matrix, kernel
from scalefair._jit.elementary import FAST_LIMIT
from scalefair._jit.vectors import cos_into, count_large, repair_cos, repair_sin, sincos_into

ELEMENTS_AT_ONCE = 512
"""Elements per step: argument and result stay in the first-level cache."""


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
            large = 0
            for j in range(row.size):
                argument[j] = row[j] + shift[j]
                large += not abs(argument[j]) <= FAST_LIMIT
            cos_into(argument, row, scale)
            if large > 0:
                repair_cos(argument, row, scale)


@kernel
def cos_sin(P: Matrix, out: Matrix, scale: float) -> None:
    """Write [scale·cos(P), scale·sin(P)] into `out`, of shape (k, 2m), which must not overlap P.

    Accuracy as in `cos_phase`.
    """
    m = P.shape[1]
    for i in range(P.shape[0]):
        for start in range(0, m, ELEMENTS_AT_ONCE):
            stop = min(start + ELEMENTS_AT_ONCE, m)
            x = P[i, start:stop]
            cosine = out[i, start:stop]
            sine = out[i, m + start : m + stop]
            sincos_into(x, sine, cosine, scale)
            if count_large(x) > 0:
                repair_sin(x, sine, scale)
                repair_cos(x, cosine, scale)
