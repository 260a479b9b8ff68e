"""Distributions of predictions by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.measures.group_rows import cross
from scalefair.plots.figures import AFTER, BEFORE, Display, predicted, short

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
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    groups_ : list of str
        The groups drawn.
    """

    groups: Sequence[str]
    before: Array | None
    after: Array
    max_groups: int = 8
    groups_: list[str] = field(init=False)

    @classmethod
    def from_predictions(
        cls, groups: Any, before: Array | None, after: Array, *, ax: Axes | None = None
    ) -> Self:
        """Draw the predictions of one or two models by group.

        Parameters
        ----------
        groups : list of str, or sensitive attributes of shape (n,) or (n, p)
            The group of every row, or what makes the groups: attributes are crossed, and numbers
            of many values cut at their quartiles.
        before, after : arrays of shape (n,)
            Predictions; `before` may be None.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(_labels(groups), before, after).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        sensitive_features: Any,
        baseline: Any = None,
        ax: Axes | None = None,
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
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        before = None if baseline is None else predicted(baseline, X)
        return cls.from_predictions(sensitive_features, before, predicted(estimator, X), ax=ax)

    def _draw(self) -> None:
        names, codes, counts = np.unique(
            np.asarray(self.groups, dtype=str), return_inverse=True, return_counts=True
        )
        largest = np.argsort(-counts, kind="stable")[: self.max_groups]
        self.groups_ = [str(names[code]) for code in largest]
        grid = _density_grid(np.concatenate([values for values, _, _ in self._models]))
        for i, code in enumerate(largest):
            self._draw_group(grid, len(largest) - 1 - i, codes == code)
        self._label(grid)

    def _draw_group(self, grid: Array, base: int, rows: NDArray[np.bool_]) -> None:
        drawn = [(values[rows], color, label) for values, color, label in self._models]
        curves = [density(values, grid) for values, _, _ in drawn]
        height = 0.58 / max(curve.max() for curve in curves)
        top = base == len(self.groups_) - 1
        for curve, (values, color, label) in zip(curves, drawn, strict=True):
            name = label if top else None
            # Told apart by form as well as by colour.
            if color == AFTER:
                look: dict[str, Any] = {"color": color, "alpha": 0.45, "linewidth": 0}
                self.ax_.fill_between(grid, base, base + height * curve, label=name, **look)
            else:
                line: dict[str, Any] = {"color": color, "linewidth": 1.5}
                self.ax_.plot(grid, base + height * curve, label=name, **line)
            mark: dict[str, Any] = {"color": color, "linewidth": 3}
            self.ax_.plot([values.mean()] * 2, [base - 0.08, base + 0.12], **mark)

    @property
    def _models(self) -> list[tuple[Array, str, str]]:
        """Predictions, colour and name of each model."""
        after = np.asarray(self.after, dtype=np.float64)
        if self.before is None:
            return [(after, AFTER, "predictions")]
        before = np.asarray(self.before, dtype=np.float64)
        return [(after, AFTER, "with the penalty"), (before, BEFORE, "without")]

    def _label(self, grid: Array) -> None:
        for line, name in enumerate(reversed(self.groups_)):
            # Names are data: a dollar sign in one must not start a formula.
            look: dict[str, Any] = {"ha": "right", "va": "top", "parse_math": False}
            self.ax_.text(0.99 * grid[-1] + 0.01 * grid[0], line + 0.86, short(name), **look)
        self.ax_.set_xlim(grid[0], grid[-1])
        self.ax_.set_ylim(-0.15, len(self.groups_))
        self.ax_.set_yticks([])
        self.ax_.set_xlabel("prediction")


def _labels(groups: Any) -> list[str]:
    named = isinstance(groups, list | tuple) and all(isinstance(name, str) for name in groups)
    return list(groups) if named else cross(groups).labels


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


def _density_grid(values: Array) -> Array:
    low, high = np.quantile(values, [0.001, 0.999])
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
    return np.linspace(low - margin, high + margin, _BINS)
