"""The opener: whatever users pass, as one source of chunks.

The kind of `x` decides: where it is in memory everything beside it is read into memory, too; where
it is a scan or in dask, the rest may be the same or in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from scalefair._typing import WithColumns
from scalefair.data import frames
from scalefair.data.probabilities import GroupProbabilities
from scalefair.data.sources import ArraySource, ChunkSource, DaskSource, FileSource, Scan, is_dask
from scalefair.data.sources.base import ARGUMENTS, finite_columns, weights
from scalefair.errors import InputError, located


@dataclass(frozen=True, eq=False)
class OpenedRows:
    """Rows as the user gave them, in memory or not."""

    source: ChunkSource
    in_memory: bool


def is_stream(part: Any) -> bool:
    """Return True if rows are not in memory."""
    return isinstance(part, Scan | ChunkSource) or is_dask(part)


def open_rows(
    x: Any, s: Any = None, y: Any = None, weight: Any = None, c: Any = None, *,
    names: Mapping[str, str] = ARGUMENTS, n_threads: int | None = None,
) -> OpenedRows:  # fmt: skip
    """Return rows as one source of chunks; `names` are what users call the parts, for errors."""
    names = {**ARGUMENTS, **names}
    given = dict(zip(ARGUMENTS, (x, s, y, weight, c), strict=True))
    if isinstance(x, ChunkSource):
        beside = [names[part] for part in list(ARGUMENTS)[1:] if given[part] is not None]
        if beside:
            raise ValueError(f"{', '.join(beside)} must be None: the chunks of a {type(x).__name__} contain them")
        return OpenedRows(x, in_memory=False)
    # Sparse inputs stay so: their chunks become dense one by one.
    tables = {
        part: value.tocsr() if part == "x" and isinstance(value, frames.Sparse) else table_of(names[part], value)
        for part, value in given.items()
    }
    if tables["x"] is None:
        raise ValueError(f"{names['x']}=None; expected one row for each prediction or target")
    if is_stream(x):
        return OpenedRows(_stream(tables, names, n_threads), in_memory=False)
    tables = {k: in_memory(part) if is_stream(part) else part for k, part in tables.items()}
    return OpenedRows(_memory(tables, names, n_threads), in_memory=True)


def table_of(name: str, part: Any) -> Any:
    """Return any container as a table of columns; None stays None."""
    if part is None or isinstance(part, Scan):
        return part
    if is_dask(part):
        # What is no table, such as a bag, DaskSource refuses.
        if getattr(part, "ndim", 0) != 1:
            return part
        return part.to_frame() if hasattr(part, "to_frame") else part[:, None]
    if isinstance(part, GroupProbabilities):
        raise InputError(f"{name} are probabilities of groups", "give the groups", where=name)
    if isinstance(part, Mapping):
        return frames.make_frame(part)
    if isinstance(part, str) or not hasattr(part, "__len__") or np.shape(part) == ():
        raise TypeError(
            f"{name}={part!r} is a {type(part).__name__}; give an array, a Series, a frame, a scan "
            "or a dask collection with one row for each person"
        )
    with located(name):
        table = frames.as_table(part, one_column=True)
    if table.shape[1] == 0:
        raise InputError(f"{name} has no columns (shape {table.shape})", "give at least one", where=name)
    return table


def in_memory(part: Any, *, scans: bool = True) -> Any:
    """Return rows in memory: scans are read (with `scans`), and dask collections computed."""
    if is_dask(part):
        return part.compute()
    return part.read() if scans and isinstance(part, Scan) else part


def _memory(tables: Mapping[str, Any], names: Mapping[str, str], n_threads: int | None) -> ArraySource:
    n = tables["x"].shape[0]
    for part, table in tables.items():
        if table is not None and table.shape[0] != n:
            raise ValueError(
                f"{names[part]} has {table.shape[0]} rows but {names['x']} has {n}; give "
                "one row each, in the same order"
            )
    if not n:
        raise ValueError(f"{names['x']} has no rows; expected at least two")
    y = finite_columns(tables["y"], "y", names["y"], 0)
    weight = tables["weight"]
    weight = None if weight is None else weights(weight, "in memory", 0)
    # As given: models of the user see these rows.
    x, s, c = (nw.to_native(tables[part], pass_through=True) for part in "xsc")
    return ArraySource(x, s, y, weight, c, n_threads=n_threads)


def _stream(tables: Mapping[str, Any], names: Mapping[str, str], n_threads: int | None) -> ChunkSource:
    x, s, y, weight, c = (tables[part] for part in ARGUMENTS)
    for part, table in tables.items():
        if is_stream(table) and isinstance(table, Scan) != isinstance(x, Scan):
            raise ValueError(
                f"{names[part]} is a {type(table).__name__} and {names['x']} a "
                f"{type(x).__name__}; give both from one scan, both in dask, or all in memory"
            )
    if isinstance(x, Scan):
        return FileSource(x, s, y, weight, c, names=names, n_threads=n_threads)
    if not is_dask(weight):
        return DaskSource(x, s, y, weights(weight, "in memory", 0), c)
    if weight.shape[1] != 1:
        what = f"{names['weight']} has {weight.shape[1]} columns; expected one"
        raise InputError(what, where=names["weight"])
    flat = weight[weight.columns[0]] if isinstance(weight, WithColumns) else weight[:, 0]
    return DaskSource(x, s, y, flat, c)
