"""Intervals of groups and gaps: known answers, and how often they hold."""

import numpy as np
import pytest
from scipy import stats

from scalefair.measures import group_gaps
from scalefair.measures.group_metrics import Distribution, Mean, Quantile, Rate, Root, difference, ratio


def used(n):
    return np.ones(n, dtype=bool)


def rates(hits, total):
    return Rate(np.array(total, dtype=float), np.array(hits) / np.array(total))


def test_a_mean_has_students_interval():
    x = np.random.default_rng(0).normal(size=12)
    mean = Mean(np.array([12.0]), np.array([x.mean()]), np.array([x.var()]))
    expected = stats.t.interval(0.9, 11, x.mean(), stats.sem(x))
    np.testing.assert_allclose(np.ravel(mean.interval(0.9)), expected)


def test_a_rate_has_wilsons_interval():
    low, high = rates([7, 0, 5], [20, 10, 5]).interval(0.95)
    for i, (hits, total) in enumerate([(7, 20), (0, 10), (5, 5)]):
        expected = stats.binomtest(hits, total).proportion_ci(0.95, method="wilson")
        assert low[i] == pytest.approx(expected.low, abs=1e-12)
        assert high[i] == pytest.approx(expected.high, abs=1e-12)


def test_a_rate_of_nothing_is_not_known():
    gaps = group_gaps([1, 1, 0, 1], sensitive_features=list("aabb"), y_true=[1, 1, 0, 0], quantiles=())
    low, high = gaps["s0"].intervals()
    for part in (gaps.by_group, low, high):
        assert np.isnan(part.loc["b", "true_positive_rate"])


def test_the_difference_of_two_rates_has_newcombes_interval():
    # Newcombe (1998), Statistics in Medicine 17, 873–890, table II, (a) and method 10.
    gap = difference(rates([56, 48], [70, 80]), 0.95, used(2))
    assert gap.value == pytest.approx(0.2)
    assert (round(gap.low, 4), round(gap.high, 4)) == (0.0524, 0.3339)


def test_the_difference_of_two_means_is_nearly_welchs():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=200), rng.normal(0.5, 2, size=300)
    parts = [(len(x), x.mean(), x.var()) for x in (a, b)]
    gap = difference(Mean(*np.array(parts, dtype=float).T), 0.95, used(2))
    welch = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((welch.low, welch.high), abs=0.01)


def test_the_order_of_groups_changes_no_gap():
    rate = rates([5, 30, 12], [20, 40, 50])
    other = Rate(rate.rows[::-1], rate.value[::-1])
    assert difference(rate, 0.9, used(3)) == pytest.approx(difference(other, 0.9, used(3)))
    assert ratio(rate, 0.9, used(3)) == pytest.approx(ratio(other, 0.9, used(3)))


def test_more_groups_make_the_interval_wider():
    two = rates([50, 30], [100, 100])
    many = rates([50, 30, *[40] * 8], [100] * 10)
    narrow, wide = difference(two, 0.95, used(2)), difference(many, 0.95, used(10))
    assert wide.value == narrow.value
    assert wide.low < narrow.low
    assert wide.high > narrow.high


def test_a_ratio_with_no_hits_in_one_group():
    gap = ratio(rates([0, 50], [100, 100]), 0.95, used(2))
    assert gap.value == gap.low == 0
    assert 0.03 < gap.high < 0.15


def test_negative_values_have_no_ratio():
    assert np.isnan(ratio(Mean(np.array([9.0, 9]), np.array([-1.0, 2]), np.ones(2)), 0.9, used(2)))[0]


def test_the_root_of_a_mean_and_its_ends():
    mean = Mean(np.array([50.0]), np.array([4.0]), np.array([4.0]))
    root = Root(mean.rows, np.array([2.0]), mean.variance)
    np.testing.assert_allclose(np.ravel(root.interval(0.9)) ** 2, np.ravel(mean.interval(0.9)))


def test_a_quantile_is_between_its_ends():
    x = np.sort(np.random.default_rng(0).normal(size=400))
    group = Distribution(x, np.arange(1.0, 401.0), 400.0)
    median = Quantile(0.5, [group])
    low, high = median.interval(0.95)
    assert median.value[0] == x[199]
    half = stats.norm.ppf(0.975) * 0.5 / np.sqrt(400)
    assert (low[0], high[0]) == (group.quantile(0.5 - half), group.quantile(0.5 + half))


def coverage(repeats, n=120):
    """How often the intervals of a gap hold the truth: means, rates and medians of three groups."""
    rng = np.random.default_rng(5)
    codes = np.repeat([0, 1, 2], n // 3)
    shift = np.array([0.0, 0.3, 0.8])
    truth = {"mean_prediction": 0.8, "selection_rate": stats.norm.sf(-0.3) - stats.norm.sf(0.5), "quantile_0.5": 0.8}
    held = dict.fromkeys(truth, 0)
    for seed in range(repeats):
        score = shift[codes] + rng.normal(size=n)
        gaps = group_gaps(
            score,
            sensitive_features=codes,
            threshold=0.5,
            quantiles=[0.5],
            metrics=["mean_prediction", "selection_rate"],
            random_state=seed,
        ).gaps.set_index("metric")
        for metric, gap in truth.items():
            row = gaps.loc[metric]
            held[metric] += row["difference_low"] <= gap <= row["difference_high"]
    return {metric: count / repeats for metric, count in held.items()}


def test_intervals_hold_as_often_as_they_say():
    repeats = 150
    for metric, share in coverage(repeats).items():
        assert share >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / repeats), metric


@pytest.mark.slow
def test_intervals_are_not_too_wide_either():
    # Bonferroni over three pairs, the gap being one of them: between 0.95 and 0.995.
    for metric, share in coverage(2000, n=300).items():
        assert 0.945 <= share <= 0.996, metric
