"""Figures, colours and the look that every display shares."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from io import StringIO
from typing import Any, Self

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalefair._typing import Array

INK, FAINT = "#1f2328", "#8a939d"
BEFORE, AFTER = "#d55e00", "#0072b2"
"""Vermilion and blue of Okabe and Ito's palette: told apart with every kind of colour blindness."""

COLORS = (AFTER, BEFORE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""Of the same palette, for several models; their markers tell them apart without colour."""

MARKERS = ("o", "D", "s", "^", "v", "P", "X")


def make_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of its own with one axes, in inches; unknown to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def to_svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element whose text stays text; the same for the same figure."""
    out = StringIO()
    # A character that the local font lacks is still drawn by the browser's font.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "scalefair"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=none)
    text = out.getvalue()
    return text[text.index("<svg") :]


class Display(ABC):
    """A picture in scikit-learn's style: it holds what it shows; `plot` draws it and sets `ax_` and `figure_`."""

    ax_: Axes
    figure_: Any

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure, which a notebook shows."""
        self._prepare()  # first: an error should leave no empty figure
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=self._size(), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        self._draw()
        finish(ax)
        return self

    def _prepare(self) -> None:  # noqa: B027
        """Raise ValueError if there is nothing to draw."""

    @abstractmethod
    def _draw(self) -> None:
        """Draw into `ax_`."""

    def _size(self) -> tuple[float, float]:
        """Return width and height of a new figure, in inches."""
        return 6.4, 4.8

    def _name_lines(self, names: Sequence[str]) -> None:
        """Name the lines of a picture with one line for each name, from the top."""
        # Names are data: a dollar sign in one must not start a formula.
        self.ax_.set_yticks(-np.arange(len(names), dtype=float), names, parse_math=False)
        self.ax_.set_ylim(0.4 - len(names), 0.6)


def look_of(number: int) -> dict[str, Any]:
    """Return colour and marker of one of several models."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def limits(low: float, high: float, margin: float) -> tuple[float, float]:
    """Return an interval about [low, high] with so much of its width on either side."""
    width = margin * (high - low) or 0.5
    return low - width, high + width


def percent_axis(ax: Axes) -> None:
    """Write the shares along the x axis as percentages that do not run into each other."""
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.3g} %"))


def share_axis(ax: Axes, where: str) -> None:
    """Make the x axis that of explained shares on rows `where`, such as "held-out"."""
    ax.set_xlabel(f"explained share of the variance ({where})")
    percent_axis(ax)


def share_bars(share: Array, error: Array) -> Array:
    """Return the two lengths of error bars: a share cannot be below 0, nor the end of its bar."""
    return np.stack([np.clip(share, 0.0, error), error])


def finish(ax: Axes) -> None:
    """Colour the frame, leave out what says nothing, and put the legend above."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if not ax.get_yticks().size:
        ax.spines["left"].set_visible(False)
    # Minor ticks and powers of ten as well: a dark page shows no black.
    ax.tick_params(which="both", colors=INK)
    offsets = (axis.get_offset_text() for axis in (ax.xaxis, ax.yaxis))
    for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts, *offsets):
        text.set_color(INK)
    for spine in ax.spines.values():
        spine.set_color(FAINT)
    # Above the axes, where it cannot hide a point.
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    ax.legend(**above, ncols=2, frameon=False, labelcolor=INK, fontsize="small")


def short(name: str, longest: int = 60) -> str:
    """Return a name cut to what fits."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
