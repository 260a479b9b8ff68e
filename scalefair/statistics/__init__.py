"""Moments of the rows [φ(x), ψ(s), y], and the pass that accumulates them."""

from scalefair.statistics.accumulate import Folds, RowMap, accumulate
from scalefair.statistics.moments import Moments

__all__ = ["Folds", "Moments", "RowMap", "accumulate"]
