"""Names that estimators still import from here; they live in `nystroem`."""

from scalefair.features.nystroem import MovingNystroem

__all__ = ["MovingNystroem"]
