"""Directives for files of benchmarks/results, as they were measured.

``benchmark-results`` with names shows those tables, ``:where: column=value; ...`` only some of
their rows, ``:columns: a; b`` only these columns, with a link to the file and what it was made
with, ``:links:`` only that; without names all files but those in ``:except:``: short ones as
tables, long ones as links.
``benchmark-table NAME`` shows one table, or the command that makes it where it is not there;
``benchmark-figure NAME`` likewise a picture, described by its content.
The role ``result`` is one number: ``{result}`file; column=value; ...; column```.
"""

import csv
import os
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst.directives import flag
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
LONG = 40
"""Lines beyond which a table of the list of all is a link only."""
FOLDED = 20
"""Lines beyond which a table is folded, to be opened by a click."""
WIDE = 11
"""Columns beyond which the cells of a table stand closer, to fit on a page."""
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
    "peers": "Peers: every point",
    "peers_ends": "Peers: who was stopped, and who failed",
    "peers_findings": "Peers: who is ahead",
    "peers_gap": "Peers: accuracy at a gap of decisions",
    "peers_hsic": "Peers: error at an HSIC",
    "peers_ks": "Peers: error at a KS distance",
    "peers_levels": "Peers: who is ahead, level by level",
    "peers_share": "Peers: error at a share",
    "peers_speed": "Peers: time of one model over ours",
    "peers_variants": "Peers: which of ours was chosen on validation rows",
    "decisions_points": "Decisions: every point",
    "promises": "Limits on new rows",
    "scaling": "Time against rows and features",
    "scaling_peers": "Time and memory against rows and features, beside others",
    "streams": "Files and clusters",
    "waiting": "Where people wait",
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
            rows = csv.reader(line for line in file if not line.startswith("#"))
            found[path.stem] = [[rounded(cell) for cell in row] for row in rows if row]
    return found


def made_with(name):
    """Return what a file says of itself: commit, day, seeds, versions."""
    lines = (FOLDER / f"{name}.csv").read_text("utf-8").splitlines()
    return list(dict.fromkeys(line[2:] for line in lines if line.startswith("#")))


def one_result(text):
    """Return the cell that "file; column=value; ...; column" names, the first one that fits."""
    name, *conditions, column = (part.strip() for part in text.split(";"))
    rows = tables()[name]
    if column not in rows[0]:
        raise KeyError(f"{name}.csv has no column {column!r}")
    kept = selected(rows, ";".join(conditions), hide=False)
    if len(kept) < 2:
        raise KeyError(f"{name}.csv has no line with {'; '.join(conditions)}")
    return kept[1][rows[0].index(column)]


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
    return nodes.table("", group, classes=["table", "table-sm", *["table-wide"] * (width > WIDE)])


def folded(rows):
    """A table; a long one opens by a click."""
    if len(rows) <= FOLDED:
        return [_table(rows)]
    start = f"<details><summary>Show the table ({len(rows) - 1} lines)</summary>"
    ends = [nodes.raw("", html, format="html") for html in (start, "</details>")]
    return [ends[0], _table(rows), ends[1]]


def selected(rows, where, hide=True):
    """Return the header and the rows in which every named column has the value asked for."""
    wanted = [part.split("=", 1) for part in where.split(";") if part.strip()]
    places = [(rows[0].index(column.strip()), value.strip()) for column, value in wanted]
    kept = [row for row in rows[1:] if all(row[place] == value for place, value in places)]
    hidden = {place for place, _ in places if hide}
    return [
        [cell for place, cell in enumerate(row) if place not in hidden] for row in [rows[0], *kept]
    ]


def chosen_columns(rows, names):
    """Return the rows with these columns only."""
    wanted = [name.strip() for name in names.split(";")]
    places = [place for place, name in enumerate(rows[0]) if name in wanted]
    return [[row[place] for place in places] for row in rows]


class BenchmarkResults(SphinxDirective):
    """Tables that are asked for by name, or one section a file."""

    optional_arguments = 9
    option_spec: ClassVar = {"where": str, "except": str, "columns": str, "links": flag}

    def run(self):
        """Return the tables or the sections."""
        found = tables()
        if self.arguments:
            return [part for name in self.arguments for part in self._one(name, found.get(name))]
        away = set(self.options.get("except", "").split())
        return [self._section(name, rows) for name, rows in found.items() if name not in away]

    def _one(self, name, rows):
        if rows is None:
            return [nodes.paragraph("", f"{name}.csv is not there yet.")]
        if "links" in self.options:
            return [self._link(name)]
        self.env.note_dependency(str(FOLDER / f"{name}.csv"))
        rows = selected(rows, self.options.get("where", ""))
        if "columns" in self.options:
            rows = chosen_columns(rows, self.options["columns"])
        table = folded(rows) if len(rows) > 1 else [nodes.paragraph("", "None so far.")]
        return [*table, self._link(name)]

    def _link(self, name):
        """A link to the file, and what it was made with."""
        here = Path(self.env.doc2path(self.env.docname)).parent
        target = os.path.relpath(FOLDER / f"{name}.csv", here)
        link = addnodes.download_reference("", "", reftarget=target, refdoc=self.env.docname)
        link += nodes.literal("", f"{name}.csv")
        said = nodes.inline("", "; ".join(made_with(name)), classes=["provenance"])
        return nodes.paragraph("", "", link, nodes.Text(" "), said)

    def _section(self, name, rows):
        section = nodes.section(ids=[nodes.make_id(f"results-{name}")])
        section += nodes.title("", TITLES.get(name, name.replace("_", " ").capitalize()))
        section += self._one(name, rows) if len(rows) <= LONG else [self._link(name)]
        return section


class BenchmarkFigure(SphinxDirective):
    """One picture of the folder with a caption, if it was drawn."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return the picture; the content is what it shows, in words."""
        (name,), about = self.arguments, " ".join(self.content)
        path = FOLDER / f"{name}.svg"
        if not path.exists():
            return [nodes.paragraph("", f"{about}: not measured yet.")]
        self.env.note_dependency(str(path))
        here = Path(self.env.doc2path(self.env.docname)).parent
        image = nodes.image("", uri=Path(os.path.relpath(path, here)).as_posix(), alt=about)
        return [nodes.figure("", nodes.caption("", about), image)]


class Result(SphinxRole):
    """One number of one file."""

    def run(self):
        """Return its text; a number that is not there is an error of the page."""
        try:
            return [nodes.Text(one_result(self.text))], []
        except KeyError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]


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
    app.add_directive("benchmark-figure", BenchmarkFigure)
    app.add_role("result", Result())
    return {"parallel_read_safe": True}
