"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.ridge.direct import solve_primal

__all__ = ["solve_primal"]
