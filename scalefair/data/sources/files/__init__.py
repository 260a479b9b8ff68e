"""Tables on disk and in remote stores: parquet and csv, whole or streamed. The home of pyarrow."""

from scalefair.data.sources.files._pieces import Piece, pieces_of, read_piece
from scalefair.data.sources.files._scan import Scan, scan_csv, scan_parquet
from scalefair.data.sources.files._source import FileSource, open_files
from scalefair.data.sources.files._table import beside, read_table
from scalefair.data.sources.files._write import check_ending, write_csv, write_tables

__all__ = [
    "FileSource",
    "Piece",
    "Scan",
    "beside",
    "check_ending",
    "open_files",
    "pieces_of",
    "read_piece",
    "read_table",
    "scan_csv",
    "scan_parquet",
    "write_csv",
    "write_tables",
]
