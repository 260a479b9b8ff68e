"""The page: one self-contained HTML file, offline, from the package's own template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.plots import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    FairPathDisplay,
    GroupDistributionDisplay,
    make_figure,
    path_points,
    target_variance,
    to_svg,
)
from scalefair.report.frontier import Frontier, Scores
from scalefair.report.groups import group_table
from scalefair.report.words import (
    decimals,
    fixed,
    headline,
    listed,
    number,
    percent,
    refit_code,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MAX_GROUPS = 20
MAX_FRONT = 12
_VARIABLES = {INK: "ink", FAINT: "faint", BEFORE: "before", AFTER: "after"}
_TAG = re.compile(r"<[^>]*>")


def render(frontier: Frontier, version: str) -> str:
    """Return the report as the text of an HTML page."""
    environment = Environment(
        loader=PackageLoader("scalefair", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": _unbroken, "listed": listed}
    return environment.get_template("template.html").render(
        frontier=frontier,
        problem=frontier.problem,
        headline=headline(frontier).replace(" %", "\u00a0%"),
        shares=[scores.share for scores in frontier.scores()],
        measures=_measures(*frontier.scores()),
        path_plot=_path_plot(frontier),
        group_plot=_group_plot(frontier),
        front=_front_rows(frontier),
        groups=_group_rows(frontier),
        code=refit_code(frontier),
        version=version,
    )


def _unbroken(x: float) -> str:
    return percent(x).replace(" ", "\u00a0")


def _measures(before: Scores, after: Scores) -> list[tuple[str, str, str]]:
    """Rows of the first table: what is measured, without and with the penalty."""
    rows = [("R²", fixed(before.r2, 3), fixed(after.r2, 3))]
    if before.accuracy is not None and after.accuracy is not None:
        rows.append(("Accuracy at 0.5", percent(before.accuracy), percent(after.accuracy)))
    if before.auc is not None and after.auc is not None:
        rows.append(("Area under the ROC curve", fixed(before.auc, 3), fixed(after.auc, 3)))
    rows.append(("Root mean squared error", number(before.rmse), number(after.rmse)))
    return rows


def _front_rows(frontier: Frontier) -> list[dict[str, Any]]:
    """Some rows of the front, spread evenly over the shares, with the chosen one among them."""
    front, chosen = frontier.front, frontier.chosen
    is_chosen = np.zeros(len(front), dtype=bool)
    if chosen is not None:
        same = [front[name] == chosen[name].iloc[0] for name in ("alpha", "eta")]
        is_chosen = np.asarray(same[0] & same[1])
    points = path_points(front, target_variance(frontier.table))
    keep = np.union1d(_spread(points.share, MAX_FRONT), np.flatnonzero(is_chosen))
    return [
        {
            "share": _with_error(100 * points.share[i], 100 * points.share_error[i], 1, " %"),
            "r2": _with_error(points.r2[i], points.r2_error[i], 3),
            "alpha": number(float(front["alpha"].iloc[i])),
            "eta": number(float(front["eta"].iloc[i])),
            "chosen": bool(is_chosen[i]),
        }
        for i in keep
    ]


def _spread(values: Array, count: int) -> NDArray[np.int64]:
    """Return where sorted values come nearest to `count` equidistant ones, without repeats."""
    wanted = np.linspace(values[0], values[-1], count)
    return np.unique(np.abs(values - wanted[:, None]).argmin(axis=1))


def _with_error(value: float, error: float, digits: int, unit: str = "") -> str:
    if not error > 0:
        return fixed(value, digits) + unit
    return f"{fixed(value, digits)} ± {fixed(error, digits)}{unit}"


def _group_rows(frontier: Frontier) -> dict[str, Any]:
    """Return the largest groups, written with as many decimals as their differences need."""
    y = frontier.problem.test.y
    table = group_table(frontier.groups, y, frontier.before, frontier.after)
    digits = decimals(float(np.std(frontier.before)) or 1.0)
    rows = [_group_row(row, digits) for _, row in table.head(MAX_GROUPS).iterrows()]
    return {"rows": rows, "others": max(len(table) - MAX_GROUPS, 0), "cut": frontier.groups.cut}


def _group_row(row: pd.Series[Any], digits: int) -> dict[str, str]:
    def interval(name: str) -> str:
        if np.isnan(row[f"{name}_low"]):
            return ""
        return f"{fixed(row[f'{name}_low'], digits)} to {fixed(row[f'{name}_high'], digits)}"

    return {
        "group": str(row["group"]),
        "rows": f"{row['rows']:,}",
        "target": fixed(row["target"], digits),
        "before": fixed(row["before"], digits),
        "before_interval": interval("before"),
        "after": fixed(row["after"], digits),
        "after_interval": interval("after"),
    }


def _path_plot(frontier: Frontier) -> Markup:
    figure, ax = make_figure(5.0, 4.0)
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


def _group_plot(frontier: Frontier) -> Markup:
    groups = frontier.groups
    n_drawn = min(len(groups.names), 8)
    figure, ax = make_figure(5.0, 1.2 + 0.62 * n_drawn)
    display = GroupDistributionDisplay(groups.labels, frontier.before, frontier.after, n_drawn)
    display.plot(ax)
    return inline_svg(
        figure,
        "groups",
        f"Densities of the predictions for {listed(display.groups_)}, without and with the "
        "penalty. The table above has the means.",
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
