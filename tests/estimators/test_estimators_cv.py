"""Paths and cross-validation against refits and brute force over the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit, TimeSeriesSplit

from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair._hash import balanced_fold
from scalefair.maps import OneHot
from tests import naive
from tests.errors import refused
from tests.models import fit_within
from tests.promises.population import chance_ratio

ALPHAS = [1e-3, 1e-1, 3.0]
ETAS = [0.0, 1.0, 30.0, np.inf]


def rows(n=60, seed=0, strength=0.8):
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(n, 4))
    X[:, 0] += strength * (groups == "a")
    X[:, 1] -= strength * (groups == "b")
    y = X @ [1.0, -1.0, 0.6, 0.3] + 0.5 * rng.normal(size=n) + 2.0
    return X, y, groups


def onehot(groups):
    return OneHot().fit_transform(np.asarray(groups)[:, None])


def ridge(X, Psi, y, alpha, eta, **options):
    if eta == np.inf:
        options.pop("penalty", None)
        options.pop("eps", None)
        return naive.ridge_without_covariance(X, Psi, y, alpha=alpha, **options)
    return naive.ridge(X, Psi, y, alpha=alpha, eta=eta, **options)


def corrected_share(f, Psi, eps, weight, ratio):
    """(r − t)/(1 − t): what s explains beyond what chance explains on so few rows."""
    C = naive.covariance(Psi, Psi, weight)
    inverse = np.linalg.pinv(C + eps * np.eye(len(C)), rcond=1e-12, hermitian=True)
    chance = np.trace(C @ inverse) / (np.sum(weight) ** 2 / np.sum(weight**2) - 1)
    chance *= ratio
    return (naive.share(f, Psi, eps=eps, weight=weight) - chance) / (1 - chance)


def brute_force(X, y, groups, splits, alphas, etas, *, weight=None, rescaled=False, eps=0.0):
    """Held-out error and share of every fold, alpha and eta, row by row."""
    weight = np.ones(len(X)) if weight is None else weight
    Psi = onehot(groups)
    mse, share = (np.empty((len(splits), len(alphas), len(etas))) for _ in range(2))
    for k, (train, test) in enumerate(splits):
        w = weight[train]
        for i, alpha in enumerate(alphas):
            for j, eta in enumerate(etas):
                b, coef = ridge(X[train], Psi[train], y[train], alpha, eta, weight=w, eps=eps)
                if rescaled and eta > 0:
                    f = X[train] @ coef
                    scale = naive.covariance(y[train], f, w) / naive.covariance(f, f, w)
                    coef = coef * scale[0, 0]
                    b = np.average(y[train] - X[train] @ coef, weights=w)
                f = X[test] @ coef + b
                mse[k, i, j] = np.average((y[test] - f) ** 2, weights=weight[test])
                share[k, i, j] = corrected_share(
                    f, Psi[test], 0.0, weight[test], chance_ratio(f, Psi[test], weight[test])
                )
    return mse, share


def one_error_rule(mse, etas):
    """Position of the largest eta within one standard error of the best, at its best alpha."""
    mean, error = mse.mean(axis=0), mse.std(axis=0, ddof=1) / np.sqrt(len(mse))
    best = np.unravel_index(np.argmin(mean), mean.shape)
    allowed = [
        (etas[j], mean[:, j].argmin(), j) for j in range(len(etas)) if mean[:, j].min() <= mean[best] + error[best]
    ]
    return max(allowed)[1:]


SPLITTERS = {
    "kfold": KFold(4),
    "shuffled": KFold(3, shuffle=True, random_state=1),
    "predefined": PredefinedSplit(np.arange(60) % 5 - 1),  # every fifth row always trains
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("splitter", SPLITTERS)
def test_cross_validation_without_a_limit_is_the_brute_force(splitter, weighted):
    X, y, groups = rows()
    weight = naive.weights(len(X)) if weighted else None
    splits = list(SPLITTERS[splitter].split(X))
    mse, share = brute_force(X, y, groups, splits, ALPHAS, ETAS, weight=weight)
    i, j = one_error_rule(mse, ETAS)
    for cv in (SPLITTERS[splitter], splits, iter(splits)):
        model = FairKernelRidgeCV(feature_map="linear", alphas=ALPHAS, etas=ETAS, cv=cv)
        model.fit(X, y, sensitive_features=groups, sample_weight=weight)
        np.testing.assert_allclose(model.cv_results_["mse"], mse, rtol=1e-9)
        np.testing.assert_allclose(model.cv_results_["explained_share"], share, atol=1e-8)
        assert (model.alpha_, model.eta_) == (ALPHAS[i], ETAS[j])
    assert model.explained_share_cv_ == pytest.approx(max(share[:, i, j].mean(), 0), abs=1e-8)
    error = share[:, i, j].std(ddof=1) / np.sqrt(len(splits))
    assert model.explained_share_cv_error_ == pytest.approx(error, abs=1e-8)
    refit = FairRidge(alpha=model.alpha_, eta=model.eta_)
    refit.fit(X, y, sensitive_features=groups, sample_weight=weight)
    naive.close(model.predict(X), refit.predict(X), 1e-9)
    assert model.explained_share_ == pytest.approx(refit.explained_share_, abs=1e-9)
    assert model.n_samples_seen_ == len(X)


@pytest.mark.parametrize(("seed", "unfairness"), [(0, 0.1), (0, 0.3), (0, 1.0), (6, 0.15), (6, 0.2)])
def test_cross_validation_under_a_limit_is_the_brute_force(seed, unfairness):
    X, y, groups = rows(n=90, seed=seed, strength=1.2)
    splits = list(KFold(3).split(X))
    model = FairKernelRidgeCV(feature_map="linear", alphas=ALPHAS, etas=ETAS, cv=KFold(3), unfairness=unfairness)
    model.fit(X, y, sensitive_features=groups)
    etas = model.cv_results_["etas"]
    assert set(ETAS) <= set(etas)
    mse, share = brute_force(X, y, groups, splits, ALPHAS, etas, rescaled=True)
    np.testing.assert_allclose(model.cv_results_["mse"], mse, rtol=1e-7)
    np.testing.assert_allclose(model.cv_results_["explained_share"], share, atol=1e-7)
    best = np.inf
    for i in range(len(ALPHAS)):
        for j in range(len(etas)):
            fairest = np.isinf(etas[j]) and share[:, i, j].mean() <= unfairness
            if fairest or naive.bound_of_share(share[:, i, j], len(y), unfairness) <= unfairness:
                best = min(best, mse[:, i, j].mean())
    chosen = ALPHAS.index(model.alpha_), list(etas).index(model.eta_)
    assert mse[(slice(None), *chosen)].mean() == pytest.approx(best, rel=1e-9)
    margin = 0.75 * model.explained_share_cv_error_ * (model.eta_ < np.inf)
    assert 0 <= model.explained_share_cv_ + margin <= unfairness
    in_sample = naive.between_group_share(model.predict(X), groups)
    assert model.explained_share_ == pytest.approx(in_sample, abs=1e-9)
    f = model.predict(X)
    refit = FairRidge(alpha=model.alpha_, eta=model.eta_).fit(X, y, sensitive_features=groups)
    assert abs(np.corrcoef(f, refit.predict(X))[0, 1]) == pytest.approx(1, abs=1e-10)
    if model.eta_ > 0:
        assert np.cov(f, y)[0, 1] / np.var(f, ddof=1) == pytest.approx(1.0, rel=1e-9)


def test_a_number_of_folds_means_balanced_random_folds():
    X, y, groups = rows(n=62)
    options = {"feature_map": "linear", "alphas": ALPHAS, "etas": ETAS, "random_state": 7}
    model = FairKernelRidgeCV(cv=4, **options).fit(X, y, sensitive_features=groups)
    fold = balanced_fold(4, 7 + 1, np.arange(62))  # not the seed of the sample
    assert sorted(np.bincount(fold)) == [15, 15, 16, 16]
    assert len(set(map(tuple, fold[:60].reshape(15, 4)))) > 5
    same = FairKernelRidgeCV(cv=PredefinedSplit(fold), **options)
    same.fit(X, y, sensitive_features=groups)
    np.testing.assert_allclose(model.cv_results_["mse"], same.cv_results_["mse"], rtol=1e-12)
    chunked = FairKernelRidgeCV(cv=4, **options)
    fit_within({"chunk_rows": 7, "n_jobs": 2}, chunked, X, y, sensitive_features=groups)
    np.testing.assert_allclose(model.cv_results_["mse"], chunked.cv_results_["mse"], rtol=1e-10)


@pytest.mark.parametrize("unfairness", [None, 0.2])
def test_joined_attributes_get_their_own_ridge_and_the_refit_is_the_plain_estimator(unfairness):
    X, y, groups = rows(n=150)
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(g=groups)
    options = {"length_scale": 2.0, "sensitive_columns": ["g"]}
    model = FairKernelRidgeCV(random_state=0, unfairness=unfairness, **options).fit(frame, y)
    assert model.ridge_ratio_ in (1.0, 1e-3)
    alpha = {"phi": model.alpha_, "psi": model.ridge_ratio_ * model.alpha_}
    plain = FairKernelRidge(alpha=alpha, eta=model.eta_, **options).fit(frame, y)
    f, expected = model.predict(frame), plain.predict(frame)
    assert np.corrcoef(f, expected)[0, 1] == pytest.approx(1, abs=1e-9)
    if unfairness is None:
        naive.close(f, expected, 1e-8)
    else:
        naive.close(model.path_.at(unfairness=unfairness).predict(frame), f, 1e-10)
    at = model.path_.at(alpha=model.alpha_, eta=model.eta_)
    naive.close(at.predict(frame), expected, 1e-8)
    assert isinstance(at, FairKernelRidge)


def test_eps_is_chosen_by_the_held_out_share():
    X, y, groups = rows()
    etas, splits = [0.0, 1.0, 30.0], list(KFold(3).split(X))
    options = {"feature_map": "linear", "alphas": ALPHAS, "etas": etas, "cv": KFold(3)}
    model = FairKernelRidgeCV(eps="auto", **options).fit(X, y, sensitive_features=groups)
    shares = {}
    for eps in (None, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        # Fitted with its own ε, judged without any.
        mse, share = brute_force(X, y, groups, splits, ALPHAS, etas, eps=eps or 0.0)
        i, j = one_error_rule(mse, etas)
        shares[eps] = share[:, i, j].mean()
    assert shares[model.eps_] == pytest.approx(min(shares.values()), abs=1e-9)
    assert model.explained_share_cv_ == pytest.approx(max(min(shares.values()), 0), abs=1e-8)
    s = np.column_stack([X[:, 0] + 0.3 * y, X[:, 1] ** 2])
    limited = FairKernelRidgeCV(eps="auto", **{**options, "feature_map": "nystroem"})
    limited.set_params(unfairness=0.5, length_scale=2.0).fit(X, y, sensitive_features=s)
    assert limited.eps_ in shares
    assert limited.explained_share_cv_ <= 0.5


def test_what_no_fold_can_judge_is_refused():
    X, y, groups = rows()
    tiny = np.arange(60) % 3
    tiny[:4] = 3
    tiny[4:] %= 3
    rare = np.where(tiny == 3, ["a", "b", "c", "d"] * 15, groups)
    model = FairKernelRidgeCV(feature_map="linear", cv=PredefinedSplit(tiny), unfairness=0.3)
    # Four rows of four groups: everything is explained, whatever the predictions are.
    with refused("fold 3", "cv"):
        model.fit(X, y, sensitive_features=rare)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    "cv", [1, 61, ShuffleSplit(3, random_state=0), TimeSeriesSplit(3), [(np.arange(30), np.arange(30, 60))], "five"]
)
def test_folds_that_moments_cannot_have(cv):
    X, y, groups = rows()
    with refused("cv" if isinstance(cv, str) else f"cv={cv!r}"):
        FairKernelRidgeCV(cv=cv).fit(X, y, sensitive_features=groups)


def test_a_fold_without_weight_is_refused():
    X, y, groups = rows()
    weight = np.repeat([0.0, 1.0], 30)
    with refused("cv=", "sample_weight"):
        FairKernelRidgeCV(cv=KFold(2)).fit(X, y, sensitive_features=groups, sample_weight=weight)


def fitted(name):
    X, y, groups = rows()
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(g=groups)
    joined = {"sensitive_columns": ["g"], "length_scale": 2.0}
    model, data, fit = {
        "linear": (FairRidge(), X, {"sensitive_features": groups}),
        "hsic": (FairRidge(penalty="hsic"), X, {"sensitive_features": groups}),
        "nocco": (FairRidge(penalty="nocco", eps=1e-3), X, {"sensitive_features": groups}),
        "no intercept": (FairRidge(fit_intercept=False), X, {"sensitive_features": groups}),
        "joined": (FairKernelRidge(**joined), frame, {}),
        "blocks": (FairKernelRidge(alpha={"phi": 0.01, "psi": 0.3}, **joined), frame, {}),
        "limit": (FairRidge(unfairness=0.02), X, {"sensitive_features": groups}),
        "exact": (
            FairKernelRidge(feature_map="exact", length_scale=2.0, unfairness=0.1),
            X,
            {"sensitive_features": groups},
        ),
    }[name]
    return model.fit(data, y, **fit), data, y, groups, fit


@pytest.mark.parametrize("name", ["linear", "hsic", "nocco", "no intercept", "joined", "blocks", "limit", "exact"])
def test_a_path_is_what_refitting_gives(name):
    model, data, y, groups, fit = fitted(name)
    path = model.path(alphas=[1e-2, 1.0], etas=[0, 5.0, np.inf])
    table = path.table
    assert list(zip(table.alpha, table.eta, strict=True)) == [
        (alpha, eta) for alpha in (1e-2, 1.0) for eta in (0, 5.0, np.inf)
    ]
    Psi = onehot(groups)
    for row in table.itertuples():
        at = path.at(alpha=row.alpha, eta=row.eta)
        alpha = row.alpha if name != "blocks" else {"phi": row.alpha, "psi": 30 * row.alpha}
        assert at.get_params()["unfairness"] is None
        fresh = type(model)(**{**model.get_params(), "unfairness": None})
        fresh.set_params(alpha=alpha, eta=row.eta).fit(data, y, **fit)
        f = fresh.predict(data)
        naive.close(at.predict(data), f, 1e-7)
        assert at.eta_ == row.eta
        assert row.mse == pytest.approx(np.mean((y - f) ** 2), rel=1e-6)
        assert row.r2 == pytest.approx(1 - row.mse / np.var(y), rel=1e-8)
        share = naive.share(f, Psi, eps=0.0)
        assert row.explained_share == pytest.approx(share, rel=1e-5, abs=1e-9)
        hsic = np.sum(naive.covariance(f, Psi) ** 2)
        assert row.hsic == pytest.approx(hsic, rel=1e-5, abs=1e-12)


def test_the_front_and_the_selection_of_a_path():
    model, data, y, *_ = fitted("linear")
    path = model.path(alphas=[1e-2, 0.1, 1.0])
    table, front = path.table, path.front()
    assert len(path.etas) == 25
    assert path.etas[0] == 0
    assert path.etas[-1] == np.inf
    best = [
        not ((table.mse < row.mse) & (table.explained_share < row.explained_share)).any() for row in front.itertuples()
    ]
    assert all(best)
    assert front.explained_share.is_monotonic_increasing
    assert front.mse.is_monotonic_decreasing
    beaten = [
        ((front.mse <= row.mse) & (front.explained_share <= row.explained_share)).any() for row in table.itertuples()
    ]
    assert all(beaten)
    assert list(front) == ["explained_share", "mse", "r2", "alpha", "eta", "hsic"]
    for limit in (0.02, 0.1):
        fit = path.at(unfairness=limit)
        assert fit.explained_share_ == pytest.approx(limit, rel=1e-6) or fit.eta_ == 0
        assert fit.explained_share_ <= limit * (1 + 1e-6)
        assert np.mean((y - fit.predict(data)) ** 2) <= table[table.explained_share <= limit].mse.min() * (1 + 1e-9)
    with refused("unfairness=1.5"):
        path.at(unfairness=1.5)
    for wrong in ({}, {"alpha": 1.0}, {"unfairness": 0.1, "eta": 1.0}, {"alpha": 1, "unfairness": 0}):
        with refused("unfairness=", "eta="):
            path.at(**wrong)
    with refused("alpha", "3"):
        path.at(eta=1.0)
    assert "<table" in path._repr_html_()


def test_a_path_stays_what_it_is_when_the_estimator_is_refitted():
    model, data, y, _, fit = fitted("linear")
    early, late = model.path(alphas=[0.1]), model.path(alphas=[0.1])
    before = early.table
    model.fit(-data, y**2, **fit)
    pd.testing.assert_frame_equal(late.table, before)
    assert not np.allclose(model.path(alphas=[0.1]).table.mse, before.mse)


def test_paths_without_sensitive_attributes_or_moments():
    X, y, groups = rows()
    model = FairRidge(eta=0).fit(X, y)
    path = model.path(alphas=[0.1, 1.0])
    assert path.table.eta.tolist() == [0, 0]
    assert path.table.explained_share.isna().all()
    for ask in (
        lambda: model.path(etas=[0, 1]),
        lambda: path.at(alpha=0.1, eta=5.0),
        lambda: path.at(unfairness=0.1),
        lambda: model.set_params(eta=3.0).partial_fit(X, y),
    ):
        with refused("sensitive_features"):
            ask()
    cv = FairKernelRidgeCV(etas=[0]).fit(X, y)
    assert np.isnan([cv.explained_share_, cv.explained_share_cv_]).all()
    dense = FairKernelRidge(feature_map="exact").fit(X, y, sensitive_features=groups)
    with refused("feature_map='exact'", "feature_map='nystroem'"):
        dense.path()
    with refused("alphas="):
        fitted("linear")[0].path(alphas=[np.inf])


def test_the_path_of_one_fit_has_the_fits_under_other_limits():
    """Between the etas of the grid, too: a limit must not fall back on the next fairer one."""
    X, _, groups = rows(n=600, strength=1.5)
    etas = [0.0, *np.geomspace(0.01, 1e4, 11), np.inf]
    few = {"n_components": 50, "length_scale": 2.0, "random_state": 0}
    model = FairKernelRidgeCV(unfairness=0.9, etas=etas, alphas=[1e-4], **few)
    model.fit(X, X[:, 0], sensitive_features=groups)
    for limit in (0.08, 0.12, 0.16, 0.2):
        at, own = model.path_.at(unfairness=limit), clone(model).set_params(unfairness=limit)
        own.fit(X, X[:, 0], sensitive_features=groups)
        assert 0 < at.eta_ == pytest.approx(own.eta_, rel=0.15)
        assert at.explained_share_cv_ == pytest.approx(own.explained_share_cv_, rel=0.05)
