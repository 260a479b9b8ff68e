"""Decisions whose rates differ between groups by at most a limit: thresholds that know about s.

The best rule decides for the largest gₖ(x) − Σ_c λ_kc a_c(x), gₖ the gain of decision k and a_c(x)
the propensity of x for cell c: a group, or for odds a group and an outcome. Where s is seen this is
a threshold per group. λ minimises a convex function of few numbers, the dual.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from scalefair._hash import hash_uniform
from scalefair._typing import Array

# Units of gain over which decisions are smoothed while λ is searched for; the last one is that of
# randomised decisions, which costs them at most as much gain per decision
TEMPERATURES = (0.1, 0.03, 0.01, 0.003)
ROUNDS = 10  # how often λ is corrected by what decisions really do
SETTLED = 1e-3  # correction of a rate that is small
KINK = 1e-4  # |λ| is smooth below this, in the unit of λ
LEAST = 0.1  # E[a] of a cell, as a part of its share: a ridge may say less than nothing
EXCHANGE = 3.0  # gain that a rule may lose for coming closer to a limit that none is found to meet


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Rows that a rule is chosen on, none of weight 0; `+` joins them."""

    number: NDArray[np.int64]
    gain: Array  # of each decision (n, K); of a class its probability
    propensity: Array  # of each group (n, G), as far as predictions may know it
    group: NDArray[np.int64]  # that the row has
    outcome: NDArray[np.int64]  # the class that it has
    weight: Array
    fold: NDArray[np.int64]  # that its gain does not know

    def __add__(self, other: DecisionRows) -> DecisionRows:
        pairs = ((vars(self)[f.name], vars(other)[f.name]) for f in fields(self))
        return DecisionRows(*(np.concatenate(pair) for pair in pairs))

    def take(self, rows: Any) -> DecisionRows:
        """Return some of the rows."""
        return DecisionRows(*(vars(self)[field.name][rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """Decides for the largest gₖ − Σ_c price_kc a_c; at a temperature, at random in proportion."""

    price: Array  # (K, C); with odds a cell c is an outcome and a group, else a group
    odds: bool
    temperature: float = 0.0

    def cells(self, gain: Array, propensity: Array) -> Array:
        """Propensities of the cells: those of groups, times the probability of the outcome."""
        if not self.odds:
            return propensity
        cells = gain[:, :, None] * propensity[:, None]
        return np.asarray(cells.reshape(len(gain), gain.shape[1] * propensity.shape[1]))

    def values(self, gain: Array, propensity: Array) -> Array:
        """Return what decisions are compared by, of shape (n, K)."""
        return np.asarray(gain - self.cells(gain, propensity) @ self.price.T)

    def decide(self, gain: Array, propensity: Array) -> NDArray[np.int64]:
        """Return the number of each decision; chance is a hash of the gains of the row."""
        values = self.values(gain, propensity)
        if not self.temperature:
            return np.asarray(np.argmax(values, axis=1))
        below = np.cumsum(softmax(values / self.temperature, axis=1), axis=1)[:, :-1]
        bits = np.ascontiguousarray(gain[:, -1], dtype=np.float32).view(np.uint32)
        return np.asarray(np.sum(hash_uniform(0, bits)[:, None] >= below, axis=1))


@dataclass(frozen=True)
class DecisionSpec:
    """What decisions must meet: a limit on the difference of rates; of outcomes with `odds`."""

    limit: float
    odds: bool = False
    randomized: bool = False
    margin: float = 0.0  # standard errors of a difference that are left below the limit
    share: float | None = None  # of rows that get the second of two decisions; None: any


@dataclass(frozen=True, eq=False)
class _Dual:
    """F(λ) = E maxₖ(gₖ − Σ λ_kc a_c/E[a_c]) + Σ h_c|λ_kc| − Σ λ_kc δ_kc, with Σ_g λ_kc = 0.

    h are half the widths that rates may span, less a margin, δ what true rates have more than E[Dₖ a_c]/E[a_c], which
    is 1 in every cell for a decision that all rows get: without a minimum, F would have nothing that is within the
    limit. With a given share of decisions, λ keeps a sum: the price of that share.
    """

    rows: DecisionRows
    spec: DecisionSpec

    @cached_property
    def cell(self) -> NDArray[np.int64]:
        """Number of the cell of each row."""
        groups = self.rows.propensity.shape[1]
        return np.asarray(self.rows.group + groups * self.rows.outcome * self.spec.odds)

    @cached_property
    def share(self) -> Array:
        """π, the share of the rows that are in each cell."""
        count = self.rows.propensity.shape[1]
        count *= self.rows.gain.shape[1] if self.spec.odds else 1
        total = np.bincount(self.cell, self.rows.weight, count)
        return np.asarray(total / self.rows.weight.sum())

    @cached_property
    def cells(self) -> Array:
        """Rows a, of shape (n, C)."""
        rule = DecisionRule(np.empty(0), self.spec.odds)
        return rule.cells(self.rows.gain, self.rows.propensity)

    @cached_property
    def expected(self) -> Array:
        """E[a], π for propensities that are right on average."""
        mean = self.rows.weight @ self.cells / self.rows.weight.sum()
        return np.asarray(np.maximum(mean, LEAST * self.share))

    @property
    def first(self) -> int:
        """The first decision whose rate is limited: of two, one says it all."""
        return int(self.rows.gain.shape[1] == 2)

    def centred(self, price: Array) -> Array:
        """λ of any numbers: each outcome's sum goes, in equal parts or in those of the groups."""
        if self.spec.share is not None:
            return np.asarray(price - self.share * price.sum(axis=1, keepdims=True))
        parts = price.reshape(len(price), -1, self.rows.propensity.shape[1])
        return np.asarray((parts - parts.mean(axis=2, keepdims=True)).reshape(price.shape))

    def values(self, price: Array) -> Array:
        """Gains less prices, of shape (n, K)."""
        values = self.rows.gain.copy()
        values[:, self.first :] -= self.cells @ (price / self.expected).T
        return values

    def smooth(self, values: Array, temperature: float) -> tuple[float, Array]:
        """E of the smoothed maximum, and E[Dₖ a_c]/E[a_c] of decisions drawn in proportion."""
        weight = self.rows.weight / self.rows.weight.sum()
        top = values.max(axis=1, keepdims=True)
        parts = np.exp((values - top) / temperature)
        total = parts.sum(axis=1)
        drawn = (parts / total[:, None])[:, self.first :]
        mean = float(weight @ (top[:, 0] + temperature * np.log(total)))
        return mean, (drawn * weight[:, None]).T @ self.cells / self.expected

    def minimize(self, price: Array, temperature: float, half: Array, delta: Array) -> Array:
        """Return the prices λ (K', C) that minimise the smoothed dual, from some on."""
        share, shape = self.spec.share, price.shape

        def dual(flat: Array) -> tuple[float, Array]:
            free = flat.reshape(shape)
            lam = self.centred(free)
            used = lam if share is None else free
            value, rates = self.smooth(self.values(used), temperature)
            size = np.sqrt(lam**2 + KINK**2)
            value += float(np.sum(half * size) - np.sum(used * delta))
            slope, bend = -rates - delta, half * lam / size
            if share is None:
                return value, self.centred(slope + bend).ravel()
            slope += share + bend - (bend @ self.share)[:, None]
            return value + share * float(free.sum()), slope.ravel()

        options: Any = {"maxiter": 200, "ftol": 1e-12, "gtol": 1e-6}
        best: Any = minimize(dual, price.ravel(), jac=True, method="L-BFGS-B", options=options)
        free = np.asarray(best.x).reshape(shape)
        return free if share is not None else self.centred(free)

    def rates(self, decisions: Array) -> Array:
        """Rate of each limited decision in each cell, of decisions or their chances (n, K)."""
        chosen = decisions[:, self.first :] * self.rows.weight[:, None]
        count = len(self.share)
        sums = np.array([np.bincount(self.cell, column, count) for column in chosen.T])
        return np.asarray(np.clip(sums / (self.share * self.rows.weight.sum()), 0.0, 1.0))

    def errors(self, rates: Array) -> Array:
        """Standard errors of rates."""
        rows = rows_of_cells(self.cell, self.rows.weight, len(self.share))
        return np.asarray(np.sqrt(rates * (1 - rates) / rows))

    def half(self, rates: Array) -> Array:
        """Half the width that rates may span, less the margin for their standard errors."""
        margin = self.spec.margin * self.errors(rates) / np.sqrt(2)
        return np.asarray(np.maximum(self.spec.limit / 2 - margin, 0.0))

    def excess(self, rates: Array, half: Array) -> float:
        """How far rates are from fitting into the widths; at most 0: they do."""
        groups = self.rows.propensity.shape[1]
        low, high = ((rates + side * half).reshape(-1, groups) for side in (1, -1))
        return float(np.max(high.max(axis=1) - low.min(axis=1)))


def rows_of_cells(cell: NDArray[np.int64], weight: Array, count: int) -> Array:
    """(Σw)²/Σw² of each cell, at least 1."""
    sums, squares = (np.bincount(cell, power, count) for power in (weight, weight**2))
    return np.maximum(sums**2 / np.maximum(squares, np.finfo(float).tiny), 1.0)


def choose_rule(rows: DecisionRows, spec: DecisionSpec, near: DecisionRule | None = None) -> DecisionRule:
    """Return the rule of most gain within the limit, or of least excess for its gain."""
    return choose_among([rows], spec, near)[1]


def choose_among(
    seen: Sequence[DecisionRows], spec: DecisionSpec, near: DecisionRule | None = None
) -> tuple[int, DecisionRule]:
    """Return which propensities decide, and the rule: the first within the limit, else the best of all."""
    duals, found = [_Dual(rows, spec) for rows in seen], list[_Tried]()
    for dual in duals:
        if not found or found[0].excess > 0:
            found.append(min(_tried_prices(dual, near), key=_Tried.cost))
    at = min(range(len(found)), key=lambda k: found[k].cost())
    dual, best = duals[at], found[at]
    if best.excess > 0 and spec.odds and not spec.randomized:
        best = min(best, _polished(dual, best.price), key=_Tried.cost)
    price = np.zeros((dual.rows.gain.shape[1], len(dual.share)))
    price[dual.first :] = best.price / dual.expected
    return at, DecisionRule(price, spec.odds, TEMPERATURES[-1] if spec.randomized else 0.0)


class _Tried(NamedTuple):
    """Prices, how far the rates of their decisions exceed the limit, their gain, and the rates."""

    price: Array
    excess: float
    gain: float
    rates: Array

    def cost(self) -> tuple[bool, float]:
        """What is to be least: nothing above the limit, then its excess against the gain."""
        return self.excess > 0, EXCHANGE * max(self.excess, 0.0) - self.gain


def _tried(dual: _Dual, price: Array) -> _Tried:
    values, rows, spec = dual.values(price), dual.rows, dual.spec
    decided = np.eye(values.shape[1])[np.argmax(values, axis=1)]
    if spec.randomized:
        decided = softmax(values / TEMPERATURES[-1], axis=1)
    rates = dual.rates(decided)
    excess = dual.excess(rates, dual.half(rates))
    if spec.share is not None:  # a share cannot be met closer than a row
        excess = max(excess, abs(rates[0] @ dual.share - spec.share) - 1e-3)
    gain = np.average(np.sum(decided * rows.gain, axis=1), weights=rows.weight)
    return _Tried(price, excess, float(gain), rates)


def _tried_prices(dual: _Dual, near: DecisionRule | None) -> Iterator[_Tried]:
    """Yield prices, each corrected by the rates of those before: smoothing is not exact."""
    K, tau, tight = dual.rows.gain.shape[1], TEMPERATURES[-1], 0.0
    price = delta = np.zeros((K - dual.first, len(dual.share)))
    half = dual.half(_tried(dual, price).rates)
    if near is not None:
        price = near.price[dual.first :] * dual.expected
    for temperature in TEMPERATURES if near is None else TEMPERATURES[-1:]:
        price = dual.minimize(price, temperature, half, delta)
    for _ in range(ROUNDS):
        tried = _tried(dual, price)
        yield tried
        moved = tried.rates - dual.smooth(dual.values(price), tau)[1] - delta
        if tried.excess <= 0 and np.abs(moved).max() < SETTLED / 10:
            return
        delta = delta + moved
        if np.abs(moved).max() < SETTLED:  # the rest is rows that decide together
            tight += max(tried.excess, 0.0) / 2
        half = np.maximum(dual.half(tried.rates) - tight, 0.0)
        price = dual.minimize(price, tau, half, delta)


def _polished(dual: _Dual, price: Array) -> _Tried:
    """Search around some prices by the decisions alone, where no correction leads to the limit."""

    def cost(flat: Array) -> float:
        return _tried(dual, dual.centred(flat.reshape(price.shape))).cost()[1]

    options: Any = {"maxfev": 30 * price.size}
    found: Any = minimize(cost, price.ravel(), method="Nelder-Mead", options=options)
    return _tried(dual, dual.centred(np.asarray(found.x).reshape(price.shape)))


@dataclass(frozen=True, eq=False)
class DecisionRates:
    """What decisions do in each group; all arrays but the last are of shape (K, G)."""

    before: Array  # rate of the largest gain
    rate: Array  # of the rule
    error: Array
    hit: Array  # rate among rows that have the class
    miss: Array  # and among those that have not
    expected: Array  # mean probability of the class
    observed: Array  # and how often it occurs
    right_before: Array  # share of decisions for the class that are right
    right: Array
    rows: Array  # (G,): counts by Kish

    @classmethod
    def of(cls, rows: DecisionRows, decided: NDArray[np.int64]) -> DecisionRates:
        """Measure decisions on rows."""
        K, G = rows.gain.shape[1], rows.propensity.shape[1]
        before, after, true = (np.eye(K)[part] for part in (np.argmax(rows.gain, axis=1), decided, rows.outcome))

        def mean(values: Array, among: Array | float = 1.0) -> Array:
            among = np.broadcast_to(among, values.shape) * rows.weight[:, None]
            pairs = zip((values * among).T, among.T, strict=True)
            sums = [[np.bincount(rows.group, part, G) for part in pair] for pair in pairs]
            with np.errstate(invalid="ignore"):  # no row, no rate
                return np.array([total / count for total, count in sums])

        rate, count = mean(after), rows_of_cells(rows.group, rows.weight, G)
        return cls(
            mean(before), rate, np.sqrt(rate * (1 - rate) / count), mean(after, true),
            mean(after, 1 - true), mean(rows.gain), mean(true), mean(true, before),
            mean(true, after), count,
        )  # fmt: skip


def gap_of(rows: DecisionRows, decided: NDArray[np.int64], spec: DecisionSpec) -> tuple[float, float]:
    """Return the largest difference between groups in the rate of a decision, and its error."""
    dual = _Dual(rows, spec)
    rates = dual.rates(np.eye(rows.gain.shape[1])[decided])
    errors, rates = (part.reshape(-1, rows.propensity.shape[1]) for part in (dual.errors(rates), rates))
    at = int(np.argmax(np.ptp(rates, axis=1)))
    ends = [int(np.argmax(rates[at])), int(np.argmin(rates[at]))]
    return float(np.ptp(rates[at])), float(np.hypot(*errors[at][ends]))


def held_out_decisions(rows: DecisionRows, spec: DecisionSpec, rule: DecisionRule) -> NDArray[np.int64]:
    """Return the decision for each row, by a rule near `rule` chosen without its fold."""
    decided = np.empty(len(rows.group), dtype=np.int64)
    for fold in np.unique(rows.fold):
        inside = rows.fold == fold
        other = choose_rule(rows.take(~inside), spec, rule)
        decided[inside] = other.decide(rows.gain[inside], rows.propensity[inside])
    return decided
