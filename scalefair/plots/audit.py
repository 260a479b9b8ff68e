"""A forest plot of an audit: values with their intervals, by group or attribute, and by model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from scalefair.data import frames
from scalefair.measures.groups import group_gaps
from scalefair.plots.figures import COLORS, MARKERS, Display, predicted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class AuditDisplay(Display):
    """Values with their intervals, one line per group or attribute, one colour per model.

    Parameters
    ----------
    rows : DataFrame
        Columns label, model, value, low and high; ends that are NaN are not drawn.
    measure : str
        What the values are.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    rows: pd.DataFrame
    measure: str

    @classmethod
    def from_audit(cls, audit: Any, measure: str | None = None, *, ax: Any = None) -> Self:
        """Draw one measure of an audit.

        Parameters
        ----------
        audit : Audit
            The audit.
        measure : str, optional
            A metric of its groups, such as mean_prediction, drawn by group; or a measure of its
            table, drawn by attribute. By default the explained share.
        ax : matplotlib Axes, optional
            Where to draw; None makes a figure.
        """
        measure = "explained_share" if measure is None else measure
        metrics = set(audit.groups["metric"]) if len(audit.groups) else set()
        known = [*metrics, *dict.fromkeys(audit.table["measure"])]
        if measure not in known:
            raise ValueError(f"measure={measure!r} is unknown; choose among {', '.join(known)}")
        if measure in metrics:
            table = audit.groups[audit.groups["metric"] == measure]
            labels = table["attribute"] + ": " + table["group"]
        else:
            table = audit.table[audit.table["measure"] == measure]
            labels = table["attribute"]
        rows = table[["model", "value", "low", "high"]].assign(label=labels)
        return cls(rows, measure).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_pred: Any,
        sensitive_features: Any,
        y_true: Any = None,
        *,
        metric: str = "mean_prediction",
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw one metric of predictions by group, with its intervals.

        Parameters
        ----------
        y_pred : array of shape (n,), or dict of str to such
            Predictions, by the name of the model.
        sensitive_features : array, Series or frame of shape (n,) or (n, p)
            Attributes that make the groups.
        y_true : array of shape (n,), optional
            Targets, for metrics that need them.
        metric : str, default="mean_prediction"
            As :func:`scalefair.measures.group_gaps` names it.
        ax : matplotlib Axes, optional
            Where to draw; None makes a figure.
        **options
            Of :func:`scalefair.measures.group_gaps`, such as `threshold` or `missing`.
        """
        models = y_pred if isinstance(y_pred, Mapping) else {"predictions": y_pred}
        parts = []
        for name, f in models.items():
            gaps = group_gaps(f, sensitive_features=sensitive_features, y_true=y_true, **options)
            table = gaps.table
            known = list(dict.fromkeys(table["metric"]))
            if metric not in known:
                raise ValueError(f"metric={metric!r} is unknown; choose among {', '.join(known)}")
            rows = table[table["metric"] == metric]
            labels = rows["attribute"] + ": " + rows["group"]
            parts.append(rows[["value", "low", "high"]].assign(label=labels, model=name))
        return cls(frames.stack_rows(parts), metric).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, sensitive_features: Any, **options: Any
    ) -> Self:
        """Draw one metric of a fitted model by group; options as in :meth:`from_predictions`."""
        f = {type(estimator).__name__: predicted(estimator, X)}
        return cls.from_predictions(f, sensitive_features, y, **options)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        super().plot(ax)
        if ax is None:
            self.figure_.set_size_inches(6.4, max(4.8, 0.35 * self.rows["label"].nunique()))
        return self

    def _draw(self) -> None:
        labels = list(dict.fromkeys(self.rows["label"]))
        models = list(dict.fromkeys(self.rows["model"]))
        for i, model in enumerate(models):
            self._draw_model(str(model), labels, i, (i + 1) / (len(models) + 1))
        lines = -np.arange(len(labels), dtype=float)
        # Names are data: a dollar sign in one must not start a formula.
        self.ax_.set_yticks(lines, labels, parse_math=False)
        self.ax_.set_ylim(-len(labels) + 0.4, 0.6)
        self.ax_.set_xlabel(self.measure.replace("_", " "))

    def _draw_model(self, model: str, labels: list[str], number: int, shift: float) -> None:
        rows = self.rows[self.rows["model"] == model]
        value, low, high = (rows[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
        y = 0.3 - 0.6 * shift - np.array([labels.index(label) for label in rows["label"]])
        ends = np.nan_to_num(np.stack([value - low, high - value])).clip(min=0.0)
        look: dict[str, Any] = {"markersize": 5, "elinewidth": 1.4}
        look["fmt"], look["color"] = MARKERS[number % len(MARKERS)], COLORS[number % len(COLORS)]
        self.ax_.errorbar(value, y, xerr=ends, label=model, **look)
