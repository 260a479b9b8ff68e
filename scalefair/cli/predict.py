"""scalefair predict: the predictions of a saved model, streamed from file to file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scalefair.cli import _data
from scalefair.cli._console import Console
from scalefair.cli._data import Data, Reading

ROWS = 2**15  # rows in memory at once
STDOUT = Path("-")


@dataclass(frozen=True, eq=False)
class TablePredictor:
    """Turns tables of inputs into tables of carried columns and the predictions of a model."""

    model: Any
    carried: list[str]

    @property
    def inputs(self) -> list[str]:
        """Columns that the model needs: those of its fit but the hidden ones."""
        prepared = self.model._design.preparation
        hidden = set(prepared.sensitive_columns or ()) if prepared.hide_sensitive else set()
        names = enumerate(self.model.feature_names_in_)
        return [str(name) for j, name in names if j not in hidden]

    @property
    def outputs(self) -> list[str]:
        """Columns that it adds: the prediction, and of classes the probability of each."""
        from sklearn.base import is_classifier

        classes = self.model.classes_ if is_classifier(self.model) else ()
        return ["prediction", *(f"probability_{label}" for label in classes)]

    def __call__(self, x: Any, s: Any) -> Any:
        """Return an arrow table of the carried columns `s` and the predictions for `x`."""
        from scalefair.data.sources.files import beside

        first, *classes = self.outputs
        values = {first: self.model.predict(x)}
        if classes:
            values |= dict(zip(classes, self.model.predict_proba(x).T, strict=True))
        return beside(s, values)


def predict_piece(piece: Any, shared: tuple[TablePredictor, Any]) -> Any:
    """Read a piece of the files on a worker, and predict it."""
    from scalefair.data.sources.files import read_piece

    predictor, scan = shared
    table = read_piece(scan, piece)
    carried = table.select(predictor.carried) if predictor.carried else None
    return predictor(table.select(predictor.inputs), carried)


@click.command(short_help="Predict the rows of DATA with a fitted MODEL.")
@click.argument("model", type=_data.WRITTEN_FILE)
@_data.columns_option("--keep", "Columns of DATA to pass on, such as an identifier; 'all' for all.")
@_data.out_option(default="predictions.parquet", help="A .parquet, .csv or .csv.gz file; - writes csv to stdout.")
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="Put ' before text that a spreadsheet would run, such as =1+1, for untrusted csv.",
)
@_data.reading_options
@_data.printing_options
def predict(
    *, model: Path, keep: tuple[str, ...], out: Path, escape_formulas: bool, reading: Reading, console: Console
) -> None:
    """Predict the rows of DATA with a MODEL that `scalefair fit` wrote.

    The column prediction is the predicted number or the most likely class; each class also has a
    column probability_CLASS. Rows are streamed: memory does not grow with DATA. Without DATA the test
    rows of the built-in Adult census data are used.

    \b
    scalefair predict pay.scalefair new.parquet --out predictions.parquet --keep id,sex
    scalefair predict pay.scalefair new.csv --out - | head
    """
    from scalefair.data.sources.files import check_ending, without_formulas, write_csv, write_tables

    if out != STDOUT:
        check_ending(out)
    elif console.as_json:
        raise click.UsageError("--out - writes the predictions to stdout; leave out --json")
    with reading.open(console, "test") as given:
        every = list(keep) == ["all"] and "all" not in given.columns
        carried = given.columns if every else given.find("--keep", keep)
        from scalefair import load

        fitted = load(model)
        table = reading.typed(given, text_columns(fitted))
        check_inputs(table, fitted)
        predictor = TablePredictor(fitted, carried)
        console("predicting")
        parts = with_progress(tables(predictor, table), table.n_rows, console)
        parts = map(without_formulas, parts) if escape_formulas else parts
        rows = write_csv(sys.stdout.buffer, parts) if out == STDOUT else write_tables(out, parts)
    record = {
        "predictions": out,
        "model": model,
        "data": table.name,
        "rows": rows,
        "columns": predictor.carried + predictor.outputs,
    }
    if out == STDOUT:
        console.finish()
    else:
        console.result(record, f"{out}: predictions for {rows:,} rows")


def check_inputs(data: Data, model: Any) -> list[str]:
    """Return the inputs of a model, all of which must be in the data."""
    inputs = [str(name) for name in model.feature_names_in_]
    absent = [name for name in inputs if name not in data.columns]
    if absent:
        raise ValueError(
            f"{data.name}: lacks {len(absent)} column(s) that the {type(model).__name__} was "
            f"fitted on, such as {absent[0]!r}; give a table with all of {', '.join(inputs)}"
        )
    return inputs


def tables(predictor: TablePredictor, data: Data) -> Iterator[Any]:
    """Yield the predictions of all rows, in order."""
    if data.client is None:
        for chunk in data.chunks(predictor.inputs, predictor.carried, ROWS):
            yield predictor(chunk.x, chunk.s)
        return
    from scalefair.data.sources.dask_tasks import in_order
    from scalefair.data.sources.files import pieces_of

    scan = data.table[list(dict.fromkeys([*predictor.inputs, *predictor.carried]))]
    yield from in_order(data.client, predict_piece, pieces_of(scan), (predictor, scan))


def with_progress(parts: Iterator[Any], total: int | None, console: Console) -> Iterator[Any]:
    """Yield tables and report their rows to the console."""
    done = 0
    for table in parts:
        done += table.num_rows
        console.update(done, total, "rows")
        yield table


def text_columns(model: Any) -> list[str]:
    """Return the inputs that were text when the model was fitted, whatever they look like now."""
    if not hasattr(model, "predict") or "feature_names_in_" not in vars(model):
        raise ValueError(f"a {type(model).__name__} is not a model of named columns; make one with scalefair fit")
    encoder, sensitive = (model._design.preparation.encoder, model._design.preparation.sensitive_encoder)
    kinds = [] if encoder is None else [(code.name, code.kind) for code in encoder.columns_]
    if sensitive is not None:
        kinds += zip(sensitive.names_, sensitive.kinds_, strict=True)
    return list(dict.fromkeys(name for name, kind in kinds if kind == "categorical"))
