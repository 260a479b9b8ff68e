"""Tables on disk: parquet files, folders of them, and csv. The home of pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

_MAGIC = b"PAR1"
_CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")


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


def _read_folder(path: Path) -> pa.Table:
    if not any(path.rglob("*.parquet")):
        raise ValueError(f"{path}: the folder holds no .parquet file; give a file, or its folder")
    with _explained(path, "a folder of parquet files with the same columns"):
        return pyarrow.parquet.read_table(path)


def _read_file(path: Path) -> pa.Table:
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if not head:
        raise ValueError(f"{path}: the file is empty; give a parquet or csv file with rows")
    if head == _MAGIC:
        with _explained(path, "a complete parquet file (is it truncated?)"):
            # As a single file: folders named like "a=1" above it are not columns.
            return pyarrow.parquet.ParquetFile(path).read()
    if not path.name.lower().endswith(_CSV_ENDINGS):
        raise ValueError(
            f"{path}: not a parquet file, and its name does not end with .csv; give a parquet "
            "file, a folder of them or a csv file"
        )
    with _explained(path, "a csv file with a header and the same cells in every line"):
        return _read_csv(path)


def _read_csv(path: Path) -> pa.Table:
    missing = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    table = pyarrow.csv.read_csv(path, convert_options=missing)
    # pyarrow reads text that is not UTF-8 as bytes, without a word.
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise ValueError(
                f"{path}: column {field.name!r} is not UTF-8; convert the file to UTF-8"
            )
    return table


@contextmanager
def _explained(path: Path, expected: str) -> Iterator[None]:
    """Turn pyarrow's complaints about the content into a ValueError that names the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: cannot be read as {expected}: {reason}") from error
