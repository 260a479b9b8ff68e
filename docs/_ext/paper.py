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
from results import FOLDER, _table
from sphinx.util.docutils import SphinxDirective


def read(name):
    """Return the lines of a kept file as dictionaries."""
    with (FOLDER / "paper" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shown(text):
    """Four significant digits of a number, an error with two; words as they stand."""
    try:
        value = float(text)
    except ValueError:
        return text
    return f"{value:.4g}"


def with_error(value, error):
    """Return "value ± error" with the digits that the error leaves."""
    if error in ("", "nan"):
        return shown(value)
    return f"{float(value):.3g} ± {float(error):.1g}"


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
        return [_table(rows(name, self.options.get("columns"), self.options.get("only")))]


def setup(app):
    """Join the build."""
    app.add_directive("paper-table", PaperTable)
    return {"parallel_read_safe": True}
