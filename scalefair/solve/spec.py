"""What is asked of a fit, and of which rows: frozen values from the estimators to the solvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.progress import Progress
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design
from scalefair.moments import Checkpoint, FoldMoments, accumulate
from scalefair.moments.accumulate import FeatureCache

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Spec:
    """What to fit: 1/n ΣV + α|β|² + ηP, with a weight η or a limit that finds it.

    The solution inherits the rounding error of rows of this dtype.
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

    Noise σ² and amplitude a are learnt where None; a process of classes has no noise. Without
    `learn_scales`, length scales and landmarks stay where they start. `inputs` are names for
    messages.
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
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Rows:
    """Numeric rows, and the design that turns them into [φ, ψ, blocks, y].

    `chunk_rows=None` takes as many as suit the design; `progress` hears of every chunk.
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
