"""The audit: numbers that others report too, words, and what it refuses."""

import json
import warnings

import dask.dataframe as dd
import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest

import scalefair
from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge, audit
from scalefair.auditing.dependence import MEASURE_NAMES
from scalefair.measures import (
    conditional_hsic_test,
    distance_correlation,
    explained_share,
    group_gaps,
    hsic,
    hsic_test,
    mutual_information,
    nocco,
    normalized_hsic,
)
from tests.errors import refused
from tests.groups import people

S = ["sex", "race"]
QUICK = ["explained_share", "explained_share_in_sample"]


@pytest.fixture(scope="module")
def frame():
    return people(500)


@pytest.fixture(scope="module")
def result(frame):
    models = {"fitted": frame["score"], "noise": np.random.default_rng(9).normal(size=500)}
    return audit(models, sensitive_features=frame[[*S, "age"]], y_true=frame["truth"], threshold=0.3)


def value(result, model, attribute, measure):
    table = result.table
    chosen = (table["model"] == model) & (table["attribute"] == attribute)
    (found,) = table[chosen & (table["measure"] == measure)]["value"]
    return found


@pytest.mark.parametrize("columns", [["sex"], ["age"], [*S, "age"]])
def test_each_measure_is_the_function_of_its_name(frame, result, columns):
    f, s = frame["score"], frame[columns]
    expected = {
        "explained_share": explained_share(f, s),
        "explained_share_in_sample": explained_share(f, s, cv=None),
        "normalized_hsic": normalized_hsic(f, s),
        "hsic": hsic(f, s),
        "nocco": nocco(f, s),
        "distance_correlation": distance_correlation(f, s),
        "mutual_information": mutual_information(f, s),
        "hsic_pvalue": hsic_test(f, s).pvalue,
    }
    given = frame["truth"].map({0: "negative", 1: "positive"})
    expected["conditional_hsic_pvalue"] = conditional_hsic_test(f, s, given).pvalue
    assert set(expected) == set(MEASURE_NAMES)
    for measure, number in expected.items():
        found = value(result, "fitted", " × ".join(columns), measure)
        assert found == pytest.approx(number, rel=1e-9, abs=1e-12), measure


def test_shares_have_intervals_in_numbers_and_words(frame, result):
    rows = result.table[result.table["measure"] == "explained_share"]
    assert (rows["low"] <= rows["value"]).all()
    assert (rows["value"] < rows["high"]).all()
    assert rows["words"].str.contains("95 % interval").all()
    (noise,) = rows[(rows["model"] == "noise") & (rows["attribute"] == "sex")].to_dict("records")
    assert noise["low"] == 0
    assert "variance of the predictions (95 % interval 0.0 % to" in noise["words"]
    narrow = audit(frame["score"], sensitive_features=frame["sex"], measures=QUICK, confidence=0.5).table
    wide = audit(frame["score"], sensitive_features=frame["sex"], measures=QUICK, confidence=0.99).table
    widths = [float((t["high"] - t["low"]).iloc[0]) for t in (narrow, wide)]
    assert widths[1] / widths[0] == pytest.approx(2.5758 / 0.6745, rel=0.05)


@pytest.mark.filterwarnings("ignore:.*too small to judge")
@pytest.mark.parametrize("intersections", [True, False])
@pytest.mark.parametrize(("levels", "n", "why"), [(60, 1500, "at most 1,000"), (50, 1000, "alone")])
def test_attributes_too_fine_to_cross_are_judged_alone(levels, n, why, intersections):
    some = np.random.default_rng(0)
    codes = some.permuted(np.tile(np.arange(n) % levels, (2, 1)), axis=1)
    s = {"left": [f"l{i}" for i in codes[0]], "right": [f"r{i}" for i in codes[1]]}
    score = codes.sum(axis=0) + some.normal(size=n)
    with pytest.warns(UserWarning, match="left × right") as caught:
        found = audit(score, sensitive_features=s, measures=QUICK, intersections=intersections)
    (note,) = [str(w.message) for w in caught if str(w.message).startswith("left × right are")]
    assert why in note
    assert set(found.models["y_pred"].dependence) == {"left", "right"}
    assert value(found, "y_pred", "left", "explained_share") == pytest.approx(0.5, abs=0.1)


def test_share_of_categories_is_the_variance_between_groups(frame):
    found = audit(frame["score"], sensitive_features=frame[S], measures=QUICK)
    by = frame.groupby(S)["score"].agg(["mean", "size"])
    between = np.average((by["mean"] - frame["score"].mean()) ** 2, weights=by["size"])
    share = value(found, "score", "sex × race", "explained_share_in_sample")
    assert share == pytest.approx(between / frame["score"].var(ddof=0), rel=1e-4)


@pytest.mark.parametrize("columns", [S, ["age"], [*S, "age"]])
@pytest.mark.parametrize("eta", [0.0, 3.0])
def test_the_audit_of_a_model_is_what_its_own_path_reports(frame, columns, eta):
    X = frame[["score", "age", "target"]].to_numpy()
    y, s, w = frame["target"], frame[columns], frame["weight"] + 1.0
    model = FairKernelRidge(n_components=60, eta=eta, random_state=0)
    model.fit(X, y, sensitive_features=s, sample_weight=w)
    found = audit({"fair": model.predict(X)}, sensitive_features=s, sample_weight=w, measures=QUICK, random_state=0)
    share = value(found, "fair", " × ".join(columns), "explained_share_in_sample")
    assert share == pytest.approx(model.explained_share_, rel=1e-6)
    (point,) = model.path(etas=[eta]).table["explained_share"]
    assert share == pytest.approx(point, rel=1e-6)


def test_the_audit_of_a_limit_keeps_it(frame):
    X, s = frame[["score", "age"]].to_numpy(), frame["sex"]
    model = FairRidge(unfairness=0.05, random_state=0)
    model.fit(X, frame["target"], sensitive_features=s)
    found = audit(model.predict(X), sensitive_features=s, measures=QUICK)
    share = value(found, "y_pred", "sex", "explained_share_in_sample")
    assert share == pytest.approx(0.05, abs=1e-6)
    cv = FairKernelRidgeCV(n_components=30, alphas=[1e-3], etas=[0, 10], cv=3, random_state=0)
    cv.fit(X, frame["target"], sensitive_features=s)
    found = audit(cv.predict(X), sensitive_features=s, measures=QUICK)
    share = value(found, "y_pred", "sex", "explained_share_in_sample")
    assert share == pytest.approx(cv.explained_share_, rel=1e-6)


def test_gaps_are_those_of_group_gaps_and_of_fairlearn(frame):
    y, p = frame["truth"], frame["label"]
    found = audit(p, sensitive_features=frame[S], y_true=y, measures=["explained_share"])
    alone = group_gaps(p, sensitive_features=frame[S], y_true=y)
    pd.testing.assert_frame_equal(found.gaps.drop(columns="model"), alone.gaps)
    pd.testing.assert_frame_equal(found.groups.drop(columns="model"), alone.table)
    for attribute, s in (("sex", frame["sex"]), ("sex × race", frame[S])):
        odds = fl.equalized_odds_difference(y, p, sensitive_features=s)
        assert value(found, "label", attribute, "equalized_odds_difference") == pytest.approx(odds)
        odds = fl.equalized_odds_ratio(y, p, sensitive_features=s)
        assert value(found, "label", attribute, "equalized_odds_ratio") == pytest.approx(odds)
        parity = fl.demographic_parity_difference(y, p, sensitive_features=s)
        assert value(found, "label", attribute, "selection_rate_difference") == pytest.approx(parity)


def test_order_of_rows_and_of_models_changes_nothing(frame):
    shuffled = frame.sample(frac=1, random_state=2)
    names = ["explained_share_in_sample", "normalized_hsic", "hsic", "distance_correlation"]
    first = audit({"a": frame["score"], "b": frame["target"]}, sensitive_features=frame[S], measures=names)
    second = audit({"b": shuffled["target"], "a": shuffled["score"]}, sensitive_features=shuffled[S], measures=names)
    pd.testing.assert_frame_equal(first.compare(), second.compare()[["a", "b"]], rtol=1e-8, atol=1e-10)


def test_few_rows_and_extremes_are_judged_as_far_as_they_go():
    s = np.array(["a", "b"] * 5)
    with pytest.warns(UserWarning, match="groups of fewer than 30 rows"):
        few = audit(np.arange(10.0), sensitive_features=s, y_true=np.arange(10) % 3 % 2)
    assert not {"mutual_information", "hsic_pvalue"} & set(few.table["measure"])
    assert str(few)
    s = np.repeat(["a", "b"], 40)
    same = audit((s == "a") * 1, sensitive_features=s, y_true=np.ones(80))
    assert value(same, "y_pred", "s0", "explained_share") == pytest.approx(1)
    assert value(same, "y_pred", "s0", "selection_rate_difference") == 1
    assert value(same, "y_pred", "s0", "selection_rate_ratio") == 0
    assert "conditional_hsic_pvalue" not in set(same.table["measure"])
    rates = same.groups.set_index(["metric", "group"])["value"]
    assert np.isnan(rates["false_positive_rate"]).all()


def test_files_and_dask_equal_memory(frame, tmp_path):
    table = frame.assign(other=frame["target"] * 2, sex=frame["sex"].where(frame.index % 9 > 0))
    table.to_parquet(tmp_path / "people.parquet", row_group_size=120)
    names = [*QUICK, "nocco", "mutual_information", "conditional_hsic_pvalue"]
    options = {"threshold": 0.3, "measures": names, "missing": "drop"}
    scan = scalefair.scan_parquet(tmp_path)
    lazy = dd.from_pandas(table, npartitions=3)
    attributes = ["sex", "age"]
    with pytest.warns(UserWarning, match="56 rows in which a sensitive attribute is missing"):
        expected = audit(
            table[["score", "other"]], sensitive_features=table[attributes], y_true=table["truth"], **options
        )
    assert expected.n_missing == 56
    for data in (scan, lazy):
        models = {"score": data["score"], "other": data["other"]}
        with pytest.warns(UserWarning, match="56 rows"):
            found = audit(models, sensitive_features=data[attributes], y_true=data["truth"], **options)
        pd.testing.assert_frame_equal(
            found.table.drop(columns="words"), expected.table.drop(columns="words"), rtol=1e-6
        )
        assert found.table["words"].str.len().min() > 10


def test_measures_by_features_are_near_those_by_pairs(frame):
    lazy = dd.from_pandas(frame, npartitions=2)
    names = ["hsic", "normalized_hsic", "distance_correlation", "hsic_pvalue"]
    near = audit(lazy["score"], sensitive_features=lazy[S], measures=names)
    exact = audit(frame["score"], sensitive_features=frame[S], measures=names)
    np.testing.assert_allclose(near.table["value"], exact.table["value"], rtol=0.02, atol=0.01)


def test_missing_attributes_can_be_a_group(frame):
    s = frame[S].assign(race=frame["race"].where(frame.index % 5 > 0))
    found = audit(frame["score"], sensitive_features=s, missing="group", measures=QUICK)
    filled = audit(frame["score"], sensitive_features=s.fillna("(missing)"), measures=QUICK)
    pd.testing.assert_frame_equal(found.table, filled.table)


def test_models_are_compared(result):
    shares = result.compare("explained_share")
    assert list(shares.columns) == ["fitted", "noise"]
    assert list(shares.index) == ["sex", "race", "age", "sex × race × age"]
    assert shares.loc["sex", "fitted"] > 0.1 > shares.loc["sex", "noise"]
    everything = result.compare()
    assert everything.loc[("sex", "explained_share"), "fitted"] == shares.loc["sex", "fitted"]
    with refused("measure='beauty'", error=ValueError):
        result.compare("beauty")


def test_words_stand_beside_the_numbers(result):
    share = value(result, "fitted", "sex", "explained_share")
    (words,) = result.table.query("model == 'fitted' and attribute == 'sex' and measure == 'explained_share'")["words"]
    start = f"sex explains {100 * share:.1f} % of the variance of the predictions (95 % interval "
    assert words.startswith(start)
    assert words in str(result)
    assert "Audit of 500 rows by sex, race, age and sex × race × age." in str(result)
    assert "together explain" in str(result)
    assert "the mean prediction is" in str(result)
    pay = scalefair.audit([42_740.4] * 30 + [8_739.6] * 30, sensitive_features=["a"] * 30 + ["b"] * 30, random_state=0)
    assert "the mean prediction is 42,740 for a and 8740 for b (" in str(pay)


def test_the_result_as_frame_dictionary_and_page(result):
    assert result.to_frame() is result.table
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["n_rows"] == 500
    assert len(record["table"]) == len(result.table)
    assert record["table"][0]["value"] == result.table["value"][0]
    assert {"model", "attribute", "group", "metric", "count"} <= set(record["groups"][0])
    page = result._repr_html_()
    assert page.startswith("<p>Audit of 500 rows")
    assert "<table" in page
    assert repr(result) == "<Audit of 500 rows: fitted, noise>"
    assert list(result.overall["model"]) == ["fitted", "noise"]


def test_small_groups_are_warned_of_and_named(frame):
    s = np.where(frame.index < 12, "tiny", frame["sex"])
    with pytest.warns(UserWarning, match=r"s0: groups of fewer than 30 rows .*: tiny \(12\)"):
        found = audit(frame["score"], sensitive_features=s, measures=QUICK)
    assert found.groups[found.groups["small"]]["group"].unique() == ["tiny"]
    assert "Note: s0: groups of fewer" in str(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit(frame["score"], sensitive_features=frame["sex"], measures=QUICK)


def test_only_continuous_attributes_have_shares_but_no_groups(frame):
    found = audit(frame["score"], sensitive_features=frame["age"], measures=QUICK)
    assert list(found.table["measure"]) == QUICK
    assert len(found.groups) == len(found.gaps) == 0
    assert "age explains" in str(found)


CASES = {
    "constant": ({"y_pred": np.full(500, 0.7)}, ["'y_pred'", 0.7, "every row"]),
    "constant model": ({"y_pred": {"a": np.arange(500.0), "b": np.ones(500)}}, ["y_pred 'b'", "is 1 "]),
    "constant label": ({"y_pred": np.zeros(500, int)}, ["'y_pred'", "is 0 "]),
    "threshold": ({"threshold": 99.0}, ["threshold=99", "no row", "y_pred 'score'"]),
    "low threshold": ({"threshold": -99.0}, ["threshold=-99", "every row", "y_pred 'score'"]),
    "decisions of scores": ({"metrics": "selection_rate"}, ["'selection_rate'", "threshold="]),
    "text": ({"y_pred": ["a", "b"] * 250}, ["'y_pred'", "categorical"]),
    "missing": ({"sensitive_features": {"k": [None, *["x", "y"] * 249, "x"]}}, ["'k'", "missing"]),
    "group of one": ({"sensitive_features": {"k": ["z", *["x", "y"] * 249, "x"]}}, ["'k'", "'z'", "one row"]),
    "measure": ({"measures": ["fairness"]}, ["measures", "'fairness'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_judged_is_refused(frame, case):
    changed, words = CASES[case]
    given = {"y_pred": frame["score"], "sensitive_features": frame[S]} | changed
    with refused(*words, error=ValueError):
        audit(**given)


def test_the_order_of_scikit_learn_is_refused(frame):
    for judge in (audit, group_gaps):
        with refused(judge.__name__, "positional", error=TypeError):
            judge(frame["truth"], frame["label"], sensitive_features=frame[S])


def test_an_audit_is_drawn(result):
    pytest.importorskip("matplotlib")
    display = result.plot()
    assert display.ax_.get_xlabel() == "explained share"
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == ["sex", "race", "age", "sex × race × age"]
    from scalefair.plots import make_figure

    ax = make_figure(4, 4)[1]
    display = result.plot("mean_prediction", ax=ax)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert display.ax_ is ax
    assert "sex × race: m, c" in labels
    assert len(labels) == 2 + 3 + 6
    with refused("measure='beauty'", error=ValueError):
        result.plot("beauty")


def test_distances_to_several_attributes_come_from_a_sample_with_its_error(monkeypatch):
    """Of ten samples of 300 rows, the interval of 90 % holds the value of all rows in most."""
    rng = np.random.default_rng(0)
    s = pd.DataFrame({"g": rng.choice(list("ab"), 1500), "x": rng.normal(size=1500)})
    f = s["x"] ** 2 + (s["g"] == "a") + rng.normal(size=len(s))

    def line(rows, seed):
        options = {"measures": ["distance_correlation"], "confidence": 0.9, "random_state": seed}
        table = audit(rows["f"], sensitive_features=rows[["g", "x"]], **options).table
        return table.set_index(["attribute", "measure"]).loc[("g × x", "distance_correlation")]

    table = s.assign(f=f)
    whole = line(table, 0)["value"]
    monkeypatch.setattr("scalefair.auditing.dependence.DISTANCE_ROWS", 300)
    lines = [line(table, seed) for seed in range(10)]
    assert {one["rows"] for one in lines} == {300}
    assert sum(one["low"] <= whole <= one["high"] for one in lines) >= 7
    assert np.mean([one["high"] - one["low"] for one in lines]) < 0.25
    streamed = line(dd.from_pandas(table, npartitions=3), 0)
    for name in ("value", "low", "high"):
        assert streamed[name] == pytest.approx(lines[0][name], rel=1e-9)
