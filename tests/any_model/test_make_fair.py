"""One call, and how far the frontier is from the known limit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

import scalefair
from scalefair import BatchSource, FairKernelRidge, FairRidge, Moments, limit_gap, make_fair
from scalefair.any_model import hold_out
from scalefair.any_model.limit import Centring
from scalefair.data.sources import ArraySource
from scalefair.maps import Identity, OneHot
from tests.errors import refused
from tests.estimators.test_base import problem, table

TREES = ExtraTreesRegressor(10, min_samples_leaf=5, random_state=0)


@pytest.mark.parametrize("hide", [False, True])
def test_a_regressor_becomes_fair_on_rows_held_out(hide):
    X, y = problem(1200)
    options = {"hide_sensitive": hide, "n_components": 30, "random_state": 0}
    made = make_fair(TREES, X, y, [4], 0.03, **options)
    share = made.table["explained_share"]
    assert share["before"] > (0.01 if hide else 0.1)
    assert share["after"] < (0.04 if hide else 0.06)
    assert made.estimator.explained_share_ <= 0.03 + 1e-9
    assert made.path.table["explained_share"].min() < 0.01
    assert 250 < len(made.held_out) < 350
    assert made.estimator.n_samples_seen_ == 1200 - len(made.held_out)
    f = made.predict(X[made.held_out])
    assert made.table["rmse"]["after"] == pytest.approx(np.sqrt(np.mean((f - y[made.held_out]) ** 2)))
    found = made.after.compare("explained_share")
    assert float(found.iloc[-1, 0]) == pytest.approx(share["after"], abs=1e-9)
    assert f"{'does not use' if hide else 'uses'} the sensitive attributes" in made.summary
    assert str(made) == made.summary


def test_a_classifier_keeps_its_labels():
    X, y = problem(2000)
    label = np.where(y > 0.5, "yes", "no")
    made = make_fair(LogisticRegression(), X[:, :4], label, X[:, 4].astype(str), n_components=20, random_state=0)
    assert set(made.predict(X[:20, :4])) <= {"yes", "no"}
    assert made.table["explained_share"]["after"] < made.table["explained_share"]["before"]
    assert made.table["accuracy"].between(0.5, 1).all()
    assert len(made.path.table) > 3
    assert "accuracy went from" in made.summary


def test_columns_by_name_and_a_fitted_model():
    X, y = table(400)
    numbers = X.drop(columns="group").assign(group=pd.factorize(X["group"])[0] * 1.0)
    fitted = LinearRegression().fit(numbers[:100], y[:100])
    with pytest.warns(UserWarning, match="already fitted"):
        made = make_fair(fitted, numbers, y, "group", n_components=10, random_state=0)
    assert made.estimator.base_estimator_ is fitted
    assert "which was fitted before" in made.summary


@pytest.mark.parametrize("sizes", [(5, 3), (2, 1), (1, 1), (9, 40)])
def test_its_own_split_never_fails(sizes):
    """Each group is among the rows of the fit, and none has one row alone among those held out."""
    X, y = problem(400)
    s = np.where(X[:, 4] > 0, "b", "a").astype(object)
    s[: sizes[0]], s[200 : 200 + sizes[1]] = "rare", "rarer"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*too small")
        made = make_fair(LinearRegression(), X, y, s, n_components=10, random_state=0)
    counts = pd.Series(s[made.held_out]).value_counts()
    assert counts.min() >= 2
    assert set(np.delete(s, made.held_out)) == set(s)
    assert made.after.n_rows == len(made.held_out)


def test_classes_are_held_out_alike():
    """So many rows of each group, and of each class in it, as test_size says, but for one."""
    rng = np.random.default_rng(0)
    groups, classes = rng.integers(0, 3, 500), rng.integers(0, 2, 500)
    tested = hold_out(groups, classes, 0.3, 1)
    for group in range(3):
        for label in range(2):
            at = (groups == group) & (classes == label)
            assert abs(tested[at].sum() - 0.3 * at.sum()) <= 1
    assert not (tested == hold_out(groups, classes, 0.3, 2)).all()


@pytest.mark.parametrize("model", ["trees", LogisticRegression()])
def test_the_final_model_is_fitted_on_all_rows_and_saved(model, tmp_path):
    if model != "trees":
        pytest.importorskip("skops")
    X, y = problem(500)
    label = np.where(y > 0.5, "yes", "no")
    options = {"n_components": 10, "random_state": 0, "refit": True}
    made = make_fair(model, X, label, [4], 0.05, **options)
    assert made.estimator.n_samples_seen_ == 500
    assert 0 < len(made.held_out) < 200
    assert made.predict_proba(X).shape == (500, 2)
    assert "all 500 rows" in made.summary
    made.save(tmp_path / "m")
    np.testing.assert_array_equal(scalefair.load(tmp_path / "m").predict(X), made.predict(X))
    assert not hasattr(make_fair(LinearRegression(), X, y, [4], **options), "predict_proba")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"unfairness": 2.0}, ValueError, ["unfairness=2.0"]),
        ({"test_size": 0.0}, ValueError, ["test_size=0.0"]),
        ({"test_size": 0.01}, ValueError, ["test_size=0.01", 60]),
        ({"refit": "no"}, TypeError, ["refit='no'"]),
        ({"sensitive_features": ["nobody"]}, ValueError, ["sensitive_columns=['nobody']"]),
        ({"sensitive_features": np.ones(7)}, ValueError, ["sensitive_features", "7 rows", 60]),
        ({"y": np.ones(7)}, ValueError, [[60, 7]]),
        ({"model": OneHotEncoder()}, TypeError, ["base_estimator=OneHotEncoder()"]),
        ({"model": LogisticRegression(), "y": np.arange(60) % 3}, ValueError, ["y ", "3 classes"]),
        ({"X": BatchSource([(np.ones((2, 2)), np.ones(2))])}, TypeError, ["X ", "BatchSource"]),
    ],
)
def test_bad_input_is_named(change, error, words):
    X, y = problem(60)
    given = {"model": TREES, "X": X, "y": y, "sensitive_features": [4], "random_state": 0}
    with refused(*words, error=error):
        make_fair(n_components=5, **(given | change))


def known(n, seed):
    """y = x + group + noise, with the group a column: E[y|x, s] is linear and known."""
    rng = np.random.default_rng(seed)
    g = rng.integers(0, 2, n)
    x = rng.normal(size=n)
    return np.column_stack([x, g]), x + g + 0.5 * rng.normal(size=n)


def test_the_limit_is_the_optimum_of_a_known_problem():
    X, y = known(4000, 0)
    new, target = known(4000, 1)
    model = FairKernelRidge(
        feature_map="linear",
        sensitive_columns=[1],
        sensitive_kernel="categorical",
        alpha=1e-8,
        eta=1.0,
        base_estimator=LinearRegression(),
        random_state=0,
    ).fit(X, y)
    found = limit_gap(model, new, target)
    assert abs(found.gap) < 0.002
    # f = a(x + t·g'), g' = ±1/2 of variance 1/4: at share u, t²/4 = u(1 + t²/4), and the error
    # of the best multiple is Var y − (1 + t/4)²/(1 + t²/4).
    for share in (0.02, 0.1):
        t = np.sqrt(4 * share / (1 - share))
        mse = 1 + 0.25 + 0.25 - (1 + t / 4) ** 2 / (1 + t**2 / 4)
        assert found.rmse(share, "limit") == pytest.approx(np.sqrt(mse), rel=0.03)
        assert found.rmse(share) == pytest.approx(np.sqrt(mse), rel=0.03)


def test_hiding_costs_and_a_poor_model_is_far_from_the_limit():
    X, y = problem(2500)
    new, target = problem(2500, seed=1)
    options = {"sensitive_columns": [4], "sensitive_kernel": "categorical", "random_state": 0}
    trees = DecisionTreeRegressor(max_depth=7, min_samples_leaf=10)
    with_base = FairKernelRidge(base_estimator=trees, n_components=50, eta=1.0, **options)
    poor = FairRidge(eta=1.0, **options).fit(X, y)
    good = limit_gap(with_base.fit(X, y), new, target)
    h = with_base.base_estimator_.predict(new)
    far = limit_gap(poor, new, target, h=h)
    assert far.best == "given"
    assert far.gap > 0.1 > good.gap
    display = far.plot()
    assert f"{far.gap:.1%}" in display.ax_.get_legend_handles_labels()[1][1]


def test_centring_from_moments_is_that_of_the_rows():
    X, y = problem(500)
    Psi = (X[:, 4:] == np.arange(3)).astype(float)
    h = X @ np.arange(5.0)
    moments = Moments.accumulate(ArraySource(X, X[:, 4:], y[:, None]), Identity().fit(X), OneHot().fit(X[:, 4:]))
    new, _ = problem(50, seed=1)
    one = Centring.of_moments(moments, ("phi",), np.arange(5.0))
    other = Centring.of_rows(Psi, h, y, moments.units["psi"])
    rows = (new[:, 4:] == np.arange(3)).astype(float), new @ np.arange(5.0)
    for c in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(one.apply(*rows, c), other.apply(*rows, c), rtol=1e-9)
    f = one.apply(Psi, h, 1.0)
    np.testing.assert_allclose([f[X[:, 4] == g].mean() for g in range(3)], y.mean(), atol=1e-6)
    assert np.mean((y - f) ** 2) < np.mean((y - 1.05 * (f - f.mean()) - y.mean()) ** 2)


def test_rows_that_the_base_model_has_seen_are_named():
    X, y = problem(300)
    model = FairRidge(eta=1.0, sensitive_columns=[4], base_estimator=DecisionTreeRegressor(), random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="fitted on some of these rows"):
        limit_gap(model, X[:200], y[:200])
    limit_gap(model, *problem(200, seed=1))  # no warning


def test_rows_of_the_fit_are_refused():
    X, y = problem(300)
    model = FairRidge(eta=1.0, sensitive_columns=[4]).fit(X, y)
    with refused("X and y", "rows of fit", error=ValueError):
        limit_gap(model, X, y)
    with refused("h ", (3,), 200, error=ValueError):
        limit_gap(model, X[:200], y[:200], h=np.ones(3))
    with refused("LinearRegression", error=TypeError):
        limit_gap(make_pipeline(LinearRegression()).fit(X, y)[-1], X, y)
    with refused("sensitive_features", "sensitive_columns", error=ValueError):
        limit_gap(FairRidge(eta=0.0).fit(X, y), X[:200], y[:200])


def test_a_path_gives_estimators_under_a_limit():
    X, y = problem()
    model = FairKernelRidge(n_components=20, sensitive_columns=[4], eta=1.0, random_state=0)
    path = model.fit(X, y).path()
    limited = path.at(unfairness=0.02)
    same = FairKernelRidge(n_components=20, sensitive_columns=[4], unfairness=0.02, random_state=0)
    np.testing.assert_allclose(limited.predict(X), same.fit(X, y).predict(X), atol=1e-10)
    assert model.path(alphas=[1.0]).at(unfairness=0.05).alpha == 1.0
