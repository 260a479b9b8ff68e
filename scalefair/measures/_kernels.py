"""Kernels of variables of any kind: blocks of their Gram matrices, and sums over pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.data.sources.threads import available_threads, run_threads
from scalefair.errors import check_choice
from scalefair.features.landmarks import fitted_kernel
from scalefair.kernels import Categorical, Kernel
from scalefair.kernels.named import NAMES, plain_name
from scalefair.measures._pair import Variable


@dataclass(frozen=True, eq=False)
class Gram:
    """A kernel of mixed columns: the product (or sum) of kernels of some columns each.

    Parameters
    ----------
    parts : tuple of (Kernel, columns)
    product : bool
        Else the sum.
    """

    parts: tuple[tuple[Kernel, NDArray[np.intp]], ...]
    product: bool = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Return the block k(x_i, z_j), of shape (n, p)."""
        return self._joined([kernel(_at(X, where), _at(Z, where)) for kernel, where in self.parts])

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), of shape (n,)."""
        return self._joined([kernel.diag(_at(X, where)) for kernel, where in self.parts])

    def _joined(self, values: list[Any]) -> Array:
        return np.asarray(reduce(np.multiply if self.product else np.add, values))


def _at(X: Array, where: NDArray[np.intp]) -> Array:
    return X if len(where) == X.shape[1] else np.ascontiguousarray(X[:, where])


def check_kernel(name: str, kernel: Any) -> Any:
    """Return "auto" for None, names for kernels without parameters, others as they are."""
    if kernel is None:
        return "auto"
    if isinstance(kernel, str):
        check_choice(name, kernel, ("auto", *NAMES))
        return kernel
    if isinstance(kernel, Kernel) or hasattr(kernel, "raw"):
        return plain_name(kernel)
    raise TypeError(
        f"{name}={kernel!r} is a {type(kernel).__name__}; give None, one of {', '.join(NAMES)}, or "
        "a kernel of scalefair.kernels"
    )


def gram_of(name: str, kernel: Any, variable: Variable, rows: Array, weight: Array | None) -> Gram:
    """Return the exact kernel, its length scale found from the rows where none is given.

    Parameters
    ----------
    name : str
        Of the argument `kernel`, for errors.
    kernel : None, str or Kernel
        None: categories are crossed (equality), numbers standardised with a Gaussian kernel whose
        length scale is their median distance, and where both occur the product of the two.
    variable : Variable
    rows, weight : arrays of shape (n, p) and (n,)
        Weight None: one each.
    """
    kernel = check_kernel(name, kernel)
    codes, numbers = np.flatnonzero(variable.categorical), np.flatnonzero(~variable.categorical)
    everything = np.arange(rows.shape[1])
    if hasattr(kernel, "raw"):
        raise TypeError(f"{name}={kernel!r} is a feature map; give method='features' or a kernel")
    if isinstance(kernel, str) and kernel == "categorical":
        return Gram(((Categorical(), everything),))
    mixes = isinstance(kernel, str) and kernel in ("auto", "linear")
    if len(codes) and not mixes:
        raise ValueError(
            f"{name}={kernel!r} needs numbers, but {variable.name} has categories in columns "
            f"{codes}; use {name}=None for mixed columns, or 'categorical'"
        )
    smooth, scale = ("rbf", "standardized") if kernel == "auto" else (kernel, "median")
    parts: list[tuple[Kernel, NDArray[np.intp]]] = [(Categorical(), codes)] if len(codes) else []
    if len(numbers):
        w = np.ones(len(rows)) if weight is None else weight
        parts.append((fitted_kernel(smooth, scale, rows[:, numbers], w, 0), numbers))
    return Gram(tuple(parts), product=not (isinstance(kernel, str) and kernel == "linear"))


TILE = 512
"""Rows and columns of a tile: two tiles of float64 take 4 MB."""

KernelBlock = Callable[[Array, Array], Array]
"""A kernel: the block of its Gram matrix of some rows and others."""


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


def pair_sums(K: KernelBlock, L: KernelBlock, A: Array, B: Array, weight: Array) -> PairSums:
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

    first, *others = run_threads(work, lanes, stop)
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
