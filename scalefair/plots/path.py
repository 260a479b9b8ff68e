"""Frontiers: accuracy against the explained share, of one model, of several, and of the limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array, DataFrame, WithPath
from scalefair.data import frames
from scalefair.measures import explained_share
from scalefair.measures.groups import tidy
from scalefair.plots.figures import AFTER, BEFORE, FAINT, INK, Display, limits, look_of, share_axis, share_bars


class PathPoints(NamedTuple):
    """Rows of a path as points: share and R² with their standard errors, each of shape (rows,)."""

    share: Array
    share_error: Array
    r2: Array
    r2_error: Array


def held_out(rows: DataFrame) -> str:
    """Ending of the columns of held-out values: "_cv", "_test", or "" where there are none."""
    ends = [e for e in ("_cv", "_test") if f"mse{e}" in rows or f"loss{e}" in rows]
    return ends[0] if ends else ""


def target_variance(table: DataFrame) -> float:
    """Var(y) = mse / (1 − r2), from the row of a path with the largest error; NaN for a loss."""
    mse, r2 = ("mse_test", "r2_test") if "r2_test" in table else ("mse", "r2")
    if mse not in table:
        return np.nan
    worst = int(np.argmax(table[mse]))
    return float(table[mse].iloc[worst] / (1.0 - table[r2].iloc[worst]))


def path_points(rows: DataFrame, variance: float) -> PathPoints:
    """Return rows of a path as points.

    With cross-validation (columns ``*_cv``) or test rows (``*_test``) the values are held-out
    ones, R² = 1 − mse_cv / variance; without, those in the sample, with errors of 0. The path of
    a general loss has the loss in the place of R².
    """

    def column(name: str) -> Array:
        return rows[name].to_numpy(dtype=np.float64)

    ending = held_out(rows)
    if not ending:
        none, fit = np.zeros(len(rows)), column("r2" if "r2" in rows else "loss")
        return PathPoints(column("explained_share"), none, fit, none)
    shares = column(f"explained_share{ending}"), column(f"explained_share{ending}_error")
    if "loss" in rows:
        return PathPoints(*shares, column(f"loss{ending}"), column(f"loss{ending}_error"))
    mse, error = column(f"mse{ending}"), column(f"mse{ending}_error")
    return PathPoints(*shares, 1.0 - mse / variance, error / variance)


def row_at(table: DataFrame, alpha: float, eta: float) -> DataFrame | None:
    """Return the row of a path at (alpha, eta) as a table of one row, None where it has none."""
    same = np.isclose(table["eta"], eta, rtol=1e-9, atol=0.0)
    if "alpha" in table:
        same = same & np.isclose(table["alpha"], alpha, rtol=1e-9, atol=0.0)
    rows = np.flatnonzero(same)
    return table.iloc[[int(rows[0])]] if len(rows) else None


def unbeaten(table: DataFrame, share: Any, error: Any) -> DataFrame:
    """Return the rows that no other row beats in both share and error, by increasing share."""
    share, error = np.asarray(share, dtype=np.float64), np.asarray(error, dtype=np.float64)
    order = np.lexsort((error, share))
    order = order[np.isfinite(share[order])]
    best = np.minimum.accumulate(np.concatenate([[np.inf], error[order]]))[:-1]
    rows: DataFrame = table.iloc[order[error[order] < best]].reset_index(drop=True)
    return rows


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
    """

    table: DataFrame
    front: DataFrame
    chosen: DataFrame | None = None
    limit: float | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted estimator that knows it: one in closed form.

        Parameters
        ----------
        estimator : fitted `FairKernelRidgeCV`, `FairKernelRidge` or `FairRidge`
            The first has held-out values with standard errors, the others those in the sample.
        ax : matplotlib Axes, optional
        """
        path, alpha = path_of(estimator)
        chosen = row_at(path.table, alpha, estimator.eta_)
        return cls(path.table, path.front(), chosen, estimator.unfairness).plot(ax)

    def _draw(self) -> None:
        variance = target_variance(self.table)
        points = path_points(self.table, variance)
        look: dict[str, Any] = {"color": FAINT, "alpha": 0.6, "markersize": 4}
        self.ax_.plot(points.share, points.r2, ".", label="every fit tried", **look)
        self._draw_front(path_points(self.front, variance))
        if self.limit is not None:
            look = {"color": INK, "linestyle": ":", "linewidth": 1.4}
            self.ax_.axvline(self.limit, label=f"limit {100 * self.limit:.3g} %", **look)
        if self.chosen is not None:
            points = path_points(self.chosen, variance)
            look = {"color": BEFORE, "markersize": 9, "markeredgecolor": INK}
            self.ax_.plot(points.share, points.r2, "D", label="chosen model", zorder=4, **look)
        where = "held-out" if held_out(self.table) else "in the sample"
        share_axis(self.ax_, where)
        self.ax_.set_ylabel(f"{'mean loss' if 'loss' in self.table else 'R²'} ({where})")

    def _draw_front(self, points: PathPoints) -> None:
        share, share_error, r2, r2_error = points
        label, errors = "frontier", dict[str, Any]()
        if held_out(self.front):
            lengths = [*share_bars(share, share_error), r2_error]
            bars = np.where(_apart(share), lengths, np.nan)
            errors = {"xerr": bars[:2], "yerr": bars[2], "elinewidth": 0.9}
            label = "frontier, ± standard error"
        look: dict[str, Any] = {"color": AFTER, "linewidth": 1.8, "marker": "o", "markersize": 3.5}
        self.ax_.errorbar(share, r2, label=label, zorder=3, **look, **errors)
        self.ax_.set_xlim(limits(0.0, float(np.nanmax(share + share_error)), 0.05))
        low_r2, high_r2 = float(np.nanmin(r2 - r2_error)), float(np.nanmax(r2 + r2_error))
        self.ax_.set_ylim(limits(low_r2, high_r2, 0.12))


def _apart(share: Array) -> Array:
    """Return which points get error bars: a thirtieth of the width apart, or they run together."""
    apart, last = np.zeros(len(share), dtype=bool), -np.inf
    for i in np.argsort(share, kind="stable"):
        apart[i] = share[i] >= last + np.ptp(share) / 30
        last = share[i] if apart[i] else last
    return apart


def path_of(estimator: Any) -> tuple[Any, float]:
    """Return the path of a fitted estimator, its own eta included, and its alpha."""
    if isinstance(estimator, WithPath):
        return estimator.path_, float(estimator.alpha_)
    if not hasattr(estimator, "solve_from"):
        raise TypeError(
            f"{type(estimator).__name__} has no path; draw model.path(X, y, ...).plot() of a "
            "classifier or general loss, or compare models with FrontDisplay.from_predictions"
        )
    etas = np.union1d(estimator.path().etas, estimator.eta_)
    path = estimator.path(etas=etas)
    return path, float(path.alphas[0])


@dataclass(eq=False, repr=False)
class FrontDisplay(Display):
    """Fronts of several models, or several models as points, in one picture.

    Parameters
    ----------
    points : DataFrame
        Columns model, share, r2, and share_error and r2_error, which may be 0.
    where : str, default="held-out"
        Which rows the numbers are about, for the labels of the axes.

    Attributes
    ----------
    front_ : DataFrame
        The points that no other beats in both accuracy and share, by increasing share.
    """

    points: DataFrame
    where: str = "held-out"
    front_: DataFrame = field(init=False)

    @classmethod
    def from_estimator(cls, estimator: Any, *, name: str | None = None, ax: Any = None) -> Self:
        """Draw the front of one fitted estimator in closed form, or of a `FairPath`."""
        return cls.from_estimators({name or type(estimator).__name__: estimator}, ax=ax)

    @classmethod
    def from_estimators(cls, estimators: Mapping[str, Any], *, ax: Axes | None = None) -> Self:
        """Draw the fronts of several fitted estimators in closed form, or of several paths.

        Parameters
        ----------
        estimators : dict of str to fitted estimator or `FairPath`
            By the name to show; cross-validated ones have held-out values with errors.
        ax : matplotlib Axes, optional
        """
        parts, fronts = [], []
        for name, model in estimators.items():
            path = model if hasattr(model, "front") else path_of(model)[0]
            fronts.append(path.front())
            points = path_points(fronts[-1], target_variance(path.table))
            parts.append(frames.make_frame({"model": [name] * len(fronts[-1]), **points._asdict()}))
        where = "held-out" if all(map(held_out, fronts)) else "in the sample"
        return cls(frames.stack_rows(parts), where).plot(ax)

    @classmethod
    def from_predictions(
        cls, y_true: Any, y_pred: Any, sensitive_features: Any, *, random_state: int = 0, ax: Axes | None = None
    ) -> Self:
        """Draw models as points, evaluated on rows that they were not fitted on.

        Parameters
        ----------
        y_true : array of shape (n,)
            Targets; numbers, or 0 and 1.
        y_pred : array of shape (n,), or dict of str to such
            Predictions, by the name of the model.
        sensitive_features : array, Series or frame of shape (n,) or (n, p)
            Attributes; the share that they explain is cross-fitted.
        random_state : int, default=0
            Seed of its folds.
        ax : matplotlib Axes, optional
        """
        y = np.asarray(y_true, dtype=np.float64).reshape(-1)
        models = y_pred if isinstance(y_pred, Mapping) else {"model": y_pred}
        points = []
        for name, values in models.items():
            f = np.asarray(values, dtype=np.float64).reshape(-1)
            if len(f) != len(y):
                raise ValueError(f"y_pred {name!r} has {len(f)} rows and y_true {len(y)}; give the same rows")
            loss = (y - f) ** 2 / y.var()
            share = explained_share(f, sensitive_features, cv=5, random_state=random_state)
            points.append((name, share, 0.0, 1 - loss.mean(), loss.std(ddof=1) / np.sqrt(len(y))))
        return cls(tidy(("model", *PathPoints._fields), points)).plot(ax)

    def _draw(self) -> None:
        self.front_ = unbeaten(self.points, self.points["share"], -self.points["r2"])
        models = list(dict.fromkeys(self.points["model"]))
        if len(self.points) == len(models) > 1:
            look: dict[str, Any] = {"color": FAINT, "linestyle": "--", "linewidth": 1.2}
            self.ax_.plot(self.front_["share"], self.front_["r2"], label="frontier", zorder=1, **look)
        for i, model in enumerate(models):
            self._draw_model(model, look_of(i))
        share_axis(self.ax_, self.where)
        self.ax_.set_ylabel(f"R² ({self.where})")

    def _draw_model(self, model: str, look: dict[str, Any]) -> None:
        rows = self.points[self.points["model"] == model]
        share, share_error, r2, r2_error = (rows[name].to_numpy() for name in PathPoints._fields)
        look |= {"linewidth": 1.6, "zorder": 3}
        if (r2_error > 0).any() or (share_error > 0).any():
            bars = share_bars(share, share_error)
            look |= {"xerr": bars, "yerr": r2_error, "elinewidth": 0.9}
        size = 8 if len(rows) == 1 else 4
        self.ax_.errorbar(share, r2, label=model, markersize=size, **look)


@dataclass(eq=False, repr=False)
class LimitGapDisplay(Display):
    """The frontier of a model beside the known limit, on held-out rows.

    Parameters
    ----------
    table : DataFrame
        `LimitGap.table`: the points of both curves.
    gap : float
        Mean excess of the error over the limit's.
    """

    table: DataFrame
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
