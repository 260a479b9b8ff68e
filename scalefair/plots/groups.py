"""Predictions by group: their distributions, and metrics with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scalefair._typing import Array, DataFrame
from scalefair.data import frames
from scalefair.errors import check_choice
from scalefair.measures.group_rows import crossed_names
from scalefair.measures.groups import group_gaps
from scalefair.measures.scorers import predicted
from scalefair.plots.figures import AFTER, BEFORE, Display, look_of, short

_BINS = 200


@dataclass(eq=False, repr=False)
class GroupDistributionDisplay(Display):
    """Densities of the predictions by group, without and with the fairness penalty.

    The short thick strokes are the means of the groups.

    Parameters
    ----------
    groups : sequence of str, shape (n,)
        The group of every row.
    before, after : arrays of shape (n,)
        Predictions of the model without and with the penalty; `before` may be None.
    max_groups : int, default=8
        How many groups to draw; the largest come first, from the top.

    Attributes
    ----------
    groups_ : list of str
        The groups drawn.
    """

    groups: Sequence[str]
    before: Array | None
    after: Array
    max_groups: int = 8
    groups_: list[str] = field(init=False)

    @classmethod
    def from_predictions(cls, groups: Any, before: Array | None, after: Array, *, ax: Axes | None = None) -> Self:
        """Draw the predictions of one or two models by group.

        Parameters
        ----------
        groups : list of str, or sensitive attributes of shape (n,) or (n, p)
            The group of every row, or what makes the groups: attributes are crossed, and numbers
            of many values cut at their quartiles.
        before, after : arrays of shape (n,)
            Predictions; `before` may be None.
        ax : matplotlib Axes, optional
        """
        named = isinstance(groups, list | tuple) and all(isinstance(g, str) for g in groups)
        return cls(list(groups) if named else crossed_names(groups), before, after).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, sensitive_features: Any, baseline: Any = None, ax: Axes | None = None
    ) -> Self:
        """Draw what a fitted model predicts by group, beside a model without the penalty.

        Parameters
        ----------
        estimator : fitted regressor or classifier of two classes
            Of a classifier the probabilities of the second class are drawn.
        X : array or frame of shape (n, d)
            Inputs.
        sensitive_features : array, Series or frame of shape (n,) or (n, p)
            They make the groups, as in :meth:`from_predictions`.
        baseline : fitted estimator, default=None
            The model to compare with.
        ax : matplotlib Axes, optional
        """
        before = None if baseline is None else predicted(baseline, X)
        return cls.from_predictions(sensitive_features, before, predicted(estimator, X), ax=ax)

    def _draw(self) -> None:
        names, codes, counts = np.unique(np.asarray(self.groups, dtype=str), return_inverse=True, return_counts=True)
        largest = np.argsort(-counts, kind="stable")[: self.max_groups]
        self.groups_ = [str(names[code]) for code in largest]
        low, high = np.quantile([values for values, _, _ in self._models], [0.001, 0.999])
        margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
        grid = np.linspace(low - margin, high + margin, _BINS)
        for i, code in enumerate(largest):
            self._draw_group(grid, len(largest) - 1 - i, codes == code)
        self._label(grid)

    def _draw_group(self, grid: Array, base: int, rows: NDArray[np.bool_]) -> None:
        curves = [density(values[rows], grid) for values, _, _ in self._models]
        height = 0.58 / max(curve.max() for curve in curves)
        top = base == len(self.groups_) - 1
        for curve, (values, color, label) in zip(curves, self._models, strict=True):
            look: dict[str, Any] = {"color": color, "label": label if top else None}
            # Told apart by form as well as by colour.
            if color == AFTER:
                look |= {"alpha": 0.45, "linewidth": 0}
                self.ax_.fill_between(grid, base, base + height * curve, **look)
            else:
                self.ax_.plot(grid, base + height * curve, linewidth=1.5, **look)
            ends = [base - 0.08, base + 0.12]
            self.ax_.plot([values[rows].mean()] * 2, ends, color=color, linewidth=3)

    @property
    def _models(self) -> list[tuple[Array, str, str]]:
        """Predictions, colour and name of each model."""
        if self.before is None:
            return [(np.asarray(self.after, dtype=np.float64), AFTER, "predictions")]
        after, before = (np.asarray(f, dtype=np.float64) for f in (self.after, self.before))
        return [(after, AFTER, "with the penalty"), (before, BEFORE, "without")]

    def _label(self, grid: Array) -> None:
        # Names are data: a dollar sign in one must not start a formula.
        look: dict[str, Any] = {"ha": "right", "va": "top", "parse_math": False}
        for line, name in enumerate(reversed(self.groups_)):
            self.ax_.text(0.99 * grid[-1] + 0.01 * grid[0], line + 0.86, short(name), **look)
        self.ax_.set_xlim(grid[0], grid[-1])
        self.ax_.set_ylim(-0.15, len(self.groups_))
        self.ax_.set_yticks([])
        self.ax_.set_xlabel("prediction")


def density(values: Array, grid: Array) -> Array:
    """Gaussian kernel density at equidistant points, of counts per cell; Silverman's bandwidth, or half a cell."""
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


@dataclass(eq=False, repr=False)
class AuditDisplay(Display):
    """Values with their intervals, one line per group or attribute, one colour per model.

    Parameters
    ----------
    rows : DataFrame
        Columns label, model, value, low and high; ends that are NaN are not drawn.
    measure : str
        What the values are.
    """

    rows: DataFrame
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
        """
        measure = "explained_share" if measure is None else measure
        metrics = tuple(dict.fromkeys(audit.groups["metric"]))
        check_choice("measure", measure, (*metrics, *dict.fromkeys(audit.table["measure"])))
        if measure in metrics:
            return cls(_rows_of_metric(audit.groups, measure), measure).plot(ax)
        table = audit.table[audit.table["measure"] == measure]
        return cls(table.assign(label=table["attribute"]), measure).plot(ax)

    @classmethod
    def from_predictions(
        cls, y_pred: Any, sensitive_features: Any, y_true: Any = None, *,
        metric: str = "mean_prediction", ax: Any = None, **options: Any,
    ) -> Self:  # fmt: skip
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
        **options
            Of :func:`scalefair.measures.group_gaps`, such as `threshold` or `missing`.
        """
        models = y_pred if isinstance(y_pred, Mapping) else {"predictions": y_pred}
        parts = []
        for name, f in models.items():
            gaps = group_gaps(f, sensitive_features=sensitive_features, y_true=y_true, **options)
            check_choice("metric", metric, tuple(dict.fromkeys(gaps.table["metric"])))
            parts.append(_rows_of_metric(gaps.table, metric).assign(model=name))
        return cls(frames.stack_rows(parts), metric).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any = None, *, sensitive_features: Any, **options: Any) -> Self:
        """Draw one metric of a fitted model by group; options as in :meth:`from_predictions`."""
        f = {type(estimator).__name__: predicted(estimator, X)}
        return cls.from_predictions(f, sensitive_features, y, **options)

    def _size(self) -> tuple[float, float]:
        return 6.4, max(4.8, 0.35 * self.rows["label"].nunique())

    def _draw(self) -> None:
        labels = list(dict.fromkeys(self.rows["label"]))
        models = list(dict.fromkeys(self.rows["model"]))
        for i, model in enumerate(models):
            self._draw_model(str(model), labels, i, (i + 1) / (len(models) + 1))
        self._name_lines(labels)
        self.ax_.set_xlabel(self.measure.replace("_", " "))

    def _draw_model(self, model: str, labels: list[str], number: int, shift: float) -> None:
        rows = self.rows[self.rows["model"] == model]
        value, low, high = (rows[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
        y = 0.3 - 0.6 * shift - np.array([labels.index(label) for label in rows["label"]])
        ends = np.nan_to_num(np.stack([value - low, high - value])).clip(min=0.0)
        look: dict[str, Any] = {"markersize": 5, "elinewidth": 1.4, "linestyle": "none"}
        self.ax_.errorbar(value, y, xerr=ends, label=model, **look, **look_of(number))


def _rows_of_metric(table: DataFrame, metric: str) -> DataFrame:
    rows = table[table["metric"] == metric]
    return rows.assign(label=rows["attribute"] + ": " + rows["group"])
