"""The directive ``paper-table``: columns of a file in benchmarks/results/paper, as they were kept.

    ```{paper-table} toy1
    :only: measure=obs
    :columns: approach, model, here=mean±error, printed=printed±printed_error
    ```

``a=b±c`` is a column a that shows b with its standard error c.
"""

import csv
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from results import FOLDER, folded
from sphinx.util.docutils import SphinxDirective


def read(name):
    """Return the lines of a kept file as dictionaries."""
    with (FOLDER / "paper" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def digits(value, count):
    """Return a number with so many significant digits, without 1e+02 for 100."""
    text = f"{value:.{count}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e6 else text


def shown(text):
    """Three significant digits of a number; words and whole numbers as they stand."""
    try:
        return text if text.isdigit() else digits(float(text), 3)
    except ValueError:
        return text


def with_error(value, error):
    """Return "value ± error"."""
    if error in ("", "nan"):
        return shown(value)
    return f"{digits(float(value), 4)} ± {digits(float(error), 2)}"


def cells(line, column):
    """Return what a column ``a=b±c`` shows of a line."""
    value, mark, error = column.partition("=")[2].partition("±")
    if not value:
        value, mark, error = column.partition("±")
    return with_error(line[value], line[error]) if mark else shown(line[value])


def rows(name, columns=None, only=None):
    """Return the header and the rows of a table."""
    lines = read(name)
    wanted = [pair.strip().partition("=") for pair in (only or "").split(",") if pair.strip()]
    lines = [line for line in lines if all(line[key] == value for key, _, value in wanted)]
    names = [column.strip() for column in columns.split(",")] if columns else list(lines[0])
    header = [column.partition("=")[0].partition("±")[0] for column in names]
    return [header, *([cells(line, column) for column in names] for line in lines)]


class PaperTable(SphinxDirective):
    """One table."""

    required_arguments = 1
    option_spec: ClassVar = {"columns": directives.unchanged, "only": directives.unchanged}

    def run(self):
        """Return the table."""
        name = self.arguments[0]
        path = FOLDER / "paper" / f"{name}.csv"
        self.env.note_dependency(str(path))
        if not path.exists():
            return [nodes.paragraph("", "Not measured yet.")]
        return folded(rows(name, self.options.get("columns"), self.options.get("only")))


def setup(app):
    """Join the build."""
    app.add_directive("paper-table", PaperTable)
    return {"parallel_read_safe": True}
