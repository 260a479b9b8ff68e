"""How every kernel is compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# After numba, whose import switches the lock on again where numba itself needs it.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "scalefair has not been tested without the global interpreter lock; start Python with "
        "-X gil=1 (or PYTHON_GIL=1), or use a build that has it"
    )

# "contract" allows fused multiply-add and nothing else: NaN, infinities and the order of the
# error-compensating sums survive. "reassoc" lets a sum be split over vector lanes.
CONTRACT = frozenset({"contract"})
REASSOCIATE = frozenset({"contract", "reassoc"})

Matrix = NDArray[np.floating[Any]]
"""A vector or a matrix, float32 or float64."""


def _compiled(function: Callable[..., Any], fastmath: frozenset[str]) -> Any:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no writable place for a cache, as in a read-only container
        return njit(**options)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use, without the GIL; products and sums may be fused."""
    return _compiled(function, CONTRACT)


def reduction(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, with sums in whatever order is fastest."""
    return _compiled(function, REASSOCIATE)
