"""Explicit feature maps φ and ψ, as users name them; each has its file in `scalefair.features`."""

from scalefair.features import *  # noqa: F403
from scalefair.features import __all__ as __all__  # noqa: PLC0414
