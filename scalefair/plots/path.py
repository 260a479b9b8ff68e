"""Accuracy against the explained share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.plots.figures import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    finish,
    limits,
    new_axes,
    percent_axis,
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
    found = np.flatnonzero(same)
    return table.iloc[[int(found[0])]] if len(found) else None


class FairPathDisplay:
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
        limit = getattr(estimator, "unfairness", None)
        return cls(path.table, path.front(), chosen, limit).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw_table(self._points(self.table))
        self._draw_front(self._points(self.front))
        if self.limit is not None:
            look: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.4}
            self.ax_.axvline(self.limit, label=f"limit {100 * self.limit:.3g} %", **look)
        if self.chosen is not None:
            self._draw_chosen(self._points(self.chosen))
        self._label()
        return self

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
            # A share cannot be below 0, and neither can the end of its error bar.
            low = np.clip(share, 0.0, share_error)
            bars = np.where(_apart(share), [low, share_error, r2_error], np.nan)
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

    def _label(self) -> None:
        kind = "held-out" if held_out(self.table) else "in the sample"
        self.ax_.set_xlabel(f"explained share of the variance ({kind})")
        self.ax_.set_ylabel(f"{'mean loss' if self._has_loss else 'R²'} ({kind})")
        percent_axis(self.ax_)
        finish(self.ax_)


def _apart(share: Array) -> Array:
    """Say which points get error bars: a thirtieth of the width apart, or they run together."""
    kept, last = np.zeros(len(share), dtype=bool), -np.inf
    for i in np.argsort(share, kind="stable"):
        kept[i] = share[i] >= last + np.ptp(share) / 30
        last = share[i] if kept[i] else last
    return kept


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
