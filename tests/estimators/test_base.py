"""Any model inside: its cross-fitted prediction joins the features, and the closed form holds."""

import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from scalefair import BatchSource, CrossFit, FairKernelRidge, FairKernelRidgeCV, FairRidge, load, save
from scalefair._hash import balanced_fold
from scalefair.features.cross_fit import FOLDS
from tests.errors import refused
from tests.models import fit_within

TREES = DecisionTreeRegressor(max_depth=5, min_samples_leaf=10)


def problem(n=600, seed=0):
    """Columns x0…x3 and the group g, which y depends on directly and through x0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    g = rng.integers(0, 3, n)
    X[:, 0] += 0.7 * g
    y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.5 * g + 0.3 * rng.normal(size=n)
    return np.column_stack([X, g]), y


def table(n=600, seed=0):
    X, y = problem(n, seed)
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    return frame.assign(group=np.array(["u", "v", "w"])[X[:, 4].astype(int)]), y


def fair(**parameters):
    options = {
        "n_components": 20,
        "sensitive_columns": [4],
        "sensitive_kernel": "categorical",
        "base_estimator": TREES,
        "random_state": 0,
    }
    return FairKernelRidge(**(options | parameters))


# Without a ridge the coefficients are hardly determined; the predictions of the theorem are.
@pytest.mark.filterwarnings("ignore:.*digits of the coefficients")
@pytest.mark.parametrize("eta", [0.3, 5.0, np.inf])
def test_theorem_the_fit_is_the_ordinary_one_with_its_group_means_shrunk(eta):
    """One-hot ψ in Φ, no ridge: f = h₀ − η/(1+η)(E[h₀|s] − E h₀), h₀ the fit at η = 0."""
    X, y = problem()
    options = {"alpha": {"phi": 1e-10, "psi": 1e-13, "base": 1e-13}, "eps": 1e-12}
    options |= {"feature_map": "linear"}
    h = fair(eta=0.0, **options).fit(X, y)
    f = fair(eta=eta, **options).fit(X, y)
    groups = X[:, 4].astype(int)
    Phi = training_features(h, X, y)
    before, after = Phi @ h.coef_ + h.intercept_, Phi @ f.coef_ + f.intercept_
    means = np.array([before[groups == g].mean() for g in range(3)])
    shrink = 1.0 if np.isinf(eta) else eta / (1 + eta)
    np.testing.assert_allclose(after, before - shrink * (means[groups] - before.mean()), atol=1e-8)


def training_features(model, X, y):
    """Rows of Φ = [x, one-hot of the group, out-of-fold ĥ], made the slow and obvious way."""
    fold = balanced_fold(FOLDS, 1, np.arange(len(y)))
    base = clone(model.base_estimator).set_params(random_state=0)
    h = np.empty(len(y))
    for k in range(FOLDS):
        h[fold == k] = clone(base).fit(X[fold != k], y[fold != k]).predict(X[fold == k])
    onehot = (X[:, 4:] == np.arange(3)).astype(float)
    return np.column_stack([X, onehot, h])


@pytest.mark.parametrize("hide", [False, True])
def test_moments_are_those_of_out_of_fold_predictions(hide):
    X, y = problem()
    model = fair(eta=1.0, hide_sensitive=hide, feature_map="linear").fit(X, y)
    fold = balanced_fold(FOLDS, 1, np.arange(len(y)))
    seen = X[:, :4] if hide else X
    split = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
    h = cross_val_predict(clone(TREES).set_params(random_state=0), seen, y, cv=split)
    found = model.moments_
    assert list(found.blocks) == ["phi", "psi", "base", "y"]
    np.testing.assert_allclose(found.mean("base")[0], h.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        found.covariance("base", ("phi", "y"))[0], np.cov(h, np.column_stack([seen, y]).T, bias=True)[0, 1:], rtol=1e-9
    )


def test_predict_is_the_sum_of_the_blocks_with_the_model_of_all_rows():
    X, y = problem()
    new, _ = problem(50, seed=1)
    model = fair(eta=1.0, feature_map="linear").fit(X, y)
    assert model.n_base_samples_ == len(y)
    h = clone(TREES).set_params(random_state=0).fit(X, y).predict(new)
    np.testing.assert_allclose(model.base_estimator_.predict(new), h)
    Phi = np.column_stack([new, new[:, 4:] == np.arange(3), h])
    np.testing.assert_allclose(model.predict(new), Phi @ model.coef_ + model.intercept_, rtol=1e-10)


class Memory(RegressorMixin, BaseEstimator):
    """Knows every row of its fit by heart, and says 0 for all others."""

    def fit(self, X, y):
        self.known_ = {row.tobytes(): value for row, value in zip(X, y, strict=True)}
        return self

    def predict(self, X):
        return np.array([self.known_.get(row.tobytes(), row[0]) for row in X])


def test_a_model_that_memorises_does_not_leak():
    X, y = problem()
    model = fair(eta=0.0, base_estimator=Memory()).fit(X, y)
    # Out of fold it can only say x0: its column of the moments is that of x0.
    np.testing.assert_allclose(model.moments_.covariance("base", "base")[0, 0], X[:, 0].var(), rtol=1e-12)
    new, target = problem(2000, seed=1)
    plain = fair(eta=0.0, base_estimator=None).fit(X, y)
    assert np.mean((model.predict(new) - target) ** 2) < 1.1 * np.mean((plain.predict(new) - target) ** 2)


@pytest.mark.parametrize("estimator", ["ridge", "kernel", "cv"])
def test_eta_0_is_never_worse_than_the_base_by_more_than_one_error(estimator):
    X, y = problem(1500)
    new, target = problem(3000, seed=1)
    options = {"sensitive_columns": [4], "base_estimator": TREES, "random_state": 0}
    model = {
        "ridge": FairRidge(eta=0.0, **options),
        "kernel": FairKernelRidge(eta=0.0, n_components=30, **options),
        "cv": FairKernelRidgeCV(etas=[0.0], n_components=30, **options),
    }[estimator].fit(X, y)
    ours = (model.predict(new) - target) ** 2
    base = (model.base_estimator_.predict(new) - target) ** 2
    assert ours.mean() <= base.mean() + (ours - base).std() / np.sqrt(len(target))


@pytest.mark.parametrize("sizes", [[600], [1, 99, 500], [250, 350]])
def test_chunking_does_not_matter(sizes):
    X, y = problem()
    ends = np.cumsum([0, *sizes])
    batches = [(X[a:b], y[a:b]) for a, b in pairwise(ends)]
    whole = fair(eta=1.0).fit(X, y)
    chunks = {"n_jobs": 2, "chunk_rows": 64}
    streamed = fit_within(chunks, fair(eta=1.0), BatchSource(batches), None)
    assert streamed.n_base_samples_ == 600
    np.testing.assert_allclose(streamed.predict(X), whole.predict(X), rtol=1e-8, atol=1e-10)


def test_a_stream_is_sampled_for_the_base_model():
    X, y = problem(900)
    batches = BatchSource([(X[:400], y[:400]), (X[400:], y[400:])])
    model = fair(eta=1.0, base_estimator=CrossFit(TREES, sample_size=300)).fit(batches, None)
    assert model.n_base_samples_ == 300
    assert model.n_samples_seen_ == 900


def test_cross_validation_uses_its_own_folds():
    X, y = problem(300)
    fold = np.arange(300) // 100
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    model = FairKernelRidgeCV(
        cv=splits, n_components=10, base_estimator=TREES, sensitive_columns=[4], random_state=0
    ).fit(X, y)
    h = cross_val_predict(clone(TREES).set_params(random_state=0), X, y, cv=splits)
    np.testing.assert_allclose(model.moments_.mean("base"), h.mean(), rtol=1e-12)
    assert model.path_.at(alpha=1e-3, eta=1.0).predict(X).shape == (300,)


def test_weight_zero_is_no_row_and_weights_reach_the_base():
    X, y = problem(400)
    weight = np.random.default_rng(0).integers(0, 3, 400).astype(float)
    model = fair(base_estimator=LinearRegression(), eta=1.0).fit(X, y, sample_weight=weight)
    other = LinearRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.base_estimator_.coef_, other.coef_)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        fair(base_estimator=KNeighborsRegressor(), eta=1.0).fit(X, y, sample_weight=weight)
    piped = make_pipeline(StandardScaler(), LinearRegression())
    model = fair(base_estimator=piped, eta=1.0).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.base_estimator_.predict(X), other.predict(X), atol=1e-10)


def test_frames_reach_pipelines_as_they_are():
    X, y = table()
    base = make_pipeline(
        make_column_transformer((OneHotEncoder(sparse_output=False), ["group"]), remainder="passthrough"), TREES
    )
    model = fair(base_estimator=base, sensitive_columns=["group"], eta=1.0).fit(X, y)
    assert list(model.base_estimator_.feature_names_in_) == ["a", "b", "c", "d", "group"]
    hidden = fair(base_estimator=TREES, sensitive_columns=["group"], eta=1.0, hide_sensitive=True).fit(X, y)
    assert list(hidden.base_estimator_.feature_names_in_) == ["a", "b", "c", "d"]
    assert hidden._design.features == ("phi", "base")
    np.testing.assert_allclose(hidden.predict(X), hidden.predict(X.assign(group="v")))


def test_a_frame_of_numbers_keeps_its_names():
    X, y = table()
    numbers = X.drop(columns="group")
    base = make_pipeline(make_column_transformer((StandardScaler(), ["a", "c"])), TREES)
    model = FairRidge(base_estimator=base, eta=1.0, random_state=0)
    model.fit(numbers, y, sensitive_features=X["group"])
    assert np.isfinite(model.predict(numbers)).all()
    assert model._design.features == ("phi", "base")


def test_a_classifier_gives_its_probability():
    X, y = problem()
    label = (y > 0.5).astype(float)
    model = fair(base_estimator=LogisticRegression(), eta=0.0).fit(X, label)
    h = model.base_estimator_.predict_proba(X)[:, 1]
    assert model.moments_.mean("base")[0] == pytest.approx(h.mean(), abs=0.01)


def test_several_targets():
    X, y = problem()
    Y = np.column_stack([y, -y])
    model = fair(base_estimator=LinearRegression(), eta=1.0).fit(X, Y)
    assert model.moments_.blocks["base"] == 2
    np.testing.assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1], atol=1e-8)


def test_partial_fit_takes_the_base_model_of_the_first_batch():
    X, y = problem()
    model = fair(eta=1.0).partial_fit(X[:400], y[:400])
    before = model.base_estimator_.predict(X[:5])
    model.partial_fit(X[400:], y[400:])
    np.testing.assert_array_equal(model.base_estimator_.predict(X[:5]), before)
    assert model.n_samples_seen_ == 600


def test_clone_pickle_pipeline_and_search():
    X, y = problem(300)
    model = fair(eta=1.0, base_estimator=DecisionTreeRegressor(max_depth=3))
    fitted = clone(model).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), clone(model).fit(X, y).predict(X))
    search = GridSearchCV(model, {"base_estimator__max_depth": [1, 4]}, cv=2).fit(X, y)
    assert search.best_params_["base_estimator__max_depth"] == 4
    piped = make_pipeline(StandardScaler(), FairRidge(base_estimator=TREES, eta=0.0)).fit(X, y)
    assert piped.score(X, y) > 0.5


def test_saving_needs_a_model_of_ours(tmp_path):
    X, y = problem(300)
    with refused("DecisionTree", "joblib", "skops"):
        save(fair(eta=1.0).fit(X, y), tmp_path / "model")
    ours = FairRidge(eta=0.0, random_state=0)
    model = fair(eta=1.0, base_estimator=ours).fit(X, y)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))


def test_a_fitted_model_is_used_as_it_is():
    X, y = problem()
    old, target = problem(seed=5)
    base = clone(TREES).fit(old, target)
    with pytest.warns(UserWarning, match="already fitted") as caught:
        model = fair(eta=1.0, base_estimator=base).fit(X, y)
    assert "has seen them" not in str(caught[0].message)
    assert model.base_estimator_ is base
    assert model.n_base_samples_ == 0
    np.testing.assert_allclose(model.moments_.mean("base"), base.predict(X).mean())
    kept = clone(fair(eta=1.0, base_estimator=FrozenEstimator(base)))
    with pytest.warns(UserWarning, match="already fitted"):
        kept.fit(X, y)
    np.testing.assert_array_equal(kept.predict(X), model.predict(X))


@pytest.mark.parametrize("base", [DecisionTreeRegressor(), RandomForestRegressor(20), Memory()])
def test_a_fitted_model_that_has_seen_the_rows_is_named(base):
    X, y = problem()
    with pytest.warns(UserWarning, match="most likely it was fitted on them"):
        fair(eta=1.0, base_estimator=base.fit(X, y)).fit(X, y)
