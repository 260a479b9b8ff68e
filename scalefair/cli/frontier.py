"""scalefair frontier: what fairness costs, as a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalefair.cli import _data
from scalefair.cli._console import Console, FitProgress
from scalefair.cli._data import Data, OutPath, Reading, split_names
from scalefair.cli.fit import Roles, find_roles, without_useless

if TYPE_CHECKING:
    from scalefair.report import ReportProblem

MODELS = ("ridge", "classifier", "gp")
LARGE_BYTES, LARGE_CELLS = 2**30, 10**8
"""From here on a table is not read into memory."""


@click.command()
@_data.column_option("--target", "Column to predict: numbers, or two levels.")
@_data.sensitive_option
@_data.drop_option
@_data.unfairness_option(default=0.05, show_default=True, help=_data.UNFAIRNESS)
@_data.components_option
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default="ridge",
    show_default=True,
    help="ridge: the frontier is cross-validated in one pass; classifier: logistic, for two "
    "levels; gp: a Gaussian process with one length scale per input, slower.",
)
@_data.seed_option
@click.option(
    "--out",
    type=OutPath(folder=True),
    default="scalefair-report",
    show_default=True,
    help="Folder for report.html, frontier.csv and model.scalefair.",
)
@_data.reading_options
@_data.printing_options
def frontier(
    *, unfairness: float, components: int, model: str, seed: int, out: Path, reading: Reading,
    console: Console, **options: Any,
) -> None:  # fmt: skip
    """Show what fairness costs: fit all trade-offs, write a report.

    A random fifth of the rows of DATA, 50,000 at most where they do not fit in memory, is held out
    to judge by. Without DATA the built-in Adult census data are used, with their own test rows.

    \b
    scalefair frontier
    scalefair frontier pay.parquet --target pay --sensitive sex,age --out pay-report
    scalefair frontier 'pay/*.csv' --target pay --sensitive sex --unfairness 0.01 --json
    scalefair frontier loans.csv --target repaid --sensitive race --model classifier
    """
    from scalefair.report import as_record, fit_frontier, headline, write_report

    if reading.data is None and options["target"] is not None:
        raise click.UsageError("--target belongs to DATA: name a parquet or csv file before it")
    given = {"unfairness": unfairness, "n_components": components, "random_state": seed}
    estimator = _estimator(model, given).set_callbacks(FitProgress(console))
    with reading.open(console) as table:
        roles = find_roles(table, {**options, "weight": None}, hide=False)
        optional = [name for name in roles.inputs if name not in roles.sensitive]

        def work(useless: list[str]) -> Any:
            dropped = [*table.find("--drop", options["drop"]), *useless]
            problem = _problem(table, reading, roles, dropped, seed)
            return fit_frontier(problem, estimator, console)

        result, _ = without_useless(table, optional, work, console)
    console("writing the report")
    stored = {"target": result.problem.target, "sensitive": list(result.problem.sensitive)}
    estimator.columns_ = {**stored, "weight": None}
    page = write_report(result, out)
    console.result({**as_record(result), "report": page}, f"{page}: {headline(result)}")


def _estimator(model: str, options: dict[str, Any]) -> Any:
    from scalefair import FairGPRegressor, FairKernelClassifier, FairKernelRidgeCV

    if model == "gp":
        return FairGPRegressor(length_scale="standardized", **options)
    return (FairKernelClassifier if model == "classifier" else FairKernelRidgeCV)(**options)


def _problem(
    table: Data, reading: Reading, roles: Roles, dropped: list[str], seed: int
) -> ReportProblem:
    if table.is_built_in:
        return _adult_problem(roles.sensitive, dropped)
    from scalefair.report import from_scan, from_table

    chosen = [name for name in table.columns if name not in dropped]
    scan = table.table[chosen]
    common: dict[str, Any] = {
        "target": roles.target, "sensitive": roles.sensitive, "seed": seed, "source": table.name,
        "reading": _python_of(reading, table, [n for n in table.columns if n in dropped]),
    }  # fmt: skip
    if table.client is None and not _is_large(scan):
        return from_table(scan.read(), **common)
    return from_scan(scan, table.selection(chosen), **common)


def _is_large(scan: Any) -> bool:
    files = scan.files.listing
    size = sum(int(files.filesystem.size(path) or 0) for path in files.paths)
    cells = (scan.n_rows or 0) * len(scan.columns)
    return size > LARGE_BYTES or cells > LARGE_CELLS


def _python_of(reading: Reading, table: Data, left_out: list[str]) -> str:
    """Return Python that opens the same columns again."""
    data, text = table.name, split_names(reading.text, table.columns)
    options = f", delimiter={reading.delimiter!r}" * (reading.delimiter != ",")
    if text:
        options += f", column_types={dict.fromkeys(text, 'string')!r}"
    kind = f"csv({data!r}{options})" if table.table.is_csv else f"parquet({data!r})"
    return f"scalefair.scan_{kind}" + (f".drop({left_out!r})" if left_out else "")


def _adult_problem(sensitive: list[str], dropped: list[str]) -> ReportProblem:
    from scalefair.datasets import load_adult
    from scalefair.report import ReportProblem, ReportRows

    parts = []
    for subset in ("train", "test"):
        adult = load_adult(subset=subset)
        X = adult.data.drop(columns=dropped)
        parts.append(ReportRows(X, adult.target.astype(float), adult.data[sensitive]))
    return ReportProblem(
        source="Adult census data of 1994, built in",
        target="income above 50,000 dollars",
        sensitive=sensitive,
        train=parts[0],
        test=parts[1],
        held_out="the test rows that come with the data",
        code="from scalefair.datasets import load_adult\n\nadult = load_adult()\n"
        f"X, y, S = adult.data, adult.target, adult.data[{sensitive!r}]",
    )
