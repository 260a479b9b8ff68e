"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.limit import solve_output_under_limit

__all__ = ["solve_output_under_limit"]
