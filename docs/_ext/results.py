"""Directives for benchmarks/results, as it was measured.

``benchmark-results`` shows every file, ``benchmark-table NAME`` one of them.
"""

import csv
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
TITLES = {
    "core": "Speed and memory of the core",
    "cost_model": "The cost model, predicted and measured",
    "frontier": "Frontiers on real data, beside other packages",
    "frontier_limits": "Frontiers and the known limit",
    "gp": "Fair Gaussian processes",
    "gp_exact": "Exact Gaussian processes, beside scikit-learn",
    "measures": "Measures of dependence",
    "numerics": "Digits kept",
    "paper_ard": "The paper: ARD on Communities and Crime",
    "paper_toy1": "The paper: toy 1",
    "scaling": "Time against rows and features",
    "streams": "Files and clusters",
}


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


class BenchmarkResults(SphinxDirective):
    """One section with a table per file."""

    def run(self):
        """Return the sections."""
        sections = []
        for name, rows in tables().items():
            self.env.note_dependency(str(FOLDER / f"{name}.csv"))
            section = nodes.section(ids=[nodes.make_id(f"results-{name}")])
            section += nodes.title("", TITLES.get(name, name.replace("_", " ").capitalize()))
            section += nodes.paragraph("", "", nodes.literal("", f"benchmarks/results/{name}.csv"))
            section += _table(rows)
            sections.append(section)
        return sections


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
