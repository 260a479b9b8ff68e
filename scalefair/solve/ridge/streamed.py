"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.ridge.iterative import StreamedSystem

__all__ = ["StreamedSystem"]
