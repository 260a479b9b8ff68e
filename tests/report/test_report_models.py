"""A report of every kind of fair model: its frontier, its tests, its relevance, its file."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import scalefair
from scalefair import (
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRegressor,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
)
from scalefair.errors import InputError
from scalefair.kernels import RBF
from scalefair.measures import hsic_test
from scalefair.measures.scorers import predicted
from scalefair.report import make_report
from scalefair.report.page import render
from scalefair.report.relatives import has_closed_form_path, scores, weights_around
from scalefair.report.tables import compare_relevance
from tests.errors import refused

SMALL = {"n_components": 15, "random_state": 0}


def people(n=240, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.choice(["women", "men"], n)
    X = pd.DataFrame({"age": rng.normal(size=n), "hours": rng.normal(size=n)})
    y = X["age"] + 0.5 * X["hours"] + 1.5 * (s == "men") + 0.5 * rng.normal(size=n)
    X["grade"] = (s == "men") + 0.3 * rng.normal(size=n)
    return X, y, pd.DataFrame({"sex": s})


MODELS = {
    "linear": FairRidge(unfairness=0.05),
    "ridge": FairKernelRidge(unfairness=0.05, **SMALL),
    "cross-validated": FairKernelRidgeCV(unfairness=0.2, **SMALL),
    "exact": FairKernelRidge(feature_map="exact", eta=1.0, random_state=0),
    "without closed form": FairKernelRidge(penalty="nocco_output", eta=0.1, **SMALL),
    "Huber": FairKernelRegressor(loss="huber", eta=1.0, **SMALL),
    "process": FairGPRegressor(unfairness=0.05, length_scale="standardized", max_iter=3, **SMALL),
    "exact process": FairGPRegressor(feature_map="exact", eta=1.0, max_iter=2, random_state=0),
    "classifier": FairKernelClassifier(unfairness=0.05, **SMALL),
    "process of classes": FairGPClassifier(eta=1.0, max_iter=2, **SMALL),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The report of every model, made when it is asked for."""
    X, y, S = people()
    made = {}

    def report(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("report")
            target = np.where(y > 0, "high", "low") if "class" in name else y
            made[name] = (folder, make_report(MODELS[name], X, target, sensitive_features=S, out=folder, target="pay"))
        return made[name]

    return report


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_gets_a_whole_report(reports, name):
    folder, found = reports(name)
    assert sorted(p.name for p in folder.iterdir()) == [
        "frontier.csv",
        "model.scalefair",
        "report.csv",
        "report.html",
        "report.json",
    ]
    page = (folder / "report.html").read_text("utf-8")
    assert "Tests of independence" in page
    shares = [p.get(found.limited, "sex").value for p in (found.before, found.after)]
    assert shares[1] < shares[0]
    table = pd.read_csv(folder / "frontier.csv")
    assert {0.0, np.inf} <= {*table["eta"]}
    assert found.positions[found.chosen].eta == found.estimator.eta_
    assert 'class="chosen"' in page
    held_out = "_cv" if name == "cross-validated" else "_test"
    assert (table[f"mse{held_out}_error"] > 0).all()
    again = scalefair.load(folder / "model.scalefair")
    X = found.problem.test.X
    np.testing.assert_array_equal(again.predict(X), found.estimator.predict(X))
    assert scalefair.load.__name__ in page  # and it says how


@pytest.mark.parametrize("name", ["ridge", "classifier", "process"])
def test_the_frontier_is_that_of_the_held_out_rows(reports, name):
    _, found = reports(name)
    test, row = found.problem.test, found.table.iloc[found.chosen]
    f = predicted(found.estimator, test.X)
    squares = (test.y - f) ** 2
    assert row["mse_test"] == pytest.approx(squares.mean())
    assert row["mse_test_error"] == pytest.approx(squares.std(ddof=1) / np.sqrt(len(f)))
    assert row["r2_test"] == pytest.approx(1 - squares.mean() / test.y.var())
    score = scores(found.estimator, test.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of small groups
        f = f if score is None else score
        result = scalefair.audit(f, sensitive_features=test.sensitive, measures=["explained_share"])
    share = result.table.iloc[0]
    assert row["explained_share_test"] == pytest.approx(share["value"])
    assert row["eta"] == found.estimator.eta_


def test_relatives_of_a_process_are_those_that_a_fit_would_find(reports):
    _, found = reports("process")
    model, train = found.estimator, found.problem.train
    other = model._at(np.inf)
    settled = FairGPRegressor(
        kernel=model.kernel_.kernel, amplitude=model.amplitude_, noise=model.noise_, optimizer=None, eta=np.inf, **SMALL
    )
    settled.fit(train.X, train.y, sensitive_features=train.sensitive)
    np.testing.assert_allclose(other.predict(train.X), settled.predict(train.X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("model", "closed"),
    [
        ("linear", True),
        ("ridge", True),
        ("exact", False),
        ("without closed form", False),
        ("Huber", False),
        ("process", False),
    ],
)
def test_other_weights_come_from_where_they_can(reports, model, closed):
    _, found = reports(model)
    assert has_closed_form_path(found.estimator) is closed


@pytest.mark.parametrize("model", ["ridge", "linear"])
def test_a_path_that_fails_is_an_error_not_seven_fits(tmp_path, monkeypatch, model):
    def broken(*args, **options):
        raise ValueError("the path is broken")

    X, y, S = people()
    monkeypatch.setattr(type(MODELS[model]), "path", broken)
    with refused("the path is broken", error=ValueError):
        make_report(MODELS[model], X, y, sensitive_features=S, out=tmp_path)


def test_length_scales_of_a_sum_of_kernels_are_not_those_of_inputs(tmp_path):
    X, y, S = people()
    both = RBF(1.0) + RBF(3.0)  # as many length scales as inputs
    model = FairGPRegressor(kernel=both, optimizer=None, eta=1.0, **SMALL)
    found = make_report(model, X[["age", "hours"]], y, sensitive_features=S, out=tmp_path)
    assert compare_relevance(found.baseline, found.estimator) is None


def test_weights_lie_about_the_one_found():
    for eta in (0.0, 1e-3, 5.0, np.inf):
        weights = weights_around(eta)
        assert eta in weights
        assert (np.diff(weights) > 0).all()
        assert (weights[0], weights[-1]) == (0.0, np.inf)


def test_a_process_without_penalty_learns_its_own_length_scales(reports):
    folder, found = reports("process")
    table = compare_relevance(found.baseline, found.estimator)
    assert found.baseline.eta_ == 0
    fair, plain = found.estimator.relevance(), found.baseline.relevance()
    by = table.set_index("input")
    for name in ("age", "hours", "grade"):
        assert by.loc[name, "after"] == fair.set_index("input").loc[name, "length_scale"]
        assert by.loc[name, "before"] == plain.set_index("input").loc[name, "length_scale"]
    assert table["after_relevance"].is_monotonic_decreasing
    assert "Which inputs matter" in (folder / "report.html").read_text("utf-8")
    assert compare_relevance(*[reports("exact process")[1].estimator] * 2) is None
    assert compare_relevance(*[reports("ridge")[1].estimator] * 2) is None


def test_the_tests_are_those_of_the_measures(reports):
    _, found = reports("ridge")
    X, S = found.problem.test.X, found.problem.test.sensitive
    for model, position in ((found.baseline, found.before), (found.estimator, found.after)):
        p = hsic_test(model.predict(X), S, random_state=0).pvalue
        assert position.get("hsic_pvalue", "sex").value == pytest.approx(p)


@pytest.mark.parametrize(("p", "words"), [(0.001, "still depend on sex"), (0.5, "no evidence")])
def test_verdicts_tell_dependence_from_its_absence(reports, p, words):
    _, found = reports("ridge")
    entries = (e._replace(value=p) if e.measure == "hsic_pvalue" else e for e in found.after.entries)
    positions = list(found.positions)
    positions[found.chosen] = replace(found.after, entries=tuple(entries))
    assert words in render(replace(found, positions=tuple(positions)))


def test_sensitive_columns_of_the_estimator_are_enough(tmp_path):
    X, y, S = people()
    model = FairKernelRidge(eta=1.0, sensitive_columns=["sex"], **SMALL)
    found = make_report(model, X.assign(sex=S["sex"]), y, out=tmp_path)
    assert found.problem.sensitive == ["sex"]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "may use them as inputs" in page
    assert "est.fit(X, y)" in page
    with refused("sensitive_columns", "both", error=InputError) as caught:
        make_report(model, X, y, sensitive_features=S, out=tmp_path)
    assert caught.value.where == "sensitive_features"


def test_arrays_without_names_will_do(tmp_path):
    X, y, _ = people()
    found = make_report(
        FairRidge(eta=1.0), X.to_numpy(), y.to_numpy(), sensitive_features=X["age"].to_numpy(), out=tmp_path
    )
    assert found.problem.sensitive == ["s0"]
    assert list(found.judge.bins) == ["s0"]


@pytest.mark.parametrize(
    ("model", "options", "error", "words"),
    [
        (Ridge(), {}, TypeError, ["estimator", "Ridge", "base_estimator"]),
        (FairKernelClassifier(), {}, ValueError, ["target", "'pay'", "two levels"]),
        (FairRidge(), {"sensitive_features": None}, ValueError, ["sensitive_columns", "missing"]),
        (FairRidge(), {"y": np.full(240, np.nan)}, ValueError, ["target", "'pay'", "240 of 240"]),
        (FairRidge(), {"rows": 30}, ValueError, ["30 rows", 50]),
    ],
)
def test_what_cannot_be_reported_is_refused(tmp_path, model, options, error, words):
    X, y, S = people()
    own = {"sensitive_features": S, "out": tmp_path / "never", "target": "pay"}
    y, n = options.pop("y", y), options.pop("rows", 240)
    own |= options
    if own["sensitive_features"] is not None:
        own["sensitive_features"] = own["sensitive_features"][:n]
    with refused(*words, error=error):
        make_report(model, X[:n], y[:n], **own)
    assert not (tmp_path / "never").exists()


def test_what_cannot_be_saved_is_left_out_and_the_page_says_so(tmp_path):
    X, y, S = people()
    model = FairKernelRidge(eta=1.0, n_components=15, random_state=np.random.RandomState(0))
    make_report(model, X, y, sensitive_features=S, out=tmp_path)
    assert not (tmp_path / "model.scalefair").exists()
    assert "scalefair.save(est" in (tmp_path / "report.html").read_text("utf-8")


def test_the_loading_code_of_the_page_runs(reports, monkeypatch):
    folder, found = reports("cross-validated")
    page = (folder / "report.html").read_text("utf-8")
    code = re.search(r"<pre tabindex=\"0\"><code>(import scalefair.*?)</code>", page, re.DOTALL)[1]
    monkeypatch.chdir(folder)
    names = {"X": found.problem.test.X}
    exec(code.replace("&#39;", "'"), names)
    expected = found.estimator.predict(names["X"])
    np.testing.assert_array_equal(names["model"].predict(names["X"]), expected)
