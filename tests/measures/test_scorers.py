"""Scorers of dependence inside scikit-learn's model selection."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scalefair import FairRidge
from scalefair.measures import explained_share, group_gaps, hsic, make_dependence_scorer
from tests.errors import refused
from tests.groups import people

pytestmark = pytest.mark.usefixtures("routing")

FRAME = people(400)
X, Y, T = FRAME[["score", "age"]].to_numpy(), FRAME["target"].to_numpy(), FRAME["truth"].to_numpy()
S = FRAME[["sex", "race"]]
CV = KFold(4, shuffle=True, random_state=0)


def by_hand(model, y, measure, predict):
    scores = []
    for train, test in CV.split(X):
        f = predict(sklearn.clone(model).fit(X[train], y[train]), X[test])
        scores.append(-measure(f, S.iloc[test]))
    return scores


@pytest.mark.parametrize("measure", [explained_share, hsic], ids=lambda f: f.__name__)
def test_cross_validation_reports_dependence(measure):
    scoring = {"r2": "r2", "dependence": make_dependence_scorer(measure.__name__)}
    found = cross_validate(Ridge(), X, Y, cv=CV, scoring=scoring, params={"sensitive_features": S})
    expected = by_hand(Ridge(), Y, measure, lambda m, part: m.predict(part))
    np.testing.assert_allclose(found["test_dependence"], expected)
    assert (found["test_dependence"] < 0).all()
    assert len(found["test_r2"]) == 4


def test_probabilities_of_a_classifier_in_a_pipeline_are_judged():
    model = make_pipeline(StandardScaler(), LogisticRegression())
    scorer = make_dependence_scorer()
    found = cross_validate(model, X, T, cv=CV, scoring=scorer, params={"sensitive_features": S})
    expected = by_hand(model, T, explained_share, lambda m, part: m.predict_proba(part)[:, 1])
    np.testing.assert_allclose(found["test_score"], expected)


def test_decisions_of_a_classifier_have_gaps():
    scorer = make_dependence_scorer("selection_rate_difference")
    options = {"scoring": scorer, "params": {"sensitive_features": FRAME["sex"]}}
    found = cross_validate(LogisticRegression(), X, T, cv=CV, **options)
    for score, (train, test) in zip(found["test_score"], CV.split(X), strict=True):
        label = LogisticRegression().fit(X[train], T[train]).predict(X[test])
        rates = [label[FRAME["sex"].to_numpy()[test] == sex].mean() for sex in "fm"]
        assert score == pytest.approx(-abs(rates[1] - rates[0]))


def test_a_function_and_options_are_used():
    def covariance(f, s, scale=1.0):
        return scale * abs(np.cov(f, np.asarray(s) == "m")[0, 1])

    scorer = make_dependence_scorer(covariance, scale=3.0)
    model = Ridge().fit(X, Y)
    expected = -3.0 * covariance(model.predict(X), FRAME["sex"])
    assert scorer(model, X, Y, sensitive_features=FRAME["sex"]) == pytest.approx(expected)
    assert "covariance" in repr(scorer)


def test_weights_are_routed_on_request():
    scorer = make_dependence_scorer().set_score_request(sensitive_features=True, sample_weight=True)
    model, weight = Ridge().fit(X, Y), FRAME["weight"].to_numpy(float)
    found = scorer(model, X, Y, sensitive_features=S, sample_weight=weight)
    expected = -explained_share(model.predict(X), S, sample_weight=weight)
    assert found == pytest.approx(expected)


def test_a_search_finds_the_fairer_model():
    model = FairRidge(random_state=0).set_fit_request(sensitive_features=True)
    search = GridSearchCV(model, {"eta": [0.0, 100.0]}, scoring=make_dependence_scorer(), cv=CV)
    search.fit(X, Y, sensitive_features=S)
    assert search.best_params_ == {"eta": 100.0}


def test_the_scorer_can_be_sent_to_other_processes():
    scorer = pickle.loads(pickle.dumps(make_dependence_scorer("nocco", eps=1e-3)))
    model = Ridge().fit(X, Y)
    assert scorer(model, X, Y, sensitive_features=S) < 0


def test_a_scorer_made_while_routing_is_off_works_when_it_is_on():
    with sklearn.config_context(enable_metadata_routing=False):
        scorer = make_dependence_scorer()
    model = Ridge().fit(X, Y)
    expected = -explained_share(model.predict(X), S)
    assert scorer(model, X, Y, sensitive_features=S) == pytest.approx(expected)
    with refused("sensitive_features", error=ValueError):
        scorer(model, X, Y)


def test_unknown_measures_are_named():
    with refused("measure='beauty'", error=ValueError):
        make_dependence_scorer("beauty")
    with refused("measure=3", error=TypeError):
        make_dependence_scorer(3)


def test_gaps_of_error_rates_use_the_targets():
    scorer = make_dependence_scorer("true_positive_rate_difference")
    model = LogisticRegression().fit(X, T)
    found = scorer(model, X, T, sensitive_features=S)
    gaps = group_gaps(pd.Series(model.predict(X)), sensitive_features=S, y_true=T)
    assert found == pytest.approx(-gaps.difference()["true_positive_rate"])
