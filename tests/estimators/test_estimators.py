"""The estimators against dense references, and the invariances of the method."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from scalefair import FairKernelRidge, FairRidge
from scalefair.data.encoding import TableEncoder
from scalefair.maps import OneHot
from tests import naive
from tests.errors import refused
from tests.models import fit_within

ARD = np.array([0.9, 1.3, 1.7])
KERNELS = {
    "rbf": lambda X, Z: np.exp(-0.5 * cdist(X / ARD, Z / ARD) ** 2),
    "laplace": lambda X, Z: np.exp(-cdist(X / ARD, Z / ARD, "cityblock")),
    "matern12": lambda X, Z: np.exp(-cdist(X / ARD, Z / ARD)),
    "matern32": lambda X, Z: _matern32(cdist(X / ARD, Z / ARD) * np.sqrt(3)),
    "matern52": lambda X, Z: _matern52(cdist(X / ARD, Z / ARD) * np.sqrt(5)),
    "linear": lambda X, Z: X @ Z.T,
}


def _matern32(d):
    return (1 + d) * np.exp(-d)


def _matern52(d):
    return (1 + d + d**2 / 3) * np.exp(-d)


def rows(n=30, seed=0, outputs=None):
    """Inputs that carry s, a continuous s, groups, a target and new inputs."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    groups = np.array(["b", "a", "c"])[np.digitize(s + 0.5 * rng.normal(size=n), [-0.4, 0.6])]
    X = rng.normal(size=(n, 3)) + 0.3
    X[:, 0] += s
    coef = rng.normal(size=(3, outputs) if outputs else 3)
    y = 1.5 + np.sin(X) @ coef + (s[:, None] if outputs else s)
    return X, y + 0.1 * rng.normal(size=y.shape), s, groups, rng.normal(size=(11, 3))


def root(K, cutoff=1e-14):
    """Explicit features of a Gram matrix, and the map from k(x, X) to those of new rows."""
    values, vectors = np.linalg.eigh(K)
    keep = values > cutoff * values.max()
    scale = np.sqrt(values[keep])
    return vectors[:, keep] * scale, vectors[:, keep] / scale


def dense(K, K_new, Psi, y, **options):
    """Predictions and intercept of the dense minimiser of J in an explicit basis."""
    Phi, to_features = root(K)
    b, coef = naive.ridge(Phi, Psi, y, **options)
    return K_new @ to_features @ coef + b, b


def encoded(groups):
    """Groups as the estimators hand them to ψ: position among the sorted levels."""
    return np.unique(groups, return_inverse=True)[1].astype(float)[:, None]


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("outputs", "weighted", "fit_intercept"),
    [(None, False, True), (2, True, True), (None, True, False), (3, False, False)],
)
def test_exact_mode_is_the_dense_solution(kernel, penalty, outputs, weighted, fit_intercept):
    X, y, s, _, new = rows(outputs=outputs)
    weight = naive.weights(len(X)) if weighted else None
    options = {"alpha": 1e-2, "eta": 3.0, "penalty": penalty, "eps": 1e-3}
    options["fit_intercept"] = fit_intercept
    model = FairKernelRidge(
        feature_map="exact",
        kernel=kernel,
        length_scale=ARD,
        sensitive_kernel="rbf",
        sensitive_length_scale=0.8,
        **options,
    ).fit(X, y, sensitive_features=s, sample_weight=weight)
    Psi, _ = root(naive.rbf(s[:, None], s[:, None], 0.8))
    k = KERNELS[kernel]
    for at in (X, new):
        f, b = dense(k(X, X), k(at, X), Psi, y, weight=weight, **options)
        naive.close(model.predict(at), f, 1e-9)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-9, atol=1e-12)
    assert model.predict(new).shape == ((11,) if outputs is None else (11, outputs))
    share = naive.share(model.predict(X), Psi, weight=weight)
    assert model.explained_share_ == pytest.approx(share, rel=1e-7)


@pytest.mark.parametrize("penalty", ["hsic", "normalized", "nocco"])
@pytest.mark.parametrize("sensitive_kernel", ["linear", "categorical", "rbf", "auto"])
@pytest.mark.parametrize(
    ("outputs", "weighted", "fit_intercept"), [(None, False, True), (2, True, True), (2, True, False)]
)
def test_fair_ridge_minimises_the_objective(penalty, sensitive_kernel, outputs, weighted, fit_intercept):
    X, y, s, groups, _ = rows(outputs=outputs)
    s = groups if sensitive_kernel == "categorical" else s
    weight = naive.weights(len(X)) if weighted else None
    options = {"alpha": 1e-2, "eta": 3.0, "penalty": penalty, "eps": 1e-4}
    options["fit_intercept"] = fit_intercept
    model = FairRidge(sensitive_kernel=sensitive_kernel, **options)
    model.fit(X, y, sensitive_features=s, sample_weight=weight)
    numbers = encoded(groups) if sensitive_kernel == "categorical" else s[:, None]
    Psi = model.psi_.transform(numbers)
    if sensitive_kernel == "linear":  # numbers as given have an ε in their own unit
        options["eps"] = 1e-4 * naive.covariance(Psi, Psi, weight)[0, 0]
    if penalty == "nocco":
        options["eps_phi"] = 1e-4
    b, coef = naive.ridge(X, Psi, y, weight=weight, **options)
    naive.close(model.coef_, coef.T, 1e-9)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-8, atol=1e-12)
    naive.close(model.predict(X), X @ coef + b, 1e-9)
    unit = {"categorical": 0.0, "linear": naive.covariance(Psi, Psi, weight)[0, 0]}
    eps = 1e-6 * unit.get(sensitive_kernel, 1.0)
    share = naive.share(X @ coef, Psi, eps=eps, weight=weight)
    assert model.explained_share_ == pytest.approx(share, rel=1e-8)


def test_sensitive_maps_are_the_kernels_they_claim():
    X, y, s, groups, _ = rows()
    onehot = FairRidge().fit(X, y, sensitive_features=groups).psi_.transform(encoded(groups))
    np.testing.assert_array_equal(onehot @ onehot.T, groups[:, None] == groups)
    model = FairRidge(sensitive_kernel="linear").fit(X, y, sensitive_features=s)
    np.testing.assert_array_equal(model.psi_.transform(s[:, None]), s[:, None])
    model = FairRidge(sensitive_length_scale=0.7).fit(X, y, sensitive_features=s)
    Psi, z = model.psi_.transform(s[:, None]), s[:, None] / s.std()
    np.testing.assert_allclose(Psi @ Psi.T, naive.rbf(z, z, 0.7), atol=1e-7)


@pytest.mark.parametrize("penalty", ["hsic", "normalized", "nocco"])
def test_sensitive_columns_join_the_features_with_their_own_ridge(penalty):
    X, y, _, groups, _ = rows()
    codes = encoded(groups)
    options = {"alpha": 1e-2, "eta": 2.0, "penalty": penalty, "eps": 1e-3}
    frame = pd.DataFrame(X, columns=["p", "q", "r"]).assign(g=groups)
    model = FairKernelRidge(
        sensitive_columns=["g"], length_scale=1.5, **{**options, "alpha": {"phi": 1e-2, "psi": 1e-1}}
    ).fit(frame, y)
    Phi = model.phi_.transform(TableEncoder().fit_transform(frame))
    Psi = model.psi_.transform(codes)
    joined = np.hstack([Phi, Psi])
    R = naive.factor(joined, Psi, penalty=penalty, eps=1e-3)
    ridge = np.diag(np.repeat([1e-2, 1e-1], [Phi.shape[1], Psi.shape[1]]))
    A = naive.covariance(joined, joined) + ridge + 2.0 * R @ R.T
    coef = np.linalg.solve(A, naive.covariance(joined, y))[:, 0]
    naive.close(model.predict(frame), y.mean() + (joined - joined.mean(axis=0)) @ coef, 1e-8)


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("joined", [False, True])
def test_finite_maps_equal_the_dense_path(penalty, joined):
    # ψ is exact in every mode for a linear kernel and for groups.
    X, y, _, groups, new = rows(outputs=2)
    options = {"alpha": 1e-2, "eta": 2.0, "penalty": penalty, "length_scale": 1.2}
    fit = {} if joined else {"sensitive_features": groups}
    if joined:
        options |= {"sensitive_columns": [1], "sensitive_kernel": "linear"}
    weight = naive.weights(len(X))

    def predictions(**more):
        return FairKernelRidge(**options, **more).fit(X, y, sample_weight=weight, **fit).predict(new)

    exact = predictions(feature_map="exact")
    naive.close(predictions(feature_map="nystroem"), exact, 1e-7)
    linear = predictions(feature_map="exact", kernel="linear")
    naive.close(predictions(feature_map="linear"), linear, 1e-9)
    naive.close(predictions(feature_map="nystroem", kernel="linear"), linear, 1e-9)


@pytest.mark.parametrize("n_components", [20, 21])
def test_fourier_features_minimise_the_objective(n_components):
    X, y, _, groups, new = rows()
    options = {"alpha": 1e-2, "eta": 2.0, "eps": 1e-4}
    model = FairKernelRidge(feature_map="fourier", n_components=n_components, random_state=3, **options).fit(
        X, y, sensitive_features=groups
    )
    Psi = model.psi_.transform(encoded(groups))
    b, coef = naive.ridge(model.phi_.transform(X), Psi, y, **options)
    naive.close(model.predict(new), model.phi_.transform(new) @ coef + b, 1e-9)
    assert model.coef_.shape == (n_components,)


def test_without_penalty_it_is_scikit_learn():
    X, y, _, _, new = rows(outputs=2)
    ours = FairRidge(alpha=0.3, eta=0).fit(X, y)
    theirs = Ridge(alpha=0.3 * len(X)).fit(X, y)
    naive.close(ours.coef_, theirs.coef_, 1e-10)
    naive.close(ours.predict(new), theirs.predict(new), 1e-10)
    assert np.isnan(ours.explained_share_)
    theirs = KernelRidge(kernel="rbf", gamma=1 / (2 * 1.2**2), alpha=0.1 * len(X)).fit(X, y)
    for feature_map, tolerance in (("exact", 1e-9), ("nystroem", 1e-7)):
        model = FairKernelRidge(feature_map=feature_map, length_scale=1.2, alpha=0.1, eta=0, fit_intercept=False).fit(
            X, y
        )
        naive.close(model.predict(new), theirs.predict(new), tolerance)
    weight = naive.weights(len(X))
    ours = FairRidge(alpha=0.3, eta=0).fit(X, y, sample_weight=weight)
    theirs = Ridge(alpha=0.3 * weight.sum()).fit(X, y, sample_weight=weight)
    naive.close(ours.predict(new), theirs.predict(new), 1e-10)


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
def test_infinite_eta_is_the_limit_without_covariance(penalty):
    X, y, _, groups, _ = rows()
    Psi = OneHot().fit_transform(groups[:, None])
    b, coef = naive.ridge_without_covariance(X, Psi, y, alpha=1e-2)
    model = FairRidge(alpha=1e-2, eta=np.inf, penalty=penalty).fit(X, y, sensitive_features=groups)
    naive.close(model.coef_, coef, 1e-9)
    assert model.intercept_ == pytest.approx(b, rel=1e-9)
    assert model.explained_share_ < 1e-20
    far = FairRidge(alpha=1e-2, eta=1e9, penalty=penalty).fit(X, y, sensitive_features=groups)
    naive.close(far.coef_, coef, 1e-6)


ESTIMATORS = {
    "linear": FairRidge(eta=2.0),
    "hsic": FairRidge(eta=2.0, penalty="hsic", sensitive_kernel="linear"),
    "nystroem": FairKernelRidge(eta=2.0, alpha=1e-2, length_scale=1.2),
    "median": FairKernelRidge(eta=2.0, alpha=1e-2),
    "laplace": FairKernelRidge(eta=2.0, alpha=1e-2, kernel="laplace"),
    "exact": FairKernelRidge(eta=2.0, alpha=1e-2, feature_map="exact"),
    "fourier": FairKernelRidge(eta=2.0, feature_map="fourier", n_components=30, random_state=0),
    "limit": FairKernelRidge(unfairness=0.05, alpha=1e-2, length_scale=1.2),
}
ATTRIBUTES = ["numeric", "groups", "mixed"]


def sensitive(kind, s, groups):
    if kind == "mixed":
        return pd.DataFrame({"s": s, "g": groups})
    return {"numeric": s, "groups": groups}[kind]


@pytest.mark.parametrize("kind", ATTRIBUTES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(name, kind):
    X, y, s, groups, new = rows(n=25)
    weight = np.random.default_rng(1).integers(0, 4, size=len(X))
    weight[groups == "c"] = 0  # a group that does not count at all
    twice = np.repeat(np.arange(len(X)), weight)
    weighted = clone(ESTIMATORS[name]).fit(X, y, sensitive_features=sensitive(kind, s, groups), sample_weight=weight)
    repeated = clone(ESTIMATORS[name]).fit(
        X[twice], y[twice], sensitive_features=sensitive(kind, s[twice], groups[twice])
    )
    naive.close(weighted.predict(new), repeated.predict(new), 1e-10)
    # The sensitive attributes explain the same share, although the exact mode counts rows.
    assert weighted.explained_share_ == pytest.approx(repeated.explained_share_, rel=1e-9)
    assert weighted.n_samples_seen_ == np.count_nonzero(weight)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_row_order_does_not_matter(name):
    X, y, s, groups, new = rows()
    order = np.random.default_rng(2).permutation(len(X))
    mixed = sensitive("mixed", s, groups)
    straight = clone(ESTIMATORS[name]).fit(X, y, sensitive_features=mixed)
    permuted = clone(ESTIMATORS[name]).fit(X[order], y[order], sensitive_features=mixed.iloc[order])
    naive.close(permuted.predict(new), straight.predict(new), 1e-9)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_chunks_and_threads_do_not_matter(name, n_jobs):
    X, y, s, groups, _ = rows(n=60)
    mixed = sensitive("mixed", s, groups)
    whole = clone(ESTIMATORS[name]).fit(X, y, sensitive_features=mixed)
    chunks = {"chunk_rows": 7, "n_jobs": n_jobs}
    chunked = fit_within(chunks, clone(ESTIMATORS[name]), X, y, sensitive_features=mixed)
    naive.close(chunked.predict(X), whole.predict(X), 1e-9)
    many = np.tile(X, (30, 1))
    pieces = [chunked.predict(many[start : start + 700]) for start in range(0, len(many), 700)]
    naive.close(np.concatenate(pieces), np.tile(whole.predict(X), 30), 1e-9)


def frequency(Psi, groups):
    """Of the group that each column of a product of one-hots and smooth features belongs to."""
    cells = Psi.reshape(len(Psi), len(np.unique(groups)), -1)
    return np.repeat((cells**2).sum(axis=2).mean(axis=0), cells.shape[2])


@pytest.mark.parametrize("penalty", ["hsic", "normalized"])
@pytest.mark.parametrize("kind", ATTRIBUTES)
@pytest.mark.parametrize("unfairness", [0.1, 0.01])
def test_the_limit_is_met_exactly_and_at_the_best_scale(penalty, kind, unfairness):
    X, y, s, groups, _ = rows(n=80)
    attributes = sensitive(kind, s, groups)
    columns = {"numeric": [s], "groups": [encoded(groups)], "mixed": [s, encoded(groups)]}
    numbers = np.column_stack(columns[kind])
    for model in (
        FairKernelRidge(unfairness=unfairness, penalty=penalty, alpha=1e-4, eps=1e-3),
        FairKernelRidge(unfairness=unfairness, penalty=penalty, alpha=1e-4, eps=1e-3, feature_map="exact"),
    ):
        model.fit(X, y, sensitive_features=attributes)
        f = model.predict(X)
        assert 0 < model.eta_ < np.inf
        assert model.explained_share_ == pytest.approx(unfairness, abs=1e-6)
        Psi = model.psi_.transform(numbers)
        eps = {"numeric": 1e-6, "groups": 0.0}.get(kind)
        eps = 1e-6 * frequency(Psi, groups) if eps is None else eps
        assert naive.share(f, Psi, eps=eps) == pytest.approx(unfairness, abs=1e-6)
        assert np.cov(f, y)[0, 1] / np.var(f, ddof=1) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("alpha", [1e-2, 1e-5])
def test_the_exact_mode_under_a_limit_is_the_dual_solution_at_its_best_scale(alpha):
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(300, 3)), rng.normal(size=300)
    y = X[:, 0] + s + np.sin(X[:, 2]) + 0.3 * rng.normal(size=300)
    limited = FairKernelRidge(feature_map="exact", unfairness=0.05, alpha=alpha).fit(X, y, sensitive_features=s)
    dual = FairKernelRidge(feature_map="exact", eta=limited.eta_, alpha=alpha).fit(X, y, sensitive_features=s)
    new = rng.normal(size=(50, 3))
    f, g = (np.concatenate([m.predict(X), m.predict(new)]) - m.predict(X).mean() for m in (limited, dual))
    scale = f @ g / (g @ g)
    np.testing.assert_allclose(f, scale * g, atol=3e-11 / alpha)


def test_the_limit_is_the_share_between_groups():
    X, y, _, groups, _ = rows(n=60)
    for unfairness in (0.2, 0.01):
        model = FairRidge(unfairness=unfairness, eps=1e-12).fit(X, y, sensitive_features=groups)
        share = naive.between_group_share(model.predict(X), groups)
        assert share == pytest.approx(unfairness, abs=1e-8)
    fair = FairRidge(unfairness=0).fit(X, y, sensitive_features=groups)
    f = fair.predict(X)
    means = [f[groups == g].mean() for g in np.unique(groups)]
    assert np.ptp(means) < 1e-10 * f.std()
    assert f.std() > 0.01
    assert fair.eta_ == np.inf


def test_a_limit_that_is_not_active_changes_nothing():
    X, y, s, _, _ = rows()
    free = FairRidge(eta=0).fit(X, y, sensitive_features=s)
    assert 0 < free.explained_share_ < 1
    limited = FairRidge(unfairness=free.explained_share_ + 1e-6).fit(X, y, sensitive_features=s)
    assert limited.eta_ == 0
    np.testing.assert_allclose(limited.coef_, free.coef_, rtol=1e-10)


@pytest.mark.parametrize("estimator", [FairRidge(), FairKernelRidge(feature_map="linear")])
def test_an_unattainable_limit_names_the_least_share(estimator):
    X, y, _, _, _ = rows()
    s = np.hstack([X, X**2]) + 0.1 * np.random.default_rng(0).normal(size=(len(X), 6))
    C = naive.covariance(X, X)
    R = naive.factor(X, s, eps=1e-6)
    least = np.linalg.eigvals(np.linalg.solve(C, R @ R.T)).real.min()
    estimator = clone(estimator).set_params(sensitive_kernel="linear", unfairness=0.5 * least)
    with refused("unfairness=", f"{least:.4f}"):
        estimator.fit(X, y, sensitive_features=s)
    reached = estimator.set_params(unfairness=least + 0.5 * (1 - least) * 0.01)
    assert reached.fit(X, y, sensitive_features=s).explained_share_ <= reached.unfairness + 1e-9


def test_a_constant_prediction_has_no_share():
    X, _, s, _, _ = rows()
    for model in (FairRidge(), FairKernelRidge(), FairKernelRidge(feature_map="exact")):
        model.fit(X, np.full(len(X), 3.7), sensitive_features=s)
        assert np.isnan(model.explained_share_)
        np.testing.assert_allclose(model.predict(X), 3.7, rtol=1e-12)


@pytest.mark.parametrize("name", ["linear", "nystroem", "exact", "fourier", "limit"])
def test_pickled_estimators_predict_the_same_bits(name):
    X, y, s, groups, new = rows()
    model = clone(ESTIMATORS[name]).fit(X, y, sensitive_features=sensitive("mixed", s, groups))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert again.get_params().keys() == model.get_params().keys()


def test_a_refit_in_another_mode_forgets_the_first():
    X, y, s, _, new = rows()
    model = FairKernelRidge(length_scale=1.2, random_state=0)
    for feature_map, target in (("exact", y), ("linear", -y), ("exact", y**2), ("nystroem", y)):
        model.set_params(feature_map=feature_map).fit(X, target, sensitive_features=s)
        fresh = clone(model).fit(X, target, sensitive_features=s)
        assert vars(model).keys() == vars(fresh).keys()
        np.testing.assert_array_equal(model.predict(new), fresh.predict(new))
        # What was fitted predicts, whatever is set for the next fit.
        fresh.set_params(feature_map="fourier", unfairness=0.1, eta=None)
        np.testing.assert_array_equal(fresh.predict(new), model.predict(new))
