"""Moments of the rows [φ(x), ψ(s), y], and the pass that accumulates them."""

from scalefair.statistics.accumulate import ALL_ROWS, Folds, accumulate
from scalefair.statistics.checkpoint import Checkpoint
from scalefair.statistics.moments import FoldMoments, Moments
from scalefair.statistics.rows import Block, RowMap, chunk_rows

__all__ = [
    "ALL_ROWS",
    "Block",
    "Checkpoint",
    "FoldMoments",
    "Folds",
    "Moments",
    "RowMap",
    "accumulate",
    "chunk_rows",
]
