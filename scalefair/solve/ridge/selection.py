"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.ridge.path import (
    Choice,
    best_within_limit,
    best_without_share,
    largest_eta_within_one_error,
)

__all__ = ["Choice", "best_within_limit", "best_without_share", "largest_eta_within_one_error"]
