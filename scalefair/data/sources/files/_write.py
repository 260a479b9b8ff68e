"""Tables on their way to a file, batch by batch; whoever looks finds the whole file or none."""

from __future__ import annotations

from collections.abc import Iterable
from gzip import GzipFile
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from scalefair._files import replacing
from scalefair.data.sources.files._csv import CSV_ENDINGS
from scalefair.data.sources.files._parquet import PARQUET_ENDINGS


def check_ending(path: Path) -> str:
    """Return "parquet" or "csv", as the name says; ValueError for other names."""
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        return "parquet"
    if name.endswith(CSV_ENDINGS[:2]):
        return "csv"
    raise ValueError(f"{path}: expected a name that ends with .parquet, .csv or .csv.gz")


def write_tables(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write tables with the same columns one below the other; return the number of rows.

    The rows go to a temporary file beside `path`, which takes its place once it is complete.
    """
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
                writer = _writer(sink, table.schema, kind)
            writer.write_table(table.cast(writer.schema) if kind == "parquet" else table)
            count += table.num_rows
            if kind == "csv" and not compressed:
                file.flush()
    finally:
        for part in (writer, sink if compressed else None):
            if part is not None:
                part.close()
    return count


def _writer(sink: Any, schema: pa.Schema, kind: str) -> Any:
    if kind == "parquet":
        return pa.parquet.ParquetWriter(sink, schema)
    return pa.csv.CSVWriter(sink, schema)
