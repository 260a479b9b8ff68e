"""Limits on decisions, on rows that no model has seen; and what cannot be limited."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone

from scalefair import (
    BatchSource,
    Decisions,
    FairKernelClassifier,
    FairKernelClassifierCV,
    FairKernelRegressor,
    FairKernelRegressorCV,
    load,
    save,
    to_onnx,
)
from tests.errors import refused

OPTIONS = {"n_components": 40, "random_state": 0, "n_jobs": 1}


def table(n, seed=0):
    """Inputs that tell of the group, the group, and two and three classes and a number."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + 0.7 * group[:, None] * [1.0, 0.5, 0.0]
    score = X[:, 0] + 0.7 * X[:, 2] - 0.4
    y = np.where(rng.random(n) < expit(2 * score), "yes", "no")
    number = 50 + 10 * (score + 0.5 * rng.normal(size=n))
    return (pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "g": np.array(["f", "m"])[group]}), y, number)


TRAIN, Y, NUMBER = table(3000)
TEST, Y_TEST, NUMBER_TEST = table(20_000, seed=1)


def gap(decided, among=True):
    chosen = [decided[(TEST["g"] == g).to_numpy() & among].mean() for g in ("f", "m")]
    return abs(chosen[0] - chosen[1])


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("kind", [FairKernelClassifier, FairKernelClassifierCV])
def test_new_rows_are_decided_within_the_limit(kind, hide):
    options = OPTIONS | {"sensitive_columns": ["g"], "hide_sensitive": hide}
    model = kind(limit_on="decisions", unfairness=0.03, **options).fit(TRAIN, Y)
    free = kind(limit_on="decisions", unfairness=1.0, **options).fit(TRAIN, Y)
    decided, before = model.predict(TEST) == "yes", free.predict(TEST) == "yes"
    found = model.decisions_
    assert found.held_out == (kind is FairKernelClassifierCV)
    assert found.gap <= 0.03 + 2 * found.gap_error * found.held_out + 1e-3
    assert gap(decided) <= 0.03 + 2 * np.hypot(found.gap_error, 0.007)
    assert gap(before) > 0.1
    accuracy = [np.mean(d == (Y_TEST == "yes")) for d in (decided, before)]
    assert np.mean(Y_TEST == "no") + 0.02 < accuracy[0] < accuracy[1] + 0.01
    # Probabilities are those of the scores, before and after.
    np.testing.assert_array_equal(model.predict_proba(TEST), free.predict_proba(TEST))
    lines = found.table
    assert list(lines["group"]) == ["g=f", "g=m"]
    np.testing.assert_allclose(lines["mean_probability"], lines["observed"], atol=0.05)
    assert np.ptp(lines["rate_before"]) > 0.1 > np.ptp(lines["rate"])


@pytest.mark.parametrize("limit_on", ["odds", Decisions("odds", randomized=True)])
def test_odds_on_new_rows(limit_on):
    model = FairKernelClassifierCV(limit_on=limit_on, unfairness=0.04, sensitive_columns=["g"], **OPTIONS)
    with warnings.catch_warnings(action="error"):  # of a limit that is not met
        model.fit(TRAIN, Y)
    decided, true = model.predict(TEST) == "yes", Y_TEST == "yes"
    assert max(gap(decided, true), gap(decided, ~true)) <= 0.04 + 2 * model.decisions_.gap_error


def test_odds_without_chance_where_the_group_is_seen_and_of_one_the_scores_tell_less():
    lead = (TRAIN["a"] + 0.7 * TRAIN["c"] - 0.4) * np.where(TRAIN["g"] == "f", 0.6, 2.0)
    y = np.random.default_rng(2).random(len(TRAIN)) < expit(lead)
    model = FairKernelClassifierCV(limit_on="odds", unfairness=0.04, sensitive_columns=["g"], **OPTIONS)
    with warnings.catch_warnings(action="error"):  # thresholds of groups do not meet the limit
        model.fit(TRAIN, y)
    assert model.decisions_.gap <= 0.04 + 2 * model.decisions_.gap_error
    assert (model.predict(TRAIN) == y).mean() > max(y.mean(), 1 - y.mean()) + 0.05


def test_more_classes_and_intersections():
    rng = np.random.default_rng(7)
    s = pd.DataFrame({"g": TRAIN["g"], "k": np.array(["u", "v"])[rng.integers(0, 2, len(TRAIN))]})
    three = np.digitize(NUMBER, [45, 58])
    model = FairKernelClassifier(limit_on="decisions", unfairness=0.04, **OPTIONS)
    model.fit(TRAIN[["a", "b", "c"]], three, sensitive_features=s)
    assert len(model.decisions_.table) == 3 * 4
    assert model.decisions_.gap <= 0.04 + 2e-3
    assert set(model.predict(TEST[["a", "b", "c"]])) == {0, 1, 2}


@pytest.mark.parametrize("asked", [Decisions(threshold=52.0), Decisions(top=0.2)])
@pytest.mark.parametrize("kind", [FairKernelRegressor, FairKernelRegressorCV])
def test_regressions_decide_by_a_threshold_or_ranks(kind, asked):
    options = OPTIONS | {"sensitive_columns": ["g"], "loss": "squared"}
    model = kind(limit_on=asked, unfairness=0.03, **options).fit(TRAIN, NUMBER)
    decided = model.decide(TEST)
    assert gap(decided) <= 0.03 + 2 * np.hypot(model.decisions_.gap_error, 0.007)
    assert gap(model.predict(TEST) > 52) > 0.1
    ranks = model.rank_scores(TEST)
    np.testing.assert_array_equal(ranks > 0, decided)
    if asked.top is not None:
        assert abs(decided.mean() - 0.2) < 0.02
        best = ranks >= np.quantile(ranks, 0.8)
        assert gap(best) <= 0.03 + 2 * np.hypot(model.decisions_.gap_error, 0.007)


@pytest.mark.parametrize("limit_on", ["odds", Decisions("odds", randomized=True)])
def test_chunks_and_clusters_change_nothing(limit_on):
    X, s = TRAIN[["a", "b", "c"]].to_numpy()[:800], (TRAIN["g"] == "m").to_numpy(float)[:800]
    y = (Y == "yes").astype(float)[:800]
    model = FairKernelClassifier(limit_on=limit_on, unfairness=0.05, sensitive_kernel="categorical", **OPTIONS)
    whole = clone(model).fit(X, y, sensitive_features=s)

    def batches():
        for start in range(0, 800, 170):
            at = slice(start, start + 170)
            yield X[at], y[at], s[at]

    streamed = clone(model).fit(BatchSource(batches), None)
    lazy = [da.from_array(part, chunks=(300, *part.shape[1:])) for part in (X, y, s)]
    dasked = clone(model).fit(lazy[0], lazy[1], sensitive_features=lazy[2])
    for other in (streamed, dasked):
        assert abs(other.decisions_.gap - whole.decisions_.gap) < 1e-6
        assert np.mean(other.predict(X) == whole.predict(X)) > 0.998
    np.testing.assert_array_equal(dasked.predict(lazy[0]).compute(), dasked.predict(X))


def test_files_keep_the_rule(tmp_path):
    model = FairKernelClassifierCV(limit_on=Decisions("odds"), unfairness=0.1, sensitive_columns=["g"], **OPTIONS).fit(
        TRAIN, Y
    )
    save(model, tmp_path / "model")
    other = load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict(TEST), model.predict(TEST))
    assert other.decisions_.table.equals(model.decisions_.table)
    with refused("limit_on"):
        to_onnx(model)


def test_a_path_is_one_of_scores():
    options = OPTIONS | {"sensitive_columns": ["g"]}
    model = FairKernelClassifier(limit_on="decisions", unfairness=0.02, **options).fit(TRAIN, Y)
    fair = model.path(TRAIN, Y, etas=[0.0, 1.0]).at(eta=1.0)
    assert not hasattr(fair, "decisions_")
    assert fair.limit_on == "scores"


S = TRAIN["g"]
BARE = TRAIN[["a", "b", "c"]]


@pytest.mark.parametrize(
    ("model", "y", "s", "names"),
    [
        (FairKernelRegressor(limit_on="decisions", unfairness=0.1), NUMBER, S, ["threshold"]),
        (FairKernelClassifier(limit_on=Decisions(top=0.1), unfairness=0.1), Y, S, ["top"]),
        (FairKernelClassifier(limit_on="decisions"), Y, S, ["unfairness"]),
        (FairKernelClassifier(limit_on="decisions", unfairness=0.1), Y, None, ["sensitive"]),
        (FairKernelClassifier(limit_on="decisions", unfairness=0.1), Y, NUMBER, ["number"]),
        (FairKernelClassifier(limit_on="odds", unfairness=0.1), np.where(S == "f", "no", Y), S, ["g=f", "yes"]),
        (FairKernelClassifier(limit_on="odds", unfairness=0.1), np.full(len(S), "no"), S, ["no"]),
        (FairKernelClassifier(limit_on="nothing", unfairness=0.1), Y, S, ["limit_on"]),
        (FairKernelRegressor(limit_on=Decisions(top=2.0), unfairness=0.1), NUMBER, S, ["top", "2"]),
        (FairKernelRegressor(limit_on=Decisions("odds", top=0.1), unfairness=0.1), NUMBER, S, ["odds", "top"]),
        (FairKernelRegressor(limit_on=Decisions("other", top=0.1), unfairness=0.1), NUMBER, S, ["other"]),
    ],
)
def test_what_cannot_be_limited(model, y, s, names):
    with refused(*names):
        model.set_params(**OPTIONS).fit(BARE, y, sensitive_features=s)


def test_nothing_is_decided_without_a_limit():
    model = FairKernelRegressor(eta=1.0, **OPTIONS).fit(BARE, NUMBER, sensitive_features=S)
    with refused("limit_on"):
        model.decide(BARE)
    with refused("control_features"):
        FairKernelClassifier(limit_on="decisions", unfairness=0.1, **OPTIONS).fit(
            BARE, Y, sensitive_features=S, control_features=Y
        )
