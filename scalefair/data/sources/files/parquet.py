"""Parquet files, decoded a few rows at a time, however large their row groups are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet
from fsspec.implementations.local import LocalFileSystem

from scalefair.data.sources.files.base import (
    Files,
    Piece,
    arrow_filesystem,
    changed,
    check_unique,
    content_errors,
    kind_of,
    missing_column,
)
from scalefair.errors import InputError

PARQUET_ENDINGS = (".parquet", ".pq", ".parq")

# Bytes read at once of each column: a request to a remote store must be worth its latency
_BUFFER, _REMOTE_BUFFER = 2**20, 2**23


@dataclass(frozen=True)
class Footer:
    """Number of rows and schema, from the end of a parquet file."""

    n_rows: int
    schema: pa.Schema


class ParquetFiles(Files):
    """Parquet files with the same columns."""

    expected = "a complete parquet file (is it truncated?)"

    @cached_property
    def _first(self) -> Footer:
        return self._footer(0)

    @cached_property
    def _footers(self) -> list[Footer]:
        with ThreadPoolExecutor(8) as pool:  # mostly waiting for the disk or the network
            return [self._first, *pool.map(self._footer, range(1, len(self.listing.paths)))]

    @cached_property
    def _schemas(self) -> dict[pa.Schema, str]:
        """Each schema that occurs, with the first file that has it."""
        first: dict[pa.Schema, str] = {}
        for footer, where in zip(self._footers, self.listing.names, strict=True):
            if footer.schema not in first:
                check_unique(where, footer.schema.names)
                first[footer.schema] = where
        return first

    @property
    def names(self) -> list[str]:
        """Names of the columns in the first file."""
        names = check_unique(self.listing.names[0], self._first.schema.names)
        return [name for name in names if not is_index(name)]

    @property
    def n_rows(self) -> int:
        """Rows of all files, as their footers say."""
        return sum(footer.n_rows for footer in self._footers)

    def _open(self, number: int) -> pa.parquet.ParquetFile:
        # pre_buffer would read whole row groups, and mapped memory ends the process if the file
        # is cut short in the meantime.
        fs = self.listing.filesystem
        size = _BUFFER if isinstance(fs, LocalFileSystem) else _REMOTE_BUFFER
        return pa.parquet.ParquetFile(
            self.listing.paths[number], filesystem=arrow_filesystem(fs), buffer_size=size, pre_buffer=False
        )

    def _footer(self, number: int) -> Footer:
        where = self.listing.names[number]
        with content_errors(where, self.expected), self._open(number) as file:
            return self._read_footer(file)

    def _read_footer(self, file: pa.parquet.ParquetFile) -> Footer:
        return Footer(file.metadata.num_rows, _with_categories(file.schema_arrow))

    def _type(self, column: str) -> pa.DataType:
        merged = self._first.schema.field(column)
        for schema, where in self._schemas.items():
            if column not in schema.names:
                raise missing_column(where, column)
            merged = _common_field(merged, schema.field(column), where)
        return merged.type

    def _batches(self, number: int, columns: list[str], rows: int, parallel: bool) -> Iterator[pa.RecordBatch]:
        with self._open(number) as file:
            if self._read_footer(file) != self._footers[number]:
                raise changed(self.listing.names[number])
            yield from file.iter_batches(rows, columns=columns, use_threads=parallel)

    def _cuts(self, number: int, rows: int, size: int) -> list[int]:  # noqa: ARG002
        """Return the row groups at which pieces begin, and the end; groups are not cut."""
        with content_errors(self.listing.names[number], self.expected), self._open(number) as file:
            groups = range(file.metadata.num_row_groups)
            counts = [file.metadata.row_group(i).num_rows for i in groups]
        cuts, left = [0], rows
        for i, count in enumerate(counts):
            if count > left and i > cuts[-1]:
                cuts.append(i)
                left = rows
            left -= count
        return [*cuts, len(counts)] if counts else []

    def _read_piece(self, piece: Piece, columns: list[str]) -> pa.Table:
        with self._open(piece.file) as file:
            return file.read_row_groups([*range(piece.first, piece.stop)], columns=columns)


def _with_categories(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the categories of pandas that are not text, which parquet lacks."""
    written = (schema.pandas_metadata or {}).get("columns", [])
    for name in [c.get("field_name") for c in written if c.get("pandas_type") == "categorical"]:
        j = schema.get_field_index(name)
        if j >= 0 and not pa.types.is_dictionary(schema.field(j).type):
            dtype = pa.dictionary(pa.int32(), schema.field(j).type)
            schema = schema.set(j, pa.field(name, dtype))
    return schema.remove_metadata()


def is_index(name: str) -> bool:
    """Return True if a column is the nameless index of a pandas or dask frame: no input is."""
    return re.fullmatch(r"__index_level_\d+__|__null_dask_index__", name) is not None


def _common_field(field: pa.Field, other: pa.Field, where: str) -> pa.Field:
    """Return a type for both: widths may differ, and a file may have no value at all."""
    if field.type == other.type or pa.types.is_null(other.type):
        return field
    if pa.types.is_null(field.type):
        return other
    kind = kind_of(field)
    types = (field.type, other.type)
    zones = [not (pa.types.is_timestamp(dtype) and dtype.tz) for dtype in types]
    if kind != kind_of(other) or len(set(zones)) > 1:
        raise InputError(
            f"{where}: column {field.name!r} has the type {other.type}, in the files before "
            f"{field.type}; expected a folder of parquet files with the same columns in the same "
            "types",
            "convert it, or leave it out",
            column=field.name,
            where=where,
        )
    zone = None if all(zones) else "UTC"
    common = {"numeric": pa.float64(), "categorical": pa.string()}
    return pa.field(field.name, common.get(kind, pa.timestamp("us", zone)))
