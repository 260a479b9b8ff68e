"""Propensities ê(x) = E[ψ(s)|x]: cross-fitted, never asked of s, and enough for the optimum."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, StackingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from scalefair import BatchSource, CrossFit, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair._hash import balanced_fold
from scalefair.features.base_model import MAX_GROUPS, ROUNDS, SensitiveTarget, sensitive_model
from scalefair.features.cross_fit import FOLDS, SPLIT
from scalefair.features.exact import Identity
from scalefair.features.trees import Trees
from tests.errors import refused

TREE = DecisionTreeRegressor(max_depth=3)


def problem(n=600, seed=0, groups=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    s = np.clip(np.round(X[:, 0] + rng.normal(size=n)) + 1, 0, groups - 1)
    return X, s.astype(int).astype(str), X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=n)


def fair(base=TREE, **options):
    options = {"n_components": 20, "eta": 1.0, "random_state": 0} | options
    return FairKernelRidge(base_estimator=base, **options)


def test_they_are_out_of_fold_probabilities_of_a_classifier_of_the_groups():
    X, s, y = problem()
    moments = fair(feature_map="linear").fit(X, y, sensitive_features=s).moments_
    fold = balanced_fold(FOLDS, 1, np.arange(len(y)))
    split = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    e = cross_val_predict(model, X, s, cv=split, method="predict_proba")[:, 1:]
    h = cross_val_predict(clone(TREE).set_params(random_state=0), X, y, cv=split)
    np.testing.assert_allclose(moments.mean("base"), np.column_stack([h, e]).mean(axis=0))
    np.testing.assert_allclose(
        moments.covariance("base", "y")[:, 0], np.cov(np.column_stack([h, e, y]).T, bias=True)[-1, :-1]
    )


@pytest.mark.parametrize("options", [{"sensitive_columns": ["s"]}, {}])
def test_a_model_that_sees_s_has_none(options):
    X, s, y = problem()
    frame = pd.DataFrame(X, columns=list("abcd"))
    seen = bool(options)
    model = fair(**options).fit(frame.assign(s=s) if seen else frame, y, sensitive_features=None if seen else s)
    assert model.moments_.blocks["base"] == (1 if seen else 3)
    without = CrossFit(TREE, sensitive_estimator=None)
    assert fair(without).fit(frame, y, sensitive_features=s).moments_.blocks["base"] == 1


def test_numbers_and_many_groups_are_a_few_directions():
    X, _, y = problem()
    age = X[:, :2] + np.random.default_rng(1).normal(size=(600, 2))
    assert fair().fit(X, y, sensitive_features=age).moments_.blocks["base"] == 1 + ROUNDS
    many = np.digitize(age[:, 0], np.linspace(-1, 1, MAX_GROUPS)).astype(str)
    assert fair().fit(X, y, sensitive_features=many).moments_.blocks["base"] > 2


def test_numbers_that_explain_nothing_beyond_chance_need_no_models():
    """As often as two standard errors allow; y depends on s, but nothing that x tells of y does."""
    needed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, s = rng.normal(size=(400, 3)), rng.normal(size=(400, 2))
        model = fair(eta=None, unfairness=0.02).fit(X, X[:, 0] + s[:, 0], sensitive_features=s)
        needed.append(model.moments_.blocks["base"] > 1)
    assert np.mean(needed) <= 0.15


def test_chance_is_that_of_shuffled_rows():
    """Of rows that are shuffled, few functions explain more than chance."""
    rng = np.random.default_rng(0)
    s, h = rng.normal(size=(300, 2)), rng.normal(size=(300, 1)) ** 3
    weight = rng.integers(1, 4, 300).astype(float)
    psi = Identity().fit(s)
    found = []
    for _ in range(400):
        target = SensitiveTarget(psi, rng.permutation(s), weight, np.arange(300))
        found.append(target.explaining(h, h[:, :0]).shape[1])
    # One function, two columns: at most as often as a χ² of 2 degrees is above 2 + 2·2.
    assert 0 < np.mean(found) < 0.08


@pytest.mark.parametrize("streamed", [False, True])
def test_a_split_fits_once_and_the_fair_model_on_rows_that_the_base_has_not_seen(streamed):
    X, _, y = problem(900)
    s = X[:, :1] + np.random.default_rng(1).normal(size=(900, 1))
    base = CrossFit(TREE, fit_on="split")
    given = BatchSource([(X[:500], y[:500], s[:500]), (X[500:], y[500:], s[500:])]) if streamed else X
    rest = (None, {}) if streamed else (y, {"sensitive_features": s})
    model = fair(base, feature_map="linear").fit(given, rest[0], **rest[1])
    unseen = balanced_fold(SPLIT, 3, np.arange(900)) == 0
    tree = clone(TREE).set_params(random_state=0).fit(X[~unseen], y[~unseen])
    np.testing.assert_array_equal(model.base_estimator_.predict(X), tree.predict(X))
    assert model.n_base_samples_ == np.sum(~unseen)
    assert model.moments_.weight == np.sum(unseen)
    np.testing.assert_allclose(model.moments_.mean("base")[0], tree.predict(X[unseen]).mean())
    assert model.moments_.blocks["base"] > 1
    groups = fair(base).fit(X, y, sensitive_features=np.digitize(s[:, 0], [0]).astype(str))
    assert groups.moments_.blocks["base"] == 2


def test_a_limit_holds_on_new_rows_with_one_fit():
    """All rows that judge are new to the base model, whose errors are therefore those of new rows."""
    rng, shares = np.random.default_rng(7), []
    trees = CrossFit(HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=8), fit_on="split")
    for _ in range(8):
        X = rng.normal(size=(7000, 3))
        s = (rng.random(7000) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
        y = X[:, 0] + X[:, 1] ** 2 + 0.5 * s + rng.normal(size=7000)
        model = FairKernelRidgeCV(base_estimator=trees, n_components=20, unfairness=0.02, random_state=0)
        f = model.fit(X[:2000], y[:2000], sensitive_features=s[:2000].astype(str)).predict(X[2000:])
        shares.append(np.corrcoef(f, s[2000:])[0, 1] ** 2 if np.ptp(f) else 0.0)
    assert np.mean(shares) < 0.02


def test_a_fitted_base_model_stays_as_it_is():
    X, s, y = problem()
    base = LinearRegression().fit(X, y)
    with pytest.warns(UserWarning, match="LinearRegression"):
        model = fair(base).fit(X, y, sensitive_features=s)
    assert model.base_estimator_ is base
    assert model.n_base_samples_ == 0
    assert model.moments_.blocks["base"] == 3


def test_weights_count_and_rows_of_weight_zero_do_not():
    X, s, y = problem()
    weight = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    base = CrossFit(LinearRegression(), sensitive_estimator=DecisionTreeClassifier(max_depth=2))
    model = fair(base).fit(X, y, sensitive_features=s, sample_weight=weight)
    other = np.where(weight == 0, "nobody else", s.astype(object))
    same = fair(base).fit(X, np.where(weight == 0, 99, y), sensitive_features=other, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), same.predict(X), rtol=1e-8)


class Known(RegressorMixin, BaseEstimator):
    """A model that knows the truth."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return X[:, 1]


def test_the_known_optimum_is_reached_with_boosted_trees():
    """f = a(h − c·e): with h = E[y|x] and e = P(s|x) known, the best f at a share is in a line."""
    rng = np.random.default_rng(4)

    def draw(n):
        X = rng.normal(size=(n, 3))
        e = 1 / (1 + np.exp(-2 * np.sin(2 * X[:, 0])))
        s = (rng.random(n) < e).astype(int)
        h = X[:, 1] + 1.5 * np.sin(2 * X[:, 0]) + np.abs(X[:, 2])
        return X, s, h, e, h + rng.normal(size=n)

    def share(f, s):
        return np.corrcoef(f, s)[0, 1] ** 2

    X, s, *_, y = draw(20_000)
    trees = HistGradientBoostingRegressor(max_iter=100, learning_rate=0.1, max_leaf_nodes=8)
    new, s_new, h_new, e_new, y_new = draw(40_000)
    candidates = [h_new - c * e_new for c in np.linspace(0, 6, 600)]
    for limit in (0.005, 0.02):
        model = fair(trees, n_components=50, eta=None, unfairness=limit, alpha=1e-4)
        f = model.fit(X, y, sensitive_features=s.astype(str)).predict(new)
        same = min(candidates, key=lambda g: abs(share(g, s_new) - share(f, s_new)))
        line = np.polyfit(same, y_new, 1)
        best = np.sqrt(np.mean((y_new - np.polyval(line, same)) ** 2))
        assert np.sqrt(np.mean((y_new - f) ** 2)) < 1.01 * best


@pytest.mark.parametrize(
    ("base", "of_groups", "kind"),
    [
        (HistGradientBoostingRegressor(max_iter=7), True, HistGradientBoostingClassifier),
        (DecisionTreeClassifier(), True, DecisionTreeClassifier),
        (DecisionTreeClassifier(), False, DecisionTreeRegressor),
        (LinearRegression(), True, LogisticRegression),
        (LogisticRegression(), False, Ridge),
        (Known(), True, HistGradientBoostingClassifier),
        (Trees(), True, Trees),
    ],
)
def test_models_of_s_are_of_the_family_of_the_base_model(base, of_groups, kind):
    model = sensitive_model(base, of_groups=of_groups)
    assert type(model) is kind
    assert model.get_params().get("max_iter") in (None, 7, 100, 1000)
    piped = sensitive_model(make_pipeline(StandardScaler(), base), of_groups=of_groups)
    assert type(piped[-1]) is kind
    assert sensitive_model(HistGradientBoostingRegressor(max_iter=7), of_groups=True).max_iter == 7


@pytest.mark.parametrize("bad", ["trees", 3, DecisionTreeClassifier])
def test_what_is_no_model_of_s_is_refused(bad):
    X, s, y = problem(100)
    with refused("sensitive_estimator", error=TypeError):
        fair(CrossFit(TREE, sensitive_estimator=bad)).fit(X, y, sensitive_features=s)


def test_a_model_of_s_that_cannot_be_fitted_is_named():
    X, s, y = problem(100)
    bad = make_pipeline(StandardScaler(), SVR(C=-1.0))
    with refused("sensitive_estimator", "Pipeline"):
        fair(CrossFit(TREE, sensitive_estimator=bad)).fit(X, y, sensitive_features=s)


def test_an_ordinary_fit_without_attributes_needs_none():
    X, _, y = problem(100)
    assert FairRidge(base_estimator=TREE, eta=0).fit(X, y).moments_.blocks["base"] == 1


def test_without_a_base_model_smooth_functions_of_ridges_join_the_kernel_on_f():
    X, s, y = problem()
    model = fair(None, output_kernel="rbf", alpha=1e-3).fit(X, y, sensitive_features=s)
    assert list(model.moments_.blocks) == ["phi", "psi", "ridge_curve", "y"]
    (curve,) = model._design.beside
    phi = model.phi_.transform(X)
    C = np.cov(phi.T, bias=True) + model.alpha * np.eye(phi.shape[1])
    h = phi @ np.linalg.solve(C, (phi - phi.mean(axis=0)).T @ y / len(y))
    z = model.phi_.raw(X) @ curve.raw_weights
    np.testing.assert_allclose(z[:, 0], h, rtol=1e-6, atol=1e-8)
    # Columns of ê: as many as the groups leave free, each explained by functions of s.
    onehot = (s[:, None] == np.unique(s)).astype(float)
    assert np.linalg.matrix_rank(np.cov(z.T), tol=1e-8) == onehot.shape[1]
    linear = FairRidge(eta=1.0, output_kernel="rbf").fit(X, y, sensitive_features=s)
    assert "ridge_curve" not in linear.moments_.blocks  # a linear model stays linear
    seen = fair(None, output_kernel="rbf", sensitive_columns=[4])
    seen.fit(np.column_stack([X, s.astype(float)]), y)
    assert "ridge_curve" not in seen.moments_.blocks


def test_units_of_s_and_a_common_factor_of_weights_change_nothing():
    X, _, y = problem()
    s = X[:, :2] @ [[1.0, 0.2], [-0.4, 1.0]] + np.random.default_rng(5).normal(size=(600, 2))

    def predictions(s, weight):
        model = fair(sensitive_kernel="linear", eta=None, unfairness=0.02)
        return model.fit(X, y, sensitive_features=s, sample_weight=weight).predict(X)

    f = predictions(s, np.ones(600))
    np.testing.assert_allclose(predictions(s * [1e-4, 1e3], np.ones(600)), f, atol=1e-6)
    np.testing.assert_allclose(predictions(s, np.full(600, 100.0)), f, atol=1e-6)


def test_a_limit_holds_on_new_rows_with_s_hidden():
    rng = np.random.default_rng(6)

    def draw(n):
        X = rng.normal(size=(n, 4))
        s = (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
        return X, s.astype(str), X[:, 0] + X[:, 1] ** 2 + 0.5 * s + rng.normal(size=n)

    X, s, y = draw(4000)
    trees = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=8)
    model = FairKernelRidgeCV(base_estimator=trees, n_components=20, unfairness=0.02, random_state=0).fit(
        X, y, sensitive_features=s
    )
    new, s_new, _ = draw(40_000)
    f, group = model.predict(new), s_new == "1"
    share = np.var(np.where(group, f[group].mean(), f[~group].mean())) / np.var(f)
    assert share < 0.02 + 2 * model.explained_share_cv_error_ + 0.004


def test_a_stacked_base_model_has_trees_for_s():
    """Its sibling cannot be made without the models that it stacks."""
    base = StackingRegressor([("tree", TREE)])
    assert isinstance(sensitive_model(base, of_groups=True), HistGradientBoostingClassifier)
    assert isinstance(sensitive_model(base, of_groups=False), StackingRegressor)
