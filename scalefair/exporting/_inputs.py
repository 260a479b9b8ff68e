"""The inputs of an exported predictor: a matrix of numbers, or one input for each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair.data.encoding import LevelCode, NumberCode
from scalefair.exporting._graph import Graph

MISSING = "<missing>"
"""How a missing text is written in an input, which knows no null; a missing number is NaN."""


class Inputs:
    """What the model sees, as values of a graph.

    Parameters
    ----------
    graph : Graph
    model : fitted estimator
    """

    def __init__(self, graph: Graph, model: Any) -> None:
        self._graph, self._preparation = graph, model._design.preparation
        self._encoder = self._preparation.encoder
        width = model.n_features_in_
        self._hidden = set()
        if self._preparation.hide_sensitive:
            self._hidden = set(self._preparation.sensitive_columns or ())
        self._names = [str(name) for name in getattr(model, "feature_names_in_", [])]
        self._seen = [j for j in range(width) if j not in self._hidden]
        self._joins = model._design.sees_sensitive
        self._columns: dict[int, str] = {}
        if self._encoder is None and not self._joins_text():
            self._matrix = graph.input("X", width)
        else:
            self._open_columns()

    def _joins_text(self) -> bool:
        encoder = self._preparation.sensitive_encoder
        return bool(self._joins and encoder is not None and encoder.categorical_.any())

    def _open_columns(self) -> None:
        """Open an input for each column that the model looks at."""
        codes = self._encoder.columns_ if self._encoder is not None else [None] * len(self._seen)
        for j, code in zip(self._seen, codes, strict=True):
            name = self._names[j] if self._names else f"x{j}"
            text = isinstance(code, LevelCode)
            self._columns[j] = self._graph.input(name, 1, text=text)

    def x(self) -> str:
        """Return the numbers that φ sees."""
        graph = self._graph
        if not self._columns:
            return graph.columns(self._matrix, self._seen) if self._hidden else self._matrix
        if self._encoder is None:
            return graph.beside([self._columns[j] for j in self._seen])
        codes = zip(self._seen, self._encoder.columns_, strict=True)
        return graph.beside([self._encoded(self._columns[j], code) for j, code in codes])

    def s(self) -> str:
        """Return the numbers that ψ sees."""
        graph, encoder = self._graph, self._preparation.sensitive_encoder
        at = self._preparation.sensitive_columns or []
        if not self._columns:
            return graph.columns(self._matrix, at)
        parts = []
        for j, name, kind in zip(at, encoder.names_, encoder.kinds_, strict=True):
            value = self._columns[j]
            if kind == "categorical":
                value = graph.cast(self._number_of(value, encoder.levels_[name]))
            parts.append(value)
        return graph.beside(parts)

    def _number_of(self, text: str, levels: Any, default: int = -1) -> str:
        """Return the position of a text among levels."""
        return self._graph.add(
            "LabelEncoder", text, domain="ai.onnx.ml", keys_strings=list(levels),
            values_int64s=list(range(len(levels))), default_int64=default,
        )  # fmt: skip

    def _encoded(self, value: str, code: Any) -> str:
        if isinstance(code, NumberCode):
            return self._number(value, code)
        return self._levels(value, code)

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
        keys = {level: i for i, level in enumerate(code.levels)}
        keys |= dict.fromkeys(code.pooled, known)
        other = known if code.pooled else -1
        keys[MISSING] = last if code.missing == "column" else other
        slot = graph.add(
            "LabelEncoder", value, domain="ai.onnx.ml", keys_strings=list(keys),
            values_int64s=list(keys.values()), default_int64=other,
        )  # fmt: skip
        binary = slots == 1 and last + (code.missing == "column") == 2
        places = np.array([[1]]) if binary else np.arange(slots)[None]
        return graph.cast(graph.add("Equal", slot, graph.constant(places.astype(np.int64))))
