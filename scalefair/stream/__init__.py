"""Where rows come from. Knows no mathematics."""

from scalefair.stream._dask_rows import made_rows
from scalefair.stream._source import ChunkSource, Sample, Sampler
from scalefair.stream.arrays import ArraySource
from scalefair.stream.batches import BatchSource
from scalefair.stream.dask import DaskSource, connect, in_memory, is_dask
from scalefair.stream.files import FileSource, Scan, scan_csv, scan_parquet

__all__ = [
    "ArraySource",
    "BatchSource",
    "ChunkSource",
    "DaskSource",
    "FileSource",
    "Sample",
    "Sampler",
    "Scan",
    "connect",
    "in_memory",
    "is_dask",
    "made_rows",
    "scan_csv",
    "scan_parquet",
]
