"""Distance correlation."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from scalefair._typing import Array
from scalefair.maps._base import seed_of
from scalefair.measures._rows import open_pair
from scalefair.measures._sums import centred, pair_sums


def distance_correlation(
    a: Any, b: Any, *, sample_weight: Any = None, random_state: Any = 0
) -> float:
    """Distance correlation of Székely et al., in [0, 1]; 0 only for independent variables."""
    pair = open_pair(a, b, sample_weight, seed=seed_of(random_state))
    rows = pair.rows()
    w = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    sums = pair_sums(_distances, _distances, rows.x, rows.s, w)
    ab = centred(sums.KL, sums.k, sums.l, w)
    aa, bb = centred(sums.KK, sums.k, sums.k, w), centred(sums.LL, sums.l, sums.l, w)
    return float(np.sqrt(np.clip(ab / np.sqrt(aa * bb), 0.0, 1.0)))


def _distances(X: Array, Z: Array) -> Array:
    return cdist(X, Z)
