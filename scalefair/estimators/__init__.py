"""scikit-learn estimators: parameters in, the flow, attributes out."""

from scalefair.estimators.fair_path import FairPath
from scalefair.estimators.gp import FairGPRegressor
from scalefair.estimators.gp_kernel import SklearnFairKernel
from scalefair.estimators.kernel import FairKernelRidge
from scalefair.estimators.kernel_cv import FairKernelRidgeCV
from scalefair.estimators.linear import FairRidge

__all__ = [
    "FairGPRegressor",
    "FairKernelRidge",
    "FairKernelRidgeCV",
    "FairPath",
    "FairRidge",
    "SklearnFairKernel",
]
