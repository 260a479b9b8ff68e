"""Every number of the page: that of the audit, of the csv and of the JSON twin, at every limit."""

import json
import re
import tracemalloc
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
    fit_frontier,
    from_scan,
    from_table,
    impact_ratios,
    make_report,
    with_model,
    write_audit,
)
from scalefair.report.frontier import candidates
from scalefair.report.page import render
from scalefair.report.position import QUANTILES, Judge
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
    found = make_report(
        model, X, y, sensitive_features=S, out=folder, others={"theirs": other}, owner="me"
    )
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


class Sections(HTMLParser):
    """The cells of each position of a page."""

    def __init__(self, page):
        super().__init__()
        self.cells, self._at, self._open, self._depth = [], None, False, 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "section" and dict(attrs).get("class") == "position":
            self.cells.append([])
            self._at = len(self.cells) - 1
        self._open = self._at is not None and tag in ("td", "th", "small")
        if self._open:
            self.cells[self._at].append("")

    def handle_endtag(self, tag):
        if tag == "section":
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
    entries = [(one.name, e) for one in models for e in one.entries]
    assert len(table) == len(twin["positions"]) == len(entries)
    for (name, entry), row, record in zip(
        entries, table.itertuples(), twin["positions"], strict=True
    ):
        assert (row.model, record["model"], record["measure"]) == (name, name, entry.measure)
        np.testing.assert_allclose([row.value, row.low, row.high], entry[3:6], rtol=1e-14)
        twins = [record[key] for key in ("value", "low", "high")]
        np.testing.assert_array_equal(np.array(twins, dtype=float), entry[3:6])
    sections = Sections((folder / "report.html").read_text("utf-8")).cells
    assert len(sections) == len(found.positions)
    for position, cells in zip(found.positions, sections, strict=True):
        for attribute in position.attributes:
            for group in position.groups(attribute):
                for measure in ("mean_target", "mean_prediction", "selection_rate", "rising"):
                    entry = position.get(measure, *group[:2])
                    if np.isnan(entry.value):
                        continue
                    assert write_number(measure, entry.value) in cells
                    if not np.isnan(entry.low):
                        assert write_interval(entry) in cells
            share = position.get("explained_share", attribute)
            assert {write_number("explained_share", share.value), write_interval(share)} <= {*cells}


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
    _, found, _ = made
    f, y = predictions(found.estimator, found.problem.test.X), found.problem.test.y
    sex = found.problem.test.sensitive["sex"].to_numpy()
    lines = [line for line in found.calibration if line.attribute == "sex"]
    assert sum(line.rows for line in lines) == len(y)
    for line in lines:
        edges = [float(x) for x in re.findall(r"[-\d.]+", line.range)]
        low = edges[0] if "up" not in line.range else -np.inf
        high = edges[-1] if "above" not in line.range else np.inf
        rows = (sex == line.group) & (f > low - 1e-5) & (f <= high + 1e-5)
        assert line.rows == rows.sum()
        assert (line.predicted, line.observed) == pytest.approx((f[rows].mean(), y[rows].mean()))
        if line.rows > 1:
            assert line.low <= line.observed <= line.high


def test_impact_ratios_of_local_law_144_by_hand():
    """40 applicants: of 20 women 5 are selected, of 20 men 10; 8, 6 and 1 by race.

    Selection rates 0.25 and 0.5, so that women have the ratio 0.5. By race 8/16, 6/16 and 1/8:
    ratios 1, 0.75 and 0.25. Intersections: 2/8, 3/8 and 0/4 of the women, 6/8, 3/8 and 1/4 of the
    men: the highest is 0.75.
    """
    cells = {
        ("f", "a"): (8, 2), ("f", "b"): (8, 3), ("f", "c"): (4, 0),
        ("m", "a"): (8, 6), ("m", "b"): (8, 3), ("m", "c"): (4, 1),
    }  # fmt: skip
    rows = [(*levels, int(i < chosen)) for levels, (n, chosen) in cells.items() for i in range(n)]
    table = pd.DataFrame(rows, columns=["sex", "race", "hired"])
    S = table[["sex", "race"]]
    lines = impact_ratios(table["hired"], sensitive_features=S)
    found = {(x.attribute, x.category): x[2:] for x in lines}
    assert found == {
        ("sex", "f"): (20, 5, 0.25, 0.5),
        ("sex", "m"): (20, 10, 0.5, 1.0),
        ("race", "a"): (16, 8, 0.5, 1.0),
        ("race", "b"): (16, 6, 0.375, 0.75),
        ("race", "c"): (8, 1, 0.125, 0.25),
        ("sex × race", "f, a"): (8, 2, 0.25, pytest.approx(1 / 3)),
        ("sex × race", "f, b"): (8, 3, 0.375, 0.5),
        ("sex × race", "f, c"): (4, 0, 0.0, 0.0),
        ("sex × race", "m, a"): (8, 6, 0.75, 1.0),
        ("sex × race", "m, b"): (8, 3, 0.375, 0.5),
        ("sex × race", "m, c"): (4, 1, 0.25, pytest.approx(1 / 3)),
    }
    # Scores: those above the median of all are counted, and the median itself is not.
    score = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9])  # the median is 5
    sex = np.array(list("ffffffmmm"))
    lines = impact_ratios(score, sensitive_features={"sex": sex})
    assert [x[1:4] for x in lines] == [("f", 6, 1), ("m", 3, 3)]
    assert [x.impact_ratio for x in lines] == pytest.approx([1 / 6, 1.0])
    # A row whose category is unknown is not counted.
    unknown = np.where(np.arange(9) == 0, None, sex)
    lines = impact_ratios(score, sensitive_features={"sex": unknown})
    assert sum(x.applicants for x in lines) == 8


def test_rows_alone_in_their_level_are_left_out_and_counted():
    X, y, S = people(300)
    tested = from_table(X.assign(y=y, race=S["race"]), target="y", sensitive=["race"]).tested
    race = np.where(np.arange(300) == tested[3], "alone", S["race"])
    problem = from_table(X.assign(y=y, race=race), target="y", sensitive=["race"])
    judge = Judge.of(problem.test.sensitive, problem.test.y, None)
    assert len(judge.y) == problem.test.n_rows - 1
    assert "alone" not in [*judge.sensitive["race"]]


TEXT = st.text(
    st.sampled_from(list("<>&\"'{}%$#;/\\=` \u00e9\u202e\nabcscriptonimgsvg")),
    min_size=1,
    max_size=30,
)
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


@cases(6)
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
    pairs = {"sex": S[["sex"]].assign(p=f["ours"])}
    lines = calibration(f["ours"], truth, pairs, {"p": [0.5]})
    impacts = [("ours", "Scoring rate", impact_ratios(f["ours"], sensitive_features=S[["sex"]]))]
    page = write_audit(
        result, tmp_path / "a.html", sensitive=["sex", "race"], provenance={"Owner": "<b>"},
        calibrations={"ours": lines}, impacts=impacts,
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
    assert twin["impact_ratios"][0]["applicants"] == int((S["sex"] == "f").sum())


def test_a_streamed_report_needs_no_more_memory_than_the_fit(tmp_path, monkeypatch):
    """Held-out rows are bounded, so that only a byte or two a row of all grows."""
    monkeypatch.setattr("scalefair.report.problem.MAX_HELD_OUT", 300)
    peaks = {}
    model = FairKernelRidgeCV(unfairness=0.05, sensitive_columns=["sex"], cv=2, **SMALL)
    with scalefair.config_context(chunk_rows=1000):
        for n in (4_000, 16_000):
            X, y, S = people(n)
            X.assign(sex=S["sex"], y=y).to_parquet(tmp_path / f"{n}.parquet", row_group_size=1000)
            scan = scalefair.scan_parquet(tmp_path / f"{n}.parquet")
            del X, y, S
            inputs = scan[["x", "grade", "sex"]]
            for name, work in (
                ("fit", lambda inputs=inputs, scan=scan: model.fit(inputs, scan["y"])),
                ("report", lambda scan=scan: fit_frontier(
                    from_scan(scan, target="y", sensitive=["sex"]), model)),
            ):  # fmt: skip
                work()  # imports and caches
                tracemalloc.start()
                work()
                peaks[name, n] = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
    growth = {name: peaks[name, 16_000] - peaks[name, 4_000] for name in ("fit", "report")}
    assert growth["report"] <= max(growth["fit"], 0) + 20 * 12_000, peaks
    assert peaks["report", 16_000] < 16_000 * 4 * 8 + 2 * peaks["fit", 4_000], peaks
