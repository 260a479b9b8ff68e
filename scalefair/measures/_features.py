"""Moments of the features of two variables, in one pass over their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.maps._base import check_count
from scalefair.maps.mixed import SAMPLE_ROWS
from scalefair.measures._kernels import Gram, map_of
from scalefair.measures._rows import Pair
from scalefair.statistics import Folds, Moments, RowMap, accumulate
from scalefair.statistics.accumulate import ALL_ROWS


@dataclass(frozen=True, eq=False)
class FeaturePair:
    """Two variables and the maps of their kernels.

    Parameters
    ----------
    pair : Pair
        The rows.
    phi, psi : FeatureMap
        Of a and of b.
    """

    pair: Pair
    phi: FeatureMap
    psi: FeatureMap

    def moments(self) -> Moments:
        """Return the moments of [φ(a), ψ(b)]."""
        (moments,) = accumulate(self.pair.source, RowMap(self.phi, self.psi, 0))
        return moments

    def moments_with(self, columns: Any, width: int, folds: Folds = ALL_ROWS) -> Any:
        """Return the moments of [φ(a), ψ(b), y] per fold, y = columns(chunk) of given width."""
        source = self.pair.source.then(partial(_with_columns, columns))
        return accumulate(source, RowMap(self.phi, self.psi, width), folds=folds)


def _with_columns(columns: Any, chunk: Chunk) -> Chunk:
    return replace(chunk, y=columns(chunk))


def diagonals(a: Gram, b: Gram, chunk: Chunk) -> Array:
    """Return k(x_i, x_i) of both kernels, of shape (k, 2)."""
    return np.column_stack([a.diag(chunk.x), b.diag(chunk.s)])


def feature_pair(
    pair: Pair, kernel_a: Any, kernel_b: Any, n_components: int, names: tuple[str, str]
) -> FeaturePair:
    """Fit the maps of both kernels on one sample of the rows."""
    size = check_count("n_components", n_components)
    sample = pair.rows(max(SAMPLE_ROWS, 4 * size))
    phi = map_of(names[0], kernel_a, pair.a, sample, sample.x, size, pair.seed)
    psi = map_of(names[1], kernel_b, pair.b, sample, sample.s, size, pair.seed)
    return FeaturePair(pair, phi, psi)
