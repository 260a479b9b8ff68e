"""DATA and the options that commands share: which table, which columns, what is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial, reduce, wraps
from glob import glob
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from scalefair.cli._console import Console, OutPath, Share, WrittenFile, noting_warnings
from scalefair.errors import InputError, located, resolve_columns

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

ADULT = "the built-in Adult census data"
ADULT_TARGET, ADULT_SENSITIVE = "income", ("sex", "race")
MAX_NUMBER_CLASSES = 2  # a column of numbers is one of classes if it has no more different ones
# First rows, by which identifiers are known, and how many of them that takes at least
HEAD_ROWS, MIN_HEAD_ROWS = 4096, 20
CHUNK_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class Data:
    """A table by name: a Scan of files, or the pandas frame of Adult; `client` computes, if any."""

    name: str
    table: Any
    client: Any = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.columns)

    @property
    def is_built_in(self) -> bool:
        """Whether it is Adult, which is in memory."""
        return self.name == ADULT

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where only a pass can find out."""
        return len(self.table) if self.is_built_in else self.table.n_rows

    def find(self, argument: str, names: Sequence[str]) -> list[str]:
        """Return columns that exist: "a,b" is two unless a column has just that name."""
        return find_columns(argument, names, self.columns)

    def find_sensitive(self, names: Sequence[str]) -> list[str]:
        """Return the sensitive columns, of which there must be one at least."""
        if not names:
            raise click.UsageError("--sensitive is needed with DATA: add --sensitive NAME")
        return self.find("--sensitive", names)

    def find_one(self, argument: str, name: str | None) -> str | None:
        """Return a column that exists; None stays None."""
        return None if name is None else self.find(argument, [name])[0]

    def selection(self, names: Sequence[str]) -> Any:
        """Return a table of some columns to take X, y and the rest from; dask's on a cluster."""
        if self.client is None:
            return self.table[list(names)]
        from scalefair.data.sources.dask_tasks import dask_frame

        return dask_frame(self.table[list(names)])

    def take(self, **parts: Sequence[str] | str | None) -> dict[str, Any]:
        """Return the columns of each part, or its only column by name, from one selection; None for none."""
        named = [name for part in parts.values() for name in ([part] if isinstance(part, str) else part or ())]
        rows = self.selection(list(dict.fromkeys(named)))
        return {name: rows[part] if part else None for name, part in parts.items()}

    def chunks(self, names: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield chunks of the columns `names` as x and of `others`, if any, as s."""
        from scalefair.data import open_rows

        s = self.table[list(others)] if others else None
        return open_rows(self.table[list(names)], s).source.chunks(rows)

    def kind(self, name: str) -> str:
        """Return what a column holds: numeric, categorical, boolean, datetime or empty."""
        from scalefair.data.frames import column_kinds

        column = self.table[[name]]
        return str((column_kinds(column) if self.is_built_in else column.kinds)[name])

    def codes(self, argument: str, name: str, positive: str | None, remedy: str) -> Any:
        """Return text as 0 and 1; `positive`, by default the second of two levels, is 1. None for other columns."""
        import numpy as np

        from scalefair.data import frames

        if self.kind(name) != "categorical":
            if positive is not None:
                what = f"--positive {positive}: column {name!r} is {self.kind(name)}, not text, so 1 is positive"
                raise InputError(what, "leave it out", column=name, where="--positive")
            return None
        parts: list[Any] = []
        levels: dict[str, int] = {}
        for chunk in self.chunks([name], [], CHUNK_ROWS):
            (column,) = frames.columns(chunk.x)
            codes, names = column.codes()
            if (codes < 0).any():
                what = f"{argument}: column {name!r} is missing in some rows"
                raise InputError(what, "fill it in", column=name, where=argument)
            numbers = [levels.setdefault(level, len(levels)) for level in names]
            parts.append(np.array(numbers, dtype=np.int16)[codes])
        known = sorted(levels)
        positive = known[1] if positive is None and len(known) == 2 else positive
        if positive not in levels:
            shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            unknown = "" if positive is None else f"--positive {positive} is none of them; "
            raise InputError(f"{argument}: column {name!r} has the levels {shown}", unknown + remedy, column=name)
        return (np.concatenate(parts) == levels[positive]).astype(np.int8)

    def useless(self, names: Sequence[str]) -> dict[str, str]:
        """Return why columns are of no use: text that differs in all first rows, or no value."""
        from scalefair.data import frames

        reasons: dict[str, str] = {}
        if not names:
            return reasons
        first = next(iter(self.chunks(names, [], HEAD_ROWS)))
        for column in frames.columns(first.x):
            texts = len(column.codes()[1]) if column.kind == "categorical" else 0
            if texts == first.n_rows >= MIN_HEAD_ROWS:
                what = f"column {column.name!r} is different in every row, an identifier"
                reasons[column.name] = what
            elif column.missing().all():  # perhaps in all other rows, too
                tables = (chunk.x for chunk in self.chunks([column.name], [], CHUNK_ROWS))
                if all(frames.columns(table)[0].missing().all() for table in tables):
                    reasons[column.name] = f"column {column.name!r} has no value in any row"
        return reasons

    def is_classes(self, target: str) -> bool:
        """Return True if a column holds classes: text, booleans, or two numbers."""
        import numpy as np

        from scalefair.data import frames

        kind = self.kind(target)
        if kind in ("categorical", "boolean"):
            return True
        if kind != "numeric":
            what = f"--target: column {target!r} holds {kind} values; expected numbers or classes"
            raise InputError(what, column=target, where="--target")
        numbers: set[float] = set()
        n_rows = 0
        for chunk in self.chunks([target], [], CHUNK_ROWS):
            values = frames.to_numpy(chunk.x)[:, 0]
            numbers.update(values[~np.isnan(values)].tolist())
            n_rows += chunk.n_rows
            if len(numbers) > MAX_NUMBER_CLASSES:
                return False
        if n_rows < 2:
            raise InputError(f"{self.name}: the table has one row", "give at least two")
        if len(numbers) == 1:
            what = f"--target: column {target!r} is {numbers.pop():g} in every row"
            raise InputError(what, "give a target that varies", column=target, where="--target")
        return True


def find_columns(argument: str, names: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return the columns that an option names; ValueError for those that do not exist."""
    columns = list(dict.fromkeys(split_names(names, available)))
    with located(argument):
        resolve_columns(columns, available, len(available))
    return columns


def check_distinct(**roles: Sequence[str | None]) -> None:
    """Raise InputError if a column has two of these roles, such as target="pay" and weight="pay"."""
    first: dict[str, str] = {}
    for role, names in roles.items():
        for name in filter(None, names):
            if first.setdefault(name, role) != role:
                what = f"--{role}: column {name!r} is also given as --{first[name]}"
                raise InputError(what, "give another", column=name, where=f"--{role}")


def split_names(names: Sequence[str], available: Sequence[str]) -> list[str]:
    """Split "a,b" into columns, unless a column has just that name."""
    parts = ([name] if name in available else name.split(",") for name in names)
    return [part.strip() or part for group in parts for part in group]


@dataclass(frozen=True)
class Reading:
    """DATA and the options about how it is read; without DATA it is Adult."""

    data: str | None
    text: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    scheduler: str | None = None

    @property
    def csv_options(self) -> dict[str, Any]:
        """How a csv is read, where that is not the default."""
        given = {"delimiter": self.delimiter, "decimal": self.decimal, "encoding": self.encoding}
        return {name: v for name, v in given.items() if v not in (None, ".", "utf-8")}

    @contextmanager
    def open(self, console: Console, subset: str = "train") -> Iterator[Data]:
        """Open the table for a while, on a cluster if a scheduler is named."""
        if self.data in (None, "-") and self.scheduler is not None:
            raise click.UsageError("--scheduler needs DATA: name files that the workers can read")
        with ExitStack() as stack:
            console(f"reading {self.data or 'the Adult census data'}")
            reading = self
            if self.data == "-":  # several passes are made
                path = Path(stack.enter_context(TemporaryDirectory())) / "standard-input"
                with path.open("wb") as file:
                    copyfileobj(sys.stdin.buffer, file)
                reading = replace(self, data=str(path))
            with noting_warnings(console):
                table = reading.table(subset)
            if self.scheduler is not None:
                from scalefair.data.sources import connect

                table = replace(table, client=stack.enter_context(connect(self.scheduler)))
                if not table.client.nthreads():
                    raise ConnectionError(f"dask's scheduler at {self.scheduler} has no workers; start some")
            yield table

    def table(self, subset: Any = "train") -> Data:
        """Return the table that DATA means; Adult has its target as the column income."""
        if self.data is not None:
            return Data(self.data, self._scan(self.data))
        from scalefair.datasets import load_adult

        adult = load_adult(subset=subset)
        names = [adult.target_names[i] for i in adult.target]
        return Data(ADULT, adult.data.assign(**{ADULT_TARGET: names}))

    def typed(self, table: Data, names: Sequence[str]) -> Data:
        """Return the same csv with the columns `names`, if there, read as text."""
        if table.is_built_in or not table.table.is_csv:
            return table
        return replace(table, table=self._scan(table.name, names))

    def _scan(self, path: str, names: Sequence[str] = ()) -> Any:
        from scalefair.data.sources.files import scan_files

        def types(header: list[str]) -> dict[str, str]:
            text = find_columns("--text", self.text, header)
            return dict.fromkeys([*text, *(name for name in names if name in header)], "string")

        return scan_files(path, column_types=types, **self.csv_options)


def complete_columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the columns of the DATA given before; after a comma the next one."""
    del parameter
    before, comma, last = incomplete.rpartition(",")
    # Before an option whose value is still missing, click has not separated the arguments.
    data = context.params.get("data") or next(reversed(context.args), None)
    try:
        names = Reading(data).table().columns
    except Exception:  # whatever is wrong with the file: the command will say it
        return []
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]


def choice_option(names: str, choices: Sequence[str], text: str) -> Decorator:
    """Return an option that is one of some words, by default the first; `names` as "--map, feature_map"."""
    words = click.Choice(choices)
    return click.option(*names.split(", "), type=words, default=choices[0], show_default=True, help=text)


def columns_option(name: str, text: str, **options: Any) -> Decorator:
    """Return an option that names columns: a,b or given repeatedly."""
    return column_option(name, text, "NAMES", multiple=True, **options)


def column_option(name: str, text: str, metavar: str = "NAME", **options: Any) -> Decorator:
    """Return an option that names one column."""
    options |= {"metavar": metavar, "shell_complete": complete_columns}
    return click.option(name, help=text, **options)


target_option = column_option("--target", "Column to predict: numbers, or classes.")
sensitive_option = columns_option(
    "--sensitive", "Columns that predictions should not depend on: a,b or given repeatedly."
)
drop_option = columns_option("--drop", "Columns to leave out.")
weight_option = column_option("--weight", "Column of row weights: 2 counts as the row twice.")


unfairness_option = partial(click.option, "--unfairness", type=Share())
UNFAIRNESS = "Largest share of the variance of the predictions that the sensitive columns may explain."
confidence_option = partial(
    click.option, "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), show_default=True
)
seed_option = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
components_option = click.option(
    "--components",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Number of kernel features; cost grows with its square.",
)
out_option = partial(click.option, "--out", type=OutPath(), show_default=True)

# A file that another command wrote: looked for before anything heavy is loaded
WRITTEN_FILE = WrittenFile(exists=True, dir_okay=False, path_type=Path)
model_file_option = partial(click.option, type=WRITTEN_FILE)


def in_help_order(*options: Decorator) -> Decorator:
    """Return several options as one decorator, in the order of the help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def refuse_given(names: Container[str], reason: str) -> None:
    """Raise UsageError if the command line gives one of these options, which would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if option.name in names and is_given:
            raise click.UsageError(f"{option.opts[0]} has no effect {reason}; leave it out")


def _keep_data(data: str) -> None:
    """Raise UsageError if the command would write over a file of DATA."""
    context = click.get_current_context()
    for option in context.command.params:
        out = context.params.get(option.name or "")
        replaced = option.type.overwritten(out) if isinstance(option.type, OutPath) and out else []
        read = [*glob(data), *glob(f"{data}/**", recursive=True)] if replaced else []
        for path in replaced:
            if os.path.realpath(path) in map(os.path.realpath, read):
                raise click.UsageError(f"{option.opts[0]} {out}: {path} is DATA and would be lost; give another name")


def reading_options(command: Command) -> Command:
    """Add DATA and the options about how it is read; the command gets them as `reading`."""

    @click.argument("data", required=False)
    @in_help_order(
        columns_option("--text", "Columns of a csv to read as text, such as codes of digits."),
        click.option("--delimiter", metavar="C", help="Delimiter of a csv.  [default: , or a tab in .tsv]"),
        click.option("--decimal", metavar="C", default=".", help="Decimal mark of a csv, . or ,"),
        click.option("--encoding", default="utf-8", help="Encoding of a csv, such as latin-1."),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Compute on a dask cluster, such as tcp://10.0.0.1:8786, whose workers can read DATA.",
        ),
    )
    @wraps(command)
    def run(**options: Any) -> Any:
        own = {field.name: options.pop(field.name) for field in fields(Reading)}
        if own["data"] is not None:
            _keep_data(own["data"])
        return command(reading=Reading(**own), **options)

    return run


def printing_options(command: Command) -> Command:
    """Add the options about what is printed; the command gets a `console`."""

    @in_help_order(
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--quiet", is_flag=True, help="Print nothing but errors and the JSON."),
        click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks."),
    )
    @wraps(command)
    def run(*, as_json: bool, quiet: bool, **options: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet)
        console("loading")
        with noting_warnings(console):
            return command(console=console, **options)

    return run
