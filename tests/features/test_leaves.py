"""Feature maps from models: leaves of trees and any transformer."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from scalefair import FairKernelRidge
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity, LeafMap, OneHot, TransformerMap
from scalefair.moments import Folds, accumulate
from tests.errors import refused
from tests.estimators.test_base import problem, table

X, y = problem(400)
FOREST = RandomForestRegressor(7, max_depth=4, random_state=0).fit(X, y)
ENSEMBLES = [
    FOREST,
    ExtraTreesRegressor(5, max_depth=3, random_state=0).fit(X, y),
    GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, (y > 0) + (y > 1)),
    RandomTreesEmbedding(4, random_state=0).fit(X),
]


@pytest.mark.parametrize("ensemble", ENSEMBLES, ids=lambda e: type(e).__name__)
def test_rows_of_a_leaf_share_a_feature(ensemble):
    phi = LeafMap(ensemble).fit(X[:50])
    leaves = ensemble.apply(X).reshape(len(X), -1)
    Phi = phi.transform(X)
    assert Phi.shape == (len(X), phi.n_raw_)
    np.testing.assert_array_equal(Phi.sum(axis=1), leaves.shape[1])
    shared = (leaves[:, None, :] == leaves[None, :, :]).sum(axis=2)
    np.testing.assert_array_equal(Phi @ Phi.T, shared)


class Boosted(BaseEstimator):
    """As LightGBM: leaves by `predict`, trees not open."""

    booster_ = n_features_in_ = 5

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X, pred_leaf=False):
        assert pred_leaf
        return np.stack([X[:, 4], 10 * (X[:, 0] > 0)], axis=1)


def test_leaves_that_fit_has_not_seen_have_no_feature():
    few = X[(X[:, 4] < 2)][:30]
    phi = LeafMap(Boosted()).fit(few)
    assert phi.n_raw_ == 4
    Phi = phi.transform(X)
    np.testing.assert_array_equal(Phi.sum(axis=1), 1 + (X[:, 4] < 2))


@pytest.mark.parametrize("weight", [None, np.arange(400) % 3 / 2])
@pytest.mark.parametrize("folds", [Folds(1, None), Folds(3, lambda row: row % 3)])
def test_moments_without_rows_are_those_of_the_rows(weight, folds):
    phi, psi = LeafMap(FOREST).fit(X), OneHot().fit(X[:, 4:])
    source = ArraySource(X, X[:, 4:], y[:, None], weight, n_threads=2)
    coded = accumulate(source, Design(phi, psi), folds=folds, rows=37)
    dense = ArraySource(phi.transform(X), X[:, 4:], y[:, None], weight)
    written = accumulate(dense, Design(Identity().fit(phi.transform(X)), psi), folds=folds)
    for one, other in zip(coded, written, strict=True):
        assert one.blocks == other.blocks
        np.testing.assert_allclose(one.scatter, other.scatter, atol=1e-11)
        np.testing.assert_allclose(one.mean("phi", "y"), other.mean("phi", "y"), atol=1e-13)


@pytest.mark.parametrize(
    "phi",
    [LeafMap(FOREST), TransformerMap(PolynomialFeatures(2)), TransformerMap(SplineTransformer())],
    ids=["leaves", "polynomials", "splines"],
)
def test_estimators_take_them(phi):
    model = FairKernelRidge(feature_map=phi, eta=2.0, alpha=1e-3, random_state=0)
    model = clone(model).fit(X, y, sensitive_features=X[:, 4].astype(str))
    Phi = phi.fit(X).transform(X)
    same = FairKernelRidge(feature_map="linear", eta=2.0, alpha=1e-3)
    same.fit(Phi, y, sensitive_features=X[:, 4].astype(str))
    np.testing.assert_allclose(model.predict(X), same.predict(Phi), atol=1e-8)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_copies_keep_a_fitted_model():
    assert clone(LeafMap(FOREST)).ensemble is FOREST
    scaler = StandardScaler().fit(X)
    assert clone(TransformerMap(scaler)).transformer is scaler
    assert TransformerMap(scaler).fit(X[:5]).transformer_ is scaler
    fresh = TransformerMap(make_pipeline(StandardScaler(), PCA(2)))
    assert clone(fresh).fit(X).n_raw_ == 2


def test_moments_of_other_trees_do_not_add_up():
    other = RandomForestRegressor(7, max_depth=4, random_state=1).fit(X, y)
    keys = [Design(LeafMap(forest).fit(X)).key for forest in (FOREST, other, FOREST)]
    assert keys[0] == keys[2] != keys[1]


def test_an_ensemble_of_a_frame_hears_names():
    frame, target = table(100)
    numbers = frame.drop(columns="group")
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(numbers, target)
    model = FairKernelRidge(feature_map=LeafMap(forest), eta=0.0).fit(numbers, target)
    assert model.predict(numbers).shape == (100,)


class Unfitted(BaseEstimator):
    """As LightGBM before `fit`: its booster is an attribute that raises."""

    def fit(self, X, y):
        return self

    @property
    def booster_(self):
        raise AttributeError("no booster")


def test_bad_models_are_named():
    with refused("HistGradientBoostingRegressor", "base_estimator", error=TypeError):
        LeafMap(HistGradientBoostingRegressor(max_iter=1).fit(X, y)).fit(X)
    with refused("RandomForestRegressor", error=NotFittedError):
        LeafMap(RandomForestRegressor()).fit(X)
    with refused("Unfitted", error=NotFittedError):
        LeafMap(Unfitted()).fit(X)
    with refused("RandomForestRegressor", "5 columns", "X has 2", error=ValueError):
        LeafMap(FOREST).fit(X[:, :2])
    with refused("transformer=RandomForestRegressor", error=TypeError):
        TransformerMap(FOREST).fit(X)
