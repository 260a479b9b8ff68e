"""The feature maps φ and ψ that the parameters of an estimator ask for, learnt on a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from scalefair._checks import check_choice, check_count
from scalefair._typing import FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.features import Identity, Nystroem, OneHot, RandomFourier
from scalefair.features._base import fitted_kernel
from scalefair.features.mixed import EXACT_CUTOFF, SAMPLE_ROWS, coded_columns, mixed_map
from scalefair.kernels import Kernel
from scalefair.kernels.named import NAMES

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
    if is_exact(estimator):
        return None
    most = max(getattr(estimator, "n_components", 0), estimator.n_sensitive_components)
    return max(SAMPLE_ROWS, 4 * int(most))


def is_exact(estimator: Any) -> bool:
    """Return True if every row is a landmark."""
    kind = getattr(estimator, "feature_map", None)
    return isinstance(kind, str) and kind == "exact"


def input_map(estimator: Any, data: TrainingData) -> FeatureMap:
    """Return φ, fitted on the sample."""
    # Whitening amplifies rounding error by one over the root of the cut-off.
    cutoff = 1e-8 if estimator.dtype == "float64" else 1e-5
    if is_exact(estimator):
        cutoff = EXACT_CUTOFF
    return fitted_input_map(estimator, data, Nystroem, cutoff=cutoff)


def fitted_input_map(
    estimator: Any, data: TrainingData, nystroem: type[Nystroem], **options: Any
) -> FeatureMap:
    """Return φ, fitted on the sample; one that is fitted already is used as it is.

    Parameters
    ----------
    estimator : estimator
        Its `feature_map` says which.
    data : TrainingData
        The sample.
    nystroem : type
        The map of "nystroem", and of "exact", where every row is a landmark.
    options
        Its parameters.
    """
    kind, seed, size = estimator.feature_map, data.seed, estimator.n_components
    if hasattr(kind, "n_raw_"):
        return kind  # type: ignore[no-any-return]
    phi = kind
    if kind == "linear":
        phi = Identity()
    elif kind == "fourier":
        kernel = input_kernel(estimator, data)
        phi = RandomFourier(kernel, n_components=size, pairs=size % 2 == 0, random_state=seed)
    elif isinstance(kind, str):
        size = data.sample.n_rows if kind == "exact" else size
        kernel = input_kernel(estimator, data)
        phi = nystroem(kernel, n_components=size, random_state=seed, **options)
    return clone(phi).fit(data.sample.x, sample_weight=data.sample.weight)  # type: ignore[no-any-return]


def input_kernel(estimator: Any, data: TrainingData) -> Kernel:
    """Return the kernel on the inputs, its length scale found on the same rows for every map."""
    at, sample = data.scale_at, data.sample
    weight = np.ones(len(at)) if sample.weight is None else sample.weight[at]
    return fitted_kernel(estimator.kernel, estimator.length_scale, sample.x[at], weight, data.seed)


def sensitive_map(estimator: Any, data: TrainingData) -> FeatureMap | None:
    """Return ψ, fitted on the sample and one row of each group; None without attributes."""
    encoder = data.preparation.sensitive_encoder
    if encoder is None:
        return None
    kernel, categorical = estimator.sensitive_kernel, encoder.categorical_
    _check_groups(data, coded_columns(kernel, categorical))
    return mixed_map(
        kernel, estimator.sensitive_length_scale, estimator.n_sensitive_components,
        rows=data.sample.s, weight=data.sample.weight, categorical=categorical, groups=data.groups,
        seed=data.seed, scale_at=data.scale_at, exact=is_exact(estimator),
    )  # fmt: skip


def _check_groups(data: TrainingData, coded: NDArray[np.bool_]) -> None:
    """Raise ValueError if categories tell all rows apart: any prediction depends on them."""
    n = 0 if data.groups is None else len(data.groups)
    if n >= data.n_present:
        raise ValueError(
            f"every row is its own group: the categories in columns {np.flatnonzero(coded)} of the "
            f"sensitive attributes have {n} combinations in {n} rows, so that no prediction could "
            "be fair; leave identifiers out, merge rare levels, or pass numbers as numbers"
        )


def group_names(psi: Any, encoder: Any) -> list[str]:
    """Return the names of the groups of categories that ψ tells apart, in its order."""
    if isinstance(psi, OneHot):
        return list(encoder.group_names(psi.combinations_, range(len(psi.categories_))))
    names = []
    for part, columns in getattr(psi, "parts_", ()):
        if isinstance(part, OneHot):
            names += encoder.group_names(part.combinations_, columns)
    return names
