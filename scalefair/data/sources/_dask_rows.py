"""Rows as dask collections: some of them, for models that take them whole; made on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair.data import frames

Keep = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


def chosen_rows(value: Any, lengths: Sequence[int], keep: Keep) -> Any:
    """Return the rows of a dask array, series or frame whose numbers `keep` says yes to.

    Parameters
    ----------
    value : dask collection
        Its partitions have `lengths` rows.
    lengths : sequence of int
    keep : callable
        Of global row numbers.
    """
    import dask.array as da
    import dask.dataframe as dd
    from dask.delayed import delayed

    starts = np.cumsum([0, *lengths])
    counts = [int(keep(np.arange(a, a + n)).sum()) for a, n in zip(starts, lengths, strict=False)]
    parts = [
        delayed(_chosen)(part, keep, int(start))
        for part, start in zip(np.ravel(value.to_delayed()), starts, strict=False)
    ]
    if isinstance(value, da.Array):
        shapes = [(count, *value.shape[1:]) for count in counts]
        arrays = [da.from_delayed(p, s, value.dtype) for p, s in zip(parts, shapes, strict=True)]  # type: ignore[no-untyped-call]
        return da.concatenate(arrays)  # type: ignore[no-untyped-call]
    return dd.from_delayed(parts, meta=value._meta)


def _chosen(rows: Any, keep: Keep, start: int) -> Any:
    numbers = np.arange(start, start + frames.n_rows(rows))
    return frames.take_rows(rows, np.flatnonzero(keep(numbers)))


def made_rows(make: Callable[[int, int], Any], n_rows: int, chunk: int) -> Any:
    """Return a dask frame of rows that are made when they are needed, `chunk` in a partition.

    Parameters
    ----------
    make : callable
        From the first row's number and the end to a pandas frame, whose index they are.
    n_rows, chunk : int
    """
    import dask.dataframe as dd

    starts = list(range(0, n_rows, chunk))
    stops = [min(start + chunk, n_rows) for start in starts]
    from_map: Any = dd.from_map
    return from_map(make, starts, stops, meta=make(0, 0), divisions=(*starts, n_rows - 1))


def without_columns(value: Any, gone: Sequence[int]) -> Any:
    """Return a dask array or frame without some columns, by position."""
    kept = [j for j in range(value.shape[1]) if j not in set(gone)]
    return value[[value.columns[j] for j in kept]] if hasattr(value, "columns") else value[:, kept]
