"""Fitted objects to one file and back, without pickle: safetensors for arrays, JSON for the rest.

Only classes listed here are ever made, and only by setting their attributes: loading runs no code
that the file could choose.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair import _files, encoding, estimators, kernels, losses, maps
from scalefair._digest import attributes
from scalefair.encoding import _statistics
from scalefair.estimators import _base_model, _curve, _data, _exact, _gp_law, _gpc_law
from scalefair.maps import crossed
from scalefair.solve import validation
from scalefair.solve.gaussian import GaussianFunction
from scalefair.statistics import Moments

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        estimators.FairRidge, estimators.FairKernelRidge, estimators.FairKernelRidgeCV,
        estimators.FairPath, validation.GridScores, Moments,
        estimators.FairKernelClassifier, estimators.FairKernelRegressor, estimators.LossPath,
        losses.Squared, losses.Logistic, losses.Multinomial, losses.Poisson, losses.Gamma,
        losses.Huber, losses.Quantile, losses.ClassWeighted,
        _data.Preparation, _base_model.BaseModel, _exact.ExactRows,
        estimators.FairGPRegressor, _gp_law.FeatureLaw, _gp_law.ExactLaw, GaussianFunction,
        estimators.FairGPClassifier, _gpc_law.LatentLaw,
        encoding.TableEncoder, encoding.SensitiveEncoder, encoding.ControlEncoder,
        encoding.LevelCode, encoding.NumberCode,
        _statistics.Spread,
        maps.RandomFourier, maps.Nystroem, maps.Identity, maps.OneHot, maps.ProductMap,
        maps.ConcatMap, crossed.Crossed, _curve.Curve,
        kernels.RBF, kernels.Laplace, kernels.Matern, kernels.Linear, kernels.Categorical,
        kernels.Product, kernels.Sum, kernels.Scaled,
    )
}  # fmt: skip
"""Every class that a file may name."""

PLAIN = (str, int, float, bool, type(None))
SKIPPED = {
    "table",
    "K",
    "L",
    "_whole_mean",
    "_evidence",
    "process",
    "_callback_fit_ctx",
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
}
"""Caches, which come back by themselves, and callbacks, which belong to a session."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator (or map, encoder, path) to one file, all or nothing.

    Parameters
    ----------
    model : estimator
        Predictions after :func:`load` are equal to the bit.
    path : path
        One file; replaced only once the new one is complete.

    Raises
    ------
    ValueError
        If it holds something that is no number, text, array or object of scalefair, such as a
        RandomState or a feature map of the user's own; the error names where.
    """
    writer = _Writer()
    values = {"root": writer.state(model, type(model).__name__), "objects": writer.objects}
    _files.write(path, "model", writer.arrays, values)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote. No code runs, only ValueError or OSError are raised."""
    arrays, values = _files.read(path, "model")
    try:
        return _Reader(arrays, values["objects"]).value(values["root"])
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"{path} holds no valid model ({error!r})") from error


class _Writer:
    """Turns values into JSON, and arrays and objects into entries that the JSON refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.objects: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def state(self, value: Any, where: str) -> Any:  # noqa: PLR0911 (one for each kind)
        """Return the JSON of a value; `where` is its name in error messages."""
        if isinstance(value, np.generic):
            return {"scalar": self.state(np.asarray(value), where)}
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, list | tuple):
            items = [self.state(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": items}
        if isinstance(value, dict):
            pairs = [
                [self.state(k, where), self.state(v, f"{where}[{k!r}]")] for k, v in value.items()
            ]
            return {"dict": pairs}
        if isinstance(value, type) and issubclass(value, np.number):
            return {"number": np.dtype(value).str}
        return self._object(value, where)

    def _array(self, array: NDArray[Any]) -> Any:
        if array.dtype.kind in "OU":
            return {
                "text": array.ravel().tolist(),
                "shape": list(array.shape),
                "dtype": array.dtype.str,
            }
        name = str(len(self.arrays))
        # The memory order is kept: BLAS rounds differently for the other one.
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        self.arrays[name] = array.T if fortran else array
        return {"fortran" if fortran else "array": name}

    def _object(self, value: Any, where: str) -> Any:
        name = type(value).__name__
        if CLASSES.get(name) is not type(value):
            raise ValueError(
                f"{where} is a {name}, which cannot be saved without pickle; set it to a plain "
                "value (an int as random_state, a number of folds as cv, a model of scalefair as "
                "base_estimator), or use joblib or skops"
            )
        if id(value) in self._numbers:
            return {"object": self._numbers[id(value)]}
        number = self._numbers[id(value)] = len(self.objects)
        self._alive.append(value)
        self.objects.append({"class": name})
        state = {
            key: self.state(item, f"{where}.{key}")
            for key, item in attributes(value).items()
            if key not in SKIPPED
        }
        self.objects[number]["state"] = state
        return {"object": number}


class _Reader:
    """The way back."""

    def __init__(self, arrays: dict[str, NDArray[Any]], objects: list[dict[str, Any]]) -> None:
        self._arrays, self._objects = arrays, objects
        self._made: dict[int, Any] = {}

    def value(self, state: Any) -> Any:
        """Return the value behind its JSON."""
        if isinstance(state, PLAIN):
            return state
        ((kind, content),) = state.items() if len(state) == 1 else [("text", state)]
        readers: dict[str, Callable[[Any], Any]] = {
            "array": self._arrays.__getitem__,
            "fortran": lambda name: self._arrays[name].T,
            # The container has no arrays of no dimension: a number comes back as one of one.
            "scalar": lambda item: self.value(item).reshape(())[()],
            "list": lambda items: [self.value(item) for item in items],
            "tuple": lambda items: tuple(self.value(item) for item in items),
            "dict": lambda pairs: {self.value(k): self.value(v) for k, v in pairs},
            "object": self._object,
            "number": lambda name: np.dtype(name).type,
            "text": _text,
        }
        return readers[kind](content)

    def _object(self, number: int) -> Any:
        if number in self._made:
            return self._made[number]
        entry = self._objects[number]
        cls = CLASSES[entry["class"]]
        made: Any = object.__new__(cls)
        self._made[number] = made
        for key, item in entry["state"].items():
            object.__setattr__(made, key, self.value(item))
        return made


def _text(state: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(state["dtype"])
    if dtype.kind not in "OU":
        raise ValueError(f"text array of dtype {dtype}")
    return np.array(state["text"], dtype=dtype).reshape(state["shape"])
