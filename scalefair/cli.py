"""The command line. It loads the rest of the package only when a command needs it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from scalefair import __version__

if TYPE_CHECKING:
    from scalefair.report import Problem

_REPORT_PACKAGES = ("matplotlib", "jinja2", "markupsafe")


class _OneLineErrors(click.Group):
    """A group of commands whose errors are one line on stderr; exit code 2 for bad input."""

    def main(self, args: Sequence[str] | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Run a command; `--debug` lets a traceback through."""
        arguments = list(sys.argv[1:] if args is None else args)
        if not options.pop("standalone_mode", True):
            return super().main(arguments, standalone_mode=False, **options)
        try:
            code = super().main(arguments, standalone_mode=False, **options)
        except click.Abort:
            _fail("interrupted", 130)
        except click.ClickException as error:
            _fail(error.format_message(), 2)
        except (ValueError, OSError, ImportError) as error:
            if "--debug" in arguments:
                raise
            _fail(_remedied(error), 2)
        except Exception as error:
            if "--debug" in arguments:
                raise
            _fail(f"{type(error).__name__}: {error} (a bug; --debug shows where)", 1)
        sys.exit(code if isinstance(code, int) else 0)


def _remedied(error: Exception) -> str:
    if isinstance(error, ImportError) and error.name in _REPORT_PACKAGES:
        return f"the report needs {error.name}: pip install 'scalefair[plots]'"
    return str(error) or type(error).__name__


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"scalefair: error: {' '.join(message.split())}", err=True)
    sys.exit(code)


@click.group(cls=_OneLineErrors, invoke_without_command=True)
@click.version_option(__version__, prog_name="scalefair")
@click.pass_context
def main(context: click.Context) -> None:
    """Predictions that do not depend on sensitive attributes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command()
@click.argument("data", required=False)
@click.option("--target", metavar="NAME", help="Column to predict: numbers, or two levels.")
@click.option(
    "--sensitive",
    metavar="NAMES",
    multiple=True,
    help="Columns that the predictions should not depend on: a,b or given repeatedly.",
)
@click.option(
    "--unfairness",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Largest share of the variance of the predictions that the sensitive columns may explain.",
)
@click.option(
    "--components",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Number of kernel features: more are slower and more accurate.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="scalefair-report",
    show_default=True,
    help="Folder for report.html and frontier.csv.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors and the JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def frontier(
    data: str | None,
    *,
    target: str | None,
    sensitive: tuple[str, ...],
    unfairness: float,
    components: int,
    seed: int,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what fairness costs: fit all trade-offs, write a report.

    DATA is a parquet file, a folder of them or a csv file; a random fifth of its rows is held
    out to judge by. Without DATA the built-in Adult census data are used, with their own test
    rows.
    """
    progress = _Progress(quiet)
    progress("loading")
    from scalefair import FairKernelRidgeCV
    from scalefair.report import as_record, fit_frontier, headline, write_report

    progress(f"reading {data or 'the Adult census data'}")
    problem = _problem(data, target, sensitive, seed)
    _check_folder(out)
    estimator = FairKernelRidgeCV(unfairness=unfairness, n_components=components, random_state=seed)
    result = fit_frontier(problem, estimator, progress)
    progress("writing the report")
    page = write_report(result, out, __version__)
    progress.finish()
    if as_json:
        click.echo(json.dumps({**as_record(result), "report": str(page)}, indent=2))
    elif not quiet:
        click.echo(f"{page}: {headline(result)}")


class _Progress:
    """Step lines on stderr, each with the seconds since the start; silent off a terminal."""

    def __init__(self, quiet: bool) -> None:
        self.start = time.perf_counter()
        self.shown = not quiet and sys.stderr.isatty()

    def __call__(self, step: str) -> None:
        if self.shown:
            click.echo(f"[{time.perf_counter() - self.start:5.1f} s] {step} ...", err=True)

    def finish(self) -> None:
        if self.shown:
            click.echo(f"[{time.perf_counter() - self.start:5.1f} s] done", err=True)


def _problem(data: str | None, target: str | None, names: tuple[str, ...], seed: int) -> Problem:
    if data is None:
        if target is not None:
            raise ValueError("--target belongs to DATA: name a parquet or csv file before it")
        return _adult(names)
    if target is None or not names:
        missing = "--target" if target is None else "--sensitive"
        raise ValueError(f"{missing} is needed with DATA: scalefair frontier {data} {missing} NAME")
    return _from_file(data, target, names, seed)


def _adult(names: tuple[str, ...]) -> Problem:
    from scalefair._frames import take_columns
    from scalefair.datasets import load_adult
    from scalefair.report import Problem, Sample

    train, test = load_adult(subset="train"), load_adult(subset="test")
    sensitive = _split(names, train.feature_names) or ["sex", "race"]
    train, test = (
        Sample(part.data, part.target.astype(float), take_columns(part.data, sensitive))
        for part in (train, test)
    )
    return Problem(
        source="Adult census data of 1994, built in",
        target="income above 50,000 dollars",
        sensitive=sensitive,
        train=train,
        test=test,
        held_out="the test rows that come with the data",
        code="from scalefair.datasets import load_adult\n\nadult = load_adult()\n"
        f"X, y, S = adult.data, adult.target, adult.data[{sensitive!r}]",
    )


def _from_file(data: str, target: str, names: tuple[str, ...], seed: int) -> Problem:
    from scalefair.report import from_table
    from scalefair.stream.files import read_table

    table = read_table(data)
    sensitive = _split(names, table.column_names)
    reader = "read_csv" if ".csv" in Path(data).name.lower() else "read_parquet"
    reading = f"pd.{reader}({data!r})"
    return from_table(
        table, target=target, sensitive=sensitive, seed=seed, source=data, reading=reading
    )


def _split(names: tuple[str, ...], available: Sequence[str]) -> list[str]:
    """Split "a,b" into columns, unless a column has just that name."""
    parts = ([name] if name in available else name.split(",") for name in names)
    return [part.strip() or part for group in parts for part in group]


def _check_folder(out: Path) -> None:
    """Refuse a folder that could not be written before the work begins, not after."""
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"--out {out}: {nearest} is not a folder; give another one")
    if not os.access(nearest, os.W_OK):
        raise PermissionError(f"--out {out}: may not write into {nearest}; give another folder")
