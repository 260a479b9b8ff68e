"""What the columns of ψ(s) are, so that a ridge on functions of s has no units.

The best function of s in the span of ψ is a ridge fit with εκ_j on the coefficient of column j.
What κ_j must be for the fit not to depend on the units of s follows from what the column is:

| kind      | columns                                      | κ_j                               |
| --------- | -------------------------------------------- | --------------------------------- |
| "groups"  | indicators of groups                         | needs no ridge                    |
| "kernel"  | features of a kernel with k(s, s) = 1        | 1                                 |
| "cell"    | such features within one group of categories | E|ψ_cell|²: the group's frequency |
| "columns" | numbers as given                             | their own variance                |
| "map"     | anything else                                | the variance of all of them       |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair.features.base import LengthScaleMap, n_features
from scalefair.features.exact import Identity, OneHot
from scalefair.features.mixed import Crossed
from scalefair.features.product import ConcatMap, ProductMap
from scalefair.kernels.stationary import Stationary

KINDS = ("groups", "kernel", "cell", "columns", "map")

Unit = tuple[str, NDArray[np.int64]]
"""A kind, and the columns of that kind that share a unit."""

Units = tuple[Unit, ...]


def units_of(feature_map: Any) -> Units:
    """Return the units of the features of a fitted map."""
    if isinstance(feature_map, Crossed):
        return _crossed_units(feature_map)
    if isinstance(feature_map, ConcatMap):
        return _one_after_another([units_of(part) for part, _ in feature_map.parts_])
    if isinstance(feature_map, ProductMap):
        if feature_map.linear_ is not None:
            return all_columns("map", n_features(feature_map))
        return _product_units([part for part, _ in feature_map.parts_])
    return ((_kind_of(feature_map), np.arange(n_features(feature_map))),)


def all_columns(kind: str, width: int) -> Units:
    """Return one unit of so many columns."""
    return ((kind, np.arange(width)),)


def _kind_of(feature_map: Any) -> str:
    if isinstance(feature_map, OneHot):
        return "groups"
    if isinstance(feature_map, Identity):
        return "columns"
    stationary = isinstance(feature_map, LengthScaleMap) and isinstance(
        feature_map.kernel_, Stationary
    )
    return "kernel" if stationary else "map"


def _one_after_another(parts: list[Units]) -> Units:
    units: list[Unit] = []
    start = 0
    for part in parts:
        units += [(kind, columns + start) for kind, columns in part]
        start += sum(len(columns) for _, columns in part)
    return tuple(units)


def _crossed_units(crossed: Crossed) -> Units:
    if crossed.linear is not None:  # a Nyström map of the product of two kernels
        kinds = {_kind_of(crossed.psi), _kind_of(crossed.upsilon)}
        unit_kernel = kinds <= {"groups", "kernel"}
        return all_columns("kernel" if unit_kernel else "map", crossed.width)
    return _product_units([crossed.psi, crossed.upsilon])


def _product_units(maps: list[Any]) -> Units:
    """Units of the row-wise Kronecker product: one cell for each combination of groups."""
    kinds = [{kind for kind, _ in units_of(part)} for part in maps]
    if all(kind == {"groups"} for kind in kinds):
        return all_columns("groups", int(np.prod([n_features(part) for part in maps])))
    cell = np.zeros(1, dtype=np.int64)
    for part, kind in zip(maps, kinds, strict=True):
        width = n_features(part)
        own = np.arange(width) if kind == {"groups"} else np.zeros(width, dtype=np.int64)
        cell = (cell[:, None] * width + own).ravel()
    if len(np.unique(cell)) == 1:
        plain = all(kind == {"kernel"} for kind in kinds)
        return all_columns("kernel" if plain else "map", len(cell))
    return tuple(("cell", np.flatnonzero(cell == number)) for number in np.unique(cell))


def units_as_lists(units: Units) -> list[list[Any]]:
    """Return units as JSON can hold them."""
    return [[kind, columns.tolist()] for kind, columns in units]


def units_of_lists(lists: Any) -> Units:
    """Return the units that `units_as_lists` describes."""
    return tuple((str(kind), np.asarray(columns, dtype=np.int64)) for kind, columns in lists)


def check_units(units: Units, width: int) -> None:
    """Raise ValueError unless every one of `width` columns is in exactly one unit of known kind."""
    columns = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for _, columns in units)])
    known = all(kind in KINDS for kind, _ in units)
    if not known or not np.array_equal(np.sort(columns), np.arange(width)):
        raise ValueError(f"units do not describe the {width} columns of their block")
