"""Figures with a line for each input: its relevance in a kernel, its contribution, and what it reveals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.errors import check_choice
from scalefair.measures.explanation import explain_share
from scalefair.measures.proxy_shares import proxies
from scalefair.plots.figures import AFTER, BEFORE, FAINT, Display, percent_axis, short

_LONGEST_LABEL = 30
"""Beside the axes, where a longer name would leave no room for them."""

_LOOK: dict[str, Any] = {"linestyle": "none", "markersize": 7, "zorder": 3}
_FIRST = _LOOK | {"marker": "o", "color": BEFORE, "markerfacecolor": "none", "markeredgewidth": 1.8}
_SECOND = _LOOK | {"marker": "D", "color": AFTER}
"""Two series, told apart by shape as well as by colour."""


@dataclass(eq=False, repr=False)
class RelevanceDisplay(Display):
    """Length scales of named inputs (ARD), without and with the fairness penalty.

    A large length scale means that the function hardly changes along that input. One line
    an input, as long as what fairness does to it.

    Parameters
    ----------
    unfair, fair : mapping of str to float
        Length scale of each input, without and with the penalty; `unfair` may be None.
    inputs : sequence of str, default=None
        The inputs to draw, from the top; None takes the most relevant ones that both models have.
    max_inputs : int, default=20
        How many to draw where `inputs` is None: those with the smallest length scale in either model.

    Attributes
    ----------
    inputs_ : list of str
        The inputs drawn, from the top.
    """

    unfair: Mapping[str, float] | None
    fair: Mapping[str, float]
    inputs: Sequence[str] | None = None
    max_inputs: int = 20
    inputs_: list[str] = field(init=False)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, baseline: Any = None, inputs: Sequence[str] | None = None,
        max_inputs: int = 20, ax: Axes | None = None,
    ) -> Self:  # fmt: skip
        """Draw the length scales of a fitted model, beside those of a baseline if there is one.

        Parameters
        ----------
        estimator : fitted estimator
            With `relevance()` as `FairGPRegressor` has it, or with ``kernel_.length_scale``, one
            per input, and `feature_names_in_`.
        baseline : fitted estimator, default=None
            The model without the penalty.
        inputs, max_inputs
            As in the class.
        ax : matplotlib Axes, optional
        """
        unfair = None if baseline is None else length_scales(baseline)
        return cls(unfair, length_scales(estimator), inputs, max_inputs).plot(ax)

    @classmethod
    def from_estimators(cls, *, fair: Any, unfair: Any, **options: Any) -> Self:
        """Draw the length scales of two fitted models; options as in :meth:`from_estimator`."""
        return cls.from_estimator(fair, baseline=unfair, **options)

    def _draw(self) -> None:
        lines, after = -np.arange(len(self.inputs_)), [self.fair[name] for name in self.inputs_]
        if self.unfair is not None:
            before = [self.unfair[name] for name in self.inputs_]
            self.ax_.plot([before, after], [lines, lines], color=FAINT, linewidth=1.2, zorder=1)
            self.ax_.plot(before, lines, label="without", **_FIRST)
        label = "length scale" if self.unfair is None else "with the penalty"
        self.ax_.plot(after, lines, label=label, **_SECOND)
        self.ax_.set_xscale("log")
        self.ax_.set_xlabel("length scale (larger: matters less)")
        self._name_lines([short(name, _LONGEST_LABEL) for name in self.inputs_])
        self.ax_.tick_params(axis="y", length=0)

    def _prepare(self) -> None:
        unfair = self.fair if self.unfair is None else self.unfair
        common = [name for name in unfair if name in self.fair]
        if not common:
            raise ValueError(
                "unfair and fair have no input in common, so there is nothing to draw; "
                "fit both models on the same inputs"
            )
        if self.inputs is None:
            common.sort(key=lambda name: min(unfair[name], self.fair[name]))
        self.inputs_ = common[: self.max_inputs] if self.inputs is None else list(self.inputs)
        if missing := [name for name in self.inputs_ if name not in common]:
            raise ValueError(
                f"inputs has {missing}, which only one of the models has; choose from {', '.join(common[:20])}"
            )


def length_scales(estimator: Any) -> dict[str, float]:
    """Length scale by name of the input, of a fitted model with a kernel of one per input."""
    if hasattr(estimator, "relevance"):
        table = estimator.relevance()
        return dict(zip(map(str, table["input"]), map(float, table["length_scale"]), strict=True))
    theta = np.atleast_1d(np.asarray(estimator.kernel_.length_scale, dtype=np.float64))
    names = vars(estimator).get("feature_names_in_")
    count = theta.size if names is None else len(names)
    if theta.size not in (1, count):
        raise ValueError(
            f"the kernel has {theta.size} length scales for {count} inputs; fit with one length scale per input"
        )
    labels = [f"x{j}" for j in range(count)] if names is None else list(names)
    return dict(zip(map(str, labels), np.broadcast_to(theta, count).tolist(), strict=True))


@dataclass(eq=False, repr=False)
class ContributionDisplay(Display):
    """Contributions of the columns of X to the explained share, before and after the limit.

    Bars are two standard errors to either side.

    Parameters
    ----------
    table : data frame
        As :func:`scalefair.explain_share` returns it.
    attribute : str, default=None
        One of those in the table; None: the first, all together.
    max_columns : int, default=20
        How many to draw, those of the largest contributions.

    Attributes
    ----------
    columns_ : list of str
        The columns drawn, from the top.
    """

    table: Any
    attribute: str | None = None
    max_columns: int = 20
    columns_: list[str] = field(init=False)

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
        ax : matplotlib Axes, optional
        """
        table = explain_share(estimator, X, sensitive_features=sensitive_features, **rows)
        return cls(table, attribute, max_columns).plot(ax)

    @classmethod
    def from_predictions(cls, y_pred: Any, X: Any, *, sensitive_features: Any, **options: Any) -> Self:
        """Explain the predictions of any model; options as in :meth:`from_estimator`."""
        return cls.from_estimator(y_pred, X, sensitive_features=sensitive_features, **options)

    def _prepare(self) -> None:
        known = tuple(dict.fromkeys(self.table["attribute"]))
        self.attribute = known[0] if self.attribute is None else self.attribute
        check_choice("attribute", self.attribute, known)

    def _draw(self) -> None:
        rows = self.table[self.table["attribute"] == self.attribute]
        self.ax_.set_xlabel(self._label(rows))
        size = np.max([np.abs(values) for _, values, _ in self._series(rows)], axis=0)
        rows = rows.iloc[np.argsort(-size, kind="stable")[: self.max_columns]]
        self.columns_, lines = list(rows["column"]), -np.arange(len(rows), dtype=float)
        self.ax_.axvline(0.0, color=FAINT, linewidth=1.0, zorder=1)
        looks = (_FIRST, _SECOND)[-len(self._series(rows)) :]
        for (label, values, bars), look in zip(self._series(rows), looks, strict=True):
            self.ax_.errorbar(values, lines, xerr=bars, label=label, elinewidth=1.2, **look)
        percent_axis(self.ax_)
        self._name_lines([short(name, _LONGEST_LABEL) for name in self.columns_])
        self.ax_.tick_params(axis="y", length=0)

    def _series(self, rows: Any) -> list[tuple[str, Array, Array]]:
        """Return the label of each series, its values, and the lengths (2, k) of its bars."""
        labels = {"before": "without the penalty", "after": "the model"}
        return [
            (label, rows[when].to_numpy(), 2 * np.tile(rows[f"{when}_error"], (2, 1)))
            for when, label in labels.items()
            if when in rows
        ]

    def _label(self, rows: Any) -> str:
        return f"contribution to the share of {self.attribute}, {100 * rows['after'].sum():.3g} %"


class ProxyDisplay(ContributionDisplay):
    """How much of a sensitive attribute the columns of X reveal, with intervals.

    Parameters
    ----------
    table : data frame
        What :func:`scalefair.proxies` returns.
    attribute, max_columns
        As in :class:`ContributionDisplay`.
    """

    @classmethod
    def from_data(cls, X: Any, *, sensitive_features: Any, **options: Any) -> Self:
        """Measure the columns of X and draw the result.

        Parameters
        ----------
        X, sensitive_features
            As in :func:`scalefair.proxies`.
        **options
            `attribute`, `max_columns` and `ax` as in :meth:`ContributionDisplay.from_estimator`;
            others as in :func:`scalefair.proxies`.
        """
        own = {n: options.pop(n) for n in ("attribute", "max_columns") if n in options}
        ax = options.pop("ax", None)
        return cls(proxies(X, sensitive_features=sensitive_features, **options), **own).plot(ax)

    def _series(self, rows: Any) -> list[tuple[str, Array, Array]]:
        values = {way: rows[way].to_numpy() for way in ("linear", "nonlinear")}
        ends = {way: rows[[f"{way}_low", f"{way}_high"]].to_numpy().T for way in values}
        return [(f"{way} functions", v, np.abs(ends[way] - v)) for way, v in values.items()]

    def _label(self, rows: Any) -> str:
        del rows
        return f"share of {self.attribute} that a column gives away"
