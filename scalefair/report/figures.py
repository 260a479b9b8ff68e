"""The figures of the page, as elements of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

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
from scalefair.report.frontier import Frontier
from scalefair.report.words import fixed, listed, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MAX_INPUTS = 20
WIDTH = 4.5
"""Inches: narrow, so that the text of a figure can still be read on a phone."""
_VARIABLES = {INK: "ink", FAINT: "faint", BEFORE: "before", AFTER: "after"}
_TAG = re.compile(r"<[^>]*>")


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
