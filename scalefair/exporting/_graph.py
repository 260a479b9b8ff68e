"""A graph that grows node by node; values are known by name."""

from __future__ import annotations

from typing import Any

import numpy as np

OPSET, MACHINE_LEARNING, FORMAT = 18, 3, 9
"""Versions that runtimes of 2023 and later read."""


class Graph:
    """An ONNX graph in the making, in which numbers are float64.

    Parameters
    ----------
    name : str
        Of the model.
    """

    def __init__(self, name: str) -> None:
        import onnx

        self._onnx, self._name = onnx, name
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, width: int, *, text: bool = False) -> str:
        """Add an input of shape (rows, width)."""
        types = self._onnx.TensorProto
        kind = types.STRING if text else types.DOUBLE
        info = self._onnx.helper.make_tensor_value_info(name, kind, ["rows", width])
        self._inputs.append(info)
        return name

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
        node = self._onnx.helper.make_node(
            operation, list(inputs), [name], domain=domain, **attributes
        )
        self._nodes.append(node)
        return name

    def cast(self, value: str) -> str:
        """Return a value as numbers."""
        return self.add("Cast", value, to=self._onnx.TensorProto.DOUBLE)

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

    def output(self, name: str, value: str, width: int, kind: str = "DOUBLE") -> None:
        """Give a value a name of its own and make it an output of shape (rows, width)."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        shape: list[Any] = ["rows", width] if width else ["rows"]
        of = getattr(self._onnx.TensorProto, kind)
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, of, shape))

    def model(self, **metadata: str) -> Any:
        """Return the finished model, checked."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._constants
        )
        versions = [
            helper.make_opsetid("", OPSET),
            helper.make_opsetid("ai.onnx.ml", MACHINE_LEARNING),
        ]
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=FORMAT, producer_name="scalefair"
        )
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model)
        return model
