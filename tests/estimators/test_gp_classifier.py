"""FairGPClassifier against scikit-learn, its own definition, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from scalefair import FairGPClassifier, FairKernelClassifier
from scalefair.maps import Nystroem
from tests.errors import named, refused
from tests.naive import close

AMPLITUDE, ARD = 1.6, (0.7, 1.1, 2.0)


def problem(n=60, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    X = np.column_stack([rng.normal(size=(n, 2)), s + 0.5 * rng.normal(size=n)])
    f = 2 * np.sin(2 * X[:, 0]) + X[:, 1] + 1.5 * X[:, 2] + rng.logistic(size=n)
    names = np.array(["low", "mid", "top"])
    return X, s, (f > 0) if classes == 2 else names[np.digitize(f, [-1.0, 1.0])]


def given(**params):
    """A model whose hyperparameters are all given."""
    fixed = {"amplitude": AMPLITUDE, "length_scale": ARD, "optimizer": None, "random_state": 0}
    return FairGPClassifier(**{**fixed, "sensitive_kernel": "linear", **params})


def fitted(classes=2, weight=None, n=60, **params):
    X, s, y = problem(n, classes)
    model = given(**params)
    own = {} if model.eta == 0 else {"sensitive_features": s}
    return model.fit(X, y, sample_weight=weight, **own)


# scikit-learn


def sklearn_process(kernel):
    full = ConstantKernel(AMPLITUDE**2) * kernel
    X, _, y = problem()
    return GaussianProcessClassifier(full, optimizer=None, max_iter_predict=1000).fit(X, y)


@pytest.mark.parametrize(("name", "kernel"), [("rbf", RBF(ARD)), ("matern32", Matern(ARD, nu=1.5))])
@pytest.mark.parametrize("params", [{"feature_map": "exact"}, {"n_components": 60}])
def test_without_penalty_it_is_the_process_of_scikit_learn(name, kernel, params):
    theirs, ours = sklearn_process(kernel), fitted(kernel=name, eta=0, **params)
    new = problem(seed=1)[0]
    mean, variance = ours.latent_mean_and_variance(new)
    expected = theirs.latent_mean_and_variance(new)
    close(mean, expected[0], 1e-6)
    close(variance, expected[1], 1e-6)
    value, gradient = ours.log_marginal_likelihood(eval_gradient=True)
    evidence, slopes = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(evidence, rel=1e-7)
    assert ours.log_marginal_likelihood() == ours.log_marginal_likelihood_value_
    assert ours.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-12)
    close(gradient, np.append(slopes[1:], 2 * slopes[0]), 1e-5)  # theirs: log a², log θ
    # Their integral is an approximation.
    close(ours.predict_proba(new), theirs.predict_proba(new), 5e-3)
    assert (ours.predict(new) == theirs.predict(new)).all()


def test_the_search_finds_what_scikit_learn_finds():
    X, _, y = problem(100)
    theirs = GaussianProcessClassifier(ConstantKernel() * RBF(1.0)).fit(X, y)
    model = FairGPClassifier(feature_map="exact", length_scale=1.0, eta=0, tol=1e-7, random_state=0)
    model.fit(X, y)
    assert model.converged_
    assert model.evidence_history_[-1] > model.evidence_history_[0]
    expected = theirs.log_marginal_likelihood_value_
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, rel=1e-6)
    assert model.kernel_.length_scale == pytest.approx(theirs.kernel_.k2.length_scale, rel=1e-2)


# The definition


@pytest.mark.parametrize("classes", [2, 3])
def test_the_mean_is_the_fit_of_the_kernel_classifier_without_intercept(classes):
    X, s, y = problem(classes=classes)
    phi = Nystroem("rbf", ARD, n_components=20, whitening="cholesky", random_state=0).fit(X)
    model = fitted(classes, feature_map=phi, amplitude=1.0, eta=0.4)
    # The prior precision is 2nα: amplitude 1 means 2nα = 1.
    alpha = 1 / (2 * len(X))
    for c, label in enumerate(model.classes_[-len(model.coef_) :]):
        ridge = FairKernelClassifier(
            feature_map=phi, alpha=alpha, eta=0.4, fit_intercept=False, sensitive_kernel="linear"
        )
        ridge.fit(X, np.asarray(y) == label, sensitive_features=s)
        close(model.coef_[c], ridge.coef_[0], 1e-6)


def test_one_against_the_rest_adds_up():
    X, s, y = problem(classes=3)
    model = fitted(classes=3, n_components=20, eta=0.4)
    parts = [given(n_components=20, eta=0.4).fit(X, y == label, sensitive_features=s) for label in model.classes_]
    evidence = sum(part.log_marginal_likelihood_value_ for part in parts)
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-9)
    p = np.column_stack([part.predict_proba(X)[:, 1] for part in parts])
    close(model.predict_proba(X), p / p.sum(axis=1, keepdims=True), 1e-9)
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(axis=1)]).all()
    mean, std = model.decision_function(X, return_std=True)
    assert mean.shape == std.shape == (60, 3)


@pytest.mark.parametrize("feature_map", ["nystroem", "fourier", "linear"])
def test_probabilities_are_averages_over_draws(feature_map):
    model = fitted(feature_map=feature_map, n_components=20, eta=0.4)
    new = 2 * problem(seed=1)[0]
    mean, std = model.decision_function(new, return_std=True)
    draws = mean + std * np.random.default_rng(0).normal(size=(200_000, 1))
    p = model.predict_proba(new)
    close(p[:, 1], (1 / (1 + np.exp(-draws))).mean(axis=0), 6e-3)
    # Doubt moves a probability towards one half.
    certain = 1 / (1 + np.exp(-mean))
    assert (np.abs(p[:, 1] - 0.5) < np.abs(certain - 0.5)).all()
    assert (model.predict(new) == (mean > 0)).all()


def test_far_from_the_rows_f_is_as_the_prior():
    model = fitted(n_components=20, eta=0.4)
    mean, variance = model.latent_mean_and_variance(np.full((1, 3), 50.0))
    assert abs(mean[0]) < 1e-12
    assert variance[0] == pytest.approx(AMPLITUDE**2)


@pytest.mark.parametrize("params", [{}, {"feature_map": "fourier"}, {"kernel": "laplace"}])
def test_the_gradient_of_the_evidence(params):
    model = fitted(n_components=20, eta=0.4, **params)
    evidence = model.log_marginal_likelihood
    at = model.theta_ + 0.2
    error = check_grad(evidence, lambda t: evidence(t, eval_gradient=True)[1], at, epsilon=1e-6)
    assert error < 1e-4
    assert evidence(model.theta_) == model.log_marginal_likelihood_value_
    assert model.theta_ == pytest.approx(np.log([*ARD, AMPLITUDE]))


# Fairness


@pytest.mark.parametrize("classes", [2, 3])
def test_large_weights_leave_no_dependence(classes):
    shares = [fitted(classes, n_components=20, eta=eta).explained_share_ for eta in (0, 1, 1e3)]
    assert np.isnan(shares[0])
    assert shares[1] > 100 * shares[2] > 0
    assert fitted(classes, n_components=20, eta=1e9).explained_share_ < 1e-12
    assert fitted(classes, n_components=20, eta=np.inf).explained_share_ < 1e-20


@pytest.mark.parametrize("limit", [0.0, 0.05])
@pytest.mark.parametrize("amplitude", [AMPLITUDE, "optimize"])
def test_a_limit_is_kept(limit, amplitude):
    X, s, _ = problem()
    model = fitted(n_components=20, unfairness=limit, amplitude=amplitude)
    assert model.explained_share_ == pytest.approx(limit, abs=1e-9)
    # Of one number, what a linear function explains is the squared correlation.
    correlation = np.corrcoef(model.decision_function(X), s)[0, 1]
    assert correlation**2 == pytest.approx(limit, abs=1e-6)
    again = fitted(n_components=20, eta=model.eta_, amplitude=model.amplitude_)
    close(again.coef_, model.coef_, 1e-6)
    assert again.log_marginal_likelihood_value_ == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-8)


def test_a_limit_that_holds_anyway_costs_nothing():
    loose = fitted(n_components=20, unfairness=1.0)
    assert loose.eta_ == 0
    close(loose.coef_, fitted(n_components=20, eta=0).coef_, 1e-10)


@pytest.mark.parametrize("eta", [0.5, np.inf])
def test_learning_raises_the_evidence(eta):
    X, s, y = problem()
    model = FairGPClassifier(
        n_components=15, length_scale="standardized", eta=eta, random_state=0, sensitive_kernel="linear", tol=1e-4
    )
    model.fit(X, y, sensitive_features=s)
    start = FairGPClassifier(**{**model.get_params(), "optimizer": None, "amplitude": 1.0})
    start.fit(X, y, sensitive_features=s)
    assert model.log_marginal_likelihood_value_ > start.log_marginal_likelihood_value_ + 0.5
    if np.isfinite(eta):
        slopes = model.log_marginal_likelihood(eval_gradient=True)[1]
        assert np.abs(slopes).max() < 1e-3 * len(X)
    assert list(model.relevance()["input"]) == ["x0", "x1", "x2"]
    assert len(model.theta_) == 4
    assert model.n_passes_ > model.n_evaluations_ > 1


def test_the_best_amplitude_is_where_the_evidence_is_flat():
    model = fitted(n_components=20, eta=0.5, amplitude="optimize", tol=1e-8)
    assert model.length_scale == ARD == tuple(model.kernel_.length_scale)
    values = [model.log_marginal_likelihood(model.theta_ + step * np.eye(4)[3]) for step in (-0.1, 0.1)]
    assert max(values) < model.log_marginal_likelihood_value_
    assert abs(model.log_marginal_likelihood(eval_gradient=True)[1][3]) < 1e-4


# Weights


@pytest.mark.parametrize("classes", [2, 3])
def test_weight_two_is_the_row_twice(classes):
    X, s, y = problem(classes=classes)
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    phi = Nystroem("rbf", ARD, n_components=20, whitening="cholesky", random_state=0).fit(X)
    model = given(feature_map=phi, eta=0.5, eps=1e-3)
    weighted = model.fit(X, y, sensitive_features=s, sample_weight=weight).coef_
    evidence = model.log_marginal_likelihood_value_
    slopes = model.log_marginal_likelihood(eval_gradient=True)[1]
    many = np.repeat(np.arange(len(X)), weight)
    model.fit(X[many], y[many], sensitive_features=s[many])
    close(weighted, model.coef_, 1e-9)
    assert evidence == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-11)
    close(slopes, model.log_marginal_likelihood(eval_gradient=True)[1], 1e-8)


# Bad or hard input


def test_separated_classes_have_a_finite_answer():
    X = np.linspace(-1, 1, 40)[:, None]
    y = X[:, 0] > 0
    model = FairGPClassifier(eta=0, feature_map="linear").fit(X, y)
    assert 10 < model.amplitude_ < 1e3
    assert (model.predict(X) == y).all()
    p = model.predict_proba(X)
    assert ((p > 0) & (p < 1)).all()
    model.set_params(amplitude_bounds=(0.1, 3.0))
    with pytest.warns(ConvergenceWarning, match=r"amplitude=3 reached its upper bound: the feat"):
        model.fit(X, y)
    assert "widen amplitude_bounds" in model.at_bounds_[0]
    firm = model.set_params(amplitude=1e4, amplitude_bounds=None).fit(X, y)
    assert np.isfinite(firm.coef_).all()
    assert np.isfinite(firm.log_marginal_likelihood_value_)


def test_labels_without_signal_run_to_the_lower_bound():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.arange(40) % 2
    y = np.concatenate([y, 1 - y])
    with pytest.warns(ConvergenceWarning, match=r"reached its lower bound: the classes show no"):
        model = FairGPClassifier(eta=0, optimizer=None).fit(np.vstack([X, X]), y)
    assert model.predict_proba(X) == pytest.approx(0.5, abs=1e-3)


def test_rare_classes_do_not_break_it():
    X, s, _ = problem(120)
    y = np.arange(120) == 7
    model = given(feature_map="exact", length_scale=0.3, eta=0.5)
    model.fit(X, y, sensitive_features=s)
    assert model.decision_function(X).argmax() == 7
    p = model.predict_proba(X)
    assert ((p > 0) & (p < 1)).all()


@pytest.mark.parametrize(
    "params",
    [
        {"amplitude": -1.0},
        {"amplitude": "best"},
        {"amplitude_bounds": (2.0, 1.0)},
        {"penalty": "nocco"},
        {"optimizer": "adam"},
        {"eta": 1.0, "unfairness": 0.1},
        {"unfairness": 1.5},
        {"n_restarts": -1},
    ],
)
def test_bad_parameters(params):
    X, s, y = problem()
    with refused(*named(params), error=ValueError):
        FairGPClassifier(**params).fit(X, y, sensitive_features=s)


def test_bad_labels_and_weights():
    X, s, y = problem()
    with refused("one class"):
        given(eta=0).fit(X, np.ones(60))
    with refused("one class"):
        given(eta=0).fit(X, y, sample_weight=y.astype(float))
    with refused("sample_weight"):
        given(eta=0).fit(X, y, sample_weight=np.zeros(60))
    with refused("sensitive_features"):
        given().fit(X, y)
    with refused("label"):
        given(eta=0).fit(X, s)
    model = given(eta=0).fit(X, y)
    with refused("4 finite numbers"):
        model.log_marginal_likelihood([0.0])
    with refused("one class"):
        model.fit(X, np.ones(60))
    assert model.predict(X).shape == (60,)  # as before the failed fit


def test_the_search_for_the_amplitude_alone_is_that_for_all_with_length_scales_that_stay():
    evidence = fitted(classes=3, n_components=20)._evidence
    place = evidence.start + 0.1
    value, slopes, unit = evidence(place, 0.5)
    alone, along, other = evidence(place, 0.5, scales=False)
    close([alone, along[-1], other], [value, slopes[-1], unit], 1e-9)
    assert not along[:-1].any()
    assert slopes[:-1].any()
