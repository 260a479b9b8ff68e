"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from scalefair.cli._data import Reading, open_data
from scalefair.cli._output import Console

Command = Callable[..., Any]


def complete_columns(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the columns of the DATA that stands before; after a comma the next one."""
    del parameter
    before, comma, last = incomplete.rpartition(",")
    # Before an option that still lacks its value click has not told the arguments apart.
    data = context.params.get("data") or next(reversed(context.args), None)
    try:
        names = open_data(data).columns
    except Exception:  # whatever is wrong with the file: the command will say it
        return []
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]


def columns(name: str, text: str, **options: Any) -> Callable[[Command], Command]:
    """Return an option that names columns: a,b or given repeatedly."""
    return click.option(
        name, metavar="NAMES", multiple=True, shell_complete=complete_columns, help=text, **options
    )


def column(name: str, text: str, **options: Any) -> Callable[[Command], Command]:
    """Return an option that names one column."""
    return click.option(name, metavar="NAME", shell_complete=complete_columns, help=text, **options)


target = column("--target", "Column to predict: numbers, or classes.")
sensitive = columns(
    "--sensitive", "Columns that predictions should not depend on: a,b or given repeatedly."
)
drop = columns("--drop", "Columns to leave out.")
weight = column("--weight", "Column of row weights: 2 counts as the row twice.")


unfairness = partial(click.option, "--unfairness", type=click.FloatRange(0, 1))
UNFAIRNESS = (
    "Largest share of the variance of the predictions that the sensitive columns may explain."
)
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
components = click.option(
    "--components",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Number of kernel features: more are slower and more accurate.",
)


def out_file(text: str, **options: Any) -> Callable[[Command], Command]:
    """Return the option --out of a command that writes one file."""
    return click.option("--out", type=click.Path(path_type=Path), help=text, **options)


def _in_order(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return several options as one decorator, in the order of the help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def reading(command: Command) -> Command:
    """Add DATA and the options about how it is read; the command gets them as `reading`."""

    @click.argument("data", required=False)
    @_in_order(
        columns("--text", "Columns of a csv to read as text, such as codes of digits."),
        click.option(
            "--delimiter", metavar="C", default=",", show_default=True, help="Of cells in a csv."
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Compute on a dask cluster, such as tcp://10.0.0.1:8786, whose workers see DATA.",
        ),
    )
    @wraps(command)
    def run(
        *, data: str | None, text: tuple[str, ...], delimiter: str, scheduler: str | None,
        **options: Any,
    ) -> Any:  # fmt: skip
        return command(reading=Reading(data, text, delimiter, scheduler), **options)

    return run


def printing(command: Command) -> Command:
    """Add the options about what is printed; the command gets a `console`."""

    @_in_order(
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--quiet", is_flag=True, help="Print nothing but errors and the JSON."),
        click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks."),
    )
    @wraps(command)
    def run(*, as_json: bool, quiet: bool, **options: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet)
        console("loading")
        return command(console=console, **options)

    return run


modelling = _in_order(
    unfairness(help=f"{UNFAIRNESS}  [default: 0.05, unless --eta is given]"),
    click.option(
        "--eta", type=click.FloatRange(0), help="Weight of the penalty, instead of a limit."
    ),
    click.option(
        "--alpha",
        type=click.FloatRange(0),
        help="Ridge per row; by default chosen by cross-validation (classes: 0.001).",
    ),
    click.option(
        "--map",
        "feature_map",
        type=click.Choice(["nystroem", "fourier", "linear"]),
        default="nystroem",
        show_default=True,
        help="Features of the inputs. With fourier or linear the model holds no row of DATA.",
    ),
    components,
    click.option(
        "--hide-sensitive", is_flag=True, help="Do not let the model see the sensitive columns."
    ),
    seed,
)
"""Which model is fitted."""
