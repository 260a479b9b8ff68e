"""Distance correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from scalefair import _jit
from scalefair._typing import Array, Chunk
from scalefair.errors import check_choice, check_count
from scalefair.features.base import seed_of
from scalefair.features.landmarks import distinct_rows
from scalefair.measures._features import FeaturePair, PivotMap, pivot_map
from scalefair.measures._kernels import PairSums, centred, pair_sums
from scalefair.measures._pair import Pair, UndefinedError, Variable, open_pair
from scalefair.measures.independence import PAIR_METHODS, squared_covariances
from scalefair.moments import Moments

MAX_EXACT_DISTANCE_ROWS = 10_000
"""Up to so many rows of several columns, method="auto" compares every pair."""


LEAST_SQUARED_DISTANCES = 1e-280
"""Sums of squared distances below this have lost digits to underflow."""


def distance_correlation(
    a: Any,
    b: Any,
    *,
    sample_weight: Any = None,
    method: str = "auto",
    n_components: int = 200,
    random_state: Any = 0,
) -> float:
    """Distance correlation of Székely, Rizzo and Bakirov (2007), in [0, 1].

        dCor² = dCov²(a, b) / √(dCov²(a, a) dCov²(b, b)),   dCov² = tr(D_a H D_b H)/n²

    with the matrices D of Euclidean distances. For n → ∞ it is 0 only for independent variables;
    in a sample it is positive and biased upwards, to order 1/√n.

    Parameters
    ----------
    a, b : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, p)
        Numbers as given: rescaling all columns of one variable together changes nothing,
        rescaling one of several does. Rows of different categories are at distance 1.
    sample_weight : array-like of shape (n,), optional
        Weight 2 is the row twice.
    method : {"auto", "exact", "features"}
        "exact": O(n log n) for one numeric column against another, else O(n²) time and O(n)
        memory. "features": one pass, through landmarks of the kernel that the distance induces
        (Sejdinovic et al. 2013), whose error falls slowly: about 1e-3 for one column. "auto": exact
        where rows are in memory and columns single, or up to 10,000 rows.
    n_components : int
        Most landmarks per variable.
    random_state : int, RandomState or None
        Of the sample that landmarks are chosen from.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 101)
    >>> round(distance_correlation(x, x**2), 2)
    0.49
    """
    check_choice("method", method, PAIR_METHODS)
    pair = open_pair(a, b, sample_weight, seed=seed_of(random_state))
    if method == "exact" and not pair.in_memory:
        raise ValueError(
            "method='exact' needs the rows in memory; use method='features' for scans and dask"
        )
    if pair.in_memory and (method == "exact" or (method == "auto" and _is_quick(pair))):
        sums, w = _exact_sums(pair)
        ab = centred(sums.KL, sums.k, sums.l, w)
        aa, bb = centred(sums.KK, sums.k, sums.k, w), centred(sums.LL, sums.l, sums.l, w)
        return _correlation(ab, aa, bb)
    features = distance_features(pair, check_count("n_components", n_components))
    return distance_of(features.moments())


def distance_of(moments: Moments) -> float:
    """Return the distance correlation from moments of `distance_features`."""
    return _correlation(*squared_covariances(moments))


def _correlation(ab: float, aa: float, bb: float) -> float:
    if not min(aa, bb) > LEAST_SQUARED_DISTANCES:
        raise UndefinedError(
            "a or b varies so little that the squares of its distances vanish; rescale it"
        )
    return float(np.sqrt(np.clip(ab / (np.sqrt(aa) * np.sqrt(bb)), 0.0, 1.0)))


def _is_quick(pair: Pair) -> bool:
    return pair.n_rows <= MAX_EXACT_DISTANCE_ROWS or _is_single(pair)


def _is_single(pair: Pair) -> bool:
    return all(v.categorical.shape == (1,) and not v.categorical[0] for v in (pair.a, pair.b))


def _exact_sums(pair: Pair) -> tuple[PairSums, Array]:
    rows = pair.rows()
    w = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    if _is_single(pair):
        return _sorted_sums(rows.x[:, 0], rows.s[:, 0], w), w
    A, B = _embedded(pair.a, rows.x), _embedded(pair.b, rows.s)
    return pair_sums(cdist, cdist, A, B, w), w


def _sorted_sums(x: Array, y: Array, w: Array) -> PairSums:
    """The sums over pairs of one column each, by sorting (cf. Huo and Székely 2016)."""
    x, y = ((v - v.mean()) / v.std() for v in (x, y))
    order = np.argsort(x, kind="stable")
    rank = rankdata(y[order], method="ordinal").astype(np.int64)
    cross = 2 * float(_jit.distance_products(x[order], y[order], rank, w[order]))
    xx, yy = (float(2 * (w.sum() * (w @ v**2) - (w @ v) ** 2)) for v in (x, y))
    return PairSums(cross, xx, yy, _row_sums(x, w), _row_sums(y, w))


def _row_sums(x: Array, w: Array) -> Array:
    """Σ_j w_j |x_i − x_j| of every i, from cumulative sums in the order of x."""
    order = np.argsort(x, kind="stable")
    v, weight = x[order], w[order]
    below, mass = np.cumsum(weight * v), np.cumsum(weight)
    sums = v * (2 * mass - mass[-1]) + below[-1] - 2 * below
    out = np.empty(len(x))
    out[order] = sums
    return out


def _embedded(variable: Variable, rows: Array) -> Array:
    """Coordinates whose Euclidean distance is that of the rows."""
    parts = [rows[:, ~variable.categorical]]
    for column in np.flatnonzero(variable.categorical):
        levels = np.arange(variable.n_levels[column])
        parts.append((rows[:, [column]] == levels) * np.sqrt(0.5))
    return np.hstack(parts)


@dataclass(frozen=True, eq=False)
class _DistanceKernel:
    """k(x, z) = (|x − o| + |z − o| − |x − z|)/2: HSIC with it is dCov²/4, whatever o is."""

    variable: Variable
    origin: Array

    def __call__(self, X: Array, Z: Array) -> Array:
        left, right = _embedded(self.variable, X), _embedded(self.variable, Z)
        out = cdist(left, right)
        np.negative(out, out=out)
        out += np.linalg.norm(left - self.origin, axis=1)[:, None]
        out += np.linalg.norm(right - self.origin, axis=1)
        out *= 0.5
        return np.asarray(out)

    def diag(self, X: Array) -> Array:
        return np.asarray(np.linalg.norm(_embedded(self.variable, X) - self.origin, axis=1))


def distance_features(pair: Pair, size: int) -> FeaturePair:
    """Return the features of the kernels that the distances induce."""
    sample = pair.landmark_rows(size)
    phi, psi = (
        _distance_map(variable, rows, sample, size)
        for variable, rows in ((pair.a, sample.x), (pair.b, sample.s))
    )
    return FeaturePair(pair, phi, psi)


def _distance_map(variable: Variable, rows: Array, sample: Chunk, size: int) -> PivotMap:
    weight = np.ones(len(rows)) if sample.weight is None else sample.weight
    distinct, _ = distinct_rows(rows, weight)
    origin = _embedded(variable, distinct).mean(axis=0)
    return pivot_map(_DistanceKernel(variable, origin), distinct, size)
