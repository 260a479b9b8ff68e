"""The same rows in every container that a fit takes."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa

from scalefair import BatchSource, scan_csv, scan_parquet


def contained(kind, frame, folder, **roles):
    """Return one container for each role: its columns of the frame, or None within batches.

    Parameters
    ----------
    kind : str
        One of `CONTAINERS`.
    frame : pandas.DataFrame
        All columns.
    folder : Path
        For files.
    **roles : str or list of str
        Names of the columns by argument of fit, such as ``X=["age", "job"], y="pay"``.
    """
    return CONTAINERS[kind](frame, folder, roles)


def _polars(frame, _, roles):
    return tuple(pl.from_pandas(frame[columns]) for columns in roles.values())


def _arrow(frame, _, roles):
    parts = (frame[columns] for columns in roles.values())
    return tuple(pa.Table.from_pandas(part) if isinstance(part, pd.DataFrame) else part.to_numpy() for part in parts)


def _parquet(frame, folder, roles):
    """Three files, each of several row groups."""
    third = -(-len(frame) // 3)
    for i in range(3):
        part = frame.iloc[i * third : (i + 1) * third]
        part.to_parquet(folder / f"part-{i}.parquet", index=False, row_group_size=77)
    return columns_of(scan_parquet(folder), roles)


def _csv(frame, folder, roles):
    frame.to_csv(folder / "rows.csv", index=False)
    return columns_of(scan_csv(folder / "rows.csv"), roles)


def _dask(frame, _, roles):
    return columns_of(dd.from_pandas(frame, npartitions=4), roles)


def _dask_of_unknown_lengths(frame, _, roles):
    marked = pd.concat([frame.assign(keep=1), frame.head(50).assign(keep=0)], ignore_index=True)
    lazy = dd.from_pandas(marked, npartitions=6)
    return columns_of(lazy[lazy["keep"] == 1], roles)


def _batches(frame, _, roles):
    def batches():
        for start in range(0, len(frame), 70):
            part = frame.iloc[start : start + 70]
            yield {role: part[columns] for role, columns in roles.items()}

    return BatchSource(batches), *[None] * (len(roles) - 1)


def columns_of(data, roles):
    """Return the columns of each role of anything that is indexed by names."""
    return tuple(data[columns] for columns in roles.values())


CONTAINERS = {
    "polars": _polars,
    "arrow": _arrow,
    "parquet": _parquet,
    "csv": _csv,
    "dask": _dask,
    "dask of unknown lengths": _dask_of_unknown_lengths,
    "batches": _batches,
}
