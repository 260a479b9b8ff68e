"""Where rows come from; no mathematics here."""

from scalefair.data.sources.base import ArraySource, ChunkSource, Sample, Sampler, is_dask
from scalefair.data.sources.batches import BatchSource
from scalefair.data.sources.dask import DaskSource, connect
from scalefair.data.sources.dask_tasks import made_rows
from scalefair.data.sources.files import FileSource, Scan, scan_csv, scan_parquet
from scalefair.data.sources.stacked import StackedSource

__all__ = [
    "ArraySource", "BatchSource", "ChunkSource", "DaskSource", "FileSource", "Sample", "Sampler",
    "Scan", "StackedSource", "connect", "is_dask", "made_rows", "scan_csv", "scan_parquet",
]  # fmt: skip
