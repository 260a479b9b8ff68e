"""Centred Gram matrices in the forms that a test can have them in.

Each has `n`, `statistic` (HSIC, biased) and, as its null distribution needs it, `spectra` or
`permuted_statistics`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import random_table

from scalefair import _jit
from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.measures._null import Spectrum
from scalefair.statistics import Moments
from scalefair.stream._threads import available_threads, run_lanes

Order = NDArray[np.int64]


def permuted_statistics(
    statistic: Callable[[Order], float],
    n: int,
    count: int,
    seed: int,
    draw: Callable[[np.random.Generator], Order] | None = None,
) -> Array:
    """Return the statistic of `count` random orders of n rows, whatever the number of threads."""
    lanes = min(available_threads(), count)
    stop = Event()

    def one(number: int) -> float:
        rng = np.random.default_rng([seed, number])
        return statistic(rng.permutation(n) if draw is None else draw(rng))

    def work(lane: int) -> list[float]:
        return [one(number) for number in range(lane, count, lanes) if not stop.is_set()]

    return np.concatenate([np.array(part) for part in run_lanes(work, lanes, stop)])


@dataclass(frozen=True, eq=False)
class Dense:
    """n×n arrays K̃ and L̃."""

    K: Array
    L: Array

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.K)

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.vdot(self.K, self.L)) / self.n**2

    @cached_property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
        """By eigenvalues of the n×n arrays."""
        first, second = (
            Spectrum(positive_eigh(G)[0] / self.n, float(np.sum(np.diagonal(G) ** 2)))
            for G in (self.K, self.L)
        )
        return first, second

    def permuted(self, order: NDArray[np.int64]) -> float:
        """HSIC with the rows of the second variable in another order."""
        return float(_jit.permuted_product(self.K, self.L, order)) / self.n**2

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows."""
        return permuted_statistics(self.permuted, self.n, count, seed)


def centre(K: Array) -> Array:
    """HKH, in place."""
    mean = K.mean(axis=0)
    K -= mean
    K -= mean[:, None] - mean.mean()
    return K


@dataclass(frozen=True, eq=False)
class Factors:
    """Centred feature rows, K̃ = ΦΦᵀ and L̃ = ΨΨᵀ, of shapes (n, r) and (n, q)."""

    Phi: Array
    Psi: Array

    @classmethod
    def of(cls, Phi: Array, Psi: Array) -> Factors:
        """Centre the rows."""
        return cls(Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.Phi)

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.sum((self.Phi.T @ self.Psi) ** 2)) / self.n**2

    @cached_property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
        """By eigenvalues of the covariances of the features."""
        first, second = (
            Spectrum(
                positive_eigh(F.T @ F / self.n)[0],
                float(np.sum(np.einsum("ij,ij->i", F, F) ** 2)),
            )
            for F in (self.Phi, self.Psi)
        )
        return first, second

    def permuted(self, order: NDArray[np.int64]) -> float:
        """HSIC with the rows of the second variable in another order."""
        return float(np.sum((self.Phi.T @ self.Psi[order]) ** 2)) / self.n**2

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows."""
        return permuted_statistics(self.permuted, self.n, count, seed)


@dataclass(frozen=True, eq=False)
class Streamed:
    """Moments of feature rows that are not kept."""

    moments: Moments

    @property
    def n(self) -> float:
        """Number of rows of equal weight."""
        return self.moments.effective_rows

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(np.sum(self.moments.covariance("phi", "psi") ** 2))

    @cached_property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
        """By eigenvalues of the covariances; diagonals unknown, n being large."""
        first, second = (
            Spectrum(positive_eigh(self.moments.covariance(name, name))[0])
            for name in ("phi", "psi")
        )
        return first, second


@dataclass(frozen=True, eq=False)
class Levels:
    """Variables of few distinct values each: HSIC is a function of how often they occur together.

    Parameters
    ----------
    table : array of shape (g, h)
        Number of rows of each pair of values.
    Phi, Psi : arrays of shape (g, r) and (h, q)
        Features of the values.
    """

    table: NDArray[np.int64]
    Phi: Array
    Psi: Array

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.sum())

    @cached_property
    def statistic(self) -> float:
        """HSIC."""
        return float(self.of(self.table[None])[0])

    def of(self, tables: NDArray[Any]) -> Array:
        """HSIC of tables with the same margins, stacked along the first axis."""
        share = self.table / self.n
        expected = np.outer(share.sum(axis=1), share.sum(axis=0))
        covariance = self.Phi.T @ (tables / self.n - expected) @ self.Psi
        return np.asarray(np.sum(covariance**2, axis=(1, 2)))

    def permuted_statistics(self, count: int, seed: int) -> Array:
        """HSIC of so many random pairings of the rows, drawn as tables of these margins."""
        margins = self.table.sum(axis=1), self.table.sum(axis=0)
        return self.of(random_table(*margins, seed=seed).rvs(count))
