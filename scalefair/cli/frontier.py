"""scalefair frontier: a report on the cost of fairness."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalefair.cli import _data
from scalefair.cli._console import Console, FitProgress, OutPath
from scalefair.cli._data import Data, Reading, split_names
from scalefair.cli._model import ModelOptions, kind_option, shape_options
from scalefair.cli.fit import Roles, find_roles, without_useless

if TYPE_CHECKING:
    from scalefair.report import ReportProblem

LARGE_BYTES, LARGE_CELLS = 2**30, 10**8  # from here on a table is not read into memory

page_options = _data.in_help_order(
    click.option("--owner", metavar="NAME", help="Person or team responsible for the model; shown on the page."),
    click.option("--use", metavar="TEXT", help="Intended use of the model; shown on the page."),
)


def provenance(options: dict[str, Any]) -> dict[str, str]:
    """Take the options about the page out of all; return them and the command."""
    taken = {"Owner": options.pop("owner"), "Intended use": options.pop("use")}
    command = {"Command": shlex.join(["scalefair", *sys.argv[1:]])}
    return {name: text or "not stated" for name, text in taken.items()} | command


@click.command()
@_data.column_option("--target", "Column to predict: numbers, or two levels.")
@_data.sensitive_option
@_data.drop_option
@_data.unfairness_option(default=0.05, show_default=True, help=_data.UNFAIRNESS)
@shape_options
@kind_option
@_data.weight_option
@click.option(
    "--compare",
    metavar="FILE:COLUMN",
    multiple=True,
    help="Predictions of another model for the rows of DATA, for comparison; repeatable.",
)
@page_options
@click.option(
    "--out",
    type=OutPath(folder=True, beside=("report.csv", "frontier.csv")),
    default="scalefair-report",
    show_default=True,
    help="Folder for report.html, its numbers as csv and JSON, and model.scalefair.",
)
@_data.reading_options
@_data.printing_options
def frontier(*, out: Path, reading: Reading, console: Console, **options: Any) -> None:
    """Show the cost of fairness: fit all trade-offs, write a report.

    A random fifth of the rows of DATA (at most 50,000 if they do not fit in memory) is held out to evaluate the models;
    each of these rows counts once. Without DATA the built-in Adult census data are used, with their own test rows.

    \b
    scalefair frontier
    scalefair frontier pay.parquet --target pay --sensitive sex,age --out pay-report
    scalefair frontier 'pay/*.csv' --target pay --sensitive sex --unfairness 0.01 --json
    scalefair frontier loans.csv --target repaid --sensitive race --hide-sensitive --model trees
    scalefair frontier loans.csv --target repaid --sensitive race --compare ours.csv:score

    With --hide-sensitive the same model is fitted once more with the sensitive columns visible, for comparison.
    """
    if reading.data is None and options["target"] is not None:
        raise click.UsageError("--target belongs to DATA: name a parquet or csv file before it")
    settings = ModelOptions.taken_from(options)
    origin = provenance(options)
    with reading.open(console) as table:
        roles = find_roles(table, options, hide=settings.hide_sensitive)
        optional = [name for name in roles.inputs if name not in roles.sensitive]

        def work(useless: list[str]) -> Any:
            rest = roles.without(useless) if useless else roles
            return _result(table, reading, rest, settings, options, console)

        result, _ = without_useless(table, optional, work, console)
    from scalefair.report import as_record, headline, write_report

    console("writing the report")
    problem = result.problem
    stored = {"target": problem.target, "sensitive": list(problem.sensitive)}
    result.estimator.columns_ = {**stored, "weight": problem.weight}
    page = write_report(result, out, origin)
    chosen = "" if result.choice is None else f" Model {result.choice.summary}."
    console.result({**as_record(result), "report": page}, f"{page}: {headline(result)}{chosen}")


def _result(  # noqa: PLR0917
    table: Data, reading: Reading, roles: Roles, settings: ModelOptions, options: dict[str, Any], console: Console
) -> Any:
    """Return the frontier, and beside it other models: those given, and one that sees s."""
    from scalefair.report import fit_frontier, with_model

    problem, kind = _problem(table, reading, roles, settings.seed), options["kind"]
    classes = kind == "classification" or (kind == "auto" and problem.is_binary)
    named = settings.candidates(roles.sensitive if roles.visible else None, classes=classes)
    for estimator in named.values():
        estimator.set_callbacks(FitProgress(console))
    others: list[tuple[Any, ...]] = [*_compared(options["compare"], problem, reading)]
    result = fit_frontier(problem, named, console)
    if settings.hide_sensitive:
        console("fitting: sensitive columns visible")
        wide = replace(roles, inputs=[*roles.inputs, *roles.sensitive])
        own = next(iter(named)) if result.choice is None else result.choice.name
        same = settings.candidates(roles.sensitive, classes=classes)[own]
        others.append(_seeing_model(same, _problem(table, reading, wide, settings.seed)))
    return reduce(lambda made, other: with_model(made, *other), others, result)


def _seeing_model(estimator: Any, problem: ReportProblem) -> tuple[str, Any]:
    """Return what a model predicts that sees the sensitive columns."""
    from scalefair.report.relatives import outputs

    with warnings.catch_warnings(action="ignore", category=UserWarning):
        problem.train.fit(estimator)
    return "sensitive columns visible", outputs(estimator, problem.test.X)


def _compared(given: tuple[str, ...], problem: ReportProblem, reading: Reading) -> Iterator[tuple[str, Any]]:
    """Yield the predictions of other models for the held-out rows."""
    import numpy as np

    from scalefair.data.frames import to_numpy
    from scalefair.report.problem import rows_at

    for text in given:
        path, _, column = text.rpartition(":")
        if not path:
            raise click.UsageError(f"--compare {text}: expected FILE:COLUMN")
        data = replace(reading, data=path, text=(), scheduler=None).table()
        (name,) = data.find("--compare", [column])
        if data.kind(name) not in ("numeric", "boolean"):
            raise ValueError(f"--compare: column {name!r} of {path} is not numeric; give scores")
        wanted = np.arange(len(problem.test.y)) if problem.tested is None else problem.tested
        n, found = problem.n_rows or len(wanted), data.table.count_rows()
        if n != found:
            raise ValueError(f"--compare: {path} has {found:,} rows; expected one for each of {n:,}")
        order = np.argsort(wanted)
        f = np.empty(len(wanted))
        f[order] = to_numpy(rows_at(data.table[[name]], wanted[order]))[:, 0]
        if not np.isfinite(f).all():
            raise ValueError(f"--compare: column {name!r} of {path} is missing in some rows")
        yield text, f


def _problem(table: Data, reading: Reading, roles: Roles, seed: int) -> ReportProblem:
    if table.is_built_in:
        return _adult_problem(roles)
    from scalefair.report import from_scan, from_table

    chosen = [name for name in table.columns if name in roles.all]
    scan = table.table[chosen]
    common: dict[str, Any] = {
        "target": roles.target,
        "sensitive": roles.sensitive,
        "seed": seed,
        "source": table.name,
        "hidden": not roles.visible,
        "weight": roles.weight,
        "reading": _python_of(reading, table, [n for n in table.columns if n not in chosen]),
    }
    files = scan.files.listing
    size = sum(int(files.filesystem.size(path) or 0) for path in files.paths)
    is_large = size > LARGE_BYTES or (scan.n_rows or 0) * len(scan.columns) > LARGE_CELLS
    if table.client is None and not is_large:
        return from_table(scan.read(), **common)
    return from_scan(scan, table.selection(chosen), **common)


def _python_of(reading: Reading, table: Data, left_out: list[str]) -> str:
    """Return Python that opens the same columns again."""
    data, text = table.name, split_names(reading.text, table.columns)
    options = "".join(f", {name}={value!r}" for name, value in reading.csv_options.items())
    if text:
        options += f", column_types={dict.fromkeys(text, 'string')!r}"
    kind = f"csv({data!r}{options})" if table.table.is_csv else f"parquet({data!r})"
    return f"scalefair.scan_{kind}" + (f".drop({left_out!r})" if left_out else "")


def _adult_problem(roles: Roles) -> ReportProblem:
    from scalefair.datasets import load_adult
    from scalefair.report import ReportProblem, ReportRows

    parts, sensitive = [], roles.sensitive
    for subset in ("train", "test"):
        adult = load_adult(subset=subset)
        weighted = roles.weight is not None and subset == "train"
        weight = adult.data[roles.weight].to_numpy(float) if weighted else None
        X, y = adult.data[roles.inputs], adult.target.astype(float)
        parts.append(ReportRows(X, y, adult.data[sensitive], weight))
    return ReportProblem(
        source="Adult census data of 1994, built in",
        target="income above 50,000 dollars",
        sensitive=sensitive,
        train=parts[0],
        test=parts[1],
        held_out="the test rows that come with the data",
        code="from scalefair.datasets import load_adult\n\nadult = load_adult()\n"
        f"data = adult.data\nX, y, S = data[{roles.inputs!r}], adult.target, data[{sensitive!r}]",
        weight=roles.weight,
    )
