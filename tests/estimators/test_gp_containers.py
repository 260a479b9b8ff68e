"""FairGPRegressor among files, clusters, pipelines, callbacks and time."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import scalefair
from scalefair import FairGPRegressor
from tests.data.test_containers import in_container, parts, table  # noqa: F401
from tests.errors import refused
from tests.estimators.test_gp import problem
from tests.models import fit_within
from tests.naive import close
from tests.solve.test_solver_choice import Recorder

pytestmark = pytest.mark.filterwarnings("ignore:the search for length scales stopped")

MODEL = FairGPRegressor(n_components=20, eta=1.0, length_scale="standardized", max_iter=3, tol=1e-2, random_state=0)
CONTAINERS = ["polars", "parquet", "dask", "dask of unknown lengths", "batches"]


def fit(model, X, y, s, w=None, **options):
    return fit_within(options, clone(model), X, y, sensitive_features=s, sample_weight=w)


@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_in_any_container(container, table, tmp_path):  # noqa: F811
    reference = fit(MODEL, *parts(table))
    X, y, s, w = in_container(container, table, tmp_path)
    model = fit(MODEL, X, y, s, w)
    assert model.n_evaluations_ == reference.n_evaluations_ > 2
    np.testing.assert_allclose(model.theta_, reference.theta_, atol=1e-6)
    plain = parts(table)[0]
    expected = reference.predict(plain, return_std=True)
    found = model.predict(X, return_std=True)
    if container.startswith("dask"):
        import dask.array as da

        assert all(isinstance(part, da.Array) for part in found)
        found = [part.compute() for part in found]
    for part, target in zip(found, expected, strict=True):
        close(part, target, 1e-5)
    assert model.log_marginal_likelihood_value_ == pytest.approx(reference.log_marginal_likelihood_value_, rel=1e-9)
    assert len(model.relevance()) == len(model.kernel_.length_scale)


def test_dask_in_dask_out():
    da = pytest.importorskip("dask.array")
    X, s, y = problem(90, outputs=2)
    lazy = [da.from_array(part, chunks=(20, *part.shape[1:])) for part in (X, y, s)]
    model, reference = fit(MODEL, *lazy), fit(MODEL, X, y, s)
    for noise in (False, True):
        f, std = model.predict(lazy[0], return_std=True, include_noise=noise)
        assert isinstance(f, da.Array)
        assert isinstance(std, da.Array)
        assert f.shape == std.shape == (90, 2)
        expected = reference.predict(X, return_std=True, include_noise=noise)
        close(f.compute(), expected[0], 1e-7)
        close(std.compute(), expected[1], 1e-7)
    close(model.predict(lazy[0], return_cov=True)[1], reference.predict(X, return_cov=True)[1], 1e-7)
    close(model.sample_y(lazy[0], 2), reference.sample_y(X, 2), 1e-3)


def test_chunks_and_threads_do_not_matter():
    X, s, y = problem(90)
    reference = fit(MODEL, X, y, s)
    for params in ({"chunk_rows": 7, "n_jobs": 2}, {"chunk_rows": 90, "n_jobs": 1}):
        model = fit(MODEL, X, y, s, **params)
        np.testing.assert_allclose(model.theta_, reference.theta_, atol=1e-7)
        close(model.predict(X), reference.predict(X), 1e-7)


# Files


@pytest.mark.parametrize("kind", ["nystroem", "fourier", "exact", "linear"])
def test_a_saved_model_says_the_same_to_the_bit(kind, tmp_path):
    X, s, y = problem(60)
    model = fit(clone(MODEL).set_params(feature_map=kind), X, y, s)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    again = pickle.loads(pickle.dumps(model))
    for other in (back, again):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
        for options in ({"return_std": True}, {"return_cov": True, "include_noise": True}):
            pairs = (one.predict(X, **options)[1] for one in (other, model))
            np.testing.assert_array_equal(*pairs)
        np.testing.assert_array_equal(other.sample_prior(X, 2), model.sample_prior(X, 2))
        theta = model.theta_ + np.r_[np.zeros(len(model.theta_) - 2), 0.1, 0.2]
        assert other.log_marginal_likelihood(theta) == model.log_marginal_likelihood(theta)
        assert other.kernel_ == model.kernel_
    assert repr(back) == repr(model)


def test_a_saved_model_has_no_rows():
    X, s, y = problem(60)
    model = pickle.loads(pickle.dumps(fit(MODEL, X, y, s)))
    with refused("rows"):
        model.log_marginal_likelihood(eval_gradient=True)
    assert len(pickle.dumps(model)) < 200_000


# scikit-learn


def test_pipelines_and_searches_route_the_sensitive_features():
    X, s, y = problem(60)
    weight = np.arange(60) % 3 * 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        model = clone(MODEL).set_params(noise=0.1)
        asks = clone(model).set_fit_request(sensitive_features=True, sample_weight=True)
        asks.set_score_request(sample_weight=False).set_predict_request(return_std=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = Pipeline([("scale", scaler), ("fair", asks)])
        pipeline.fit(X, y, sensitive_features=s, sample_weight=weight)
        direct = fit(model, scaler.fit_transform(X), y, s, weight)
        np.testing.assert_array_equal(pipeline.predict(X), direct.predict(scaler.transform(X)))
        deviations = pipeline.predict(X, return_std=True)[1]
        np.testing.assert_array_equal(deviations, direct.predict(scaler.transform(X), return_std=True)[1])
        search = GridSearchCV(asks, {"unfairness": [0.01, 0.3], "eta": [None]}, cv=KFold(2), error_score="raise")
        search.fit(X, y, sensitive_features=s, sample_weight=weight)
    best = search.best_estimator_
    assert best.explained_share_ <= best.unfairness + 1e-6


def test_sensitive_columns_are_inputs_unless_they_are_hidden():
    X, s, y = problem(60)
    joined = np.column_stack([X, s])
    seen = clone(MODEL).set_params(sensitive_columns=[3]).fit(joined, y)
    close(seen.predict(joined), fit(MODEL, joined, y, s).predict(joined), 1e-10)
    hidden = clone(MODEL).set_params(sensitive_columns=[3], hide_sensitive=True).fit(joined, y)
    close(hidden.predict(joined), fit(MODEL, X, y, s).predict(X), 1e-10)
    assert hidden.relevance()["input"].tolist() == ["x0", "x1", "x2"]


def test_callbacks_hear_of_every_evaluation():
    X, s, y = problem(60)
    model, heard = clone(MODEL), Recorder()
    model.set_callbacks(heard)
    model.fit(X, y, sensitive_features=s)
    assert heard.begun.count("evaluations") == model.n_evaluations_ + 1
    assert heard.begun.count("chunks") >= 2 * model.n_evaluations_
    told = len(heard.begun)
    model.log_marginal_likelihood(eval_gradient=True)
    assert len(heard.begun) == told


@pytest.mark.parametrize("kind", ["nystroem", "exact"])
def test_parameters_set_after_the_fit_change_nothing(kind):
    X, s, y = problem(60)
    model = fit(clone(MODEL).set_params(feature_map=kind), X, y, s)
    theta = model.theta_ + 0.1
    before = model.sample_prior(X, 2), *model.log_marginal_likelihood(theta, True)
    model.set_params(penalty="hsic", eps=0.5, eta=7.0, noise=2.0, feature_map="linear")
    after = model.sample_prior(X, 2), *model.log_marginal_likelihood(theta, True)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
