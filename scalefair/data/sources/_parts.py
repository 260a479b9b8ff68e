"""Targets and weights of a chunk: float64, and checked while the place is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.data.frames import Column


def targets(y: Any, where: str, row: int) -> Array | None:
    """Return the targets of a chunk, of shape (k, t).

    Parameters
    ----------
    y : array-like or frame of shape (k,) or (k, t), or None
        As read.
    where : str
        The file or batch, for error messages.
    row : int
        Global number of the first row, for error messages.
    """
    if y is None:
        return None
    columns = _columns(y, "y")
    return np.column_stack([_finite(column, where, row) for column in columns])


def weights(weight: Any, where: str, row: int) -> Array | None:
    """Return the weights of a chunk, of shape (k,); `where` and `row` as in `targets`."""
    if weight is None:
        return None
    columns = _columns(weight, "sample_weight")
    if len(columns) != 1:
        raise ValueError(f"{where}: sample_weight has {len(columns)} columns; expected one")
    values = _finite(columns[0], where, row)
    if (values < 0).any():
        first = row + int(np.argmax(values < 0))
        raise ValueError(
            f"{where}: sample_weight is negative ({values.min():g}, first in row {first}); "
            "expected weights of at least 0: set such rows to 0"
        )
    return values


def _columns(part: Any, name: str) -> list[Column]:
    table = frames.as_table(part, one_column=True)
    columns = frames.columns(table, name)
    # A single column without a name goes by that of the argument.
    if len(columns) == 1 and frames.column_names(table) is None:
        return [Column(name, columns[0].kind, columns[0].values)]
    return columns


def _finite(column: Column, where: str, row: int) -> Array:
    if column.kind == "categorical":
        raise ValueError(f"{where}: column {column.name!r} is text; expected numbers: convert it")
    values = column.floats()
    good = np.isfinite(values)
    if not good.all():
        first = row + int(np.argmin(good))
        raise ValueError(
            f"{where}: column {column.name!r} is missing or infinite in {int((~good).sum())} rows "
            f"(first in row {first} of the data); expected finite numbers: drop such rows"
        )
    return values
