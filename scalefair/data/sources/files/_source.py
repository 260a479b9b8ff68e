"""Rows of files, streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from scalefair._typing import Chunk
from scalefair.data import frames
from scalefair.data.sources.base import ChunkSource, targets, weights
from scalefair.data.sources.files._base import no_rows
from scalefair.data.sources.files._scan import Scan

_NAMES = ("X", "sensitive_features", "y", "sample_weight", "control_features")


class FileSource(ChunkSource):
    """Rows of a scan, read once per pass, whatever parts their columns belong to.

    Parameters
    ----------
    x : Scan
        Inputs.
    s, y : Scan or array-like of shape (n,) or (n, ·), or None
        Sensitive attributes, targets. Scans must be selections of the files of `x`; what is in
        memory has one row for each row of the files, in their order.
    weight : Scan of one column, array-like of shape (n,), or None
        Row weights.
    c : Scan or array-like of shape (n,) or (n, ·), or None
        Control features; columns may be those of another part, too.
    n_threads : int or None
        Chunks in flight at once; None: one per core that BLAS may use.
    """

    def __init__(
        self,
        x: Scan,
        s: Any = None,
        y: Any = None,
        weight: Any = None,
        c: Any = None,
        *,
        n_threads: int | None = None,
    ) -> None:
        self.n_threads = n_threads
        if not isinstance(x, Scan):
            raise TypeError(f"X is a {type(x).__name__}; expected a Scan (scalefair.scan_parquet)")
        self.x, self.s, self.y, self.weight, self.c = x, s, y, weight, c
        self._parts = dict(zip(_NAMES, (x, s, y, weight, c), strict=True))
        scans = [part for part in self._parts.values() if isinstance(part, Scan)]
        self._columns = list(dict.fromkeys(name for scan in scans for name in scan.columns))
        self._check()

    def _check(self) -> None:
        for name, part in self._parts.items():
            if isinstance(part, Scan):
                _check_scan(name, part, self.x)
        if self.n_rows == 0:
            raise ValueError(no_rows(self.x.files.found.names))
        if self.n_rows is not None:
            self._check_lengths(self.n_rows)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where only a pass can tell."""
        return self.x.n_rows

    def _read(self, rows: int) -> Iterator[Chunk]:
        row = 0
        parallel = self.n_threads != 1
        for where, table in self.x.files.tables(self._columns, rows, parallel=parallel):
            yield self._chunk(table, row, where)
            row += table.num_rows
        if row == 0:
            raise ValueError(no_rows(self.x.files.found.names))
        self._check_lengths(row)

    def _chunk(self, table: pa.Table, row: int, where: str) -> Chunk:
        x, s, y, weight, c = (self._part(name, table, row) for name in _NAMES)
        return Chunk(x, s, targets(y, where, row), weights(weight, where, row), row, where, c)

    def _part(self, name: str, table: pa.Table, row: int) -> Any:
        part = self._parts[name]
        if isinstance(part, Scan):
            return table.select(part.columns)
        if part is None:
            return None
        stop = row + table.num_rows
        if frames.n_rows(part) < stop:
            raise ValueError(_other_length(name, part, f"at least {stop}"))
        return frames.slice_rows(part, row, stop)

    def _check_lengths(self, n: int) -> None:
        for name, part in self._parts.items():
            if part is not None and not isinstance(part, Scan) and frames.n_rows(part) != n:
                raise ValueError(_other_length(name, part, str(n)))


def open_files(
    x: Scan, s: Any = None, y: Any = None, weight: Any = None, n_threads: int | None = None
) -> FileSource:
    """Return the source of the rows of `x`, with the other parts beside them."""
    return FileSource(x, s, y, weight, n_threads=n_threads)


def _check_scan(name: str, part: Scan, x: Scan) -> None:
    if part.files.key != x.files.key:
        raise ValueError(
            f"{name} is a scan of other files than X ({part!r} and {x!r}); select the columns of "
            "one scan: data = scan_parquet(path); data.drop('y'), data['y']"
        )
    kinds = part.kinds  # complains of columns that no encoder can read
    if name in ("y", "sample_weight") and "categorical" in kinds.values():
        text = [column for column, kind in kinds.items() if kind == "categorical"]
        raise ValueError(f"{name}: column {text[0]!r} is text; expected numbers: convert it")
    if name == "sample_weight" and len(kinds) > 1:
        raise ValueError(f"sample_weight has the columns {part.columns}; expected one column")


def _other_length(name: str, part: Any, rows: str) -> str:
    return (
        f"{name} has {frames.n_rows(part)} rows but the files of X have {rows}; give one row for "
        "each row of the files, in the same order, or a column of the files"
    )
