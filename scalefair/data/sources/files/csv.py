"""csv files, read block by block, in types that the first rows decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.csv

from scalefair.data.frames import resolve_columns
from scalefair.data.sources.files.base import (
    Files,
    Piece,
    arrow_filesystem,
    changed,
    check_unique,
    content_errors,
    missing_column,
    no_rows,
)
from scalefair.data.sources.files.paths import Listing
from scalefair.errors import CellError, DelimiterError, InputError

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")

_BLOCK = 2**20
"""Bytes read at once; pyarrow reads about 32 blocks ahead."""

_DELIMITERS = (",", ";", "\t", "|")
"""What tables are written with."""


def convert_options(**options: Any) -> pa.csv.ConvertOptions:
    """Return how cells are read: without quotes an empty one, NA, NaN or null is missing."""
    return pa.csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, **options
    )


class CsvFiles(Files):
    """csv files with the same columns, some of them of given types."""

    expected = "a csv file with a header and the same cells in every line"

    def __init__(self, listing: Listing, column_types: Mapping[str, Any], delimiter: str) -> None:
        super().__init__(listing)
        self._given = {name: _data_type(name, given) for name, given in column_types.items()}
        self.delimiter = delimiter
        self._counted: int | None = None
        self._headers: dict[int, list[str]] = {}
        if len(delimiter) != 1:
            raise ValueError(f"delimiter={delimiter!r}; expected one character, for instance ';'")
        resolve_columns(column_types, self.names, len(self.names))

    @property
    def key(self) -> tuple[Any, ...]:
        """What two of them have in common if they read the same rows."""
        return *super().key, tuple(self._given.items()), self.delimiter

    @property
    def names(self) -> list[str]:
        """Names of the columns in the first file."""
        return list(self._types)

    @property
    def n_rows(self) -> int | None:
        """Rows of all files, None until a pass has counted them."""
        return self._counted

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        """Types of the first block of the first file that has rows, which hold for all others."""
        first: list[str] | None = None
        for number, where in enumerate(self.listing.names):
            self._check_delimiter(number)
            with content_errors(where, self.expected), self._open(number, True) as reader:
                names = check_unique(where, reader.schema.names)
                first = first or names
                if any(batch.num_rows for batch in reader):
                    fields = [f for f in reader.schema if f.name not in self._given]
                    types = {f.name: _lasting_type(where, f) for f in fields} | self._given
                    return {name: types.get(name, pa.null()) for name in first}
        raise ValueError(no_rows(self.listing.names))

    def _check_delimiter(self, number: int) -> None:
        """Raise ValueError if a header is one cell only because another delimiter separates it."""
        path, fs = self.listing.paths[number], arrow_filesystem(self.listing.filesystem)
        with (
            content_errors(self.listing.names[number], self.expected),
            fs.open_input_stream(path) as file,
        ):
            header = file.read(_BLOCK).partition(b"\n")[0].decode(errors="replace")
        others = [mark for mark in _DELIMITERS if mark in header]
        if others and self.delimiter not in header:
            where = self.listing.names[number]
            raise DelimiterError(
                f"{where}: its header has no {self.delimiter!r} but {others[0]!r} between names",
                others[0],
                where=where,
            )

    def _type(self, column: str) -> pa.DataType:
        return self._types[column]

    @property
    def _parse_options(self) -> pa.csv.ParseOptions:
        return pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def _open(self, number: int, parallel: bool, **options: Any) -> pa.csv.CSVStreamingReader:
        path, fs = self.listing.paths[number], arrow_filesystem(self.listing.filesystem)
        return pa.csv.open_csv(
            fs.open_input_stream(path),
            read_options=pa.csv.ReadOptions(block_size=_BLOCK, use_threads=parallel),
            parse_options=self._parse_options,
            convert_options=convert_options(**options),
        )

    def tables(self, *args: Any, **options: Any) -> Iterator[tuple[str, pa.Table]]:
        """Yield (file, rows) as parquet files do, and remember how many there were."""
        count = 0
        for where, table in super().tables(*args, **options):
            count += table.num_rows
            yield where, table
        if self._counted not in (None, count):
            raise changed(self.listing.names[0])
        self._counted = count

    def _batches(
        self,
        number: int,
        columns: list[str],
        rows: int,  # noqa: ARG002
        parallel: bool,
    ) -> Iterator[pa.RecordBatch]:
        types = {name: self._types[name] for name in columns}
        self._header(number)  # of a name that is there twice pyarrow would read the first
        try:
            with self._open(number, parallel, column_types=types, include_columns=columns) as file:
                yield from file
        except (pa.ArrowKeyError, pa.ArrowInvalid) as error:
            named = self._named_error(number, columns, str(error))
            if named is None:
                raise
            raise named from error

    def _cuts(self, number: int, rows: int, size: int) -> list[int]:  # noqa: ARG002
        """Return the bytes at which pieces begin, and the end; a compressed file is one piece."""
        path = self.listing.paths[number]
        total = int(self.listing.filesystem.size(path))
        count = max(1, total // size) if path.lower().endswith(".csv") else 1
        return [total * k // count for k in range(count + 1)]

    def _read_piece(self, piece: Piece, columns: list[str]) -> pa.Table:
        path, fs = self.listing.paths[piece.file], self.listing.filesystem
        header = self._header(piece.file)
        with fs.open(path, "rb", compression="infer") as file:
            plain = path.lower().endswith(".csv")
            content = _lines_between(file, piece.first, piece.stop) if plain else file.read()
        types = {name: self._types[name] for name in columns}
        if not content:
            return pa.table({name: pa.array([], dtype) for name, dtype in types.items()})
        return pa.csv.read_csv(
            BytesIO(content),
            read_options=pa.csv.ReadOptions(
                column_names=header, skip_rows=int(piece.first == 0), use_threads=False
            ),
            parse_options=self._parse_options,
            convert_options=convert_options(column_types=types, include_columns=columns),
        )

    def _named_error(self, number: int, columns: list[str], error: str) -> InputError | None:
        """Return the error with the name of the column, for which pyarrow has only a number."""
        where, header = self.listing.names[number], self._header(number)
        absent = [name for name in columns if name not in header]
        if absent:
            return missing_column(where, absent[0])
        position = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", error, re.DOTALL)
        if position is None:
            return None
        name, reason = header[int(position[1])], " ".join(position[2].split())[:300]
        return CellError(
            f"{where}: column {name!r}: {reason}; its type was guessed from the first rows",
            f"repair the cell, or name the type as column_types={{{name!r}: 'string'}}",
            column=name,
            where=where,
        )

    def _header(self, number: int) -> list[str]:
        """Return the names of the columns of a file, each of them once."""
        if number not in self._headers:
            with self._open(number, False) as reader:
                names = check_unique(self.listing.names[number], reader.schema.names)
            self._headers[number] = names
        return self._headers[number]


def _lasting_type(where: str, field: pa.Field) -> pa.DataType:
    """Return the type for all rows: whole numbers at first may be followed by others."""
    if pa.types.is_binary(field.type):  # which pyarrow reads without a word
        what = f"{where}: column {field.name!r} is not UTF-8"
        raise InputError(what, "convert the file to UTF-8", column=field.name, where=where)
    return pa.float64() if pa.types.is_integer(field.type) else field.type


def _data_type(name: str, given: Any) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    try:
        return pa.type_for_alias(given)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"column_types={{{name!r}: {given!r}}}: unknown type",
            "give 'string', 'float64', 'bool', 'date32', 'timestamp[s]' or a pyarrow type",
            column=name,
            where="column_types",
        ) from error


def _lines_between(file: Any, first: int, stop: int) -> bytes:
    """Return the lines that begin in bytes first..stop−1."""
    if first:
        file.seek(first - 1)
        first += len(file.readline()) - 1
    if first >= stop:
        return b""
    content: bytes = file.read(stop - first)
    return content if content.endswith(b"\n") else content + file.readline()
