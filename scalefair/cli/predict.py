"""scalefair predict: the predictions of a saved model, streamed from file to file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scalefair.cli import _options
from scalefair.cli._data import Data, Reading
from scalefair.cli._output import Console, check_file

ROWS = 2**15
"""Rows in memory at once."""

STDOUT = Path("-")


@dataclass(frozen=True, eq=False)
class TablePredictor:
    """Turns tables of inputs into tables of carried columns and predictions.

    Parameters
    ----------
    model : fitted estimator
        It has names of columns.
    carried : list of str
        Columns that are passed on.
    """

    model: Any
    carried: list[str]

    @property
    def inputs(self) -> list[str]:
        """Columns that the model needs."""
        return [str(name) for name in self.model.feature_names_in_]

    @property
    def outputs(self) -> list[str]:
        """Columns that it adds: the prediction, and of classes the probability of each."""
        from sklearn.base import is_classifier

        classes = self.model.classes_ if is_classifier(self.model) else ()
        return ["prediction", *(f"probability_{label}" for label in classes)]

    def __call__(self, x: Any, s: Any) -> Any:
        """Return an arrow table of the carried columns `s` and the predictions for `x`."""
        from scalefair.data.sources.files import beside

        return beside(s, self._predictions(x))

    def _predictions(self, x: Any) -> dict[str, Any]:
        first, *classes = self.outputs
        values = {first: self.model.predict(x)}
        if classes:
            values |= dict(zip(classes, self.model.predict_proba(x).T, strict=True))
        return values


def predict_piece(piece: Any, shared: tuple[TablePredictor, Any]) -> Any:
    """Read a piece of the files on a worker, and predict it."""
    from scalefair.data.sources.files import read_piece

    predictor, scan = shared
    table = read_piece(scan, piece)
    carried = table.select(predictor.carried) if predictor.carried else None
    return predictor(table.select(predictor.inputs), carried)


@click.command(short_help="Predict the rows of DATA with a fitted MODEL.")
@click.argument("model", type=click.Path(path_type=Path))
@_options.columns("--keep", "Columns of DATA to pass on, such as an identifier; 'all' for all.")
@_options.out_file(
    "A .parquet, .csv or .csv.gz file; - writes csv to stdout.",
    default="predictions.parquet",
    show_default=True,
)
@_options.reading
@_options.printing
def predict(
    model: Path, keep: tuple[str, ...], out: Path, reading: Reading, console: Console
) -> None:
    """Predict the rows of DATA with a MODEL that `scalefair fit` wrote.

    The column prediction is the number predicted, or the most likely class; classes have a column
    probability_CLASS each. Rows are streamed: memory does not grow with DATA. Without DATA the test
    rows of the built-in Adult census data are used.

    \b
    scalefair predict pay.scalefair new.parquet --out predictions.parquet --keep id,sex
    scalefair predict pay.scalefair new.csv --out - | head
    """
    from scalefair import load

    _check_out(out, console.as_json)
    fitted = _with_names(model, load(model))
    with reading.open(console, "test") as given:
        table = reading.retyped(given, text_columns(fitted))
        predictor = TablePredictor(fitted, _carried(table, keep))
        _check_inputs(table, model, predictor.inputs)
        console("predicting")
        rows = _write_predictions(
            out, with_progress(tables(predictor, table), _length(table), console)
        )
    record = {
        "predictions": out, "model": model, "data": table.name, "rows": rows,
        "columns": predictor.carried + predictor.outputs, "seconds": console.seconds,
    }  # fmt: skip
    if out == STDOUT:
        console.finish()
    else:
        console.result(record, f"{out}: predictions for {rows:,} rows")


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
    """Yield tables and tell the console of their rows."""
    done = 0
    for table in parts:
        done += table.num_rows
        console.update(done, total, "rows")
        yield table


def text_columns(model: Any) -> list[str]:
    """Return the inputs that were text when the model was fitted, whatever they look like now."""
    encoder, sensitive = model._preparation.encoder, model._preparation.sensitive_encoder
    kinds = [] if encoder is None else [(code.name, code.kind) for code in encoder.columns_]
    if sensitive is not None:
        kinds += zip(sensitive.names_, sensitive.kinds_, strict=True)
    return list(dict.fromkeys(name for name, kind in kinds if kind == "categorical"))


def _with_names(path: Path, model: Any) -> Any:
    if not hasattr(model, "predict") or not hasattr(model, "feature_names_in_"):
        raise ValueError(f"{path}: holds no model of named columns; make one with scalefair fit")
    return model


def _carried(data: Data, keep: Sequence[str]) -> list[str]:
    if list(keep) == ["all"] and "all" not in data.columns:
        return data.columns
    return data.find("--keep", keep)


def _check_inputs(data: Data, model: Path, inputs: list[str]) -> None:
    absent = [name for name in inputs if name not in data.columns]
    if absent:
        raise ValueError(
            f"{data.name}: lacks {len(absent)} column(s) that {model} was fitted on, such as "
            f"{absent[0]!r}; give a table with all of {', '.join(inputs)}"
        )


def _check_out(out: Path, as_json: bool) -> None:
    if out == STDOUT:
        if as_json:
            raise ValueError("--out - writes the predictions to stdout; leave out --json")
        return
    from scalefair.data.sources.files import check_ending

    check_ending(out)
    check_file(out)


def _length(data: Data) -> int | None:
    return len(data.table) if data.in_memory else data.table.n_rows


def _write_predictions(out: Path, parts: Iterator[Any]) -> int:
    from scalefair.data.sources.files import write_csv, write_tables

    return write_csv(sys.stdout.buffer, parts) if out == STDOUT else write_tables(out, parts)
