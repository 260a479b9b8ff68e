"""Frontiers: accuracy against the explained share, and how far it is from the known limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.plots.figures import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    Display,
    limits,
    share_axis,
    share_bars,
)

if TYPE_CHECKING:
    import pandas as pd


class PathPoints(NamedTuple):
    """Rows of a path as points: share and R² with their standard errors, each of shape (rows,)."""

    share: Array
    share_error: Array
    r2: Array
    r2_error: Array


def held_out(rows: pd.DataFrame) -> str:
    """Ending of the columns of held-out values: "_cv", "_test", or "" where there are none."""
    return next((ending for ending in ("_cv", "_test") if f"mse{ending}" in rows), "")


def target_variance(table: pd.DataFrame) -> float:
    """Var(y) = mse / (1 − r2), from the row of a path with the largest error."""
    mse, r2 = ("mse_test", "r2_test") if "r2_test" in table else ("mse", "r2")
    worst = int(np.argmax(table[mse]))
    return float(table[mse].iloc[worst] / (1.0 - table[r2].iloc[worst]))


def path_points(rows: pd.DataFrame, variance: float) -> PathPoints:
    """Return rows of a path as points.

    With cross-validation (columns ``*_cv``) or test rows (``*_test``) the values are held-out
    ones, R² = 1 − mse_cv / variance; without, those in the sample, with errors of 0.
    """

    def column(name: str) -> Array:
        return rows[name].to_numpy(dtype=np.float64)

    ending = held_out(rows)
    if not ending:
        none = np.zeros(len(rows))
        return PathPoints(column("explained_share"), none, column("r2"), none)
    return PathPoints(
        column(f"explained_share{ending}"),
        column(f"explained_share{ending}_error"),
        1.0 - column(f"mse{ending}") / variance,
        column(f"mse{ending}_error") / variance,
    )


def row_at(table: pd.DataFrame, alpha: float, eta: float) -> pd.DataFrame | None:
    """Return the row of a path at (alpha, eta) as a table of one row, None where it has none."""
    same = np.isclose(table["eta"], eta, rtol=1e-9, atol=0.0)
    if "alpha" in table:
        same = same & np.isclose(table["alpha"], alpha, rtol=1e-9, atol=0.0)
    rows = np.flatnonzero(same)
    return table.iloc[[int(rows[0])]] if len(rows) else None


@dataclass(eq=False, repr=False)
class FairPathDisplay(Display):
    """Accuracy against the explained share, over a path of fits.

    Parameters
    ----------
    table : DataFrame
        `FairPath.table`: one row per (alpha, eta). With the columns ``*_cv`` and ``*_cv_error``
        (or ``*_test``) the held-out values are drawn with their standard errors, else those in
        the sample. `LossPath.table` has the loss instead of R².
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

    table: pd.DataFrame
    front: pd.DataFrame
    chosen: pd.DataFrame | None = None
    limit: float | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted estimator that knows it: one in closed form.

        Parameters
        ----------
        estimator : fitted `FairKernelRidgeCV`, `FairKernelRidge` or `FairRidge`
            The first has held-out values with standard errors, the others those in the sample.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        path, alpha = path_of(estimator)
        chosen = row_at(path.table, alpha, estimator.eta_)
        return cls(path.table, path.front(), chosen, estimator.unfairness).plot(ax)

    def _draw(self) -> None:
        self._draw_table(self._points(self.table))
        self._draw_front(self._points(self.front))
        if self.limit is not None:
            look: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.4}
            self.ax_.axvline(self.limit, label=f"limit {100 * self.limit:.3g} %", **look)
        if self.chosen is not None:
            self._draw_chosen(self._points(self.chosen))
        where = "held-out" if held_out(self.table) else "in the sample"
        share_axis(self.ax_, where)
        self.ax_.set_ylabel(f"{'mean loss' if self._has_loss else 'R²'} ({where})")

    @property
    def _has_loss(self) -> bool:
        return "mse" not in self.table and "loss" in self.table

    def _points(self, rows: pd.DataFrame) -> PathPoints:
        if not self._has_loss:
            return path_points(rows, target_variance(self.table))
        share, loss = (rows[name].to_numpy(dtype=float) for name in ("explained_share", "loss"))
        return PathPoints(share, np.zeros(len(rows)), loss, np.zeros(len(rows)))

    def _draw_table(self, points: PathPoints) -> None:
        look: dict[str, Any] = {"color": FAINT, "alpha": 0.6, "markersize": 4}
        self.ax_.plot(points.share, points.r2, ".", label="every fit tried", **look)

    def _draw_front(self, points: PathPoints) -> None:
        share, share_error, r2, r2_error = points
        label, errors = "front", dict[str, Any]()
        if held_out(self.front):
            lengths = [*share_bars(share, share_error), r2_error]
            bars = np.where(_apart(share), lengths, np.nan)
            errors = {"xerr": bars[:2], "yerr": bars[2], "elinewidth": 0.9}
            label = "front, ± standard error"
        look: dict[str, Any] = {"color": AFTER, "linewidth": 1.8, "marker": "o", "markersize": 3.5}
        self.ax_.errorbar(share, r2, label=label, zorder=3, **look, **errors)
        self.ax_.set_xlim(limits(0.0, float(np.nanmax(share + share_error)), 0.05))
        low_r2, high_r2 = float(np.nanmin(r2 - r2_error)), float(np.nanmax(r2 + r2_error))
        self.ax_.set_ylim(limits(low_r2, high_r2, 0.12))

    def _draw_chosen(self, points: PathPoints) -> None:
        look: dict[str, Any] = {"color": BEFORE, "markersize": 9, "markeredgecolor": INK}
        self.ax_.plot(points.share, points.r2, "D", label="chosen model", zorder=4, **look)


def _apart(share: Array) -> Array:
    """Return which points get error bars: a thirtieth of the width apart, or they run together."""
    apart, last = np.zeros(len(share), dtype=bool), -np.inf
    for i in np.argsort(share, kind="stable"):
        apart[i] = share[i] >= last + np.ptp(share) / 30
        last = share[i] if apart[i] else last
    return apart


def path_of(estimator: Any) -> tuple[Any, float]:
    """Return the path of a fitted estimator, its own eta included, and its alpha."""
    if hasattr(estimator, "path_"):
        return estimator.path_, float(estimator.alpha_)
    if not hasattr(estimator, "solve_from"):
        raise TypeError(
            f"{type(estimator).__name__} keeps no path; draw model.path(X, y, ...).plot() of a "
            "classifier or general loss, or compare models with FrontDisplay.from_predictions"
        )
    etas = np.union1d(estimator.path().etas, estimator.eta_)
    path = estimator.path(etas=etas)
    return path, float(path.alphas[0])


@dataclass(eq=False, repr=False)
class LimitGapDisplay(Display):
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

    table: pd.DataFrame
    gap: float

    def _draw(self) -> None:
        looks = {
            "limit": {"color": FAINT, "linestyle": "--", "label": "limit: centred and rescaled"},
            "model": {"color": AFTER, "marker": "o", "label": f"model, {self.gap:.1%} above"},
        }
        for curve, look in looks.items():
            rows = self.table[self.table["curve"] == curve].sort_values("share")
            options: dict[str, Any] = {"markersize": 3.5, "linewidth": 1.8, **look}
            self.ax_.plot(rows["share"], rows["rmse"], **options)
        share_axis(self.ax_, "held-out")
        self.ax_.set_ylabel("root mean squared error (held-out)")
