"""Groups known by probabilities: a lower bound of the share, corrected where rows know theirs."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import scalefair
from scalefair import FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge, group_probabilities
from scalefair.measures import explained_share
from tests.errors import refused

GROUPS = np.array(["a", "b", "c"])
MODELS = {
    "linear": FairRidge(unfairness=0.05),
    "kernel": FairKernelRidge(unfairness=0.05, n_components=40, random_state=0),
    "folds": FairKernelRidgeCV(unfairness=0.05, n_components=40, random_state=0),
}


def draw(n, seed):
    """Inputs, targets, groups and their probabilities given a proxy z that x tells of.

    What x tells of the group beyond z points the way that z does.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    P = np.exp(np.column_stack([0 * z, z, z / 2 - 1]))
    P /= P.sum(axis=1, keepdims=True)
    group = (P.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    own = np.array([0.0, 1.0, -0.7])[group]
    x = np.column_stack([z, own, 0 * z]) + rng.normal(size=(n, 3))
    y = x @ [1.0, 1.0, 0.5] + np.array([0.0, 0.5, -0.5])[group] + rng.normal(size=n)
    return x, y, GROUPS[group], P


def some_known(group, seed, part=0.05):
    """Return the groups of some rows, None for all others."""
    return np.where(np.random.default_rng(seed).random(len(group)) < part, group, None)


def naive_share(f, rows):
    """Σ_k Cov(f, ψ_k)² / (π_k Var f)."""
    parts = [np.cov(f, row, ddof=0)[0, 1] ** 2 / row.mean() for row in rows.T]
    return sum(parts) / f.var()


@pytest.mark.parametrize("name", MODELS)
def test_certain_probabilities_are_groups(name):
    X, y, group, _ = draw(800, 0)
    hard = (group[:, None] == GROUPS).astype(float)
    expected = clone(MODELS[name]).fit(X, y, sensitive_features=group)
    for table in (
        group_probabilities(pd.DataFrame(hard, columns=GROUPS), group),
        group_probabilities(hard, np.searchsorted(GROUPS, group)),
    ):
        found = clone(MODELS[name]).fit(X, y, sensitive_features=table)
        np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-8)
        np.testing.assert_allclose(found.explained_share_, expected.explained_share_, rtol=1e-8)


def test_the_share_is_the_formula():
    X, y, group, P = draw(2_000, 0)
    frame = pd.DataFrame(P, columns=GROUPS)
    for rows in (group_probabilities(P), group_probabilities(frame, some_known(group, 0))):
        model = FairRidge(eta=1.0).fit(X, y, sensitive_features=rows)
        f = model.predict(X)
        np.testing.assert_allclose(model.explained_share_, naive_share(f, np.asarray(rows)))
        np.testing.assert_allclose(explained_share(f, rows, cv=None), model.explained_share_)


def test_probabilities_tell_a_lower_bound_and_known_groups_correct_it():
    """Estimates on 10,000 rows and their standard error over draws, against 400,000 rows."""
    X, _, group, P = draw(400_000, 1)
    f = X @ [1.0, 1.0, 0.5]
    truth = explained_share(f, group)
    bounds, shares = [], []
    for seed in range(40):
        X, _, group, P = draw(10_000, 100 + seed)
        f, codes = X @ [1.0, 1.0, 0.5], pd.Series(some_known(group, seed))
        frame = pd.DataFrame(P, columns=GROUPS)
        bounds.append(explained_share(f, group_probabilities(frame)))
        shares.append(explained_share(f, group_probabilities(frame, codes)))
    error = np.std(shares, ddof=1)
    assert max(bounds) < truth / 3
    assert abs(np.mean(shares) - truth) < 2 * error / np.sqrt(len(shares))
    assert np.mean(np.abs(np.array(shares) - truth) < 2 * error) >= 0.9


def test_a_limit_holds_on_new_rows_where_some_know_their_group():
    """The held-out share of a fit is within two of its standard errors of the truth."""
    X, y, group, P = draw(10_000, 0)
    new, _, its_group, _ = draw(100_000, 7)
    model = clone(MODELS["folds"])
    model.fit(X, y, sensitive_features=group_probabilities(pd.DataFrame(P, columns=GROUPS), some_known(group, 3)))
    truth = explained_share(model.predict(new), its_group)
    assert abs(model.explained_share_cv_ - truth) < 2 * model.explained_share_cv_error_
    assert truth < 0.07
    assert not hasattr(model, "explained_share_lower_bound_")


def test_without_known_groups_the_share_is_called_a_lower_bound():
    X, y, group, P = draw(5_000, 0)
    with pytest.warns(UserWarning, match="lower bound"):
        model = clone(MODELS["folds"]).fit(X, y, sensitive_features=group_probabilities(P))
    assert model.explained_share_lower_bound_ == model.explained_share_ <= 0.06
    assert explained_share(model.predict(X), group) > 0.15


def test_batches_files_and_copies(tmp_path):
    X, y, group, P = draw(1_000, 0)
    table = group_probabilities(pl.DataFrame(P, schema=list(GROUPS)), some_known(group, 0, 0.5))
    whole = FairRidge(eta=1.0).fit(X, y, sensitive_features=table)
    parts = FairRidge(eta=1.0).fit(X[:400], y[:400], sensitive_features=table[:400])
    parts.partial_fit(X[400:], y[400:], sensitive_features=table[400:])
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-10)
    scalefair.save(whole, tmp_path / "model")
    again = scalefair.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert again.psi_.groups == tuple(GROUPS)
    copied = pickle.loads(pickle.dumps(table))
    assert (copied.groups, copied.n_known) == (table.groups, table.n_known)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], ["row 0", "0.9", "add up to 1"]),
        ([[0.5, 0.5], [1.5, -0.5]], ["row 1", "-0.5", "at least 0"]),
        ([[0.5, 0.5], [np.nan, 0.5]], ["row 1", "nan", "missing"]),
    ],
)
def test_bad_probabilities_are_refused(rows, words):
    with refused(*words):
        group_probabilities(rows)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (["a", None], ["2 rows", "expected 3"]),
        (["d", "a", None], ["'d'", "'b'"]),
        ([None] * 3, ["0 have a known group"]),
        (["a", "a", None], ["'b'", "too rare"]),
    ],
)
def test_bad_known_groups_are_refused(known, words):
    P = pd.DataFrame([[0.6, 0.4], [0.5, 0.5], [0.9, 0.1]], columns=["a", "b"])
    with refused(*words):
        group_probabilities(P, known)


def test_what_needs_groups_refuses_probabilities():
    X, y, _, P = draw(500, 0)
    table = group_probabilities(P)
    with refused("probabilities", "sensitive_features"):
        FairKernelClassifier(unfairness=0.1).fit(X, y > 0, sensitive_features=table)
    with refused("probabilities", "sensitive_features"):
        scalefair.audit(y, sensitive_features=table)
    with refused("probabilities", "certify"):
        scalefair.certify(y, sensitive_features=table, unfairness=0.1)
    with refused("probabilities", "exact"):
        FairKernelRidge(feature_map="exact").fit(X, y, sensitive_features=table)
