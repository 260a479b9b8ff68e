"""Accuracy against the explained share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from scalefair._typing import Array
from scalefair.plots.figures import AFTER, BEFORE, FAINT, INK, finish, limits, new_axes

if TYPE_CHECKING:
    import pandas as pd


class PathPoints(NamedTuple):
    """Rows of a path as points: share and R² with their standard errors, each of shape (rows,)."""

    share: Array
    share_error: Array
    r2: Array
    r2_error: Array


def target_variance(table: pd.DataFrame) -> float:
    """Var(y) = mse / (1 − r2), from the row of a path with the largest error."""
    worst = int(np.argmax(table["mse"]))
    return float(table["mse"].iloc[worst] / (1.0 - table["r2"].iloc[worst]))


def path_points(rows: pd.DataFrame, variance: float) -> PathPoints:
    """Return rows of a path as points.

    With cross-validation the values are held-out ones, R² = 1 − mse_cv / variance; without, those
    in the sample, with errors of 0.
    """

    def column(name: str) -> Array:
        return rows[name].to_numpy(dtype=np.float64)

    if "mse_cv" not in rows:
        none = np.zeros(len(rows))
        return PathPoints(column("explained_share"), none, column("r2"), none)
    return PathPoints(
        column("explained_share_cv"),
        column("explained_share_cv_error"),
        1.0 - column("mse_cv") / variance,
        column("mse_cv_error") / variance,
    )


def row_at(table: pd.DataFrame, alpha: float, eta: float) -> pd.DataFrame | None:
    """Return the row of a path at (alpha, eta) as a table of one row, None where it has none."""
    same_alpha = np.isclose(table["alpha"], alpha, rtol=1e-9, atol=0.0)
    found = np.flatnonzero(same_alpha & np.isclose(table["eta"], eta, rtol=1e-9, atol=0.0))
    return table.iloc[[int(found[0])]] if len(found) else None


class FairPathDisplay:
    """Accuracy against the explained share, over a path of fits.

    Parameters
    ----------
    table : DataFrame
        `FairPath.table`: one row per (alpha, eta). With the columns ``*_cv`` and ``*_cv_error``
        the held-out values are drawn with their standard errors, else those in the sample.
    front : DataFrame
        `FairPath.front()`: the rows that no other row beats in both.
    chosen : DataFrame of one row, default=None
        The row of the chosen model.
    limit : float, default=None
        The largest share allowed.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    ax_: Axes
    figure_: Any

    def __init__(
        self,
        table: pd.DataFrame,
        front: pd.DataFrame,
        chosen: pd.DataFrame | None = None,
        limit: float | None = None,
    ) -> None:
        self.table = table
        self.front = front
        self.chosen = chosen
        self.limit = limit

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted cross-validated estimator.

        Parameters
        ----------
        estimator : fitted estimator with `path_`, `alpha_` and `eta_`
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        path = estimator.path_
        chosen = row_at(path.table, estimator.alpha_, estimator.eta_)
        limit = getattr(estimator, "unfairness", None)
        return cls(path.table, path.front(), chosen, limit).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        variance = target_variance(self.table)
        self._draw_table(path_points(self.table, variance))
        self._draw_front(path_points(self.front, variance))
        if self.limit is not None:
            look: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.4}
            self.ax_.axvline(self.limit, label=f"limit {100 * self.limit:.3g} %", **look)
        if self.chosen is not None:
            self._draw_chosen(path_points(self.chosen, variance))
        self._label()
        return self

    def _draw_table(self, points: PathPoints) -> None:
        look: dict[str, Any] = {"color": FAINT, "alpha": 0.6, "markersize": 4}
        self.ax_.plot(points.share, points.r2, ".", label="every fit tried", **look)

    def _draw_front(self, points: PathPoints) -> None:
        share, share_error, r2, r2_error = points
        label, errors = "front", dict[str, Any]()
        if "mse_cv" in self.front:
            # A share cannot be below 0, and neither can the end of its error bar.
            low = np.clip(share, 0.0, share_error)
            errors = {"xerr": np.stack([low, share_error]), "yerr": r2_error, "elinewidth": 0.9}
            label = "front, ± standard error"
        look: dict[str, Any] = {"color": AFTER, "linewidth": 1.8, "marker": "o", "markersize": 3.5}
        self.ax_.errorbar(share, r2, label=label, zorder=3, **look, **errors)
        self.ax_.set_xlim(limits(0.0, float(np.nanmax(share + share_error)), 0.05))
        low_r2, high_r2 = float(np.nanmin(r2 - r2_error)), float(np.nanmax(r2 + r2_error))
        self.ax_.set_ylim(limits(low_r2, high_r2, 0.12))

    def _draw_chosen(self, points: PathPoints) -> None:
        look: dict[str, Any] = {"color": BEFORE, "markersize": 9, "markeredgecolor": INK}
        self.ax_.plot(points.share, points.r2, "D", label="chosen model", zorder=4, **look)

    def _label(self) -> None:
        kind = "held-out" if "mse_cv" in self.table else "in the sample"
        self.ax_.set_xlabel(f"explained share of the variance ({kind})")
        self.ax_.set_ylabel(f"R² ({kind})")
        self.ax_.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=" %"))
        finish(self.ax_)
