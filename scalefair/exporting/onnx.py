"""The fitted predictor as an ONNX graph, which other programs run without Python."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair import _files, estimators
from scalefair._typing import Array
from scalefair.exporting._graph import Graph, add_kernel, add_map
from scalefair.exporting._inputs import Inputs
from scalefair.losses import ClassWeighted, Gamma, Logistic, Multinomial, Poisson
from scalefair.solve.dense.rows import ExactRows

PREDICTORS = (
    estimators.FairRidge, estimators.FairKernelRidge, estimators.FairKernelRidgeCV,
    estimators.FairKernelClassifier, estimators.FairKernelRegressor,
    estimators.FairGPRegressor, estimators.FairGPClassifier,
)  # fmt: skip


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Export a fitted predictor: encoding, features and linear part; the sensitive data stay home.

    Parameters
    ----------
    model : fitted estimator of scalefair
    path : path, optional
        Where to write it, all or nothing.

    Returns
    -------
    onnx.ModelProto
        Numbers are float64. Its input is ``X`` of shape (rows, d); or, for a model that was fitted
        on a frame with text or categories, one input of shape (rows, 1) for each column, by its
        name: text as strings (``"<missing>"`` where there is none), numbers and booleans as float64
        (NaN where there is none), dates as days since 1970.
        Outputs: ``prediction``; of classifiers ``label``, ``scores`` and ``probabilities``; of
        :class:`FairGPClassifier` ``scores``, the means of f.

    Raises
    ------
    ImportError
        Without the package onnx: ``pip install scalefair[onnx]``.
    ValueError
        For what has no form in ONNX: a base model, a feature map of the user's own.

    Notes
    -----
    A graph cannot refuse: a level that `fit` has not seen counts as the pooled one or as none,
    where `predict` of a model that sees sensitive columns raises an error.
    """
    if not isinstance(model, PREDICTORS):
        raise TypeError(
            f"model is a {type(model).__name__}; give a fitted estimator of scalefair, such as "
            "FairKernelRidge"
        )
    check_is_fitted(model)
    if model.base_estimator_ is not None:
        raise ValueError(
            "base_estimator is a model of its own, which its own exporter must write; export it "
            "beside this one, or fit without base_estimator"
        )
    graph = _graph_of(type(model).__name__)
    scores, width = _scores(graph, model)
    _finish(graph, model, scores, width)
    share = getattr(model, "explained_share_", float("nan"))
    made = graph.model(model=type(model).__name__, eta=repr(model.eta_), share=repr(share))
    if path is not None:
        _files.write_atomically(path, made.SerializeToString())
    return made


def _graph_of(name: str) -> Graph:
    try:
        return Graph(name)
    except ImportError as error:
        raise ImportError("to_onnx needs onnx; pip install 'scalefair[onnx]'") from error


def _scores(graph: Graph, model: Any) -> tuple[str, int]:
    """Add f, of shape (rows, number of scores)."""
    inputs = Inputs(graph, model)
    x = inputs.x()
    if isinstance(model, estimators.FairGPClassifier):
        return _linear(graph, model.phi_, x, model._law.coef), model._law.coef.shape[1]
    if hasattr(model, "dual_coef_"):
        return _dual(graph, model, x)
    if isinstance(model, estimators.FairGPRegressor):
        process: Any = model._law
        weights = process.law
        f = _linear(graph, model.phi_, x, weights.coef)
        return graph.plus(f, weights.offset[None]), weights.coef.shape[1]
    coef = model._raw_coef
    f = graph.matmul(add_map(graph, model.phi_, x), coef["phi"])
    if "psi" in coef:
        psi = add_map(graph, model.psi_, inputs.s())
        f = graph.add("Add", f, graph.matmul(psi, coef["psi"]))
    return graph.plus(f, np.atleast_2d(model.intercept_)), coef["phi"].shape[1]


def _linear(graph: Graph, phi: Any, x: str, coef: Array) -> str:
    raw = coef if phi.linear_ is None else phi.linear_ @ coef
    return graph.matmul(add_map(graph, phi, x), raw)


def _dual(graph: Graph, model: Any, x: str) -> tuple[str, int]:
    """Add k(x, X) c + b."""
    dual = model.dual_coef_.reshape(len(model.dual_coef_), -1)
    if isinstance(model, estimators.FairGPRegressor):
        process: Any = model._law
        rows, kernel, offset = process.rows, model.kernel_, process.offset
    else:
        rows, kernel, offset = model._exact_rows, model.kernel_, model.intercept_
    _check_unjoined(rows)
    f = graph.matmul(add_kernel(graph, kernel, x, rows.x), dual)
    return graph.plus(f, np.atleast_2d(offset)), dual.shape[1]


def _check_unjoined(rows: ExactRows) -> None:
    if rows.joined:
        raise ValueError(
            "feature_map='exact' with sensitive_columns has no form in ONNX; use "
            "feature_map='nystroem', or hide_sensitive=True"
        )


def _finish(graph: Graph, model: Any, scores: str, width: int) -> None:
    """Add the outputs."""
    if isinstance(model, estimators.FairGPClassifier):
        graph.output("scores", scores, width)
    elif isinstance(model, estimators.FairKernelClassifier):
        _classes(graph, model, scores, width)
    else:
        positive = isinstance(getattr(model, "loss_", None), Poisson | Gamma)
        graph.output("prediction", graph.add("Exp", scores) if positive else scores, width)


def _classes(graph: Graph, model: Any, scores: str, width: int) -> None:
    loss = model.loss_.loss if isinstance(model.loss_, ClassWeighted) else model.loss_
    if isinstance(loss, Logistic):
        both = [graph.add("Sigmoid", graph.times(scores, sign)) for sign in (-1.0, 1.0)]
        probabilities = graph.beside(both)
    elif isinstance(loss, Multinomial):
        probabilities = graph.add("Softmax", scores, axis=1)
    else:
        raise ValueError(f"loss={loss!r} has no form in ONNX; use 'logistic' or 'multinomial'")
    best = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    classes = np.asarray(model.classes_)
    kinds = {"f": ("DOUBLE", np.float64), "i": ("INT64", np.int64), "u": ("INT64", np.int64),
             "b": ("BOOL", np.bool_)}  # fmt: skip
    kind, dtype = kinds.get(classes.dtype.kind, ("STRING", object))
    values = classes.astype(dtype) if kind != "STRING" else classes.astype(str).astype(object)
    label = graph.add("Gather", graph.constant(values), best, axis=0)
    graph.output("label", label, 0, kind)
    graph.output("scores", scores, width)
    graph.output("probabilities", probabilities, len(classes))
