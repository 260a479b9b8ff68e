"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.gp.system import GaussianPoint

__all__ = ["GaussianPoint"]
