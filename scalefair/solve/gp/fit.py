"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.fit import GPFit, ProcessFit
from scalefair.solve.gp.evidence import fit_features

__all__ = ["GPFit", "ProcessFit", "fit_features"]
