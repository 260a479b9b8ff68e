"""Moments of the rows [φ(x), ψ(s), y], and the pass that accumulates them."""

from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.moments.accumulate import accumulate
from scalefair.moments.checkpoint import Checkpoint
from scalefair.moments.moments import FoldMoments, Moments

__all__ = ["ALL_ROWS", "Checkpoint", "FoldMoments", "Folds", "Moments", "accumulate"]
