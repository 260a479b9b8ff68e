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
from scalefair.errors import InputError, UnsavableError
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
from scalefair.report.groups import decision_table, group_table
from scalefair.report.problem import from_rows
from scalefair.report.words import (
    TITLES,
    as_percent,
    decimals,
    fixed,
    headline,
    load_code,
    number,
    pvalue,
    refit_code,
    verdict,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODEL = "model.scalefair"
WIDTH = 4.5
"""Inches: narrow, so that the text of a figure can still be read on a phone."""
MAX_GROUPS, MAX_INPUTS = 20, 20
CUT = 0.5
"""From here on a prediction is a positive decision."""
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
    code = "# X, y, S: inputs, target and sensitive attributes"
    problem = from_rows(X, y, S, target=target, source=source, seed=random_state, code=code)
    result = fit_frontier(problem, clone(estimator))
    write_report(result, out)
    return result


def _sensitive(estimator: Any, X: Any, given: Any) -> Any:
    """Return the sensitive attributes as a frame; columns without names are s0, s1, ..."""
    columns = estimator.sensitive_columns
    if (given is None) == (columns is None):
        both = "both given" if given is not None else "both missing"
        raise InputError(
            f"sensitive_features and sensitive_columns are {both}",
            "give the attributes here, or the estimator names of columns of X",
            where="sensitive_features",
        )
    table = given if columns is None else frames.take_columns(X, columns)
    if frames.column_names(table) is not None:
        return table
    values = np.asarray(table).reshape(frames.n_rows(table), -1)
    return frames.make_frame({f"s{j}": values[:, j] for j in range(values.shape[1])})


def write_report(frontier: Frontier, folder: str | os.PathLike[str]) -> Path:
    """Write report.html, frontier.csv and model.scalefair into a folder; return the page's path.

    The folder is made if need be. A model that holds something of the user's own cannot be saved,
    and is then left out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model: str | None = MODEL
    try:
        save(frontier.estimator, folder / MODEL)
    except UnsavableError:
        model = None
    page = render(frontier, model)
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False).encode())
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def render(frontier: Frontier, model: str | None = None) -> str:
    """Return the report as the text of an HTML page; `model` is the file beside it, if any."""
    relevance = tables.compare_relevance(frontier.baseline, frontier.estimator)
    problem, groups = frontier.problem, frontier.groups
    means = group_table(groups, problem.test.y, frontier.before, frontier.after)
    decisions = decision_table(groups, frontier.before, frontier.after, CUT)
    return _environment().get_template("template.html").render(
        frontier=frontier,
        problem=problem,
        headline=_unbroken(headline(frontier)),
        scores=frontier.scores(),
        path_plot=path_plot(frontier),
        group_plot=group_plot(frontier),
        front=tables.front_rows(frontier),
        groups=means.head(MAX_GROUPS).to_dict("records"),
        n_groups=len(means),
        digits=decimals(float(np.std(frontier.before)) or 1.0),
        decisions=decisions.head(MAX_GROUPS).to_dict("records") if problem.is_binary else [],
        cut=CUT,
        tests=[] if frontier.tests is None else frontier.tests.to_dict("records"),
        titles=TITLES,
        verdict=verdict(frontier.tests, listed(problem.sensitive)),
        relevance=[] if relevance is None else relevance.head(MAX_INPUTS).to_dict("records"),
        n_inputs=0 if relevance is None else len(relevance),
        relevance_plot="" if relevance is None else relevance_plot(relevance),
        settings=tables.settings(frontier),
        model=model,
        load_code=load_code(frontier, model or MODEL),
        code=refit_code(frontier),
        version=__version__,
    )  # fmt: skip


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scalefair", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda x: _unbroken(as_percent(x)), "fixed": fixed, "number": number,
        "pvalue": pvalue, "listed": listed,
    }  # fmt: skip
    return environment


def _unbroken(text: str) -> str:
    return text.replace(" %", "\u00a0%")


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
        f"{fixed(points.r2[0], 3)} at {as_percent(points.share[0])} to "
        f"{fixed(points.r2[-1], 3)} at {as_percent(points.share[-1])}. The table below has the "
        "numbers.",
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
    rows = table.head(MAX_INPUTS)
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
