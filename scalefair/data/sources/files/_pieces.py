"""Pieces of files that workers read by themselves: row groups of parquet, lines of csv."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from scalefair.data import frames
from scalefair.data.sources.files._base import explained
from scalefair.data.sources.files._csv import CsvFiles, convert_options
from scalefair.data.sources.files._parquet import ParquetFiles
from scalefair.data.sources.files._scan import Scan

ROWS, BYTES = 2**17, 2**25
"""Rows of parquet and bytes of csv from which on a piece is long enough."""


class Piece(NamedTuple):
    """Row groups first..stop−1 of one file, or the lines that begin in its bytes first..stop−1."""

    file: int
    first: int
    stop: int


def pieces_of(scan: Scan, *, rows: int = ROWS, size: int = BYTES) -> list[Piece]:
    """Return the pieces of the files of a scan, in the order of their rows.

    Row groups are not cut. A compressed csv is one piece; in others a line break inside quotes is
    taken for the end of a row.
    """
    files = scan.files
    if isinstance(files, ParquetFiles):
        return [
            Piece(i, *span)
            for i in range(len(files.found.paths))
            for span in pairwise(_group_cuts(files, i, rows))
        ]
    return [
        Piece(i, *span)
        for i in range(len(files.found.paths))
        for span in pairwise(_byte_cuts(files, i, size))
    ]


def read_piece(scan: Scan, piece: Piece) -> pa.Table:
    """Return the rows of one piece."""
    files, where = scan.files, scan.files.found.names[piece.file]
    schema = files.schema(scan.columns)
    inside = [name for name in scan.columns if name not in files._key_types] or files.names[:1]
    with explained(where, files.expected):
        if isinstance(files, ParquetFiles):
            with files._open(piece.file) as file:
                table = file.read_row_groups([*range(piece.first, piece.stop)], columns=inside)
        elif isinstance(files, CsvFiles):
            table = _read_lines(files, piece, inside)
    return files._completed(table, piece.file, schema)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with levels in place of codes: pieces have dictionaries of their own."""
    fields = [
        pa.field(f.name, f.type.value_type) if pa.types.is_dictionary(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))


def to_pandas(table: pa.Table) -> Any:
    """Return a partition of a dask frame, which takes all columns of Python objects for text.

    Booleans with missing values, decimals and days must not be such. Categories are text, of
    whatever type they are: pieces have dictionaries of their own.
    """
    fields = [pa.field(field.name, _plain(field.type)) for field in table.schema]
    table = without_dictionaries(table).cast(pa.schema(fields))
    nullable = {pa.bool_(): frames.pandas_dtype("boolean")}
    return table.to_pandas(date_as_object=False, types_mapper=nullable.get)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(dtype) else dtype


def _group_cuts(files: ParquetFiles, number: int, rows: int) -> list[int]:
    where = files.found.names[number]
    with explained(where, files.expected), files._open(number) as file:
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    cuts, room = [0], rows
    for i, count in enumerate(counts):
        if count > room and i > cuts[-1]:
            cuts.append(i)
            room = rows
        room -= count
    return [*cuts, len(counts)] if counts else []


def _byte_cuts(files: Any, number: int, size: int) -> Sequence[int]:
    path = files.found.paths[number]
    total = int(files.found.filesystem.size(path))
    count = 1 if not path.lower().endswith(".csv") else max(1, total // size)
    return [total * k // count for k in range(count + 1)]


def _read_lines(files: CsvFiles, piece: Piece, columns: list[str]) -> pa.Table:
    path, fs = files.found.paths[piece.file], files.found.filesystem
    header = files._header(piece.file)
    with fs.open(path, "rb", compression="infer") as file:
        whole = not path.lower().endswith(".csv")
        content = file.read() if whole else _lines_between(file, piece.first, piece.stop)
    types = {name: files._types[name] for name in columns}
    if not content:
        return pa.table({name: pa.array([], dtype) for name, dtype in types.items()})
    return pa.csv.read_csv(
        BytesIO(content),
        read_options=pa.csv.ReadOptions(
            column_names=header, skip_rows=int(piece.first == 0), use_threads=False
        ),
        parse_options=pa.csv.ParseOptions(delimiter=files.delimiter, newlines_in_values=True),
        convert_options=convert_options(column_types=types, include_columns=columns),
    )


def _lines_between(file: Any, first: int, stop: int) -> bytes:
    """Return the lines that begin in bytes first..stop−1."""
    if first:
        file.seek(first - 1)
        first += len(file.readline()) - 1
    if first >= stop:
        return b""
    content: bytes = file.read(stop - first)
    return content if content.endswith(b"\n") else content + file.readline()
