"""Compiled loops: numba and only numba, free functions on arrays.

Every kernel works in place or into an array it is given, releases the GIL, may run in many threads at once (none is
`parallel=True`), compiles on first use, and is plain Python under NUMBA_DISABLE_JIT=1. numba's disk cache watches only
the file of the kernel itself: after an edit of `elementary.py`, delete `__pycache__` here.
"""

from scalefair._jit.distances import gaussian, laplace, laplace_contraction, matern, matern_slope, squared_norms
from scalefair._jit.sums import add_pairs, add_rows, distance_products, permuted_product
from scalefair._jit.vectors import cos_phase, cos_sin

__all__ = [
    "add_pairs",
    "add_rows",
    "cos_phase",
    "cos_sin",
    "distance_products",
    "gaussian",
    "laplace",
    "laplace_contraction",
    "matern",
    "matern_slope",
    "permuted_product",
    "squared_norms",
]
