"""The old name of a file, until estimators/ imports the new one."""

from scalefair.solve.dense.kernel import SklearnFairKernel

__all__ = ["SklearnFairKernel"]
