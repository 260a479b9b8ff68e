"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.ridge.path import FoldFits, GridScores, squared_errors

__all__ = ["FoldFits", "GridScores", "squared_errors"]
