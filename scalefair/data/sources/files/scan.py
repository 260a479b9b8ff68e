"""Columns of files that are read when a fit or a prediction needs them, streamed or in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from scalefair._typing import Chunk
from scalefair.data import frames
from scalefair.data.frames import Kind
from scalefair.data.sources.base import ARGUMENTS, ChunkSource, finite_columns, weights
from scalefair.data.sources.files.base import Files, Piece, kind_of, no_rows
from scalefair.data.sources.files.csv import CSV_ENDINGS, CsvFiles
from scalefair.data.sources.files.parquet import PARQUET_ENDINGS, ParquetFiles
from scalefair.data.sources.files.paths import PathOrPaths, find_files
from scalefair.errors import resolve_columns

# Rows of parquet and bytes of csv from which on a piece is long enough
PIECE_ROWS, PIECE_BYTES = 2**17, 2**25

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
    def is_csv(self) -> bool:
        """Whether the files are csv, not parquet."""
        return isinstance(self.files, CsvFiles)

    @property
    def n_rows(self) -> int | None:
        """Number of rows: of parquet from the ends of the files, of csv None until counted."""
        return self.files.n_rows

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column holds: "numeric", "categorical", "boolean", "datetime" or "empty"."""
        return {field.name: kind_of(field) for field in self.files.schema(self.selected)}

    def __getitem__(self, chosen: Chosen) -> Scan:
        """Return the scan of one column, ``scan["y"]``, or of several, ``scan[["a", "b"]]``."""
        return self._at(resolve_columns(chosen, self.selected, len(self.selected)))

    def drop(self, chosen: Chosen) -> Scan:
        """Return the scan of all columns but some."""
        gone = set(resolve_columns(chosen, self.selected, len(self.selected)))
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
            raise ValueError(no_rows(self.files.listing.names))
        return pa.concat_tables(tables)

    def count_rows(self) -> int:
        """Return the number of rows, reading the files once if need be."""
        if self.n_rows is not None:
            return self.n_rows
        return sum(table.num_rows for _, table in self.files.tables(self.selected[:1], 2**16))

    def __len__(self) -> int:
        if self.n_rows is None:
            raise TypeError(
                "the number of rows of a csv is not known before it has been read; count_rows() reads it once"
            )
        return self.n_rows

    def __bool__(self) -> bool:
        return True

    __iter__ = None

    def __repr__(self) -> str:
        names = self.files.listing.names
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown = ", ".join(self.selected[:8]) + (", ..." if len(self.selected) > 8 else "")
        return f"<Scan of {names[0]}{more}: {len(self.selected)} columns {shown}>"

    def _at(self, positions: list[int]) -> Scan:
        names = tuple(self.selected[j] for j in positions)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"columns {list(names)}; expected at least one, and each only once")
        return replace(self, selected=names)


def scan_parquet(path: PathOrPaths, *, columns: Chosen | None = None, filesystem: Any = None) -> Scan:
    """Open parquet files without reading their rows.

    Parameters
    ----------
    path : str, path, or list of them
        A file, a folder, a pattern such as ``"people/*/part-?.parquet"``, or a list. Folders named like ``state=CA``
        below the folder or the pattern's fixed part give a column. URLs (``s3://…``, ``memory://…``) are opened by
        fsspec. The rows of a folder come in the natural order of its file names, those of a list in the order given.
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
    return _scan_of(ParquetFiles(find_files(path, filesystem, PARQUET_ENDINGS)), columns)


def scan_csv(
    path: PathOrPaths, *, columns: Chosen | None = None,
    column_types: Mapping[str, Any] | None = None, delimiter: str | None = None, decimal: str = ".",
    encoding: str = "utf-8", filesystem: Any = None,
) -> Scan:  # fmt: skip
    """Open csv files with a header, compressed or not, reading only their first rows.

    The first rows decide the type of each column for all rows of all files, whole numbers being read as float64. A
    later cell that does not fit is a ValueError. An empty cell, NA, NaN or null without quotes is a missing value. A
    first column without a name, as pandas writes its index, is left out with a warning. Another warning names the cell
    that turns a column of numbers into text.

    Parameters
    ----------
    path : str, path, or list of them
        As for `scan_parquet`.
    columns : str or list of str, optional
        Columns to keep; by default all.
    column_types : dict of str to str or pyarrow type, optional
        Types that the first rows would not show: ``{"zip": "string"}``.
    delimiter : str, optional
        What separates cells; by default a comma, in files named .tsv a tab.
    decimal : str
        What separates the decimals of a number.
    encoding : str
        Of the text, for instance "latin-1" or "utf-16".
    filesystem : fsspec or pyarrow filesystem, optional
        Where the path leads; by default as its URL says.

    Returns
    -------
    Scan
    """
    listing = find_files(path, filesystem, CSV_ENDINGS)
    return _scan_of(CsvFiles(listing, column_types or {}, delimiter, decimal, encoding), columns)


def scan_files(path: PathOrPaths, **options: Any) -> Scan:
    """Open parquet, by an ending or the first bytes, or csv with the `options` of `scan_csv`."""
    listing = find_files(path, None, (*PARQUET_ENDINGS, *CSV_ENDINGS))
    with listing.filesystem.open(listing.paths[0]) as file:
        binary = file.read(4) == b"PAR1"
    if binary or any(file.lower().endswith(PARQUET_ENDINGS) for file in listing.paths):
        return scan_parquet(path)
    return scan_csv(path, **options)


def _scan_of(files: Files, columns: Chosen | None) -> Scan:
    scan = Scan(files, tuple(files.columns))
    return scan if columns is None else scan[columns]


class FileSource(ChunkSource):
    """Rows of a scan, read once per pass, beside selections of its files and rows in memory."""

    def __init__(
        self, x: Scan, s: Any = None, y: Any = None, weight: Any = None, c: Any = None, *,
        names: Mapping[str, str] = ARGUMENTS, n_threads: int | None = None,
    ) -> None:  # fmt: skip
        self.n_threads = n_threads
        if not isinstance(x, Scan):
            raise TypeError(f"X is a {type(x).__name__}; expected a Scan (scalefair.scan_parquet)")
        self.x, self._names = x, names
        self._parts = {"x": x, "s": s, "y": y, "weight": weight, "c": c}
        scans = [part for part in self._parts.values() if isinstance(part, Scan)]
        self._columns = list(dict.fromkeys(name for scan in scans for name in scan.columns))
        for name, part in self._parts.items():
            if isinstance(part, Scan):
                self._check_scan(name, part)
        if self.n_rows is not None:
            self._check_lengths(self.n_rows)

    def _check_scan(self, part: str, scan: Scan) -> None:
        name = self._names[part]
        if scan.files.key != self.x.files.key:
            raise ValueError(
                f"{name} is a scan of other files than {self._names['x']} ({scan!r} and "
                f"{self.x!r}); select the columns of one scan: data = scan_parquet(path); "
                "data.drop('y'), data['y']"
            )
        schema = scan.files.schema(scan.selected)
        for column in schema:
            kind_of(column)  # refuses what no encoder can read
        if part == "y":
            finite_columns(schema.empty_table(), part, name, 0)
        elif part == "weight":
            weights(schema.empty_table(), name, 0)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if unknown before a pass."""
        return self.x.n_rows

    def _read(self, rows: int) -> Iterator[Chunk]:
        row = 0
        parallel = self.n_threads != 1
        for where, table in self.x.files.tables(self._columns, rows, parallel=parallel):
            yield self._chunk(table, row, where)
            row += table.num_rows
        self._check_lengths(row)

    def _chunk(self, table: pa.Table, row: int, where: str) -> Chunk:
        x, s, y, weight, c = (self._part(part, table, row) for part in self._parts)
        y, weight = finite_columns(y, "y", where, row), weights(weight, where, row)
        return Chunk(x, s, y, weight, row, where, c)

    def _part(self, name: str, table: pa.Table, row: int) -> Any:
        part = self._parts[name]
        if isinstance(part, Scan):
            return table.select(part.columns)
        if part is None:
            return None
        stop = row + table.num_rows
        if frames.n_rows(part) < stop:
            raise self._other_length(name, f"at least {stop}")
        return frames.slice_rows(part, row, stop)

    def _check_lengths(self, n: int) -> None:
        if n == 0:
            raise ValueError(no_rows(self.x.files.listing.names))
        for name, part in self._parts.items():
            if part is not None and not isinstance(part, Scan) and frames.n_rows(part) != n:
                raise self._other_length(name, str(n))

    def _other_length(self, name: str, rows: str) -> ValueError:
        return ValueError(
            f"{self._names[name]} has {frames.n_rows(self._parts[name])} rows but the files of "
            f"{self._names['x']} have {rows}; give one row for each row of the files, in the same "
            "order, or a column of the files"
        )


def pieces_of(scan: Scan, *, rows: int = PIECE_ROWS, size: int = PIECE_BYTES) -> list[Piece]:
    """Return the pieces of the files of a scan in order; quoted line breaks of csv end a row."""
    return scan.files.pieces(rows, size)


def read_piece(scan: Scan, piece: Piece) -> pa.Table:
    """Return the rows of one piece."""
    return scan.files.read_piece(scan.selected, piece)


def release_memory() -> None:
    """Return to the system what Arrow and the C library keep for later, before work that needs other memory."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
