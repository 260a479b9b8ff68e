"""Names that estimators still import from here; they live in `base` and `mixed`."""

from scalefair.features.base import n_features
from scalefair.features.base import whitened as features
from scalefair.features.mixed import Crossed

__all__ = ["Crossed", "features", "n_features"]
