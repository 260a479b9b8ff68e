"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.spec import ProcessSpec as Spec
from scalefair.solve.spec import Progress

__all__ = ["Progress", "Spec"]
