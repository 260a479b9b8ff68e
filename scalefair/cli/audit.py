"""scalefair audit, explain, certify: how far predictions depend on attributes, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import click

from scalefair.cli import _data
from scalefair.cli._console import NOT_CERTIFIED, Console, OutPath, Share, noting_warnings
from scalefair.cli._data import ADULT_SENSITIVE, ADULT_TARGET, Data, Reading
from scalefair.cli.fit import without_useless
from scalefair.cli.frontier import page_options, provenance
from scalefair.cli.predict import check_inputs, text_columns
from scalefair.errors import InputError

ERROR_GAPS = (
    "true_positive_rate_difference",
    "false_positive_rate_difference",
    "root_mean_squared_error_difference",
    "bias_difference",
)
"""Gaps that --truth prints: of rates of decisions where there are any, else of errors."""


@click.command("audit")
@_data.columns_option("--prediction", "Columns of predictions, one for each model.  [default: prediction]")
@_data.sensitive_option
@_data.column_option("--truth", "Column of the true target: numbers, 0 and 1, or levels.")
@click.option(
    "--positive", metavar="LEVEL", help="The level of --truth that counts as 1.  [default: the second of two]"
)
@_data.weight_option
@click.option("--threshold", type=float, help="Predictions of at least this number are positive decisions.")
@_data.choice_option(
    "--missing",
    ("error", "drop", "group"),
    "Rows in which a sensitive column is missing: refused, left out, or a group.",
)
@_data.seed_option
@click.option("--table", "full", is_flag=True, help="Print every measure, not only the summary.")
@click.option(
    "--html", type=OutPath(beside=(".csv", ".json")), help="Write a page; every number also as csv and JSON beside it."
)
@page_options
@_data.reading_options
@_data.printing_options
def audit_command(*, reading: Reading, console: Console, **options: Any) -> None:
    """Measure how far predictions depend on the sensitive columns.

    DATA has one row per person, with the predictions of any model in a column. Without DATA the
    incomes of the built-in Adult census data are audited, as if they were decisions.

    \b
    scalefair audit predictions.parquet --prediction prediction --sensitive sex,race
    scalefair audit scores.csv --prediction ours,theirs --sensitive age --truth repaid --json
    scalefair audit hired.csv --prediction score --sensitive sex,race --html audit.html
    """
    options["origin"] = provenance(options)
    if options["truth"] is None:
        _data.refuse_given("positive", "without --truth")
    with reading.open(console) as table:
        given = table
        if table.is_built_in:
            defaults = {"prediction": (ADULT_TARGET,), "sensitive": ADULT_SENSITIVE}
            options |= {name: options[name] or value for name, value in defaults.items()}
            above = table.table[ADULT_TARGET].str.startswith(">").astype(int)
            given = replace(table, table=table.table.assign(**{ADULT_TARGET: above}))
        _audit(given, console, **options)


def _audit(
    table: Data, console: Console, *,
    prediction: tuple[str, ...], sensitive: tuple[str, ...], truth: str | None,
    positive: str | None, weight: str | None, seed: int, full: bool, html: Path | None,
    origin: dict[str, str], **options: Any,
) -> None:  # fmt: skip
    models = table.find("--prediction", prediction or ("prediction",))
    attributes = table.find_sensitive(sensitive)
    y, w = table.find_one("--truth", truth), table.find_one("--weight", weight)
    _data.check_distinct(prediction=models, sensitive=attributes, weight=[w])
    _data.check_distinct(truth=[y], sensitive=attributes, weight=[w])
    _check_not_text(table, models)
    remedy = "name the one that counts as 1 with --positive"
    labels = None if y is None else table.codes("--truth", y, positive, remedy)
    from scalefair import audit

    console("judging")
    rows = table.take(y_pred=models, sensitive_features=attributes, y_true=y, sample_weight=w)
    rows |= {} if labels is None else {"y_true": labels}
    with noting_warnings(console):
        result = audit(**rows, random_state=seed, **options)
    lines = [x for x in result.summary.splitlines() if not x.startswith("Note: ")]
    lines += [] if y is None else _error_lines(result)
    if html is not None:
        console("writing the page")
        _write_page(result, html, table, attributes, rows["y_true"], w, options["threshold"], origin)
        lines.append(f"{html}: the page")
    if full:
        lines += ["", result.table.drop(columns="words").to_string(index=False)]
    record = {"data": table.name, "sensitive": attributes, **result.to_dict()}
    console.result(record, "\n".join(lines))


def _error_lines(result: Any) -> Iterator[str]:
    """Yield how far the errors of each model differ between groups, a line an attribute."""
    table = result.table[result.table["measure"].isin(ERROR_GAPS)]
    for (model, attribute), rows in table.groupby(["model", "attribute"], sort=False):
        decided = rows["measure"].isin(ERROR_GAPS[:2])
        words = "; ".join(rows["words"][decided] if decided.any() else rows["words"])
        yield f"- {f'{model}, ' * (len(result.models) > 1)}{attribute}: {words}."


def _write_page(  # noqa: PLR0917
    result: Any, html: Path, table: Data, attributes: list[str], labels: Any, weight: str | None,
    threshold: float | None, origin: dict[str, str],
) -> None:  # fmt: skip
    """Write the page of an audit, with calibration where targets are known, and impact ratios."""
    from scalefair.report import write_audit
    from scalefair.report.problem import hash_files

    rows = table.selection(list(dict.fromkeys([*result.models, *attributes, *filter(None, [weight])])))
    grouped = [a for a in attributes if a in set(result.groups["attribute"])]
    overall = result.overall.set_index("model")
    tables = {
        name: _tables(overall.loc[name].to_dict(), name, rows, grouped, labels, weight, threshold)
        for name in (result.models if grouped else ())
    }
    data = {"Data": table.name} | ({} if weight is None else {"Weights": weight})
    if not table.is_built_in:
        data["Hash of the data"] = hash_files(table.table)
    write_audit(result, html, sensitive=attributes, provenance=data | origin, tables_of=tables)


def _tables(  # noqa: PLR0917
    known: dict[str, float], name: str, rows: Any, grouped: list[str], labels: Any, weight: str | None,
    threshold: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Return calibration, distributions and impact ratios of one model."""
    from scalefair.report import calibration, distributions, impact_ratios
    from scalefair.report.rates import RANGES

    f, tables, w = rows[[name]], dict[str, Any](), None if weight is None else rows[weight]
    options = {"sensitive_features": rows[grouped], "sample_weight": w}
    if isfinite(known.get("selection_rate", nan)):
        ratios = impact_ratios(f, threshold=threshold, **options)
        tables["impacts"] = {"Selection rate": ratios}
    if not isfinite(known.get("quantile_0.5", nan)):
        return tables
    tables["impacts"] = tables.get("impacts", {}) | {"Scoring rate": impact_ratios(f, **options)}
    ends = [known[f"quantile_{q}"] for q in (0.1, 0.5, 0.9)]
    is_probability, spread = ends[0] >= 0 and ends[-1] <= 1, (ends[-1] - ends[0]) / 2 or 0.5
    others = [a for a in grouped if a != name]
    if labels is not None:
        edges = RANGES if is_probability else sorted(set(ends))
        pairs = {a: rows[[a, name]] for a in others}
        tables["calibration"] = calibration(f, labels, pairs, {name: list(edges)}, w)
    low, high = (0.0, 1.0) if is_probability else (ends[0] - spread, ends[-1] + spread)
    tables["distributions"] = distributions(f, rows[[*others, name]], {}, low, high, weight=w)
    return tables


def _check_not_text(data: Data, models: list[str]) -> None:
    for name in models:
        if data.kind(name) == "categorical":
            others = [column for column in data.columns if column.startswith("probability_")]
            remedy = f", such as {' or '.join(others)}" if others else ""
            raise ValueError(f"--prediction: column {name!r} is text; give scores or probabilities{remedy}")


@click.command("explain", short_help="Show which columns contribute to the share, or are proxies.")
@click.argument("subject", metavar="MODEL|DATA")
@_data.sensitive_option
@_data.drop_option
@_data.weight_option
@_data.reading_options
@_data.printing_options
def explain_command(subject: str, *, reading: Reading, console: Console, **options: Any) -> None:
    """Show which columns contribute to the explained share, or reveal the sensitive columns.

    For a MODEL that `scalefair fit` wrote: how much each of its inputs contributes to the share of
    the variance of its predictions that the sensitive columns explain in DATA, without and with
    the limit, with standard errors. A linear model needs no DATA.

    For DATA alone: how much every other column reveals about each sensitive column, by linear and
    smooth functions of it, with 95 % intervals.

    \b
    scalefair explain pay.scalefair pay.csv
    scalefair explain pay.csv --sensitive sex,age --drop id
    """
    from scalefair.data.sources.files import CSV_ENDINGS, PARQUET_ENDINGS

    path, tables = Path(subject), (*CSV_ENDINGS, *PARQUET_ENDINGS)
    is_table = subject == "-" or path.is_dir() or "://" in subject or "*" in subject
    if not (is_table or path.name.lower().endswith(tables)):
        _explain_saved(path, reading, console, **options)
        return
    if reading.data is not None:
        raise click.UsageError(f"{subject} is a table already: leave out {reading.data}")
    with replace(reading, data=subject).open(console) as table:
        _explain_table(table, console, **options)


def _explain_saved(
    path: Path, reading: Reading, console: Console, *,
    sensitive: tuple[str, ...], drop: tuple[str, ...], weight: str | None,
) -> None:  # fmt: skip
    if sensitive or drop:
        raise click.UsageError("--sensitive and --drop are for DATA alone: a MODEL knows its own")
    from scalefair import explain_share, load

    model = load(path)
    if reading.data is None:
        try:
            _print(console, explain_share(model), {"model": path})
        except InputError as error:
            raise click.UsageError(f"{path}: {error.what}; add DATA") from error
        return
    with reading.open(console) as given:
        table, prepared = reading.typed(given, text_columns(model)), model._design.preparation
        inputs, w = check_inputs(table, model), table.find_one("--weight", weight)
        names = [] if prepared.sensitive_columns else prepared.sensitive_encoder.names_
        apart = table.find("--sensitive", names)
        console("explaining")
        result = explain_share(model, **table.take(X=inputs, sensitive_features=apart, sample_weight=w))
        _print(console, result, {"model": path, "data": table.name})


def _explain_table(
    table: Data, console: Console, *, sensitive: tuple[str, ...], drop: tuple[str, ...], weight: str | None
) -> None:
    attributes, w = table.find_sensitive(sensitive), table.find_one("--weight", weight)
    gone = {*attributes, *table.find("--drop", drop), w}
    columns = [name for name in table.columns if name not in gone]
    from scalefair import proxies

    def work(useless: list[str]) -> Any:
        inputs = [name for name in columns if name not in useless]
        return proxies(**table.take(X=inputs, sensitive_features=attributes, sample_weight=w))

    console("measuring")
    with noting_warnings(console):
        result, notes = without_useless(table, columns, work, console)
    _print(console, result, {"data": table.name, "sensitive": attributes, "notes": notes})


def _print(console: Console, table: Any, record: dict[str, Any]) -> None:
    """Print a table, one block an attribute."""
    from scalefair.measures.groups import records

    blocks = [
        f"{attribute}\n{rows.drop(columns='attribute').to_string(index=False)}"
        for attribute, rows in table.round(4).replace(-0.0, 0.0).groupby("attribute", sort=False)
    ]
    console.result(record | {"rows": records(table)}, "\n\n".join(blocks))


@click.command("certify", short_help="Certify that a MODEL keeps a limit, on new rows.")
@click.argument("model", type=_data.WRITTEN_FILE)
@_data.sensitive_option
@_data.unfairness_option(
    type=Share(float("inf")), default=0.05, show_default=True, help="The limit; of means in units of predictions."
)
@_data.confidence_option(default=0.95, help="Probability that a model beyond the limit is refused.")
@_data.choice_option(
    "--limit-on",
    ("scores", "output", "means", "decisions", "odds"),
    "Explained share, that of the whole distribution, or a gap between groups.",
)
@_data.column_option("--truth", "Column of the true classes, for odds.")
@_data.columns_option("--control", "Columns that predictions may depend on.")
@click.option("--threshold", type=float, help="Predictions of at least this number are positive decisions.")
@_data.weight_option
@_data.seed_option
@_data.out_option(help="Write the certificate, as JSON.")
@_data.reading_options
@_data.printing_options
def certify_command(model: Path, out: Path | None, reading: Reading, console: Console, **options: Any) -> None:
    """Certify that a MODEL, which `scalefair fit` wrote, keeps a limit in the population.

    The rows of DATA must not have been used to fit or to choose the model. The exit code is 0 if
    the limit is certified, 3 if it is not, and 2 on errors, so it can serve as a check in pipelines.

    \b
    scalefair certify pay.scalefair new.parquet --sensitive sex,race --unfairness 0.05
    scalefair certify pay.scalefair new.csv --sensitive sex --limit-on means --unfairness 200
    scalefair certify hired.scalefair new.csv --sensitive sex --limit-on odds --truth hired
    """
    if (options["limit_on"] == "odds") != (options["truth"] is not None):
        raise click.UsageError("--truth and --limit-on odds need each other")
    with reading.open(console, "test") as given:
        for name in ("sensitive", "control"):
            given.find(f"--{name}", options[name])
        from scalefair import NotCertifiedError, load
        from scalefair._files import write_atomically

        fitted = load(model)
        try:
            certificate = _certified(fitted, reading, given, console, **options)
        except NotCertifiedError as error:
            known = {name: vars(error)[name] for name in ("limit", "confidence", "least_limit")}
            rows = error.rows if isfinite(error.rows) else None
            console.result({"certified": False, **known, "rows_needed": rows}, str(error))
            click.get_current_context().exit(NOT_CERTIFIED)
    if out is not None:
        write_atomically(out, (certificate.to_json() + "\n").encode())
    console.result({"certified": True, **asdict(certificate)}, f"certified: {certificate}")


def _certified(
    model: Any, reading: Reading, given: Data, console: Console, *,
    sensitive: tuple[str, ...], unfairness: float, truth: str | None, control: tuple[str, ...],
    weight: str | None, seed: int, **options: Any,
) -> Any:  # fmt: skip
    from scalefair import certify

    table = reading.typed(given, text_columns(model))
    inputs = check_inputs(table, model)
    if not sensitive and table.is_built_in:
        sensitive = ADULT_SENSITIVE
    stored = vars(model).get("columns_", {}).get("sensitive", ())
    attributes = table.find_sensitive(sensitive or stored)
    y, w, others = (
        table.find_one("--truth", truth),
        table.find_one("--weight", weight),
        table.find("--control", control),
    )
    _data.check_distinct(sensitive=attributes, truth=[y], weight=[w])
    _data.check_distinct(sensitive=attributes, control=others, weight=[w])
    labels = None if y is None else table.codes("--truth", y, None, "give a column of two levels")
    console("judging")
    rows = table.take(X=inputs, sensitive_features=attributes, y_true=y, control_features=others, sample_weight=w)
    rows |= {} if labels is None else {"y_true": labels}
    with noting_warnings(console):
        return certify(model, **rows, unfairness=unfairness, random_state=seed, **options)
