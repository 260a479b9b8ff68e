"""scalefair audit: how far predictions in a table depend on sensitive columns."""

from __future__ import annotations

from typing import Any

import click

from scalefair.cli import _options
from scalefair.cli._data import ADULT_SENSITIVE, ADULT_TARGET, Data, cluster, open_data
from scalefair.cli._output import Console, noted


@click.command()
@_options.data
@_options.columns(
    "--prediction", "Columns of predictions, one for each model.  [default: prediction]"
)
@_options.sensitive
@_options.column("--truth", "Column of what was to be predicted: numbers, 0 and 1, or levels.")
@click.option(
    "--positive",
    metavar="LEVEL",
    help="The level of --truth that counts as 1.  [default: the second of two]",
)
@_options.weight
@click.option("--threshold", type=float, help="Predictions from here on are positive decisions.")
@click.option(
    "--missing",
    type=click.Choice(["error", "drop", "group"]),
    default="error",
    show_default=True,
    help="Rows in which a sensitive column is missing: refused, left out, or a group.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--table", "full", is_flag=True, help="Print every measure, not only the summary.")
@_options.reading
@_options.printing
def audit(data: str | None, *, as_json: bool, quiet: bool, **options: Any) -> None:
    """Judge how far predictions depend on the sensitive columns.

    DATA has one row per person, with the predictions of any model in a column. Without DATA the
    incomes of the built-in Adult census data are judged, as if they were decisions.

    \b
    scalefair audit predictions.parquet --prediction prediction --sensitive sex,race
    scalefair audit scores.csv --prediction ours,theirs --sensitive age --truth repaid --json
    """
    console = Console(as_json=as_json, quiet=quiet)
    console("loading")
    with cluster(options.pop("scheduler")) as client:
        _audit(data, client, console, **options)


def _audit(
    data: str | None, client: Any, console: Console, *,
    prediction: tuple[str, ...], sensitive: tuple[str, ...], truth: str | None,
    positive: str | None, weight: str | None, seed: int, full: bool, text: tuple[str, ...],
    delimiter: str, **options: Any,
) -> None:  # fmt: skip
    from scalefair import audit as judge

    console(f"reading {data or 'the Adult census data'}")
    table = open_data(data, client=client, text=text, delimiter=delimiter)
    if data is None:
        table, prediction = _decisions(table), prediction or (ADULT_TARGET,)
        sensitive = sensitive or ADULT_SENSITIVE
    if not sensitive:
        raise ValueError("--sensitive is needed with DATA: add --sensitive NAME")
    models = table.find("--prediction", prediction or ("prediction",))
    attributes = table.find("--sensitive", sensitive)
    (y,) = [None] if truth is None else table.find("--truth", [truth])
    (w,) = [None] if weight is None else table.find("--weight", [weight])
    _refuse_text(table, models)
    labels = None if y is None else table.codes("--truth", y, positive)
    console("judging")
    rows = table.selection(list(dict.fromkeys([*models, *attributes, *filter(None, (y, w))])))
    with noted(console):
        result = judge(
            rows[models],
            sensitive_features=rows[attributes],
            y_true=_given(rows, y) if labels is None else labels,
            sample_weight=_given(rows, w),
            random_state=seed,
            **options,
        )
    record = {"data": table.name, "sensitive": attributes, **result.to_dict()}
    summary = "\n".join(x for x in result.summary.splitlines() if not x.startswith("Note: "))
    if full:
        summary += "\n\n" + result.table.drop(columns="words").to_string(index=False)
    console.result({**record, "seconds": console.seconds}, summary)


def _given(rows: Any, name: str | None) -> Any:
    return None if name is None else rows[name]


def _refuse_text(data: Data, models: list[str]) -> None:
    for name in models:
        if data.kind(name) == "categorical":
            others = [column for column in data.columns if column.startswith("probability_")]
            remedy = f", such as {' or '.join(others)}" if others else ""
            raise ValueError(
                f"--prediction: column {name!r} is text; give scores or probabilities{remedy}"
            )


def _decisions(data: Data) -> Data:
    """Return Adult with its target as 0 and 1."""
    above = data.table[ADULT_TARGET].str.startswith(">").astype(int)
    return Data(data.name, data.table.assign(**{ADULT_TARGET: above}), data.columns)
