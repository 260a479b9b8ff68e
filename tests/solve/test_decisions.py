"""Decisions within a limit on rates, judged by rules that are found by trying all thresholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from scalefair.solve.decisions.rule import DecisionRows, DecisionSpec, choose_among, choose_rule, gap_of


def rows_of(n=4000, groups=2, classes=2, hidden=False, seed=0):
    """Rows whose probabilities are the true ones, and whose groups have other distributions."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    x = rng.normal(size=n) + 0.8 * group
    if classes == 2:
        p = expit(1.5 * (x - 1))
        gain = np.column_stack([1 - p, p])
    else:
        scores = np.column_stack([np.zeros(n), x, 2 * x - 1.5])
        gain = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    outcome = (rng.random((n, 1)) > np.cumsum(gain, axis=1)).sum(axis=1)
    propensity = np.eye(groups)[group]
    if hidden:
        density = np.exp(-((x[:, None] - 0.8 * np.arange(groups)) ** 2) / 2)
        propensity = density / density.sum(axis=1, keepdims=True)
    return DecisionRows(np.arange(n), gain, propensity, group, outcome, np.ones(n), rng.integers(0, 5, n))


def chosen(rows, spec):
    rule = choose_rule(rows, spec)
    decided = rule.decide(rows.gain, rows.propensity)
    gain = np.average(rows.gain[np.arange(len(decided)), decided], weights=rows.weight)
    return decided, gain, gap_of(rows, decided, spec)[0]


def best_of_thresholds(rows, limit):
    """Most gain of one threshold per group, all pairs of rates tried."""
    of = [np.sort(rows.gain[rows.group == g, 1])[::-1] for g in (0, 1)]
    gains = [np.append(0, np.cumsum(2 * p - 1)) for p in of]
    rates = [np.arange(len(p) + 1) / len(p) for p in of]
    within = np.abs(rates[0][:, None] - rates[1]) <= limit
    base = rows.gain[:, 0].sum()
    return (base + np.where(within, gains[0][:, None] + gains[1], -np.inf).max()) / len(rows.group)


@pytest.mark.parametrize("limit", [0.0, 0.01, 0.05, 0.2])
def test_of_all_thresholds_per_group_the_best(limit):
    rows = rows_of()
    _, gain, gap = chosen(rows, DecisionSpec(limit))
    assert gap <= limit + 1e-3
    assert gain >= best_of_thresholds(rows, limit + 1e-9) - 1e-3


@pytest.mark.parametrize(("groups", "classes", "hidden"), [(3, 2, False), (3, 2, True), (2, 3, True)])
def test_rates_meet_the_limit(groups, classes, hidden):
    rows = rows_of(6000, groups, classes, hidden)
    before = gap_of(rows, rows.gain.argmax(axis=1), DecisionSpec(0.05))[0]
    _, _, gap = chosen(rows, DecisionSpec(0.05))
    assert gap <= 0.05 + 1e-3 < before


def test_odds_where_the_outcome_depends_on_the_hidden_group_beyond_the_scores():
    # P(outcome, group | x) is not the product of what is known of each: a decision that all rows
    # get must have the same rate in every cell nevertheless, or no prices are found at all.
    rows = rows_of(6000, classes=3, hidden=True)
    promoted = np.random.default_rng(1).random(6000) < 0.3 * rows.group
    rows = replace(rows, outcome=np.where(promoted, 2, rows.outcome))
    spec = DecisionSpec(0.05, odds=True)
    before = gap_of(rows, rows.gain.argmax(axis=1), spec)[0]
    _, gain, gap = chosen(rows, spec)
    assert gap <= 0.05 + 0.02 < before
    assert gain > rows.gain.mean(axis=0).max()  # more than one decision for all


def test_hidden_groups_cost_more_than_visible_ones_and_less_than_a_constant():
    seen, hidden = (chosen(rows_of(hidden=h), DecisionSpec(0.02))[1] for h in (False, True))
    constant = rows_of().gain.mean(axis=0).max()
    assert constant < hidden < seen


def test_a_limit_that_holds_already_changes_nothing():
    rows = rows_of()
    decided, _, _ = chosen(rows, DecisionSpec(0.9))
    assert np.mean(decided == rows.gain.argmax(axis=1)) > 0.999


def test_weight_two_is_the_row_twice():
    rows = rows_of(2000)
    weight = np.where(np.arange(2000) < 500, 2.0, 1.0)
    twice = rows.take(np.repeat(np.arange(2000), weight.astype(int)))
    one, other = (choose_rule(r, DecisionSpec(0.02)) for r in (replace(rows, weight=weight), twice))
    np.testing.assert_allclose(one.price, other.price, atol=2e-3)


def test_odds_are_met_by_chance_where_no_thresholds_meet_them():
    rng = np.random.default_rng(1)
    rows = rows_of(20_000)
    # Of one group the scores tell less, so that its curve of rates lies below the other's.
    flat = np.where(rows.group == 0, 0.5 + 0.4 * (rows.gain[:, 1] - 0.5), rows.gain[:, 1])
    outcome = (rng.random(len(flat)) < flat).astype(int)
    rows = replace(rows, gain=np.column_stack([1 - flat, flat]), outcome=outcome)
    spec = DecisionSpec(0.02, odds=True)
    drawn = replace(spec, randomized=True)
    _, gain, gap = chosen(rows, spec)
    _, gain_drawn, gap_drawn = chosen(rows, drawn)
    assert gap_drawn <= 0.02 + 0.02  # of chance, some 10,000 rows a group
    assert gap_drawn < gap or gain_drawn >= gain - 1e-3


def of_unequal_curves():
    """Rows of two groups, of one of which scores tell less, with what else tells of the group: z."""
    rng = np.random.default_rng(1)
    rows = rows_of(8000)
    flat = np.where(rows.group == 0, 0.5 + 0.7 * (rows.gain[:, 1] - 0.5), rows.gain[:, 1])
    outcome = (rng.random(len(flat)) < flat).astype(int)
    return replace(rows, gain=np.column_stack([1 - flat, flat]), outcome=outcome), rng.normal(size=8000) + rows.group


def best_of_tilted_thresholds(rows, z, limit, tilts):
    """Most gain of a rule p > t_g + c_g·z within a limit on odds, all pairs of (t, c) on a grid tried."""
    p, found = rows.gain[:, 1], []
    for g in (0, 1):
        at, lines = rows.group == g, []
        for tilt in tilts:
            lead = (p - tilt * z)[at]
            for t in np.quantile(lead, np.linspace(0, 1, 81)):
                d, true = lead > t, rows.outcome[at] == 1
                lines.append([d[true].mean(), d[~true].mean(), np.where(d, p[at], 1 - p[at]).sum()])
        found.append(np.array(lines))
    one, other = found
    gaps = np.abs(one[:, None, :2] - other[None, :, :2]).max(axis=2)
    total = one[:, None, 2] + other[None, :, 2]
    return np.where(gaps <= limit, total, -np.inf).max() / len(p)


@pytest.mark.parametrize("limit", [0.01, 0.02])
def test_odds_are_met_without_chance_where_thresholds_that_know_the_group_alone_meet_them_badly(limit):
    rows, z = of_unequal_curves()
    spec, guess = DecisionSpec(limit, odds=True), expit(z - 0.5)
    blends = [(1 - part) * rows.propensity + part * np.column_stack([1 - guess, guess]) for part in (0.0, 0.1, 0.3)]
    seen = [replace(rows, propensity=blend) for blend in blends]
    at, rule = choose_among(seen, spec)
    decided = rule.decide(rows.gain, seen[at].propensity)
    gain = np.mean(rows.gain[np.arange(len(decided)), decided])
    assert gap_of(rows, decided, spec)[0] <= limit + 1e-3
    assert gain > best_of_tilted_thresholds(rows, z, limit, [0.0]) + 0.01
    assert gain > best_of_tilted_thresholds(rows, z, limit, np.linspace(-0.3, 0.3, 7)) - 2e-3
    drawn = choose_rule(rows, replace(spec, randomized=True))
    by_chance = drawn.decide(rows.gain, rows.propensity)
    assert gain > np.mean(rows.gain[np.arange(len(by_chance)), by_chance]) - 0.01


def test_chance_is_a_function_of_the_row():
    rows = rows_of(1000)
    rule = choose_rule(rows, DecisionSpec(0.02, odds=True, randomized=True))
    order = np.random.default_rng(0).permutation(1000)
    decided = rule.decide(rows.gain, rows.propensity)
    np.testing.assert_array_equal(rule.decide(rows.gain[order], rows.propensity[order]), decided[order])


@pytest.mark.parametrize("hidden", [False, True])
def test_ranks_have_their_share_and_every_group_its_own(hidden):
    rows = rows_of(6000, hidden=hidden)
    z = np.log(rows.gain[:, 1] / rows.gain[:, 0])
    rows = replace(rows, gain=np.column_stack([0 * z, z - np.quantile(z, 0.9)]))
    decided, _, gap = chosen(rows, DecisionSpec(0.01, share=0.1))
    assert abs(decided.mean() - 0.1) < 3e-3
    assert gap <= 0.01 + 2e-3
