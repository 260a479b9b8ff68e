"""A graph that grows node by node, and kernels, feature maps and boosted trees as nodes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from scalefair._typing import Array
from scalefair.features import ConcatMap, Identity, Nystroem, OneHot, ProductMap, RandomFourier
from scalefair.features.base_model import LEAST_PROBABILITY, BaseModel
from scalefair.features.trees import LOG_LINKS, Forest, Trees
from scalefair.kernels import RBF, Categorical, Laplace, Linear, Matern, Product, Scaled, Sum

OPSET, MACHINE_LEARNING, FORMAT = 18, 3, 9  # versions that runtimes of 2023 and later read
NUMBERS = np.dtype(np.float64)


class Graph:
    """An ONNX graph in the making, in which numbers are float64."""

    def __init__(self, name: str) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError("to_onnx needs onnx; pip install 'scalefair[onnx]'") from error
        self._onnx, self._name = onnx, name
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, width: int, *, text: bool = False) -> str:
        """Add an input of shape (rows, width)."""
        dtype = np.dtype(object) if text else NUMBERS
        self._inputs.append(self._info(name, dtype, ["rows", width]))
        return name

    def _info(self, name: str, dtype: Any, shape: list[Any]) -> Any:
        helper = self._onnx.helper
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)

    def constant(self, value: Any) -> str:
        """Add an array."""
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array
        name = f"scalefair.constant{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operation: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its value."""
        name = f"scalefair.value{len(self._nodes)}"
        node = self._onnx.helper.make_node(operation, list(inputs), [name], domain=domain, **attributes)
        self._nodes.append(node)
        return name

    def cast(self, value: str, kind: str = "DOUBLE") -> str:
        """Return a value as numbers, or as integers of the `kind` "INT64"."""
        return self.add("Cast", value, to=self._onnx.TensorProto.DataType.Value(kind))

    def times(self, value: str, factor: Any) -> str:
        """Return a value times an array, elementwise."""
        return self.add("Mul", value, self.constant(np.asarray(factor, dtype=np.float64)))

    def plus(self, value: str, term: Any) -> str:
        """Return a value plus an array."""
        return self.add("Add", value, self.constant(np.asarray(term, dtype=np.float64)))

    def matmul(self, value: str, matrix: Any) -> str:
        """Return a value times a matrix from the right."""
        return self.add("MatMul", value, self.constant(np.asarray(matrix, dtype=np.float64)))

    def columns(self, value: str, at: Any) -> str:
        """Return some columns of a value."""
        return self.add("Gather", value, self.constant(np.asarray(at, dtype=np.int64)), axis=1)

    def beside(self, values: list[str]) -> str:
        """Return values side by side."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=1)

    def reshaped(self, value: str, shape: list[int]) -> str:
        """Return a value in another shape."""
        return self.add("Reshape", value, self.constant(np.asarray(shape, dtype=np.int64)))

    def summed(self, value: str, axis: int, *, keep: bool = False) -> str:
        """Return the sum along an axis."""
        axes = self.constant(np.array([axis], dtype=np.int64))
        return self.add("ReduceSum", value, axes, keepdims=int(keep))

    def positions(self, text: str, positions: dict[str, int], other: int) -> str:
        """Return the position of a text, `other` where it has none."""
        return self.add(
            "LabelEncoder",
            text,
            domain="ai.onnx.ml",
            keys_strings=list(positions),
            values_int64s=list(positions.values()),
            default_int64=other,
        )

    def output(self, name: str, value: str, width: int, dtype: Any = NUMBERS) -> None:
        """Give a value a name of its own and make it an output of shape (rows, width)."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._info(name, dtype, ["rows", width] if width else ["rows"]))

    def model(self, **metadata: str) -> Any:
        """Return the finished model, checked."""
        helper = self._onnx.helper
        parts = self._inputs, self._outputs, self._constants
        graph = helper.make_graph(self._nodes, self._name, *parts)
        domains = {"": OPSET, "ai.onnx.ml": MACHINE_LEARNING}
        versions = [helper.make_opsetid(*domain) for domain in domains.items()]
        model = helper.make_model(graph, opset_imports=versions, ir_version=FORMAT, producer_name="scalefair")
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model)
        return model


def add_map(graph: Graph, feature_map: Any, x: str) -> str:
    """Add the rows of a fitted map before its linear part, of shape (k, n_raw_)."""
    if isinstance(feature_map, Identity):
        return x
    if isinstance(feature_map, RandomFourier):
        return _fourier(graph, feature_map, x)
    if isinstance(feature_map, Nystroem):
        return add_kernel(graph, feature_map.kernel_, x, feature_map.landmarks_)
    if isinstance(feature_map, OneHot):
        return _one_hot(graph, feature_map, x)
    if isinstance(feature_map, ProductMap | ConcatMap):
        return _parts(graph, feature_map, x)
    raise ValueError(
        f"a {type(feature_map).__name__} cannot be exported to ONNX; use feature_map='nystroem', "
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
    raise ValueError(f"the kernel {kernel!r} cannot be exported to ONNX; use one of scalefair.kernels")


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


def _one_hot(graph: Graph, feature_map: OneHot, x: str) -> str:
    """Indicators of the groups; of a combination that was not seen what its levels give."""
    groups, levels = feature_map.combinations_, feature_map.categories_
    known = _equal(graph, x, groups)
    if len(groups) == np.prod([len(each) for each in levels], dtype=float):
        return known
    columns = [_equal(graph, graph.columns(x, [j]), each[:, None]) for j, each in enumerate(levels)]
    others = graph.matmul(graph.beside(columns), feature_map.from_levels())
    seen = graph.add("Greater", graph.summed(known, 1, keep=True), graph.constant(0.5))
    return graph.add("Where", seen, known, others)


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
        whitened = isinstance(feature_map, ProductMap) and feature_map.whiten == "rows"
        if whitened and part.linear_ is not None:
            value, width = graph.matmul(value, part.linear_), part.linear_.shape[1]
        rows.append(value)
        widths.append(int(width))
    if isinstance(feature_map, ConcatMap):
        return graph.beside(rows)
    left, total = rows[0], widths[0]
    for right, width in zip(rows[1:], widths[1:], strict=True):
        pairs = graph.add("Mul", graph.reshaped(left, [-1, total, 1]), graph.reshaped(right, [-1, 1, width]))
        total *= width
        left = graph.reshaped(pairs, [-1, total])
    return left


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
    p = add_probabilities(graph, f, binary=model.forest_.baseline.size == 1)
    others = list(range(1, max(model.forest_.baseline.size, 2)))
    if scale != "log_odds":
        return graph.columns(p, others)
    bounds = (graph.constant(b) for b in (LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    log = graph.add("Log", graph.add("Clip", p, *bounds))
    return graph.add("Sub", graph.columns(log, others), graph.columns(log, [0]))


def add_probabilities(graph: Graph, f: str, *, binary: bool) -> str:
    """Add probabilities of classes, from log odds or from logarithms up to a constant."""
    if not binary:
        return graph.add("Softmax", f, axis=1)
    return graph.beside([graph.add("Sigmoid", graph.times(f, sign)) for sign in (-1.0, 1.0)])


def _leaf_sums(graph: Graph, forest: Forest, x: str) -> str:
    """Add b + Σ_t of the leaf of tree t: all trees go down one level at a time."""
    n, inner = len(forest.feature), forest.feature >= 0
    child = np.where(inner[:, None], forest.child, np.arange(n)[:, None])  # a leaf stays
    trees, k = forest.roots.shape
    rows = graph.add("Shape", x, start=0, end=1)
    shape = graph.add("Concat", rows, graph.constant(np.array([trees * k])), axis=0)
    node = graph.add("Expand", graph.constant(forest.roots.reshape(1, -1).astype(np.int64)), shape)
    taken: dict[str, Any] = {
        "feature": np.maximum(forest.feature, 0).astype(np.int64),
        "threshold": forest.threshold,
        "child": child.ravel().astype(np.int64),
        "is_level": forest.levels >= 0,
        "is_number": forest.levels < 0,
        "set": 256 * np.maximum(forest.levels, 0).astype(np.int64),
        "member": np.unpackbits(forest.sets.astype("<u4").view(np.uint8), axis=1, bitorder="little")
        .ravel()
        .astype(bool),
    }
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
        member = of("member", graph.add("Add", of("set"), graph.cast(inside, "INT64")))
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
