"""The feature maps φ and ψ that the parameters of an estimator ask for, learnt on a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from scalefair._checks import check_choice, check_count
from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.kernels import Kernel
from scalefair.kernels.named import NAMES
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, ProductMap, RandomFourier
from scalefair.maps._base import standard_deviation

SAMPLE_ROWS = 2000
"""Least number of rows that length scales and landmarks are chosen from."""

EXACT_CUTOFF = 1e-13
"""Rank cut-off where every row is a landmark."""

FEATURE_MAPS = ("nystroem", "fourier", "exact", "linear")


def check_maps(estimator: Any) -> None:
    """Check the parameters that choose φ and ψ, by the names that users know them by."""
    _check_kernel("sensitive_kernel", estimator.sensitive_kernel, "auto")
    _check_scale("sensitive_length_scale", estimator.sensitive_length_scale)
    check_count("n_sensitive_components", estimator.n_sensitive_components)
    if not hasattr(estimator, "feature_map"):
        return
    if isinstance(estimator.feature_map, str):
        check_choice("feature_map", estimator.feature_map, FEATURE_MAPS)
    elif not hasattr(estimator.feature_map, "raw"):
        raise TypeError(
            f"feature_map={estimator.feature_map!r} is neither a name nor a feature map; choose "
            f"one of {', '.join(FEATURE_MAPS)}, or give a map of scalefair.maps"
        )
    _check_kernel("kernel", estimator.kernel)
    _check_scale("length_scale", estimator.length_scale)
    check_count("n_components", estimator.n_components)


def _check_kernel(name: str, value: Any, *more: str) -> None:
    if isinstance(value, str):
        check_choice(name, value, (*more, *NAMES))
    elif not isinstance(value, Kernel) and not (more and hasattr(value, "raw")):
        raise TypeError(
            f"{name}={value!r} is a {type(value).__name__}; give one of "
            f"{', '.join((*more, *NAMES))}, or a kernel of scalefair.kernels"
        )


def _check_scale(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_choice(name, value, ("median", "standardized"))
        return
    try:
        scale = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        scale = np.array(np.nan)
    if scale.ndim > 1 or not ((scale > 0) & np.isfinite(scale)).all():
        raise ValueError(f"{name}={value!r} must be 'median', a positive number, or one per column")


def sample_size(estimator: Any) -> int | None:
    """Rows to learn the maps on: enough that duplicates leave no landmark out; None: all."""
    if _is_exact(estimator):
        return None
    most = max(getattr(estimator, "n_components", 0), estimator.n_sensitive_components)
    return max(SAMPLE_ROWS, 4 * int(most))


def _is_exact(estimator: Any) -> bool:
    kind = getattr(estimator, "feature_map", None)
    return isinstance(kind, str) and kind == "exact"


def input_map(estimator: Any, data: TrainingData) -> FeatureMap:
    """Return φ, fitted on the sample."""
    phi = _unfitted_input_map(estimator, data.sample.n_rows, data.seed)
    return _fitted(phi, data.sample.x, data.sample.weight)


def _unfitted_input_map(estimator: Any, rows: int, seed: int) -> Any:
    kind = estimator.feature_map
    if not isinstance(kind, str):
        return kind
    if kind == "linear":
        return Identity()
    kernel = {"kernel": estimator.kernel, "length_scale": estimator.length_scale}
    if kind == "fourier":
        size = estimator.n_components
        return RandomFourier(**kernel, n_components=size, pairs=size % 2 == 0, random_state=seed)
    if kind == "exact":
        return Nystroem(**kernel, n_components=rows, cutoff=EXACT_CUTOFF, random_state=seed)
    # Whitening amplifies rounding error by one over the root of the cut-off.
    cutoff = 1e-8 if estimator.dtype == "float64" else 1e-5
    return Nystroem(**kernel, n_components=estimator.n_components, cutoff=cutoff, random_state=seed)


def _fitted(feature_map: Any, rows: Array, weight: Array | None) -> FeatureMap:
    """Fit a copy; a map that is fitted already is used as it is."""
    if hasattr(feature_map, "n_raw_"):
        return feature_map  # type: ignore[no-any-return]
    return clone(feature_map).fit(rows, sample_weight=weight)  # type: ignore[no-any-return]


def sensitive_map(estimator: Any, data: TrainingData) -> FeatureMap | None:
    """Return ψ, fitted on the sample and one row of each group; None without attributes."""
    encoder = data.preparation.sensitive_encoder
    if encoder is None:
        return None
    psi = _unfitted_sensitive_map(estimator, data.sample, encoder.categorical_, data.seed)
    rows, weight = data.sample.s, data.sample.weight
    if data.groups is not None:
        coded = encoder.categorical_ | (estimator.sensitive_kernel == "categorical")
        _check_groups(data, coded)
        rows, weight = _with_rare_groups(rows, weight, data.groups, coded)
    return _fitted(psi, rows, weight)


def _unfitted_sensitive_map(
    estimator: Any, sample: Chunk, categorical: NDArray[np.bool_], seed: int
) -> Any:
    kernel, exact = estimator.sensitive_kernel, _is_exact(estimator)
    if not isinstance(kernel, str) and hasattr(kernel, "raw"):
        return kernel
    smooth = Nystroem(
        kernel="rbf" if kernel == "auto" else kernel,
        length_scale=estimator.sensitive_length_scale,
        n_components=sample.n_rows if exact else estimator.n_sensitive_components,
        cutoff=EXACT_CUTOFF if exact else 1e-8,
        random_state=seed,
    )
    if kernel == "categorical":
        return OneHot()
    if kernel == "auto":
        smooth.length_scale = _standardized(
            estimator.sensitive_length_scale, sample.s[:, ~categorical], sample.weight
        )
        return _side_by_side(ProductMap, smooth, categorical)
    if kernel == "linear":
        return _side_by_side(ConcatMap, Identity(), categorical)
    if categorical.any():
        raise ValueError(
            f"sensitive_kernel={kernel!r} needs numbers, but columns {np.flatnonzero(categorical)} "
            "of the sensitive attributes are categories; use sensitive_kernel='auto' for mixed "
            "attributes, or 'categorical'"
        )
    return smooth


def _standardized(length_scale: Any, numeric: Array, weight: Array | None) -> Any:
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


def _with_rare_groups(
    rows: Array, weight: Array | None, groups: Array, coded: NDArray[np.bool_]
) -> tuple[Array, Array | None]:
    """Join one row of each group that the sample lacks: none is left without a feature.

    Groups that it has are not joined again: they would count twice in the length scales.
    """
    all_rows = np.concatenate([rows, groups])
    _, first = np.unique(all_rows[:, coded], axis=0, return_index=True)
    kept = np.concatenate([np.arange(len(rows)), np.sort(first[first >= len(rows)])])
    joined = None if weight is None else np.concatenate([weight, np.ones(len(kept) - len(rows))])
    return all_rows[kept], joined


def _check_groups(data: TrainingData, coded: NDArray[np.bool_]) -> None:
    """Complain where the categories tell all rows apart: then any prediction depends on them."""
    n = 0 if data.groups is None else len(data.groups)
    if n >= data.n_present:
        raise ValueError(
            f"every row is its own group: the categories in columns {np.flatnonzero(coded)} of the "
            f"sensitive attributes have {n} combinations in {n} rows, so that no prediction could "
            "be fair; leave identifiers out, merge rare levels, or pass numbers as numbers"
        )
