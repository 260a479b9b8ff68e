"""A whole table in memory."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from scalefair.data.sources.files._base import explained
from scalefair.data.sources.files._csv import CSV_ENDINGS, CsvFiles, convert_options, refuse_bytes
from scalefair.data.sources.files._parquet import PARQUET_ENDINGS, ParquetFiles, is_index
from scalefair.data.sources.files._paths import find_files
from scalefair.data.sources.files._pieces import without_dictionaries

_MAGIC = b"PAR1"


def read_table(path: str | PathLike[str]) -> pa.Table:
    """Read a whole table into memory.

    Parameters
    ----------
    path : str or path
        A parquet file, a folder of parquet files (also partitioned, ``a=1/part.parquet``) or a csv
        file with a header, compressed or not. In csv an empty cell, NA, NaN or null without quotes
        is a missing value.

    Returns
    -------
    pyarrow.Table
        At least one row.

    Raises
    ------
    OSError
        The path does not exist or may not be read.
    ValueError
        It is neither parquet nor csv, is damaged, or holds no rows.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; check the path")
    table = _read_folder(path) if path.is_dir() else _read_file(path)
    if not table.num_rows:
        raise ValueError(f"{path}: the table has no rows; give a file with data")
    return table


def beside(kept: Any, columns: Mapping[str, Any]) -> pa.Table:
    """Return an arrow table of the columns of a frame, if any, and of arrays beside them.

    A name that is taken gets an underscore.
    """
    table = None if kept is None else _as_arrow(kept)
    parts = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
    for given, values in columns.items():
        name = given
        while name in parts:
            name += "_"
        parts[name] = pa.array(values)
    return pa.table(parts)


def _as_arrow(frame: Any) -> pa.Table:
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
    return without_dictionaries(table.select([n for n in table.column_names if not is_index(n)]))


def _read_folder(path: Path) -> pa.Table:
    files = ParquetFiles(find_files(path, None, PARQUET_ENDINGS))
    schema = files.schema(files.columns)
    tables = [table for _, table in files.tables(schema.names, 2**20)]
    return pa.concat_tables([schema.empty_table(), *tables])


def _read_file(path: Path) -> pa.Table:
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if not head:
        raise ValueError(f"{path}: the file is empty; give a parquet or csv file with rows")
    if head == _MAGIC:
        with explained(path, ParquetFiles.expected):
            # As a single file: folders named like "a=1" above it are not columns.
            table = pa.parquet.ParquetFile(path).read()
            return table.drop_columns([name for name in table.column_names if is_index(name)])
    if not path.name.lower().endswith(CSV_ENDINGS):
        raise ValueError(
            f"{path}: not a parquet file, and its name does not end with .csv; give a parquet "
            "file, a folder of them or a csv file"
        )
    with explained(path, CsvFiles.expected):
        return _read_csv(path)


def _read_csv(path: Path) -> pa.Table:
    table = pa.csv.read_csv(path, convert_options=convert_options())
    for field in table.schema:
        refuse_bytes(str(path), field)
    return table
