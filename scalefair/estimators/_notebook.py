"""How paths show themselves in a notebook."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

MOST_ROWS = 12


def path_html(path: Any) -> str:
    """Return a path as HTML: a picture where matplotlib is there, and the front as a table."""
    front = path.front()
    title = f"<b>{type(path).__name__}</b>: {len(path.table):,} fits, {len(front):,} on the front"
    table = front.to_html(index=False, max_rows=MOST_ROWS, float_format="{:.4g}".format)
    picture = _picture(path) if front["explained_share"].notna().any() else ""
    return f"<div><p>{title}</p>{picture}{table}</div>"


def _picture(path: Any) -> str:
    try:
        from scalefair.plots import make_figure, to_svg

        figure, ax = make_figure(5.0, 3.6)
        path.plot(ax)
        svg = to_svg(figure)
    except ImportError:  # no matplotlib
        return ""
    # An image of its own, on white: dark notebooks do not lend it their colours.
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    alt = "Accuracy against the explained share; the table below has the numbers of the front"
    style = "background:#fff;max-width:100%;width:30rem"
    return f'<img alt="{alt}" style="{style}" src="{source}">'
