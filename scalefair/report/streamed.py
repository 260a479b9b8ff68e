"""A problem whose rows do not fit in memory: they are fitted where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalefair import _frames
from scalefair._hash import smallest_hash
from scalefair.report.problem import (
    HELD_OUT,
    Problem,
    Sample,
    check_columns,
    python_code,
    read_target,
)
from scalefair.stream import FileSource, Scan

MOST_HELD_OUT = 50_000
_ROWS = 2**16


def from_scan(
    scan: Scan,
    rows: Any = None,
    *,
    target: str,
    sensitive: Sequence[str],
    seed: int = 0,
    source: str = "files",
    reading: str = "...",
) -> Problem:
    """Make a problem of files: rows to judge by in memory, the rest by weight.

    Parameters
    ----------
    scan : Scan
        All columns but the target are inputs.
    rows : dask data frame, default=None
        The same rows, if a cluster is to fit them.
    target, sensitive, seed, source, reading
        As for :func:`from_table`.
    """
    sensitive, rows = list(dict.fromkeys(sensitive)), scan if rows is None else rows
    check_columns(scan.head(1), target, sensitive)
    n = scan.count_rows()
    tested = np.sort(smallest_hash(seed, 0, n, min(round(HELD_OUT * n), MOST_HELD_OUT)))
    held = _rows_at(scan, tested)
    y, levels = read_target(held, target)
    if np.ptp(y) == 0:
        raise ValueError(
            f"target: column {target!r} has the same value in all held-out rows; choose another"
        )
    weight = np.ones(n, dtype=np.int8)
    weight[tested] = 0
    inputs = [name for name in scan.columns if name != target]
    labels = rows[target] if levels is None else _coded(scan[target], levels)
    train = Sample(rows[inputs], labels, rows[sensitive], weight)
    test = Sample(held.select(inputs), y, held.select(sensitive))
    held_out = f"{len(tested):,} rows, chosen at random (seed {seed})"
    code = python_code(reading, target, sensitive, levels)
    return Problem(source, target, sensitive, train, test, held_out, levels, code)


def _rows_at(scan: Scan, rows: Any) -> Any:
    """Return the rows with the given numbers, sorted, in one pass."""
    parts = []
    for chunk in FileSource(scan).chunks(_ROWS):
        low, high = np.searchsorted(rows, [chunk.row, chunk.row + chunk.n_rows])
        if high > low:
            parts.append(_frames.take_rows(chunk.x, rows[low:high] - chunk.row))
    return _frames.stack_rows(parts)


def _coded(column: Scan, levels: tuple[str, str]) -> Any:
    """Return a column of two levels as 0 and 1, one byte a row."""
    parts = []
    for chunk in FileSource(column).chunks(_ROWS):
        (found,) = _frames.columns(chunk.x)
        codes, names = found.codes()
        strange = [name for name in names if name not in levels]
        if strange or (codes < 0).any():
            what = repr(strange[0]) if strange else "missing"
            raise ValueError(
                f"target: column {found.name!r} is {what} in some row; expected {levels[0]!r} or "
                f"{levels[1]!r} in all: repair or leave out those rows"
            )
        parts.append(np.array([name == levels[1] for name in names], dtype=np.int8)[codes])
    return np.concatenate(parts)
