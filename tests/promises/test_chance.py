"""What chance explains of held-out rows, where f varies less at rare values of s than at others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from scalefair import FairKernelRidgeCV
from scalefair.data.folds import make_folds
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.features.exact import Identity, OneHot
from scalefair.features.nystroem import Nystroem
from scalefair.held_out import ChanceRatio, held_out_shares
from scalefair.moments.accumulate import accumulate
from tests.promises.population import chance_ratio

GROUPS = np.array([0.6, 0.25, 0.05, 0.05, 0.05])
MEANS = np.array([0.1, -0.2, 0.1, 0.0, -0.1])
DEVIATIONS = np.array([1.2, 0.7, 0.4, 0.4, 0.4])


def true_share():
    """Between-group variance over all variance, of the population itself."""
    mean = GROUPS @ MEANS
    between = GROUPS @ (MEANS - mean) ** 2
    return between / (between + GROUPS @ DEVIATIONS**2)


def fold(rng, n=400):
    """Return one input, which is f itself, and a group, of n rows."""
    g = rng.choice(len(GROUPS), n, p=GROUPS)
    return (MEANS[g] + DEVIATIONS[g] * rng.normal(size=n))[:, None], g[:, None].astype(float)


def moments_of(x, s):
    design = Design(Identity().fit(x), OneHot().fit(np.arange(len(GROUPS))[:, None]))
    (moments,) = accumulate(ArraySource(x, s, x), design)
    return design, moments


def ratio_of(x, s):
    design, moments = moments_of(x, s)
    rows = {"phi": x, "psi": np.asarray(design.psi.transform(s))}
    return ChanceRatio.of(moments, ("phi",), rows, np.ones(len(x)))


def test_the_ratio_is_that_of_variances_in_the_groups():
    x, s = fold(np.random.default_rng(0), 3000)
    count = np.array([np.sum(s == g) for g in range(len(GROUPS))])
    variance = np.array([np.var(x[s == g], ddof=1) for g in range(len(GROUPS))])
    p = count / len(x)
    # Leverage 1/p − 1 of a row: all groups count nearly alike.
    slow = (1 - p) @ variance / np.sum(1 - p) / (p @ variance)
    found = ratio_of(x, s).of_predictors(np.ones((1, 1)), 1)
    assert found == pytest.approx(slow, rel=2e-3)


def test_held_out_shares_have_no_bias_where_rare_groups_vary_less():
    rng, one = np.random.default_rng(1), np.ones((1, 1))
    found = []
    for _ in range(600):
        rows = fold(rng)
        _, moments = moments_of(*rows)
        found.append(
            [held_out_shares(moments, ("phi",), one, 1, given).shares[0, 0] for given in (ratio_of(*rows), None)]
        )
    excess, equal = np.array(found).T - true_share()
    error = excess.std() / np.sqrt(len(excess))
    assert abs(excess.mean()) < 3 * error
    assert equal.mean() < -5 * error  # as if f varied as much in every group


@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_cross_validation_uses_it(weight):
    """The reported share of y itself, row by row."""
    rng = np.random.default_rng(2)
    x, s = fold(rng, 2000)
    model = FairKernelRidgeCV(alphas=[1e-9], etas=[0.0], feature_map=Identity(), unfairness=0.5, random_state=0).fit(
        x, x[:, 0], sensitive_features=s.astype(int).astype(str), sample_weight=np.full(len(x), weight)
    )
    folds, _ = make_folds(5, None, range(len(x)), 1)
    of, slow = folds.of_rows(np.arange(len(x))), []
    for k in range(5):
        part, groups = x[of == k], s[of == k]
        chance = chance_ratio(part, np.eye(len(GROUPS))[groups[:, 0].astype(int)])
        chance *= (len(np.unique(groups)) - 1) / (len(part) - 1)
        means = [np.mean(part[groups == g]) for g in groups[:, 0]]
        slow.append((np.var(means) / np.var(part) - chance) / (1 - chance))
    assert model.explained_share_cv_ == pytest.approx(max(np.mean(slow), 0.0), abs=1e-9)


def unequal(kind, n, rng):
    """Return f, its mean given s, and s; f varies less in rare groups, or at large numbers."""
    a, g = rng.beta(1.3, 3, n), rng.choice(5, n, p=[0.6, 0.2, 0.1, 0.06, 0.04])
    if kind == "numbers":
        mean, deviation, s = np.sin(10 * a), np.where(a > 0.6, 0.4, 1.2), pd.DataFrame({"a": a})
    else:
        mean, deviation = MEANS[g] * a, np.array([1.3, 0.8, 0.5, 0.4, 0.4])[g]
        s = pd.DataFrame({"g": np.array(list("abcde"))[g], "a": a})
    mean *= {"numbers": 0.3, "mixed": 5.0}[kind]
    return mean + deviation * rng.normal(size=n), mean, s


@pytest.mark.parametrize("kind", ["numbers", "mixed"])
def test_held_out_shares_are_not_too_small_where_f_varies_less_at_rare_s(kind):
    rng = np.random.default_rng(3)
    f, mean, _ = unequal(kind, 400_000, rng)
    true = mean.var() / f.var()
    assert 0.02 < true < 0.06
    found = []
    for _ in range(12):
        f, _, s = unequal(kind, 2000, rng)
        model = FairKernelRidgeCV(alphas=[1e-9], etas=[0.0], feature_map=Identity(), unfairness=0.9, random_state=0)
        found.append(model.fit(f[:, None], f, sensitive_features=s).explained_share_cv_)
    error = np.std(found) / np.sqrt(len(found))
    # The largest over three ridges is a little too large.
    assert -3 * error < np.mean(found) - true < 3 * error + 0.005


def test_for_numbers_chance_never_counts_more_than_with_equal_variances():
    """What a ridge leaves of the means at rare s looks like variance there: it must not pass for chance."""
    rng = np.random.default_rng(4)
    a = rng.normal(size=(300, 1))
    x = np.sin(3 * a) + rng.normal(size=(300, 1))
    design = Design(Identity().fit(x), Nystroem(n_components=20, random_state=0).fit(a))
    (moments,) = accumulate(ArraySource(x, a, x), design)
    double, half = (ChanceRatio(ratio * np.ones((1, 1)), np.ones((1, 1))) for ratio in (2.0, 0.5))
    equal, more, less = (
        held_out_shares(moments, ("phi",), np.ones((1, 1)), 1, given).shares for given in (None, double, half)
    )
    np.testing.assert_array_equal(more, equal)
    assert np.all(less > equal)


@pytest.mark.parametrize("kind", ["known", "two tables"])
def test_held_out_shares_are_not_too_small_where_few_rows_know_s(kind):
    """The same correction where s is known for some rows only, or in another table."""
    rng, found = np.random.default_rng(5), []
    for _ in range(40):
        x, g = fold(rng, 2400)
        s = pd.Series(np.array(list("abcde"), dtype=object)[g[:, 0].astype(int)])
        model = FairKernelRidgeCV(alphas=[1e-9], etas=[0.0], feature_map=Identity(), unfairness=0.9, random_state=0)
        if kind == "known":
            model.set_params(missing_labels="partial")
            model.fit(x, x[:, 0], sensitive_features=s.where(np.arange(2400) < 1200))
        else:
            model.fit(x[1200:], x[1200:, 0], sensitive_data=(x[:1200], s[:1200]))
        found.append(model.explained_share_cv_)
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - true_share()) < 3 * error
