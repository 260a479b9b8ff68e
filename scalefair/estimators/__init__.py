"""scikit-learn estimators: parameters in, the flow, attributes out."""

from scalefair.estimators.classifier import FairKernelClassifier
from scalefair.estimators.fair_path import FairPath, LossPath
from scalefair.estimators.gp import FairGPRegressor
from scalefair.estimators.gp_classifier import FairGPClassifier
from scalefair.estimators.kernel import FairKernelRidge
from scalefair.estimators.kernel_cv import FairKernelRidgeCV
from scalefair.estimators.linear import FairRidge
from scalefair.estimators.regressor import FairKernelRegressor
from scalefair.solve.dense.sklearn_kernel import SklearnFairKernel

__all__ = [
    "FairGPClassifier",
    "FairGPRegressor",
    "FairKernelClassifier",
    "FairKernelRegressor",
    "FairKernelRidge",
    "FairKernelRidgeCV",
    "FairPath",
    "FairRidge",
    "LossPath",
    "SklearnFairKernel",
]
