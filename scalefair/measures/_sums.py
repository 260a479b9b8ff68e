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
    tiles = [(i, j) for j in range(len(cuts)) for i in range(j + 1)]
    lanes = min(available_threads(), len(tiles))
    stop = Event()

    def work(lane: int) -> PairSums:
        total, k, l = np.zeros(3), np.zeros(n), np.zeros(n)  # noqa: E741
        for i, j in tiles[lane::lanes]:
            if stop.is_set():
                break
            rows, columns = cuts[i], cuts[j]
            _add_tile(
                K(A[rows], A[columns]), L(B[rows], B[columns]),
                weight, rows, columns, total, k, l,
            )  # fmt: skip
        return PairSums(*map(float, total), k, l)

    first, *others = run_lanes(work, lanes, stop)
    return sum(others, first)


def _add_tile(
    K: Array, L: Array, weight: Array, rows: slice, columns: slice,
    total: Array, k: Array, l: Array,  # noqa: E741
) -> None:  # fmt: skip
    w, v = weight[rows], weight[columns]
    apart = rows != columns
    times = 2.0 if apart else 1.0
    for number, (left, right) in enumerate(((K, L), (K, K), (L, L))):
        total[number] += times * (w @ np.einsum("ij,ij,j->i", left, right, v, optimize=False))
    for block, sums in ((K, k), (L, l)):
        sums[rows] += block @ v
        if apart:
            sums[columns] += w @ block


def centred(cross: float, k: Array, l: Array, weight: Array) -> float:  # noqa: E741
    """tr(KHLH)/n² from pair sums: Σww KL/n² − 2Σw kl/n³ + (Σwk)(Σwl)/n⁴, n = Σw."""
    n = weight.sum()
    k, l = k / n, l / n  # noqa: E741
    return float(cross / n**2 - 2 * (weight @ (k * l)) / n + (weight @ k) * (weight @ l) / n**2)


def unbiased(sums: PairSums, diagonal_k: Array, diagonal_l: Array, weight: Array) -> float:
    """HSIC without bias (Song et al. 2012, eq. 5), from the same sums less the diagonal."""
    n = weight.sum()
    k, l = sums.k - diagonal_k, sums.l - diagonal_l  # noqa: E741
    cross = sums.KL - weight @ (diagonal_k * diagonal_l)
    return unbiased_of(
        n, float(cross), float(weight @ k), float(weight @ l), float(weight @ (k * l))
    )


def unbiased_of(n: float, cross: float, k: float, l: float, kl: float) -> float:  # noqa: E741
    """The same, from Σ_{i≠j} K_ij L_ij, Σ_{i≠j} K_ij, Σ_{i≠j} L_ij and Σ_i k_i l_i."""
    return (cross + k * l / ((n - 1) * (n - 2)) - 2 * kl / (n - 2)) / (n * (n - 3))
