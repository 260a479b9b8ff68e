"""Which columns a part of a map looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = int | str | slice | Sequence[int] | Sequence[str] | NDArray[Any]


def column_numbers(columns: Columns, n_features: int, names: Any = None) -> NDArray[np.intp]:
    """Return the numbers of the chosen columns.

    Parameters
    ----------
    columns : int, str, slice, or list of ints, of names or of one bool per column
        Negative numbers count from the end.
    n_features : int
        Number of columns that there are.
    names : array of str, optional
        Their names.
    """
    everything = np.arange(n_features)
    if isinstance(columns, slice):
        return _not_empty(everything[columns], columns)
    wanted = np.atleast_1d(np.asarray(columns))
    if wanted.dtype == bool:
        return _not_empty(np.flatnonzero(_checked_mask(wanted, n_features)), columns)
    if wanted.dtype.kind in "iu":
        return _not_empty(everything[_checked_numbers(wanted, n_features)], columns)
    if wanted.dtype.kind in "UO" and all(isinstance(name, str) for name in wanted):
        return _not_empty(_numbers_of_names(wanted, names), columns)
    raise TypeError(f"columns={columns!r} must be column numbers, names, a slice or a mask")


def _not_empty(numbers: NDArray[np.intp], columns: Any) -> NDArray[np.intp]:
    if len(numbers) == 0:
        raise ValueError(f"columns={columns!r} selects no column of X; name at least one")
    return numbers


def _checked_mask(mask: NDArray[Any], n_features: int) -> NDArray[Any]:
    if mask.shape != (n_features,):
        raise ValueError(
            f"columns is a mask of shape {mask.shape} but X has {n_features} features; "
            f"give one bool per feature"
        )
    return mask


def _checked_numbers(numbers: NDArray[Any], n_features: int) -> NDArray[Any]:
    outside = numbers[(numbers < -n_features) | (numbers >= n_features)]
    if len(outside):
        raise ValueError(
            f"columns has the number {outside[0]} but X has {n_features} features; "
            f"give numbers from 0 to {n_features - 1}"
        )
    return numbers


def _numbers_of_names(wanted: NDArray[Any], names: Any) -> NDArray[np.intp]:
    if names is None:
        raise ValueError(
            f"columns={list(wanted)} are names but X has none; fit with a data frame whose columns "
            f"are named, or give column numbers"
        )
    number = {name: position for position, name in enumerate(names)}
    missing = [str(name) for name in wanted if name not in number]
    if missing:
        raise ValueError(f"columns={missing} are not in X; its columns are {list(names)}")
    return np.array([number[name] for name in wanted], dtype=np.intp)
