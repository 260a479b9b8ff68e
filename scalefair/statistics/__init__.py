"""Moments of the rows [φ(x), ψ(s), y], and the pass that accumulates them."""

from scalefair.statistics.accumulate import Folds, RowMap, accumulate
from scalefair.statistics.checkpoint import Checkpoint
from scalefair.statistics.moments import FoldMoments, Moments

__all__ = ["Checkpoint", "FoldMoments", "Folds", "Moments", "RowMap", "accumulate"]
