"""Sums over all pairs of rows, tile by tile: no n×n array is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

import numpy as np

from scalefair._typing import Array
from scalefair.stream._threads import available_threads, run_lanes

TILE = 512
"""Rows and columns of a tile: two tiles of float64 take 4 MB."""

Block = Callable[[Array, Array], Array]


@dataclass(frozen=True, eq=False)
class PairSums:
    """Weighted sums over pairs of two Gram matrices K and L; `+` adds sums over other tiles.

    Parameters
    ----------
    KL, KK, LL : float
        Σ_ij w_i w_j K_ij L_ij and so on.
    k, l : arrays of shape (n,)
        Σ_j w_j K_ij of every row i, and the same of L.
    """

    KL: float
    KK: float
    LL: float
    k: Array
    l: Array  # noqa: E741

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(
            self.KL + other.KL, self.KK + other.KK, self.LL + other.LL,
            self.k + other.k, self.l + other.l,
        )  # fmt: skip


def pair_sums(K: Block, L: Block, A: Array, B: Array, weight: Array) -> PairSums:
    """Return the sums over all pairs, diagonal included.

    Parameters
    ----------
    K, L : callables
        K(X, Z) is the block of the first Gram matrix, L(X, Z) that of the second.
    A, B : arrays of shape (n, p) and (n, q)
    weight : array of shape (n,)

    Notes
    -----
    O(n²) time, of which symmetry saves half, and O(n + 512²) memory per thread.
    """
    n = len(A)
    cuts = [slice(start, min(start + TILE, n)) for start in range(0, n, TILE)]
    tiles = [(rows, columns) for j, columns in enumerate(cuts) for rows in cuts[: j + 1]]
    lanes = min(available_threads(), len(tiles))
    stop = Event()

    def work(lane: int) -> PairSums:
        sums = _TileSums(weight)
        for rows, columns in tiles[lane::lanes]:
            if stop.is_set():
                break
            sums.add(rows, columns, K(A[rows], A[columns]), L(B[rows], B[columns]))
        return sums.result()

    first, *others = run_lanes(work, lanes, stop)
    return sum(others, first)


class _TileSums:
    """The sums of one thread."""

    def __init__(self, weight: Array) -> None:
        self._weight = weight
        self._total, self._rows = np.zeros(3), np.zeros((2, len(weight)))

    def add(self, rows: slice, columns: slice, K: Array, L: Array) -> None:
        """Count a tile in, and its mirror image where it is off the diagonal."""
        w, v = self._weight[rows], self._weight[columns]
        apart = rows != columns
        products = [w @ (left * right) @ v for left, right in ((K, L), (K, K), (L, L))]
        self._total += (2.0 if apart else 1.0) * np.array(products)
        for block, sums in zip((K, L), self._rows, strict=True):
            sums[rows] += block @ v
            if apart:
                sums[columns] += w @ block

    def result(self) -> PairSums:
        """Return the sums of the tiles seen."""
        KL, KK, LL = map(float, self._total)
        return PairSums(KL, KK, LL, self._rows[0], self._rows[1])


def centred(cross: float, k: Array, l: Array, weight: Array) -> float:  # noqa: E741
    """tr(KHLH)/n² from pair sums: Σww KL/n² − 2Σw kl/n³ + (Σwk)(Σwl)/n⁴, n = Σw."""
    n = weight.sum()
    k, l = k / n, l / n  # noqa: E741
    return float(cross / n**2 - 2 * (weight @ (k * l)) / n + (weight @ k) * (weight @ l) / n**2)


def unbiased(sums: PairSums, diagonal_k: Array, diagonal_l: Array, weight: Array) -> float:
    """HSIC without bias (Song et al. 2012, eq. 5), from the same sums less the diagonal.

    The weights must add up to Kish's (Σw)²/Σw²: then Σw = Σw², and the weighted diagonal that is
    taken off is, on average, the diagonal that the sums have.
    """
    n = float(weight.sum())
    k, l = sums.k - diagonal_k, sums.l - diagonal_l  # noqa: E741
    cross = sums.KL - weight @ (diagonal_k * diagonal_l)
    return unbiased_of(
        n, float(cross), float(weight @ k), float(weight @ l), float(weight @ (k * l))
    )


def unbiased_of(n: float, cross: float, k: float, l: float, kl: float) -> float:  # noqa: E741
    """The same, from Σ_{i≠j} K_ij L_ij, Σ_{i≠j} K_ij, Σ_{i≠j} L_ij and Σ_i k_i l_i."""
    return (cross + k * l / ((n - 1) * (n - 2)) - 2 * kl / (n - 2)) / (n * (n - 3))
