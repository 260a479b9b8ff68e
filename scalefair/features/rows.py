"""What users pass to `fit` and `predict`, checked by scikit-learn's conventions and opened."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe
from sklearn.utils.validation import _check_sample_weight, _check_y, check_consistent_length, validate_data

from scalefair._typing import Array, Chunk, Shaped, WithColumns
from scalefair.data import SURVEY_ROWS, frames, in_memory, is_stream, open_rows
from scalefair.data.preparation import Preparation
from scalefair.data.probabilities import GroupProbabilities
from scalefair.data.sources import ArraySource, ChunkSource, Scan, is_dask
from scalefair.errors import CLASSES_REMEDY, InputError
from scalefair.features.base_model import FromArray
from scalefair.features.design import Design
from scalefair.features.partial import Unknown, WithoutTargets


@dataclass(frozen=True, slots=True)
class TwoTables(Chunk):
    """Rows of `fit`, and (X, s) of another table, which needs no y."""

    sensitive_data: Any = None


if TYPE_CHECKING:
    from scalefair.features.training import Training

NUMBERS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}  # as scikit-learn checks them
MAX_ENCODED_BYTES = 2**28  # encoded rows that are cached, not encoded again in every pass


class FitRows(NamedTuple):
    """Rows of `fit` as given, and their properties, before they are read."""

    source: ChunkSource
    x: Any  # as the user gave it
    names: list[str] | None  # of the columns of x
    width: int  # of x
    is_table: bool  # x comes in frames, whose columns must be understood first
    one_target: bool  # y has one dimension
    has_sensitive: bool  # apart from x
    has_control: bool
    partial: bool = False  # rows may lack s or y
    lacks_y: bool = False  # some do lack y
    second: ChunkSource | None = None  # of (x, s), another table
    probable: GroupProbabilities | None = None  # what s was given as


def open_fit_rows(estimator: Any, given: Chunk, *, keeps_frames: bool, before: Design | None = None) -> FitRows:
    """Return the rows of `fit`, or of a batch after it; `keeps_frames`: a base model sees them."""
    if isinstance(given.s, str | int):
        raise TypeError(
            f"sensitive_features={given.s!r} is a {type(given.s).__name__}; give an array, Series "
            "or frame with one row for each row of X, or name columns of X in sensitive_columns"
        )
    probable = given.s if isinstance(given.s, GroupProbabilities) else None
    if probable is not None and "missing_labels" in vars(estimator):  # a ridge
        given = replace(given, s=np.asarray(probable))
    partial = vars(estimator).get("missing_labels") == "partial" or isinstance(given, TwoTables)
    flags = None
    if partial and given.y is not None:
        given, flags = _without_missing_targets(given)
        if flags is not None and flags.all() and before is None:
            raise InputError(f"y is missing in all {len(flags)} rows", "give the targets of some", where="y")
    if is_stream(given.x):
        source, first, is_table, one_target = _open_stream(estimator, given, before)
    else:
        first, hides = given, partial and estimator.sensitive_columns is not None
        source, is_table, one_target = _open_memory(
            estimator, given, keeps_frames, before, "allow-nan" if hides else True
        )
    if flags is not None:
        source = source.then(WithoutTargets(flags))
    second = _open_second(estimator, given, is_table) if isinstance(given, TwoTables) else None
    names = vars(estimator).get("feature_names_in_")
    return FitRows(
        source, first.x, None if names is None else list(names), estimator.n_features_in_,
        is_table, one_target, first.s is not None, first.c is not None, partial, flags is not None,
        second, probable,
    )  # fmt: skip


def _without_missing_targets(given: Chunk) -> tuple[Chunk, Any]:
    """Return the rows with 0 for missing targets, and which rows these are; None where none are."""
    y = _read(given.y) if is_stream(given.y) else given.y
    columns = frames.columns(frames.as_table(y, one_column=True), "y")
    if any(column.kind == "categorical" for column in columns):
        return replace(given, y=y), None  # refused where y is checked
    values = np.column_stack([column.floats() for column in columns])
    missing = np.isnan(values)
    flags = np.asarray(missing.any(axis=1))
    if not flags.any():
        return replace(given, y=y), None
    filled = np.where(missing, 0.0, values)
    return replace(given, y=filled[:, 0] if np.ndim(y) == 1 else filled), flags


def _open_second(estimator: Any, given: TwoTables, is_table: bool) -> ChunkSource:
    """Return the rows (X2, S2) of `sensitive_data`, whose columns must be those of X."""
    pair = given.sensitive_data
    if not isinstance(pair, tuple | list) or len(pair) != 2 or any(part is None for part in pair):
        raise TypeError(
            f"sensitive_data is a {type(pair).__name__}; give a pair (X2, S2): rows with the "
            "columns of X, and their sensitive attributes"
        )
    X, s = pair
    _check_same_columns(estimator, X)
    if is_stream(X):
        _check_columns(estimator, _first_batch(Chunk(X)).x, reset=False)
    elif is_table:
        validate_data(estimator, X, skip_check_array=True, reset=False)
    else:
        X = validate_data(estimator, frames.expect_numbers(X), **NUMBERS, reset=False)
    names = {"x": "sensitive_data[0]", "s": "sensitive_data[1]"}
    return open_rows(X, s, names=names, n_threads=estimator.n_jobs).source


def _check_same_columns(estimator: Any, X: Any) -> None:
    """Raise InputError that names the columns by which the two tables differ."""
    names = _column_names(X)
    first = vars(estimator).get("feature_names_in_")
    if names is None or first is None:
        return  # scikit-learn compares how many there are
    absent, more = ([n for n in a if n not in set(b)] for a, b in ((first, names), (names, first)))
    if absent or more:
        lacking = f"lacks the columns {absent} of X" if absent else ""
        own = f"has {more}, which X lacks" if more else ""
        raise InputError(
            f"sensitive_data[0] {' and '.join(filter(None, (lacking, own)))}",
            "give both tables the same columns",
            column=str((absent or more)[0]),
            where="sensitive_data",
        )


def _open_memory(
    estimator: Any, given: Chunk, keeps_frames: bool, before: Design | None, finite: str | bool
) -> tuple[ChunkSource, bool, bool]:
    """Return the source, whether x is a table and y has one dimension; `finite` is scikit-learn's, for X."""
    frame = frames.from_native(given.x)
    if isinstance(frame, nw.LazyFrame):
        frames.as_table(frame)  # raises TypeError
    if before is None:
        is_frame = isinstance(frame, nw.DataFrame)
        is_table = is_frame and (keeps_frames or not frames.is_all_numeric(frame))
    else:
        is_table = _keeps_container(before, given.x)
    y, weight = (_read(part) if is_stream(part) else part for part in (given.y, given.weight))
    X, y = _validated(estimator, given.x, y, table=is_table, reset=before is None, finite=finite)
    if weight is not None:
        like = np.empty((frames.n_rows(X), 1))
        weight = _check_sample_weight(
            weight, like, dtype=np.float64, ensure_non_negative=True, allow_all_zero_weights=True
        )
    source = open_rows(X, given.s, y, weight, given.c, n_threads=estimator.n_jobs).source
    return source, is_table, y.ndim == 1


def _open_stream(estimator: Any, given: Chunk, before: Design | None) -> tuple[ChunkSource, Chunk, bool, bool]:
    """Return the source, the rows as given (of batches the first), and as in `_open_memory`."""
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
        one_target = (first.y.shape[1] if first is not given else np.ndim(first.y)) == 1
    is_table = isinstance(first.x, WithColumns) or isinstance(frames.from_native(first.x), nw.DataFrame)
    return source, first, is_table, one_target


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
        if before != now and not (design.partial and before):
            raise ValueError(
                f"{name} must be given to every partial_fit or to none; the first batch came "
                f"{'with' if before else 'without'} them"
            )
    columns = next(rows.source.chunks(1)).y.shape[1]
    if columns != n_targets:
        raise ValueError(
            f"y has {columns} columns but the first batch had {n_targets}; give every batch the same targets"
        )
    source = design.numbers(rows.source, sensitive=True)
    return source.then(Unknown(prepared.sensitive_encoder, n_targets)) if design.partial else source


def _read(part: Any) -> Any:
    """Return targets or weights of a stream in memory; a column of a scan has one dimension."""
    table = in_memory(part)
    is_column = isinstance(part, Scan) and len(part.columns) == 1
    return frames.to_numpy(table)[:, 0] if is_column else table


def open_predict_rows(estimator: Any, X: Any, design: Design, **beside: Any) -> ChunkSource:
    """Return the rows of `predict`; without s or others `beside`, hidden columns may be absent."""
    first, hidden = _first_batch(Chunk(X)).x if is_stream(X) else X, list[int]()
    if not beside:
        estimator, hidden = _without_hidden(estimator, first, design)
    if is_stream(X):
        if isinstance(X, Scan):
            beside = {name: in_memory(part, scans=False) for name, part in beside.items()}
        source = open_rows(X, **beside, n_threads=estimator.n_jobs).source
        _check_columns(estimator, first, hidden, reset=False)
        return source.then(lambda chunk: replace(chunk, x=frames.drop_columns(chunk.x, hidden))) if hidden else source
    if isinstance(frames.from_native(X), nw.LazyFrame):
        frames.as_table(X)  # raises TypeError
    prepared = design.preparation
    gaps = design.partial and prepared is not None and prepared.sensitive_columns is not None
    if _keeps_container(design, X):
        X = X if isinstance(X, Shaped) else np.array(X, dtype=object)
        X = frames.drop_columns(X, hidden) if hidden else X
        validate_data(estimator, X, skip_check_array=True, reset=False)
    else:
        X = frames.drop_columns(X, hidden) if hidden else X
        X = frames.expect_numbers(X, vars(estimator).get("feature_names_in_"))
        X = validate_data(estimator, X, **NUMBERS, reset=False, ensure_all_finite="allow-nan" if gaps else True)
    if beside:
        return open_rows(X, **beside, n_threads=estimator.n_jobs).source
    return ArraySource(X, n_threads=estimator.n_jobs)


def _without_hidden(estimator: Any, X: Any, design: Design) -> tuple[Any, list[int]]:
    """Return what scikit-learn compares X with, and the positions of hidden columns in X."""
    prepared = design.preparation or Preparation()
    if not prepared.hide_sensitive or prepared.sensitive_columns is None:
        return estimator, []
    hidden, known = prepared.sensitive_columns, vars(estimator).get("feature_names_in_")
    narrow = copy(estimator)
    narrow.n_features_in_ = estimator.n_features_in_ - len(hidden)
    if known is not None:
        narrow.feature_names_in_ = np.delete(known, hidden)
    names = _column_names(X)
    if names is not None and known is not None:
        return narrow, [j for j, name in enumerate(names) if name in set(known[hidden])]
    there = np.ndim(X) == 2 and frames.n_columns(X) == estimator.n_features_in_
    return narrow, list(hidden) if there else []


def _keeps_container(design: Design, X: Any) -> bool:
    """Return True if X is not made an array: it is encoded, or a base model sees it."""
    prepared = design.preparation or Preparation()
    if prepared.encoder is not None:
        return True
    based = any(block.is_feature for block in design.beside)
    return (prepared.hide_sensitive or based) and is_into_dataframe(X)


def _check_columns(estimator: Any, X: Any, hidden: Sequence[int] = (), *, reset: bool) -> None:
    """Let scikit-learn set or check the columns of X, by an empty table that has them."""
    if is_dask(X) and X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimensions ({type(X).__name__}); expected 2: X[:, None] or X.to_frame() for one feature"
        )
    names = _column_names(X)
    if names is None:
        alike: Any = np.empty((0, frames.n_columns(X) - len(hidden)))
    else:
        shown = [name for j, name in enumerate(names) if j not in set(hidden)]
        alike = frames.make_frame({name: np.empty(0) for name in shown})
    validate_data(estimator, alike, skip_check_array=True, reset=reset)


def _column_names(X: Any) -> list[str] | None:
    lazy = is_stream(X) and isinstance(X, WithColumns)
    return list(X.columns) if lazy else frames.column_names(X)


def _validated(estimator: Any, X: Any, y: Any, *, table: bool, reset: bool, finite: str | bool) -> tuple[Any, Array]:
    """Return X and y, checked; a table that will be encoded keeps its container."""
    if y is not None and (values := np.asarray(y)).dtype.kind in "OUSmM":
        try:  # dates become numbers only by an unsafe cast
            y = values.astype(np.float64, casting="safe" if values.dtype.kind in "mM" else "unsafe")
        except (TypeError, ValueError):
            what = f"y has values that are no numbers, such as {str(values.ravel()[0])!r}"
            raise InputError(what, CLASSES_REMEDY, where="y") from None
    if table:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
        check_consistent_length(X, y)
        if reset and len(y) < 2:
            raise ValueError(f"X has {len(y)} sample(s), at least 2 are needed to fit")
    else:
        X = X if reset else frames.expect_numbers(X, vars(estimator).get("feature_names_in_"))
        options = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2 if reset else 1}
        X, y = validate_data(estimator, X, y, **NUMBERS, **options, reset=reset, ensure_all_finite=finite)
    return X, np.asarray(y, dtype=np.float64)


def encoded_once(training: Training) -> Training:
    """Return the same rows as arrays, where they are a table in memory that is not too long."""
    source, width = training.source, training.sample.x.shape[1]
    few = 8 * training.survey.n_rows * width <= MAX_ENCODED_BYTES
    if not isinstance(source, ArraySource) or not few:
        return training
    # Filled in place: concatenating chunks would need twice the memory.
    whole: dict[str, Any] = {}
    for chunk in source.chunks(SURVEY_ROWS):
        for name, part in chunk.parts.items():
            if part is not None and name not in whole:
                whole[name] = np.empty((training.survey.n_rows, *part.shape[1:]), part.dtype)
            if part is not None:
                whole[name][chunk.row : chunk.row + chunk.n_rows] = part
    h = whole.pop("h", None)
    rows: ChunkSource = ArraySource(**whole, n_threads=source.n_threads)
    return replace(training, source=rows if h is None else rows.then(FromArray(h)))
