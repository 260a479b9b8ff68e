"""What users pass to `fit` and `predict`, checked by scikit-learn's conventions and opened."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from scalefair._typing import Array, Chunk
from scalefair.data import SURVEY_ROWS, frames, in_memory_parts, is_stream, open_rows
from scalefair.data.sources import ArraySource, BatchSource, ChunkSource, Scan, in_memory, is_dask


class FitRows(NamedTuple):
    """Rows of `fit` as given, and what is known of them before they are read.

    Parameters
    ----------
    source : ChunkSource
        The rows.
    is_table : bool
        Whether x comes in frames, whose columns must be understood first; else in arrays.
    one_target : bool
        Whether y has one dimension.
    has_sensitive, has_control : bool
        Whether s and c are given apart from x.
    """

    source: ChunkSource
    is_table: bool
    one_target: bool
    has_sensitive: bool
    has_control: bool


def open_fit_rows(  # noqa: PLR0917
    estimator: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any,
    control_features: Any,
    *,
    reset: bool,
) -> FitRows:
    """Return the rows of `fit` (`reset`) or of a later batch; set or check the names of columns."""
    if isinstance(sensitive_features, str | int):
        raise TypeError(
            f"sensitive_features={sensitive_features!r} is a {type(sensitive_features).__name__}; "
            "give an array, Series or frame with one row for each row of X, or name columns of X "
            "in sensitive_columns"
        )
    given = Chunk(X, sensitive_features, y, sample_weight, c=control_features)
    if is_stream(X):
        return _open_stream(estimator, given, reset=reset)
    return _open_memory(estimator, given, reset=reset)


def _open_stream(estimator: Any, given: Chunk, *, reset: bool) -> FitRows:
    parts = (given.s, given.y, given.weight, given.c)
    if isinstance(given.x, Scan):
        parts = tuple(map(in_memory, parts))
    source = open_rows(given.x, *parts, n_threads=estimator.n_jobs).source
    first = _first_batch(given)
    if first.y is None:
        raise ValueError("y is None; give the targets, one for each row of X")
    _check_columns(estimator, first.x, reset=reset)
    is_table, one_target = hasattr(first.x, "columns"), _is_one_target(first)
    return FitRows(source, is_table, one_target, first.s is not None, first.c is not None)


def _first_batch(given: Chunk) -> Chunk:
    """Return the first of batches; of other containers the whole, of which only columns count."""
    return next(given.x.chunks(SURVEY_ROWS)) if isinstance(given.x, BatchSource) else given


def _is_one_target(first: Chunk) -> bool:
    y = first.y
    if isinstance(y, Scan):
        return len(y.columns) == 1
    return (y.shape[1] if first.where else getattr(y, "ndim", 1)) == 1


def _open_memory(estimator: Any, given: Chunk, *, reset: bool) -> FitRows:
    _refuse_lazy(given.x)
    is_table = is_into_dataframe(given.x) and (
        getattr(estimator, "base_estimator", None) is not None or not frames.is_all_numeric(given.x)
    )
    if not reset:
        is_table = _keeps_container(estimator._preparation, given.x)
    X, y = _validated(estimator, given.x, _read(given.y), table=is_table, reset=reset)
    weight = _weights(_read(given.weight), X)
    source = open_rows(X, given.s, y, weight, given.c, n_threads=estimator.n_jobs).source
    return FitRows(source, is_table, y.ndim == 1, given.s is not None, given.c is not None)


def _read(part: Any) -> Any:
    """Return targets or weights in memory; a column of a scan has one dimension."""
    table = in_memory_parts({"part": part})["part"]
    if isinstance(part, Scan) and len(part.columns) == 1:
        return frames.to_numpy(table)[:, 0]
    return table


def open_predict_rows(estimator: Any, X: Any) -> ChunkSource:
    """Return the rows of `predict`, checked to have the columns of `fit`."""
    if is_stream(X):
        source = open_rows(X, n_threads=estimator.n_jobs).source
        _check_columns(estimator, _first_batch(Chunk(X)).x, reset=False)
        return source
    _refuse_lazy(X)
    if _keeps_container(estimator._preparation, X):
        validate_data(estimator, X, skip_check_array=True, reset=False)
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
    else:
        X = validate_data(estimator, X, dtype=[np.float64, np.float32], order="C", reset=False)
    return ArraySource(X, n_threads=estimator.n_jobs)


def _keeps_container(preparation: Any, X: Any) -> bool:
    """Return True if X is not made an array.

    It is encoded, or a base model sees it as it is, or its hidden columns may be no numbers.
    """
    if preparation.encoder is not None:
        return True
    return (preparation.hide_sensitive or preparation.base is not None) and is_into_dataframe(X)


def _check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Let scikit-learn set or check `n_features_in_` and `feature_names_in_`, by a look-alike."""
    if is_dask(X) and X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimensions ({type(X).__name__}); expected 2: X[:, None] or "
            "X.to_frame() for one feature"
        )
    lazy = is_stream(X) and hasattr(X, "columns")
    names = list(X.columns) if lazy else frames.column_names(X)
    if names is None:
        alike: Any = np.empty((0, frames.n_columns(X)))
    else:
        alike = frames.make_frame({name: np.empty(0) for name in names})
    validate_data(estimator, alike, skip_check_array=True, reset=reset)


def _refuse_lazy(X: Any) -> None:
    if isinstance(frames.from_native(X), nw.LazyFrame):
        frames.as_table(X)  # raises TypeError


def _validated(estimator: Any, X: Any, y: Any, *, table: bool, reset: bool) -> tuple[Any, Array]:
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


def _weights(sample_weight: Any, X: Any) -> Array | None:
    """Return the weights, finite, not negative and not all zero; None for None."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(
        sample_weight, np.empty((frames.n_rows(X), 1)), dtype=np.float64,
        ensure_non_negative=True, allow_all_zero_weights=True,
    )  # fmt: skip
    return np.asarray(weight)


def positions(columns: Any, names: Any, width: int) -> list[int]:
    """Return the positions of `sensitive_columns`, in errors called by that name."""
    names = None if names is None else list(names)
    try:
        at = frames.resolve_columns(columns, names, width)
    except (TypeError, ValueError) as error:
        raise type(error)(f"sensitive_columns={columns!r}: {error}") from None
    if not at or len(set(at)) < len(at):
        raise ValueError(
            f"sensitive_columns={columns!r} must name at least one column of X, and none twice; "
            "for an ordinary fit use sensitive_columns=None and eta=0"
        )
    return at
