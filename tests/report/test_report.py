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
from scalefair.report import Entry, as_record, fit_frontier, from_table, headline
from scalefair.report.numbers import as_percent, fixed, number
from scalefair.report.page import render
from scalefair.report.words import against_limit, findings, refit_code
from tests.errors import refused

HOSTILE = '<script>alert(\'&"x"\')</script>{{ 7 * 7 }} id="y" $\\frac{'


def make_table(n=300, seed=0, levels=("a", "b")):
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    x = rng.normal(size=n)
    y = x + s + rng.normal(size=n)
    return pd.DataFrame({"x": x, "kind": rng.choice(["u", "v"], n), "s": np.take(levels, s), "y": y})


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
    expected = from_table(table.assign(y=(table["y"] == "yes").astype(float)), target="y", sensitive=["s"])
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
    y = fitted.problem.test.y
    expected = 1 - np.mean((y - plain.predict(fitted.problem.test.X)) ** 2) / y.var()
    assert fitted.before.get("r2").value == pytest.approx(expected)
    assert fitted.baseline.eta_ == fitted.before.eta == 0
    assert fitted.seconds > 0


def test_the_penalty_lowers_the_share(fitted):
    before, after = (p.get("explained_share", "s") for p in (fitted.before, fitted.after))
    assert before.value > 0.2
    assert after.value < before.value / 2
    assert after.low < fitted.limit


def test_cost_is_the_relative_loss_of_r2_with_the_interval_of_the_paired_test(fitted):
    X, y = fitted.problem.test.X, fitted.problem.test.y
    cost = fitted.after.get("cost_of_r2")
    before, after = (p.get("r2").value for p in (fitted.before, fitted.after))
    assert cost.value == pytest.approx((before - after) / before)
    loss = (y - fitted.estimator.predict(X)) ** 2 - (y - fitted.baseline.predict(X)) ** 2
    ends = np.array(stats.norm.interval(0.95, loss.mean(), stats.sem(loss)))
    assert cost[4:6] == pytest.approx(ends / (y.var() * before))


def test_the_headline_carries_the_numbers(fitted):
    words = headline(fitted)
    before, after = fitted.before, fitted.after
    assert words.startswith("Limiting the share of the variance of the predictions that s explains")
    shares = (p.get("explained_share", "s").value for p in (before, after))
    for value in (as_percent(0.05), *map(as_percent, shares)):
        assert value in words
    for value in (*(fixed(p.get("r2").value, 3) for p in (before, after)), "60 held-out rows"):
        assert value in words
    assert "The model sees s when it predicts." in words


def changed(position, **values):
    """A position with other numbers for some measures."""
    entries = (
        e._replace(value=values[e.measure]) if e.measure in values and not e.group else e for e in position.entries
    )
    return replace(position, entries=tuple(entries))


def test_the_headline_tells_apart_what_can_happen(fitted):
    last = len(fitted.positions) - 1
    met = headline(replace(fitted, chosen=last))
    assert met.startswith("Already met")
    assert "above the limit (95 % interval" in met

    def with_chosen(position):
        positions = list(fitted.positions)
        positions[fitted.chosen] = position
        return headline(replace(fitted, positions=tuple(positions)))

    cost = fitted.after.get("cost_of_r2")
    free = replace(fitted.after, entries=(*fitted.after.entries, cost._replace(low=-0.1)))
    assert "costs no measurable part of R² (95 % interval −" in with_chosen(free)
    assert "no better than the mean" in with_chosen(changed(fitted.after, cost_of_r2=np.nan))
    constant = replace(fitted.after, reason="the predictions are constant")
    assert "constant" in with_chosen(constant)
    dull = {"mutual_information": fitted.before.get("mutual_information", "s").value + 0.2}
    worse = with_chosen(changed(fitted.after, **dull))
    assert "Worse than without a limit: mutual information (s)" in worse
    assert "Worse" not in with_chosen(changed(fitted.after, mutual_information=0.0))


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ((0.04, 0.0, 0.09), ""),
        ((0.06, 0.01, 0.11), ", above the limit but within its sampling error"),
        ((0.2, 0.1, 0.3), ", above the limit (95 % interval 10 % to 30 %)"),
    ],
)
def test_the_limit_is_judged_with_its_error(share, words):
    assert against_limit(Entry("s", "", "explained_share", *share), 0.05) == words


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0"),
        (12345.6, "12,346"),
        (0.012345, "0.0123"),
        (-1.5, "−1.50"),
        (2e-7, "2.00e−07"),
        (np.inf, "∞"),
        (-np.inf, "−∞"),
        (np.nan, "–"),
        (5e12, "5.00e+12"),
    ],
)
def test_numbers_in_words(x, text):
    assert number(x) == text


def test_percentages_and_lists_in_words():
    assert [as_percent(x) for x in (0.05, 0.1234, 0.0, -0.0001, np.nan)] == ["5 %", "12.3 %", "0 %", "0 %", "–"]
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_the_record_is_json_and_agrees(fitted):
    record = json.loads(json.dumps(as_record(fitted), allow_nan=False))
    assert record["finding"] == headline(fitted)
    assert record["after"]["r2"] == fitted.after.get("r2").value
    assert record["after"]["share"]["value"] == fitted.after.get("explained_share", "s").value
    assert record["rows"] == {"train": 240, "test": 60}


def test_the_page_is_whole_and_alone(fitted):
    page = Page(render(fitted))
    assert page.tags.count("script") == 1
    assert "link" not in page.tags
    links = {v for _, name, v in page.attributes if name.split(":")[-1] in ("href", "src")}
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    beside = {"report.csv", "report.json", "frontier.csv"}
    assert links - {f"#{name}" for name in ids} == beside
    text = page.text.replace("\u00a0", " ")
    assert all(sentence in text for sentence in findings(fitted))
    for words in ("equalised odds", "est = scalefair.FairKernelRidgeCV(", scalefair.__version__):
        assert words in page.text


def test_plots_have_names_and_follow_the_colours_of_the_page(fitted):
    html = render(fitted)
    page = Page(html)
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) > 2
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
    assert page.tags.count("script") == 1
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    # In the headline, tables, plot and code; the braces were not evaluated.
    assert page.text.count(HOSTILE) > 5


def test_the_refit_code_runs(fitted, tmp_path):
    make_table().to_csv(tmp_path / "t.csv", index=False)
    problem = from_table(
        make_table(), target="y", sensitive=["s"], reading=f"scalefair.scan_csv({str(tmp_path / 't.csv')!r})"
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


def test_many_groups_are_cut_short_and_counted():
    table = make_table(1500).assign(s=[f"g{i % 30:02}" for i in range(1500)])
    page = Page(render(fit(table)))
    assert "The 10 smaller groups are in the csv" in page.text
    assert "too small to judge" in page.text
