"""Sums over rows of one fold, and the moments they make."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._jit import add_pairs, add_rows
from scalefair._linalg import add_outer, mirror_upper, rank_k_update
from scalefair._typing import Array, Rows
from scalefair.statistics.moments import Moments


class CrossSums:
    """Σ φtᵀ and Σ ttᵀ of shifted rows, t = [ψ, beside, y, 1]."""

    def __init__(self, width: int, rest: int) -> None:
        self.cross = np.zeros((width, rest))
        self.rest = np.zeros((rest, rest))
        self.n_rows = 0

    def add(self, Phi: Rows, rest: Array) -> None:
        """Count rows in that are shifted and multiplied by √weight."""
        self.cross += Phi.T @ rest.astype(Phi.dtype, copy=False)
        self._add_rest(rest)

    def _add_rest(self, rest: Array) -> None:
        self.rest += rest.T @ rest
        self.n_rows += int(np.count_nonzero(rest[:, -1]))


class Sums(CrossSums):
    """The same and Σ φφᵀ, for one fold."""

    def __init__(self, width: int, rest: int, dtype: Any) -> None:
        super().__init__(width, rest)
        self.phi = np.zeros((width, width))
        # float32 rows: the products of a chunk are float32, their sum over chunks is float64.
        self._chunk = None if dtype == np.float64 else np.zeros_like(self.phi, dtype=dtype)

    def add(self, Phi: Rows, rest: Array) -> None:
        """Count rows in that are shifted and multiplied by √weight."""
        if self._chunk is None:
            rank_k_update(self.phi, Phi)
        else:
            rank_k_update(self._chunk, Phi, keep=0.0)
            self.phi += self._chunk
        super().add(Phi, rest)

    def add_coded(self, codes: NDArray[np.int32], rest: Array) -> None:
        """Count rows in whose φ is 1 in the columns `codes`, of shape (t, k), and 0 elsewhere."""
        root, codes = rest[:, -1], np.ascontiguousarray(codes)
        add_pairs(codes, root * root, self.phi)
        add_rows(codes, root[:, None] * rest, self.cross)
        self._add_rest(rest)

    def moments(self, blocks: dict[str, int], shift: Array) -> Moments:
        """Centre the sums: scatter = Σ zzᵀ − (Σz)(Σz)ᵀ / n about the shift."""
        weight = float(self.rest[-1, -1])
        if weight == 0:
            return Moments.empty(blocks)
        total = np.concatenate([self.cross[:, -1], self.rest[:-1, -1]])
        m = len(self.phi)
        scatter = np.zeros((len(total), len(total)))
        scatter[:m, :m] = self.phi
        scatter[:m, m:] = self.cross[:, :-1]
        scatter[m:, m:] = self.rest[:-1, :-1]
        add_outer(scatter, total, -total / weight)
        mirror_upper(scatter)
        return Moments(blocks, self.n_rows, weight, shift, total / weight, scatter)
