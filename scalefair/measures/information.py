"""Mutual information by nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma

from scalefair._typing import Array
from scalefair.maps._base import check_count, seed_of
from scalefair.measures._columns import Variable
from scalefair.measures._rows import open_pair

Counts = NDArray[np.int64]


def mutual_information(
    a: Any, b: Any, n_neighbors: int = 3, *, max_rows: int | None = 200_000, random_state: Any = 0
) -> float:
    """Mutual information in nats, of continuous, discrete or mixed variables."""
    k = check_count("n_neighbors", n_neighbors)
    pair = open_pair(a, b, seed=seed_of(random_state), least=k + 2)
    rows = pair.rows(max_rows)
    x, y = _space(pair.a, rows.x), _space(pair.b, rows.s)
    return max(_mixed(x, y, k), 0.0)


def _space(variable: Variable, rows: Array) -> Array:
    """Standardised numbers; categories so far apart that no neighbour is of another one."""
    out = np.array(rows, dtype=np.float64)
    numeric = ~variable.categorical
    out[:, numeric] = (out[:, numeric] - out[:, numeric].mean(axis=0)) / out[:, numeric].std(axis=0)
    out[:, ~numeric] *= 1e6
    return out


def _mixed(x: Array, y: Array, k: int) -> float:
    """ψ(k̃ᵢ) + ψ(n) − ψ(nₓ) − ψ(n_y), averaged; Kraskov et al. where nothing is tied."""
    joint = np.hstack([x, y])
    distances, _ = cKDTree(joint).query(joint, k=[k + 1], p=np.inf, workers=-1)
    radius = np.asarray(distances)[:, 0]
    closest = np.full(len(x), k)
    # Strictly inside, also where x + radius is rounded.
    inside = radius * (1 - 1e-9)
    tied = radius == 0
    if tied.any():
        closest[tied] = _within(joint, inside)[tied] - 1
    n_x, n_y = _within(x, inside), _within(y, inside)
    return float(np.mean(digamma(closest) + digamma(len(x)) - digamma(n_x) - digamma(n_y)))


def _within(points: Array, radius: Array) -> Counts:
    """Number of points at most `radius` away, the point itself included."""
    if points.shape[1] == 1:
        ordered = np.sort(points[:, 0])
        upper = np.searchsorted(ordered, points[:, 0] + radius, side="right")
        return np.asarray(upper - np.searchsorted(ordered, points[:, 0] - radius, side="left"))
    tree = cKDTree(points)
    return np.asarray(
        tree.query_ball_point(points, radius, p=np.inf, return_length=True, workers=-1)
    )
