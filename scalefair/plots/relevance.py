"""What a kernel sees of each input, with and without fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes

from scalefair._typing import Array
from scalefair.plots.figures import AFTER, BEFORE, FAINT, Display, short

_LONGEST_LABEL = 30
"""Beside the axes, where a longer name would leave no room for them."""


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
        How many to draw where `inputs` is None: those with the smallest length scale in either
        model.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
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
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        """
        unfair = None if baseline is None else length_scales(baseline)
        return cls(unfair, length_scales(estimator), inputs, max_inputs).plot(ax)

    @classmethod
    def from_estimators(cls, *, fair: Any, unfair: Any, **options: Any) -> Self:
        """Draw the length scales of two fitted models; options as in :meth:`from_estimator`."""
        return cls.from_estimator(fair, baseline=unfair, **options)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new pyplot figure."""
        self.inputs_ = self._chosen()  # first: an error should leave no empty figure
        return super().plot(ax)

    def _draw(self) -> None:
        after = np.array([self.fair[name] for name in self.inputs_], dtype=np.float64)
        if self.unfair is None:
            self._mark(after, "length scale", marker="D", color=AFTER)
        else:
            before = np.array([self.unfair[name] for name in self.inputs_], dtype=np.float64)
            self._draw_changes(before, after)
        self.ax_.set_xscale("log")
        self.ax_.set_xlabel("length scale (larger: matters less)")
        self._name_lines([short(name, _LONGEST_LABEL) for name in self.inputs_])
        self.ax_.tick_params(axis="y", length=0)

    def _chosen(self) -> list[str]:
        unfair = self.fair if self.unfair is None else self.unfair
        common = [name for name in unfair if name in self.fair]
        if not common:
            raise ValueError(
                "unfair and fair have no input in common, so there is nothing to draw; "
                "fit both models on the same inputs"
            )
        if self.inputs is None:
            common.sort(key=lambda name: min(unfair[name], self.fair[name]))
            return common[: self.max_inputs]
        missing = [name for name in self.inputs if name not in common]
        if missing:
            raise ValueError(
                f"inputs has {missing}, which the models do not both have; choose from "
                f"{', '.join(common[:20])}"
            )
        return list(self.inputs)

    def _draw_changes(self, before: Array, after: Array) -> None:
        for line, ends in enumerate(zip(before, after, strict=True)):
            self.ax_.plot(ends, [-line, -line], color=FAINT, linewidth=1.2, zorder=1)
        # Told apart by shape as well as by colour.
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 1.8}
        self._mark(before, "without", marker="o", color=BEFORE, **hollow)
        self._mark(after, "with the penalty", marker="D", color=AFTER)

    def _mark(self, scales: Array, label: str, **own: Any) -> None:
        look: dict[str, Any] = {"linestyle": "none", "markersize": 7, "zorder": 3}
        self.ax_.plot(scales, -np.arange(len(scales)), label=label, **look, **own)


def length_scales(estimator: Any) -> dict[str, float]:
    """Length scale by name of the input, of a fitted model with a kernel of one per input."""
    if hasattr(estimator, "relevance"):
        table = estimator.relevance()
        return dict(zip(map(str, table["input"]), map(float, table["length_scale"]), strict=True))
    theta = np.atleast_1d(np.asarray(estimator.kernel_.length_scale, dtype=np.float64))
    names = getattr(estimator, "feature_names_in_", None)
    count = theta.size if names is None else len(names)
    if theta.size not in (1, count):
        raise ValueError(
            f"the kernel has {theta.size} length scales for {count} inputs; "
            "fit with one length scale per input"
        )
    labels = [f"x{j}" for j in range(count)] if names is None else list(names)
    return dict(zip(map(str, labels), np.broadcast_to(theta, count).tolist(), strict=True))
