"""The page: one self-contained HTML file, offline, from the package's own template."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from scalefair.report import tables
from scalefair.report.figures import group_plot, path_plot, relevance_plot
from scalefair.report.frontier import Frontier
from scalefair.report.independence import verdict
from scalefair.report.relevance import relevance_table
from scalefair.report.words import headline, listed, load_code, number, percent, refit_code


def render(frontier: Frontier, version: str, model: str | None = None) -> str:
    """Return the report as the text of an HTML page.

    Parameters
    ----------
    frontier : Frontier
        What to tell.
    version : str
        Of scalefair.
    model : str, default=None
        Name of the file beside the page that holds the chosen model, if there is one.
    """
    relevance = relevance_table(frontier.baseline, frontier.estimator)
    names = listed(frontier.problem.sensitive)
    return _environment().get_template("template.html").render(
        frontier=frontier,
        problem=frontier.problem,
        headline=headline(frontier).replace(" %", "\u00a0%"),
        shares=[scores.share for scores in frontier.scores()],
        measures=tables.measure_rows(*frontier.scores()),
        path_plot=path_plot(frontier),
        group_plot=group_plot(frontier),
        front=tables.front_rows(frontier),
        groups=tables.group_rows(frontier),
        decisions=tables.decision_rows(frontier),
        cut=tables.CUT,
        tests=tables.independence_rows(frontier),
        verdict="" if frontier.tests is None else verdict(frontier.tests, names),
        relevance=[] if relevance is None else tables.relevance_rows(relevance),
        n_inputs=0 if relevance is None else len(relevance),
        relevance_plot="" if relevance is None else relevance_plot(relevance),
        settings=tables.settings(frontier, version),
        model=model,
        load_code=load_code(frontier, model or "model.scalefair"),
        code=refit_code(frontier),
        version=version,
    )  # fmt: skip


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scalefair", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": _unbroken, "listed": listed}
    return environment


def _unbroken(x: float) -> str:
    return percent(x).replace(" ", "\u00a0")
