"""The page: one self-contained HTML file, offline, and the files beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from sklearn.base import clone

from scalefair import __version__
from scalefair._files import write_atomically
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.errors import UnsavableError
from scalefair.persistence import save
from scalefair.plots import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    FairPathDisplay,
    GroupDistributionDisplay,
    RelevanceDisplay,
    make_figure,
    path_points,
    target_variance,
    to_svg,
)
from scalefair.report import tables
from scalefair.report.frontier import Frontier, check_fair, fit_frontier
from scalefair.report.independence import verdict
from scalefair.report.problem import Problem, hold_out, read_target
from scalefair.report.words import (
    fixed,
    headline,
    load_code,
    number,
    percent,
    refit_code,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODEL = "model.scalefair"
WIDTH = 4.5
"""Inches: narrow, so that the text of a figure can still be read on a phone."""
_VARIABLES = {INK: "ink", FAINT: "faint", BEFORE: "before", AFTER: "after"}
_TAG = re.compile(r"<[^>]*>")


def make_report(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    out: str | os.PathLike[str] = "scalefair-report",
    target: str = "y",
    source: str = "a table in memory",
    random_state: int = 0,
) -> Frontier:
    """Fit an estimator on four fifths of the rows, judge it on the others, and write the report.

    Parameters
    ----------
    estimator : estimator of scalefair
        Regressor, classifier of two classes or Gaussian process; a copy of it is fitted.
    X : array or frame of shape (n, d)
        Inputs.
    y : array or Series of shape (n,)
        Numbers, booleans, or text of two levels.
    sensitive_features : array, Series or frame of shape (n,) or (n, p)
        Sensitive attributes; not needed where the estimator has `sensitive_columns`.
    out : path, default="scalefair-report"
        Folder for report.html, frontier.csv and model.scalefair.
    target, source : str
        Names of the target and of the data, for people.
    random_state : int, default=0
        Decides which rows are held out.

    Returns
    -------
    Frontier
        Everything that the page says, as numbers.

    Examples
    --------
    >>> import tempfile
    >>> from scalefair import FairRidge
    >>> from scalefair.datasets import make_toy1
    >>> from scalefair.report import make_report
    >>> toy = make_toy1(400, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = make_report(
    ...         FairRidge(unfairness=0.05), toy.data, toy.target,
    ...         sensitive_features=toy.sensitive_features, out=folder,
    ...     )
    >>> round(result.estimator.explained_share_, 6) <= 0.05
    True
    """
    check_fair(estimator)
    S = _sensitive(estimator, X, sensitive_features)
    numbers, levels = read_target(_target_table(y, target), target)
    train, test, held_out = hold_out(X, numbers, S, random_state)
    code = "# X, y, S: inputs, target and sensitive attributes"
    problem = Problem(
        source, target, frames.column_names(S) or [], train, test, held_out, levels, code
    )
    result = fit_frontier(problem, clone(estimator))
    write_report(result, out, __version__)
    return result


def _sensitive(estimator: Any, X: Any, given: Any) -> Any:
    columns = estimator.sensitive_columns
    if given is not None and columns is not None:
        raise ValueError(
            "sensitive_features and sensitive_columns are both given; give one of them"
        )
    if given is None and columns is None:
        raise ValueError(
            "sensitive_features is missing; give them here, or name columns of X with "
            "sensitive_columns"
        )
    table = given if columns is None else frames.take_columns(X, columns)
    names = frames.column_names(table)
    if names is not None:
        return table
    columns = frames.columns(frames.as_table(table, one_column=True), "s")
    return frames.make_frame({c.name or f"s{i}": _cells(c) for i, c in enumerate(columns)})


def _cells(column: frames.Column) -> Any:
    if column.kind != "categorical":
        return column.floats()
    codes, levels = column.codes()
    return np.array([*levels, None], dtype=object)[codes]


def _target_table(y: Any, target: str) -> Any:
    """Return y as a table of one column of that name."""
    (column,) = frames.columns(frames.as_table(y, one_column=True), "y")
    if column.kind in ("numeric", "boolean", "empty"):
        return frames.make_frame({target: column.floats()})
    return frames.make_frame({target: _cells(column)})


def write_report(frontier: Frontier, folder: str | os.PathLike[str], version: str) -> Path:
    """Write report.html, frontier.csv and model.scalefair into a folder; return the page's path.

    The folder is made if need be. A model that holds something of the user's own cannot be saved,
    and is then left out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = _saved(frontier, folder)
    page = render(frontier, version, model)
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False).encode())
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def _saved(frontier: Frontier, folder: Path) -> str | None:
    try:
        save(frontier.estimator, folder / MODEL)
    except UnsavableError:
        return None
    return MODEL


def render(frontier: Frontier, version: str, model: str | None = None) -> str:
    """Return the report as the text of an HTML page.

    Parameters
    ----------
    frontier : Frontier
        What to show.
    version : str
        Of scalefair.
    model : str, default=None
        Name of the file beside the page that holds the chosen model, if there is one.
    """
    relevance = tables.compare_relevance(frontier.baseline, frontier.estimator)
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
        groups=tables.mean_rows(frontier),
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


def path_plot(frontier: Frontier) -> Markup:
    """Draw the frontier, with the chosen model and the limit."""
    if frontier.front.empty:
        return Markup("")
    figure, ax = make_figure(WIDTH, 3.8)
    display = FairPathDisplay(frontier.table, frontier.front, frontier.chosen, frontier.limit)
    display.plot(ax)
    points = path_points(frontier.front, target_variance(frontier.table))
    return inline_svg(
        figure,
        "path",
        f"R squared against the explained share along the front of {len(points.r2)} fits: from "
        f"{fixed(points.r2[0], 3)} at {percent(points.share[0])} to {fixed(points.r2[-1], 3)} at "
        f"{percent(points.share[-1])}. The table below has the numbers.",
    )


def group_plot(frontier: Frontier) -> Markup:
    """Draw the distributions of the predictions by group."""
    groups = frontier.groups
    n_drawn = min(len(groups.names), 8)
    figure, ax = make_figure(WIDTH, 1.2 + 0.62 * n_drawn)
    display = GroupDistributionDisplay(groups.labels, frontier.before, frontier.after, n_drawn)
    display.plot(ax)
    return inline_svg(
        figure,
        "groups",
        f"Densities of the predictions for {listed(display.groups_)}, without and with the "
        "penalty. The table above has the means.",
    )


def relevance_plot(table: pd.DataFrame) -> Markup:
    """Draw the length scales of a Gaussian process, without and with the penalty."""
    rows = table.head(tables.MAX_INPUTS)
    before, after = (
        dict(zip(rows["input"], rows[name], strict=True)) for name in ("before", "after")
    )
    figure, ax = make_figure(WIDTH, 1.2 + 0.27 * len(rows))
    display = RelevanceDisplay(before, after, list(rows["input"])).plot(ax)
    return inline_svg(
        figure,
        "relevance",
        f"Length scales of {listed(display.inputs_)}, without and with the penalty. The table "
        "below has the numbers.",
    )


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as an element of the page: it scales, is read aloud, and follows dark mode.

    Only tags are touched, never text: the text of a plot may be a level of somebody's data.
    """

    def adapt(match: re.Match[str]) -> str:
        tag = match.group()
        for colour, variable in _VARIABLES.items():
            tag = tag.replace(colour, f"var(--{variable})")
        return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", tag)

    svg = _TAG.sub(adapt, to_svg(figure))
    head = re.sub(r' (?:width|height)="[^"]*"', "", svg[: svg.index(">")])
    label = f' role="img" aria-label="{escape(label)}"'
    return Markup(head + label + svg[svg.index(">") :])  # noqa: S704  # nosec B704
