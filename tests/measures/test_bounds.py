"""Bounds of a share: the statistic row by row, its distribution by simulation, and coverage."""

from dataclasses import replace

import numpy as np
import pytest

from scalefair.features import OneHot
from scalefair.features.mixed import all_columns, units_of
from scalefair.measures.bounds import ShareDistribution, pooled, share_distributions
from scalefair.moments import Moments
from tests import naive

rng = np.random.default_rng(0)


def distributions(F, Psi, weight=None, units=None, **options):
    w = np.ones(len(F)) if weight is None else weight
    units = {"psi": units or all_columns("groups", Psi.shape[1])}
    rows = {"phi": F.reshape(len(F), -1), "psi": Psi}
    return share_distributions(Moments.of_rows(rows, w, units), rows, w, **options)


def two_groups(n, share, frequency=0.3, seed=0):
    some = np.random.default_rng(seed)
    s = (some.random(n) < frequency).astype(int)
    gap = np.sqrt(share / (1 - share) / (frequency * (1 - frequency)))
    return gap * s + some.normal(size=n), np.eye(2)[s]


def assert_equal(found, expected, at=0):
    for name, value in expected.items():
        assert vars(found)[name][at] == pytest.approx(value, rel=1e-7), name


@pytest.mark.parametrize("weighted", [False, True])
def test_the_statistic_is_that_of_the_rows(weighted):
    s, F = rng.integers(0, 4, 120), rng.normal(size=(120, 3))
    F[:, 1] += s
    w = rng.exponential(size=120) if weighted else None
    (found,) = distributions(F, np.eye(4)[s], w)
    for j in range(3):
        expected = naive.share_distribution(F[:, j], np.eye(4)[s], weight=w)
        assert_equal(found, expected, j)


def test_the_ridge_of_functions_of_numbers():
    Psi = rng.normal(size=(90, 4)) * [1.0, 0.3, 0.1, 0.03]
    f = Psi[:, 1] + rng.normal(size=90)
    found = distributions(f, Psi, units=all_columns("kernel", 4))
    assert len(found) == 3
    for one, eps in zip(found, (1e-6, 1e-4, 1e-2), strict=True):
        assert_equal(one, naive.share_distribution(f, Psi, eps=eps))


def test_units_of_predictions_and_weights_do_not_matter():
    f, Psi = two_groups(200, 0.1)
    w = rng.exponential(size=200)
    (found,), (same,) = distributions(f, Psi, w), distributions(3.0 - 50 * f, Psi, 7 * w)
    assert_equal(same, {name: value[0] for name, value in vars(found).items() if name not in ("rows", "parts")})
    assert same.upper(0.9)[0] == pytest.approx(found.upper(0.9)[0], rel=1e-6)


def test_several_outputs_are_one_predictor():
    F, Psi = rng.normal(size=(150, 2)), np.eye(3)[rng.integers(0, 3, 150)]
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    (found,), (turned,) = (distributions(A, Psi, outputs=2) for A in (F, F @ turn))
    assert found.share.shape == (1,)
    assert turned.share[0] == pytest.approx(found.share[0], rel=1e-9)
    assert turned.upper(0.95)[0] == pytest.approx(found.upper(0.95)[0], rel=1e-6)


def test_a_constant_has_no_share_and_no_bound():
    _, Psi = two_groups(50, 0.1)
    (found,) = distributions(np.full(50, 3.0), Psi)
    assert np.isnan([found.share[0], found.upper(0.9)[0]]).all()


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2])
def test_probabilities_are_those_of_simulated_statistics(share, parts):
    n, omega = 300, np.array([1.2, 0.9, 0.9, 0.5])
    e = np.random.default_rng(1).normal(size=(40_000, parts, 4)) * np.sqrt(parts * omega / n)
    e[:, :, 0] += np.sqrt(share)
    simulated = np.mean(np.sum(e**2, axis=2), axis=1) - parts * omega.sum() / n
    observed = np.quantile(simulated, [0.05, 0.3, 0.8])
    one = np.ones(3)
    found = ShareDistribution(
        observed, 0 * one, n, omega.sum() * one, (omega**2).sum() * one, omega[0] * one, 1e6 * one, parts
    )
    p = found.probability(share)
    np.testing.assert_allclose(p[observed > 0], np.array([0.05, 0.3, 0.8])[observed > 0], atol=0.02)
    assert (p >= [0.03, 0.28, 0.78]).all()


def test_skewed_rows_make_no_bound_too_small():
    """The mean of few rows, some of them far out, lies too low when its standard error is small, too."""
    n, size = 40, 0.01
    x = np.random.default_rng(2).exponential(size=(20_000, n)) - 1
    c, along = 0.2 + size * x.mean(axis=1), size**2 * x.var(axis=1)
    skew = np.mean((x - x.mean(axis=1, keepdims=True)) ** 3, axis=1) / x.std(axis=1) ** 3
    plain = ShareDistribution(c**2 - along / n, 0 * c, n, along, along**2, along, 1e6 + 0 * c)
    refuted = [np.mean(one.probability(0.04) <= 0.05) for one in (plain, replace(plain, skew=skew))]
    assert refuted[0] > 0.09
    assert refuted[1] < 0.075
    nearly = replace(plain, skew=1e-5).probability(0.04)
    np.testing.assert_allclose(nearly, replace(plain, skew=1e-4).probability(0.04), atol=1e-4)
    np.testing.assert_allclose(nearly, plain.probability(0.04), atol=1e-4)


def test_luck_does_not_certify_what_the_rows_cannot_tell():
    f, Psi = two_groups(100, 0.05)
    (found,) = distributions(f, Psi)
    lucky, none = (replace(found, share=np.array([share])) for share in (-found.noise[0] / 100, 0))
    assert lucky.upper(0.9)[0] == none.upper(0.9)[0] > 0.01


def test_bounds_are_where_the_probability_is_the_level():
    f, Psi = two_groups(500, 0.08)
    (found,) = distributions(f, Psi)
    low, high = found.lower(0.9), found.upper(0.9)
    assert low[0] < found.share[0] < high[0]
    assert found.probability(high)[0] == pytest.approx(0.1, abs=1e-6)
    assert found.probability(low)[0] == pytest.approx(0.9, abs=1e-6)


def test_more_rows_tell_more_and_rows_needed_suffice():
    f, Psi = two_groups(400, 0.02)
    (found,) = distributions(f, Psi)
    bounds = [found.at_rows(n).upper(0.95)[0] for n in (400, 1600, 6400)]
    assert bounds[0] > bounds[1] > bounds[2] > found.share[0]
    n = found.rows_for(0.05, 0.95)
    assert found.at_rows(n).upper(0.95)[0] <= 0.05 < found.at_rows(n / 1.2).upper(0.95)[0]
    assert np.isinf(found.rows_for(0.5 * found.share[0], 0.95))


def test_folds_are_averaged():
    parts = [distributions(*two_groups(200, 0.05, seed=k))[0] for k in range(4)]
    whole = pooled(parts)
    assert whole.share[0] == pytest.approx(np.mean([part.share for part in parts]))
    assert whole.rows == 800
    assert whole.upper(0.9)[0] < np.mean([part.upper(0.9)[0] for part in parts])


def rare(n, share, some):
    p = np.array([0.6, 0.3925, 0.0075])
    s = some.choice(3, n, p=p)
    e = np.array([0.0, 0.0, 1.0]) - p[2]
    return e[s] * np.sqrt(share / (1 - share) / (p @ e**2)) + some.normal(size=n), s


def skewed(n, share, some):
    p = 1 / np.arange(1, 13) ** 1.5
    p /= p.sum()
    effect, spread = np.sin(np.arange(12.0)), np.exp(0.4 * np.cos(3.0 * np.arange(12)))
    effect -= p @ effect
    s = some.choice(12, n, p=p)
    scale = np.sqrt(share / (1 - share) * (p @ spread**2) / (p @ effect**2))
    return scale * effect[s] + spread[s] * some.normal(size=n), s


def heavy(n, share, some):
    s = (some.random(n) < 0.3).astype(int)
    return np.sqrt(share / (1 - share) / 0.21) * s + some.standard_t(4, n) / np.sqrt(2), s


@pytest.mark.slow
@pytest.mark.parametrize("draw", [rare, skewed, heavy])
@pytest.mark.parametrize("n", [600, 2400])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_coverage(draw, n, share):
    some, draws, passed = np.random.default_rng(5), 400, 0
    units = units_of(OneHot().fit(np.arange(12.0)[:, None]))
    for _ in range(draws):
        f, s = draw(n, share, some)
        levels, codes = np.unique(s, return_inverse=True)
        if np.bincount(codes).min() < 2:
            continue
        (found,) = distributions(
            f, np.eye(12)[s] if len(levels) == 12 else np.eye(3)[s], units=units if len(levels) == 12 else None
        )
        passed += found.probability(share)[0] <= 0.1
    assert passed / draws <= 0.1 + 3 * np.sqrt(0.09 / draws)
