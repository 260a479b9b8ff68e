"""Several curves with standard errors, in panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from scalefair._files import replacing, write_atomically
from scalefair._typing import Array
from scalefair.plots.figures import AFTER, BEFORE, FAINT, INK, finish, to_svg

COLOURS = (INK, BEFORE, AFTER, "#009e73", "#cc79a7", FAINT)
"""Okabe and Ito's palette again, with bluish green and reddish purple."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Points, and how they look.

    Parameters
    ----------
    label : str
    x, y : arrays of shape (k,)
    y_error, x_error : arrays of shape (k,) or None
        Standard errors; NaN for none.
    colour : int
        Place in the palette.
    line : str
        matplotlib's line style; "" draws points only.
    marker : str
    filled : bool
        Hollow markers are for numbers that are not ours.
    """

    label: str
    x: Any
    y: Any
    y_error: Any = None
    x_error: Any = None
    colour: int = 0
    line: str = "-"
    marker: str = "o"
    filled: bool = True


@dataclass(frozen=True, eq=False)
class Panel:
    """Curves in one pair of axes.

    Parameters
    ----------
    curves : sequence of Curve
    x_label, y_label : str
    log : str
        The axes that are logarithmic: "", "x", "y" or "xy".
    ticks : sequence of str
        Names of x = 0, 1, 2, ...; none where x is a number.
    """

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    log: str = ""
    ticks: Sequence[str] = ()


def front_panel(table: pd.DataFrame, by: str, x: str, x_label: str, *, log: str = "x", markers: str = "o") -> Panel:
    """RMSE against the column `x`, a curve for every level of `by`; low rank is dashed."""
    curves = [
        Curve(
            str(name),
            rows[x],
            rows["rmse"],
            rows["rmse_error"],
            rows[f"{x}_error"],
            colour=number % len(COLOURS),
            line="--" if "rank" in str(name) else "-",
            marker=markers[number % len(markers)],
        )
        for number, (name, rows) in enumerate(table.groupby(by, sort=False))
    ]
    return Panel(curves, x_label, "RMSE", log=log)


def draw_panels(panels: Sequence[Panel]) -> Figure:
    """Return a figure with the panels side by side; pyplot does not know of it."""
    figure = Figure(figsize=(4.6 * len(panels), 4.2), layout="constrained")
    axes: Any = figure.subplots(1, len(panels), squeeze=False)
    for panel, ax in zip(panels, axes[0], strict=True):
        _draw(panel, ax)
    return figure


def to_files(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.svg and stem.png, each whole or not at all; return their paths."""
    vector, pixels = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    write_atomically(vector, to_svg(figure).encode())
    with replacing(pixels) as file:
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return [vector, pixels]


def _draw(panel: Panel, ax: Axes) -> None:
    for curve in panel.curves:
        _plot(curve, ax)
    if "x" in panel.log:
        ax.set_xscale("log")
        _plain_numbers(ax.xaxis)
    if "y" in panel.log:
        ax.set_yscale("log")
        _plain_numbers(ax.yaxis)
    if panel.ticks:
        ax.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=60, ha="right")
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    finish(ax)


def _plain_numbers(axis: Axis) -> None:
    """Label 1, 2 and 5 of every decade as plain numbers: some curves span less than one."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _plot(curve: Curve, ax: Axes) -> None:
    colour = COLOURS[curve.colour]
    look: dict[str, Any] = {"color": colour, "elinewidth": 0.9, "markersize": 4, "capsize": 1.5}
    if not curve.filled:
        look["markerfacecolor"] = "none"
    ax.errorbar(
        np.asarray(curve.x, dtype=np.float64),
        np.asarray(curve.y, dtype=np.float64),
        yerr=_bars(curve.y_error),
        xerr=_bars(curve.x_error),
        label=curve.label,
        linestyle=curve.line or "none",
        marker=curve.marker,
        linewidth=1.6,
        **look,
    )


def _bars(error: Any) -> Array | None:
    return None if error is None else np.nan_to_num(np.asarray(error, dtype=np.float64))
