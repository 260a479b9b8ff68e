"""Predictions, targets, sensitive attributes and weights of an audit, as one source of chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalefair import _frames
from scalefair._typing import Array
from scalefair.stream import (
    ArraySource,
    ChunkSource,
    DaskSource,
    FileSource,
    Scan,
    in_memory,
    is_dask,
)
from scalefair.stream._parts import targets, weights

ROWS = 65536
"""Rows per chunk of a pass."""


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Chunks whose x are the predictions of shape (k, M), one column per model.

    Parameters
    ----------
    source : ChunkSource
        The rows: x predictions, s sensitive attributes, y targets of shape (k, 1) or None.
    models : tuple of str
        Names of the models.
    in_memory : bool
        Whether the rows are in memory.
    """

    source: ChunkSource
    models: tuple[str, ...]
    in_memory: bool


def open_rows(y_pred: Any, sensitive_features: Any, y_true: Any, sample_weight: Any) -> AuditRows:
    """Return the rows of an audit, their lengths checked where they are known.

    Parameters
    ----------
    y_pred : array-like, frame, dask collection, Scan, or dict of them
        One column per model.
    sensitive_features, y_true, sample_weight
        As in `group_gaps`. Where the predictions are in memory they are read into memory, too.
    """
    models, x = _predictions(y_pred)
    s, y = _as_columns("sensitive_features", sensitive_features), _as_columns("y_true", y_true)
    weight = _as_columns("sample_weight", sample_weight)
    if s is None:
        raise ValueError(
            "sensitive_features=None: nothing to audit for; give one row of attributes for each "
            "prediction"
        )
    if is_stream(x):
        return AuditRows(_stream(x, s, y, weight), models, in_memory=False)
    s, y, weight = (_in_memory(part) for part in (s, y, weight))
    source = _array_source(x, s, y, weight)
    return AuditRows(source, models, in_memory=True)


def is_stream(part: Any) -> bool:
    """Say whether rows are not in memory."""
    return isinstance(part, Scan) or is_dask(part)


def floats_of(x: Any, models: tuple[str, ...], row: int) -> Array:
    """Return the predictions of a chunk as floats of shape (k, M), all finite."""
    columns = _frames.columns(x, "y_pred")
    if len(columns) != len(models):
        raise ValueError(f"y_pred has {len(columns)} columns in some rows; expected {len(models)}")
    named = (replace(c, name=model) for c, model in zip(columns, models, strict=True))
    return np.column_stack([_finite(column, row) for column in named])


def _finite(column: _frames.Column, row: int) -> Array:
    if column.kind not in ("numeric", "boolean"):
        raise ValueError(
            f"y_pred {column.name!r} is {column.kind}, not numeric; expected scores, "
            "probabilities, or 0 and 1: for text labels pass (labels == 'yes')"
        )
    values = column.floats()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"y_pred {column.name!r} is NaN, missing or infinite in {len(bad)} rows (first in row "
            f"{row + int(bad[0])}); expected finite numbers: drop such rows, or say what they mean"
        )
    return values


def _predictions(y_pred: Any) -> tuple[tuple[str, ...], Any]:
    """Names of the models, and their predictions as one table."""
    if isinstance(y_pred, Mapping):
        return _joined(y_pred)
    part = _as_columns("y_pred", y_pred)
    if part is None:
        raise ValueError("y_pred=None; expected predictions, one for each row")
    names = getattr(part, "columns", None) if is_stream(part) else _frames.column_names(part)
    if names is None:
        width = int(part.shape[1])
        names = ["y_pred"] if width == 1 else [f"model {j}" for j in range(width)]
    if not is_stream(part):
        part = floats_of(part, tuple(map(str, names)), 0)
    return tuple(map(str, names)), part


def _joined(y_pred: Mapping[Any, Any]) -> tuple[tuple[str, ...], Any]:
    if not y_pred:
        raise ValueError("y_pred is an empty dict; expected predictions by the name of the model")
    models, parts = tuple(map(str, y_pred)), [_one(k, v) for k, v in y_pred.items()]
    if all(isinstance(part, Scan) for part in parts):
        for part in parts[1:]:
            _check_same_files("y_pred", part, parts[0])
        selected = tuple(name for part in parts for name in part.selected)
        return models, replace(parts[0], selected=selected)
    if all(is_dask(part) for part in parts):
        return models, _joined_dask(parts)
    if any(is_stream(part) for part in parts):
        kinds = sorted({type(part).__name__ for part in parts})
        raise ValueError(f"y_pred mixes {', '.join(kinds)}; give all models in one container")
    columns = [floats_of(part, (name,), 0) for name, part in zip(models, parts, strict=True)]
    for name, column in zip(models[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            raise ValueError(
                f"y_pred {name!r} has {len(column)} rows but {models[0]!r} has {len(columns[0])}; "
                "predict the same rows with every model"
            )
    return models, np.concatenate(columns, axis=1)


def _one(name: Any, value: Any) -> Any:
    part = _as_columns(f"y_pred[{name!r}]", value)
    width = 0 if part is None else len(part.columns) if _named(part) else part.shape[1]
    if width != 1:
        raise ValueError(f"y_pred[{name!r}] has {width} columns; expected one prediction per row")
    return part


def _named(part: Any) -> bool:
    return hasattr(part, "columns")


def _joined_dask(parts: list[Any]) -> Any:
    if not all(_named(part) for part in parts):
        if any(_named(part) for part in parts):
            raise ValueError("y_pred mixes dask arrays and data frames; give all in one container")
        return np.concatenate(parts, axis=1)
    joined = parts[0].rename(columns={parts[0].columns[0]: "0"})
    for j, part in enumerate(parts[1:], 1):
        joined = joined.assign(**{str(j): part[part.columns[0]]})
    return joined


def _as_columns(name: str, part: Any) -> Any:
    """Return any container as a table of columns; None stays None."""
    if part is None or isinstance(part, Scan):
        return part
    if is_dask(part):
        if part.ndim == 1:
            return part.to_frame() if hasattr(part, "to_frame") else part[:, None]
        return part
    if isinstance(part, Mapping):
        return _frames.make_frame(part)
    if isinstance(part, str) or not hasattr(part, "__len__") or np.shape(part) == ():
        raise TypeError(
            f"{name}={part!r} is a {type(part).__name__}; give an array, Series or frame with one "
            "row for each prediction"
        )
    try:
        return _frames.as_table(part, one_column=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _in_memory(part: Any) -> Any:
    if isinstance(part, Scan):
        return _frames.stack_rows([chunk.x for chunk in FileSource(part).chunks(ROWS)])
    return in_memory(part)


def _array_source(x: Array, s: Any, y: Any, weight: Any) -> ArraySource:
    for name, part in (("sensitive_features", s), ("y_true", y), ("sample_weight", weight)):
        if part is not None and _frames.n_rows(part) != len(x):
            raise ValueError(
                f"{name} has {_frames.n_rows(part)} rows but y_pred has {len(x)}; give one row of "
                "each for every prediction, in the same order"
            )
    if not len(x):
        raise ValueError("y_pred has no rows; expected at least two")
    return ArraySource(x, s, _one_target(targets(y, "y_true", 0)), weights(weight, "in memory", 0))


def _one_target(y: Array | None) -> Array | None:
    if y is not None and y.shape[1] != 1:
        raise ValueError(f"y_true has {y.shape[1]} columns; expected one target for each row")
    return y


def _stream(x: Any, s: Any, y: Any, weight: Any) -> ChunkSource:
    for name, part in (("sensitive_features", s), ("y_true", y), ("sample_weight", weight)):
        if is_stream(part) and isinstance(part, Scan) != isinstance(x, Scan):
            raise ValueError(
                f"{name} is a {type(part).__name__} and y_pred a {type(x).__name__}; give both "
                "from one scan, both in dask, or all in memory"
            )
        if isinstance(part, Scan):
            _check_same_files(name, part, x)
    for name, part in (("y_true", y), ("sample_weight", weight)):
        width = 1 if part is None else len(part.columns) if _named(part) else part.shape[1]
        if width != 1:
            raise ValueError(f"{name} has {width} columns; expected one number for each row")
    if isinstance(x, Scan):
        _check_numbers(x)
        return FileSource(x, s, y, weight)
    return DaskSource(x, s, y, _flat(weight))


def _flat(weight: Any) -> Any:
    """DaskSource takes weights of one dimension."""
    if weight is None:
        return None
    return weight[weight.columns[0]] if _named(weight) else weight[:, 0]


def _check_numbers(x: Scan) -> None:
    for name, kind in x.kinds.items():
        if kind not in ("numeric", "boolean"):
            raise ValueError(
                f"y_pred: column {name!r} is {kind}; expected scores, probabilities, or 0 and 1: "
                "convert it where the data is written"
            )


def _check_same_files(name: str, part: Scan, x: Scan) -> None:
    if part.files.key != x.files.key:
        raise ValueError(
            f"{name} is a scan of other files than y_pred ({part!r} and {x!r}); select the columns "
            "of one scan: data = scan_parquet(path); audit(data['p'], data['sex'])"
        )
