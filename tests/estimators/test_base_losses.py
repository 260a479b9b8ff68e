"""Base models inside classifiers and regressors of any loss."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from scalefair import BatchSource, FairKernelClassifier, FairKernelRegressor
from scalefair.features.base_model import predictions
from tests.errors import refused
from tests.estimators.test_base import problem

TREES = DecisionTreeClassifier(max_depth=4, min_samples_leaf=10)


def classifier(**parameters):
    options = {
        "n_components": 20,
        "sensitive_columns": [4],
        "sensitive_kernel": "categorical",
        "base_estimator": TREES,
        "random_state": 0,
    }
    return FairKernelClassifier(**(options | parameters))


def test_log_odds_join_the_scores_of_a_classifier():
    X, y = problem()
    label = np.where(y > 0.5, "yes", "no")
    model = classifier(eta=1.0, feature_map="linear").fit(X, label)
    assert list(model.moments_.blocks) == ["phi", "psi", "base", "y"]
    p = model.base_estimator_.predict_proba(X)
    odds = np.log(np.clip(p, 1e-4, 1 - 1e-4)) @ [-1.0, 1.0]
    Phi = np.column_stack([X, X[:, 4:] == np.arange(3), odds])
    np.testing.assert_allclose(model.decision_function(X), Phi @ model.coef_[0] + model.intercept_, rtol=1e-9)


def test_a_classifier_at_eta_0_is_no_worse_than_its_base():
    X, y = problem(1500)
    new, target = problem(3000, seed=1)
    model = classifier(eta=0.0).fit(X, y > 0.5)
    base = model.base_estimator_.predict_proba(new)
    assert log_loss(target > 0.5, model.predict_proba(new)) <= log_loss(target > 0.5, base)


def test_a_limit_holds_with_a_base():
    X, y = problem()
    model = classifier(unfairness=0.02, base_estimator=LogisticRegression()).fit(X, y > 0.5)
    assert model.explained_share_ == pytest.approx(0.02, abs=1e-6)


def test_three_classes():
    X, y = problem()
    label = (y > 0).astype(int) + (y > 1)
    model = classifier(eta=1.0).fit(X, label)
    assert model.moments_.blocks["base"] == 2
    assert model.predict_proba(X).shape == (600, 3)


def test_a_class_that_a_fold_lacks_is_named():
    X, _ = problem(60)
    label = np.zeros(60, int)
    label[:30] = 1
    label[7] = 2
    with refused("fold"):
        classifier(eta=1.0).fit(X, label)


def test_scores_of_other_kinds():
    X, y = problem()
    margin = LinearSVC().fit(X, y > 0.5)
    np.testing.assert_array_equal(predictions(margin, X, "log_odds")[:, 0], margin.decision_function(X))
    certain = predictions(RandomForestClassifier(1).fit(X, y > 0.5), X, "log_odds")
    assert np.abs(certain).max() < 10
    model = classifier(eta=1.0, base_estimator=LinearRegression()).fit(X, y > 0.5)
    assert model.moments_.blocks["base"] == 1


def test_labels_in_batches():
    X, y = problem()
    label = (y > 0.5).astype(float)
    whole = classifier(eta=1.0).fit(X, label)
    streamed = classifier(eta=1.0).fit(BatchSource([(X[:200], label[:200]), (X[200:], label[200:])]), None)
    np.testing.assert_allclose(streamed.decision_function(X), whole.decision_function(X), rtol=1e-6, atol=1e-6)


def test_counts_get_the_log_of_a_mean():
    X, y = problem()
    counts = np.random.default_rng(0).poisson(np.exp(y / 2))
    base = DecisionTreeRegressor(max_depth=3)
    model = FairKernelRegressor(loss="poisson", base_estimator=base, n_components=20, eta=1.0, random_state=0).fit(
        X[:, :4], counts, sensitive_features=X[:, 4]
    )
    h = np.log1p(model.base_estimator_.predict(X[:, :4]))
    assert model.moments_.mean("base")[0] == pytest.approx(h.mean(), abs=0.02)
    assert (model.predict(X[:, :4]) > 0).all()


def test_a_path_warns_of_rows_that_the_base_has_seen():
    X, y = problem()
    model = classifier(eta=1.0).fit(X, y > 0.5)
    with pytest.warns(UserWarning, match="has not seen"):
        path = model.path(X, y > 0.5, etas=[0.0, 1.0])
    assert len(path.table) == 2
    assert clone(model).base_estimator is not TREES
