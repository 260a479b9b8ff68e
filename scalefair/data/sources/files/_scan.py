"""Columns of files that are read when a fit or a prediction needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from scalefair.data.frames import Kind, resolve_columns
from scalefair.data.sources.files._base import Files, no_rows
from scalefair.data.sources.files._csv import CSV_ENDINGS, CsvFiles
from scalefair.data.sources.files._parquet import PARQUET_ENDINGS, ParquetFiles
from scalefair.data.sources.files._paths import PathOrPaths, find_files

Chosen = str | int | Iterable[str | int]


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """Some columns of files on disk or in a remote store, which need not fit in memory.

    `scan_parquet` and `scan_csv` make one. Selections of one scan go together into a fit::

        data = scalefair.scan_parquet("people/")
        model.fit(data.drop(["income", "race"]), data["income"], sensitive_features=data["race"])

    Parameters
    ----------
    files : Files
        The files.
    selected : tuple of str
        The columns.
    """

    files: Files
    selected: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.selected)

    @property
    def n_rows(self) -> int | None:
        """Number of rows: of parquet from the ends of the files, of csv None until counted."""
        return self.files.n_rows

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column holds: numeric, categorical, boolean, datetime or nothing at all."""
        return self.files.kinds(self.selected)

    def __getitem__(self, chosen: Chosen) -> Scan:
        """Return the scan of one column, ``scan["y"]``, or of several, ``scan[["a", "b"]]``."""
        return self._at(self._positions(chosen))

    def drop(self, chosen: Chosen) -> Scan:
        """Return the scan of all columns but some."""
        gone = set(self._positions(chosen))
        return self._at([j for j in range(len(self.selected)) if j not in gone])

    def head(self, n: int = 5) -> pa.Table:
        """Return the first `n` rows."""
        if n < 0:
            raise ValueError(f"n={n}; expected a number of rows, at least 0")
        tables, missing = [self.files.schema(self.selected).empty_table()], n
        for _, table in self.files.tables(self.selected, max(n, 1)):
            tables.append(table[:missing])
            missing -= tables[-1].num_rows
            if missing == 0:
                break
        return pa.concat_tables(tables).combine_chunks()

    def read(self) -> pa.Table:
        """Return all rows, in memory; a table without rows is a ValueError."""
        tables = [table for _, table in self.files.tables(self.selected, 2**16)]
        if not tables:
            raise ValueError(no_rows(self.files.found.names))
        return pa.concat_tables(tables)

    def count_rows(self) -> int:
        """Return the number of rows, reading the files once where nothing else tells."""
        if self.n_rows is not None:
            return self.n_rows
        return sum(table.num_rows for _, table in self.files.tables(self.selected[:1], 2**16))

    def __len__(self) -> int:
        if self.n_rows is None:
            raise TypeError(
                "the number of rows of a csv is not known before it has been read; count_rows() "
                "reads it once"
            )
        return self.n_rows

    def __bool__(self) -> bool:
        return True

    __iter__ = None

    def __repr__(self) -> str:
        names = self.files.found.names
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown = ", ".join(self.selected[:8]) + (", ..." if len(self.selected) > 8 else "")
        return f"<Scan of {names[0]}{more}: {len(self.selected)} columns {shown}>"

    def _positions(self, chosen: Chosen) -> list[int]:
        return resolve_columns(chosen, self.selected, len(self.selected))

    def _at(self, positions: list[int]) -> Scan:
        names = tuple(self.selected[j] for j in positions)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"columns {list(names)}; expected at least one, and each only once")
        return replace(self, selected=names)


def scan_parquet(
    path: PathOrPaths, *, columns: Chosen | None = None, filesystem: Any = None
) -> Scan:
    """Open parquet files without reading their rows.

    Parameters
    ----------
    path : str, path, or list of them
        A file, a folder, a pattern such as ``"people/*/part-?.parquet"``, or a list. Folders named
        like ``state=CA`` below the folder or the pattern's fixed part give a column. URLs
        (``s3://…``, ``memory://…``) are opened by fsspec. The rows of a folder come in the natural
        order of its file names, those of a list in the order given.
    columns : str or list of str, optional
        Columns to keep; by default all.
    filesystem : fsspec or pyarrow filesystem, optional
        Where the path leads; by default as its URL says.

    Returns
    -------
    Scan

    Raises
    ------
    OSError
        The path matches nothing (FileNotFoundError) or may not be read.
    ValueError
        A file is not parquet or is damaged, or a column is unknown.
    """
    return _scan(ParquetFiles(find_files(path, filesystem, PARQUET_ENDINGS)), columns)


def scan_csv(
    path: PathOrPaths,
    *,
    columns: Chosen | None = None,
    column_types: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    filesystem: Any = None,
) -> Scan:
    """Open csv files with a header, compressed or not, reading only their first rows.

    The first rows decide the type of each column for all rows of all files, whole numbers being
    read as float64. A later cell that does not fit is a ValueError. An empty cell, NA, NaN or null
    without quotes is a missing value.

    Parameters
    ----------
    path : str, path, or list of them
        As for `scan_parquet`.
    columns : str or list of str, optional
        Columns to keep; by default all.
    column_types : dict of str to str or pyarrow type, optional
        Types that the first rows would not tell: ``{"zip": "string"}``.
    delimiter : str
        What separates cells.
    filesystem : fsspec or pyarrow filesystem, optional
        Where the path leads; by default as its URL says.

    Returns
    -------
    Scan
    """
    found = find_files(path, filesystem, CSV_ENDINGS)
    return _scan(CsvFiles(found, column_types or {}, delimiter), columns)


def _scan(files: Files, columns: Chosen | None) -> Scan:
    scan = Scan(files, tuple(files.columns))
    return scan if columns is None else scan[columns]
