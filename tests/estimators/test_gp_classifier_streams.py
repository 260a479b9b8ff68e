"""FairGPClassifier among containers, chunks, files, pipelines and searches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.metrics import log_loss, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import scalefair
from scalefair import FairGPClassifier
from tests.errors import refused
from tests.estimators.test_classifier_streams import CONTAINERS, LABELS, as_dask, table
from tests.estimators.test_gp_classifier import problem
from tests.models import fit_within
from tests.naive import close

MODEL = FairGPClassifier(
    n_components=15, sensitive_columns=["sex"], eta=0.5, amplitude=1.3, optimizer=None, random_state=0
)
CASES = [
    ("dask", "two"),
    ("dask of unknown lengths", "text"),
    ("parquet", "two"),
    ("polars", "text"),
    ("csv", "integers"),
    ("batches", "integers"),
]


@pytest.mark.parametrize(("container", "kind"), CASES)
def test_every_container_gives_the_same_process(container, kind, tmp_path):
    X, y = table(kind)
    expected = clone(MODEL).fit(X, y)
    given_X, given_y = CONTAINERS[container](X, y, tmp_path)
    model = fit_within({"chunk_rows": 64}, clone(MODEL), given_X, given_y)
    assert model.classes_.tolist() == LABELS[kind]
    close(model.coef_, expected.coef_, 1e-8)
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected.log_marginal_likelihood_value_, rel=1e-10)
    close(np.asarray(model.predict_proba(given_X)), expected.predict_proba(X), 1e-8)
    assert (np.asarray(model.predict(given_X)) == expected.predict(X)).all()
    slopes = model.log_marginal_likelihood(eval_gradient=True)[1]
    close(slopes, expected.log_marginal_likelihood(eval_gradient=True)[1], 1e-7)


@pytest.mark.parametrize("kind", ["two", "text"])
def test_dask_in_dask_out(kind):
    import dask.array as da

    X, y = table(kind)
    dask_X, dask_y = as_dask(X, y)
    model = clone(MODEL).fit(dask_X, dask_y)
    outs = [model.predict(dask_X), model.predict_proba(dask_X), *model.decision_function(dask_X, return_std=True)]
    assert all(isinstance(out, da.Array) for out in outs)
    own = [model.predict(X), model.predict_proba(X), *model.decision_function(X, return_std=True)]
    assert (outs[0].compute() == own[0]).all()
    for out, part in zip(outs[1:], own[1:], strict=True):
        close(out.compute(), part, 1e-10)


@pytest.mark.parametrize("rows", [7, 33, 1000])
def test_chunks_do_not_matter_to_a_search(rows):
    X, s, y = problem()
    model = FairGPClassifier(n_components=15, eta=0.5, random_state=0, tol=1e-4)
    whole = clone(model).fit(X, y, sensitive_features=s)
    chunks = {"chunk_rows": rows, "n_jobs": 2}
    parts = fit_within(chunks, model, X, y, sensitive_features=s)
    close(parts.theta_, whole.theta_, 1e-6)
    close(parts.predict_proba(X), whole.predict_proba(X), 1e-6)


@pytest.mark.parametrize("kind", ["two", "text"])
@pytest.mark.parametrize("feature_map", ["nystroem", "fourier", "linear"])
def test_saved_and_pickled_models_predict_the_same(kind, feature_map, tmp_path):
    X, y = table(kind)
    model = clone(MODEL).set_params(feature_map=feature_map).fit(X, y)
    scalefair.save(model, tmp_path / "m.scalefair")
    for back in (scalefair.load(tmp_path / "m.scalefair"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.predict(X), model.predict(X))
        np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
        assert back.log_marginal_likelihood() == model.log_marginal_likelihood_value_
        with refused("rows"):
            back.log_marginal_likelihood(model.theta_ + 0.1)
        assert repr(back) == repr(model)


def test_metadata_reaches_it_in_a_pipeline():
    X, s, y = problem(90)
    weight = np.linspace(0.5, 1.5, 90)
    plain = FairGPClassifier(n_components=15, amplitude=1.5, optimizer=None, random_state=0)
    scaled = StandardScaler().fit_transform(X)
    expected = clone(plain).fit(scaled, y, sensitive_features=s, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        model = plain.set_fit_request(sensitive_features=True, sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipe = make_pipeline(scaler, model)
        pipe.fit(X, y, sensitive_features=s, sample_weight=weight)
        close(pipe.predict_proba(X), expected.predict_proba(scaled), 1e-10)
        scores = cross_val_score(
            pipe,
            X,
            y,
            cv=3,
            scoring=make_scorer(log_loss, response_method="predict_proba").set_score_request(sample_weight=False),
            params={"sensitive_features": s, "sample_weight": weight},
        )
        model.set_score_request(sample_weight=True)
        grid = GridSearchCV(pipe, {"fairgpclassifier__eta": [0.1, 10.0]}, cv=3)
        grid.fit(X, y, sensitive_features=s, sample_weight=weight)
    assert (scores < 0.69).all()  # better than a coin
    assert np.isfinite(grid.best_score_)


def test_hidden_columns_play_no_part():
    X, y = table("two")
    model = clone(MODEL).set_params(hide_sensitive=True).fit(X, y)
    other = X.assign(sex="unknown")
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(X))
