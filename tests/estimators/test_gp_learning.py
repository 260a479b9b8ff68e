"""FairGPRegressor learns: gradients, optima, limits, bounds, and what it says of bad input."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from scalefair import FairGPRegressor
from scalefair.features.nystroem import MovingNystroem
from scalefair.maps import Nystroem, RandomFourier
from scalefair.solve.gp.evidence import maximise
from tests import naive
from tests.errors import named, refused
from tests.estimators.test_gp import ARD, PENALTIES, given, problem
from tests.naive import close
from tests.solve.test_gaussian import central


def learner(**params):
    small = {"n_components": 20, "random_state": 0, "length_scale": "standardized"}
    return FairGPRegressor(**{**small, **params})


def fit(model, X, y, s=None):
    return model.fit(X, y) if s is None else model.fit(X, y, sensitive_features=s)


# Gradients


@pytest.mark.parametrize("container", ["numpy", "dask"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("kind", ["nystroem", "fourier", "exact", "linear"])
def test_the_gradient_equals_central_differences(kind, penalty, container):
    X, s, y = problem(60, outputs=2)
    if container == "dask":
        X, s, y = (da.from_array(a, chunks=(17, *a.shape[1:])) for a in (X, s, y))
    with dask.config.set(scheduler="synchronous"):
        model = given(feature_map=kind, n_components=12, penalty=penalty, eta=3.0)
        model.fit(X, y, sensitive_features=s)
        theta = model.theta_ + 0.1
        value, found = model.log_marginal_likelihood(theta, eval_gradient=True)
        expected = central(model.log_marginal_likelihood, theta, step=1e-3)
    assert len(theta) == (2 if kind == "linear" else 5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    assert value == pytest.approx(model.log_marginal_likelihood(theta), rel=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52"])
def test_the_gradient_in_the_landmarks_equals_central_differences(kernel):
    X, s, y = problem(60)
    phi = MovingNystroem(kernel, ARD, n_components=5, whitening="cholesky", cutoff=1e-8, random_state=0).fit(X)
    model = learner(feature_map=phi, eta=2.0, max_iter=1, noise=0.3, amplitude=1.2)
    with warnings.catch_warnings(action="ignore"):
        evidence = model.fit(X, y, sensitive_features=s)._evidence
    place = phi.hyperparameters + 0.05
    _, found, _ = evidence(place, 2.0)
    expected = central(lambda at: evidence(at, 2.0)[0], place, step=1e-3)
    assert found.shape == (3 + 15,)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_point_gradient_of_kernels_that_have_none():
    X, _, y = problem(30)
    with refused("Laplace"):
        learner(kernel="laplace", learn_landmarks=True, eta=0).fit(X, y)


# Optima


def test_the_exact_optimum_is_that_of_scikit_learn():
    X, _, y = problem(60)
    start = ConstantKernel(1.0) * RBF([1.0] * 3, (1e-3, 1e3)) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(start, alpha=0.0, n_restarts_optimizer=2, random_state=0)
    theirs.fit(X, y - y.mean())
    ours = learner(feature_map="exact", length_scale=[1.0] * 3, eta=0, tol=1e-9).fit(X, y)
    assert ours.log_marginal_likelihood_value_ >= theirs.log_marginal_likelihood_value_ - 1e-6
    close(ours.predict(X) - y.mean(), theirs.predict(X), 1e-3)
    assert ours.noise_ == pytest.approx(theirs.kernel_.k2.noise_level, rel=1e-3)
    np.testing.assert_allclose(ours.kernel_.length_scale, theirs.kernel_.k1.k2.length_scale, 1e-3)
    assert ours.kernel_(X[:1])[0, 0] == pytest.approx(ours.amplitude_**2)


@pytest.mark.parametrize("kind", ["nystroem", "fourier", "exact"])
@pytest.mark.parametrize("eta", [0.0, 2.0])
def test_nothing_near_the_optimum_is_better(kind, eta):
    X, s, y = problem(80)
    model = fit(learner(feature_map=kind, eta=eta, tol=1e-8), X, y, s if eta else None)
    assert model.converged_
    assert model.n_evaluations_ == len(model.evidence_history_) >= model.n_iter_ >= 2
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-12)
    np.testing.assert_allclose(gradient, 0, atol=1e-2)
    assert max(model.evidence_history_) == pytest.approx(value, abs=1e-6)
    for step in 0.05 * np.vstack([np.eye(5), -np.eye(5)]):
        assert model.log_marginal_likelihood(model.theta_ + step) < value


def test_ard_finds_the_input_that_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * [1, 10, 1, 0.1, 1]
    y = np.sin(2 * X[:, 2]) + 0.1 * rng.normal(size=400)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model = learner(n_components=40, eta=0, noise_bounds=(1e-3, 1.0)).fit(X, y)
    table = model.relevance()
    assert list(table.columns) == ["input", "length_scale", "relevance"]
    assert table["relevance"].idxmax() == 2
    assert table["relevance"][2] > 50 * table["relevance"].drop(2).max()
    np.testing.assert_allclose(table["length_scale"], model.kernel_.length_scale)
    assert model.noise_ == pytest.approx(0.01, rel=0.3)


def test_learnt_landmarks_explain_more():
    X, s, y = problem(150)
    few = {"n_components": 6, "eta": 1.0, "max_iter": 40, "tol": 1e-4}
    held = learner(**few).fit(X, y, sensitive_features=s)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        moved = learner(**few, learn_landmarks=True).fit(X, y, sensitive_features=s)
    gain = moved.log_marginal_likelihood_value_ - held.log_marginal_likelihood_value_
    assert gain > 5
    assert type(moved.phi_) is Nystroem
    assert not np.allclose(moved.phi_.landmarks_, held.phi_.landmarks_)
    expected = moved.phi_.transform(X) @ moved.coef_ + y.mean()
    close(moved.predict(X), expected, 1e-9)


def test_restarts_find_the_better_maximum():
    def two_hills(place):
        near, far = np.exp(-((place[0] - 0) ** 2)), 3 * np.exp(-((place[0] - 4) ** 2))
        slope = -2 * place[0] * near - 2 * (place[0] - 4) * far
        return float(near + far), np.array([slope]), 1.0

    options = {"bounds": [(-6.0, 6.0)], "tol": 1e-8, "max_iter": 50}
    one = maximise(two_hills, [np.array([0.5])], **options)
    best = maximise(two_hills, [np.array([0.5]), np.array([3.0])], **options)
    assert one.hyper[0] == pytest.approx(0, abs=1e-3)
    assert best.hyper[0] == pytest.approx(4, abs=1e-3)
    X, s, y = problem(60)
    few = [learner(eta=1.0, n_restarts=k).fit(X, y, sensitive_features=s) for k in (0, 2)]
    assert few[1].n_evaluations_ > few[0].n_evaluations_
    assert few[1].log_marginal_likelihood_value_ >= few[0].log_marginal_likelihood_value_ - 1e-6


def test_without_an_optimizer_length_scales_stay():
    X, s, y = problem(60)
    for kind in ("nystroem", "exact"):
        model = learner(feature_map=kind, optimizer=None, length_scale=ARD, eta=1.0)
        model.fit(X, y, sensitive_features=s)
        np.testing.assert_allclose(model.kernel_.length_scale, ARD, rtol=1e-12)
        slopes = model.log_marginal_likelihood(eval_gradient=True)[1][-2:]
        np.testing.assert_allclose(slopes, 0, atol=2e-2)


# Limits


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("limit", [0.0, 0.05])
def test_the_limit_is_kept_at_the_hyperparameters_found(limit, penalty):
    X, s, y = problem(150)
    model = learner(n_components=40, unfairness=limit, penalty=penalty)
    model.fit(X, y, sensitive_features=s)
    assert model.explained_share_ <= limit + 1e-6
    if limit:
        assert model.explained_share_ == pytest.approx(limit, rel=1e-6)
        again = learner(
            n_components=40,
            eta=model.eta_,
            penalty=penalty,
            noise=model.noise_,
            amplitude=model.amplitude_,
            optimizer=None,
            length_scale=model.kernel_.length_scale,
        )
        again.fit(X, y, sensitive_features=s)
        close(again.predict(X), model.predict(X), 1e-8)
        assert again.explained_share_ == pytest.approx(limit, rel=1e-4)
    else:
        assert np.isinf(model.eta_)


def test_a_limit_that_is_kept_anyway_and_one_out_of_reach():
    X, s, y = problem(80)
    loose = learner(unfairness=1.0).fit(X, y, sensitive_features=s)
    assert loose.eta_ == 0
    close(loose.predict(X), learner(eta=0).fit(X, y).predict(X), 1e-8)
    with refused("unfairness=0.01"):
        learner(feature_map="linear", unfairness=0.01).fit(X, y, sensitive_features=s)


def test_a_penalty_that_leaves_nothing_is_told():
    X, s, y = problem(80)
    model = learner(feature_map="linear", eta=np.inf)
    assert "the mean of f is constant" in quiet(model, X, y, s)
    close(model.predict(X), np.full(80, y.mean()), 1e-6)


def test_more_weight_leaves_more_to_the_noise():
    X, s, y = problem(120)
    models = [learner(eta=eta).fit(X, y, sensitive_features=s) for eta in (0.0, 1.0, 100.0, np.inf)]
    assert np.all(np.diff([model.noise_ for model in models]) > 0)
    assert np.all(np.diff([model.explained_share_ for model in models]) < 0)
    Psi = np.linalg.cholesky(naive.rbf(s[:, None], s[:, None], 1.0) + 1e-9 * np.eye(120))
    assert naive.share(models[-1].predict(X), Psi, eps=1e-3) < 0.05


# Bad input


def quiet(model, X, y, s=None):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit(model, X, y, s)
    assert all(issubclass(warning.category, ConvergenceWarning) for warning in told)
    return " | ".join(str(warning.message) for warning in told)


@pytest.mark.parametrize("kind", ["nystroem", "exact"])
def test_a_target_without_signal(kind):
    X, _, _ = problem(60)
    with refused("y"):
        learner(feature_map=kind, eta=0).fit(X, np.full(60, 7.0))
    flat = learner(feature_map=kind, eta=0, noise=1.0, amplitude=1.0).fit(X, np.full(60, 7.0))
    close(flat.predict(X), np.full(60, 7.0), 1e-12)
    X = problem(150)[0]
    model = learner(feature_map=kind, eta=0, length_scale=1.0, length_scale_bounds=(0.5, 5.0))
    told = quiet(model, X, np.random.default_rng(2).normal(size=150))
    assert "amplitude" in told
    assert "y shows no signal" in told
    assert np.ptp(model.predict(X)) < 0.01


def test_a_start_that_shows_no_signal_is_left():
    """A wave much shorter than the first length scale: the evidence is flat there."""
    X = np.linspace(0, 10, 300)[:, None]
    y = np.sin(12 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=300)
    model = learner(n_components=150, length_scale=5.0, eta=0).fit(X, y)
    assert model.kernel_.length_scale < 1
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("kind", ["nystroem", "exact"])
def test_rows_that_repeat(kind):
    X, s, y = problem(30)
    X, s, y = (np.repeat(part, 3, axis=0) for part in (X, s, y))
    model = learner(feature_map=kind, eta=1.0)
    told = quiet(model, X, y, s)
    assert "noise" in told or model.noise_ > 0
    f, std = model.predict(X, return_std=True)
    assert np.isfinite(f).all()
    assert np.isfinite(std).all()
    assert np.isfinite(model.predict(X, return_cov=True)[1]).all()


def test_targets_without_noise_are_told():
    X = np.linspace(0, 3, 40)[:, None]
    y = np.sin(X[:, 0])
    for kind in ("nystroem", "exact"):
        model = learner(feature_map=kind, eta=0)
        told = quiet(model, X, y)
        assert "noise" in told
        assert "lower bound" in told
        assert model.at_bounds_
        close(model.predict(X), y, 1e-3)


def test_length_scales_at_a_bound_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=120)
    told = quiet(learner(eta=0, length_scale=[1.0, 1.0], length_scale_bounds=(1e-2, 3.0)), X, y)
    assert "length scale of x1 reached its upper bound" in told
    told = quiet(learner(eta=0, length_scale=1.0, length_scale_bounds=(3.0, 9.0)), X, y)
    assert "length scale of all inputs reached its lower bound" in told


def test_a_search_that_is_cut_short_says_so():
    X, _, y = problem(60)
    model = learner(eta=0, max_iter=1)
    told = quiet(model, X, y)
    assert "stopped after 1 iterations before it converged" in told
    assert not model.converged_


def test_places_without_an_evidence_are_gone_around():
    def broken(place):
        if place[0] > 1:
            raise ValueError("no evidence there")
        value = np.nan if place[0] > 0.7 else -((place[0] - 0.9) ** 2)
        return value, -2 * (place - 0.9), 1.0

    options = {"bounds": [(-6.0, 6.0)], "tol": 1e-8, "max_iter": 50}
    with pytest.warns(ConvergenceWarning, match="not finite at"):
        found = maximise(broken, [np.array([-3.0])], **options)
    assert 0 < found.hyper[0] <= 0.7
    assert not found.converged
    with refused("no evidence there"):
        maximise(broken, [np.array([2.0])], **options)


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 0.0])
def test_a_maximum_is_one_though_rounding_ends_the_search(noise):
    rng = np.random.default_rng(0)

    def rounded(place):
        value = -float(np.sum((place - 0.3) ** 2))
        return value + noise * rng.normal(), -2 * (place - 0.3), 1.0

    free = [(None, None), (-1.0, 0.1)]
    found = maximise(rounded, [np.full(2, -0.9)], free, tol=1e-14, max_iter=50)
    np.testing.assert_allclose(found.hyper, [0.3, 0.1], atol=1e-4)
    assert found.converged


def test_a_search_that_a_wrong_slope_ends_has_not_converged():
    def wrong(place):
        return -float(place @ place), 2 * place, 1.0

    found = maximise(wrong, [np.ones(2)], [(-5.0, 5.0)] * 2, tol=1e-6, max_iter=50)
    assert not found.converged
    assert "slope of 2" in found.message


def test_huge_inputs_never_make_nan():
    X, _, y = problem(40)
    for scale in (1e-150, 1e70):
        model = learner(eta=0)
        quiet(model, X * scale, y)
        assert np.isfinite(model.predict(X * scale, return_std=True)).all()
    with refused("column 0", "1e+75"):
        learner(eta=0).fit(X * 1e150, y)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"noise": 0.0}, ValueError),
        ({"noise": "learn"}, ValueError),
        ({"amplitude": -1.0}, ValueError),
        ({"noise": None}, TypeError),
        ({"optimizer": "adam"}, ValueError),
        ({"n_restarts": -1}, ValueError),
        ({"max_iter": 0}, ValueError),
        ({"tol": 0.0}, ValueError),
        ({"length_scale_bounds": (2, 1)}, ValueError),
        ({"noise_bounds": "wide"}, ValueError),
        ({"penalty": "nocco"}, ValueError),
        ({"learn_landmarks": True, "feature_map": "fourier"}, ValueError),
        ({"learn_landmarks": 1}, TypeError),
        ({"eta": 1.0, "unfairness": 0.1}, ValueError),
    ],
)
def test_parameters_are_checked(params, error):
    X, s, y = problem(20)
    with refused(*named(params), error=error):
        FairGPRegressor(**params).fit(X, y, sensitive_features=s)


def test_arguments_are_checked():
    X, s, y = problem(40)
    with refused("sensitive_features"):
        learner().fit(X, y)
    model = learner(eta=1.0, optimizer=None).fit(X, y, sensitive_features=s)
    with refused("return_std", "return_cov"):
        model.predict(X, return_std=True, return_cov=True)
    for theta in ([0.0], [np.nan] * 5, "x"):
        with refused("5 finite numbers"):
            model.log_marginal_likelihood(theta)
    eigen = Nystroem("rbf", 1.0, n_components=10, random_state=0)
    with refused("whitening='eigen'"):
        learner(feature_map=eigen, eta=0).fit(X, y)
    held = learner(feature_map=eigen, eta=0, optimizer=None).fit(X, y)
    assert np.isfinite(held.predict(X, return_std=True)).all()
    fourier = RandomFourier("rbf", 1.0, n_components=10, random_state=0)
    assert learner(feature_map=fourier, eta=0).fit(X, y).n_iter_ > 0
    with refused():
        learner(eta=0, noise=1e-30, amplitude=1.0).fit(X, y)
    with refused():
        learner(eta=0, noise=1e-30, amplitude=1.0, feature_map="exact").fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, s, y = problem(40)
    model = learner(eta=1.0).fit(X, y, sensitive_features=s)
    before = model.predict(X)
    with refused("y"):
        model.fit(X, np.zeros(40), sensitive_features=s)
    np.testing.assert_array_equal(model.predict(X), before)
