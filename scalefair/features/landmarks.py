"""What maps learn from a sample of rows: length scales, and the landmarks of a Nyström map.

All works on the distinct rows in lexicographic order, each with the total weight of its copies: the
choice does not depend on the order of rows, and weight 2 is the row twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import distinct, hash_uniform, smallest_hash
from scalefair._linalg import positive_eigh
from scalefair._typing import Array, Rows
from scalefair.errors import check_choice
from scalefair.kernels import Kernel, make_kernel, median_length_scale

LANDMARK_METHODS = ("uniform", "kmeans++", "leverage")
_BLOCK_ENTRIES = 1 << 22
MEDIAN_ROWS = 1000  # of the median heuristic, at most
PILOTS = 3  # rounds in which leverage scores are learnt, each from a pilot that the last one chose
LEAST_PILOT = 100  # rows of a pilot, where twice the landmarks are fewer


def distinct_rows(X: Rows, weight: Array) -> tuple[Array, Array]:
    """Return the distinct rows of positive weight in lexicographic order, and their weights."""
    present = weight > 0
    rows, _, copy_of = distinct(X[present].astype(np.float64))
    total = np.bincount(copy_of, weights=weight[present])
    return rows, np.asarray(total, dtype=np.float64)


def fitted_kernel(kernel: Any, length_scale: Any, rows: Rows, weight: Array, seed: int) -> Kernel:
    """Return the kernel with its length scale found from the rows where a heuristic was requested; see `Nystroem`."""
    unscaled = make_kernel(kernel)
    if isinstance(kernel, Kernel) or unscaled.length_scale == ():
        return unscaled
    if not isinstance(length_scale, str):
        return unscaled.with_length_scale(length_scale)
    check_choice("length_scale", length_scale, ("median", "standardized"))
    rows, weight = distinct_rows(rows, weight)
    if len(rows) < 2:
        raise ValueError(
            "the median heuristic needs distances between rows, but all rows of positive weight are equal, or there "
            "is only 1 sample; give rows that differ, or length_scale as a number"
        )
    units = standard_deviation(rows, weight) if length_scale == "standardized" else 1.0
    sample = smallest_hash(seed, 0, len(rows), MEDIAN_ROWS)
    median = median_length_scale(rows[sample] / units, weight[sample], metric=unscaled.metric)
    return unscaled.with_length_scale(median * units)


def standard_deviation(rows: Rows, weight: Array) -> Array:
    """Return the weighted standard deviation of each column; 1 for a constant column."""
    rows = rows[weight > 0].astype(np.float64)
    share = weight[weight > 0] / weight.sum()
    deviation = np.sqrt(share @ (rows - share @ rows) ** 2)
    # The mean of equal numbers is rounded, so that their deviation need not be exactly 0.
    constant = (np.ptp(rows, axis=0) == 0) | (deviation == 0)
    return np.asarray(np.where(constant, 1.0, deviation))


def choose_landmarks(
    method: str, kernel: Any, rows: Array, weight: Array, *, size: int, seed: int
) -> NDArray[np.int64]:
    """Return the positions of `size` landmarks among distinct rows, ascending; of all if fewer."""
    if len(rows) <= size:
        return np.arange(len(rows))
    if method == "kmeans++":
        return kmeans_plus_plus(kernel, rows, weight, size, seed)
    if method == "leverage":
        weight = ridge_leverage_scores(kernel, rows, weight, size, seed)
    return weighted_sample(weight, size, seed)


def weighted_sample(weight: Array, size: int, seed: int) -> NDArray[np.int64]:
    """Draw positions in proportion to weights: the first of −log(1 − u_i)/w_i, u_i a hash."""
    clock = -np.log1p(-hash_uniform(seed, np.arange(len(weight))))
    with np.errstate(over="ignore"):
        clock /= np.maximum(weight, np.finfo(np.float64).tiny)
    return np.sort(np.argsort(clock, kind="stable")[:size])


def kmeans_plus_plus(kernel: Any, rows: Array, weight: Array, size: int, seed: int) -> NDArray[np.int64]:
    """Seed k-means++: each landmark in proportion to w·min_z D²(x, z), D² = k(x, x) − 2k(x, z) + k(z, z)."""
    rng = np.random.default_rng(seed)
    diag = np.asarray(kernel.diag(rows), dtype=np.float64)
    nearest = np.full(len(rows), np.inf)
    mass = weight / weight.sum()
    chosen: list[int] = []
    while len(chosen) < size and mass.any():
        new = int(rng.choice(len(rows), p=_shares(mass)))
        chosen.append(new)
        distance = diag - 2 * kernel(rows, rows[new : new + 1])[:, 0] + diag[new]
        np.minimum(nearest, np.maximum(distance, 0.0), out=nearest)
        nearest[chosen] = 0.0
        mass = weight * nearest
    return np.sort(np.array(chosen, dtype=np.int64))


def _shares(mass: Array) -> Array:
    """mass / Σ mass, also of numbers so small that their quotients would not add up to 1."""
    if mass.sum() < 1e-290:
        mass = mass / mass.max()
    return np.asarray(mass / mass.sum())


def ridge_leverage_scores(kernel: Any, rows: Array, weight: Array, size: int, seed: int) -> Array:
    """Approximate the ridge leverage scores ℓ_i = [B(B + γI)⁻¹]_ii of B = √w K √w.

    With a pilot J of rows drawn with chances p, V = diag(w_J/p_J) and B_J = √V K_JJ √V,

        ℓ_i ≈ w_i/γ · (k(x_i, x_i) − k_iJ √V (B_J + γI)⁻¹ √V k_Ji),    at most 1.

    Chances follow the weights first, then the scores found so far (Musco and Musco 2017). γ makes
    the effective dimension half the number of landmarks. Cost O(n·size·d + n·size² + size³).
    """
    scores, count = weight, max(2 * size, LEAST_PILOT)
    for again in range(1, PILOTS + 1):
        # Not the seed of the draw that follows: pilot rows would be favoured in it.
        pilot = weighted_sample(scores, count, seed + again)
        root = np.sqrt(weight[pilot] / _chances(scores, count)[pilot])
        scores = _scores_from(kernel, rows, weight, pilot, root=root, dimension=size / 2)
        if len(pilot) == len(rows):
            break
    return scores


def _scores_from(
    kernel: Any, rows: Array, weight: Array, pilot: NDArray[np.int64], *, root: Array, dimension: float
) -> Array:
    """The scores as one pilot sees them; `root` are the roots of its weights V."""
    values, vectors = positive_eigh(root[:, None] * kernel(rows[pilot]) * root)
    ridge = _ridge_of_dimension(values, dimension)
    half = root[:, None] * vectors / np.sqrt(values + ridge)
    left = np.asarray(kernel.diag(rows), dtype=np.float64).copy()
    step = max(1, _BLOCK_ENTRIES // len(pilot))
    for start in range(0, len(rows), step):
        block = kernel(rows[start : start + step], rows[pilot]) @ half
        left[start : start + step] -= np.einsum("ij,ij->i", block, block)
    return np.asarray(np.clip(weight * left / ridge, 0.0, 1.0))


def _chances(scores: Array, count: int) -> Array:
    """min(1, c·scores) with the c that makes their sum `count`: how likely each row is drawn."""
    if len(scores) <= count:
        return np.ones(len(scores))
    ordered = np.sort(scores)[::-1]
    left = np.maximum(ordered.sum() - np.cumsum(ordered) + ordered, np.finfo(np.float64).tiny)
    # If the k largest are certain, c is what remains over the sum of the others.
    factors = (count - np.arange(count)) / left[:count]
    certain = np.flatnonzero(factors * ordered[:count] <= 1)
    factor = factors[certain[0]] if len(certain) else np.inf
    return np.minimum(1.0, factor * np.maximum(scores, np.finfo(np.float64).tiny))


def _ridge_of_dimension(values: Array, dimension: float, floor: float = 1e-8) -> float:
    """Solve Σ_j values_j/(values_j + γ) = dimension for γ ≥ floor · max(values), by bisection."""
    low = max(floor * float(values.max()), np.finfo(np.float64).tiny)
    # Σ v/(v + γ) ≤ Σ v/γ, so this γ is large enough.
    high = max(low, float(values.sum()) / dimension)
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        if (values / (values + middle)).sum() > dimension:
            low = middle
        else:
            high = middle
    return high
