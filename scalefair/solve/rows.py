"""Rows that solvers read: where they come from, what makes features of them, and who is told."""

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


@dataclass(frozen=True, eq=False)
class Rows:
    """Numeric rows and their design.

    Parameters
    ----------
    source : ChunkSource
        Of numeric chunks.
    design : Design
        What turns them into [φ, ψ, blocks, y].
    n_rows : int or None
        How many there are, if that is known.
    chunk_rows : int or None
        Rows per chunk; None: as many as suit the design.
    progress : Progress
        Hears of every chunk.
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
