"""A table becomes a problem: target, sensitive attributes, rows to fit and rows to judge by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import smallest_hash
from scalefair._typing import Array
from scalefair.data import frames
from scalefair.data.sources import FileSource, Scan
from scalefair.errors import located

HELD_OUT = 0.2
MAX_HELD_OUT = 50_000
_MIN_ROWS = 50
_CHUNK = 2**16
"""Rows of files in memory at once."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of a problem: inputs (n, d), target (n,) and sensitive attributes (n, p).

    Rows to fit need not be in memory; then `weight` (n,) is 0 for those that are held out.
    """

    X: Any
    y: Any
    sensitive: Any
    weight: NDArray[np.int8] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y) if self.weight is None else int(np.count_nonzero(self.weight))


@dataclass(frozen=True, eq=False)
class Problem:
    """What to predict, from what, and which attributes it should not depend on.

    Parameters
    ----------
    source : str
        Where the rows come from, in words.
    target : str
        Name of the target.
    sensitive : sequence of str
        Names of the sensitive attributes.
    train, test : Sample
        Rows to fit, and rows held out.
    held_out : str
        How the test rows were chosen, in words.
    levels : pair of str, default=None
        The two levels of a text target, read as 0 and 1.
    code : str, default=""
        Python that loads X, y and S.
    """

    source: str
    target: str
    sensitive: Sequence[str]
    train: Sample
    test: Sample
    held_out: str
    levels: tuple[str, str] | None = None
    code: str = ""

    @property
    def sees_sensitive(self) -> bool:
        """Whether the sensitive attributes are among the inputs."""
        return {*self.sensitive} <= {*(frames.column_names(self.test.X) or ())}

    @property
    def is_binary(self) -> bool:
        """Whether the target takes just the values 0 and 1; in the test rows if there are many."""
        in_memory = [part.y for part in (self.train, self.test) if isinstance(part.y, np.ndarray)]
        return all(bool(np.isin(y, (0.0, 1.0)).all()) for y in in_memory)


def from_table(
    table: Any,
    *,
    target: str,
    sensitive: Sequence[str],
    seed: int = 0,
    source: str = "a table",
    reading: str = "...",
) -> Problem:
    """Make a problem of a table, with a fifth of its rows held out.

    Parameters
    ----------
    table : pandas, polars or pyarrow table of shape (n, d)
        All columns but the target are inputs, the sensitive ones too.
    target : str
        A column of numbers, of booleans, or of text with two levels.
    sensitive : sequence of str
        Columns that the predictions should not depend on.
    seed : int, default=0
        Decides which rows are held out, with their row numbers alone.
    source : str
        Where the table comes from, in words.
    reading : str
        Python that opens it again as a scan of files.
    """
    sensitive = list(dict.fromkeys(sensitive))
    check_roles(table, target, sensitive)
    y, levels = read_target(table, target)
    X, S = frames.drop_columns(table, target), frames.take_columns(table, sensitive)
    train, test, held_out = hold_out(X, y, S, seed)
    if np.ptp(train.y) == 0:
        raise ValueError(
            f"target: column {target!r} has the same value in all training rows, so there is "
            "nothing to predict; choose another column"
        )
    code = python_code(reading, target, sensitive, levels)
    return Problem(source, target, sensitive, train, test, held_out, levels, code)


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
    check_roles(scan.head(1), target, sensitive)
    n = scan.count_rows()
    tested = np.sort(smallest_hash(seed, 0, n, min(round(HELD_OUT * n), MAX_HELD_OUT)))
    table = _rows_at(scan, tested)
    y, levels = read_target(table, target)
    if np.ptp(y) == 0:
        raise ValueError(
            f"target: column {target!r} has the same value in all held-out rows; choose another"
        )
    weight = np.ones(n, dtype=np.int8)
    weight[tested] = 0
    inputs = [name for name in scan.columns if name != target]
    labels = rows[target] if levels is None else _zeros_and_ones(scan[target], levels)
    train = Sample(rows[inputs], labels, rows[sensitive], weight)
    test = Sample(table.select(inputs), y, table.select(sensitive))
    held_out = f"{len(tested):,} rows, chosen at random (seed {seed})"
    code = python_code(reading, target, sensitive, levels)
    return Problem(source, target, sensitive, train, test, held_out, levels, code)


def _rows_at(scan: Scan, rows: Any) -> Any:
    """Return the rows with the given numbers, sorted, in one pass."""
    parts = []
    for chunk in FileSource(scan).chunks(_CHUNK):
        low, high = np.searchsorted(rows, [chunk.row, chunk.row + chunk.n_rows])
        if high > low:
            parts.append(frames.take_rows(chunk.x, rows[low:high] - chunk.row))
    return frames.stack_rows(parts)


def _zeros_and_ones(column: Scan, levels: tuple[str, str]) -> Any:
    """Return a column of two levels as 0 and 1, one byte a row."""
    parts = []
    for chunk in FileSource(column).chunks(_CHUNK):
        (values,) = frames.columns(chunk.x)
        codes, names = values.codes()
        strange = [name for name in names if name not in levels]
        if strange or (codes < 0).any():
            what = repr(strange[0]) if strange else "missing"
            raise ValueError(
                f"target: column {values.name!r} is {what} in some row; expected {levels[0]!r} or "
                f"{levels[1]!r} in all: repair or leave out those rows"
            )
        parts.append(np.array([name == levels[1] for name in names], dtype=np.int8)[codes])
    return np.concatenate(parts)


def read_target(table: Any, target: str) -> tuple[Array, tuple[str, str] | None]:
    """Return the target as numbers, and the two text levels that became 0 and 1, if any."""
    (column,) = frames.columns(frames.take_columns(table, target))
    levels = None
    if column.kind in ("numeric", "boolean"):
        y = column.floats()
    elif column.kind == "categorical":
        y, levels = _two_levels(column)
    else:
        raise ValueError(
            f"target: column {target!r} holds {column.kind} values; expected numbers or two levels"
        )
    bad = int(np.sum(~np.isfinite(y)))
    if bad:
        raise ValueError(
            f"target: column {target!r} is missing or infinite in {bad} of {len(y)} rows; leave "
            "those rows out"
        )
    return y, levels


def _two_levels(column: frames.Column) -> tuple[Array, tuple[str, str]]:
    codes, levels = column.codes()
    if len(levels) != 2:
        shown = ", ".join(map(repr, sorted(levels)[:5])) + ", ..." * (len(levels) > 5)
        raise ValueError(
            f"target: column {column.name!r} is text with {len(levels)} levels ({shown}); expected "
            "numbers or two levels: choose another column, or turn it into numbers"
        )
    low, high = sorted(levels)
    y = np.where(codes < 0, np.nan, np.equal(codes, levels.index(high)))
    return y, (low, high)


def check_roles(table: Any, target: str, sensitive: Sequence[str]) -> None:
    """Raise ValueError if a table lacks columns, or if they have two roles."""
    for argument, chosen in (("target", [target]), ("sensitive", sensitive)):
        with located(argument):
            frames.column_positions(table, chosen)
    if not sensitive:
        raise ValueError("sensitive: no column given; name at least one")
    if target in sensitive:
        raise ValueError(f"sensitive: column {target!r} is the target; name other columns")


def python_code(
    reading: str, target: str, sensitive: Sequence[str], levels: tuple[str, str] | None
) -> str:
    """Return Python that makes X, y and S."""
    y = f"data[{target!r}]"
    if levels is not None:
        y = f"({y}.read().column(0).to_numpy() == {levels[1]!r}).astype(int)"
    return "\n".join(
        [
            "",
            f"data = {reading}",
            f"X, S = data.drop({target!r}), data[{list(sensitive)!r}]",
            f"y = {y}",
        ]
    )


def hold_out(X: Any, y: Array, S: Any, seed: int) -> tuple[Sample, Sample, str]:
    """Return rows to fit, a fifth of the rows to judge by, and how they were chosen, in words."""
    n = len(y)
    if n < _MIN_ROWS:
        raise ValueError(
            f"the table has {n} rows; expected at least {_MIN_ROWS}, of which a fifth is held "
            "out: give more rows"
        )
    tested = smallest_hash(seed, 0, n, round(HELD_OUT * n))
    train, test = (
        Sample(frames.take_rows(X, rows), y[rows], frames.take_rows(S, rows))
        for rows in (np.delete(np.arange(n), tested), tested)
    )
    return train, test, f"{HELD_OUT:.0%} of the rows, chosen at random (seed {seed})"
