"""The first pass over the rows: what encoders, length scales and landmarks are learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair import _frames
from scalefair._typing import Array, Chunk
from scalefair.encoding import TableStatistics, sensitive_statistics, table_statistics
from scalefair.stream._source import Sample, Sampler


@dataclass(frozen=True, eq=False)
class Learned:
    """What one pass tells of the rows; `+` joins what different chunks tell.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    x, s : TableStatistics
        Of the columns of the inputs (empty where they are used as given) and of the sensitive
        attributes.
    groups : frame or array
        One row of s for each combination of categories.
    sample : Sample
        Rows chosen by their number.
    """

    n_rows: int
    x: TableStatistics
    s: TableStatistics
    groups: Any
    sample: Sample

    def __add__(self, other: Learned) -> Learned:
        return Learned(
            self.n_rows + other.n_rows,
            self.x + other.x,
            self.s + other.s,
            _join_groups(self.groups, other.groups),
            self.sample + other.sample,
        )


class Learner:
    """Accumulator of what a fit must know before it can map rows.

    Parameters
    ----------
    size, seed : int
        Of the sample.
    encode : bool
        Whether the inputs are a table whose columns must be understood; otherwise they are
        numbers, and checked to be finite.
    """

    def __init__(self, size: int, seed: int, *, encode: bool) -> None:
        self._encode = encode
        self._n_rows = 0
        self._x = self._s = TableStatistics()
        self._groups: Any = None
        self._sampler = Sampler(size, seed)

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; an error says where they come from."""
        if chunk.n_rows == 0:
            return
        try:
            self._add(chunk)
        except ValueError as error:
            raise ValueError(f"{chunk.where}: {error}" if chunk.where else str(error)) from error

    def _add(self, chunk: Chunk) -> None:
        self._n_rows += chunk.n_rows
        check_finite("y", chunk.y)
        check_finite("sample_weight", chunk.weight)
        if self._encode:
            self._x = self._x + table_statistics(chunk.x, chunk.weight)
        else:
            check_finite("X", chunk.x)
        if chunk.s is not None:
            self._s = self._s + sensitive_statistics(chunk.s, chunk.weight)
            present = chunk.s if chunk.weight is None else _present(chunk.s, chunk.weight)
            self._groups = _join_groups(self._groups, _firsts(present))
        self._sampler.add(chunk)

    def result(self) -> Learned:
        """Return what all rows seen have told."""
        return Learned(self._n_rows, self._x, self._s, self._groups, self._sampler.result())


def check_finite(name: str, values: Array | None) -> None:
    """Raise a ValueError that names the first column with NaN or infinity."""
    if values is None or np.isfinite(values).all():
        return
    finite = np.isfinite(values.reshape(len(values), -1))
    column = int(np.flatnonzero(~finite.all(axis=0))[0])
    which = f"{name}, column {column}," if values.ndim > 1 else name
    raise ValueError(
        f"{which} has {int((~finite[:, column]).sum())} value(s) that are NaN or infinite; fill "
        "them in, or leave those rows out"
    )


def _present(s: Any, weight: Array) -> Any:
    return _frames.take_rows(s, np.flatnonzero(np.asarray(weight) > 0))


def _firsts(s: Any) -> Any:
    """Rows of s that are the first of their combination of categories; None without categories."""
    table = _frames.as_table(s, one_column=True)
    kinds = _frames.columns(table)
    codes = [column.codes()[0] for column in kinds if column.kind == "categorical"]
    codes += [column.floats().astype(int) for column in kinds if column.kind == "boolean"]
    if not codes or _frames.n_rows(table) == 0:
        return None
    _, first = np.unique(np.column_stack(codes), axis=0, return_index=True)
    return _frames.take_rows(table, np.sort(first))


def _join_groups(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return a if b is None else b
    return _firsts(_frames.stack_rows([a, b]))
