"""Poisson bootstrap by row number: the same resamples whatever the chunking."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from scalefair._hash import hash_uniform, row_hash
from scalefair._typing import Array


def poisson_counts(rows: NDArray[np.int64], n_resamples: int, seed: int) -> Array:
    """Return how often each row occurs in each resample, of shape (k, B).

    The count of a row is Poisson with mean 1. It depends on the seed and the number of the row
    alone.
    """
    seeds = row_hash(seed, np.arange(n_resamples))
    uniform = np.stack([hash_uniform(int(s), rows) for s in seeds], axis=1)
    table = pdtr(np.arange(20), 1.0)
    return np.searchsorted(table, uniform, side="right").astype(np.float64)
