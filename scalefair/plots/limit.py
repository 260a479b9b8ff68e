"""A frontier beside the known limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from matplotlib.axes import Axes

from scalefair.plots.figures import AFTER, FAINT, finish, new_axes, percent_axis

if TYPE_CHECKING:
    import pandas as pd


class LimitGapDisplay:
    """The frontier of a model beside the known limit, on held-out rows.

    Parameters
    ----------
    table : DataFrame
        `LimitGap.table`: the points of both curves.
    gap : float
        Mean excess of the error over the limit's.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    ax_: Axes
    figure_: Any

    def __init__(self, table: pd.DataFrame, gap: float) -> None:
        self.table = table
        self.gap = gap

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        looks = {
            "limit": {"color": FAINT, "linestyle": "--", "label": "limit: centred and rescaled"},
            "model": {"color": AFTER, "marker": "o", "label": f"model, {self.gap:.1%} above"},
        }
        for curve, look in looks.items():
            rows = self.table[self.table["curve"] == curve].sort_values("share")
            options: dict[str, Any] = {"markersize": 3.5, "linewidth": 1.8, **look}
            self.ax_.plot(rows["share"], rows["rmse"], **options)
        self.ax_.set_xlabel("explained share of the variance (held-out)")
        self.ax_.set_ylabel("root mean squared error (held-out)")
        percent_axis(self.ax_)
        finish(self.ax_)
        return self
