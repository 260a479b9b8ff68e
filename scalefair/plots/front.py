"""Models side by side: accuracy against the explained share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.measures import explained_share
from scalefair.plots.figures import (
    COLORS,
    FAINT,
    MARKERS,
    Display,
    predicted,
    share_axis,
    share_bars,
)
from scalefair.plots.path import held_out, path_of, path_points, target_variance

if TYPE_CHECKING:
    import pandas as pd


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
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    front_ : DataFrame
        The points that no other beats in both accuracy and share, by increasing share.
    """

    points: pd.DataFrame
    where: str = "held-out"
    front_: pd.DataFrame = field(init=False)

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
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        parts = [_front_columns(name, model) for name, model in estimators.items()]
        sampled = [part.pop("held_out") for part in parts]
        where = "held-out" if all(sampled) else "in the sample"
        return cls(frames.make_frame(_stack_columns(parts)), where).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        sensitive_features: Any,
        *,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw models as points, judged on rows that they have not seen.

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
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        y = np.asarray(y_true, dtype=np.float64).reshape(-1)
        models = y_pred if isinstance(y_pred, Mapping) else {"model": y_pred}
        predictions = {
            name: np.asarray(f, dtype=np.float64).reshape(-1) for name, f in models.items()
        }
        for name, f in predictions.items():
            if len(f) != len(y):
                raise ValueError(
                    f"y_pred {name!r} has {len(f)} rows and y_true {len(y)}; give the same rows"
                )
        shares = [explained_share(f, sensitive_features, cv=5, random_state=random_state)
                  for f in predictions.values()]  # fmt: skip
        points: dict[str, Any] = {
            "model": list(predictions),
            "share": shares,
            "share_error": [0.0] * len(predictions),
        }
        fits = [_fit_of(y, f) for f in predictions.values()]
        points |= {"r2": [r2 for r2, _ in fits], "r2_error": [error for _, error in fits]}
        return cls(frames.make_frame(points)).plot(ax)

    @classmethod
    def from_models(
        cls, models: Mapping[str, Any], X: Any, y: Any, *, sensitive_features: Any, ax: Any = None
    ) -> Self:
        """Draw fitted models of any kind as points, judged on rows that they have not seen."""
        predictions = {name: predicted(model, X) for name, model in models.items()}
        return cls.from_predictions(y, predictions, sensitive_features, ax=ax)

    def _draw(self) -> None:
        self.front_ = _best(self.points)
        models = list(dict.fromkeys(self.points["model"]))
        if len(self.points) == len(models) > 1:
            look: dict[str, Any] = {"color": FAINT, "linestyle": "--", "linewidth": 1.2}
            self.ax_.plot(self.front_["share"], self.front_["r2"], label="front", zorder=1, **look)
        for i, model in enumerate(models):
            self._draw_model(model, COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)])
        share_axis(self.ax_, self.where)
        self.ax_.set_ylabel(f"R² ({self.where})")

    def _draw_model(self, model: str, color: str, marker: str) -> None:
        rows = self.points[self.points["model"] == model]
        share, r2, share_error, r2_error = (
            rows[name].to_numpy(dtype=float) for name in ("share", "r2", "share_error", "r2_error")
        )
        look: dict[str, Any] = {"color": color, "marker": marker, "linewidth": 1.6, "zorder": 3}
        if (r2_error > 0).any() or (share_error > 0).any():
            bars = share_bars(share, share_error)
            look |= {"xerr": bars, "yerr": r2_error, "elinewidth": 0.9}
        size = 8 if len(rows) == 1 else 4
        self.ax_.errorbar(share, r2, label=model, markersize=size, **look)


def _front_columns(name: str, model: Any) -> dict[str, Any]:
    path = model if hasattr(model, "front") else path_of(model)[0]
    front = path.front()
    points = path_points(front, target_variance(path.table))
    columns = points._asdict()
    return {"model": [name] * len(front), **columns, "held_out": held_out(front) != ""}


def _stack_columns(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _fit_of(y: Array, f: Array) -> tuple[float, float]:
    """R² and the standard error of its numerator, the mean squared error."""
    loss = (y - f) ** 2 / y.var()
    return float(1.0 - loss.mean()), float(loss.std(ddof=1) / np.sqrt(len(y)))


def _best(points: pd.DataFrame) -> pd.DataFrame:
    rows = points.sort_values(["share", "r2"], ascending=[True, False], kind="stable")
    before = rows["r2"].cummax().shift(fill_value=-np.inf)
    return rows[rows["r2"] > before].reset_index(drop=True)
