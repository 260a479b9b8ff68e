"""The map ψ of mixed attributes: which map a kernel's name and the kinds of columns ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._distinct import distinct
from scalefair._typing import Array
from scalefair.maps._base import standard_deviation
from scalefair.maps.exact import Identity, OneHot
from scalefair.maps.nystroem import Nystroem
from scalefair.maps.product import ConcatMap, ProductMap

SAMPLE_ROWS = 2000
"""Least number of rows that length scales and landmarks are chosen from."""

EXACT_CUTOFF = 1e-13
"""Rank cut-off where every row is a landmark."""


def mixed_map(
    kernel: Any,
    length_scale: Any,
    n_components: int,
    *,
    rows: Array,
    weight: Array | None,
    categorical: NDArray[np.bool_],
    seed: int,
    exact: bool = False,
    name: str = "sensitive_kernel",
) -> Any:
    """Return the unfitted map of a kernel of attributes of any kind.

    Parameters
    ----------
    kernel : str, Kernel or feature map
        "auto": categories are crossed into one (one-hot), numbers are standardised and get a
        Gaussian kernel (Nyström), and where both occur the map is the product of the two.
    length_scale : float, array of shape (d,), "median" or "standardized"
        Of the numeric columns.
    n_components : int
        Landmarks.
    rows, weight : arrays of shape (k, p) and (k,)
        A sample of the attributes as numbers and codes; weight None: one each.
    categorical : array of bool of shape (p,)
        Which columns are codes.
    seed : int
        Of the choice of landmarks.
    exact : bool
        Whether every row of the sample is a landmark.
    name : str
        What the argument `kernel` is called, in errors.
    """
    if not isinstance(kernel, str) and hasattr(kernel, "raw"):
        return kernel
    smooth = Nystroem(
        kernel="rbf" if isinstance(kernel, str) and kernel == "auto" else kernel,
        length_scale=length_scale,
        n_components=len(rows) if exact else n_components,
        cutoff=EXACT_CUTOFF if exact else 1e-8,
        random_state=seed,
    )
    if kernel == "categorical":
        return OneHot()
    if kernel == "auto":
        smooth.length_scale = standardized_scale(length_scale, rows[:, ~categorical], weight)
        return _side_by_side(ProductMap, smooth, categorical)
    if kernel == "linear":
        return _side_by_side(ConcatMap, Identity(), categorical)
    if categorical.any():
        raise ValueError(
            f"{name}={kernel!r} needs numbers, but columns {np.flatnonzero(categorical)} "
            f"of the sensitive attributes are categories; use {name}='auto' for mixed "
            "attributes, or 'categorical'"
        )
    return smooth


def standardized_scale(length_scale: Any, numeric: Array, weight: Array | None) -> Any:
    """Length scale for columns as given that equals `length_scale` for standardised ones."""
    if isinstance(length_scale, str):
        return "standardized" if length_scale == "median" else length_scale
    weight = np.ones(len(numeric)) if weight is None else weight
    return np.asarray(length_scale, dtype=float) * standard_deviation(numeric, weight)


def _side_by_side(kind: Any, smooth: Any, categorical: NDArray[np.bool_]) -> Any:
    if not categorical.any():
        return smooth
    if categorical.all():
        return OneHot()
    parts = [(OneHot(), np.flatnonzero(categorical)), (smooth, np.flatnonzero(~categorical))]
    # A product of whitened parts is narrower than a whitened product of raw ones.
    return ProductMap(parts, whiten="rows") if kind is ProductMap else kind(parts)


def with_rare_groups(
    rows: Array, weight: Array | None, groups: Array, coded: NDArray[np.bool_]
) -> tuple[Array, Array | None]:
    """Join one row of each group that the sample lacks: none is left without a feature.

    Groups that it has are not joined again: they would count twice in the length scales.
    """
    all_rows = np.concatenate([rows, groups])
    first = distinct(all_rows[:, coded]).first
    kept = np.concatenate([np.arange(len(rows)), np.sort(first[first >= len(rows)])])
    joined = None if weight is None else np.concatenate([weight, np.ones(len(kept) - len(rows))])
    return all_rows[kept], joined
