"""Tables on disk and in remote stores: parquet and csv, whole or streamed. The home of pyarrow."""

from scalefair.stream.files._scan import Scan, scan_csv, scan_parquet
from scalefair.stream.files._source import FileSource, open_files
from scalefair.stream.files._table import read_table

__all__ = ["FileSource", "Scan", "open_files", "read_table", "scan_csv", "scan_parquet"]
