"""Names that estimators still import from here; they live in `errors`."""

from scalefair.errors import (
    FINITE,
    JOINED_RIDGE,
    MISSING_SENSITIVE,
    TINY,
    check_alpha,
    check_choice,
    check_closed_form,
    check_count,
    check_flag,
    check_grid,
    check_number,
    check_penalty,
    check_weight_or_limit,
)

__all__ = [
    "FINITE",
    "JOINED_RIDGE",
    "MISSING_SENSITIVE",
    "TINY",
    "check_alpha",
    "check_choice",
    "check_closed_form",
    "check_count",
    "check_flag",
    "check_grid",
    "check_number",
    "check_penalty",
    "check_weight_or_limit",
]
