"""Limits on decisions: the settings, the pass over the rows, and the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.special import ndtr

from scalefair._hash import hash_uniform
from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.sources import ChunkSource
from scalefair.errors import check_choice, check_number
from scalefair.features.design import Design, in_blocks
from scalefair.features.exact import OneHot
from scalefair.features.training import group_names
from scalefair.moments.accumulate import Rows
from scalefair.solve.decisions.rule import (
    DecisionRates,
    DecisionRows,
    DecisionRule,
    DecisionSpec,
    choose_among,
    gap_of,
    held_out_decisions,
)
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import Solution, System

# Rows that a rule is chosen on: all that fit into these bytes, else a sample by row number
MAX_BYTES = 2**27
PASS_ROWS = 8192
# Where groups are seen, parts of what x tells of them that thresholds may move with, if none per group keep a limit
BLENDS = (0.0, 0.1, 0.3)
MARGIN = 0.5  # standard errors that a gap on held-out rows stays below the limit, as shares do


@dataclass(frozen=True)
class Decisions:
    """Which decisions are limited, in detail: ``limit_on=Decisions(...)``.

    Parameters
    ----------
    limit : {"decisions", "odds"}, default="decisions"
        The largest difference between groups in the rate of a decision: among all rows, or among
        rows of the same outcome (true and false positive rates).
    threshold : float, optional
        For regressions: the decision is whether the target exceeds this number.
    top : float in (0, 1), optional
        For regressions: the decision is to be in this fraction of all rows, those ranked highest.
    randomized : bool, default=False
        Whether rows near a threshold may be decided at random, where no threshold per group meets odds. Randomness is
        a hash of the scores: the same row always gets the same answer, but rows that are nearly the same need not.

    Examples
    --------
    >>> from scalefair import Decisions, FairKernelRegressor
    >>> model = FairKernelRegressor(limit_on=Decisions(threshold=50_000), unfairness=0.02)
    """

    limit: str = "decisions"
    threshold: float | None = None
    top: float | None = None
    randomized: bool = False

    @classmethod
    def of(cls, limit_on: Any, unfairness: float | None, *, classes: bool) -> Decisions | None:
        """Return the settings of a valid `limit_on`; None: a limit on the scores."""
        if isinstance(limit_on, str) and limit_on == "scores":
            return None
        asked = limit_on if isinstance(limit_on, cls) else cls(limit_on)
        check_choice("limit", asked.limit, ("decisions", "odds"))
        if unfairness is None:
            raise ValueError(f"limit_on={limit_on!r} needs a limit; give unfairness=0.05, say")
        named = (asked.threshold is not None) + (asked.top is not None)
        if named and classes:
            raise ValueError(
                f"limit_on={limit_on!r}: a threshold or top is for regressions; a classifier "
                "decides between its classes"
            )
        if not classes and named != 1:
            raise ValueError(
                f"limit_on={limit_on!r}: a regression makes no decisions by itself; name a threshold, "
                "Decisions(threshold=50_000), or a share of the rows, Decisions(top=0.1)"
            )
        if asked.threshold is not None:
            check_number("threshold", asked.threshold, -np.inf)
        if asked.top is not None and not 0 < check_number("top", asked.top, 0.0, 1.0) < 1:
            raise ValueError(f"top={asked.top!r} must be between 0 and 1: a share of the rows")
        if asked.top is not None and asked.limit == "odds":
            raise ValueError("limit='odds' with top: ranks have no outcome; use a threshold")
        return asked


@dataclass(frozen=True, eq=False)
class Crossing:
    """Gains (n, 2) of the decision f > at: P(y > at) for normal residuals, or f for ranks."""

    at: float
    scale: float  # standard deviation of the residuals, or of f
    ranks: bool

    def __call__(self, f: Array) -> Array:
        """Return the gains of scores f (n,)."""
        z = (f - self.at) / self.scale
        return np.column_stack([0 * z, z] if self.ranks else [ndtr(-z), ndtr(z)])

    @classmethod
    def learn(cls, asked: Decisions, rows: DecisionRows) -> Crossing:
        """Take scales from rows whose gain is f and whose outcome is y."""
        f, weight = rows.gain[:, 0], rows.weight
        about = rows.outcome - f if asked.top is None else f - np.average(f, weights=weight)
        scale = float(np.sqrt(np.average(about**2, weights=weight))) or 1.0
        if asked.threshold is not None:
            return cls(float(asked.threshold), scale, False)
        order = np.argsort(f)
        below = np.searchsorted(np.cumsum(weight[order]), (1 - asked.top) * weight.sum())  # type: ignore[operator]
        return cls(float(f[order[min(int(below), len(f) - 1)]]), scale, True)


@dataclass(frozen=True, eq=False)
class FairDecisions:
    """How rows are decided, and what that does in each group.

    Attributes
    ----------
    gap, gap_error : float
        Largest difference between groups in the rate of a decision, and its standard error: on
        held-out folds if `held_out`, by rules that were chosen without them, else in sample.
    table : data frame
        One line for each decision and group: `rate_before` of the largest probability, `rate` and `rate_error`,
        `rate_if_true` and `rate_if_false` (true and false positive rates), `mean_probability` and `observed` (how well
        probabilities are calibrated), `right_before` and `right` (the share of decisions for a class that are right).
    """

    rule: DecisionRule
    raw_coef: dict[str, Array]  # of the propensities
    intercept: Array
    groups: tuple[str, ...]
    labels: NDArray[Any]
    rates: DecisionRates
    gap: float
    gap_error: float
    held_out: bool
    crossing: Crossing | None = None

    @property
    def table(self) -> Any:
        """The rates as a data frame."""
        r, first = self.rates, int(len(self.labels) == 2)
        columns: dict[str, Array] = {
            "rate_before": r.before, "rate": r.rate, "rate_error": r.error, "rate_if_true": r.hit,
            "rate_if_false": r.miss, "mean_probability": r.expected, "observed": r.observed,
            "right_before": r.right_before, "right": r.right,
        }  # fmt: skip
        labels = np.repeat(self.labels[first:], len(self.groups))
        of = len(self.labels) - first
        named: dict[str, Any] = {"decision": labels, "group": list(self.groups) * of, "rows": np.tile(r.rows, of)}
        return frames.make_frame(named | {name: v[first:].ravel() for name, v in columns.items()})

    def predictor(self, design: Design, raw_coef: dict[str, Array], intercept: Any) -> Any:
        """Return what makes [f, ê] of each thread."""
        both = {name: np.hstack([part, self.raw_coef[name]]) for name, part in raw_coef.items()}
        return design.predictor(both, np.append(intercept, self.intercept))

    def _split(self, gains: Callable[[Array], Array], scores: Array) -> tuple[Array, Array]:
        at = scores.shape[1] - len(self.intercept)
        gain = gains(scores[:, :at])
        return gain if self.crossing is None else self.crossing(gain[:, 0]), scores[:, at:]

    def decide(self, gains: Callable[[Array], Array], scores: Array) -> Array:
        """Return the number of the decision of each row, of scores [f, ê]."""
        return self.rule.decide(*self._split(gains, scores)).astype(np.float64)

    def lead(self, gains: Callable[[Array], Array], scores: Array) -> Array:
        """Return by how much the second decision leads; rows are ranked by it."""
        values = self.rule.values(*self._split(gains, scores))
        return np.asarray(values[:, 1] - values[:, 0])


def propensities(design: Design, system: System, alpha: float, *, both: bool = False) -> Solution:
    """Return ê = E[ψ] + (Φ − EΦ)W: ψ(s) itself where Φ has it, else W its ridge on Φ.

    With `both`, ψ(s) and its ridge on the rest of Φ.
    """
    moments, m, q = system.moments, len(system.ridge), system.moments.blocks["psi"]
    names, at, seen = design.features, np.arange(m), list[Solution]()
    if design.sees_sensitive:
        start = sum(moments.blocks[name] for name in names[: names.index("psi")])
        seen = [Solution(np.eye(m, q, -start), np.zeros(q))]
        names, at = tuple(name for name in names if name != "psi"), np.delete(at, np.s_[start : start + q])
    if seen and not both:
        return seen[0]
    ridged, W = moments.covariance(names, names), np.zeros((m, q))
    ridged[np.diag_indices(len(at))] += alpha * system.ridge[at]
    W[at] = solve(ridged, moments.covariance(names, "psi"), assume_a="pos")
    return _beside(*seen, Solution(W, moments.mean("psi") - system.mean @ W))


def _beside(*parts: Solution) -> Solution:
    return Solution(np.hstack([part.coef for part in parts]), np.concatenate([part.intercept for part in parts]))


def _blends(both: Array, count: int) -> list[Array]:
    """Return what decides instead of groups that are seen: with a part of their ridge on x, or as it is."""
    if both.shape[-1] == count:
        return [both]
    return [(1 - part) * both[..., :count] + part * both[..., count:] for part in BLENDS]


@dataclass(eq=False)
class DecisionPass:
    """Accumulator of rows: f and ê of the fit without their fold, their group and target."""

    design: Design
    start: Callable[[], Any]  # makes [f, ê] of all folds, side by side
    folds: Folds
    count: int  # of folds that are judged
    fraction: float  # of rows in the sample
    width: int  # of ê
    _parts: list[DecisionRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._predict = in_blocks(self.start)

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk that have a weight and are in the sample."""
        number = np.arange(chunk.row, chunk.row + chunk.n_rows)
        weight, fold = chunk.weights, self.folds.of_rows(number)
        counted = (weight > 0) & (fold >= 0) & (fold < self.count)
        if self.fraction < 1:
            counted &= hash_uniform(0, number) < self.fraction
        groups, y = self.design.psi_rows(chunk), np.asarray(chunk.y)
        scores = self._predict(chunk)
        scores = scores.reshape(len(number), self.count, scores.shape[1] // self.count)
        scores = scores[np.arange(len(number)), np.where(counted, fold, 0)]
        t = scores.shape[1] - self.width
        rows = DecisionRows(
            number, scores[:, :t], scores[:, t:], groups.argmax(axis=1),
            y[:, 0] if y.shape[1] == 1 else y.argmax(axis=1), weight, fold,
        )  # fmt: skip
        self._parts.append(rows.take(counted))

    def result(self) -> DecisionRows:
        """Return the rows seen."""
        return sum(self._parts[1:], self._parts[0])


def check_groups(design: Design) -> None:
    """Raise ValueError unless the sensitive attributes are groups, without a control."""
    if not isinstance(design.psi, OneHot):
        raise ValueError(
            "a limit on decisions compares groups, and some sensitive attribute is a number; cut "
            "it into groups, as pandas.cut does, or use limit_on='scores'"
        )
    if "xi" in design.blocks:
        raise ValueError(
            "control_features cannot be combined with a limit on decisions; use limit_on='odds' for "
            "rates given the target, or limit_on='scores'"
        )


class Limited(NamedTuple):
    """What is limited, and what scores gain: classes their probability, regressions predictions."""

    asked: Decisions
    limit: float
    gains: Callable[[Array], Array]
    labels: NDArray[Any]


def learn_decisions(  # noqa: PLR0917
    rows: Rows, problems: Sequence[Problem], scores: Sequence[Solution], alpha: float, limited: Limited, folds: Folds
) -> FairDecisions:
    """Choose a rule by one pass; scores without each fold, then of all rows, or only these."""
    design, n_rows, asked = rows.design, problems[-1].system.moments.n_rows, limited.asked
    both, held_out = asked.limit == "odds" and not asked.randomized, folds is not ALL_ROWS
    estimated = [propensities(design, problem.system, alpha, both=both) for problem in problems]
    fits = list(zip(scores, estimated, strict=True))
    seen = _scored_rows(rows.source, n_rows, design, fits[:-1] or fits, folds)
    seen, crossing = replace(seen, gain=limited.gains(seen.gain)), None
    if asked.threshold is not None or asked.top is not None:
        crossing = Crossing.learn(asked, seen)
        above = np.asarray(seen.outcome > crossing.at, dtype=np.int64)
        seen = replace(seen, gain=crossing(seen.gain[:, 0]), outcome=above)
    seen = replace(seen, outcome=seen.outcome.astype(np.int64))
    groups = tuple(group_names(design))
    if asked.limit == "odds":
        _check_outcomes(seen, groups, limited.labels)
    margin = MARGIN if held_out else 0.0
    spec = DecisionSpec(limited.limit, asked.limit == "odds", asked.randomized, margin, asked.top)
    each = [replace(seen, propensity=part) for part in _blends(seen.propensity, len(groups))]
    at, rule = choose_among(each, spec)
    seen = each[at]
    decided = rule.decide(seen.gain, seen.propensity)
    _warn_of_excess(gap_of(seen, decided, spec), spec)
    if held_out:
        decided = held_out_decisions(seen, spec, rule)
    rates, gap = DecisionRates.of(seen, decided), gap_of(seen, decided, spec)
    coef, intercept = (_blends(part, len(groups))[at] for part in fits[-1][1])
    return FairDecisions(
        rule, design.raw_coef(coef), intercept, groups, limited.labels, rates, *gap, held_out, crossing
    )


def _scored_rows(source: ChunkSource, n_rows: int, design: Design, fits: Any, folds: Folds) -> DecisionRows:
    """Return scores f (as gains), targets (as outcomes) and the rest of rows, in their order."""
    every = _beside(*(part for fit in fits for part in fit))
    start = design.predictor(design.raw_coef(every.coef), every.intercept)
    fraction = min(1.0, MAX_BYTES / (24 * len(every.intercept) / len(fits) * n_rows))
    start_pass = partial(DecisionPass, design, start, folds, len(fits), fraction, len(fits[0][1].intercept))
    rows: DecisionRows = source.fold(start_pass, PASS_ROWS)
    return rows.take(np.argsort(rows.number))


def _check_outcomes(rows: DecisionRows, groups: tuple[str, ...], labels: NDArray[Any]) -> None:
    cells = np.zeros((len(groups), len(labels)))
    np.add.at(cells, (rows.group, rows.outcome), 1)
    if not cells.all():
        g, k = np.argwhere(cells == 0)[0]
        raise ValueError(
            f"limit_on='odds': no row of the group {groups[g]} has the outcome {labels[k]!r}, so "
            "that it has no such rate; merge the group with another, or use limit_on='decisions'"
        )


def _warn_of_excess(gap: tuple[float, float], spec: DecisionSpec) -> None:
    """Warn of a rule above the limit on the rows that it was chosen on, beyond chance."""
    value, error = gap
    if value > spec.limit + (2 * error if spec.randomized else 1e-3):
        remedy = "" if spec.randomized else "; Decisions(randomized=True) may meet it"
        warnings.warn(
            f"no rule that was tried meets unfairness={spec.limit:g}: rates differ by {value:.3g} "
            f"(decisions_.table shows them){remedy}",
            stacklevel=2,
        )
