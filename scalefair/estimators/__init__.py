"""scikit-learn estimators: parameters in, the flow, attributes out."""

from scalefair.estimators.classifier import FairKernelClassifier
from scalefair.estimators.gp import FairGPRegressor
from scalefair.estimators.gp_classifier import FairGPClassifier
from scalefair.estimators.kernel_ridge import FairKernelRidge, FairKernelRidgeCV
from scalefair.estimators.loss import FairKernelRegressor
from scalefair.estimators.loss_cv import FairKernelClassifierCV, FairKernelRegressorCV, LossPathCV
from scalefair.estimators.path import FairPath, LossPath
from scalefair.estimators.ridge import FairRidge
from scalefair.solve.dense.kernel import SklearnFairKernel

__all__ = [
    "FairGPClassifier", "FairGPRegressor", "FairKernelClassifier", "FairKernelClassifierCV",
    "FairKernelRegressor", "FairKernelRegressorCV", "FairKernelRidge", "FairKernelRidgeCV",
    "FairPath", "FairRidge", "LossPath", "LossPathCV", "SklearnFairKernel",
]  # fmt: skip
