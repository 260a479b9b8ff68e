"""DATA: files, a dask frame that the workers read, or the built-in Adult table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalefair.cli._output import Console

ADULT = "the built-in Adult census data"
ADULT_TARGET, ADULT_SENSITIVE = "income", ("sex", "race")
MAX_NUMBER_CLASSES = 2
"""A column of numbers is one of classes if it has no more different ones."""

HEAD_ROWS, MIN_HEAD_ROWS = 4096, 20
"""First rows, by which identifiers are known, and how many of them that takes at least."""


@dataclass(frozen=True, eq=False)
class Data:
    """A table by name, whatever holds its rows.

    Parameters
    ----------
    name : str
        For people.
    table : Scan or pandas frame
        The rows; ``table[names]`` selects columns.
    columns : list of str
        Names of the columns.
    client : distributed.Client or None
        Whose workers compute.
    """

    name: str
    table: Any
    columns: list[str]
    client: Any = None

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory."""
        from scalefair.data.sources import Scan

        return not isinstance(self.table, Scan)

    def find(self, argument: str, names: Sequence[str]) -> list[str]:
        """Return columns that exist: "a,b" is two unless a column has just that name."""
        from scalefair.data.frames import resolve_columns
        from scalefair.errors import located

        columns = list(dict.fromkeys(split_names(names, self.columns)))
        with located(argument):
            resolve_columns(columns, self.columns, len(self.columns))
        return columns

    def selection(self, names: Sequence[str]) -> Any:
        """Return a table of some columns to take X, y and the rest from; dask's on a cluster."""
        if self.client is None:
            return self.table[list(names)]
        from scalefair.data.sources.dask_tasks import dask_frame

        return dask_frame(self.table[list(names)])

    def chunks(self, names: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield chunks of the columns `names` as x and of `others`, if any, as s."""
        from scalefair.data.sources import ArraySource, FileSource

        x, s = self.table[list(names)], self.table[list(others)] if others else None
        source = ArraySource(x, s) if self.in_memory else FileSource(x, s)
        return source.chunks(rows)

    def kind(self, name: str) -> str:
        """Return what a column holds: numeric, categorical, boolean, datetime or empty."""
        from scalefair.data.frames import column_kinds

        column = self.table[[name]]
        return str((column_kinds(column) if self.in_memory else column.kinds)[name])

    def codes(self, argument: str, name: str, positive: str | None) -> Any:
        """Return a column of text as 0 and 1, one byte a row; None for other columns.

        `positive` is the level that becomes 1, by default the second one of two.
        """
        import numpy as np

        from scalefair.data import frames

        if self.kind(name) != "categorical":
            return None
        parts: list[Any] = []
        levels: dict[str, int] = {}
        for chunk in self.chunks([name], [], 2**16):
            (column,) = frames.columns(chunk.x)
            codes, names = column.codes()
            if (codes < 0).any():
                raise ValueError(f"{argument}: column {name!r} is missing in some rows; fill it in")
            numbers = [levels.setdefault(level, len(levels)) for level in names]
            parts.append(np.array(numbers, dtype=np.int16)[codes])
        chosen = _positive_level(argument, name, sorted(levels), positive)
        return (np.concatenate(parts) == levels[chosen]).astype(np.int8)

    def identifiers(self, names: Sequence[str]) -> list[str]:
        """Return the columns of text that are different in each of the first rows."""
        from scalefair.data import frames

        text = [name for name in names if self.kind(name) == "categorical"]
        if not text:
            return []
        first = next(iter(self.chunks(text, [], HEAD_ROWS)))
        levels = {column.name: len(column.codes()[1]) for column in frames.columns(first.x)}
        return [name for name, n in levels.items() if n == first.n_rows >= MIN_HEAD_ROWS]

    def is_classes(self, target: str) -> bool:
        """Return True if a column holds classes: text, booleans, or two numbers."""
        import numpy as np

        from scalefair.data import frames

        kind = self.kind(target)
        if kind in ("categorical", "boolean"):
            return True
        if kind != "numeric":
            raise ValueError(
                f"--target: column {target!r} holds {kind} values; expected numbers or classes"
            )
        numbers: set[float] = set()
        for chunk in self.chunks([target], [], 2**16):
            values = frames.to_numpy(chunk.x)[:, 0]
            numbers.update(values[~np.isnan(values)].tolist())
            if len(numbers) > MAX_NUMBER_CLASSES:
                return False
        return True


def _positive_level(argument: str, name: str, levels: list[str], positive: str | None) -> str:
    if positive is None and len(levels) == 2:
        return levels[1]
    if positive not in levels:
        shown = ", ".join(levels[:10]) + (", ..." if len(levels) > 10 else "")
        raise ValueError(
            f"{argument}: column {name!r} has the levels {shown}; name the one that counts as "
            "positive with --positive"
        )
    return positive


def split_names(names: Sequence[str], available: Sequence[str]) -> list[str]:
    """Split "a,b" into columns, unless a column has just that name."""
    parts = ([name] if name in available else name.split(",") for name in names)
    return [part.strip() or part for group in parts for part in group]


def open_data(
    data: str | None,
    *,
    client: Any = None,
    text: Sequence[str] = (),
    delimiter: str = ",",
    subset: Any = "train",
) -> Data:
    """Return the table that DATA means; None is Adult, with its target as the column income.

    Parameters
    ----------
    data : str or None
        A parquet or csv file, a folder or a pattern of them, or a URL.
    client : distributed.Client, optional
        Whose workers compute.
    text : sequence of str
        Columns of a csv that are text, whatever they look like.
    delimiter : str
        Of cells in a csv.
    subset : {"train", "test"}
        Rows of Adult.
    """
    if data is None:
        if client is not None:
            raise ValueError("--scheduler needs DATA, files that the workers can read: name them")
        return _adult(subset)
    from scalefair.data.sources import scan_parquet

    scan = _open_csv(data, text, delimiter) if is_csv(data) else scan_parquet(data)
    return Data(data, scan, scan.columns, client)


def _open_csv(data: str, text: Sequence[str], delimiter: str) -> Any:
    from scalefair.data.sources import scan_csv

    scan = scan_csv(data, delimiter=delimiter)
    if not text:
        return scan
    names = Data(data, scan, scan.columns).find("--text", text)
    types = dict.fromkeys(names, "string")
    return scan_csv(data, delimiter=delimiter, column_types=types)


def is_csv(data: str) -> bool:
    """Return True if DATA is csv: by its name, or for a folder by what is in it."""
    from scalefair.data.sources.files import CSV_ENDINGS, PARQUET_ENDINGS

    name, path = data.lower(), Path(data)
    if name.endswith((*CSV_ENDINGS, *PARQUET_ENDINGS)):
        return name.endswith(CSV_ENDINGS)
    if path.is_dir():
        files = [file.name.lower() for file in path.rglob("*") if file.is_file()]
        some = {ending: any(f.endswith(ending) for f in files) for ending in ("parquet", "csv")}
        return any(f.endswith(CSV_ENDINGS) for f in files) and not some["parquet"]
    if path.is_file():
        _check_magic(path)
    return False


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4)
    if not head:
        raise ValueError(f"{path}: the file is empty; give a parquet or csv file with rows")
    if head != b"PAR1":
        raise ValueError(
            f"{path}: not a parquet file, and its name does not end with .csv; give a parquet "
            "file, a folder of them or a csv file"
        )


def _adult(subset: Any) -> Data:
    from scalefair.datasets import load_adult

    adult = load_adult(subset=subset)
    names = [adult.target_names[i] for i in adult.target]
    table = adult.data.assign(**{ADULT_TARGET: names})
    return Data(ADULT, table, list(table.columns))


@dataclass(frozen=True)
class Reading:
    """DATA and the options about how it is read: the parameters of `open_data`."""

    data: str | None
    text: tuple[str, ...]
    delimiter: str
    scheduler: str | None

    @contextmanager
    def open(self, console: Console, subset: str = "train") -> Iterator[Data]:
        """Open the table for a while, on a cluster if a scheduler is named."""
        with cluster(self.scheduler) as client:
            console(f"reading {self.data or 'the Adult census data'}")
            options: dict[str, Any] = {"text": self.text, "delimiter": self.delimiter}
            yield open_data(self.data, client=client, subset=subset, **options)

    def retyped(self, table: Data, names: Sequence[str]) -> Data:
        """Return the same csv with some columns read as text; other data as they are."""
        present = [name for name in (*names, *self.text) if name in table.columns]
        if table.in_memory or not present or not is_csv(table.name):
            return table
        from scalefair.data.sources import scan_csv

        types = dict.fromkeys(present, "string")
        scan = scan_csv(table.name, delimiter=self.delimiter, column_types=types)
        return Data(table.name, scan, scan.columns, table.client)


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connect to a dask scheduler for a while; None: to none."""
    if address is None:
        yield None
        return
    from scalefair.data.sources.dask import connect

    with connect(address) as client:
        if not client.nthreads():
            raise ConnectionError(f"the dask scheduler at {address} has no workers; start some")
        yield client
