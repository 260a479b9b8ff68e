"""Predictions of one or several models, opened beside targets, attributes and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk
from scalefair.data import frames, is_stream, open_rows, table_of
from scalefair.data.sources import BatchSource, ChunkSource, Scan, is_dask

AUDIT_ARGUMENTS = {"x": "y_pred", "y": "y_true"}


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


def open_audit(y_pred: Any, sensitive_features: Any, y_true: Any, sample_weight: Any) -> AuditRows:
    """Return the rows of an audit.

    Parameters
    ----------
    y_pred : array-like, frame, dask collection, Scan, BatchSource, or dict of them
        One column per model.
    sensitive_features, y_true, sample_weight
        As in `group_gaps`. Where the predictions are in memory they are read into memory, too.
    """
    models, x = _predictions(y_pred)
    y = table_of("y_true", y_true)
    if isinstance(y_pred, BatchSource):
        first = next(y_pred.chunks(1))
        sensitive_given, y = first.s is not None, first.y
    else:
        sensitive_given = sensitive_features is not None
    if not sensitive_given:
        raise ValueError(
            "sensitive_features=None: nothing to audit for; give one row of attributes for each "
            "prediction"
        )
    if y is not None and (width := _width(y)) != 1:
        raise ValueError(f"y_true has {width} columns; expected one target for each row")
    rows = open_rows(x, sensitive_features, y_true, sample_weight, names=AUDIT_ARGUMENTS)
    source = rows.source if rows.in_memory else rows.source.then(partial(_with_floats, models))
    return AuditRows(source, models, rows.in_memory)


def _with_floats(models: tuple[str, ...], chunk: Chunk) -> Chunk:
    return replace(chunk, x=_floats(chunk.x, models, chunk.row))


def _floats(x: Any, models: tuple[str, ...], row: int) -> Array:
    """Return the predictions of a chunk as floats of shape (k, M), all finite."""
    columns = frames.columns(frames.as_table(x, one_column=True), "y_pred")
    if len(columns) != len(models):
        raise ValueError(f"y_pred has {len(columns)} columns in some rows; expected {len(models)}")
    named = (replace(c, name=model) for c, model in zip(columns, models, strict=True))
    return np.column_stack([_finite(column, row) for column in named])


def _finite(column: frames.Column, row: int) -> Array:
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
    if isinstance(y_pred, BatchSource):
        return _names(frames.as_table(next(y_pred.chunks(1)).x, one_column=True)), y_pred
    part = table_of("y_pred", y_pred)
    if part is None:
        raise ValueError("y_pred=None; expected predictions, one for each row")
    models = _names(part)
    if isinstance(part, Scan):
        _check_numbers(part)
    return models, part if is_stream(part) else _floats(part, models, 0)


def _names(part: Any) -> tuple[str, ...]:
    names = part.columns if is_stream(part) and _named(part) else frames.column_names(part)
    if names is None:
        names = ["y_pred"] if _width(part) == 1 else [f"model {j}" for j in range(_width(part))]
    return tuple(map(str, names))


def _joined(y_pred: Mapping[Any, Any]) -> tuple[tuple[str, ...], Any]:
    if not y_pred:
        raise ValueError("y_pred is an empty dict; expected predictions by the name of the model")
    models, parts = tuple(map(str, y_pred)), [_one(k, v) for k, v in y_pred.items()]
    if all(isinstance(part, Scan) for part in parts):
        return models, _joined_scans(parts)
    if all(is_dask(part) for part in parts):
        return models, _joined_dask(parts)
    if any(is_stream(part) for part in parts):
        kinds = sorted({type(part).__name__ for part in parts})
        raise ValueError(f"y_pred mixes {', '.join(kinds)}; give all models in one container")
    columns = [_floats(part, (name,), 0) for name, part in zip(models, parts, strict=True)]
    for name, column in zip(models[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            raise ValueError(
                f"y_pred {name!r} has {len(column)} rows but {models[0]!r} has {len(columns[0])}; "
                "predict the same rows with every model"
            )
    return models, np.concatenate(columns, axis=1)


def _one(name: Any, value: Any) -> Any:
    part = table_of(f"y_pred[{name!r}]", value)
    width = 0 if part is None else _width(part)
    if width != 1:
        raise ValueError(f"y_pred[{name!r}] has {width} columns; expected one prediction per row")
    return part


def _named(part: Any) -> bool:
    return hasattr(part, "columns")


def _width(part: Any) -> int:
    return len(part.columns) if _named(part) else int(part.shape[1])


def _joined_scans(parts: list[Scan]) -> Scan:
    for part in parts:
        _check_numbers(part)
        if part.files.key != parts[0].files.key:
            raise ValueError(
                f"y_pred has scans of different files ({part!r} and {parts[0]!r}); select the "
                "columns of one scan"
            )
    return replace(parts[0], selected=tuple(name for part in parts for name in part.selected))


def _joined_dask(parts: list[Any]) -> Any:
    if not all(_named(part) for part in parts):
        if any(_named(part) for part in parts):
            raise ValueError("y_pred mixes dask arrays and data frames; give all in one container")
        return np.concatenate(parts, axis=1)
    joined = parts[0].rename(columns={parts[0].columns[0]: "0"})
    for j, part in enumerate(parts[1:], 1):
        joined = joined.assign(**{str(j): part[part.columns[0]]})
    return joined


def _check_numbers(x: Scan) -> None:
    for name, kind in x.kinds.items():
        if kind not in ("numeric", "boolean"):
            raise ValueError(
                f"y_pred: column {name!r} is {kind}; expected scores, probabilities, or 0 and 1: "
                "convert it where the data is written"
            )
