"""Measures by distances: distance correlation, and mutual information by nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma

from scalefair import _jit
from scalefair._hash import distinct
from scalefair._typing import Array
from scalefair.errors import check_count
from scalefair.features.landmarks import distinct_rows
from scalefair.measures._features import FeaturePair, pivot_map
from scalefair.measures._pair import Pair, UndefinedError, Variable, open_pair
from scalefair.measures.independence import PairSums, cosine, pair_sums, squared_covariances
from scalefair.moments import Moments

Counts = NDArray[np.int64]

MAX_EXACT_DISTANCE_ROWS = 10_000
"""Up to so many rows of several columns, method="auto" compares every pair."""

MIN_SQUARED_DISTANCES = 1e-280  # Sums of squared distances below this have lost digits to underflow


def distance_correlation(
    a: Any, b: Any, *, sample_weight: Any = None, method: str = "auto", n_components: int = 200, random_state: Any = 0
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
        "exact": O(n log n) for one numeric column against one of numbers or categories, else O(n²)
        time and O(n) memory. "features": O(n), through landmarks of the kernel that the
        distance induces (Sejdinovic et al. 2013), whose error falls slowly: about 1e-3 for one
        column. "auto": exact where rows are in memory and columns single, or up to 10,000 rows.
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
    pair = open_pair(a, b, sample_weight, random_state=random_state, method=method)
    single = all(v.categorical.shape == (1,) for v in (pair.a, pair.b))
    single = single and not (pair.a.categorical[0] and pair.b.categorical[0])
    quick = pair.in_memory and (single or pair.n_rows <= MAX_EXACT_DISTANCE_ROWS)
    if method == "exact" or (method == "auto" and quick):
        rows = pair.rows()
        w = rows.weights
        if single and pair.a.categorical[0]:
            sums = _level_sums(rows.s[:, 0], rows.x[:, 0], w)
        elif single:
            of_columns = _level_sums if pair.b.categorical[0] else _sorted_sums
            sums = of_columns(rows.x[:, 0], rows.s[:, 0], w)
        else:
            A, B = _embedded(pair.a, rows.x), _embedded(pair.b, rows.s)
            sums = pair_sums(cdist, cdist, A, B, w)
        return float(np.sqrt(cosine(*sums.covariances(), MIN_SQUARED_DISTANCES)))
    features = distance_features(pair, check_count("n_components", n_components))
    return distance_of(features.moments()[0])


def distance_of(moments: Moments) -> float:
    """Return the distance correlation from moments of `distance_features`."""
    return float(np.sqrt(cosine(*squared_covariances(moments), MIN_SQUARED_DISTANCES)))


def _sorted_sums(x: Array, y: Array, w: Array) -> PairSums:
    """The sums over pairs of one column each, by sorting (cf. Huo and Székely 2016)."""
    x, y, w = _in_order(x, y, w)
    y = (y - y.mean()) / y.std()
    order, rank = np.argsort(y, kind="stable"), np.empty(len(y), dtype=np.int64)
    rank[order] = np.arange(1, len(y) + 1)
    cross = 2 * float(_jit.distance_products(x, y, rank, w))
    xx, yy = (float(2 * (w.sum() * (w @ v**2) - (w @ v) ** 2)) for v in (x, y))
    return PairSums(cross, xx, yy, _row_sums(x, w), _row_sums(y[order], w[order])[rank - 1], w)


def _level_sums(x: Array, levels: Array, w: Array) -> PairSums:
    """The same of numbers and categories: only pairs of different levels count, with 1."""
    x, levels, w = _in_order(x, levels, w)
    _, level = np.unique(levels, return_inverse=True)
    whole, mass = _row_sums(x, w), np.bincount(level, weights=w)
    apart = whole.copy()
    for one in range(len(mass)):
        at = np.flatnonzero(level == one)
        apart[at] -= _row_sums(x[at], w[at])
    xx = float(2 * (w.sum() * (w @ x**2) - (w @ x) ** 2))
    others = mass.sum() - mass
    return PairSums(float(w @ apart), xx, float(mass @ others), whole, others[level], w)


def _in_order(x: Array, *beside: Array) -> list[Array]:
    """Return standardised numbers, ascending, and what is beside them."""
    order = np.argsort(x, kind="stable")
    return [(x[order] - x.mean()) / x.std(), *(values[order] for values in beside)]


def _row_sums(x: Array, w: Array) -> Array:
    """Σ_j w_j |x_i − x_j| of every i, from cumulative sums of ascending x."""
    below, mass = np.cumsum(w * x), np.cumsum(w)
    return np.asarray(x * (2 * mass - mass[-1]) + below[-1] - 2 * below)


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
        apart = cdist(_embedded(self.variable, X), _embedded(self.variable, Z))
        return np.asarray((self.diag(X)[:, None] + self.diag(Z) - apart) / 2)

    def diag(self, X: Array) -> Array:
        return np.asarray(np.linalg.norm(_embedded(self.variable, X) - self.origin, axis=1))


def distance_features(pair: Pair, size: int) -> FeaturePair:
    """Return the features of the kernels that the distances induce."""
    sample, maps = pair.landmark_rows(size), []
    for variable, rows in ((pair.a, sample.x), (pair.b, sample.s)):
        each, _ = distinct_rows(rows, sample.weights)
        origin = _embedded(variable, each).mean(axis=0)
        maps.append(pivot_map(_DistanceKernel(variable, origin), each, size))
    return FeaturePair(pair, maps[0], maps[1], sample.x.mean(axis=0))


def mutual_information(
    a: Any, b: Any, n_neighbors: int = 3, *, max_rows: int | None = 100_000, clip: bool = True, random_state: Any = 0
) -> float:
    """Mutual information in nats, of continuous, discrete or mixed variables.

        ψ(n) + mean of ψ(kᵢ) − ψ(nᵢₐ) − ψ(nᵢᵦ)

    where, rᵢ being the distance of row i to its k-th neighbour, kᵢ rows (itself included) are nearer than rᵢ, nᵢₐ are
    in a alone, and nᵢᵦ in b alone; without ties kᵢ = k. For continuous variables it is the estimator of Kraskov et al.
    (2004), for one continuous and one discrete that of Ross (2014), for two discrete ones the plug-in with the
    correction of Miller and Madow; equal rows are counted as Gao et al. (2017) do.

    Parameters
    ----------
    a, b : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, p)
        Numbers are standardised, distances are the largest over the columns. Rows of different categories are never
        neighbours; a row whose combination of categories no other row has is left out.
    n_neighbors : int
        k. More of them: less variance, more bias.
    max_rows : int or None
        Of more rows than that so many are used, chosen by their number; rows must fit in memory.
    clip : bool
        Whether an estimate below 0 is returned as 0.
    random_state : int, RandomState or None
        Of that choice.

    Returns
    -------
    float
        0 for independent variables, without upper limit for numbers.

    Notes
    -----
    Within 0.02 nats for two Gaussians and 10,000 rows. Limits: the estimate cannot exceed about log n, so that a
    deterministic relation looks finite; with several columns each the bias grows, downwards for strong dependence;
    the standard deviation is about 1/√n or more, so that weak dependence is better found by :func:`hsic_test`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, z = rng.standard_normal((2, 5000))
    >>> abs(mutual_information(x, 0.6 * x + 0.8 * z) - 0.223) < 0.03
    True
    """
    k = check_count("n_neighbors", n_neighbors)
    pair = open_pair(a, b, random_state=random_state, least=k + 2)
    rows = pair.rows(None if max_rows is None else check_count("max_rows", max_rows))
    first, second = _points(pair.a, rows.x), _points(pair.b, rows.s)
    cells = first.cells * (second.cells.max() + 1) + second.cells
    radius, nearest = _neighbours(_Points(cells, np.hstack([first.numbers, second.numbers])), k)
    used = nearest > 0
    if not used.any():
        raise UndefinedError(
            "every row has a combination of categories of its own, so their dependence "
            "cannot be measured; merge rare levels, or pass numbers as numbers"
        )
    # Strictly inside, also where a number plus the radius is rounded.
    n_a, n_b = (_within(points, radius * (1 - 1e-9))[used] for points in (first, second))
    terms = digamma(nearest[used]) - digamma(n_a) - digamma(n_b)
    value = float(digamma(used.sum()) + terms.mean())
    return max(value, 0.0) if clip else value


# scikit-learn's mutual_info_regression takes one column at a time and adds noise to break ties;
# variables here have several columns, of numbers and categories, and ties are counted.
class _Points(NamedTuple):
    """Rows as the combination of their categories and their standardised numbers."""

    cells: Counts
    numbers: Array

    def parts(self) -> Iterator[tuple[Counts, Array]]:
        """Yield the rows of each combination of categories, and their numbers."""
        order = np.argsort(self.cells, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(self.cells[order])) + 1):
            yield rows, self.numbers[rows]


def _points(variable: Variable, rows: Array) -> _Points:
    cells = distinct(rows[:, variable.categorical]).number
    numbers = rows[:, ~variable.categorical]
    # Deviation 1, but for columns that are constant here. In two steps, since the square of a tiny
    # number is 0.
    for unit in (np.ptp, np.std):
        size = unit(numbers, axis=0)
        numbers = (numbers - numbers.mean(axis=0)) / np.where(size > 0, size, 1.0)
    return _Points(cells, numbers)


def _neighbours(joint: _Points, k: int) -> tuple[Array, Counts]:
    """Distance r of the k-th neighbour of the same categories, and the number of rows inside r.

    The row itself counts, the k-th does not, so that without ties the number is k. At r = 0 it is
    that of equal rows. Where a cell has fewer neighbours, k is their number.
    """
    radius, nearest = np.zeros(len(joint.cells)), np.zeros(len(joint.cells), dtype=np.int64)
    for rows, points in joint.parts():
        if len(rows) == 1:
            continue
        if points.shape[1] == 0:
            nearest[rows] = len(rows)
            continue
        each, _, same = distinct(points)
        copies, most = np.bincount(same), min(k, len(rows) - 1)
        few, r = copies <= most, np.zeros(len(each))
        if few.any():
            # More than k + 1 copies of a point would only fill the leaves of the tree.
            tree = cKDTree(np.repeat(each, np.minimum(copies, most + 1), axis=0))
            distances = np.asarray(tree.query(each[few], k=most + 1, p=np.inf, workers=-1)[0])
            r[few] = distances[:, -1]
            copies[few] = np.sum(distances < distances[:, -1:] * (1 - 1e-9), axis=1)
        radius[rows], nearest[rows] = r[same], copies[same]
    return radius, nearest


def _within(space: _Points, radius: Array) -> Counts:
    """Number of rows of the same categories at most `radius` away, the row itself included."""
    counts = np.zeros(len(radius), dtype=np.int64)
    for rows, points in space.parts():
        if points.shape[1] == 0:
            counts[rows] = len(rows)
        elif points.shape[1] == 1:
            values, r = points[:, 0], radius[rows]
            ordered = np.sort(values)
            upper = np.searchsorted(ordered, values + r, side="right")
            counts[rows] = upper - np.searchsorted(ordered, values - r, side="left")
        else:
            tree = cKDTree(points)
            counts[rows] = tree.query_ball_point(points, radius[rows], p=np.inf, return_length=True, workers=-1)
    return counts
