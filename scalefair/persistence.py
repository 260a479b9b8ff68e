"""Fitted objects to one file and back, without pickle: safetensors for arrays, JSON for the rest.

Only classes listed here are ever made, and only by setting their attributes: loading runs no code
that the file could choose.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import cache, cached_property
from inspect import get_annotations, getattr_static, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from scalefair import _files, estimators, kernels, losses, maps, parties
from scalefair._hash import slots
from scalefair.auditing.candidates import Candidates, Judgement
from scalefair.auditing.certificate import Certificate
from scalefair.data import columns, encoding
from scalefair.data.preparation import Preparation
from scalefair.errors import UnsavableError
from scalefair.features import base_model, blocks, mixed, trees
from scalefair.features.base_model import SensitiveModels
from scalefair.features.cross_fit import CrossFit
from scalefair.features.design import Design
from scalefair.features.exact import ExpectedGroups
from scalefair.features.partial import PartialEncoder, Propensity
from scalefair.held_out import ChanceRatio
from scalefair.measures.bounds import ShareDistribution
from scalefair.moments import Moments
from scalefair.moments.partial import Calibration, PartialMoments
from scalefair.moments.products import CrossMoments
from scalefair.solve.decisions import fit as decisions
from scalefair.solve.decisions import rule
from scalefair.solve.dense import ridge
from scalefair.solve.dense.kernel import FairKernel, SensitiveRows
from scalefair.solve.dense.process import ExactDistribution, ExactRows
from scalefair.solve.fit import Diagnostics
from scalefair.solve.gp import distribution
from scalefair.solve.gp.system import GaussianFunction
from scalefair.solve.ridge.path import GridScores

# Every class that a file may name
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        decisions.Decisions, decisions.FairDecisions, decisions.Crossing,
        rule.DecisionRule, rule.DecisionRates,
        estimators.FairRidge, estimators.FairKernelRidge, estimators.FairKernelRidgeCV,
        estimators.FairPath, GridScores, Moments, CrossMoments, PartialMoments, Calibration,
        Certificate, parties.PartyMaps, parties.PartyMoments, Candidates, Judgement, ChanceRatio,
        estimators.FairKernelClassifier, estimators.FairKernelRegressor, estimators.LossPath,
        estimators.FairKernelClassifierCV, estimators.FairKernelRegressorCV, estimators.LossPathCV,
        *losses.LOSSES.values(), losses.Multinomial, losses.OneVsRest, losses.ClassWeighted,
        losses.SumToZero,
        Preparation, Design, base_model.BaseModel, trees.Trees, trees.Forest, CrossFit,
        blocks.Control, blocks.CrossedControl, blocks.Curve, blocks.RidgeCurve,
        ExactRows,
        estimators.FairGPRegressor, distribution.FeatureDistribution, ExactDistribution,
        GaussianFunction, estimators.FairGPClassifier, distribution.LatentDistribution,
        encoding.TableEncoder, encoding.SensitiveEncoder, encoding.ControlEncoder,
        PartialEncoder, Propensity, SensitiveModels,
        columns.LevelCode, columns.NumberCode,
        columns.Spread, columns.ColumnStatistics, columns.TableStatistics,
        maps.RandomFourier, maps.Nystroem, maps.Identity, maps.OneHot, maps.ProductMap,
        ExpectedGroups, ShareDistribution,
        maps.ConcatMap, maps.LeafMap, maps.TransformerMap, mixed.Crossed,
        kernels.RBF, kernels.Laplace, kernels.Matern, kernels.Linear, kernels.Categorical,
        kernels.Product, kernels.Sum, kernels.Scaled,
        FairKernel, SensitiveRows, ridge.WeightedRows, ridge.Spectrum, Diagnostics,
    )
}  # fmt: skip
BOOSTED = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
CLASSES |= {cls.__name__: cls for cls in BOOSTED}
"""These before their fit: fitted ones become `Trees`."""

PLAIN = (str, int, float, bool, type(None))
# Bytes of all arrays of text together: one long entry makes every entry of its array as long
MAX_TEXT_BYTES = 2**28
# Keys of dicts that are no text: numbers can be chosen so that each is compared with all
MAX_OTHER_KEYS = 10_000
# Training rows; and routing and callbacks, which belong to a session
SKIPPED = {
    "_evidence",
    "_metadata_request",
    "_regressions",
    "_callback_fit_ctx",
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator (or map, encoder, path, moments) to one file, or raise an error.

    Parameters
    ----------
    model : object of scalefair
        Predictions after :func:`load` are identical. Metadata requests (`set_fit_request`) are not saved.
    path : path
        One file; replaced only once the new one is complete, with the permissions of the old one.

    Raises
    ------
    UnsavableError (a ValueError)
        If it contains anything but numbers, text, arrays and objects of scalefair, such as a
        RandomState, a splitter or a feature map of your own: that would mean saving code. The error
        says where it is. joblib and skops can save it (`skops_types`).

    Notes
    -----
    Boosted trees of scikit-learn, and ``base_estimator="trees"``, are stored as arrays: fitted ones
    come back as `scalefair.features.trees.Trees`. Other models of scikit-learn are written by
    skops, where it is installed and trusts every type in them; `load` needs it then, too.
    """
    if CLASSES.get(type(model).__name__) is not type(model):
        raise _files.unsavable(model, type(model).__name__)
    writer = _ModelWriter()
    root = writer.entry(model, type(model).__name__)
    _files.write(path, "model", writer.arrays, {"root": root, "objects": writer.objects})


def load(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote. No code runs, only ValueError or OSError are raised.

    Classes and attributes are those of scalefair, shapes are checked, and no path is taken from the
    file. What a model predicts is up to its author: load models from people you trust.
    """
    arrays, values = _files.read(path, "model")
    try:
        return _ModelReader(arrays, values["objects"]).root(values["root"])
    except (TypeError, AttributeError, LookupError, RecursionError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{path} holds no valid model ({error!r:.500})") from error


def skops_types() -> list[str]:
    """Return the names of scalefair's classes, for `trusted` of ``skops.io.load``.

    skops stores models that hold others. The types of those are to be trusted one by one:
    ``skops.io.get_untrusted_types`` lists them.
    """
    return sorted({f"{cls.__module__}.{cls.__qualname__}" for cls in CLASSES.values()})


class _ModelWriter:
    """Turns values into JSON, and arrays and objects into entries that the JSON refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.objects: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._known: dict[int, Any] = {}
        self._alive: list[Any] = []

    def state(self, value: Any, where: str) -> Any:  # noqa: PLR0911 (one for each kind)
        """Return the JSON of a value; `where` is its name in error messages."""
        if isinstance(value, np.generic):
            return {"scalar": self.state(np.asarray(value), where)}
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, np.ndarray):
            return self._once(value, lambda: self._array(value, where))
        if type(value) in (list, tuple):
            items = [self.state(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if type(value) is dict:
            pairs = [[self.state(k, where), self.state(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"dict": pairs}
        if isinstance(value, type) and issubclass(value, np.number):
            return {"number": np.dtype(value).str}
        return self.entry(value, where)

    def _once(self, value: Any, make: Callable[[], Any]) -> Any:
        """Return the JSON of an array or a model, which is stored once."""
        if id(value) not in self._known:
            self._alive.append(value)
            self._known[id(value)] = make()
        return self._known[id(value)]

    def _array(self, array: NDArray[Any], where: str) -> Any:
        if array.dtype.kind in "OU":
            return {
                "text": [_plain_item(item, where) for item in array.ravel().tolist()],
                "shape": list(array.shape),
                "dtype": array.dtype.str,
            }
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise UnsavableError(
                f"{where} is an array of {array.dtype}, which cannot be saved",
                "convert it to numbers or text",
                where=where,
            )
        name = str(len(self.arrays))
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        # The memory order is preserved: BLAS rounds differently for the other one.
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        self.arrays[name] = array.T if fortran else array
        return {"fortran" if fortran else "array": name}

    def entry(self, value: Any, where: str) -> Any:
        """Return the reference to an object of scalefair, which joins the list."""
        name = type(value).__name__
        if id(value) in self._numbers:
            return {"object": self._numbers[id(value)]}
        if CLASSES.get(name) is not type(value):
            content = self._once(value, lambda: np.frombuffer(_files.by_skops(value, where), "u1"))
            return {"skops": self._once(content, lambda: self._array(content, where))["array"]}
        number = self._numbers[id(value)] = len(self.objects)
        self._alive.append(value)
        if isinstance(value, BOOSTED) and base_model.is_fitted(value):
            value = trees.Trees.of(value)
            name = type(value).__name__
        self.objects.append({"class": name})
        where = "base_estimator_" if isinstance(value, base_model.BaseModel) else where
        own = vars(value) if hasattr(value, "__dict__") else slots(value)
        state = {
            key: self.state(item, f"{where}.{key}")
            for key, item in own.items()
            if key not in SKIPPED and not isinstance(getattr_static(type(value), key, None), cached_property)
        }
        self.objects[number]["state"] = state
        return {"object": number}


def _plain_item(item: Any, where: str) -> Any:
    item = item.item() if isinstance(item, np.generic) else item
    if not isinstance(item, PLAIN):
        raise UnsavableError(
            f"{where} is an array that holds a {type(item).__name__}, which cannot be saved without pickle",
            "convert it to numbers or text",
            where=where,
        )
    return item


class _ModelReader:
    """The way back."""

    def __init__(self, arrays: dict[str, NDArray[Any]], objects: list[dict[str, Any]]) -> None:
        self._objects = objects
        self._made: dict[int, Any] = {}
        self._text = self._keys = 0
        self._readers: dict[str, Callable[[Any], Any]] = {
            "array": arrays.__getitem__,
            "fortran": lambda name: arrays[name].T,
            "scalar": lambda item: self.value(item).reshape(())[()],
            "list": lambda items: [self.value(item) for item in items],
            "tuple": lambda items: tuple(self.value(item) for item in items),
            "dict": self._dict,
            "object": self._object,
            "number": _number_type,
            "text": self._text_array,
            "skops": lambda name: _files.from_skops(arrays[name].tobytes()),
        }

    def root(self, state: Any) -> Any:
        """Return the object that the file is about."""
        ((_, number),) = state.items()
        return self._object(number)

    def value(self, state: Any) -> Any:
        """Return the value behind its JSON."""
        if isinstance(state, PLAIN):
            return state
        ((kind, content),) = state.items() if len(state) == 1 else [("text", state)]
        return self._readers[kind](content)

    def _dict(self, pairs: list[Any]) -> dict[Any, Any]:
        self._keys += sum(not isinstance(key, str) for key, _ in pairs)
        if self._keys > MAX_OTHER_KEYS:
            raise ValueError(f"dicts with more than {MAX_OTHER_KEYS} keys that are not text")
        return {self.value(key): self.value(item) for key, item in pairs}

    def _object(self, number: int) -> Any:
        if number in self._made:
            return self._made[number]
        if not 0 <= number < len(self._objects):
            raise ValueError(f"object {number} of {len(self._objects)}")
        entry = self._objects[number]
        cls = CLASSES[entry["class"]]
        made: Any = object.__new__(cls)
        _set_defaults(made)
        for key, item in entry["state"].items():
            if not _is_data(cls, key):
                raise ValueError(f"{entry['class']} has no attribute {key!r:.50} that can be set")
            object.__setattr__(made, key, self.value(item))
        check_shapes(made)
        self._made[number] = made  # now that it is whole: none holds itself
        return made

    def _text_array(self, state: dict[str, Any]) -> NDArray[Any]:
        items, kind = state["text"], state["dtype"][1]
        if kind not in ("O", "U") or not all(isinstance(item, PLAIN) for item in items):
            raise ValueError(f"text array of dtype {state['dtype']!r:.50}")
        if kind == "O":
            made = np.empty(len(items), dtype=object)
            made[:] = items
            return made.reshape(state["shape"])
        self._text += 4 * len(items) * max((len(item) for item in items), default=0)
        if self._text > MAX_TEXT_BYTES:
            raise ValueError(f"arrays of text take more than {MAX_TEXT_BYTES} bytes")
        return np.array(items, dtype=np.str_).reshape(state["shape"])


def _set_defaults(made: Any) -> None:
    """Set the fields that have defaults: files of earlier versions may lack them."""
    for field in dataclasses.fields(made) if dataclasses.is_dataclass(made) else ():
        if field.default is not dataclasses.MISSING:
            object.__setattr__(made, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, field.name, field.default_factory())


def _is_data(cls: type, name: str) -> bool:
    """Return True if an attribute is data: a parameter, or one that `fit` sets (x_ or _x)."""
    if name in _field_names(cls) or cls in BOOSTED:
        return name in _parameters(cls)
    own = getattr_static(cls, name, None)
    hidden = callable(own) or isinstance(own, cached_property)
    hidden = hidden or (isinstance(own, property) and own.fset is None)
    known = name in _parameters(cls) or name.startswith("_") or name.endswith("_")
    return known and name.isidentifier() and not name.startswith("__") and not hidden


@cache
def _parameters(cls: type) -> frozenset[str]:
    """Arguments of a class, its fields, and what else it declares."""
    names = signature(cls).parameters
    return frozenset([*names, *_field_names(cls), *get_annotations(cls)])


@cache
def _field_names(cls: type) -> frozenset[str]:
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return frozenset(field.name for field in fields)


def _number_type(name: str) -> Any:
    if name not in ("<f8", "<f4", "<f2", "<i8", "<i4", "|u1"):
        raise ValueError(f"type of numbers {name!r}")
    return np.dtype(name).type


def check_shapes(made: Any) -> None:
    """Raise ValueError if arrays do not match each other: loops over them check no bounds."""
    fits = True
    if isinstance(made, maps.RandomFourier) and "frequencies_" in vars(made):
        d, h = made.frequencies_.shape
        width = 2 * h if made.phase_ is None else h
        phase = (h,) if made.phase_ is None else made.phase_.shape
        fits = (made.n_raw_, made.n_features_in_, phase, made.linear_) == (width, d, (h,), None)
    elif isinstance(made, maps.Nystroem) and "landmarks_" in vars(made):
        m, d = made.landmarks_.shape
        linear = made.linear_ is not None and made.linear_.ndim == 2 and len(made.linear_) == m
        fits = made.n_raw_ == m and made.n_features_in_ == d and linear
    elif isinstance(made, maps.Identity) and "n_raw_" in vars(made):
        fits = made.n_raw_ == made.n_features_in_ and made.linear_ is None
    elif isinstance(made, maps.OneHot) and "codes_" in vars(made):
        fits = made.n_raw_ == len(made.codes_[-1]) == len(made.combinations_)
    elif isinstance(made, trees.Trees) and "forest_" in vars(made):
        made.forest_.check(made.n_features_in_)
        fits = len(made.levels_) == made.n_features_in_ and all(
            known is None or len(known) <= trees.MAX_LEVELS for known in made.levels_
        )
    elif isinstance(made, Moments):
        made.check_shapes()
    if not fits:
        raise ValueError(f"the arrays of a {type(made).__name__} do not match each other")
