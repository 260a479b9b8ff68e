"""What parquet and csv share: files one after the other, seen as one table."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from scalefair.data.frames import Kind, column_kinds, unknown_type
from scalefair.data.sources.base import regrouped
from scalefair.data.sources.files.paths import Listing, first_repeated
from scalefair.errors import InputError


class Piece(NamedTuple):
    """Row groups first..stop−1 of one file, or the lines that begin in its bytes first..stop−1."""

    file: int
    first: int
    stop: int


class Files(ABC):
    """Files with the same columns, read one after the other."""

    expected: str
    """What a readable file is, for error messages."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the columns in the first file."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Rows of all files, None if unknown before a pass."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What two of them have in common if they read the same rows."""
        return type(self), self.listing.names

    @abstractmethod
    def _type(self, column: str) -> pa.DataType:
        """Return the type in which all files give a column; ValueError where they cannot."""

    @abstractmethod
    def _batches(self, number: int, columns: list[str], rows: int, parallel: bool) -> Iterator[pa.RecordBatch]:
        """Yield some columns of one file, about `rows` rows at a time."""

    @abstractmethod
    def _cuts(self, number: int, rows: int, size: int) -> Sequence[int]:
        """Return where the pieces of a file begin and end: 0, …, its row groups or bytes."""

    @abstractmethod
    def _read_piece(self, piece: Piece, columns: list[str]) -> pa.Table:
        """Return some columns of a piece of a file."""

    @property
    def columns(self) -> list[str]:
        """Names of all columns: those of the files, then those that the folders give."""
        return [*self.names, *self._key_types]

    @cached_property
    def _key_types(self) -> dict[str, pa.DataType]:
        """Columns that the folders give, for instance a=1: whole numbers, otherwise text."""
        names = dict.fromkeys(name for keys in self.listing.keys for name in keys)
        values = {name: [keys.get(name) for keys in self.listing.keys] for name in names}
        return {n: _key_type(v) for n, v in values.items() if n not in self.names}

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the types in which `columns` are given, the same for all files."""
        from_folders = [name for name in columns if name in self._key_types]
        for where, keys in zip(self.listing.names, self.listing.keys, strict=True):
            for name in from_folders:
                if name not in keys:
                    raise missing_column(where, name)
        types = {name: self._key_types.get(name) or self._type(name) for name in columns}
        views = {pa.string_view(): pa.string()}  # which few functions of pyarrow know
        return pa.schema([(name, views.get(dtype, dtype)) for name, dtype in types.items()])

    def tables(self, columns: Sequence[str], rows: int, *, parallel: bool = True) -> Iterator[tuple[str, pa.Table]]:
        """Yield (file, at most `rows` of its rows) in order; `parallel`: by threads of pyarrow."""
        schema, inside = self.schema(columns), self._stored(columns)
        size = rows * max(1, 16384 // rows)
        for number, where in enumerate(self.listing.names):
            with content_errors(where, self.expected):
                batches = self._batches(number, inside, size, parallel)
                for pieces in regrouped(batches, rows, _rows_of_batch, len):
                    table = pa.Table.from_batches(pieces)
                    yield where, self._completed(table, number, schema)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns to read; where the folders give all, one is read to count the rows."""
        return [name for name in columns if name not in self._key_types] or self.names[:1]

    def pieces(self, rows: int, size: int) -> list[Piece]:
        """Return pieces of at least so many rows or bytes, where a file has them, in order."""
        numbers = range(len(self.listing.paths))
        return [Piece(i, *span) for i in numbers for span in pairwise(self._cuts(i, rows, size))]

    def read_piece(self, columns: Sequence[str], piece: Piece) -> pa.Table:
        """Return some columns of one piece."""
        schema = self.schema(columns)
        with content_errors(self.listing.names[piece.file], self.expected):
            table = self._read_piece(piece, self._stored(columns))
        return self._completed(table, piece.file, schema)

    def _completed(self, table: pa.Table, number: int, schema: pa.Schema) -> pa.Table:
        keys = self.listing.keys[number]
        arrays = [
            pa.repeat(pa.scalar(keys[field.name], pa.string()).cast(field.type), table.num_rows)
            if field.name in self._key_types
            else _cast(table[field.name], field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def _rows_of_batch(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    return batch.slice(start, stop - start)


def kind_of(field: pa.Field) -> Kind:
    """Return what a column of this type holds; ValueError for lists, structs and the like."""
    (kind,) = column_kinds(pa.schema([field]).empty_table()).values()
    if kind == "empty" and not pa.types.is_null(field.type):
        raise unknown_type(field.name, field.type)
    return kind


def missing_column(where: str, name: str) -> InputError:
    """Return the error for a file that lacks a column of the others."""
    return InputError(
        f"{where}: column {name!r} is missing, which other files have",
        "give files with the same columns, or leave it out",
        column=name,
        where=where,
    )


def changed(where: str) -> OSError:
    """Return the error for a file that is not what it was in an earlier pass."""
    return OSError(errno.ESTALE, "the file has changed since it was first read", where)


def no_rows(names: Sequence[str]) -> str:
    """Return the error message for files that are all empty."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}: the table has no rows; give a file with data"


def check_unique(where: str, names: Sequence[str]) -> list[str]:
    """Return the names of columns, among which none may appear twice."""
    twice = first_repeated(names)
    if twice is not None:
        what = f"{where}: column names are not unique: {twice!r}"
        raise InputError(what, "rename the columns", column=twice, where=where)
    return list(names)


def arrow_filesystem(fs: Any) -> Any:
    """Return the pyarrow filesystem that reads what an fsspec filesystem does."""
    if isinstance(fs, ArrowFSWrapper):
        return fs.fs
    if isinstance(fs, LocalFileSystem):
        return pyarrow.fs.LocalFileSystem()
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))


@contextmanager
def content_errors(where: Any, expected: str) -> Iterator[None]:
    """Turn pyarrow's errors about the content into a ValueError that names the file."""
    try:
        yield
    except (pa.ArrowMemoryError, pa.ArrowCancelled):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise  # of the system, not of the content: gone, forbidden, not connected
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{where}: cannot be read as {expected}: {reason}") from error


def _key_type(values: list[str | None]) -> pa.DataType:
    try:
        pa.array(values, pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int64()


def _cast(values: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    if values.type == dtype:
        return values
    if pa.types.is_null(values.type):
        return pa.chunked_array([pa.nulls(len(values), dtype)])
    if pa.types.is_dictionary(dtype):
        return values.dictionary_encode()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(dtype, safe=False)
