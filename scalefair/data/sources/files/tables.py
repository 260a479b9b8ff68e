"""Tables of pyarrow: joined, converted, and written atomically."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from gzip import GzipFile
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from scalefair.data import frames
from scalefair.data.sources.files.csv import CSV_ENDINGS
from scalefair.data.sources.files.parquet import PARQUET_ENDINGS, is_index

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how text begins that spreadsheets run


def beside(frame: Any, columns: Mapping[str, Any]) -> pa.Table:
    """Return an arrow table of a frame, if any, and arrays; a name that is taken gets a "_"."""
    parts: dict[str, Any] = {}
    if frame is not None:
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
        shown = [name for name in table.column_names if not is_index(name)]
        parts = dict(zip(shown, without_dictionaries(table.select(shown)).columns, strict=True))
    for given, values in columns.items():
        name = given
        while name in parts:
            name += "_"
        parts[name] = pa.array(values)
    return pa.table(parts)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with levels in place of codes: pieces have dictionaries of their own."""
    fields = [pa.field(f.name, f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def to_pandas(table: pa.Table) -> Any:
    """Return a partition of a dask frame, which treats all columns of Python objects as text.

    Booleans with missing values, decimals and days must not be such. Categories are text, of
    whatever type they are: pieces have dictionaries of their own.
    """
    fields = [pa.field(field.name, _type_for_dask(field.type)) for field in table.schema]
    table = without_dictionaries(table).cast(pa.schema(fields))
    nullable = {pa.bool_(): frames.pandas_dtype("boolean")}
    return table.to_pandas(date_as_object=False, types_mapper=nullable.get)


def _type_for_dask(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(dtype) else dtype


def check_ending(path: Path) -> str:
    """Return "parquet" or "csv", as the name says; ValueError for other names."""
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        return "parquet"
    if name.endswith(CSV_ENDINGS[:2]):
        return "csv"
    raise ValueError(f"{path}: expected a name that ends with .parquet, .csv or .csv.gz")


def without_formulas(table: pa.Table) -> pa.Table:
    """Return the table with ' before text, names too, that spreadsheets would run."""
    for j, field in enumerate(table.schema):
        name, column = field.name, table.column(j)
        name = f"'{name}" if name.startswith(FORMULAS) else name
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = pc.replace_substring_regex(column, rf"^([{re.escape(''.join(FORMULAS))}])", r"'\1")
        table = table.set_column(j, name, column)
    return table


def write_tables(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write tables one below the other, all or nothing; return the number of rows."""
    from scalefair._files import replacing  # late: with it comes scikit-learn

    kind = check_ending(path)
    with replacing(path) as file:
        return _write(file, tables, kind, compressed=path.name.lower().endswith(".gz"))


def write_csv(file: BinaryIO, tables: Iterable[pa.Table]) -> int:
    """Write tables as csv to an open file, such as stdout, as they come."""
    return _write(file, tables, "csv", compressed=False)


def _write(file: Any, tables: Iterable[pa.Table], kind: str, *, compressed: bool) -> int:
    count, writer = 0, None
    # Closing it does not close the file below.
    sink = GzipFile(fileobj=file, mode="wb", mtime=0) if compressed else file
    try:
        for table in tables:
            if writer is None:
                made = pa.parquet.ParquetWriter if kind == "parquet" else pa.csv.CSVWriter
                writer = made(sink, table.schema)
            writer.write_table(table.cast(writer.schema) if kind == "parquet" else table)
            count += table.num_rows
            if kind == "csv" and not compressed:
                file.flush()
    finally:
        for part in (writer, sink if compressed else None):
            if part is not None:
                part.close()
    return count
