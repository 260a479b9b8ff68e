"""Certified cross-validation: calibrating rows touch nothing else, and the limit holds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

import scalefair
from scalefair import (
    CrossFit,
    FairKernelClassifierCV,
    FairKernelRegressorCV,
    FairKernelRidgeCV,
    NotCertifiedError,
    certify,
)
from scalefair.auditing.candidates import Part, path_etas
from scalefair.measures import explained_share
from scalefair.report import as_record, fit_frontier, from_table
from scalefair.report.page import render
from scalefair.solve.ridge.path import Spectrum
from tests.errors import refused

OPTIONS = {"n_components": 20, "random_state": 0, "confidence": 0.9, "unfairness": 0.1}


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(n, 3)) + 0.5 * (s == "a")[:, None]
    y = X @ [1.0, 0.5, 0.2] + 0.5 * (s == "a") + rng.normal(size=n)
    return X, y, s


X, y, s = draw(1500)
CALIBRATES = Part(2, calibrates=True).has(np.arange(1500))


@pytest.fixture(scope="module", params=["split", "cross"])
def model(request):
    made = FairKernelRidgeCV(**OPTIONS, guarantee=request.param)
    return made.fit(X, y, sensitive_features=s)


def test_what_is_certified(model):
    made = model.certificate_
    assert (made.limit, made.confidence, made.method) == (0.1, 0.9, model.guarantee)
    assert made.estimate < made.upper_bound <= 0.1
    assert made.rows == (600 if model.guarantee == "split" else 1500)
    assert model.n_samples_seen_ == (900 if model.guarantee == "split" else 1500)
    assert "groups" in made.functions
    new, _, groups = draw(20_000, seed=1)
    assert explained_share(model.predict(new), groups) < 0.11


def test_four_rows_of_ten_calibrate_and_touch_nothing_else():
    assert CALIBRATES.sum() == 600
    model = FairKernelRidgeCV(**OPTIONS).fit(X, y, sensitive_features=s)
    # Other rows in their place: the path is the same, only the choice on it may change.
    other, target, groups = X.copy(), y.copy(), s.copy()
    noise = np.random.default_rng(5)
    other[CALIBRATES] = 10 * noise.normal(size=(600, 3))
    target[CALIBRATES] = -50.0
    groups[CALIBRATES] = noise.choice(["a", "b", "c"], 600)
    again = FairKernelRidgeCV(**OPTIONS).fit(other, target, sensitive_features=groups)
    np.testing.assert_array_equal(again.path_.etas, model.path_.etas)
    np.testing.assert_array_equal(again.cv_results_["mse"], model.cv_results_["mse"])
    np.testing.assert_array_equal(again.phi_.landmarks_, model.phi_.landmarks_)
    np.testing.assert_array_equal(again.moments_.scatter, model.moments_.scatter)


def test_a_split_is_the_fit_of_its_rows_judged_on_the_others():
    trees = DecisionTreeRegressor(max_depth=3, random_state=0)
    for options in ({}, {"base_estimator": trees}):
        model = FairKernelRidgeCV(**OPTIONS, **options).fit(X, y, sensitive_features=s)
        made = certify(model, X[CALIBRATES], sensitive_features=s[CALIBRATES], unfairness=0.1, confidence=0.9)
        assert made.upper_bound == pytest.approx(model.certificate_.upper_bound, rel=1e-6)
        assert made.estimate == pytest.approx(model.certificate_.estimate, abs=1e-9)
        assert made.model == model.certificate_.model


def test_rows_that_calibrated_may_not_have_fitted():
    model = FairKernelRidgeCV(**OPTIONS).fit(X, y, sensitive_features=s)
    with refused("not seen"):
        certify(model, X[~CALIBRATES], sensitive_features=s[~CALIBRATES], unfairness=0.1)


@pytest.mark.parametrize("guarantee", ["split", "cross"])
def test_streams_and_chunks(tmp_path, guarantee):
    dd = pytest.importorskip("dask.dataframe")
    names = ["u", "v", "w"]
    table = pd.DataFrame(X, columns=names).assign(s=s, y=y)
    table.to_parquet(tmp_path / "rows.parquet")
    options = OPTIONS | {"guarantee": guarantee}
    expected = FairKernelRidgeCV(**options).fit(table[names], y, sensitive_features=table[["s"]])
    scan = scalefair.scan_parquet(tmp_path / "rows.parquet")
    frame = dd.from_pandas(table, npartitions=3)
    for part in (scan, frame):
        with scalefair.config_context(chunk_rows=400):
            model = FairKernelRidgeCV(**options).fit(part[names], part["y"], sensitive_features=part[["s"]])
        made, other = model.certificate_, expected.certificate_
        assert made.upper_bound == pytest.approx(other.upper_bound, rel=1e-5)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("guarantee", ["split", "cross"])
def test_control_weights_and_several_targets(guarantee):
    options = OPTIONS | {"guarantee": guarantee, "unfairness": 0.2}
    rng = np.random.default_rng(3)
    control, w = rng.choice(["u", "v"], 1500), rng.exponential(size=1500)
    model = FairKernelRidgeCV(**options).fit(
        X, np.column_stack([y, X[:, 0]]), sensitive_features=s, control_features=control, sample_weight=w
    )
    assert "control" in model.certificate_.functions
    again = FairKernelRidgeCV(**options).fit(
        X, np.column_stack([y, X[:, 0]]), sensitive_features=s, control_features=control, sample_weight=50 * w
    )
    assert again.certificate_.upper_bound == pytest.approx(model.certificate_.upper_bound, rel=1e-4)


LOSSES = {
    "two classes": (FairKernelClassifierCV(), y > 0),
    "three classes": (FairKernelClassifierCV(), np.digitize(y, [-0.5, 1.0])),
    "huber": (FairKernelRegressorCV(), y),
}


@pytest.mark.parametrize("guarantee", ["split", "cross"])
@pytest.mark.parametrize("kind", LOSSES)
def test_general_losses(kind, guarantee, tmp_path):
    model, target = LOSSES[kind]
    own = OPTIONS | {"guarantee": guarantee, "n_components": 10}
    model = clone(model).set_params(**own).fit(X, target, sensitive_features=s)
    made = model.certificate_
    assert (made.method, made.limit) == (guarantee, 0.1)
    assert made.estimate < made.upper_bound <= 0.1
    assert model.n_samples_seen_ == made.rows + 300 if guarantee == "split" else made.rows
    scalefair.save(model, tmp_path / "model")
    assert scalefair.load(tmp_path / "model").certificate_ == made
    if guarantee == "split":
        again = certify(model, X[CALIBRATES], sensitive_features=s[CALIBRATES], unfairness=0.1, confidence=0.9)
        assert again.upper_bound == pytest.approx(made.upper_bound, rel=0.01)
    with refused(error=NotCertifiedError):
        model.set_params(unfairness=1e-4).fit(X, target, sensitive_features=s)


def test_rows_that_calibrate_do_not_touch_general_losses():
    own = OPTIONS | {"n_components": 10}
    model = FairKernelClassifierCV(**own).fit(X, y > 0, sensitive_features=s)
    other, target = X.copy(), y > 0
    other[CALIBRATES] = 3 * np.random.default_rng(5).normal(size=(600, 3))
    target[CALIBRATES] = ~target[CALIBRATES]
    again = FairKernelClassifierCV(**own).fit(other, target, sensitive_features=s)
    np.testing.assert_allclose(again.cv_results_["loss"], model.cv_results_["loss"], rtol=1e-9, equal_nan=True)


def test_numbers_are_certified_at_every_ridge():
    rng = np.random.default_rng(4)
    age = rng.normal(size=1500)
    Z = np.column_stack([X, age + rng.normal(size=1500)])
    model = FairKernelRidgeCV(**OPTIONS | {"unfairness": 0.3}, n_sensitive_components=10)
    model.fit(Z, y + age, sensitive_features=age)
    assert "1e-2" in model.certificate_.functions


def test_saved_with_the_model(model, tmp_path):
    scalefair.save(model, tmp_path / "model")
    assert scalefair.load(tmp_path / "model").certificate_ == model.certificate_


def test_a_report_shows_it():
    table = pd.DataFrame(X, columns=["u", "v", "w"]).assign(s=s, y=y)
    problem = from_table(table, target="y", sensitive=("s",), source="a test")
    frontier = fit_frontier(problem, FairKernelRidgeCV(**OPTIONS | {"unfairness": 0.3}))
    made = frontier.estimator.certificate_
    assert str(made) in render(frontier)
    assert as_record(frontier)["certificate"]["upper_bound"] == made.upper_bound


def test_other_moments_take_the_certificate_away(model):
    new, target, groups = draw(500, seed=2)
    other = FairKernelRidgeCV(**OPTIONS, guarantee=model.guarantee).fit(X, y, sensitive_features=s)
    other.solve_from(other.collect(new, target, sensitive_features=groups))
    assert "certificate_" not in vars(other)


def test_nothing_is_certified():
    with refused(error=NotCertifiedError) as caught:
        FairKernelRidgeCV(**OPTIONS | {"unfairness": 0.001}).fit(X, y, sensitive_features=s)
    error = caught.value
    assert 0.001 < error.least_limit < 0.1
    assert error.rows > 600 or np.isinf(error.rows)
    assert error.limit == 0.001


def test_a_constant_is_never_certified():
    one = np.random.default_rng(0).choice(["a", "b"], 400)
    x = (one == "a").astype(float)[:, None]  # all that x tells is s
    model = FairKernelRidgeCV(feature_map="linear", confidence=0.9, unfairness=0.05, random_state=0)
    with refused(error=NotCertifiedError):
        model.fit(x, x[:, 0] + np.arange(400) % 3, sensitive_features=one)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence": 0.0}, ["confidence"]),
        ({"confidence": 1.0}, ["confidence"]),
        ({"confidence": "high"}, ["confidence"]),
        ({"guarantee": "maybe"}, ["guarantee"]),
        ({"unfairness": None}, ["unfairness"]),
        ({"unfairness": 0.0}, ["unfairness=0"]),
        ({"base_estimator": CrossFit(DecisionTreeRegressor(), fit_on="collection")}, ["fit_on='collection'"]),
    ],
)
def test_bad_parameters(options, words):
    with refused(*words):
        FairKernelRidgeCV(**OPTIONS | options).fit(X, y, sensitive_features=s)


def test_too_few_rows():
    with refused("50"):
        FairKernelRidgeCV(**OPTIONS, cv=2).fit(X[:110], y[:110], sensitive_features=s[:110])
    rare = np.where(np.arange(1500) < 2, "rare", s)
    with pytest.warns(UserWarning, match="too small"), refused("two"):
        FairKernelRidgeCV(**OPTIONS, cv=2).fit(X, y, sensitive_features=rare)


def test_etas_go_from_the_fairest_down_to_well_beyond_the_limit(model):
    path = Spectrum.of(model._ridge._system(model._design, model.moments_)).at(model.alpha_)
    etas = path_etas(path, 0.01)
    shares = path.shares(etas)
    assert np.isinf(etas[0])
    assert (np.diff(etas) < 0).all()
    assert (np.diff(shares) > -1e-9).all()
    assert shares[-1] == pytest.approx(0.04, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["split", "cross"])
def test_the_limit_holds_as_often_as_it_says(guarantee):
    new, _, groups = draw(50_000, seed=99)
    beyond, draws = 0, 100
    options = OPTIONS | {"guarantee": guarantee, "unfairness": 0.03, "n_components": 10}
    for seed in range(draws):
        inputs, target, own = draw(800, seed=1000 + seed)
        try:
            model = FairKernelRidgeCV(**options).fit(inputs, target, sensitive_features=own)
        except NotCertifiedError:
            continue
        beyond += explained_share(model.predict(new), groups) > 0.03
    assert beyond / draws <= 0.1 + 3 * np.sqrt(0.09 / draws)


@pytest.mark.parametrize("guarantee", ["split", "cross"])
def test_rows_that_lack_attributes_do_not_judge(guarantee):
    known = np.where(np.random.default_rng(1).random(1500) < 0.6, s, None)
    options = OPTIONS | {"guarantee": guarantee, "missing_labels": "partial", "unfairness": 0.3}
    model = FairKernelRidgeCV(**options).fit(X, y, sensitive_features=pd.DataFrame({"s": known}))
    rows = CALIBRATES if guarantee == "split" else np.ones(1500, dtype=bool)
    assert model.certificate_.rows == int(np.sum(rows & (known != None)))  # noqa: E711
