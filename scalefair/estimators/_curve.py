"""Smooth functions of a base model's prediction, one for each group, as features.

A prediction whose whole distribution is to be the same in all groups must be bent in each of them
in its own way: κ(ĥ) ⊗ [1, ψ(s)] spans such functions. Where the model may not see s, κ(ĥ) alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._digest import digest
from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.features import Nystroem
from scalefair.features._base import standard_deviation
from scalefair.features.crossed import Crossed, features, n_features
from scalefair.features.design import Block, counted_rows

LANDMARKS = 16
MOST = 400
"""Columns of κ ⊗ ψ at most."""


@dataclass(frozen=True, eq=False)
class Curve:
    """κ(ĥ), and κ(ĥ) ⊗ ψ(s) where the model sees s.

    Parameters
    ----------
    kappa : FeatureMap
        Of ĥ.
    crossed : Crossed or None
        The product with ψ.
    """

    kappa: FeatureMap
    crossed: Crossed | None

    @property
    def width(self) -> int:
        """Number of columns."""
        return n_features(self.kappa) + (0 if self.crossed is None else self.crossed.width)

    def rows(self, chunk: Chunk) -> Array:
        """Return the columns of a chunk; zero for rows of weight zero."""

        def of(at: Any) -> Array:
            own = features(self.kappa, np.ascontiguousarray(chunk.h[at]))
            if self.crossed is None:
                return own
            return np.hstack([own, self.crossed.rows(chunk.s[at], chunk.h[at])])

        return np.asarray(counted_rows(of, chunk, np.arange(chunk.n_rows)), dtype=np.float64)


def curve_of(estimator: Any, data: TrainingData, psi: FeatureMap | None) -> Curve | None:
    """Return the curves that a kernel on the output asks for beside a base model; else None."""
    base = data.preparation.base
    if base is None or getattr(estimator, "output_kernel", None) is None:
        return None
    h, sample = np.asarray(base.join(data.split_sample).h), data.sample
    weight = np.ones(len(h)) if sample.weight is None else sample.weight
    scale = standard_deviation(h, weight)
    kappa = Nystroem(length_scale=scale, n_components=LANDMARKS, random_state=data.seed)
    kappa.fit(h, sample_weight=weight)
    if psi is None or not estimator._joins_sensitive:
        return Curve(kappa, None)
    crossed = Crossed.fit(psi, kappa, sample.s, h, weight, most=MOST, seed=data.seed)
    return Curve(kappa, crossed)


def curve_block(curve: Curve | None) -> tuple[Block, ...]:
    """Return the curves as a block of the rows."""
    return () if curve is None else (Block("curve", curve.width, curve.rows, digest(curve)),)
