"""What groups are made of: predictions of some models, and attributes with or without levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, WithColumns
from scalefair.data import MAX_LEVELS_OF_NUMBERS, Survey, frames, is_stream, open_rows, table_of
from scalefair.data.columns import ColumnStatistics
from scalefair.data.frames import Column, Kind
from scalefair.data.sources import ChunkSource, Scan, is_dask
from scalefair.errors import CannotJudgeError, InputError

MAX_LEVELS = 1000  # A category with more levels is an identifier: so many groups cannot be compared
MISSING_LEVEL = "(missing)"

Missing = Literal["error", "group", "drop"]
"""How rows in which an attribute is missing are treated."""

AUDIT_ARGUMENTS = {"x": "y_pred", "y": "y_true"}


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Chunks of predictions x (k, M), attributes s, and targets y (k, 1) or None."""

    source: ChunkSource
    models: tuple[str, ...]
    in_memory: bool


def open_audit(y_pred: Any, sensitive_features: Any, y_true: Any, sample_weight: Any) -> AuditRows:
    """Return the rows of an audit, all in memory if predictions are; arguments as in `scalefair.audit`."""
    models, x = _predictions(y_pred)
    y, s = table_of("y_true", y_true), sensitive_features
    if isinstance(y_pred, ChunkSource):
        first = next(y_pred.chunks(1))
        s, y = first.s, first.y
    if s is None:
        raise ValueError(
            "sensitive_features=None: nothing to audit for; give one row of attributes for each prediction"
        )
    if y is not None and _width(y) != 1:
        raise ValueError(f"y_true has {_width(y)} columns; expected one target for each row")
    rows = open_rows(x, sensitive_features, y_true, sample_weight, names=AUDIT_ARGUMENTS)
    if rows.in_memory:
        return AuditRows(rows.source, models, in_memory=True)
    source = rows.source.then(lambda chunk: replace(chunk, x=_floats(chunk.x, models, chunk.row)))
    return AuditRows(source, models, in_memory=False)


def _predictions(y_pred: Any) -> tuple[tuple[str, ...], Any]:
    """Names of the models, and their predictions as one table."""
    if isinstance(y_pred, Mapping):
        return _joined(y_pred)
    is_batches = isinstance(y_pred, ChunkSource)
    part = table_of("y_pred", next(y_pred.chunks(1)).x if is_batches else y_pred)
    if part is None:
        raise ValueError("y_pred=None; expected predictions, one for each row")
    # A Scan and a dask frame have columns, a dask array has none.
    names = getattr(part, "columns", None) if is_stream(part) else frames.column_names(part)
    if names is None:
        width = int(part.shape[1])
        names = ["y_pred"] if width == 1 else [f"model {j}" for j in range(width)]
    models = tuple(map(str, names))
    if is_batches:
        return models, y_pred
    return models, part if is_stream(part) else _floats(part, models, 0)


def _joined(y_pred: Mapping[Any, Any]) -> tuple[tuple[str, ...], Any]:
    """The predictions of several models, given by name, as one table."""
    if not y_pred:
        raise ValueError("y_pred is an empty dict; expected predictions by the name of the model")
    models = tuple(map(str, y_pred))
    parts = [table_of(f"y_pred[{name!r}]", value) for name, value in y_pred.items()]
    for name, width in zip(models, (0 if p is None else _width(p) for p in parts), strict=True):
        if width != 1:
            what = f"y_pred[{name!r}] has {width} columns"
            raise ValueError(f"{what}; expected one prediction per row")
    if any(is_stream(part) for part in parts):
        return models, _joined_streams(parts)
    columns = [_floats(part, (name,), 0) for name, part in zip(models, parts, strict=True)]
    for name, column in zip(models[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            raise ValueError(
                f"y_pred {name!r} has {len(column)} rows but {models[0]!r} has {len(columns[0])}; "
                "predict the same rows with every model"
            )
    return models, np.concatenate(columns, axis=1)


def _width(part: Any) -> int:
    return len(part.columns) if isinstance(part, Scan) else int(part.shape[1])


def _joined_streams(parts: list[Any]) -> Any:
    """The columns of one file, or dask collections of one kind, side by side."""
    first = parts[0]
    if all(isinstance(part, Scan) and part.files.key == first.files.key for part in parts):
        return replace(first, selected=tuple(name for part in parts for name in part.selected))
    is_frame = [isinstance(part, WithColumns) for part in parts]
    if not all(is_dask(part) for part in parts) or any(is_frame) != all(is_frame):
        kinds = sorted({type(part).__name__ for part in parts})
        raise ValueError(
            f"y_pred mixes {', '.join(kinds)}, or scans of different files; give all models in one "
            "container, or select the columns of one scan"
        )
    if not is_frame[0]:
        return np.concatenate(parts, axis=1)
    joined = first.rename(columns={first.columns[0]: "0"})
    for j, part in enumerate(parts[1:], 1):
        joined = joined.assign(**{str(j): part[part.columns[0]]})
    return joined


def _floats(x: Any, models: tuple[str, ...], row: int) -> Array:
    """Return the predictions of a chunk as floats of shape (k, M), all finite."""
    columns = frames.columns(frames.as_table(x, one_column=True), "y_pred")
    if len(columns) != len(models):
        raise ValueError(f"y_pred has {len(columns)} columns in some rows; expected {len(models)}")
    for name, column in zip(models, columns, strict=True):
        if column.kind not in ("numeric", "boolean"):
            raise ValueError(
                f"y_pred {name!r} is {column.kind}, not numeric; expected scores, probabilities, "
                "or 0 and 1: for text labels pass (labels == 'yes')"
            )
    values = np.column_stack([column.floats() for column in columns])
    bad = ~np.isfinite(values)
    for name, where in zip(models, bad.T, strict=True):
        if where.any():
            raise ValueError(
                f"y_pred {name!r} is NaN, missing or infinite in {where.sum()} rows (first in row "
                f"{row + int(where.argmax())}); expected finite numbers: drop such rows, or say "
                "what they mean"
            )
    return values


@dataclass(frozen=True, eq=False)
class Attribute:
    """How a sensitive attribute is read."""

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()  # the names of its groups, none for continuous numbers
    numbers: Array | None = None  # the values of levels that are numbers, or the edges between bins
    is_coded: bool = False  # measures of dependence take it for a category, not for numbers

    def values(self, column: Column) -> Array:
        """Return numbers as they are (0 if missing), levels as their position."""
        return self.codes(column).astype(np.float64) if self.is_coded else np.nan_to_num(column.floats())

    def codes(self, column: Column) -> NDArray[np.int64]:
        """Return the position of the level of each row."""
        column = column.expect(self.kind)
        if self.numbers is not None:
            x = column.floats()
            codes = np.searchsorted(self.numbers, x, side="left").astype(np.int64)
            return np.where(np.isnan(x), len(self.levels) - 1, codes)
        codes, names = column.codes()
        position = {level: i for i, level in enumerate(self.levels)}
        # Where code -1 points, the last entry represents missing values. A level that only rows of
        # weight 0 have is nowhere, and they do not matter.
        lookup = [*(position.get(level, -1) for level in names), position.get(MISSING_LEVEL, -1)]
        return np.array(lookup)[codes]


def read_attributes(
    survey: Survey, bins: Mapping[str, Sequence[float]] | None, missing: Missing
) -> tuple[Attribute, ...]:
    """Return how each attribute is read; raise CannotJudgeError for those that cannot be used."""
    bins = dict(bins or {})
    part = survey.parts["s"]
    names = [column.name for column in part.columns.columns]
    if unknown := [name for name in bins if name not in names]:
        raise ValueError(
            f"bins names {unknown[0]!r}, which is not among the sensitive features {', '.join(names)}; correct the name"
        )
    attributes = []
    for column in part.columns.columns:
        if column.kind == "empty":
            raise CannotJudgeError(f"sensitive column {column.name!r} is missing in every row: drop it")
        if column.n_missing and missing == "error":
            raise InputError(
                f"sensitive column {column.name!r} is missing in {column.n_missing} rows",
                "pass missing='group' to make them a group, or missing='drop' to leave them out",
                column=column.name,
            )
        gap = (MISSING_LEVEL,) * bool(column.n_missing and missing == "group")
        is_text = column.kind == "categorical"
        values = {*column.levels} if is_text else {column.spread.low, column.spread.high}
        if len(values) == 1 and not gap:
            raise CannotJudgeError(
                f"sensitive column {column.name!r} is {values.pop()!r} in every row: nothing can depend on it; drop it"
            )
        given = column, bins.get(column.name), gap
        attributes.append(_read_levels(*given) if is_text else _read_numbers(*given, survey.n_present))
    return tuple(attributes)


def _read_levels(column: ColumnStatistics, edges: Sequence[float] | None, gap: tuple[str, ...]) -> Attribute:
    name, levels = column.name, sorted(column.levels)
    if edges is not None:
        raise ValueError(f"bins[{name!r}]: the column holds categories, not numbers; drop it")
    if len(levels) > MAX_LEVELS:
        raise CannotJudgeError(
            f"sensitive column {name!r} has {len(levels)} levels, more than {MAX_LEVELS}: it looks "
            "like an identifier; merge its levels, or drop it"
        )
    return Attribute(name, column.kind, (*levels, *gap), is_coded=True)


def _read_numbers(column: ColumnStatistics, edges: Sequence[float] | None, gap: tuple[str, ...], n: int) -> Attribute:
    name, kind = column.name, column.kind
    if edges is not None:
        inner = np.asarray(edges, dtype=np.float64)
        if inner.ndim != 1 or not len(inner) or not (np.diff(inner) > 0).all():
            raise ValueError(
                f"bins[{name!r}]={edges!r}; expected increasing edges between the bins, such as "
                "[30, 50]: up to 30, 30 to 50, above 50"
            )
        return Attribute(name, kind, (*_ranges(inner, 6), *gap), inner, bool(gap))
    # As many values as rows are no levels, however few they are.
    if column.few is not None and len(column.few) <= n // 2:
        values = np.array(column.few)
        shown = [str(bool(v)) if kind == "boolean" else f"{v:.12g}" for v in values]
        return Attribute(name, kind, (*shown, *gap), values, bool(gap))
    if gap:
        raise CannotJudgeError(
            f"sensitive column {name!r} is continuous and missing in {column.n_missing} rows, "
            "which cannot be made a group",
            "pass missing='drop', or give bins",
        )
    return Attribute(name, kind)


def _ranges(edges: Array, digits: int) -> list[str]:
    """The ranges between edges in words."""
    middle = [f"{a:.{digits}g} to {b:.{digits}g}" for a, b in pairwise(edges)]
    return [f"up to {edges[0]:.{digits}g}", *middle, f"above {edges[-1]:.{digits}g}"]


def crossed_names(sensitive: Any) -> list[str]:
    """Return the group of every row, such as "Female, White"; numbers of many values are cut at quartiles."""
    columns = frames.columns(frames.as_table(sensitive, one_column=True), prefix="s")
    return [", ".join(levels) for levels in zip(*map(_level_names, columns), strict=True)]


def _level_names(column: Column) -> NDArray[np.object_]:
    if column.kind == "categorical":
        codes, levels = column.codes()
    else:
        x = column.floats()
        values = np.unique(x[~np.isnan(x)])
        inner, shown = values[:-1], [f"{v:g}" for v in values]
        if len(values) > MAX_LEVELS_OF_NUMBERS:
            inner = np.unique(np.nanquantile(x, (0.25, 0.5, 0.75)))
            shown = _ranges(inner, 4)
        codes = np.where(np.isnan(x), -1, np.searchsorted(inner, x, side="left"))
        levels = [f"{column.name} {level}" for level in shown]
    return np.array([*levels, f"{column.name} missing"], dtype=object)[codes]
