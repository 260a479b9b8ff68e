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

from scalefair._typing import Array, Chunk, Shaped, WithColumns
from scalefair.data import SURVEY_ROWS, frames, in_memory, is_stream, open_rows
from scalefair.data.open import Preparation
from scalefair.data.sources import ArraySource, ChunkSource, Scan, is_dask
from scalefair.errors import CLASSES_REMEDY, InputError
from scalefair.features.design import Design


class FitRows(NamedTuple):
    """Rows of `fit` as given, and what is known of them before they are read."""

    source: ChunkSource
    x: Any  # as the user gave it
    names: list[str] | None  # of the columns of x
    width: int  # of x
    is_table: bool  # x comes in frames, whose columns must be understood first
    one_target: bool  # y has one dimension
    has_sensitive: bool  # apart from x
    has_control: bool


def open_fit_rows(
    estimator: Any, given: Chunk, *, keeps_frames: bool, before: Design | None = None
) -> FitRows:
    """Return the rows of `fit`, or of a batch after it; set or check the names of columns.

    scikit-learn's checks set `n_features_in_` and `feature_names_in_` on the estimator, or compare.
    With `keeps_frames` frames stay frames even where all columns are numbers: a base model sees
    them. `before` is the design of an earlier fit, which this batch is added to.
    """
    if isinstance(given.s, str | int):
        raise TypeError(
            f"sensitive_features={given.s!r} is a {type(given.s).__name__}; give an array, Series "
            "or frame with one row for each row of X, or name columns of X in sensitive_columns"
        )
    opened = _open_stream if is_stream(given.x) else _open_memory
    source, first, is_table, one_target = opened(estimator, given, keeps_frames, before)
    names = vars(estimator).get("feature_names_in_")
    return FitRows(
        source, first.x, None if names is None else list(names), estimator.n_features_in_,
        is_table, one_target, first.s is not None, first.c is not None,
    )  # fmt: skip


def _open_memory(
    estimator: Any, given: Chunk, keeps_frames: bool, before: Design | None
) -> tuple[ChunkSource, Chunk, bool, bool]:
    """Return the source, the rows as given, and whether x is a table and y has one dimension."""
    _refuse_lazy(given.x)
    if before is None:
        is_table = is_into_dataframe(given.x) and (
            keeps_frames or not frames.is_all_numeric(given.x)
        )
    else:
        is_table = _keeps_container(before, given.x)
    X, y = _validated(estimator, given.x, _read(given.y), table=is_table, reset=before is None)
    weight = given.weight
    if weight is not None:
        like = np.empty((frames.n_rows(X), 1))
        weight = _check_sample_weight(
            _read(weight), like, dtype=np.float64, ensure_non_negative=True,
            allow_all_zero_weights=True,
        )  # fmt: skip
    source = open_rows(X, given.s, y, weight, given.c, n_threads=estimator.n_jobs).source
    return source, given, is_table, y.ndim == 1


def _open_stream(
    estimator: Any, given: Chunk, _: bool, before: Design | None
) -> tuple[ChunkSource, Chunk, bool, bool]:
    """Return the same of rows that are not in memory; of batches the first is looked at."""
    parts = (given.s, given.y, given.weight, given.c)
    if isinstance(given.x, Scan):
        parts = tuple(in_memory(part, scans=False) for part in parts)
    source = open_rows(given.x, *parts, n_threads=estimator.n_jobs).source
    first = _first_batch(given)
    if first.y is None:
        raise ValueError("y is None; give the targets, one for each row of X")
    _check_columns(estimator, first.x, reset=before is None)
    if isinstance(first.y, Scan):
        one_target = len(first.y.columns) == 1
    else:
        one_target = (first.y.shape[1] if first is not given else getattr(first.y, "ndim", 1)) == 1
    return source, first, isinstance(first.x, WithColumns), one_target


def _first_batch(given: Chunk) -> Chunk:
    """Return the first chunk of a source; other containers whole, of which only columns count."""
    return next(given.x.chunks(SURVEY_ROWS)) if isinstance(given.x, ChunkSource) else given


def open_more_rows(estimator: Any, given: Chunk, design: Design, *, n_targets: int) -> ChunkSource:
    """Return the numeric chunks of a later batch, prepared as the first rows were."""
    prepared = design.preparation or Preparation()
    keeps = any(block.is_feature for block in design.beside)
    rows = open_fit_rows(estimator, given, keeps_frames=keeps, before=design)
    apart = prepared.sensitive_encoder is not None and prepared.sensitive_columns is None
    for name, before, now in (
        ("sensitive_features", apart, rows.has_sensitive),
        ("control_features", prepared.control_encoder is not None, rows.has_control),
    ):
        if before != now:
            raise ValueError(
                f"{name} must be given to every partial_fit or to none; the first batch came "
                f"{'with' if before else 'without'} them"
            )
    columns = next(rows.source.chunks(1)).y.shape[1]
    if columns != n_targets:
        raise ValueError(
            f"y has {columns} columns but the first batch had {n_targets}; give every batch the "
            "same targets"
        )
    return design.numbers(rows.source, sensitive=True)


def _read(part: Any) -> Any:
    """Return targets or weights in memory; a column of a scan has one dimension."""
    if not is_stream(part):
        return part
    table = in_memory(part)
    is_column = isinstance(part, Scan) and len(part.columns) == 1
    return frames.to_numpy(table)[:, 0] if is_column else table


def open_predict_rows(estimator: Any, X: Any, design: Design, **beside: Any) -> ChunkSource:
    """Return the rows of `predict`, checked to have the columns of `fit`.

    What stands `beside` X, such as the sensitive attributes s, is opened with it, not checked.
    """
    if is_stream(X):
        if isinstance(X, Scan):
            beside = {name: in_memory(part, scans=False) for name, part in beside.items()}
        source = open_rows(X, **beside, n_threads=estimator.n_jobs).source
        _check_columns(estimator, _first_batch(Chunk(X)).x, reset=False)
        return source
    _refuse_lazy(X)
    if _keeps_container(design, X):
        validate_data(estimator, X, skip_check_array=True, reset=False)
        X = X if isinstance(X, Shaped) else np.array(X, dtype=object)
    else:
        X = validate_data(estimator, X, dtype=[np.float64, np.float32], order="C", reset=False)
    if beside:
        return open_rows(X, **beside, n_threads=estimator.n_jobs).source
    return ArraySource(X, n_threads=estimator.n_jobs)


def _keeps_container(design: Design, X: Any) -> bool:
    """Return True if X is not made an array.

    It is encoded, or a base model sees it as it is, or its hidden columns may be no numbers.
    """
    prepared = design.preparation or Preparation()
    if prepared.encoder is not None:
        return True
    based = any(block.is_feature for block in design.beside)
    return (prepared.hide_sensitive or based) and is_into_dataframe(X)


def _check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Let scikit-learn set or check `n_features_in_` and `feature_names_in_`, by a look-alike."""
    if is_dask(X) and X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimensions ({type(X).__name__}); expected 2: X[:, None] or "
            "X.to_frame() for one feature"
        )
    lazy = is_stream(X) and isinstance(X, WithColumns)
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
    y = _numeric(y)
    if table:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
        check_consistent_length(X, y)
        if reset and len(y) < 2:
            raise ValueError(f"X has {len(y)} sample(s), at least 2 are needed to fit")
    else:
        X, y = validate_data(
            estimator, X, y, dtype=[np.float64, np.float32], order="C", multi_output=True,
            y_numeric=True, reset=reset, ensure_min_samples=2 if reset else 1,
        )  # fmt: skip
    return X, np.asarray(y, dtype=np.float64)


def _numeric(y: Any) -> Any:
    """Return the targets; text that is no number is a ValueError."""
    values = np.asarray(y) if y is not None else None
    if values is None or values.dtype.kind not in "OUS":
        return y
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        what = f"y has values that are no numbers, such as {values.tolist()[0]!r}"
        raise InputError(what, CLASSES_REMEDY, where="y") from None
