"""Names that others still import from here; they live in `base`, `landmarks` and `errors`."""

from scalefair.errors import check_choice, check_count
from scalefair.features.base import Buffer, seed_of, start_raw
from scalefair.features.landmarks import fitted_kernel, standard_deviation

__all__ = [
    "Buffer",
    "check_choice",
    "check_count",
    "fitted_kernel",
    "seed_of",
    "standard_deviation",
    "start_raw",
]
