"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.output.hsic import OutputFit, solve_output

__all__ = ["OutputFit", "solve_output"]
