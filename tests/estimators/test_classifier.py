"""Fair classification against scikit-learn and its own invariances."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict

import scalefair
from scalefair import FairKernelClassifier, FairKernelClassifierCV
from scalefair.losses import Logistic, Loss, Multinomial
from tests import naive
from tests.errors import named, refused

N = 400


def table(k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 5))
    s = np.where(X[:, 0] + rng.standard_normal(N) > 0, "a", "b")
    signal = X[:, 0] - X[:, 1] + 0.5 * (s == "a")
    y = np.argmax(signal[:, None] * np.linspace(-1, 1, k) + rng.gumbel(size=(N, k)), axis=1)
    return X, y, s


def model(**parameters):
    return FairKernelClassifier(**{"n_components": 30, "random_state": 0, **parameters})


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_eta_zero_is_logistic_regression(k, class_weight, fit_intercept):
    X, y, _ = table(k)
    weight = np.random.default_rng(1).integers(0, 4, N).astype(float)
    alpha = 1e-3
    ours = FairKernelClassifier(
        feature_map="linear", eta=0, alpha=alpha, class_weight=class_weight, fit_intercept=fit_intercept
    ).fit(X, y, sample_weight=weight)
    # Σ w V / n + α|β|² is n times smaller than C Σ w V + |β|²/2 with C = 1/(2nα), n = Σ w.
    if class_weight == "balanced":  # by weighted counts: weight 2 is the row twice
        share = np.array([weight[y == c].sum() for c in range(k)])
        class_weight = dict(enumerate(weight.sum() / (k * share)))
    C = 1 / (2 * weight.sum() * alpha)
    theirs = LogisticRegression(
        C=C, tol=1e-10, max_iter=10_000, class_weight=class_weight, fit_intercept=fit_intercept
    ).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert (ours.predict(X) == theirs.predict(X)).all()
    if fit_intercept:
        centred = theirs.intercept_ - theirs.intercept_.mean() * (k > 2)
        np.testing.assert_allclose(ours.intercept_, centred, atol=1e-5)


@pytest.mark.parametrize(("k", "width"), [(2, 250), (4, 80)])
def test_wide_fits_by_light_passes_have_the_same_optimum(k, width):
    X, y, _ = table(k)
    wide = np.hstack([X, np.random.default_rng(1).standard_normal((N, width - 5))])
    ours = FairKernelClassifier(feature_map="linear", eta=0, alpha=1e-2).fit(wide, y)
    theirs = LogisticRegression(C=1 / (2 * N * 1e-2), tol=1e-10, max_iter=10_000).fit(wide, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.n_passes_ <= 9


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("feature_map", ["nystroem", "fourier", "linear"])
def test_weight_two_is_the_row_twice(k, feature_map):
    X, y, s = table(k)
    weight = np.random.default_rng(2).integers(1, 3, N)
    twice = np.repeat(np.arange(N), weight)
    settings = {"feature_map": feature_map, "eta": 0.5, "length_scale": 2.0}
    if feature_map == "nystroem":  # whose landmarks are rows: give them once
        settings["feature_map"] = scalefair.features.Nystroem(length_scale=2.0).fit(X[:40])
    weighted = model(**settings).fit(X, y, sensitive_features=s, sample_weight=weight)
    repeated = model(**settings).fit(X[twice], y[twice], sensitive_features=s[twice])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-8)
    assert weighted.explained_share_ == pytest.approx(repeated.explained_share_, rel=1e-8)


@pytest.mark.parametrize("k", [2, 3])
def test_eta_to_infinity_makes_the_scores_equal_in_the_mean(k):
    X, y, s = table(k)
    fit = model(eta=np.inf).fit(X, y, sensitive_features=s)
    f = fit.decision_function(X).reshape(N, -1)
    gap = f[s == "a"].mean(axis=0) - f[s == "b"].mean(axis=0)
    assert np.abs(gap).max() < 1e-10
    assert fit.explained_share_ < 1e-15
    ordinary = model(eta=0).fit(X, y, sensitive_features=s)
    assert ordinary.explained_share_ > 0.05


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("hide", [True, False])
def test_a_limit_is_met_with_s_seen_or_hidden(k, hide):
    X, y, s = table(k)
    frame = pd.DataFrame(X, columns=list("vwxyz")).assign(group=s)
    fit = model(unfairness=0.02, sensitive_columns=["group"], hide_sensitive=hide).fit(frame, y)
    assert fit.explained_share_ == pytest.approx(0.02, rel=1e-6)
    assert 0 < fit.eta_ < np.inf
    assert fit.n_passes_ <= 10
    at = model(eta=fit.eta_, sensitive_columns=["group"], hide_sensitive=hide).fit(frame, y)
    np.testing.assert_allclose(at.coef_, fit.coef_, atol=1e-5)


@pytest.mark.parametrize("labels", [["no", "yes"], [-1, 1], [False, True], [2.0, 7.0]])
def test_labels_of_any_kind_come_back(labels):
    X, y, s = table()
    named = np.array(labels)[y]
    fit = model(eta=1.0).fit(X, named, sensitive_features=s)
    assert fit.classes_.tolist() == labels
    plain = model(eta=1.0).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(fit.predict_proba(X), plain.predict_proba(X), rtol=1e-12)
    assert (fit.predict(X) == np.array(labels)[plain.predict(X)]).all()
    assert fit.score(X, named) == plain.score(X, y)


def test_class_weights_count_in_the_loss_and_not_in_the_share():
    X, y, s = table()
    heavy = model(eta=np.inf, class_weight={0: 1.0, 1: 9.0}).fit(X, y, sensitive_features=s)
    plain = model(eta=np.inf).fit(X, y, sensitive_features=s)
    assert heavy.predict(X).mean() > plain.predict(X).mean() + 0.2
    f = heavy.decision_function(X)
    assert abs(f[s == "a"].mean() - f[s == "b"].mean()) < 1e-10


def test_probabilities_keep_their_digits_and_add_up():
    X, y, s = table()
    fit = model(eta=0.1, alpha=1e-6).fit(X, y, sensitive_features=s)
    p, f = fit.predict_proba(X), fit.decision_function(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(np.log(p[:, 1]) - np.log(p[:, 0]), f, rtol=1e-9, atol=1e-12)


def test_multinomial_of_two_classes_is_the_logistic_model_with_half_the_ridge():
    # f = f₁ − f₀ and f₀ = −f₁: |β₀|² + |β₁|² = |β|²/2.
    X, y, s = table()
    both = model(loss="multinomial", alpha=2e-3, eta=2.0).fit(X, y, sensitive_features=s)
    one = model(alpha=1e-3, eta=1.0).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(both.decision_function(X), one.decision_function(X), atol=1e-7)


def test_a_rare_class_and_a_rare_group_do_not_break_it():
    X, y, s = table(3)
    s = s.astype(object)
    y[:3], s[:2] = 3, "rare"
    fit = model(unfairness=0.01).fit(X, y, sensitive_features=s)
    assert fit.classes_.tolist() == [0, 1, 2, 3]
    assert np.isfinite(fit.predict_proba(X)).all()
    assert fit.explained_share_ == pytest.approx(0.01, rel=1e-6)


def test_perfectly_separated_classes_have_a_finite_answer():
    X, _, s = table()
    y = X[:, 0] > 0
    fit = FairKernelClassifier(feature_map="linear", alpha=1e-9, eta=0).fit(X, y)
    assert fit.score(X, y) == 1.0
    assert np.isfinite(fit.coef_).all()
    fair = model(eta=np.inf, alpha=1e-9).fit(X, y, sensitive_features=s)
    assert np.isfinite(fair.coef_).all()


def test_the_path_meets_its_fits_and_picks():
    X, y, s = table(3)
    fit = model(eta=1.0).fit(X, y, sensitive_features=s)
    path = fit.path(X, y, [0.0, 0.1, 1.0, 10.0, np.inf], sensitive_features=s)
    np.testing.assert_allclose(path.at(eta=1.0).coef_, fit.coef_, atol=1e-6)
    table_ = path.table
    assert (np.diff(table_["loss"]) > 0).all()
    assert (np.diff(table_["explained_share"]) < 0).all()
    assert table_["passes"].sum() <= 25
    assert len(path.front()) == 5
    p = path.at(eta=0.1).predict_proba(X)
    assert table_["loss"][1] == pytest.approx(log_loss(y, p), rel=1e-6)
    chosen = path.at(unfairness=table_["explained_share"][2])
    assert chosen.eta_ == 1.0
    assert fit.path(X, y, sensitive_features=s).etas[-1] == np.inf
    with refused("least share"):
        fit.path(X, y, [0.0], sensitive_features=s).at(unfairness=0.0)
    with refused("eta=3.0"):
        path.at(eta=3.0)
    with refused("eta"):
        path.at(alpha=1.0, eta=1.0)
    with refused("class 7"):
        fit.path(X, np.where(y == 0, 7, y), [0.0], sensitive_features=s)


@pytest.mark.parametrize("k", [2, 3])
def test_saved_and_loaded_it_predicts_the_same_bits(k, tmp_path):
    X, y, s = table(k)
    labels = np.array(["n", "m", "p"])[y]
    fit = model(eta=1.0, class_weight="balanced").fit(X, labels, sensitive_features=s)
    scalefair.save(fit, tmp_path / "model")
    back = scalefair.load(tmp_path / "model")
    assert (back.predict_proba(X) == fit.predict_proba(X)).all()
    assert (back.predict(X) == fit.predict(X)).all()


def test_it_works_inside_scikit_learn():
    X, y, _ = table()
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    search = GridSearchCV(
        model(sensitive_columns=["v"], n_components=20), {"eta": [0.0, 1.0]}, cv=3, scoring="roc_auc"
    ).fit(frame, y)
    assert search.best_params_ == {"eta": 0.0}
    p = cross_val_predict(model(sensitive_columns=["v"]), frame, y, cv=3, method="predict_proba")
    assert p.shape == (N, 2)


class Probit(Loss):
    """A binary loss of one's own, with a link of its own."""

    def value(self, f, y):
        return -norm.logcdf(np.where(y == 1, f, -f))

    def gradient(self, f, y):
        sign = np.where(y == 1, 1.0, -1.0)
        return -sign * np.exp(norm.logpdf(f) - norm.logcdf(sign * f))

    def curvature(self, f, y):
        g = self.gradient(f, y)
        return g * (g - f)

    def inverse_link(self, f):
        return norm.cdf(f)


def test_a_loss_of_ones_own_is_minimised():
    X, y, _ = table()
    fit = model(loss=Probit(), eta=0, feature_map="linear", alpha=1e-2).fit(X, y)
    best = naive.linear_by_optimiser(Probit(), X, y, 1e-2)
    np.testing.assert_allclose(np.append(fit.coef_, fit.intercept_), best, atol=1e-5)
    p = fit.predict_proba(X)
    np.testing.assert_allclose(p[:, 1], Probit().inverse_link(fit.decision_function(X)))
    assert (fit.predict(X) == (p[:, 1] > 0.5)).all()


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"loss": "hinge"}, ValueError),
        ({"class_weight": "even"}, ValueError),
        ({"class_weight": {0: -1.0, 1: 1.0}}, ValueError),
        ({"tol": -1.0}, ValueError),
        ({"eta": 1.0, "unfairness": 0.1}, ValueError),
        ({"loss": 3}, TypeError),
        ({"loss": Logistic}, TypeError),
        ({"class_weight": 3}, TypeError),
        ({"max_iter": 1.5}, TypeError),
    ],
)
def test_bad_parameters_are_named(parameters, error):
    X, y, s = table()
    with refused(*named(parameters), error=error):
        model(**parameters).fit(X, y, sensitive_features=s)


def test_bad_labels_are_named():
    X, y, s = table()
    with refused("class_weight", "class 7", [0, 1]):
        model(class_weight={7: 1.0}).fit(X, y, sensitive_features=s)
    with refused("one class", "(1)"):
        model(eta=0).fit(X, np.ones(N, int))
    with refused("one class"):
        model(eta=0).fit(X, y, sample_weight=(y == 0).astype(float))
    with refused("3 classes", "multinomial"):
        model(eta=0, loss=Logistic()).fit(X, table(3)[1])
    with refused("2 classes", "Multinomial"):
        model(eta=0, loss=Multinomial(3)).fit(X, y)
    with refused("continuous"):
        model(eta=0).fit(X, X[:, 0])
    with refused("sample_weight"):
        model(eta=0).fit(X, y, sample_weight=np.zeros(N))
    with refused("sensitive_features=s", "sensitive_columns"):
        model().fit(X, y)
    with refused("unfairness=0.001"):
        model(unfairness=1e-3, feature_map="linear").fit(X[:, :1], y, sensitive_features=s)


def test_a_fit_that_fails_leaves_the_last_one_alone():
    X, y, s = table()
    fit = model(eta=1.0).fit(X, y, sensitive_features=s)
    before = fit.predict_proba(X)
    with refused("one class"):
        fit.fit(X, np.zeros(N), sensitive_features=s)
    assert (fit.predict_proba(X) == before).all()


def test_too_few_iterations_are_warned_of():
    X, y, s = table()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model(max_iter=1).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("kind", [FairKernelClassifier, FairKernelClassifierCV])
def test_sums_larger_than_the_machine_are_refused_before_they_are_made(kind, monkeypatch):
    """Else the system ends the process; 40 classes have 780 pairs."""
    monkeypatch.setattr("scalefair.moments.curvature.physical_memory", lambda: 1e6)
    rng = np.random.default_rng(0)
    X, y, s = rng.normal(size=(900, 3)), np.arange(900) % 40, rng.normal(size=900)
    with refused("780", "n_components", "classes", error=MemoryError):
        kind(n_components=20, unfairness=0.1, random_state=0).fit(X, y, sensitive_features=s)
