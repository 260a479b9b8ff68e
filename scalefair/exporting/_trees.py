"""Boosted trees inside a model, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from scalefair.exporting._graph import Graph
from scalefair.features.base_model import LEAST_PROBABILITY, BaseModel
from scalefair.features.trees import LOG_LINKS, Forest, Trees


def add_base(graph: Graph, base: BaseModel, inputs: Callable[[Trees], str]) -> str:
    """Add ĥ(x) and ê(x) side by side; `inputs` adds x as trees see it."""
    models = [(base.model, base.scale)]
    if base.sensitive is not None:
        models += [(model, "probability") for model in base.sensitive.models]
    parts = []
    for model, scale in models:
        trees = _trees_inside(model)
        parts.append(_prediction(graph, trees, scale, inputs(trees)))
    return graph.beside(parts)


def _trees_inside(model: Any) -> Trees:
    """Return the boosted trees that a model is; ValueError for any other."""
    if isinstance(model, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return Trees.of(model)
    if not isinstance(model, Trees):
        raise ValueError(
            f"base_estimator ({type(model).__name__}) is a model of its own, which its own "
            "exporter must write; use base_estimator='trees', or fit without"
        )
    return model


def _prediction(graph: Graph, model: Trees, scale: str, x: str) -> str:
    """Add the prediction on its scale, of probabilities all but the first."""
    f = _leaf_sums(graph, model.forest_, x)
    if model.loss != "log_loss":
        h = graph.add("Exp", f) if model.loss in LOG_LINKS else f
        return graph.add("Log", graph.plus(graph.add("Relu", h), 1.0)) if scale == "log" else h
    if model.forest_.baseline.size == 1:
        both = [graph.add("Sigmoid", graph.times(f, sign)) for sign in (-1.0, 1.0)]
        p = graph.beside(both)
    else:
        p = graph.add("Softmax", f, axis=1)
    others = list(range(1, max(model.forest_.baseline.size, 2)))
    if scale != "log_odds":
        return graph.columns(p, others)
    bounds = (graph.constant(b) for b in (LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    log = graph.add("Log", graph.add("Clip", p, *bounds))
    return graph.add("Sub", graph.columns(log, others), graph.columns(log, [0]))


def _leaf_sums(graph: Graph, forest: Forest, x: str) -> str:
    """Add b + Σ_t of the leaf of tree t: all trees go down one level at a time."""
    n, inner = len(forest.feature), forest.feature >= 0
    child = np.where(inner[:, None], forest.child, np.arange(n)[:, None])  # a leaf stays
    trees, k = forest.roots.shape
    rows = graph.add("Shape", x, start=0, end=1)
    shape = graph.add("Concat", rows, graph.constant(np.array([trees * k])), axis=0)
    node = graph.add("Expand", graph.constant(forest.roots.reshape(1, -1).astype(np.int64)), shape)
    taken: dict[str, Any] = {
        "feature": np.maximum(forest.feature, 0).astype(np.int64), "threshold": forest.threshold,
        "child": child.ravel().astype(np.int64),
        "is_level": forest.levels >= 0, "is_number": forest.levels < 0,
        "set": 256 * np.maximum(forest.levels, 0).astype(np.int64),
        "member": np.unpackbits(
            forest.sets.astype("<u4").view(np.uint8), axis=1, bitorder="little"
        ).ravel().astype(bool),
    }  # fmt: skip
    constants = {name: graph.constant(array) for name, array in taken.items()}
    for _ in range(_depth(child, inner)):
        node = _step(graph, constants, x, node, levels=len(forest.sets) > 0)
    leaves = graph.add("Gather", graph.constant(forest.value), node)
    sums = graph.summed(graph.reshaped(leaves, [-1, trees, k]), 1)
    return graph.plus(sums, forest.baseline[None])


def _step(graph: Graph, constants: dict[str, str], x: str, node: str, *, levels: bool) -> str:
    """Add the children of nodes, of shape (k, trees), that rows go to."""

    def of(name: str, at: str = node) -> str:
        return graph.add("Gather", constants[name], at)

    def number(value: int) -> str:
        return graph.constant(np.array(value, dtype=np.int64))

    value = graph.add("GatherElements", x, of("feature"), axis=1)
    absent = graph.add("IsNaN", value)
    left = graph.add("LessOrEqual", value, of("threshold"))
    if levels:
        known = graph.add("Where", absent, graph.constant(0.0), value)
        inside = graph.add("Clip", known, graph.constant(0.0), graph.constant(255.0))
        member = of("member", graph.add("Add", of("set"), graph.whole(inside)))
        left = graph.add("And", of("is_number"), left)
        left = graph.add("Or", left, graph.add("And", of("is_level"), member))
    way = graph.add("Where", left, number(0), number(1))
    way = graph.add("Where", absent, number(2), way)
    return of("child", graph.add("Add", graph.add("Mul", node, number(3)), way))


def _depth(child: Any, inner: Any) -> int:
    """Return how many steps the longest way down takes; children come after their parents."""
    depth = np.zeros(len(child), dtype=int)
    for node in np.flatnonzero(inner):
        depth[child[node]] = depth[node] + 1
    return int(depth.max(initial=0))
