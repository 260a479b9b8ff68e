"""Names that others still import from here; they live in `accumulate`."""

from scalefair.moments.accumulate import MISSING, SHIFTED
from scalefair.moments.accumulate import FeatureCache as KeptFeatures

__all__ = ["MISSING", "SHIFTED", "KeptFeatures"]
