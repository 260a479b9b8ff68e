"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.ridge.direct import limited
from scalefair.solve.ridge.system import rescale

__all__ = ["limited", "rescale"]
