"""The report says what the numbers say: group statistics, the split, the words, the page."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import scalefair
from scalefair import FairKernelRidgeCV
from scalefair.auditing.result import listed
from scalefair.errors import InputError
from scalefair.report import (
    as_record,
    between_share,
    cross,
    fit_frontier,
    from_table,
    group_table,
    headline,
)
from scalefair.report.groups import Groups, Interval
from scalefair.report.page import render
from scalefair.report.words import against_limit, as_percent, fixed, number, refit_code
from tests import naive
from tests.errors import refused

HOSTILE = '<script>alert(\'&"x"\')</script>{{ 7 * 7 }} id="y" $\\frac{'


def make_table(n=300, seed=0, levels=("a", "b")):
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    x = rng.normal(size=n)
    y = x + s + rng.normal(size=n)
    return pd.DataFrame(
        {"x": x, "kind": rng.choice(["u", "v"], n), "s": np.take(levels, s), "y": y}
    )


def fit(table, sensitive=("s",), **options):
    problem = from_table(table, target="y", sensitive=sensitive, source="a test")
    estimator = FairKernelRidgeCV(n_components=20, unfairness=0.05, random_state=0, **options)
    return fit_frontier(problem, estimator)


@pytest.fixture(scope="module")
def fitted():
    return fit(make_table())


class Page(HTMLParser):
    """Every tag with its attributes, and all text, as a browser would see them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.text += data


def test_groups_are_the_intersections_that_occur():
    frame = pd.DataFrame({"sex": ["f", "m", "f", "f"], "race": ["x", "x", "y", None]})
    groups = cross(frame)
    assert groups.labels == ["f, x", "m, x", "f, y", "f, race missing"]
    assert groups.counts.tolist() == [1] * 4
    assert groups.cut == []


def test_numbers_are_cut_at_quartiles_only_when_they_are_many():
    many = np.arange(100.0)
    groups = cross(pd.DataFrame({"age": many, "flag": many % 2}))
    assert groups.cut == ["age"]
    assert len(groups.names) == 8
    np.testing.assert_array_equal(groups.counts, [13, 12, 12, 13, 13, 12, 12, 13])
    edges = np.quantile(many, [0.25, 0.5, 0.75])
    for row, label in enumerate(groups.labels):
        assert label.endswith(f"flag {row % 2}")
        assert label.startswith("age up to") == (many[row] <= edges[0])
        assert label.startswith("age above") == (many[row] > edges[2])


def test_a_missing_number_is_a_group():
    assert cross(pd.DataFrame({"age": [1.0, np.nan, 2.0]})).labels == [
        "age 1",
        "age missing",
        "age 2",
    ]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_groups_do_not_depend_on_the_container(make):
    groups = cross(make({"sex": ["f", "m", "f"], "n": [1, 2, 2]}))
    assert groups.labels == ["f, n 1", "m, n 2", "f, n 2"]


def test_group_table_is_the_textbook_interval():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 200)
    y, f, g = rng.normal(size=(3, 200))
    table = group_table(Groups(["p", "q", "r"], codes, []), y, f, g)
    assert table["rows"].is_monotonic_decreasing
    for _, row in table.iterrows():
        rows = codes == "pqr".index(row["group"])
        assert row["rows"] == rows.sum()
        assert row["target"] == pytest.approx(y[rows].mean())
        mean, half = f[rows].mean(), stats.sem(f[rows]) * stats.t.ppf(0.975, rows.sum() - 1)
        assert row["before"] == pytest.approx(mean)
        assert row["before_low"] == pytest.approx(mean - half)
        assert row["after_high"] == pytest.approx(
            g[rows].mean() + stats.sem(g[rows]) * stats.t.ppf(0.975, rows.sum() - 1)
        )


def test_a_group_of_one_row_has_no_interval():
    table = group_table(Groups(["p", "q"], np.array([0, 0, 1]), []), *np.arange(9.0).reshape(3, 3))
    assert table["after_low"].isna().tolist() == [False, True]


def test_between_share_is_without_bias():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 500)
    f = codes * 0.3 + rng.normal(size=500)
    share = between_share(Groups(list("abcd"), codes, []), f)
    unbiased = naive.share_of_groups(f, codes, np.ones(500))
    assert share.value == pytest.approx(unbiased, abs=10 / 500**2)
    assert share.low < share.value < share.high
    shifted = between_share(Groups(list("abcd"), codes, []), 5.0 - 3.0 * f)
    np.testing.assert_allclose(shifted, share)


@pytest.mark.parametrize("gap", [0.0, 0.2, 1.0])
def test_the_interval_of_the_share_covers_the_truth(gap):
    rng = np.random.default_rng(0)
    p = np.array([0.6, 0.3, 0.1])
    effect = gap * np.array([0.0, 1.0, 2.0])
    variance = p @ (effect - p @ effect) ** 2
    truth = variance / (variance + 1)
    hits = []
    for _ in range(400):
        codes = rng.choice(3, 600, p=p)
        share = between_share(Groups(list("abc"), codes, []), effect[codes] + rng.normal(size=600))
        hits.append(share.low <= truth <= share.high)
    assert 0.91 <= np.mean(hits) <= 1.0


@pytest.mark.parametrize("f", [np.zeros(6), np.full(6, 1e9)])
def test_the_share_of_a_constant_is_undefined(f):
    assert np.isnan(between_share(Groups(["a", "b"], np.array([0, 1] * 3), []), f)).all()


def test_a_fifth_is_held_out_whatever_the_container():
    table = make_table()
    problems = [
        from_table(data, target="y", sensitive=["s"], seed=3)
        for data in (table, pl.from_pandas(table), pa.Table.from_pandas(table))
    ]
    for problem in problems:
        assert (problem.train.n_rows, problem.test.n_rows) == (240, 60)
        both = np.concatenate([problem.train.y, problem.test.y])
        np.testing.assert_array_equal(np.sort(both), np.sort(table["y"]))
        np.testing.assert_array_equal(problem.test.y, problems[0].test.y)
    other = from_table(table, target="y", sensitive=["s"], seed=4)
    assert not np.isin(other.test.y, problems[0].test.y).all()


def test_inputs_keep_the_sensitive_columns_and_lose_the_target():
    problem = from_table(make_table(), target="y", sensitive=["s", "s"])
    assert list(problem.train.X) == ["x", "kind", "s"]
    assert problem.sensitive == ["s"]
    row = make_table().index[make_table()["y"] == problem.test.y[0]][0]
    assert problem.test.X.iloc[0]["x"] == make_table()["x"][row]


def test_two_levels_become_0_and_1_in_alphabetical_order():
    table = make_table()
    table["y"] = np.where(table["y"] > 0, "yes", "no")
    problem = from_table(table, target="y", sensitive=["s"])
    assert problem.levels == ("no", "yes")
    assert problem.is_binary
    expected = from_table(
        table.assign(y=(table["y"] == "yes").astype(float)), target="y", sensitive=["s"]
    )
    np.testing.assert_array_equal(problem.test.y, expected.test.y)
    assert expected.levels is None


@pytest.mark.parametrize(
    ("change", "options", "column", "words"),
    [
        ({}, {"target": "z"}, "z", ["target", "'z'"]),
        ({}, {"sensitive": ["ss"]}, "ss", ["sensitive", "'ss'", "'s'"]),
        ({}, {"sensitive": []}, "", ["sensitive"]),
        ({}, {"sensitive": ["y"]}, "", ["sensitive", "'y'"]),
        ({"y": list("abc") * 100}, {}, "y", ["target", "'y'", "3 levels"]),
        ({"y": 1.0}, {}, "y", ["target", "'y'"]),
        ({"y": [np.nan] + [1.0] * 299}, {}, "y", ["target", "'y'", "1 of 300"]),
        ({"y": [np.inf] + [1.0] * 299}, {}, "y", ["target", "'y'", "1 of 300"]),
        ({"y": pd.Timestamp("2020-01-01")}, {}, "y", ["target", "'y'", "datetime"]),
    ],
)
def test_a_bad_problem_is_refused_and_what_is_wrong_is_named(change, options, column, words):
    options = {"target": "y", "sensitive": ["s"], **options}
    with refused(*words, error=InputError) as caught:
        from_table(make_table().assign(**change), **options)
    assert caught.value.column == column


def test_too_few_rows_are_refused():
    with refused("49 rows", 50, error=ValueError):
        from_table(make_table(49), target="y", sensitive=["s"])


def test_before_is_the_best_fit_without_penalty(fitted):
    free = fitted.table.query("eta == 0")
    row = free.loc[free["mse_cv"].idxmin()]
    plain = fitted.estimator.path_.at(alpha=row["alpha"], eta=0.0)
    expected = plain.predict(fitted.problem.test.X)
    np.testing.assert_allclose(fitted.before, expected)
    np.testing.assert_allclose(fitted.after, fitted.estimator.predict(fitted.problem.test.X))
    assert fitted.seconds > 0


def test_the_penalty_lowers_the_share_between_the_groups(fitted):
    before, after = fitted.scores()
    assert before.share.value > 0.2
    assert after.share.value < before.share.value / 2
    assert after.share.low < fitted.limit


def test_cost_is_the_relative_loss_of_r2(fitted):
    before, after = fitted.scores()
    cost = fitted.cost()
    assert cost.value == pytest.approx((before.r2 - after.r2) / before.r2)
    assert cost.low < cost.value < cost.high


def test_the_interval_of_the_cost_is_that_of_the_paired_test(fitted):
    y = fitted.problem.test.y
    loss = (y - fitted.after) ** 2 - (y - fitted.before) ** 2
    low, high = stats.norm.interval(0.95, loss.mean(), stats.sem(loss))
    scale = y.var() * fitted.scores()[0].r2
    assert (fitted.cost().low, fitted.cost().high) == pytest.approx((low / scale, high / scale))


def test_the_headline_carries_the_numbers(fitted):
    words = headline(fitted)
    before, after = fitted.scores()
    assert words.startswith("Limiting the share of the variance of the predictions that s explains")
    for value in (as_percent(0.05), as_percent(before.share.value), as_percent(after.share.value)):
        assert value in words
    for value in (fixed(before.r2, 3), fixed(after.r2, 3), "60 held-out rows"):
        assert value in words


def test_the_headline_tells_apart_what_can_happen(fitted):
    y, n = fitted.problem.test.y, fitted.problem.test.n_rows
    same = replace(fitted, after=fitted.before)
    assert "costs nothing" in headline(same)
    assert "above the limit (95 % interval" in headline(same)
    better = replace(fitted, after=0.9 * fitted.before + 0.1 * y)
    assert "costs no measurable part of R² (95 % interval −" in headline(better)
    useless = replace(fitted, before=-y)
    assert "no better than the mean" in headline(useless)
    constant = replace(fitted, after=np.full(n, y.mean()))
    assert "constant" in headline(constant)
    cut = replace(fitted, groups=replace(fitted.groups, cut=["age"]))
    assert "the share between the groups from" in headline(cut)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (Interval(0.04, 0.0, 0.09), ""),
        (Interval(0.06, 0.01, 0.11), ", above the limit but within its sampling error"),
        (Interval(0.2, 0.1, 0.3), ", above the limit (95 % interval 10 % to 30 %)"),
    ],
)
def test_the_limit_is_judged_with_its_error(share, words):
    assert against_limit(share, 0.05) == words


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.0, "0"), (12345.6, "12,346"), (0.012345, "0.0123"), (-1.5, "−1.50"), (2e-7, "2.00e−07"),
     (np.inf, "∞"), (-np.inf, "−∞"), (np.nan, "–"), (5e12, "5.00e+12")],
)  # fmt: skip
def test_numbers_in_words(x, text):
    assert number(x) == text


def test_percentages_and_lists_in_words():
    assert [as_percent(x) for x in (0.05, 0.1234, 0.0, -0.0001, np.nan)] == [
        "5 %", "12.3 %", "0 %", "0 %", "–",
    ]  # fmt: skip
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a", "a and b", "a, b and c",
    ]  # fmt: skip


def test_the_record_is_json_and_agrees(fitted):
    record = json.loads(json.dumps(as_record(fitted), allow_nan=False))
    assert record["finding"] == headline(fitted)
    assert record["after"]["r2"] == fitted.scores()[1].r2
    assert record["rows"] == {"train": 240, "test": 60}
    assert sum(group["rows"] for group in record["groups"]) == 60
    endless = replace(fitted, groups=Groups(["a", "b"], np.arange(60) // 59, []))
    assert (
        json.loads(json.dumps(as_record(endless), allow_nan=False))["groups"][1]["after_low"]
        is None
    )


def test_the_page_is_whole_and_alone(fitted):
    page = Page(render(fitted))
    assert page.tags.count("svg") == 2
    assert "script" not in page.tags
    assert "link" not in page.tags
    links = [value for _, name, value in page.attributes if name.split(":")[-1] in ("href", "src")]
    assert links
    assert all(link.startswith("#") for link in links)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert headline(fitted) in page.text.replace("\u00a0", " ")
    for words in ("equalised odds", "est = scalefair.FairKernelRidgeCV(", scalefair.__version__):
        assert words in page.text


def test_plots_have_names_and_follow_the_colours_of_the_page(fitted):
    html = render(fitted)
    page = Page(html)
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == 2
    assert all(labels)
    drawn = html[html.index("<svg") : html.rindex("</svg>")]
    assert "#0072b2" not in drawn
    assert "var(--after)" in drawn
    assert "prefers-color-scheme: dark" in html


def test_hostile_names_and_levels_are_text():
    table = make_table(levels=(HOSTILE, "b"))
    table = table.rename(columns={"kind": HOSTILE + "1", "s": HOSTILE + "2"})
    table["y"] = np.where(table["y"] > 0, HOSTILE + "3", HOSTILE)
    html = render(fit(table, sensitive=(HOSTILE + "2",)))
    page = Page(html)
    assert "script" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    # In the headline, tables, plot and code; the braces were not evaluated.
    assert page.text.count(HOSTILE) > 5


def test_the_refit_code_runs(fitted, tmp_path):
    make_table().to_csv(tmp_path / "t.csv", index=False)
    problem = from_table(
        make_table(),
        target="y",
        sensitive=["s"],
        reading=f"scalefair.scan_csv({str(tmp_path / 't.csv')!r})",
    )
    names = {}
    exec(refit_code(replace(fitted, problem=problem)), names)
    assert names["est"].n_samples_seen_ == 300
    assert repr(names["est"]) == repr(fitted.estimator)


def test_warnings_become_notes():
    class Loud(FairKernelRidgeCV):
        def fit(self, *args, **kwargs):
            import warnings

            warnings.warn(f"beware of {HOSTILE}", UserWarning, stacklevel=2)
            return super().fit(*args, **kwargs)

    problem = from_table(make_table(), target="y", sensitive=["s"])
    result = fit_frontier(problem, Loud(n_components=20, unfairness=0.05, random_state=0))
    assert result.notes == (f"beware of {HOSTILE}",)
    assert f"beware of {HOSTILE}" in Page(render(result)).text


def test_many_groups_are_cut_short_and_counted(fitted):
    groups = Groups([f"g{i}" for i in range(30)], np.arange(60) % 30, [])
    page = Page(render(replace(fitted, groups=groups)))
    assert "The 10 smaller groups are not listed" in page.text
