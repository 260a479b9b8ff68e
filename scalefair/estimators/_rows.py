"""Whatever users pass as X, y, s and weights, as one source of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe
from sklearn.utils.validation import validate_data

from scalefair import _frames
from scalefair.estimators._validate import check_lengths, validated, weights
from scalefair.stream import (
    ArraySource,
    BatchSource,
    ChunkSource,
    DaskSource,
    FileSource,
    Scan,
    in_memory,
    is_dask,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """A source of chunks as given, and what is known of their columns before they are read.

    Parameters
    ----------
    source : ChunkSource
        The rows.
    table : bool
        Whether x comes in frames, whose columns must be understood first; else in arrays.
    checked : bool
        Whether x is known to be finite.
    one_target : bool
        Whether y has one dimension.
    """

    source: ChunkSource
    table: bool
    checked: bool
    one_target: bool


def is_stream(X: Any) -> bool:
    """Return True if the rows of X are not in memory."""
    return is_dask(X) or isinstance(X, Scan | BatchSource)


def brought(X: Any, name: str) -> Any:
    """Return what batches bring of their own, "s" or "c"; None for other containers."""
    return getattr(next(X.chunks(1)), name) if isinstance(X, BatchSource) else None


def open_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any,
    *,
    control_features: Any = None,
    reset: bool,
) -> Rows:
    """Return the rows of `fit` (`reset`) or of a later batch; set or check the names of columns."""
    if not is_dask(X):
        y, sensitive_features, sample_weight, control_features = map(
            in_memory, (y, sensitive_features, sample_weight, control_features)
        )
    if is_stream(X):
        parts = (sensitive_features, y, sample_weight, control_features)
        return _open_stream(estimator, X, parts, reset=reset)
    _refuse_lazy(X)
    keeps = getattr(estimator, "base_estimator", None) is not None
    table = is_into_dataframe(X) and (keeps or not _frames.is_all_numeric(X))
    if not reset:
        table = _is_table(estimator._preparation, X)
    X, y = validated(estimator, X, y, table=table, reset=reset)
    check_lengths(X, sensitive_features=sensitive_features, control_features=control_features)
    source = ArraySource(
        X, sensitive_features, y.reshape(len(y), -1), weights(sample_weight, X), control_features,
        n_threads=estimator.n_jobs,
    )  # fmt: skip
    return Rows(source, table, not table, y.ndim == 1)


def _open_stream(estimator: Any, X: Any, parts: tuple[Any, ...], *, reset: bool) -> Rows:
    if isinstance(X, BatchSource):
        if any(part is not None for part in parts):
            raise ValueError(
                "y, sensitive_features, control_features and sample_weight come with the batches "
                "of a BatchSource; give None"
            )
        first = next(X.chunks(65536))
        _check_target(first.y)
        check_columns(estimator, first.x, reset=reset)
        return Rows(X, is_into_dataframe(first.x), False, first.y.shape[1] == 1)
    s, y, weight, c = parts
    _check_target(y)
    source = stream_source(X, s, y, weight, estimator.n_jobs, c)
    check_columns(estimator, X, reset=reset)
    return Rows(source, not _is_array(X), False, _is_one_target(y))


def stream_source(  # noqa: PLR0917
    X: Any, s: Any, y: Any, weight: Any, n_threads: int | None, c: Any = None
) -> ChunkSource:
    """Return the source for rows in files or in dask collections."""
    if isinstance(X, Scan):
        return FileSource(X, s, y, weight, c, n_threads=n_threads)
    return DaskSource(X, s, y, weight, c)


def open_inputs(estimator: Any, X: Any) -> ChunkSource:
    """Return the rows of `predict`, checked to have the columns of `fit`."""
    if isinstance(X, BatchSource):
        check_columns(estimator, next(X.chunks(65536)).x, reset=False)
        return X
    if is_stream(X):
        source = stream_source(X, None, None, None, estimator.n_jobs)
        check_columns(estimator, X, reset=False)
        return source
    _refuse_lazy(X)
    if _is_table(estimator._preparation, X):
        validate_data(estimator, X, skip_check_array=True, reset=False)
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
    else:
        X = validate_data(estimator, X, dtype=[np.float64, np.float32], order="C", reset=False)
    return ArraySource(X, n_threads=estimator.n_jobs)


def _is_table(preparation: Any, X: Any) -> bool:
    """Return True if X keeps its container.

    It is encoded, or a base model sees it as it is, or its hidden columns may be no numbers.
    """
    kept = preparation.hide_sensitive or preparation.base is not None
    return preparation.encoder is not None or (kept and is_into_dataframe(X))


def check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Let scikit-learn set or check `n_features_in_` and `feature_names_in_`, by a look-alike."""
    names = list(X.columns) if is_stream(X) and not _is_array(X) else _frames.column_names(X)
    if names is None:
        alike: Any = np.empty((0, _frames.n_columns(X)))
    else:
        alike = _frames.make_frame({name: np.empty(0) for name in names})
    validate_data(estimator, alike, skip_check_array=True, reset=reset)


def _refuse_lazy(X: Any) -> None:
    if isinstance(_frames.from_native(X), nw.LazyFrame):
        _frames.as_table(X)  # complains


def _check_target(y: Any) -> None:
    if y is None:
        raise ValueError("y is None; give the targets, one for each row of X")


def _is_array(X: Any) -> bool:
    return not hasattr(X, "columns")


def _is_one_target(y: Any) -> bool:
    return len(y.columns) == 1 if isinstance(y, Scan) else getattr(y, "ndim", 1) == 1
