"""Feature maps φ and ψ: the public names of what `scalefair.features` defines."""

from scalefair.features import *  # noqa: F403
from scalefair.features import __all__ as __all__  # noqa: PLC0414
