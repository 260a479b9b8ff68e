"""Make a model that is there already fair, and see how far it is from the best possible."""

from scalefair.any_model.limit import LimitGap, limit_gap
from scalefair.any_model.make import FairModel, make_fair

__all__ = ["FairModel", "LimitGap", "limit_gap", "make_fair"]
