"""Where the promise broke before: one test for each fault, on tables as a user would try them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from fairlearn.reductions import DemographicParity, ExponentiatedGradient

from scalefair import FairGPRegressor, FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.datasets import make_biased_income
from tests.errors import refused
from tests.promises.population import draw, share

FRESH = 40_000


@pytest.mark.parametrize("eps", ["auto", 0.1, None])
def test_no_eps_hides_what_it_leaves_unpunished(eps):
    X, y, s = draw("categories", 1500, 0)
    fresh, _, s_fresh = draw("categories", FRESH, 1)
    model = FairKernelRidgeCV(unfairness=0.1, eps=eps, n_components=50, random_state=0).fit(X, y, sensitive_features=s)
    error = model.explained_share_cv_error_
    assert share(model.predict(fresh), s_fresh) <= 0.1 + 3 * error
    if eps != "auto":
        plain = FairRidge(unfairness=0.05, eps=eps).fit(X, y, sensitive_features=s)
        in_sample = share(plain.predict(X), s) * (1 - 4 / 1499) + 4 / 1499
        assert in_sample == pytest.approx(0.05, abs=1e-6)
        assert share(plain.predict(fresh), s_fresh) <= 0.05 + 4 * np.sqrt(0.2 / 1500)


def test_the_share_reported_is_the_share_on_new_rows_where_s_is_given_apart():
    names = ["sex", "ethnicity", "age"]
    table, new = (make_biased_income(n, random_state=seed) for n, seed in ((6_000, 0), (FRESH, 1)))
    model = FairKernelRidgeCV(unfairness=0.01, eps="auto", n_components=60, random_state=0)
    model.fit(table.data.drop(columns=names), table.target, sensitive_features=table.data[names])
    f = model.predict(new.data.drop(columns=names))
    s = new.data[names].astype({"age": float})
    assert share(f, s) <= 0.01 + 3 * max(model.explained_share_cv_error_, 0.002)


@pytest.mark.parametrize("unit", [1e-4, 1e-9, 1e6])
def test_a_linear_kernel_sees_s_in_any_unit(unit):
    X, y, s = draw("numbers", 2000, 0)
    model = FairRidge(unfairness=0.01, sensitive_kernel="linear")
    model.fit(X, y, sensitive_features=s * unit)
    assert model.eta_ > 0
    fresh, _, s_fresh = draw("numbers", FRESH, 1)
    assert np.corrcoef(model.predict(fresh), s_fresh["a"])[0, 1] ** 2 <= 0.01 + 4 * np.sqrt(0.04 / 2000)


def test_one_number_in_a_small_unit_beside_one_in_a_large():
    """Each is judged in its own unit: the large one does not hide the small one."""
    X, y, s = draw("numbers", 2000, 0)
    both = np.column_stack([s["a"], 1e6 * np.random.default_rng(5).normal(size=len(y))])
    model = FairRidge(unfairness=0.01, sensitive_kernel="linear").fit(X, y, sensitive_features=both)
    assert np.corrcoef(model.predict(X), s["a"])[0, 1] ** 2 <= 0.0101


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", ["numeric s", "y = s"])
def test_an_intercept_is_no_coefficient_that_the_penalty_could_reach(kind, fit_intercept):
    """Two inputs and a numeric s: R has full rank, and the least share is not 0."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=600)
    X = np.column_stack([s + rng.normal(size=600), 0.3 * s**2 + rng.normal(size=600)])
    y = (s + 0.5 * rng.normal(size=600) > 0) if kind == "numeric s" else s > 0
    model = FairKernelClassifier(feature_map="linear", unfairness=0.3, fit_intercept=fit_intercept, alpha=1e-4).fit(
        X, y, sensitive_features=s if kind == "numeric s" else y
    )
    assert model.explained_share_ <= 0.3 + 1e-6
    f = model.decision_function(X)
    assert np.std(f) > 1e-3


def test_limits_down_to_the_least_share_are_reached_by_a_classifier_too():
    """Beyond the path of eta, as close to the least attainable share as asked for."""
    rng = np.random.default_rng(1)
    s = rng.normal(size=(500, 3))
    X = 0.4 * s @ rng.normal(size=(3, 2)) + rng.normal(size=(500, 2))
    y = X[:, 0] + s[:, 0] + rng.normal(size=500) > 0
    options = {"feature_map": "linear", "sensitive_kernel": "linear", "alpha": 1e-4}
    C = np.cov(X.T, bias=True)
    A = np.column_stack([np.ones(500), s])
    fitted = A @ np.linalg.lstsq(A, X, rcond=None)[0]
    least = np.linalg.eigvals(np.linalg.solve(C, np.cov(fitted.T, bias=True))).real.min()
    for unfairness in (1.02 * least, 1.5 * least):
        model = FairKernelClassifier(unfairness=unfairness, **options)
        model.fit(X, y, sensitive_features=s)
        assert model.explained_share_ == pytest.approx(unfairness, abs=1e-5)
    with refused(f"{least:.4f}"):
        FairKernelClassifier(unfairness=0.8 * least, **options).fit(X, y, sensitive_features=s)


def test_a_fair_classifier_inside_a_reduction():
    X, y, _ = draw("categories", 400, 0, classes=True)
    inside = FairKernelClassifier(feature_map="linear", unfairness=0.3, sensitive_columns=[0])
    columns = np.column_stack([X[:, 0] > 0, X[:, 1:]]).astype(float)
    reduction = ExponentiatedGradient(inside, DemographicParity(), max_iter=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Setting a")  # fairlearn's own
        reduction.fit(columns, y, sensitive_features=columns[:, 0])
    assert set(reduction.predict(columns)) <= {0, 1}


def fits(**options):
    yield "ridge", FairRidge(random_state=0, **options)
    yield "kernel", FairKernelRidge(n_components=20, random_state=0, **options)
    yield "exact", FairKernelRidge(feature_map="exact", random_state=0, **options)
    yield "classifier", FairKernelClassifier(n_components=20, random_state=0, **options)
    yield "cv", FairKernelRidgeCV(n_components=20, random_state=0, **options)
    yield ("process", FairGPRegressor(n_components=20, optimizer=None, length_scale=2.0, random_state=0, **options))


NO_INVARIANCE = {("classifier", "y"), ("process", "weights")}
"""Classes have no unit; the weights of a process are rows, which make it more certain."""


@pytest.mark.parametrize("kind", ["categories", "numbers", "mixed"])
@pytest.mark.parametrize("what", ["weights", "s", "y"])
def test_a_change_of_units_changes_nothing(kind, what):
    n = 240
    X, y, s = draw(kind, n, 0)
    weight = np.random.default_rng(4).exponential(size=n) + 0.1
    classes = (y > 2).astype(int)
    for name, model in fits(unfairness=0.2):
        target = classes if name == "classifier" else y
        predictions = []
        for unit in (1.0, 2.0**-20, 1e5):
            other = s.copy()
            if "a" in other and what == "s":
                other["a"] *= unit
            if (name, what) in NO_INVARIANCE:
                continue
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "groups too small|.*predicts a constant")
                model.fit(
                    X,
                    target * unit if what == "y" else target,
                    sensitive_features=other,
                    sample_weight=weight * unit if what == "weights" else weight,
                )
            f = model.decision_function(X) if name == "classifier" else model.predict(X)
            predictions.append(f / unit if what == "y" else f)
        for f in predictions[1:]:
            spread = max(np.std(predictions[0]), 1e-3 * np.std(y))
            assert np.abs(f - predictions[0]).max() <= 1e-8 * spread, name


@pytest.mark.parametrize("seed", range(5))
def test_no_share_at_all_is_never_refused(seed):
    table = make_biased_income(1500, random_state=seed)
    X, s = table.data.drop(columns=["sex", "age"]), table.data[["sex", "age"]]
    model = FairKernelRidgeCV(unfairness=0, n_components=60, random_state=0)
    model.fit(X, table.target, sensitive_features=s)
    assert model.eta_ == np.inf
    assert model.explained_share_ < 1e-9
    assert model.explained_share_cv_error_ > 0


def test_no_share_at_all_of_the_distribution():
    X, y, s = draw("categories", 300, 0)
    model = FairKernelRidge(unfairness=0, output_kernel="rbf", n_components=20, random_state=0).fit(
        X, y, sensitive_features=s
    )
    assert model.output_share_ < 5e-3
    assert np.std(model.predict(X)) > 0.1


def test_no_limited_model_is_worse_than_a_constant():
    """At 500 rows and a limit of 0.01 some fits have next to no signal left, and blow it up."""
    worse = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        s = rng.normal(size=(500, 3))
        X = np.column_stack([s + 0.3 * rng.normal(size=(500, 3)), rng.normal(size=(500, 3))])
        y = s.sum(axis=1) + 0.1 * rng.normal(size=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = FairKernelRidgeCV(unfairness=0.01, n_components=40, random_state=0)
            model.fit(X, y, sensitive_features=s)
        mse = model.path_.table
        chosen = mse[(mse.alpha == model.alpha_) & (mse.eta == model.eta_)].mse_cv
        if np.ptp(model.predict(X)) > 0:
            assert chosen.min() <= np.var(y) * 1.02
        t = rng.normal(size=(FRESH, 3))
        new = np.column_stack([t + 0.3 * rng.normal(size=t.shape), rng.normal(size=t.shape)])
        truth = t.sum(axis=1) + 0.1 * rng.normal(size=FRESH)
        worse.append(np.mean((truth - model.predict(new)) ** 2) / np.var(truth))
    assert max(worse) < 1.05


def test_a_constant_that_wins_is_warned_of_and_has_no_share():
    rng = np.random.default_rng(0)
    s = rng.normal(size=400)
    X = s[:, None] + 0.01 * rng.normal(size=(400, 1))
    model = FairKernelRidgeCV(feature_map="linear", unfairness=0.01)
    with pytest.warns(UserWarning, match="predicts a constant"):
        model.fit(X, s, sensitive_features=s)
    assert np.ptp(model.predict(X)) == 0
    assert model.predict(X)[0] == pytest.approx(s.mean())
    assert np.isnan(model.explained_share_)
    assert np.isnan(model.explained_share_cv_)


def test_chance_in_the_sample_is_not_limited():
    """40 groups that differ little, 500 rows: in sample chance alone explains 8 %."""
    rng = np.random.default_rng(0)
    g = rng.integers(0, 40, 500)
    X = rng.normal(size=(500, 5)) + 0.1 * rng.normal(size=(40, 5))[g]
    y = X @ [1.0, 1.0, 0.5, 0.5, 0.2] + 0.5 * rng.normal(size=500)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "groups too small")
        model = FairKernelRidgeCV(unfairness=0.05, feature_map="linear", random_state=0)
        model.fit(X, y, sensitive_features=g.astype(str))
    assert model.explained_share_ > 0.06
    assert model.explained_share_cv_ + model.explained_share_cv_error_ / 2 <= 0.05
    assert 1 - np.mean((y - model.predict(X)) ** 2) / np.var(y) > 0.8


def test_groups_too_small_to_judge_are_named_with_their_counts():
    X, y, s = draw("categories", 400, 0)
    s = s.copy()
    s.loc[[3, 50, 77], "g"] = "few"
    s.loc[120, "g"] = "one"
    with pytest.warns(UserWarning, match=r"g=one \(1 rows\), g=few \(3 rows\).*there is none"):
        FairKernelRidgeCV(unfairness=0.1, n_components=20, random_state=0).fit(X, y, sensitive_features=s)


def test_rare_groups_within_a_product_with_numbers_are_punished():
    """0.5 % of the rows: an absolute ε leaves what their numbers say to the prediction."""
    rng = np.random.default_rng(0)
    n = 8000
    g = np.where(rng.uniform(size=n) < 0.005, "rare", "most")
    a = rng.normal(size=n)
    x = np.where(g == "rare", 8 * a, 0.0) + rng.normal(size=n)
    X = np.column_stack([x, rng.normal(size=(n, 60))])
    y = X.sum(axis=1) + 0.1 * rng.normal(size=n)
    s = pd.DataFrame({"g": g, "a": a})
    model = FairRidge(unfairness=1e-4).fit(X, y, sensitive_features=s)
    f, rare = model.predict(X), g == "rare"
    slope = np.polyfit(a[rare], f[rare], 1)[0] ** 2 * rare.mean() / np.var(f)
    assert slope <= 2e-4
