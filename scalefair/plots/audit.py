"""A forest plot of an audit: values with their intervals, by group or attribute, and by model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from scalefair.plots.figures import AFTER, BEFORE, INK, finish, new_axes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COLORS = (AFTER, BEFORE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""Of Okabe and Ito's palette: told apart with every kind of colour blindness."""


class AuditDisplay:
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

    ax_: Axes
    figure_: Any

    def __init__(self, rows: pd.DataFrame, measure: str) -> None:
        self.rows = rows
        self.measure = measure

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

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        labels = list(dict.fromkeys(self.rows["label"]))
        models = list(dict.fromkeys(self.rows["model"]))
        for i, model in enumerate(models):
            self._draw(str(model), labels, COLORS[i % len(COLORS)], (i + 1) / (len(models) + 1))
        if ax is None:
            self.figure_.set_size_inches(6.4, max(4.8, 0.35 * len(labels)))
        places = -np.arange(len(labels), dtype=float)
        # Names are data: a dollar sign in one must not start a formula.
        self.ax_.set_yticks(places, labels, parse_math=False)
        self.ax_.set_ylim(-len(labels) + 0.4, 0.6)
        self.ax_.set_xlabel(self.measure.replace("_", " "))
        finish(self.ax_)
        return self

    def _draw(self, model: str, labels: list[str], color: str, shift: float) -> None:
        rows = self.rows[self.rows["model"] == model]
        value, low, high = (rows[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
        y = 0.3 - 0.6 * shift - np.array([labels.index(label) for label in rows["label"]])
        ends = np.nan_to_num(np.stack([value - low, high - value])).clip(min=0.0)
        look: dict[str, Any] = {"fmt": "o", "markersize": 5, "elinewidth": 1.4, "color": color}
        self.ax_.errorbar(value, y, xerr=ends, label=model, **look)
