"""Directives for files of benchmarks/results, as they were measured.

``benchmark-results`` with names shows those tables, ``:where: column=value; ...`` only some of
their rows; without names all tables but those in ``:except:`` and the long lists of points.
``benchmark-table NAME`` shows one table, or the command that makes it where it is not there.
"""

import csv
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
TITLES = {
    "control": "Parity given the outcome",
    "core": "Speed and memory of the core",
    "cost_model": "The cost model, predicted and measured",
    "external": "Published tables, with ours on the same rows",
    "decisions": "Decisions at a gap, beside other packages",
    "frontier": "Frontiers on real data, beside other packages",
    "frontier_limits": "Frontiers and the known limit",
    "gp": "Fair Gaussian processes",
    "gp_exact": "Exact Gaussian processes, beside scikit-learn",
    "measures": "Measures of dependence",
    "numerics": "Digits kept",
    "peers_at_share": "Peers: error at a share",
    "peers_hsic": "Peers: error at an HSIC",
    "peers_speed": "Peers: time of the reductions over ours",
    "peers_winners": "Peers: who has the least error, share by share",
    "promises": "Limits on new rows",
    "scaling": "Time against rows and features",
    "scaling_peers": "Time and memory against rows and features, beside others",
    "streams": "Files and clusters",
    "waiting": "Where people wait",
}
POINTS = ("peers", "promises_draws")
"""Lists of points, which pictures and other tables are made from."""


def rounded(text):
    """Four significant digits of a measured number; everything else as it stands."""
    plain = text.lstrip("-").replace(".", "", 1)
    return f"{float(text):.4g}" if plain.isdigit() and "." in text and len(plain) > 5 else text


def tables():
    """Return {name: rows} of all results, the header first."""
    found = {}
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found[path.stem] = [[rounded(cell) for cell in row] for row in csv.reader(file) if row]
    return found


def _row(cells, width):
    row = nodes.row()
    for cell in [*cells, *[""] * (width - len(cells))]:
        row += nodes.entry("", nodes.paragraph("", cell))
    return row


def _table(rows):
    width = max(map(len, rows))
    group = nodes.tgroup(cols=width)
    group += [nodes.colspec(colwidth=1) for _ in range(width)]
    group += nodes.thead("", _row(rows[0], width))
    group += nodes.tbody("", *[_row(row, width) for row in rows[1:]])
    return nodes.table("", group, classes=["table", "table-sm"])


def selected(rows, where):
    """Return the header and the rows in which every named column has the value asked for."""
    wanted = [part.split("=", 1) for part in where.split(";") if part.strip()]
    places = [(rows[0].index(column.strip()), value.strip()) for column, value in wanted]
    kept = [row for row in rows[1:] if all(row[place] == value for place, value in places)]
    hidden = {place for place, _ in places}
    return [[cell for place, cell in enumerate(row) if place not in hidden]
            for row in [rows[0], *kept]]  # fmt: skip


class BenchmarkResults(SphinxDirective):
    """Tables that are asked for by name, or one section with a table per file."""

    optional_arguments = 9
    option_spec: ClassVar = {"where": str, "except": str}

    def run(self):
        """Return the tables or the sections."""
        found = tables()
        if self.arguments:
            return [self._one(name, found[name]) for name in self.arguments if name in found]
        away = {*POINTS, *self.options.get("except", "").split()}
        return [self._section(name, rows) for name, rows in found.items() if name not in away]

    def _one(self, name, rows):
        self.env.note_dependency(str(FOLDER / f"{name}.csv"))
        rows = selected(rows, self.options.get("where", ""))
        return _table(rows) if len(rows) > 1 else nodes.paragraph("", "None so far.")

    def _section(self, name, rows):
        section = nodes.section(ids=[nodes.make_id(f"results-{name}")])
        section += nodes.title("", TITLES.get(name, name.replace("_", " ").capitalize()))
        section += nodes.paragraph("", "", nodes.literal("", f"benchmarks/results/{name}.csv"))
        section += self._one(name, rows)
        return section


class BenchmarkTable(SphinxDirective):
    """The table of one file, or a sentence with the command that makes it."""

    required_arguments = 1

    def run(self):
        """Return the table."""
        (name,) = self.arguments
        self.env.note_dependency(str(FOLDER / f"{name}.csv"))
        rows = tables().get(name)
        if rows is not None:
            return [_table(rows)]
        sentence = nodes.paragraph("", "Not measured yet. The command is ")
        sentence += [nodes.literal("", f"python -m benchmarks.{name}"), nodes.Text(".")]
        return [sentence]


def setup(app):
    """Join the build."""
    app.add_directive("benchmark-results", BenchmarkResults)
    app.add_directive("benchmark-table", BenchmarkTable)
    return {"parallel_read_safe": True}
