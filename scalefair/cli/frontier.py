"""scalefair frontier: what fairness costs, as a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalefair.cli import _options
from scalefair.cli._data import ADULT_SENSITIVE, Data, Reading, is_csv, split_names
from scalefair.cli._output import Console, FitProgress, check_folder

if TYPE_CHECKING:
    from scalefair.report import ReportProblem

MODELS = {
    "ridge": "FairKernelRidgeCV", "classifier": "FairKernelClassifier", "gp": "FairGPRegressor",
}  # fmt: skip

LARGE_BYTES, LARGE_CELLS = 2**30, 10**8
"""From here on a table is not read into memory."""


@click.command()
@_options.column("--target", "Column to predict: numbers, or two levels.")
@_options.sensitive
@_options.drop
@_options.unfairness(default=0.05, show_default=True, help=_options.UNFAIRNESS)
@_options.components
@click.option(
    "--model",
    type=click.Choice([*MODELS]),
    default="ridge",
    show_default=True,
    help="ridge: the frontier is cross-validated in one pass; classifier: logistic, for two "
    "levels; gp: a Gaussian process with one length scale per input, slower.",
)
@_options.seed
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="scalefair-report",
    show_default=True,
    help="Folder for report.html, frontier.csv and model.scalefair.",
)
@_options.reading
@_options.printing
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
    from scalefair.errors import UselessColumnError
    from scalefair.report import as_record, fit_frontier, headline, write_report

    check_folder(out)
    _check_named(reading.data, options["target"], options["sensitive"])
    estimator = _estimator(
        model, unfairness=unfairness, n_components=components, random_state=seed
    ).set_callbacks(FitProgress(console))
    with reading.open(console) as table:
        result = None
        while result is None:
            problem = _problem(table, reading, console, seed=seed, **options)
            try:
                result = fit_frontier(problem, estimator, console)
            except UselessColumnError as error:
                options["drop"] = _dropped(error, problem, options["drop"], console)
    console("writing the report")
    estimator.columns_ = {
        "target": result.problem.target, "sensitive": list(result.problem.sensitive),
        "weight": None,
    }  # fmt: skip
    page = write_report(result, out)
    console.result({**as_record(result), "report": page}, f"{page}: {headline(result)}")


def _estimator(model: str, **options: Any) -> Any:
    import scalefair

    own = {"length_scale": "standardized"} if model == "gp" else {}
    return getattr(scalefair, MODELS[model])(**own, **options)


def _dropped(error: Any, problem: ReportProblem, drop: tuple[str, ...], console: Console) -> Any:
    """Leave out an input that no model can use, and say so; a sensitive column is an error."""
    if error.column in problem.sensitive:
        raise error
    console.note(f"{error.what}: left out")
    return (*drop, error.column)


def _check_named(data: str | None, target: str | None, sensitive: tuple[str, ...]) -> None:
    """Raise ValueError if DATA comes without its columns, or columns without DATA."""
    if data is None and target is not None:
        raise ValueError("--target belongs to DATA: name a parquet or csv file before it")
    if data is not None and (target is None or not sensitive):
        missing = "--target" if target is None else "--sensitive"
        raise ValueError(f"{missing} is needed with DATA: scalefair frontier {data} {missing} NAME")


def _problem(
    table: Data, reading: Reading, console: Console, *, target: str | None,
    sensitive: tuple[str, ...], drop: tuple[str, ...], seed: int,
) -> ReportProblem:  # fmt: skip
    if target is None:
        return _adult_problem(table, sensitive, drop)
    (target,) = table.find("--target", [target])
    names = table.find("--sensitive", sensitive)
    dropped = table.find("--drop", drop)
    chosen = [name for name in table.columns if name not in dropped]
    for name in table.identifiers([n for n in chosen if n not in (target, *names)]):
        console.note(f"column {name!r} is different in every row: an identifier, left out")
        chosen.remove(name)
    scan = table.table[chosen]
    common: dict[str, Any] = {
        "target": target, "sensitive": names, "seed": seed, "source": table.name,
        "reading": _python_of(reading, table, [n for n in table.columns if n not in chosen]),
    }  # fmt: skip
    from scalefair.report import from_scan, from_table

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
    kind = f"csv({data!r}{options})" if is_csv(data) else f"parquet({data!r})"
    return f"scalefair.scan_{kind}" + (f".drop({left_out!r})" if left_out else "")


def _adult_problem(table: Data, names: tuple[str, ...], drop: tuple[str, ...]) -> ReportProblem:
    from scalefair.data.frames import drop_columns, take_columns
    from scalefair.datasets import load_adult
    from scalefair.report import ReportProblem, ReportRows

    sensitive, dropped = (
        table.find("--sensitive", names or ADULT_SENSITIVE),
        table.find("--drop", drop),
    )
    parts = []
    for subset in ("train", "test"):
        part = load_adult(subset=subset)
        X, s = drop_columns(part.data, dropped), take_columns(part.data, sensitive)
        parts.append(ReportRows(X, part.target.astype(float), s))
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
