"""What is asked of a fit, and of which rows: frozen values from the estimators to the solvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.progress import Progress
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design
from scalefair.moments import Checkpoint, FoldMoments, accumulate
from scalefair.moments.accumulate import FeatureCache

Bounds = tuple[float, float]

LENGTH_SCALE_SPAN = 1e3
"""Default bounds of a length scale: so much below and above its start."""


@dataclass(frozen=True)
class Spec:
    """What to fit: 1/n ΣV + α|β|² + ηP, with a weight η or a limit that finds it.

    - `alpha`: Ridge of φ.
    - `eta`: Weight of the penalty, where there is no limit.
    - `unfairness`: Limit on the explained share.
    - `penalty`: Name of the penalty.
    - `eps`: Its ε; None: the default.
    - `dtype`: Of the rows, whose rounding error the solution inherits.
    """

    alpha: float
    eta: float
    unfairness: float | None
    penalty: str = "normalized"
    eps: float | None = None
    dtype: str = "float64"


@dataclass(frozen=True, eq=False)
class ProcessSpec:
    """The Gaussian process that is wanted, and how its hyperparameters are learnt.

    - `eta`, `unfairness`: Weight of the penalty, or a limit on the explained share, which finds the
      weight.
    - `penalty`, `eps`: What is punished.
    - `noise`, `amplitude`: σ² and a; None: learnt. A process of classes has no noise.
    - `learn_scales`: False: length scales and landmarks stay where they start.
    - `n_restarts`, `max_iter`, `tol`, `seed`: Of the search.
    - `chunk_rows`: Rows per chunk; None chooses them.
    - `inputs`: Names of the inputs, for messages.
    """

    eta: float
    unfairness: float | None = None
    penalty: str = "normalized"
    eps: float | None = None
    noise: float | None = None
    amplitude: float | None = None
    noise_bounds: Bounds | None = None
    amplitude_bounds: Bounds | None = None
    length_scale_bounds: Bounds | None = None
    learn_scales: bool = True
    n_restarts: int = 0
    max_iter: int = 100
    tol: float = 1e-5
    seed: int = 0
    chunk_rows: int | None = None
    inputs: tuple[str, ...] = ()

    def scale_bounds(self, start: float) -> Bounds:
        """Return the bounds of a log length scale."""
        if not self.learn_scales:
            return start, start
        if self.length_scale_bounds is None:
            return start - np.log(LENGTH_SCALE_SPAN), start + np.log(LENGTH_SCALE_SPAN)
        low, high = np.log(self.length_scale_bounds)
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Rows:
    """Numeric rows, and the design that turns them into [φ, ψ, blocks, y].

    - `n_rows`: How many there are, if that is known.
    - `chunk_rows`: Rows per chunk; None: as many as suit the design.
    - `progress`: Hears of every chunk.
    """

    source: ChunkSource
    design: Design
    n_rows: int | None = None
    chunk_rows: int | None = None
    progress: Progress = field(default_factory=Progress)

    def moments(
        self,
        folds: Folds = ALL_ROWS,
        *,
        checkpoint: Any = None,
        cache: FeatureCache | None = None,
    ) -> FoldMoments:
        """Return the moments of each fold, by one pass."""
        size = self.chunk_rows or self.design.chunk_rows
        saved = None if checkpoint is None else Checkpoint(Path(checkpoint))
        with self.progress.watched(self.source, size, self.n_rows) as source:
            return accumulate(
                source, self.design, folds=folds, rows=size, checkpoint=saved, cache=cache
            )
