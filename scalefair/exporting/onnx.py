"""The fitted predictor as an ONNX graph, which other programs run without Python."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair import _files, estimators
from scalefair._typing import Array
from scalefair.data.columns import LevelCode, NumberCode
from scalefair.estimators.classifier import Classification
from scalefair.estimators.loss import LossRegression
from scalefair.exporting._graph import Graph, add_base, add_kernel, add_map, add_probabilities
from scalefair.features.base_model import BaseModel
from scalefair.features.blocks import RidgeCurve
from scalefair.features.trees import Trees
from scalefair.losses import ClassWeighted, Gamma, Logistic, Multinomial, Poisson

PREDICTORS = (
    estimators.FairRidge, estimators.FairKernelRidge, estimators.FairKernelRidgeCV,
    estimators.FairKernelClassifier, estimators.FairKernelRegressor,
    estimators.FairKernelClassifierCV, estimators.FairKernelRegressorCV,
    estimators.FairGPRegressor, estimators.FairGPClassifier,
)  # fmt: skip
MISSING = "<missing>"  # A missing text in an input, which has no null; a missing number is NaN


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Export a fitted predictor to ONNX: encoding, features, linear part and link.

    Parameters
    ----------
    model : fitted estimator of scalefair
    path : path, optional
        File to write.

    Returns
    -------
    onnx.ModelProto
        Numbers are float64. Its input is ``X`` of shape (rows, d); or, for a model that was fitted
        on a frame with text or categories, one input of shape (rows, 1) for each column, by its
        name: text as strings (``"<missing>"`` where there is none), numbers and booleans as float64
        (NaN where there is none), dates as days since 1970, durations as days.
        Outputs: ``prediction``; of classifiers ``label``, ``scores`` and ``probabilities``; of
        :class:`FairGPClassifier` ``scores``, the means of f.

    Raises
    ------
    ImportError
        Without the package onnx: ``pip install scalefair[onnx]``.
    ValueError
        For what cannot be exported to ONNX: a base model other than boosted trees, a feature map of the user's own.

    Notes
    -----
    A graph cannot raise errors: a level that did not occur in `fit` counts as the pooled one or as
    none, whereas `predict` raises an error if the column is sensitive. New combinations of known
    levels are treated as by `predict`, without its warning.
    """
    if not isinstance(model, PREDICTORS):
        raise TypeError(
            f"model is a {type(model).__name__}; give a fitted estimator of scalefair, such as FairKernelRidge"
        )
    check_is_fitted(model)
    name = type(model).__name__
    if {"decisions_", "classes_"} <= vars(model).keys():
        raise ValueError(
            f"{name} with limit_on={model.limit_on!r} decides by a rule that has no ONNX graph "
            "yet; export a model with limit_on='scores', or apply the rule to its outputs"
        )
    graph = Graph(name)
    _add_outputs(graph, model, *_scores(graph, model))
    made = graph.model(model=name, eta=repr(model.eta_), share=repr(model.explained_share_))
    if path is not None:
        _files.write_atomically(path, made.SerializeToString())
    return made


def _scores(graph: Graph, model: Any) -> tuple[str, int]:
    """Add f, of shape (rows, number of scores)."""
    inputs = Inputs(graph, model)
    x = inputs.x()
    if isinstance(model, estimators.FairGPClassifier):
        return _linear(graph, model.phi_, x, model._distribution.coef), model._distribution.coef.shape[1]
    can_be_dual = isinstance(model, estimators.FairGPRegressor | estimators.FairKernelRidge)
    if can_be_dual and model.feature_map == "exact":
        return _dual(graph, model, x)
    if isinstance(model, estimators.FairGPRegressor):
        process: Any = model._distribution
        weights = process.weights
        f = _linear(graph, model.phi_, x, weights.coef)
        return graph.plus(f, weights.offset[None]), weights.coef.shape[1]
    coef = model._raw_coef
    phi = add_map(graph, model.phi_, x)
    f = graph.matmul(phi, coef["phi"])
    if "psi" in coef:
        psi = add_map(graph, model.psi_, inputs.s())
        f = graph.add("Add", f, graph.matmul(psi, coef["psi"]))
    for block in model._design.beside:
        if block.is_feature:
            f = graph.add("Add", f, _block(graph, block, inputs, phi, coef[block.name]))
    return graph.plus(f, np.atleast_2d(model.intercept_)), coef["phi"].shape[1]


def _block(graph: Graph, block: Any, inputs: Inputs, phi: str, coef: Array) -> str:
    """Add what a block of columns beside φ and ψ contributes to f."""
    if isinstance(block, BaseModel):
        return graph.matmul(add_base(graph, block, inputs.trees), coef)
    if isinstance(block, RidgeCurve):
        return _linear(graph, block.kappa, graph.matmul(phi, block.raw_weights), coef)
    raise ValueError("curves of a base model, as output_kernel= has, cannot be exported to ONNX")


def _linear(graph: Graph, phi: Any, x: str, coef: Array) -> str:
    raw = coef if phi.linear_ is None else phi.linear_ @ coef
    return graph.matmul(add_map(graph, phi, x), raw)


def _dual(graph: Graph, model: Any, x: str) -> tuple[str, int]:
    """Add k(x, X) c + b."""
    dual = model.dual_coef_.reshape(len(model.dual_coef_), -1)
    is_process = isinstance(model, estimators.FairGPRegressor)
    rows = model._distribution.rows if is_process else model._exact_rows
    if rows.joined:
        raise ValueError(
            "feature_map='exact' with sensitive_columns cannot be exported to ONNX; use "
            "feature_map='nystroem', or hide_sensitive=True"
        )
    f = graph.matmul(add_kernel(graph, model.kernel_, x, rows.x), dual)
    offset = model._distribution.offset if is_process else model.intercept_
    return graph.plus(f, np.atleast_2d(offset)), dual.shape[1]


def _add_outputs(graph: Graph, model: Any, scores: str, width: int) -> None:
    if isinstance(model, estimators.FairGPClassifier):
        graph.output("scores", scores, width)
    elif isinstance(model, Classification):
        _add_classes(graph, model, scores, width)
    else:
        is_loss = isinstance(model, LossRegression)
        positive = is_loss and isinstance(model.loss_, Poisson | Gamma)
        graph.output("prediction", graph.add("Exp", scores) if positive else scores, width)


def _add_classes(graph: Graph, model: Any, scores: str, width: int) -> None:
    loss = model.loss_.loss if isinstance(model.loss_, ClassWeighted) else model.loss_
    if not isinstance(loss, Logistic | Multinomial):
        raise ValueError(f"loss={loss!r} cannot be exported to ONNX; use 'logistic' or 'multinomial'")
    probabilities = add_probabilities(graph, scores, binary=isinstance(loss, Logistic))
    best = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    classes = np.asarray(model.classes_)
    dtypes = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}
    dtype = dtypes.get(classes.dtype.kind)
    values = classes.astype(str).astype(object) if dtype is None else classes.astype(dtype)
    label = graph.add("Gather", graph.constant(values), best, axis=0)
    graph.output("label", label, 0, values.dtype)
    graph.output("scores", scores, width)
    graph.output("probabilities", probabilities, len(classes))


class Inputs:
    """The inputs of the model as values of a graph: a matrix of numbers, or one input per column."""

    def __init__(self, graph: Graph, model: Any) -> None:
        prep = model._design.preparation
        self._graph, self._encoder, self._sensitive = graph, prep.encoder, prep.sensitive_encoder
        self._at = list(prep.sensitive_columns or ())
        hidden = self._at if prep.hide_sensitive else []
        self._seen = [j for j in range(model.n_features_in_) if j not in hidden]
        self._columns: dict[int, str] = {}
        joins_text = model._design.sees_sensitive and (
            self._sensitive is not None and self._sensitive.categorical_.any()
        )
        if self._encoder is None and not joins_text:
            self._matrix = graph.input("X", model.n_features_in_)
            return
        plain = [f"x{j}" for j in range(model.n_features_in_)]
        names = vars(model).get("feature_names_in_", plain)
        codes = [None] * len(self._seen) if self._encoder is None else self._encoder.columns_
        for j, code in zip(self._seen, codes, strict=True):
            text = isinstance(code, LevelCode)
            self._columns[j] = graph.input(str(names[j]), 1, text=text)

    def x(self) -> str:
        """Return the numbers that φ sees."""
        if not self._columns:
            return self._graph.columns(self._matrix, self._seen)
        if self._encoder is None:
            return self._graph.beside(list(self._columns.values()))
        pairs = zip(self._columns.values(), self._encoder.columns_, strict=True)
        return self._graph.beside(
            [(self._number if isinstance(code, NumberCode) else self._levels)(value, code) for value, code in pairs]
        )

    def s(self) -> str:
        """Return the numbers that ψ sees."""
        if not self._columns:
            return self._graph.columns(self._matrix, self._at)
        parts = []
        encoder = self._sensitive
        for j, name, kind in zip(self._at, encoder.names_, encoder.kinds_, strict=True):
            value = self._columns[j]
            if kind == "categorical":
                positions = {level: i for i, level in enumerate(encoder.levels_[name])}
                value = self._graph.cast(self._graph.positions(value, positions, -1))
            parts.append(value)
        return self._graph.beside(parts)

    def trees(self, model: Trees) -> str:
        """Return the numbers that boosted trees see: levels by their position."""
        if not self._columns:
            columns = [self._graph.columns(self._matrix, [j]) for j in self._seen]
        else:
            columns = list(self._columns.values())
        codes = [None] * len(columns) if self._encoder is None else self._encoder.columns_
        parts = zip(columns, codes, model.levels_, strict=True)
        return self._graph.beside([self._level(*part) for part in parts])

    def _level(self, value: str, code: Any, levels: Any) -> str:
        if levels is None:
            return value
        if not isinstance(code, LevelCode):
            raise ValueError("categories of trees that are numbers cannot be exported to ONNX")
        position = self._graph.positions(value, {level: i for i, level in enumerate(levels)}, -1)
        absent = self._graph.add("Less", position, self._graph.constant(np.array(0)))
        nothing = self._graph.constant(np.nan)
        return self._graph.add("Where", absent, nothing, self._graph.cast(position))

    def _number(self, value: str, code: NumberCode) -> str:
        """(x − center) / scale, and whether x was missing."""
        graph = self._graph
        absent = graph.add("IsNaN", value)
        scaled = graph.times(graph.plus(value, -code.center), 1.0 / code.scale)
        filled = graph.add("Where", absent, graph.constant(np.array([[code.fill]])), scaled)
        return graph.beside([filled, graph.cast(absent)] if code.missing == "column" else [filled])

    def _levels(self, value: str, code: LevelCode) -> str:
        """One-hot of the slots: levels, the pooled one, the missing one."""
        graph, slots = self._graph, len(code.outputs(""))
        known, last = len(code.levels), len(code.levels) + bool(code.pooled)
        positions = {level: i for i, level in enumerate(code.levels)}
        positions |= dict.fromkeys(code.pooled, known)
        other = known if code.pooled else -1
        positions[MISSING] = last if code.missing == "column" else other
        binary = slots == 1 and last + (code.missing == "column") == 2
        wanted = np.array([[1]]) if binary else np.arange(slots)[None]
        slot = graph.positions(value, positions, other)
        return graph.cast(graph.add("Equal", slot, graph.constant(wanted.astype(np.int64))))
