"""Cross-validation of general losses against fits of every fold by themselves."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit

from scalefair import (
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelClassifierCV,
    FairKernelRegressor,
    FairKernelRegressorCV,
    FairKernelRidgeCV,
    config_context,
    load,
    save,
    scan_parquet,
)
from tests.errors import refused
from tests.promises.population import chance_ratio, draw, share

SMALL = {"n_components": 30, "n_sensitive_components": 15, "random_state": 0}


def table(n=600, kind="categories", classes=True, seed=1):
    X, y, s = draw(kind, n, seed, classes)
    return X, y, s


def squares(X):
    """More columns than a penalty on five groups takes away."""
    return np.column_stack([X, X**2 / 3])


def folds(n, k=4, seed=5):
    return np.random.default_rng(seed).permutation(n) % k


def losses_of(y, f, loss):
    if loss == "logistic":
        return np.logaddexp(0, f) - y * f
    return np.exp(f) - y * f


def with_ratio(found, f, s):
    """A share that is corrected as for equal variances, with those that f has in the groups."""
    groups = pd.get_dummies(s.iloc[:, 0]).to_numpy(float)
    chance = (groups.any(axis=0).sum() - 1) / (len(f) - 1)
    raw, expected = found * (1 - chance) + chance, chance * chance_ratio(f, groups)
    return (raw - expected) / (1 - expected)


@pytest.mark.parametrize("eta", [0.0, 0.3, np.inf])
@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_held_out_scores_are_those_of_fits_to_the_other_folds(loss, eta):
    X, y, s = table()
    X, fold = squares(X), folds(len(y))
    kind, plain = FairKernelClassifierCV, FairKernelClassifier
    options = {"feature_map": "linear", "loss": loss}
    if loss == "poisson":
        kind, plain = FairKernelRegressorCV, FairKernelRegressor
        y = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0] + 0.2))
    grid = {"alphas": [1e-3, 1e-1], "etas": [eta]}
    model = kind(cv=PredefinedSplit(fold), **grid, **options).fit(X, y, sensitive_features=s)
    assert model.cv_results_["loss"].shape == (4, 2, 1)
    for k in range(4):
        out = fold == k
        for a, alpha in enumerate(grid["alphas"]):
            fit = plain(alpha=alpha, eta=eta, **options)
            fit.fit(X[~out], y[~out], sensitive_features=s[~out])
            f = X[out] @ np.ravel(fit.coef_) + np.ravel(fit.intercept_)
            expected = losses_of(y[out], f, loss).mean()
            found = model.cv_results_["loss"][k, a, 0]
            assert found == pytest.approx(expected, abs=3e-3)
            held_out = model.cv_results_["explained_share"][k, a, 0]
            expected = with_ratio(share(f, s[out]), f, s[out])
            assert held_out == pytest.approx(expected, abs=3e-3)
    at = plain(alpha=model.alpha_, eta=eta, **options).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(model.coef_, at.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), at.predict(X), rtol=1e-4)


def test_three_classes():
    X, y, s = table(classes=False)
    y = np.array(["low", "mid", "top"])[np.digitize(y, [1.0, 3.0])]
    fold = folds(len(y))
    options = {"feature_map": "linear", "class_weight": "balanced"}
    model = FairKernelClassifierCV(cv=PredefinedSplit(fold), alphas=[1e-3], etas=[0.0, 1.0], **options).fit(
        X, y, sensitive_features=s
    )
    for e, eta in enumerate([0.0, 1.0]):
        fit = FairKernelClassifier(alpha=1e-3, eta=eta, **options)
        out = fold == 2
        fit.fit(X[~out], y[~out], sensitive_features=s[~out])
        weight = len(y) / (3 * pd.Series(y).map(pd.Series(y).value_counts()).to_numpy())
        expected = log_loss(y[out], fit.predict_proba(X[out]), sample_weight=weight[out])
        expected *= weight[out].sum() / out.sum()
        # The weights of a part are those of its own classes.
        assert model.cv_results_["loss"][2, 0, e] == pytest.approx(expected, rel=0.02)
    assert model.predict_proba(X).shape == (600, 3)
    assert set(model.predict(X)) <= {"low", "mid", "top"}


@pytest.mark.parametrize("kind", ["categories", "numbers", "mixed"])
def test_the_limit_holds_on_the_folds_and_on_new_rows(kind):
    X, y, s = table(2000, kind)
    fresh, _, s_fresh = draw(kind, 30_000, 2, True)
    model = FairKernelClassifierCV(unfairness=0.05, **SMALL).fit(X, y, sensitive_features=s)
    assert model.explained_share_cv_ + model.explained_share_cv_error_ / 2 <= 0.05
    found = share(model.decision_function(fresh), s_fresh)
    assert found <= 0.05 + 4 * model.explained_share_cv_error_
    assert model.score(X, y) > 0.65
    again = model.path_.at(unfairness=0.05)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), rtol=0.02, atol=0.02)
    assert again.explained_share_cv_ == model.explained_share_cv_
    assert again.explained_share_cv_error_ == model.explained_share_cv_error_


def test_a_ridge_that_is_chosen_beats_the_default():
    X, y, _ = table(2000)
    fresh, truth, _ = draw("categories", 10_000, 2, True)
    options = SMALL | {"n_components": 100}
    chosen = FairKernelClassifierCV(etas=[0], **options).fit(X, y)
    default = FairKernelClassifier(eta=0, alpha=1e-1, **options).fit(X, y)
    errors = [log_loss(truth, model.predict_proba(fresh)) for model in (chosen, default)]
    assert errors[0] < errors[1]
    assert chosen.eta_ == 0
    assert np.isnan(chosen.explained_share_cv_)


def test_no_share_at_all_is_an_infinite_weight():
    X, y, s = table()
    model = FairKernelClassifierCV(unfairness=0, **SMALL).fit(X, y, sensitive_features=s)
    assert np.isinf(model.eta_)
    assert model.explained_share_ < 1e-12
    assert np.isfinite(model.explained_share_cv_error_)


@pytest.mark.parametrize("kind", [FairKernelClassifierCV, FairKernelRegressorCV])
def test_a_constant_is_a_candidate(kind):
    rng = np.random.default_rng(0)
    s = np.repeat(["a", "b"], 60)
    X = (s == "a")[:, None] + 0.01 * rng.normal(size=(120, 1))
    y = (rng.random(120) < np.where(s == "a", 0.8, 0.2)).astype(int)
    with pytest.warns(UserWarning, match="constant"):
        model = kind(unfairness=0.001, feature_map="linear").fit(X, y, sensitive_features=s)
    assert not np.any(model.coef_)
    assert np.isnan(model.explained_share_)
    assert np.isnan(model.explained_share_cv_)
    assert np.isinf(model.eta_)
    f = np.unique(model.predict_proba(X)[:, 1] if kind is FairKernelClassifierCV else X[:1])
    assert len(f) == 1
    if kind is FairKernelClassifierCV:
        assert f[0] == pytest.approx(y.mean(), abs=1e-3)
    with pytest.warns(UserWarning, match="constant"):
        assert not np.any(model.path_.at(unfairness=0.001).coef_)


def test_units_of_weights_and_chunks_change_nothing():
    X, y, s = table(800, "numbers")
    weight = np.random.default_rng(3).exponential(size=800)
    options = {"unfairness": 0.05, "n_jobs": 1, **SMALL}
    one = FairKernelClassifierCV(**options)
    one.fit(X, y, sensitive_features=s, sample_weight=weight)
    other = FairKernelClassifierCV(**options)
    with config_context(chunk_rows=97):
        other.fit(X, y, sensitive_features=s, sample_weight=100 * weight)
    assert other.alpha_ == pytest.approx(one.alpha_, rel=1e-9)
    assert other.eta_ == pytest.approx(one.eta_, rel=1e-3)
    np.testing.assert_allclose(other.decision_function(X), one.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["poisson", "gamma", "huber", "quantile"])
def test_units_of_the_target_change_nothing(loss):
    """Rates per year with years of exposure as weights, or per second."""
    X, y, s = table(classes=False, kind="numbers")
    y = np.exp(y / 3) / 20 if loss in {"poisson", "gamma"} else y
    model, found = FairKernelRegressorCV(loss=loss, unfairness=0.5, **SMALL), []
    for c in (1.0, 1 / 3e7):
        model.fit(X, c * y, sensitive_features=s, sample_weight=np.full(len(X), 1 / c))
        found.append(model.predict(X) / c)
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_rows_of_weight_zero_count_nowhere():
    X, y, s = table(800)
    X, fold = squares(X), folds(800)
    weight = np.ones(800)
    weight[::7] = 0
    some = weight > 0
    options = {"unfairness": 0.1, "feature_map": "linear"}
    one = FairKernelClassifierCV(cv=PredefinedSplit(fold), **options)
    one.fit(X, y, sensitive_features=s, sample_weight=weight)
    other = FairKernelClassifierCV(cv=PredefinedSplit(fold[some]), **options)
    other.fit(X[some], y[some], sensitive_features=s[some])
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-4, atol=1e-6)


def test_squared_loss_agrees_with_the_closed_form():
    X, y, s = table(800, classes=False)
    grid = {"alphas": [1e-3, 1e-2], "etas": [0.0, 0.1, 1.0], "cv": 3, **SMALL}
    loss = FairKernelRegressorCV(loss="squared", **grid).fit(X, y, sensitive_features=s)
    ridge = FairKernelRidgeCV(**grid).fit(X, y, sensitive_features=s)
    assert loss.eta_ == ridge.eta_
    tried = np.isfinite(loss.cv_results_["loss"])
    ratio = ridge.cv_results_["mse"][tried] / loss.cv_results_["loss"][tried]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    np.testing.assert_allclose(
        loss.cv_results_["explained_share"][tried], ridge.cv_results_["explained_share"][tried], atol=1e-5
    )


@pytest.mark.parametrize("process", [FairGPRegressor, FairGPClassifier])
def test_processes_meet_a_limit_on_folds(process):
    """Of every fold, the share of the process of the others at the same hyperparameters."""
    classes = process is FairGPClassifier
    X, y, s = table(500, classes=classes)
    X, fold, K = squares(X), folds(500), 4
    given = {"amplitude": 1.0} | ({} if classes else {"noise": 0.3})
    options = {"feature_map": "linear", "optimizer": None, **given}
    model = process(unfairness=0.1, cv=PredefinedSplit(fold), **options)
    model.fit(X, y, sensitive_features=s)
    assert model.explained_share_cv_ + model.explained_share_cv_error_ / 2 <= 0.1
    shares, errors = [], []
    for k in range(K):
        out = fold == k
        fit = process(eta=model.eta_, **options).fit(X[~out], y[~out], sensitive_features=s[~out])
        f = fit.decision_function(X[out]) if classes else fit.predict(X[out])
        shares.append(with_ratio(share(f, s[out]), f, s[out]))
        loss = losses_of(y[out], f, "logistic") if classes else (y[out] - f) ** 2
        errors.append(loss.mean())
    assert model.explained_share_cv_ == pytest.approx(np.mean(shares), abs=3e-3)
    at = int(np.argmin(np.abs(model.cv_results_["etas"] - model.eta_)))
    found = model.cv_results_["loss" if classes else "mse"][:, at]
    np.testing.assert_allclose(found, errors, rtol=5e-3)
    again = process(eta=model.eta_, **options).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", ["huber", "quantile", "gamma"])
def test_other_losses(loss):
    X, y, s = table(500, "numbers", classes=False)
    y = np.exp(0.2 * y) if loss == "gamma" else y
    model = FairKernelRegressorCV(loss=loss, unfairness=0.2, **SMALL)
    model.fit(X, y, sensitive_features=s)
    assert model.explained_share_cv_ <= 0.2
    assert np.std(model.predict(X)) > 0.1 * np.std(y)


def test_base_model_and_control(tmp_path):
    X, y, s = table(500)
    c = np.digitize(X[:, 2], [0.3]).astype(str)
    base = FairKernelClassifier(eta=0, **SMALL)
    model = FairKernelClassifierCV(unfairness=0.1, base_estimator=base, cv=3, **SMALL)
    model.fit(X, y, sensitive_features=s, control_features=c)
    assert model.explained_share_cv_ <= 0.1
    save(model, tmp_path / "model")
    back = load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    pd.testing.assert_frame_equal(back.path_.table, model.path_.table)
    np.testing.assert_array_equal(back.path_.at(unfairness=0.1).predict(X), model.path_.at(unfairness=0.1).predict(X))


def test_rows_of_a_file_and_of_dask_give_the_same_model(tmp_path):
    X, y, s = table(600)
    frame = pd.DataFrame(X, columns=list("pqrt")).assign(g=s["g"].to_numpy(), y=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=150)
    rows, inputs = scan_parquet(tmp_path / "rows.parquet"), list("pqrtg")
    options = {"unfairness": 0.1, "cv": 2, "sensitive_columns": ["g"], **SMALL}
    one = FairKernelClassifierCV(**options).fit(frame[inputs], frame["y"])
    other = FairKernelClassifierCV(**options).fit(rows[inputs], rows["y"])
    f = one.decision_function(frame[inputs])
    np.testing.assert_allclose(other.decision_function(frame[inputs]), f, atol=1e-6)
    lazy = one.decision_function(dd.from_pandas(frame[inputs], npartitions=3))
    np.testing.assert_allclose(np.asarray(lazy), f, atol=1e-10)


def test_path_over_rows_and_paths_of_the_search():
    X, y, s = table(500)
    model = FairKernelClassifierCV(unfairness=0.1, cv=3, **SMALL)
    with pytest.raises(NotFittedError):
        model.path(X, y, sensitive_features=s)
    model.fit(X, y, sensitive_features=s)
    assert len(model.path(X, y, [0.0, 1.0], sensitive_features=s).table) == 2
    front = model.path_.front()
    assert list(front)[:2] == ["explained_share_cv", "loss_cv"]
    row = model.path_.table.iloc[0]
    at = model.path_.at(alpha=row["alpha"], eta=row["eta"])
    assert at.explained_share_cv_ == row["explained_share_cv"]
    with refused("alpha", "12345"):
        model.path_.at(alpha=12345.0, eta=row["eta"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alphas": [-1.0]}, ["alphas"]),
        ({"etas": []}, ["etas"]),
        ({"cv": 1}, ["cv"]),
        ({"penalty": "nocco_output"}, ["nocco_output"]),
        ({"loss": "absolute"}, ["loss"]),
    ],
)
def test_bad_parameters(options, words):
    X, y, s = table(100)
    with refused(*words):
        FairKernelClassifierCV(**SMALL | options).fit(X, y, sensitive_features=s)
