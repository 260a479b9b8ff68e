"""Rows in memory: scikit-learn's checks, and errors that name the argument and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from scalefair import _frames
from scalefair._typing import Array


def validated(estimator: Any, X: Any, y: Any, *, table: bool, reset: bool) -> tuple[Any, Array]:
    """Return X and y, checked; a table that will be encoded keeps its container."""
    if table:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
        check_consistent_length(X, y)
        if reset and len(y) < 2:
            raise ValueError(f"X has {len(y)} sample(s), at least 2 are needed to fit")
        return X, _target(y)
    X, y = validate_data(
        estimator, X, y, dtype=[np.float64, np.float32], order="C", multi_output=True,
        y_numeric=True, reset=reset, ensure_min_samples=2 if reset else 1,
    )  # fmt: skip
    return X, _target(y)


def _target(y: Any) -> Array:
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y has values that are not numbers (dtype {y.dtype}); give numbers, such as 0 and 1 "
            "for two classes"
        ) from None


def weights(sample_weight: Any, X: Any) -> Array | None:
    """Return the weights, finite, not negative and not all zero; None for None."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(
        sample_weight, np.empty((_frames.n_rows(X), 1)), dtype=np.float64,
        ensure_non_negative=True, allow_all_zero_weights=True,
    )  # fmt: skip
    return np.asarray(weight)


def positions(columns: Any, names: Any, width: int) -> list[int]:
    """Return the positions of `sensitive_columns`, in errors called by that name."""
    names = None if names is None else list(names)
    try:
        found = _frames.resolve_columns(columns, names, width)
    except (TypeError, ValueError) as error:
        raise type(error)(f"sensitive_columns={columns!r}: {error}") from None
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"sensitive_columns={columns!r} must name at least one column of X, and none twice; "
            "for an ordinary fit use sensitive_columns=None and eta=0"
        )
    return found


def check_lengths(X: Any, **parts: Any) -> None:
    """Check that the sensitive and control features, where given, are tables with the rows of X."""
    for name, part in parts.items():
        if part is not None:
            _check_length(X, part, name)


def _check_length(X: Any, part: Any, name: str) -> None:
    if isinstance(part, str) or not hasattr(part, "__len__") or getattr(part, "shape", None) == ():
        instead = ", or name columns of X in sensitive_columns" * (name == "sensitive_features")
        raise TypeError(
            f"{name}={part!r} is a {type(part).__name__}; give an array, Series or frame "
            f"with one row for each row of X{instead}"
        )
    if 0 in getattr(part, "shape", ())[1:]:
        raise ValueError(f"{name} has no columns; give at least one attribute")
    if _frames.n_rows(X) != _frames.n_rows(part):
        raise ValueError(
            f"{name} has {_frames.n_rows(part)} rows but X has {_frames.n_rows(X)}; give "
            f"one row of {name.replace('_features', '')} attributes for each row of X, in the same "
            "order"
        )
