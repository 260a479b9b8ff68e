"""Kernels and feature maps as nodes of a graph; the formulas are those of `kernels` and `maps`."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.exporting._graph import Graph
from scalefair.kernels import RBF, Categorical, Laplace, Linear, Matern, Product, Scaled, Sum
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, ProductMap, RandomFourier


def add_map(graph: Graph, feature_map: Any, x: str) -> str:
    """Add the rows of a fitted map before its linear part, of shape (k, n_raw_)."""
    if isinstance(feature_map, Identity):
        return x
    if isinstance(feature_map, RandomFourier):
        return _fourier(graph, feature_map, x)
    if isinstance(feature_map, Nystroem):
        return add_kernel(graph, feature_map.kernel_, x, feature_map.landmarks_)
    if isinstance(feature_map, OneHot):
        return _equal(graph, x, feature_map.combinations_)
    if isinstance(feature_map, ProductMap | ConcatMap):
        return _parts(graph, feature_map, x)
    raise ValueError(
        f"a {type(feature_map).__name__} has no form in ONNX; use feature_map='nystroem', "
        "'fourier' or 'linear', or a map that is made of those"
    )


def add_kernel(graph: Graph, kernel: Any, x: str, Z: Array) -> str:
    """Add k(x, Z), of shape (k, p)."""
    Z = np.asarray(Z, dtype=np.float64)
    if isinstance(kernel, Scaled):
        return graph.times(add_kernel(graph, kernel.kernel, x, Z), kernel.amplitude**2)
    if isinstance(kernel, Product | Sum):
        parts = [add_kernel(graph, part, x, Z) for part in kernel.kernels]
        joint = "Mul" if isinstance(kernel, Product) else "Add"
        return reduce(lambda a, b: graph.add(joint, a, b), parts)
    if isinstance(kernel, Linear):
        return graph.matmul(x, Z.T)
    if isinstance(kernel, Categorical):
        return _equal(graph, x, Z)
    if isinstance(kernel, RBF | Matern | Laplace):
        return _stationary(graph, kernel, x, Z)
    raise ValueError(f"the kernel {kernel!r} has no form in ONNX; use one of scalefair.kernels")


def _stationary(graph: Graph, kernel: Any, x: str, Z: Array) -> str:
    """Distances by differences: what BLAS would lose of them, a root would enlarge."""
    scaled = graph.times(x, 1.0 / np.broadcast_to(kernel.theta, Z.shape[1]))
    rows = graph.reshaped(scaled, [-1, 1, Z.shape[1]])
    apart = graph.add("Sub", rows, graph.constant((Z / kernel.theta)[None]))
    if isinstance(kernel, Laplace):
        return _exp_of(graph, graph.summed(graph.add("Abs", apart), 2), -1.0)
    squared = graph.summed(graph.add("Mul", apart, apart), 2)
    if isinstance(kernel, RBF):
        return _exp_of(graph, squared, -0.5)
    a = graph.add("Sqrt", graph.times(squared, 2.0 * kernel.nu))
    falling = _exp_of(graph, a, -1.0)
    if kernel.nu == 0.5:
        return falling
    rising = graph.plus(a, 1.0)
    if kernel.nu == 2.5:
        rising = graph.add("Add", rising, graph.times(graph.add("Mul", a, a), 1 / 3))
    return graph.add("Mul", rising, falling)


def _exp_of(graph: Graph, value: str, factor: float) -> str:
    return graph.add("Exp", graph.times(value, factor))


def _equal(graph: Graph, x: str, Z: Array) -> str:
    """1[x_i = z_j] over all columns."""
    rows = graph.reshaped(x, [-1, 1, Z.shape[1]])
    others = graph.constant(np.asarray(Z, dtype=np.float64)[None])
    same = graph.cast(graph.add("Equal", rows, others))
    axes = graph.constant(np.array([2], dtype=np.int64))
    return graph.add("ReduceMin", same, axes, keepdims=0)


def _fourier(graph: Graph, feature_map: RandomFourier, x: str) -> str:
    size = feature_map.frequencies_.shape[1]
    projection = graph.matmul(x, feature_map.frequencies_)
    if feature_map.phase_ is None:
        both = graph.beside([graph.add("Cos", projection), graph.add("Sin", projection)])
        return graph.times(both, np.sqrt(1 / size))
    cosine = graph.add("Cos", graph.plus(projection, feature_map.phase_))
    return graph.times(cosine, np.sqrt(2 / size))


def _parts(graph: Graph, feature_map: ProductMap | ConcatMap, x: str) -> str:
    """Rows of the parts side by side, or all products of their entries."""
    rows, widths = [], []
    for part, at in feature_map.parts_:
        value, width = add_map(graph, part, graph.columns(x, at)), part.n_raw_
        if getattr(feature_map, "whiten", "") == "rows" and part.linear_ is not None:
            value, width = graph.matmul(value, part.linear_), part.linear_.shape[1]
        rows.append(value)
        widths.append(int(width))
    if isinstance(feature_map, ConcatMap):
        return graph.beside(rows)
    left, total = rows[0], widths[0]
    for right, width in zip(rows[1:], widths[1:], strict=True):
        pairs = graph.add(
            "Mul", graph.reshaped(left, [-1, total, 1]), graph.reshaped(right, [-1, 1, width])
        )
        total *= width
        left = graph.reshaped(pairs, [-1, total])
    return left
