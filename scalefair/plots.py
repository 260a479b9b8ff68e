"""Plots of tables, in scikit-learn's Display style. The only home of matplotlib.

pyplot is asked for a figure only where the caller gives no axes, so that a notebook shows the
result. Everything else goes through figures of its own and leaves no state behind.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from scalefair._typing import Array

if TYPE_CHECKING:
    import pandas as pd

INK, FAINT = "#1f2328", "#8a939d"
BEFORE, AFTER = "#d55e00", "#0072b2"
"""Vermilion and blue of Okabe and Ito's palette: told apart with every kind of colour blindness."""

_BINS = 200
_LONGEST_NAME = 60


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
        self.ax_ = _new_axes() if ax is None else ax
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
        self.ax_.set_xlim(_limits(0.0, float(np.nanmax(share + share_error)), 0.05))
        low_r2, high_r2 = float(np.nanmin(r2 - r2_error)), float(np.nanmax(r2 + r2_error))
        self.ax_.set_ylim(_limits(low_r2, high_r2, 0.12))

    def _draw_chosen(self, points: PathPoints) -> None:
        look: dict[str, Any] = {"color": BEFORE, "markersize": 9, "markeredgecolor": INK}
        self.ax_.plot(points.share, points.r2, "D", label="chosen model", zorder=4, **look)

    def _label(self) -> None:
        kind = "held-out" if "mse_cv" in self.table else "in the sample"
        self.ax_.set_xlabel(f"explained share of the variance ({kind})")
        self.ax_.set_ylabel(f"R² ({kind})")
        self.ax_.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=" %"))
        _finish(self.ax_)


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
        self.ax_ = _new_axes() if ax is None else ax
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
        self.ax_.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=" %"))
        _finish(self.ax_)
        return self


class GroupDistributionDisplay:
    """Densities of the predictions by group, without and with the fairness penalty.

    The short thick strokes are the means of the groups.

    Parameters
    ----------
    groups : sequence of str, shape (n,)
        The group of every row.
    before, after : arrays of shape (n,)
        Predictions of the model without and with the penalty.
    max_groups : int, default=8
        How many groups to draw; the largest come first, from the top.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    groups_ : list of str
        The groups drawn.
    """

    ax_: Axes
    figure_: Any
    groups_: list[str]

    def __init__(
        self, groups: Sequence[str], before: Array, after: Array, max_groups: int = 8
    ) -> None:
        self.groups = groups
        self.before = before
        self.after = after
        self.max_groups = max_groups

    @classmethod
    def from_predictions(
        cls, groups: Sequence[str], before: Array, after: Array, *, ax: Axes | None = None
    ) -> Self:
        """Draw the predictions of two models by group."""
        return cls(groups, before, after).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.ax_ = _new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        names, codes, counts = np.unique(
            np.asarray(self.groups, dtype=str), return_inverse=True, return_counts=True
        )
        largest = np.argsort(-counts, kind="stable")[: self.max_groups]
        self.groups_ = [str(names[code]) for code in largest]
        grid = _grid(np.concatenate([self.before, self.after]))
        for place, code in enumerate(largest):
            self._draw_group(grid, len(largest) - 1 - place, codes == code)
        self._label(grid)
        return self

    def _draw_group(self, grid: Array, base: int, rows: NDArray[np.bool_]) -> None:
        before, after = np.asarray(self.before)[rows], np.asarray(self.after)[rows]
        curves = density(before, grid), density(after, grid)
        height = 0.7 / max(curve.max() for curve in curves)
        top = base == len(self.groups_) - 1
        look: dict[str, Any] = {"color": AFTER, "alpha": 0.45, "linewidth": 0}
        look["label"] = "with the penalty" if top else None
        self.ax_.fill_between(grid, base, base + height * curves[1], **look)
        look = {"color": BEFORE, "linewidth": 1.5, "label": "without" if top else None}
        self.ax_.plot(grid, base + height * curves[0], **look)
        for values, color in ((before, BEFORE), (after, AFTER)):
            self.ax_.plot([values.mean()] * 2, [base - 0.08, base + 0.12], color=color, linewidth=3)

    def _label(self, grid: Array) -> None:
        for place, name in enumerate(reversed(self.groups_)):
            short = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
            # Names are data: a dollar sign in one must not start a formula.
            look: dict[str, Any] = {"ha": "right", "va": "top", "parse_math": False}
            self.ax_.text(0.99 * grid[-1] + 0.01 * grid[0], place + 0.78, short, **look)
        self.ax_.set_xlim(grid[0], grid[-1])
        self.ax_.set_ylim(-0.15, len(self.groups_))
        self.ax_.set_yticks([])
        self.ax_.set_xlabel("prediction")
        _finish(self.ax_)


def density(values: Array, grid: Array) -> Array:
    """Gaussian kernel density of `values` at the equidistant points `grid`, shape (len(grid),).

    Counts per grid cell are smoothed instead of the values themselves: O(n + len(grid)²). The
    bandwidth is Silverman's, at least half a cell.
    """
    cell = grid[1] - grid[0]
    # The few values beyond the grid count at its ends, so that every group has a density.
    inside = np.clip(values, grid[0], grid[-1])
    counts = np.histogram(inside, np.append(grid - cell / 2, grid[-1] + cell / 2))[0]
    quarter, three_quarters = np.quantile(values, [0.25, 0.75])
    spread = min(values.std(), (three_quarters - quarter) / 1.34) or values.std()
    bandwidth = max(0.9 * spread * len(values) ** -0.2, cell / 2)
    kernel = np.exp(-0.5 * ((grid[:, None] - grid) / bandwidth) ** 2)
    smooth = kernel @ counts
    return np.asarray(smooth / (smooth.sum() * cell))


def make_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of its own with one axes, in inches; pyplot does not know of it."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def to_svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element, the same text for the same figure.

    Text stays text: it can be searched, read aloud and coloured by the page around it.
    """
    out = StringIO()
    # A character that the font of this machine lacks is drawn by the browser's font all the same.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "scalefair"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=none)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _grid(values: Array) -> Array:
    low, high = np.quantile(values, [0.001, 0.999])
    room = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
    return np.linspace(low - room, high + room, _BINS)


def _limits(low: float, high: float, room: float) -> tuple[float, float]:
    margin = room * (high - low) or 0.5
    return low - margin, high + margin


def _finish(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if not ax.get_yticks().size:
        ax.spines["left"].set_visible(False)
    ax.tick_params(colors=INK)
    for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts):
        text.set_color(INK)
    for spine in ax.spines.values():
        spine.set_color(FAINT)
    # Above the axes, where it cannot hide a point.
    place: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0.0, 1.0),
        "borderaxespad": 0.2,
    }
    ax.legend(**place, ncols=2, frameon=False, labelcolor=INK, fontsize="small")
