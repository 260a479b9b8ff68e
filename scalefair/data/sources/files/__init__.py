"""Tables on disk and in remote stores: parquet and csv, whole or streamed. The home of pyarrow."""

from scalefair.data.sources.files.base import Piece
from scalefair.data.sources.files.csv import CSV_ENDINGS
from scalefair.data.sources.files.parquet import PARQUET_ENDINGS
from scalefair.data.sources.files.scan import (
    FileSource,
    Scan,
    pieces_of,
    read_piece,
    scan_csv,
    scan_files,
    scan_parquet,
)
from scalefair.data.sources.files.tables import (
    beside,
    check_ending,
    to_pandas,
    without_formulas,
    write_csv,
    write_tables,
)

__all__ = [
    "CSV_ENDINGS", "PARQUET_ENDINGS", "FileSource", "Piece", "Scan", "beside", "check_ending",
    "pieces_of", "read_piece", "scan_csv", "scan_files", "scan_parquet", "to_pandas",
    "without_formulas", "write_csv", "write_tables",
]  # fmt: skip
