"""Which columns carry the explained share, and which give the sensitive attributes away."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.errors import check_choice
from scalefair.measures.explanation import explain_share
from scalefair.measures.proxy_shares import proxies
from scalefair.plots.figures import AFTER, BEFORE, FAINT, Display, percent_axis, short

if TYPE_CHECKING:
    import pandas as pd

LONGEST_LABEL = 30
"""Beside the axes, where a longer name would leave no room for them."""

HOLLOW = {"marker": "o", "color": BEFORE, "markerfacecolor": "none", "markeredgewidth": 1.8}
FULL = {"marker": "D", "color": AFTER}
"""Looks of two series, told apart by shape as well as by colour."""


@dataclass(eq=False, repr=False)
class _ColumnsDisplay(Display):
    """One line a column of X, for one attribute."""

    table: pd.DataFrame
    attribute: str | None = None
    max_columns: int = 20
    columns_: list[str] = field(init=False)

    @abstractmethod
    def _series(self, rows: pd.DataFrame) -> list[tuple[str, Array, Array, dict[str, Any]]]:
        """Return label, values, lengths (2, k) of the bars, and the look of each series."""

    @abstractmethod
    def _label(self, rows: pd.DataFrame) -> str:
        """Return what stands along the x axis."""

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        known = tuple(dict.fromkeys(self.table["attribute"]))
        self.attribute = known[0] if self.attribute is None else self.attribute
        check_choice("attribute", self.attribute, known)  # an error should leave no empty figure
        return super().plot(ax)

    def _draw(self) -> None:
        every = self.table[self.table["attribute"] == self.attribute]
        size = np.max([np.abs(values) for _, values, _, _ in self._series(every)], axis=0)
        rows = every.iloc[np.argsort(-size, kind="stable")[: self.max_columns]]
        self.columns_ = list(rows["column"])
        lines = -np.arange(len(rows), dtype=float)
        self.ax_.axvline(0.0, color=FAINT, linewidth=1.0, zorder=1)
        for label, values, bars, look in self._series(rows):
            own: dict[str, Any] = {"linestyle": "none", "markersize": 7, "elinewidth": 1.2, **look}
            self.ax_.errorbar(values, lines, xerr=bars, label=label, zorder=3, **own)
        self.ax_.set_xlabel(self._label(every))
        percent_axis(self.ax_)
        self._name_lines([short(name, LONGEST_LABEL) for name in self.columns_])
        self.ax_.tick_params(axis="y", length=0)


@dataclass(eq=False, repr=False)
class ContributionDisplay(_ColumnsDisplay):
    """Contributions of the columns of X to the explained share, before and after the limit.

    Bars are two standard errors to either side.

    Parameters
    ----------
    table : data frame
        As :func:`scalefair.explain_share` returns it.
    attribute : str, default=None
        One of those in the table; None: all together.
    max_columns : int, default=20
        How many to draw, those of the largest contributions.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    columns_ : list of str
        The columns drawn, from the top.
    """

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, *, sensitive_features: Any = None,
        attribute: str | None = None, max_columns: int = 20, ax: Axes | None = None, **rows: Any,
    ) -> Self:  # fmt: skip
        """Explain a fitted model and draw the result.

        Parameters
        ----------
        estimator : fitted estimator of scalefair
        X, sensitive_features, **rows
            As in :func:`scalefair.explain_share`.
        attribute, max_columns
            As in the class.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        table = explain_share(estimator, X, sensitive_features=sensitive_features, **rows)
        return cls(table, attribute, max_columns).plot(ax)

    @classmethod
    def from_predictions(
        cls, y_pred: Any, X: Any, *, sensitive_features: Any, **options: Any
    ) -> Self:
        """Explain the predictions of any model; options as in :meth:`from_estimator`."""
        return cls.from_estimator(y_pred, X, sensitive_features=sensitive_features, **options)

    def _series(self, rows: pd.DataFrame) -> list[tuple[str, Array, Array, dict[str, Any]]]:
        looks = {"before": ("without the penalty", HOLLOW), "after": ("the model", FULL)}
        return [
            (label, rows[when].to_numpy(), 2 * np.tile(rows[f"{when}_error"], (2, 1)), look)
            for when, (label, look) in looks.items()
            if when in rows
        ]

    def _label(self, rows: pd.DataFrame) -> str:
        return f"contribution to the share of {self.attribute}, {100 * rows['after'].sum():.3g} %"


@dataclass(eq=False, repr=False)
class ProxyDisplay(_ColumnsDisplay):
    """How much of a sensitive attribute the columns of X give away, with intervals.

    Parameters
    ----------
    table : data frame
        As :func:`scalefair.proxies` returns it.
    attribute : str, default=None
        One of those in the table; None: the first.
    max_columns : int, default=20
        How many to draw, the largest first.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    columns_ : list of str
        The columns drawn, from the top.
    """

    @classmethod
    def from_data(
        cls, X: Any, *, sensitive_features: Any, attribute: str | None = None,
        max_columns: int = 20, ax: Axes | None = None, **rows: Any,
    ) -> Self:  # fmt: skip
        """Measure the columns of X and draw the result.

        Parameters
        ----------
        X, sensitive_features, **rows
            As in :func:`scalefair.proxies`.
        attribute, max_columns
            As in the class.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        table = proxies(X, sensitive_features=sensitive_features, **rows)
        return cls(table, attribute, max_columns).plot(ax)

    def _series(self, rows: pd.DataFrame) -> list[tuple[str, Array, Array, dict[str, Any]]]:
        looks = {"linear": HOLLOW, "nonlinear": FULL}
        return [
            (f"{way} functions", v := rows[way].to_numpy(), np.abs(rows[ends].to_numpy().T - v), k)
            for way, k in looks.items()
            if (ends := [f"{way}_low", f"{way}_high"])
        ]

    def _label(self, rows: pd.DataFrame) -> str:
        del rows
        return f"share of {self.attribute} that a column gives away"
