"""The median heuristic for a length scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair import _jit
from scalefair._typing import Array
from scalefair.kernels.base import as_rows

MAX_ROWS = 10_000
"""Beyond this the pairs alone need more than 400 MB; a sample gives the same length scale."""

WEIGHT_ROUNDING = 1e-10
"""Share of the total that summing up millions of weights may be off by."""


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
        raise ValueError(
            f"X has {len(rows)} rows, expected at most {MAX_ROWS}; pass a sample of the rows"
        )
    if not np.isfinite(rows).all():
        raise ValueError("X has NaN or infinite values in rows of positive weight; leave them out")
    distances = _jit.pair_distances(rows, metric == "l1")
    apart = distances > 0
    if not apart.any():
        raise ValueError(
            "all rows of X with positive weight are equal, so no length scale can be found; "
            "give length_scale as a number, or pass rows that differ"
        )
    if weights.min() == weights.max():  # ten times as fast without a sort
        return float(np.median(distances[apart]))
    return _weighted_median(distances[apart], _jit.pair_products(weights)[apart])


def _weighted_median(values: Array, weights: Array) -> float:
    """Return the value at half the total weight; the mean of two where the half falls between."""
    order = np.argsort(values)
    values, below = values[order], np.cumsum(weights[order])
    # A sum that misses the half by rounding alone has reached it: a common factor of the weights
    # must not decide between one value and the mean of two.
    lower, upper = np.searchsorted(
        below, 0.5 * below[-1] * np.array([1 - WEIGHT_ROUNDING, 1 + WEIGHT_ROUNDING])
    )
    return float(0.5 * (values[lower] + values[upper]))
