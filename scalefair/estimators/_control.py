"""The maps of control features: υ(c), and ξ(s, c) for conditional parity."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from scalefair._digest import digest
from scalefair._typing import Chunk, FeatureMap, Rows
from scalefair.estimators._data import TrainingData
from scalefair.features.crossed import Crossed, features, n_features
from scalefair.features.design import Block, counted_rows
from scalefair.features.mixed import CROSSED, mixed_map
from scalefair.features.units import units_of
from scalefair.moments import Moments
from scalefair.penalties import CUTOFF, partial_covariance


def control_maps(
    estimator: Any, data: TrainingData, psi: FeatureMap | None
) -> tuple[FeatureMap | None, Crossed | None]:
    """Return υ and ξ, fitted on the sample and one row of each group; None without control."""
    encoder = data.preparation.control_encoder
    if encoder is None or psi is None:
        return None, None
    size = estimator.n_sensitive_components
    sample = data.sample
    upsilon = mixed_map(
        "auto", "median", size, rows=sample.c, weight=sample.weight,
        categorical=encoder.categorical_, groups=data.control_groups, seed=data.seed,
        scale_at=data.scale_at,
    )  # fmt: skip
    xi = Crossed.fit(
        psi, upsilon, sample.s, sample.c, sample.weight, most=CROSSED * size, seed=data.seed
    )
    return upsilon, xi


def check_left(moments: Moments) -> None:
    """Raise ValueError if a control tells the group of every row: nothing is left to punish."""
    if "xi" not in moments.blocks:
        return
    left = np.trace(partial_covariance(moments, "xi", "xi"))
    if not left > CUTOFF["xi"] * np.trace(moments.covariance("xi", "xi")):
        raise ValueError(
            "control_features tell the sensitive attributes of every row, so that nothing is left "
            "to be independent of; leave out the column that does, or make it coarser"
        )


def control_blocks(upsilon: FeatureMap | None, xi: Crossed | None) -> tuple[Block, ...]:
    """Return υ and ξ as blocks of the rows, whose moments the conditional penalties need."""
    if upsilon is None or xi is None:
        return ()
    return (
        Block("upsilon", n_features(upsilon), partial(_upsilon_rows, upsilon), digest(upsilon)),
        Block("xi", xi.width, partial(_xi_rows, xi), digest(xi), units_of(xi)),
    )


def _upsilon_rows(upsilon: FeatureMap, chunk: Chunk) -> Rows:
    return counted_rows(partial(features, upsilon), chunk, chunk.c)


def _xi_rows(xi: Crossed, chunk: Chunk) -> Rows:
    def rows(at: Any) -> Rows:
        return xi.rows(chunk.s[at], chunk.c[at])

    return counted_rows(rows, chunk, np.arange(chunk.n_rows))
