"""Tables on disk and in remote stores: parquet and csv, whole or streamed. The home of pyarrow."""

from scalefair.stream.files._pieces import Piece, pieces_of, read_piece
from scalefair.stream.files._scan import Scan, scan_csv, scan_parquet
from scalefair.stream.files._source import FileSource, open_files
from scalefair.stream.files._table import beside, read_table
from scalefair.stream.files._write import check_ending, write_csv, write_tables

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
