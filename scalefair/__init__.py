"""Models whose predictions depend on sensitive attributes no more than you allow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalefair._config import config_context, get_config, set_config
    from scalefair.any_model import limit_gap, make_fair
    from scalefair.auditing import Audit, Certificate, audit, certify
    from scalefair.data.probabilities import group_probabilities
    from scalefair.data.sources import BatchSource, scan_csv, scan_parquet
    from scalefair.errors import NotCertifiedError
    from scalefair.estimators import (
        FairGPClassifier,
        FairGPRegressor,
        FairKernelClassifier,
        FairKernelClassifierCV,
        FairKernelRegressor,
        FairKernelRegressorCV,
        FairKernelRidge,
        FairKernelRidgeCV,
        FairPath,
        FairRidge,
        LossPath,
        LossPathCV,
        SklearnFairKernel,
    )
    from scalefair.exporting import to_onnx
    from scalefair.features.cross_fit import CrossFit
    from scalefair.measures.explanation import explain_share
    from scalefair.measures.proxy_shares import proxies
    from scalefair.moments import Moments
    from scalefair.parties import PartyMaps
    from scalefair.persistence import load, save
    from scalefair.solve.decisions.fit import Decisions
    from scalefair.solve.dense.kernel import FairKernel, SensitiveRows

__version__ = "0.1.0.dev0"

__all__ = [
    "Audit",
    "BatchSource",
    "Certificate",
    "CrossFit",
    "Decisions",
    "FairGPClassifier",
    "FairGPRegressor",
    "FairKernel",
    "FairKernelClassifier",
    "FairKernelClassifierCV",
    "FairKernelRegressor",
    "FairKernelRegressorCV",
    "FairKernelRidge",
    "FairKernelRidgeCV",
    "FairPath",
    "FairRidge",
    "LossPath",
    "LossPathCV",
    "Moments",
    "NotCertifiedError",
    "PartyMaps",
    "SensitiveRows",
    "SklearnFairKernel",
    "audit",
    "certify",
    "config_context",
    "explain_share",
    "get_config",
    "group_probabilities",
    "limit_gap",
    "load",
    "make_fair",
    "proxies",
    "save",
    "scan_csv",
    "scan_parquet",
    "set_config",
    "to_onnx",
]

_HOMES = {
    "_config": ("config_context", "get_config", "set_config"),
    "any_model": ("limit_gap", "make_fair"),
    "auditing": ("Audit", "Certificate", "audit", "certify"),
    "data.probabilities": ("group_probabilities",),
    "data.sources": ("BatchSource", "scan_csv", "scan_parquet"),
    "errors": ("NotCertifiedError",),
    "exporting": ("to_onnx",),
    "features.cross_fit": ("CrossFit",),
    "measures.explanation": ("explain_share",),
    "measures.proxy_shares": ("proxies",),
    "moments": ("Moments",),
    "parties": ("PartyMaps",),
    "persistence": ("load", "save"),
    "solve.decisions.fit": ("Decisions",),
    "solve.dense.kernel": ("FairKernel", "SensitiveRows"),
}
"""All others are estimators."""

_MODULES = ("datasets", "kernels", "losses", "maps", "measures", "plots", "report")


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import scalefair` is fast: scikit-learn would load pandas.
    if name in _MODULES:
        return import_module(f"scalefair.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'scalefair' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "estimators")
    value = getattr(import_module(f"scalefair.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
