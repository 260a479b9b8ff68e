"""A table becomes a problem: target, sensitive attributes, rows to fit and rows to judge by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import smallest_hash
from scalefair._typing import Array, Chunk
from scalefair.data import frames, open_rows
from scalefair.data.sources import Scan
from scalefair.errors import InputError, located

HELD_OUT = 0.2
MAX_HELD_OUT = 50_000
MIN_ROWS = 50
CHUNK_ROWS = 2**16  # Rows of files in memory at once
HASHED_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Inputs (n, d), target (n,) and sensitive attributes (n, p); weights are for the fit alone."""

    X: Any
    y: Any
    sensitive: Any
    weight: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows of positive weight."""
        return len(self.y) if self.weight is None else int(np.count_nonzero(self.weight))

    def fit(self, estimator: Any) -> Any:
        """Return an estimator fitted on these rows."""
        own = {} if self.weight is None else {"sample_weight": self.weight}
        if estimator.sensitive_columns is None:
            own["sensitive_features"] = self.sensitive
        return estimator.fit(self.X, self.y, **own)


@dataclass(frozen=True, eq=False)
class StreamedRows(ReportRows):
    """Rows of files to fit, all `n` but `held_out`; a target of text `levels` is among X, under the name `y`."""

    n: int = 0
    held_out: Any = None
    levels: tuple[str, str] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, whatever their weights: those are not read before the fit."""
        return self.n - len(self.held_out)

    def fit(self, estimator: Any) -> Any:
        """Return an estimator fitted on these rows, whose weights need no memory."""
        S = self.sensitive if estimator.sensitive_columns is None else None
        y = self.y if self.levels is None else None
        source = open_rows(self.X, S, y, self.weight).source.then(self._change)
        return estimator.fit(source, None)

    def _change(self, chunk: Chunk) -> Chunk:
        """Return a chunk in which held-out rows have no weight and the target is a number."""
        ends = np.searchsorted(self.held_out, [chunk.row, chunk.row + chunk.n_rows])
        weight = np.array(chunk.weights)
        weight[self.held_out[slice(*ends)] - chunk.row] = 0.0
        chunk = replace(chunk, weight=weight)
        if self.levels is None:
            return chunk
        inputs = [name for name in frames.column_names(chunk.x) or () if name != self.y]
        y = zeros_and_ones(frames.take_columns(chunk.x, self.y), self.levels)
        return replace(chunk, x=frames.take_columns(chunk.x, inputs), y=y)


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows of files to judge by, read when they are needed: after the fit, not beside it."""

    scan: Scan
    rows: Any
    y: Array
    inputs: list[str]
    names: list[str]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @cached_property
    def _table(self) -> Any:
        return rows_at(self.scan[list(dict.fromkeys([*self.inputs, *self.names]))], self.rows)

    @property
    def X(self) -> Any:
        """Inputs (n, d)."""
        return self._table.select(self.inputs)

    @property
    def sensitive(self) -> Any:
        """Sensitive attributes (n, p)."""
        return self._table.select(self.names)


JudgedRows = ReportRows | HeldOutRows


@dataclass(frozen=True, eq=False)
class ReportProblem:
    """What to predict, from what, and which attributes it should not depend on."""

    source: str  # where the rows come from, in words
    target: str
    sensitive: Sequence[str]
    train: ReportRows
    test: JudgedRows
    held_out: str  # how the rows to judge by were chosen, in words
    levels: tuple[str, str] | None = None  # of a text target, read as 0 and 1
    code: str = ""  # Python that loads X, y and S
    weight: str | None = None  # the column of row weights
    tested: Any = None  # numbers of the rows to judge by, among all `n_rows`
    n_rows: int = 0
    files: str = ""  # their hash

    @property
    def fingerprint(self) -> str:
        """A hash of the files, or of the values in memory."""
        if self.files:
            return self.files
        state = hashlib.sha256()
        for table in (t for part in (self.train, self.test) for t in (part.X, part.y)):
            for column in frames.columns(frames.as_table(table, one_column=True)):
                state.update(column.name.encode())
                text = column.kind == "categorical"
                values, names = column.codes() if text else (column.floats(), [])
                state.update(np.ascontiguousarray(values).tobytes() + "\0".join(names).encode())
        return f"sha256 {state.hexdigest()} (of the values)"

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, none for arrays."""
        if isinstance(self.test, HeldOutRows):
            return self.test.inputs
        return frames.column_names(self.test.X) or []

    @property
    def sees_sensitive(self) -> bool:
        """Whether the sensitive attributes are among the inputs."""
        return {*self.sensitive} <= {*self.inputs}

    @property
    def is_binary(self) -> bool:
        """Whether the target takes just the values 0 and 1; in the test rows if there are many."""
        in_memory = [part.y for part in (self.train, self.test) if isinstance(part.y, np.ndarray)]
        return all(bool(np.isin(y, (0.0, 1.0)).all()) for y in in_memory)


def from_rows(
    X: Any, y: Any, S: Any, *, target: str, source: str, seed: int = 0, code: str = "",
    weight: NDArray[Any] | None = None,
) -> ReportProblem:  # fmt: skip
    """Make a problem of rows in memory; `seed` and the row numbers choose the fifth held out."""
    (column,) = frames.columns(frames.as_table(y, one_column=True), "y")
    values, levels = read_target(replace(column, name=target))
    n = len(values)
    if n < MIN_ROWS:
        raise InputError(
            f"the table has {n} rows; expected at least {MIN_ROWS}, of which a fifth is held out", "give more rows"
        )
    tested = smallest_hash(seed, 0, n, round(HELD_OUT * n))
    train, test = (
        ReportRows(frames.take_rows(X, rows), values[rows], frames.take_rows(S, rows))
        for rows in (np.delete(np.arange(n), tested), tested)
    )
    if weight is not None:
        train = replace(train, weight=np.delete(weight, tested))
    _check_target_varies(target, train.y, "training")
    words = f"{HELD_OUT:.0%} of the rows, chosen at random (seed {seed})"
    return ReportProblem(
        source, target, frames.column_names(S) or [], train, test, words, levels, code, tested=tested, n_rows=n
    )


def from_table(
    table: Any, *, target: str, sensitive: Sequence[str], seed: int = 0, source: str = "a table",
    reading: str = "...", hidden: bool = False, weight: str | None = None,
) -> ReportProblem:  # fmt: skip
    """Make a problem of a table: all other columns are inputs, the sensitive ones unless they are `hidden`."""
    sensitive = check_roles(table, target, sensitive)
    names = _inputs(frames.column_names(table) or [], target, sensitive if hidden else (), weight)
    X, S = frames.take_columns(table, names), frames.take_columns(table, sensitive)
    y = frames.take_columns(table, target)
    w = None if weight is None else frames.to_numpy(frames.take_columns(table, weight))[:, 0]
    problem = from_rows(X, y, S, target=target, source=source, seed=seed, weight=w)
    code = python_code(reading, target, sensitive, problem.levels, names)
    return replace(problem, code=code, weight=weight)


def from_scan(
    scan: Scan, rows: Any = None, *, target: str, sensitive: Sequence[str], seed: int = 0,
    source: str = "files", reading: str = "...", hidden: bool = False, weight: str | None = None,
) -> ReportProblem:  # fmt: skip
    """Make a problem of files; `rows` is the same table as a dask data frame, if a cluster is to fit it."""
    rows = scan if rows is None else rows
    sensitive = check_roles(scan.head(1), target, sensitive)
    n = scan.count_rows()
    tested = np.sort(smallest_hash(seed, 0, n, min(round(HELD_OUT * n), MAX_HELD_OUT)))
    (column,) = frames.columns(rows_at(scan[[target]], tested))
    y, levels = read_target(column)
    _check_target_varies(target, y, "held-out")
    inputs = _inputs(scan.columns, target, sensitive if hidden else (), weight)
    weights = None if weight is None else rows[weight]
    X, labels = rows[inputs], rows[target]
    if levels is not None:
        X, labels = rows[[*inputs, target]], target
    train = StreamedRows(X, labels, rows[sensitive], weights, n, tested, levels)
    test = HeldOutRows(scan, tested, y, inputs, sensitive)
    held_out = f"{len(tested):,} rows, chosen at random (seed {seed})"
    code = python_code(reading, target, sensitive, levels, inputs)
    return ReportProblem(
        source, target, sensitive, train, test, held_out, levels, code, weight, tested, n, hash_files(scan)
    )


def hash_files(scan: Scan) -> str:
    """Return the hash of the bytes of all files."""
    state, listing = hashlib.sha256(), scan.files.listing
    for path in listing.paths:
        with listing.filesystem.open(path, "rb") as file:
            while block := file.read(HASHED_BYTES):
                state.update(block)
    return f"sha256 {state.hexdigest()} (of the files)"


def _inputs(columns: Sequence[str], target: str, hidden: Sequence[str], weight: str | None) -> list[str]:
    return [name for name in columns if name not in (target, weight, *hidden)]


def rows_at(scan: Scan, rows: Any) -> Any:
    """Return the rows with the given numbers, sorted, in one pass."""
    parts = []
    for chunk in open_rows(scan).source.chunks(CHUNK_ROWS):
        low, high = np.searchsorted(rows, [chunk.row, chunk.row + chunk.n_rows])
        if high > low:
            parts.append(frames.take_rows(chunk.x, rows[low:high] - chunk.row))
    return frames.stack_rows(parts)


def zeros_and_ones(column: Any, levels: tuple[str, str]) -> Array:
    """Return a column of two levels as 0 and 1, of shape (n, 1)."""
    (values,) = frames.columns(column)
    codes, names = values.codes()
    other = [repr(name) for name in names if name not in levels]
    if other or (codes < 0).any():
        raise InputError(
            f"target: column {values.name!r} is {[*other, 'missing'][0]} in some row; expected "
            f"{levels[0]!r} or {levels[1]!r} in all",
            "repair or leave out those rows",
            column=values.name,
        )
    return np.array([[float(name == levels[1])] for name in names])[codes]


def read_target(column: frames.Column) -> tuple[Array, tuple[str, str] | None]:
    """Return the target as numbers, and the two text levels that became 0 and 1, if any."""
    what, levels = f"target: column {column.name!r}", None
    if column.kind == "categorical":
        codes, names = column.codes()
        if len(names) != 2:
            shown = ", ".join(map(repr, sorted(names)[:5])) + ", ..." * (len(names) > 5)
            raise InputError(
                f"{what} is text with {len(names)} levels ({shown}); expected two, or numbers",
                "choose another column, or turn it into numbers",
                column=column.name,
            )
        levels = (min(names), max(names))
        y = np.where(codes < 0, np.nan, np.equal(codes, names.index(levels[1])))
    elif column.kind in ("numeric", "boolean", "empty"):
        y = column.floats()
    else:
        raise InputError(f"{what} holds {column.kind} values; expected numbers or two levels", column=column.name)
    if bad := int(np.sum(~np.isfinite(y))):
        raise InputError(
            f"{what} is missing or infinite in {bad} of {len(y)} rows", "leave those rows out", column=column.name
        )
    return y, levels


def _check_target_varies(target: str, y: Array, rows: str) -> None:
    if np.ptp(y) == 0:
        raise InputError(
            f"target: column {target!r} has the same value in all {rows} rows, so there is nothing to predict",
            "choose another column",
            column=target,
        )


def check_roles(table: Any, target: str, sensitive: Sequence[str]) -> list[str]:
    """Return the sensitive columns, each once; ValueError for absent columns or two roles."""
    for argument, chosen in (("target", [target]), ("sensitive", sensitive)):
        with located(argument):
            frames.column_positions(table, chosen)
    if not sensitive:
        raise InputError("sensitive: no column given", "name at least one")
    if target in sensitive:
        raise InputError(f"sensitive: column {target!r} is the target", "name other columns")
    return list(dict.fromkeys(sensitive))


def python_code(
    reading: str, target: str, sensitive: Sequence[str], levels: tuple[str, str] | None, inputs: Sequence[str]
) -> str:
    """Return Python that makes X, y and S."""
    y = f"data[{target!r}]"
    if levels is not None:
        y = f"({y}.read().column(0).to_numpy() == {levels[1]!r}).astype(int)"
    split = f"X, S = data[{list(inputs)!r}], data[{list(sensitive)!r}]"
    return f"\ndata = {reading}\n{split}\ny = {y}"
