"""The opener: whatever users pass, as one source of chunks, and how these become numbers.

Containers are arrays, lists, frames and Series of any library, scans of files, dask collections,
and batches that a program hands over. The kind of `x` decides: where it is in memory everything
beside it is read into memory, too; where it is a scan or in dask, the rest may be the same or in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from scalefair._hash import digest
from scalefair._typing import LARGEST_SINGLE, Chunk, WithColumns
from scalefair.data import frames
from scalefair.data.encoding import ControlEncoder, SensitiveEncoder, TableEncoder
from scalefair.data.probabilities import GroupProbabilities
from scalefair.data.sources import (
    ArraySource,
    ChunkSource,
    DaskSource,
    FileSource,
    Scan,
    is_dask,
)
from scalefair.data.sources.base import ARGUMENTS, finite_columns, weights
from scalefair.errors import InputError, check_finite, located


@dataclass(frozen=True, eq=False)
class OpenedRows:
    """Rows as the user gave them, in memory or not."""

    source: ChunkSource
    in_memory: bool


def is_stream(part: Any) -> bool:
    """Return True if rows are not in memory."""
    return isinstance(part, Scan | ChunkSource) or is_dask(part)


def open_rows(
    x: Any,
    s: Any = None,
    y: Any = None,
    weight: Any = None,
    c: Any = None,
    *,
    names: Mapping[str, str] = ARGUMENTS,
    n_threads: int | None = None,
) -> OpenedRows:  # fmt: skip
    """Return rows as one source of chunks, their lengths compared where they are known.

    A source of chunks as `x` brings all parts itself. `names` are what the user calls the parts,
    for errors; `n_threads` chunks are in flight at once, None: one per core that BLAS may use.
    """
    names = {**ARGUMENTS, **names}
    given = dict(zip(ARGUMENTS, (x, s, y, weight, c), strict=True))
    if isinstance(x, ChunkSource):
        beside = [names[part] for part in list(ARGUMENTS)[1:] if given[part] is not None]
        if beside:
            raise ValueError(
                f"{', '.join(beside)} must be None: the chunks of a {type(x).__name__} bring them"
            )
        return OpenedRows(x, in_memory=False)
    tables = {part: table_of(names[part], value) for part, value in given.items()}
    if tables["x"] is None:
        raise ValueError(f"{names['x']}=None; expected one row for each prediction or target")
    if is_stream(x):
        return OpenedRows(_stream(tables, names, n_threads), in_memory=False)
    tables = {k: in_memory(part) if is_stream(part) else part for k, part in tables.items()}
    return OpenedRows(_memory(tables, names, n_threads), in_memory=True)


def table_of(name: str, part: Any) -> Any:
    """Return any container as a table of columns; None stays None."""
    if part is None or isinstance(part, Scan):
        return part
    if is_dask(part):
        return _two_dimensional(part)
    if isinstance(part, GroupProbabilities):
        raise InputError(f"{name} are probabilities of groups", "give the groups", where=name)
    if isinstance(part, Mapping):
        return frames.make_frame(part)
    if isinstance(part, str) or not hasattr(part, "__len__") or np.shape(part) == ():
        raise TypeError(
            f"{name}={part!r} is a {type(part).__name__}; give an array, a Series, a frame, a scan "
            "or a dask collection with one row for each person"
        )
    with located(name):
        table = frames.as_table(part, one_column=True)
    if table.shape[1] == 0:
        raise InputError(
            f"{name} has no columns (shape {table.shape})", "give at least one", where=name
        )
    return table


def _two_dimensional(part: Any) -> Any:
    # What is no table, such as a bag, DaskSource refuses.
    if getattr(part, "ndim", 0) != 1:
        return part
    return part.to_frame() if hasattr(part, "to_frame") else part[:, None]


def in_memory(part: Any, *, scans: bool = True) -> Any:
    """Return rows in memory: scans read, unless so asked, and dask collections computed."""
    if is_dask(part):
        return part.compute()
    return part.read() if scans and isinstance(part, Scan) else part


def _memory(
    tables: Mapping[str, Any], names: Mapping[str, str], n_threads: int | None
) -> ArraySource:
    n = len(tables["x"])
    for part, table in tables.items():
        if table is not None and len(table) != n:
            raise ValueError(
                f"{names[part]} has {len(table)} rows but {names['x']} has {n}; give "
                "one row each, in the same order"
            )
    if not n:
        raise ValueError(f"{names['x']} has no rows; expected at least two")
    y = None if tables["y"] is None else finite_columns(tables["y"], "y", names["y"], 0)
    weight = None if tables["weight"] is None else weights(tables["weight"], "in memory", 0)
    # As given: models of the user see these rows.
    x, s, c = (nw.to_native(tables[part], pass_through=True) for part in "xsc")
    return ArraySource(x, s, y, weight, c, n_threads=n_threads)


def _stream(
    tables: Mapping[str, Any], names: Mapping[str, str], n_threads: int | None
) -> ChunkSource:
    x, s, y, weight, c = (tables[part] for part in ARGUMENTS)
    for part, table in tables.items():
        if is_stream(table) and isinstance(table, Scan) != isinstance(x, Scan):
            raise ValueError(
                f"{names[part]} is a {type(table).__name__} and {names['x']} a "
                f"{type(x).__name__}; give both from one scan, both in dask, or all in memory"
            )
    if isinstance(x, Scan):
        return FileSource(x, s, y, weight, c, names=names, n_threads=n_threads)
    if not is_dask(weight):
        return DaskSource(x, s, y, weights(weight, "in memory", 0), c)
    if weight.shape[1] != 1:
        what = f"{names['weight']} has {weight.shape[1]} columns; expected one"
        raise InputError(what, where=names["weight"])
    flat = weight[weight.columns[0]] if isinstance(weight, WithColumns) else weight[:, 0]
    return DaskSource(x, s, y, flat, c)


@dataclass(frozen=True)
class Preparation:
    """What happens to a chunk before the feature maps see it.

    Without `encoder` X is numeric and used as given.
    """

    encoder: TableEncoder | None = None
    sensitive_encoder: SensitiveEncoder | None = None
    sensitive_columns: list[int] | None = None  # columns of X that are the attributes
    hide_sensitive: bool = False  # from the inputs
    control_encoder: ControlEncoder | None = None
    single: bool = False  # feature rows are float32, in which squares overflow

    @property
    def key(self) -> str:
        """Fingerprints of the encodings and of the columns they are applied to."""
        columns = f"{self.sensitive_columns} hidden={self.hide_sensitive}"
        encoder, sensitive = (
            "none" if part is None else digest(part)
            for part in (self.encoder, self.sensitive_encoder)
        )
        control = "" if self.control_encoder is None else f";control={digest(self.control_encoder)}"
        return f"encoding={encoder};sensitive={sensitive};columns={columns}{control}"

    def split(self, chunk: Chunk) -> Chunk:
        """Take the sensitive attributes from the columns of x, and hide them if so asked."""
        if self.sensitive_columns is None:
            return chunk
        s = frames.take_columns(chunk.x, self.sensitive_columns)
        x = chunk.x
        if self.hide_sensitive:
            x = frames.drop_columns(x, self.sensitive_columns)
        return replace(chunk, x=x, s=s)

    def encode(self, chunk: Chunk) -> Chunk:
        """Turn x, s and c of a split chunk into numbers; an error says where they come from."""
        x, s, c = chunk.x, chunk.s, chunk.c
        with located(chunk.where):
            if self.encoder is not None:
                x = np.asarray(self.encoder.transform(x))
            else:
                names = frames.column_names(x)
                x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else frames.to_numpy(x)
                # Rows of a stream, or next to hidden columns, nobody has looked at yet.
                check_finite("X", x, names=names)
            if self.single:
                check_finite("dtype='float32': X", x, LARGEST_SINGLE)
            if s is not None:
                s = None if self.sensitive_encoder is None else self.sensitive_encoder.transform(s)
            if c is not None:
                c = None if self.control_encoder is None else self.control_encoder.transform(c)
        return replace(chunk, x=x, s=s, c=c)

    def input_names(self, names: list[str]) -> list[str]:
        """Return the names of the inputs as the maps see them: encoded, none that is hidden."""
        if self.encoder is not None:
            return [str(name) for name in self.encoder.get_feature_names_out()]
        hidden = set(self.sensitive_columns or []) if self.hide_sensitive else set()
        return [name for i, name in enumerate(names) if i not in hidden]

    def input_columns(self, names: list[str]) -> list[tuple[str, slice]]:
        """Return the columns of X that the maps see, and which inputs each was encoded to."""
        shown = self.input_names(names)
        widths = [1] * len(shown)
        if self.encoder is not None:
            shown = [code.name for code in self.encoder.columns_]
            widths = [len(code.outputs("")) for code in self.encoder.columns_]
        stops = np.cumsum(widths)
        return [(n, slice(b - w, b)) for n, w, b in zip(shown, widths, stops, strict=True)]
