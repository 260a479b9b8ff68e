"""Dependence, areas between curves and verdicts of the paper's experiments, by definition."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.curves import area, front, gaps, hsic, is_flat
from benchmarks.paper.experiment import verdicts


def test_hsic_is_the_trace():
    rng = np.random.default_rng(0)
    f, s = rng.standard_normal(30), rng.standard_normal((30, 2))
    H, L = np.eye(30) - 1 / 30, np.exp(-np.sum((s[:, None] - s) ** 2, axis=2) / (2 * 0.5**2))
    assert hsic(f, s) == pytest.approx(np.trace(np.outer(f, f) @ H @ L @ H) / 30**2)


def test_hsic_of_groups_is_that_of_the_categorical_kernel():
    rng = np.random.default_rng(1)
    f, group = rng.standard_normal(40), rng.integers(0, 4, 40)
    H, L = np.eye(40) - 1 / 40, group[:, None] == group
    assert hsic(f, group) == pytest.approx(np.trace(np.outer(f, f) @ H @ L @ H) / 40**2)


def test_a_front_never_rises():
    x, e = front(np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 5.0]))
    assert (x.tolist(), e.tolist()) == ([1, 2, 3], [2, 2, 1])


@pytest.mark.parametrize("log", [False, True])
def test_the_area_between_shifted_curves_is_the_shift(log):
    x = np.geomspace(1.0, 10.0, 5)
    upper, lower = (x, 3.0 - np.log(x)), (x, 2.75 - np.log(x))
    assert area(upper, lower, log=log) == pytest.approx(0.25)
    assert area(lower, upper, log=log) == pytest.approx(-0.25)


def test_the_area_of_a_triangle():
    upper = (np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    lower = (np.array([-5.0, 2.0]), np.array([0.0, 0.0]))
    assert area(upper, lower) == pytest.approx(0.5)
    # Only the common range counts, and its place on the axis matters for a logarithm.
    assert gaps(upper, (np.array([0.5, 2.0]), np.zeros(2))).mean() == pytest.approx(0.25)


def test_curves_without_common_dependence_say_nothing():
    one, other = (np.array([0.0, 1.0]), np.ones(2)), (np.array([2.0, 3.0]), np.ones(2))
    assert np.isnan(area(one, other))
    assert np.isnan(area(one, (np.zeros(2), np.ones(2)), log=True))


def test_flat_predictions():
    assert is_flat(np.full(5, 0.1))
    assert hsic(np.full(5, 0.1), np.arange(5.0)[:, None]) == 0.0
    assert is_flat(np.zeros(5))
    assert not is_flat(np.array([0.0, 1e-3]))


def test_a_verdict_needs_the_interval_on_one_side():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(50)
    found = verdicts(
        {
            "clear": 1 + noise,
            "against": -1 + noise,
            "open": noise - noise.mean(),
            "one seed": [9.0],
            "none": [np.nan],
            "slight": [-1e-3, -1.1e-3],
        },
        margin=0.1,
    ).set_index("claim")
    expected = ["holds", "fails", "undecided", "undecided", "undecided", "undecided"]
    assert found["verdict"].tolist() == expected
    assert found.loc["clear", "error"] == pytest.approx(noise.std(ddof=1) / np.sqrt(50))
    assert found["seeds"].tolist() == [50, 50, 50, 1, 0, 2]
    assert verdicts({"slight": [-1e-3, -1.0001e-3, -1e-3]})["verdict"].tolist() == ["fails"]
    # Three seeds: Student's t is 4.3, not 2. Two decide nothing, even where they agree.
    assert verdicts({"three": [1.0, 2.0, 3.0]})["verdict"].tolist() == ["undecided"]
    assert verdicts({"two": [1.0, 1.0]})["verdict"].tolist() == ["undecided"]
