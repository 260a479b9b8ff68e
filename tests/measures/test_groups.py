"""Group gaps against definitions, fairlearn, and themselves in any order and any chunks."""

import functools
import operator
from itertools import combinations

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import mean_absolute_error

from scalefair._typing import Chunk
from scalefair.measures import group_gaps
from scalefair.measures.group_metrics import count_groups
from scalefair.measures.group_rows import open_audit
from scalefair.measures.group_statistics import GroupSettings, count_cells, survey_groups
from tests.errors import refused
from tests.groups import people, reference, repeated
from tests.naive import kish

S = ["sex", "race"]
QUANTILES = (0.1, 0.5, 0.75)


@pytest.fixture(scope="module")
def frame():
    return people()


def close(first, second, **tolerance):
    pd.testing.assert_frame_equal(first, second, check_dtype=False, **tolerance)


def same(first, second, rtol=1e-10):
    close(first.table, second.table, rtol=rtol, atol=1e-12)
    close(first.gaps, second.gaps, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("by", [["sex"], ["race"], S])
def test_every_metric_is_its_definition(frame, by):
    gaps = group_gaps(
        frame["score"], sensitive_features=frame[by], y_true=frame["truth"], threshold=0.3, quantiles=QUANTILES
    )
    for levels, rows in frame.groupby(by):
        key = levels if len(by) > 1 else levels[0]
        expected = reference(rows, "score", "truth", 0.3, QUANTILES)
        found = gaps.by_group.loc[key]
        assert list(found.index) == list(expected)
        np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)
    whole = reference(frame, "score", "truth", 0.3, QUANTILES)
    np.testing.assert_allclose(gaps.overall, list(whole.values()), rtol=1e-12)


def test_gaps_are_the_extremes_of_the_groups(frame):
    gaps = group_gaps(frame["score"], sensitive_features=frame[S], y_true=frame["truth"], threshold=0.3)
    assert list(gaps.frames) == [("sex",), ("race",), ("sex", "race")]
    for key, part in gaps.frames.items():
        metrics = part.by_group.drop(columns="count")
        rows = gaps.gaps[gaps.gaps["attribute"] == " × ".join(key)].set_index("metric")
        np.testing.assert_allclose(rows["difference"], metrics.max() - metrics.min())
        np.testing.assert_allclose(part.difference(), metrics.max() - metrics.min())
        positive = (metrics >= 0).all()
        ratio = (metrics.min() / metrics.max())[positive]
        np.testing.assert_allclose(rows["ratio"][positive], ratio)
        np.testing.assert_allclose(part.ratio()[positive], ratio)
        assert rows["ratio"][~positive].isna().all()
        for metric in metrics:
            name = rows.loc[metric, "largest"]
            group = tuple(name.split(", ")) if len(part.attributes) > 1 else name
            assert metrics.loc[group, metric] == metrics[metric].max()
        assert (rows["difference_low"] <= rows["difference"]).all()
        assert (rows["difference"] <= rows["difference_high"]).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by", [["sex"], ["race"], S])
def test_equals_fairlearn(frame, by, weighted):
    metrics = {
        "mean_prediction": fl.mean_prediction,
        "selection_rate": fl.selection_rate,
        "true_positive_rate": fl.true_positive_rate,
        "false_positive_rate": fl.false_positive_rate,
        "false_negative_rate": fl.false_negative_rate,
    }
    y, p, s = frame["truth"], frame["label"], frame[by]
    weight = frame["weight"] if weighted else None
    params = {name: {"sample_weight": weight} for name in metrics} if weighted else None
    theirs = fl.MetricFrame(metrics=metrics, y_true=y, y_pred=p, sensitive_features=s, sample_params=params)
    ours = group_gaps(p, sensitive_features=s, y_true=y, sample_weight=weight, metrics=list(metrics), quantiles=())
    names = list(metrics)
    close(ours.by_group[names], theirs.by_group, rtol=1e-12)
    np.testing.assert_allclose(ours.overall[names], theirs.overall)
    for method in ("between_groups", "to_overall"):
        np.testing.assert_allclose(ours.difference(method), theirs.difference(method=method))
        np.testing.assert_allclose(ours.ratio(method), theirs.ratio(method=method))
    options = {"sensitive_features": s, "sample_weight": weight}
    dpd = fl.demographic_parity_difference(y, p, **options)
    assert ours.difference()["selection_rate"] == pytest.approx(dpd)
    assert ours.ratio()["selection_rate"] == pytest.approx(fl.demographic_parity_ratio(y, p, **options))
    odds = ours.difference()[["true_positive_rate", "false_positive_rate"]].max()
    assert odds == pytest.approx(fl.equalized_odds_difference(y, p, **options))


def test_regression_errors_equal_a_metric_frame(frame):
    theirs = fl.MetricFrame(
        metrics=mean_absolute_error, y_true=frame["target"], y_pred=frame["score"], sensitive_features=frame["race"]
    )
    ours = group_gaps(frame["score"], sensitive_features=frame["race"], y_true=frame["target"])
    np.testing.assert_allclose(ours.by_group["mean_absolute_error"], theirs.by_group)
    assert "selection_rate" not in ours.by_group


def test_row_order_changes_nothing(frame):
    shuffled = frame.sample(frac=1, random_state=1)
    first, second = (
        group_gaps(f["score"], sensitive_features=f[S], y_true=f["truth"], sample_weight=f["weight"], threshold=0.3)
        for f in (frame, shuffled)
    )
    same(first, second)


def test_weight_two_is_the_row_twice(frame):
    many = repeated(frame)
    options = {"threshold": 0.3}
    first = group_gaps(
        frame["score"], sensitive_features=frame[S], y_true=frame["truth"], sample_weight=frame["weight"], **options
    )
    second = group_gaps(many["score"], sensitive_features=many[S], y_true=many["truth"], **options)
    values = ["attribute", "group", "metric", "value"]
    close(first.table[values], second.table[values], rtol=1e-9, atol=1e-12)
    values = ["attribute", "metric", "largest", "smallest", "difference", "ratio"]
    close(first.gaps[values], second.gaps[values], rtol=1e-9, atol=1e-12)


def test_a_common_factor_of_the_weights_changes_nothing(frame):
    def found(weight):
        return group_gaps(
            frame["score"], sensitive_features=frame[S], y_true=frame["truth"], sample_weight=weight, threshold=0.3
        )

    weight = frame["weight"] + 0.5
    for first, second in (
        *((weight, weight * factor) for factor in (1 / weight.sum(), 1 / 7, 100.0)),
        (None, np.full(len(frame), 0.3)),
    ):
        one, other = found(first), found(second)
        close(one.gaps, other.gaps, rtol=1e-9, atol=1e-12)
        tables = (gaps.table.drop(columns="weight") for gaps in (one, other))
        close(*tables, rtol=1e-9, atol=1e-12)


def test_weighted_intervals_count_rows_by_kish(frame):
    frame = frame[frame["weight"] > 0]
    p, w = frame["score"], frame["weight"] ** 1.5
    names = ["mean_prediction", "true_positive_rate"]
    gaps = group_gaps(
        p,
        sensitive_features=frame["race"],
        y_true=frame["truth"],
        sample_weight=w,
        threshold=0.3,
        metrics=names,
        quantiles=[0.3],
    )
    low, high = gaps["race"].intervals()
    for race, rows in frame.groupby("race"):
        x, v = rows["score"].to_numpy(), w[rows.index].to_numpy()
        n, mean = kish(v), np.average(x, weights=v)
        half = stats.t.ppf(0.975, n - 1) * np.sqrt(np.average((x - mean) ** 2, weights=v) / (n - 1))
        ends = low.loc[race, "mean_prediction"], high.loc[race, "mean_prediction"]
        assert ends == pytest.approx((mean - half, mean + half))
        own = rows["truth"].to_numpy() == 1
        n, rate = kish(v[own]), np.average(x[own] >= 0.3, weights=v[own])
        for end in (low, high):  # Wilson's ends p solve (rate − p)² = z² p(1 − p)/n
            p = end.loc[race, "true_positive_rate"]
            z = stats.norm.ppf(0.975)
            assert (rate - p) ** 2 == pytest.approx(z**2 * p * (1 - p) / n)
        half = stats.norm.ppf(0.975) * np.sqrt(0.3 * 0.7 / kish(v))
        for end, q in ((low, 0.3 - half), (high, 0.3 + half)):
            expected = np.quantile(x, q, weights=v, method="inverted_cdf")
            assert end.loc[race, "quantile_0.3"] == expected


def test_intervals_of_weighted_rows_are_nearly_those_of_resampling(frame):
    weight = np.random.default_rng(4).exponential(size=len(frame)) / 3
    low, high = group_gaps(
        frame["score"], sensitive_features=frame["sex"], sample_weight=weight, metrics="mean_prediction", quantiles=()
    )["sex"].intervals()
    rng = np.random.default_rng(0)
    for sex, width in (high - low)["mean_prediction"].items():
        own = (frame["sex"] == sex).to_numpy()
        times = rng.poisson(1.0, (2000, own.sum())) * weight[own]
        means = times @ frame["score"][own] / times.sum(axis=1)
        assert width == pytest.approx(np.ptp(np.quantile(means, [0.025, 0.975])), rel=0.12)


def statistics(frame, cuts, order):
    """Statistics of consecutive pieces of the rows, added up in some order."""
    weight = frame["weight"]
    rows = open_audit(frame["score"], frame[S], frame["truth"], weight)
    whole = count_groups(survey_groups(rows, GroupSettings(threshold=0.3)))
    parts = []
    for first, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        part = frame.iloc[first:stop]
        accumulator = count_cells(whole.surveyed.plan)
        y, w = part["truth"].to_numpy(float)[:, None], part["weight"].to_numpy(float)
        accumulator.add(Chunk(part[["score"]], part[S], y, w, row=first))
        parts.append(accumulator.result())
    return whole.crossed[0], functools.reduce(operator.add, [parts[i] for i in order])[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=4), st.randoms())
def test_statistics_merge_in_any_order(cuts, random):
    frame = people(200, seed=3)
    order = list(range(len(cuts) + 1))
    random.shuffle(order)
    whole, summed = statistics(frame, sorted(cuts), order)
    names = ("cells", "rows", "weight", "mean", "scatter", "outcomes", "squares")
    for name in names:
        np.testing.assert_allclose(getattr(summed, name), getattr(whole, name), atol=1e-9)


def test_scatter_survives_a_mean_far_away(frame):
    near = group_gaps(frame["score"], sensitive_features=frame[S])
    far = group_gaps(frame["score"] + 1e6, sensitive_features=frame[S])
    width = [(g.table["high"] - g.table["low"]).to_numpy() for g in (near, far)]
    np.testing.assert_allclose(width[1], width[0], rtol=1e-6)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_weighted_quantiles_are_numpys(frame, q):
    gaps = group_gaps(frame["score"], sensitive_features=frame["sex"], sample_weight=frame["weight"], quantiles=[q])
    for sex, rows in frame.groupby("sex"):
        expected = np.quantile(rows["score"], q, weights=rows["weight"], method="inverted_cdf")
        assert gaps.by_group.loc[sex, f"quantile_{q:g}"] == expected


def test_numbers_with_few_values_have_groups_and_others_bins(frame):
    s = pd.DataFrame({"sex": (frame["sex"] == "m") * 1, "age": frame["age"]})
    gaps = group_gaps(frame["score"], sensitive_features=s)
    assert list(gaps.frames) == [("sex",)]
    assert list(gaps.by_group.index) == ["0", "1"]
    cut = group_gaps(frame["score"], sensitive_features=s, bins={"age": [30, 50]})
    assert list(cut["age"].by_group.index) == ["up to 30", "30 to 50", "above 50"]
    young = frame["score"][frame["age"] <= 30]
    assert cut["age"].by_group.loc["up to 30", "mean_prediction"] == pytest.approx(young.mean())
    assert cut["age"].by_group.loc["up to 30", "count"] == len(young)


def test_missing_attributes_are_a_group_or_left_out(frame):
    s = frame[S].copy()
    s.loc[frame.index[:40], "race"] = None
    group = group_gaps(frame["score"], sensitive_features=s, missing="group")
    assert group["race"].by_group.loc["(missing)", "count"] == 40
    gone = group_gaps(frame["score"], sensitive_features=s, missing="drop")
    same(gone, group_gaps(frame["score"][40:], sensitive_features=s[40:]))


def test_without_intersections_only_single_attributes(frame):
    alone = group_gaps(frame["score"], sensitive_features=frame[S], intersections=False)
    both = group_gaps(frame["score"], sensitive_features=frame[S])
    assert list(alone.frames) == [("sex",), ("race",)]
    for key in alone.frames:
        close(alone[key[0]].by_group, both[key[0]].by_group, rtol=1e-12)


def test_groups_of_one_among_intersections_are_not_compared(frame):
    s = frame[S].assign(third=np.where(np.arange(len(frame)) % 2, "x", "y"))
    s.loc[:1, "third"] = "z"
    s.loc[:1, "sex"] = ["f", "m"]
    score = frame["score"].copy()
    score[:2] = [1e6, -1e6]
    gaps = group_gaps(score, sensitive_features=s)
    assert (gaps.by_group["count"] == 1).sum() == 2
    assert gaps.difference()["mean_prediction"] < 10
    small = gaps.table[(gaps.table["count"] == 1) & (gaps.table["metric"] == "mean_prediction")]
    assert small["low"].isna().all()


def test_an_attribute_may_have_the_name_of_a_metric(frame):
    gaps = group_gaps(frame["score"], sensitive_features={"count": frame["sex"], "bias": frame["race"]})
    assert list(gaps.by_group.index.names) == ["count", "bias"]
    assert gaps.by_group["count"].sum() == len(frame)


def test_results_as_dictionaries_and_pages(frame):
    gaps = group_gaps(frame["score"], sensitive_features=frame[S])
    record = gaps.to_dict()
    assert record["groups"][0]["group"] == "f"
    assert record["groups"][0]["value"] == gaps.table["value"][0]
    assert type(record["groups"][0]["count"]) is int
    assert "<table" in gaps._repr_html_()
    assert repr(gaps) == "<GroupGaps by sex, race, sex × race>"
    with refused("'age'", "'sex', 'race'", error=KeyError):
        gaps["age"]


def test_every_pair_of_attributes_adds_up(frame):
    """Counts of the crossing, summed over one attribute, are those of the other."""
    gaps = group_gaps(frame["score"], sensitive_features=frame[S])
    for keep in combinations(S, 1):
        counts = gaps.by_group["count"].groupby(level=keep[0]).sum()
        np.testing.assert_array_equal(counts, gaps[keep[0]].by_group["count"])
