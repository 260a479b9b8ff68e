"""Every number of the page: that of the audit, of the csv and of the JSON twin, at every limit."""

import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalefair
from scalefair import FairKernelClassifierCV, FairKernelRidge, FairKernelRidgeCV
from scalefair.report import (
    calibration,
    distributions,
    fit_frontier,
    from_table,
    impact_ratios,
    make_report,
    with_model,
    write_audit,
)
from scalefair.report.frontier import candidates
from scalefair.report.judge import QUANTILES, Judge
from scalefair.report.numbers import fixed, number
from scalefair.report.page import render
from scalefair.report.rates import N_BARS
from scalefair.report.relatives import scores
from scalefair.report.tables import write_interval, write_number
from tests.fuzz import cases

pytestmark = pytest.mark.filterwarnings("ignore:.*too small to judge")

SMALL = {"n_components": 20, "random_state": 0}


def people(n=900, seed=0):
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    x, age = rng.normal(size=n), rng.integers(20, 60, n).astype(float)
    y = x + 1.5 * (sex == "m") + 0.5 * (race == "a") + 0.5 * rng.normal(size=n)
    X = pd.DataFrame({"x": x, "grade": (sex == "m") + 0.5 * rng.normal(size=n)})
    return X, y, pd.DataFrame({"sex": sex, "race": race, "age": age})


@pytest.fixture(scope="module", params=["classes", "numbers"])
def made(request, tmp_path_factory):
    """A report in a folder, and the predictions of every position of its slider."""
    X, y, S = people()
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "classes":
        model, S = FairKernelClassifierCV(unfairness=0.05, **SMALL), S[["sex", "race"]]
        y = np.where(y > 1, "yes", "no")
    else:
        model, S = FairKernelRidgeCV(unfairness=0.05, **SMALL), S[["sex", "age"]]
    other = np.random.default_rng(1).random(len(X))
    found = make_report(model, X, y, sensitive_features=S, out=folder, others={"theirs": other}, owner="me")
    models, chosen = candidates(found.estimator, found.problem.train, lambda _: None)
    assert chosen == found.chosen
    assert [one.name for one in models] == [one.name for one in found.positions]
    return folder, found, [one.model for one in models]


def predictions(model, X):
    return model.predict_proba(X)[:, 1] if hasattr(model, "classes_") else model.predict(X)


def audited(found, f, measures=("explained_share",)):
    judge = found.judge
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return scalefair.audit(
            f, sensitive_features=found.problem.test.sensitive, y_true=found.problem.test.y,
            threshold=judge.threshold, bins=judge.bins, measures=list(measures),
            quantiles=QUANTILES,
        )  # fmt: skip


def test_positions_are_those_of_the_audit(made):
    _, found, models = made
    assert len(models) > 3
    X = found.problem.test.X
    for position, model in zip(found.positions, models, strict=True):
        result = audited(found, predictions(model, X))
        for _, row in result.table.iterrows():
            entry = position.get(row["measure"], row["attribute"])
            np.testing.assert_array_equal(entry[3:6], row[["value", "low", "high"]].astype(float))
        for _, row in result.groups.iterrows():
            entry = position.get(row["metric"], row["attribute"], row["group"])
            np.testing.assert_array_equal(entry[3:6], row[["value", "low", "high"]].astype(float))
            assert (entry.rows, entry.small) == (row["count"], row["small"])
        score = scores(model, X)
        if score is not None:
            share = scalefair.audit(
                score, sensitive_features=found.problem.test.sensitive, measures=["explained_share"]
            ).compare("explained_share")
            for attribute, value in share.iloc[:, 0].items():
                assert position.get("score_explained_share", attribute).value == value


class Blocks(HTMLParser):
    """The cells of each position of a page, from all its chapters."""

    def __init__(self, page):
        super().__init__()
        self.cells, self._at, self._depth, self._open = {}, None, 0, False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        position = dict(attrs).get("data-position")
        if position is not None:
            self._at, self._depth, self._kind = int(position), 0, tag
            self.cells.setdefault(self._at, [])
        self._depth += self._at is not None and tag == self._kind
        self._open = self._at is not None and tag in ("td", "th", "small")
        if self._open:
            self.cells[self._at].append("")

    def handle_endtag(self, tag):
        self._depth -= self._at is not None and tag == self._kind
        if not self._depth:
            self._at = None
        self._open = False

    def handle_data(self, data):
        if self._open:
            self.cells[self._at][-1] += data.replace("\u00a0", " ")


def test_page_csv_and_json_have_the_same_numbers_at_every_position(made):
    folder, found, _ = made
    table = pd.read_csv(folder / "report.csv", keep_default_na=False, na_values=[""])
    twin = json.loads((folder / "report.json").read_text("utf-8"))
    models = [*found.positions, *found.others]
    records = [record for one in models for record in one.records()]
    assert len(table) == len(twin["positions"]) == len(records)
    for row, record, own in zip(table.itertuples(), twin["positions"], records, strict=True):
        key = (own["model"], own["measure"])
        assert (row.model, row.measure) == (record["model"], record["measure"]) == key
        numbers = [own[name] for name in ("value", "low", "high")]
        np.testing.assert_allclose([row.value, row.low, row.high], numbers, rtol=1e-14)
        twins = [record[name] for name in ("value", "low", "high")]
        np.testing.assert_array_equal(np.array(twins, dtype=float), numbers)
    blocks = Blocks((folder / "report.html").read_text("utf-8")).cells
    assert sorted(blocks) == list(range(len(found.positions)))
    for i, position in enumerate(found.positions):
        assert_page_has(position, blocks[i])


def assert_page_has(position, cells):
    """Every number of a position is written in its blocks of the page, with its interval."""
    of_groups = ("mean_target", "mean_prediction", "mean_change", "selection_rate", "rising",
                 "falling", "true_positive_rate", "false_positive_rate")  # fmt: skip
    shown = [position.get(m) for m in ("r2", "root_mean_squared_error", "accuracy", "auc")]
    for attribute in position.attributes:
        shown += [position.get(m, attribute) for m in ("explained_share", "score_explained_share")]
        shown += [position.get(m, *g[:2]) for g in position.groups(attribute) for m in of_groups]
    for measure in ("mutual_information", "selection_rate_difference", "selection_rate_ratio"):
        shown.append(position.get(measure, position.together))
    shown += [e for e in position.contributions if abs(e.value) >= 0.0005]
    assert position.contributions
    assert len(shown) > 20
    for entry in shown:
        if not np.isnan(entry.value):
            assert write_number(entry.measure, entry.value) in cells, entry
            assert np.isnan(entry.low) or write_interval(entry) in cells, entry
    assert position.calibration
    for line in position.calibration:
        assert f"{number(line.predicted)} → {number(line.observed)}" in cells
    assert len(position.impacts) == (2 if position.has("selection_rate") else 1)
    for line in (line for lines in position.impacts.values() for line in lines):
        assert {write_number("selection_rate", line.rate), f"{line.selected:,}"} <= {*cells}
        assert fixed(line.impact_ratio, 2) in cells


def test_distributions_are_counts_of_the_rows(made):
    folder, found, models = made
    S, X = found.problem.test.sensitive, found.problem.test.X
    twin = json.loads((folder / "report.json").read_text("utf-8"))["distributions"]
    judge = found.judge
    edges = np.linspace(judge.low, judge.high, N_BARS + 1)
    assert (judge.low, judge.high) == (0, 1) or judge.high > judge.low
    for position, model in zip(found.positions, models, strict=True):
        f = np.clip(predictions(model, X), judge.low, judge.high)
        for level in ("f", "m"):
            own = f[(S["sex"] == level).to_numpy()]
            group = next(g for g in position.groups("sex") if g.group == level)
            shares = position.distribution(group).shares
            # Bars are open on the left, those of numpy on the right.
            np.testing.assert_allclose(shares, np.histogram(-own, -edges[::-1])[0][::-1] / len(own))
            key = (position.name, "sex", level)
            (other,) = [x for x in twin if (x["model"], x["attribute"], x["group"]) == key]
            assert tuple(other["shares"]) == shares
        together = [d for d in position.distributions if d.attribute == position.together]
        assert {d.group for d in together} == {g.group for g in position.groups(position.together)}
        np.testing.assert_allclose([sum(d.shares) for d in position.distributions], 1.0)


def test_who_gains_and_who_loses_is_counted(made):
    _, found, models = made
    X, S, cut = found.problem.test.X, found.problem.test.sensitive, found.judge.threshold
    base = predictions(models[-1], X)
    for position, model in zip(found.positions, models, strict=True):
        f = predictions(model, X)
        if cut is None:
            up, down = f - base > 0.1 * base.std(), base - f > 0.1 * base.std()
        else:
            up, down = (f >= cut) & (base < cut), (f < cut) & (base >= cut)
            assert position.get("changed_decisions").value == (up | down).sum()
            y = found.problem.test.y
            fewer = ((base >= cut) == y).sum() - ((f >= cut) == y).sum()
            assert position.get("fewer_right_decisions").value == fewer
        assert (position.get("rising").value, position.get("falling").value) == (
            up.sum(), down.sum(),
        )  # fmt: skip
        for level in ("f", "m"):
            rows = (S["sex"] == level).to_numpy()
            assert position.get("rising", "sex", level).value == pytest.approx(up[rows].mean())
            change = position.get("mean_change", "sex", level)
            assert change.value == pytest.approx((f - base)[rows].mean(), abs=1e-12)


def test_positions_go_from_the_strictest_limit_to_none(made):
    _, found, _ = made
    *limits, last = [one.limit for one in found.positions]
    assert limits == sorted(limits)
    assert last is None
    assert found.positions[found.chosen].limit == 0.05
    assert [one.name for one in found.others] == ["theirs"]
    assert found.others[0].get("explained_share", "sex").value < 0.1


def test_a_limit_that_never_bound_is_already_met(tmp_path):
    X, y, S = people()
    found = make_report(
        FairKernelRidgeCV(unfairness=0.9, etas=[0.0], **SMALL), X, y, sensitive_features=S[["sex"]],
        out=tmp_path,
    )  # fmt: skip
    assert found.chosen == len(found.positions) - 1
    assert found.after.limit == 0.9
    assert "Already met" in (tmp_path / "report.html").read_text("utf-8")


def test_calibration_is_that_of_the_rows(made):
    _, found, models = made
    y, sex = found.problem.test.y, found.problem.test.sensitive["sex"].to_numpy()
    for position, model in zip(found.positions, models, strict=True):
        f = predictions(model, found.problem.test.X)
        assert_calibrated([x for x in position.calibration if x.attribute == "sex"], f, y, sex)


def assert_calibrated(lines, f, y, sex):
    assert sum(line.rows for line in lines) == len(y)
    for line in lines:
        edges = [float(x) for x in re.findall(r"[-\d.]+", line.range)]
        low = edges[0] if "up" not in line.range else -np.inf
        high = edges[-1] if "above" not in line.range else np.inf
        near = 1e-5 if set(y) - {0.0, 1.0} else 0.0  # quartiles are written with six digits
        rows = (sex == line.group) & (f > low - near) & (f <= high + near)
        assert line.rows == rows.sum()
        assert (line.predicted, line.observed) == pytest.approx((f[rows].mean(), y[rows].mean()))
        if line.rows > 1:
            assert line.low <= line.observed <= line.high


def test_rows_alone_in_their_level_are_left_out_and_counted():
    X, y, S = people(300)
    tested = from_table(X.assign(y=y, race=S["race"]), target="y", sensitive=["race"]).tested
    race = np.where(np.arange(300) == tested[3], "alone", S["race"])
    problem = from_table(X.assign(y=y, race=race), target="y", sensitive=["race"])
    judge = Judge.of(problem.test.sensitive, problem.test.y, None)
    assert len(judge.y) == problem.test.n_rows - 1
    assert "alone" not in [*judge.sensitive["race"]]


TEXT = st.text(st.sampled_from(list("<>&\"'{}%$#;/\\=` \u00e9\u202e\nabcscriptonimgsvg")), min_size=1, max_size=30)
KNOWN = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "div", "ul",
    "li", "nav", "a", "label", "output", "input", "span", "figure", "figcaption", "section",
    "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "strong", "code", "pre", "dl",
    "dt", "dd", "footer", "script", "svg", "g", "path", "defs", "use", "text", "clippath", "rect",
    "metadata", "rdf:rdf", "cc:work", "dc:type", "dc:date", "dc:format", "dc:creator", "cc:agent",
    "dc:title", "tspan",
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.names = [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}


@cases(3)
@given(names=st.lists(TEXT, min_size=6, max_size=6, unique_by=str.strip))
def test_names_and_levels_never_become_html(names):
    first, second, target, column, hostile, owner = (f"{i}{x}" for i, x in enumerate(names))
    X, y, S = people(200)
    table = X.rename(columns={"x": column}).assign(**{
        hostile: np.where(S["sex"] == "f", first, second), target: y,
    })  # fmt: skip
    problem = from_table(table, target=target, sensitive=[hostile], source=owner)
    model = FairKernelRidge(unfairness=0.05, sensitive_columns=[hostile], **SMALL)
    found = with_model(fit_frontier(problem, model), owner, problem.test.y + 0.1)
    pages = [render(found, None, {"Owner": owner, hostile: owner})]
    result = audited(found, problem.test.y)
    for page in pages:
        seen = Tags(page)
        assert set(seen.tags) <= KNOWN
        assert seen.tags.count("script") == 1
        assert not [name for name in seen.names if name.startswith("on")]
    assert result.n_rows == 40


def test_an_audit_page_has_the_numbers_of_the_audit(tmp_path):
    _, y, S = people()
    f = {"ours": 1 / (1 + np.exp(-y)), "the<ir>s": np.random.default_rng(0).random(len(y))}
    truth = (y > 1).astype(float)
    result = scalefair.audit(f, sensitive_features=S[["sex", "race"]], y_true=truth, threshold=0.5)
    pair = S[["sex"]].assign(p=f["ours"])
    ratios = impact_ratios(f["ours"], sensitive_features=S[["sex"]])
    ours = {
        "calibration": calibration(f["ours"], truth, {"sex": pair}, {"p": [0.5]}),
        "distributions": distributions(f["ours"], pair, {}, 0.0, 1.0),
        "impacts": {"Scoring rate": ratios},
    }
    page = write_audit(
        result, tmp_path / "a.html", sensitive=["sex", "race"], provenance={"Owner": "<b>"},
        tables_of={"ours": ours},
    )  # fmt: skip
    text = page.read_text("utf-8")
    assert "<b>" not in text
    assert "<ir>" not in text
    assert "<script" not in text
    table = pd.read_csv(tmp_path / "a.csv", keep_default_na=False, na_values=[""])
    assert {*table["model"]} == {*f}
    both = table.merge(
        result.table, left_on=["model", "attribute", "measure"],
        right_on=["model", "attribute", "measure"], suffixes=("", "_audit"),
    )  # fmt: skip
    both = both[both["group"].isna()]
    assert len(both) == len(result.table)
    np.testing.assert_allclose(both["value"], both["value_audit"], rtol=1e-14)
    twin = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert twin["provenance"]["Owner"] == "<b>"
    assert len(twin["table"]) == len(result.table)
    assert [x["group"] for x in twin["distributions"]] == ["f", "m"]
    assert text.count('class="bars"') == 2
    assert twin["impact_ratios"][0]["applicants"] == int((S["sex"] == "f").sum())
