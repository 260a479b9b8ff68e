"""Cross-validation from moments is refitting by hand; its share is unbiased; choices and paths."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from operator import add

import numpy as np
import pytest
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.model_selection import KFold

from scalefair import FairPath, FairRidge
from scalefair.features.mixed import all_columns
from scalefair.held_out import held_out_shares, mean_and_error
from scalefair.penalties import corrected
from scalefair.solve.limit import NotAttainableError
from scalefair.solve.ridge.path import (
    Choice,
    FoldedMoments,
    FoldFits,
    GridScores,
    Spectrum,
    choose,
    largest_eta_within_one_error,
)
from scalefair.solve.ridge.system import System
from tests import naive
from tests.errors import refused
from tests.naive import features, weights
from tests.solve.systems import moments_of

EPS = 1e-3
ALPHAS, ETAS = np.array([1e-5, 1e-1]), np.array([0.0, 2.0, 1e8])


def fit_by_hand(Phi, Psi, y, alpha, eta, weight=None, *, penalty="normalized", fit_intercept=True):
    """(b, β) by the normal equations, solved in fractions: at η = 1e8 floats would not do."""
    cross = naive.covariance if fit_intercept else naive.moment
    R = naive.rational(naive.factor(Phi, Psi, penalty=penalty, eps=EPS, weight=weight))
    A = naive.rational(cross(Phi, Phi, weight)) + Fraction(eta) * R @ R.T
    A = A + Fraction(alpha) * naive.rational(np.eye(len(A)))
    coef = naive.rational_solve(A, naive.rational(cross(Phi, y, weight))).astype(float)
    b = naive.mean(y, weight) - naive.mean(Phi, weight) @ coef
    return b * fit_intercept, coef


def corrected_by_hand(f, Psi, weight=None, eps=1e-6):
    """(r − t)/(1 − t), t = tr[C_ψ(C_ψ + εI)⁻¹]/(n − 1), n Kish's count."""
    C = naive.covariance(Psi, Psi, weight)
    w = naive.ones_if_none(weight, len(f))
    n = w.sum() ** 2 / np.sum(w**2)
    t = np.trace(C @ np.linalg.inv(C + eps * np.eye(len(C)))) / (n - 1)
    return (naive.share(f, Psi, eps=eps, weight=weight) - t) / (1 - t)


def judged_by_hand(f, Psi, weight):
    """Shares of all folds for the ε of the largest mean; f, Ψ and weights by fold."""
    by_eps = [
        [corrected_by_hand(*fold, eps) for fold in zip(f, Psi, weight, strict=True)] for eps in (1e-6, 1e-4, 1e-2)
    ]
    return max(by_eps, key=np.mean)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("penalty", "weighted", "outputs", "scaled"),
    [
        ("normalized", False, None, False),
        ("normalized", True, 2, False),
        ("hsic", False, 2, True),
        ("nocco", True, None, False),
    ],
)
def test_scores_are_those_of_refitting_on_every_split(penalty, weighted, outputs, scaled, fit_intercept):
    Phi, Psi, y = features(n=60, m=4, q=2, outputs=outputs)
    y = naive.columns(y)
    weight = weights(60) if weighted else np.ones(60)
    options = {"penalty": penalty, "fit_intercept": fit_intercept}
    splits = list(KFold(4, shuffle=True, random_state=0).split(Phi))
    folds = [moments_of(*(part[test] for part in (Phi, Psi, y, weight))) for _, test in splits]
    fits = FoldFits(FoldedMoments(folds, None, folds[0]), eps=EPS, rescaled=scaled, **options)
    scores = fits.score(ALPHAS, ETAS)
    assert scores.mse.shape == scores.share.shape == (4, 2, 3)
    for i, alpha in enumerate(ALPHAS):
        for j, eta in enumerate(ETAS):
            predictions = []
            for k, (train, test) in enumerate(splits):
                rows = [part[train] for part in (Phi, Psi, y)]
                b, coef = fit_by_hand(*rows, alpha, eta, weight[train], **options)
                if scaled and eta > 0:
                    b, coef = rescaled_by_hand(*rows, coef, weight[train], fit_intercept)
                f = b + Phi[test] @ coef
                predictions.append(f)
                mse = mean_squared_error(y[test], f, sample_weight=weight[test])
                np.testing.assert_allclose(scores.mse[k, i, j], mse, rtol=1e-9)
            tests = [test for _, test in splits]
            share = judged_by_hand(predictions, [Psi[t] for t in tests], [weight[t] for t in tests])
            np.testing.assert_allclose(scores.share[:, i, j], share, rtol=1e-9, atol=1e-9)


def rescaled_by_hand(Phi, Psi, y, coef, weight, fit_intercept):
    """The multiple of the predictor with the least training error, by least squares."""
    f = Phi @ coef
    centre = (lambda a: a - naive.mean(a, weight)) if fit_intercept else (lambda a: a)
    root = np.sqrt(weight)[:, None]
    a = np.linalg.lstsq((root * centre(f)).reshape(-1, 1), (root * centre(y)).ravel())[0][0]
    b = naive.mean(y, weight) - a * naive.mean(f, weight)
    return b * fit_intercept, a * coef


def test_rows_in_no_fold_always_train():
    Phi, Psi, y = features(n=60, m=4, q=2)
    fold = np.arange(60) % 4 - 1
    parts = [moments_of(Phi[fold == k], Psi[fold == k], y[fold == k]) for k in (0, 1, 2)]
    always = moments_of(Phi[fold < 0], Psi[fold < 0], y[fold < 0])
    scores = FoldFits(FoldedMoments(parts, always, parts[0]), eps=EPS).score(ALPHAS, ETAS)
    predictions = []
    for k in range(3):
        train, test = fold != k, fold == k
        b, coef = fit_by_hand(Phi[train], Psi[train], naive.columns(y[train]), 1e-1, 2.0)
        f = (b + Phi[test] @ coef)[:, 0]
        np.testing.assert_allclose(scores.mse[k, 1, 1], np.mean((y[test] - f) ** 2), rtol=1e-9)
        predictions.append(f)
    share = judged_by_hand(predictions, [Psi[fold == k] for k in range(3)], [None] * 3)
    np.testing.assert_allclose(scores.share[:, 1, 1], share, rtol=1e-9)


def test_mean_and_error():
    folds = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    mean, error = mean_and_error(folds)
    np.testing.assert_allclose(mean, [3, 5])
    np.testing.assert_allclose(error, [np.sqrt((4 + 1 + 9) / 2 / 3), 0])


def test_nothing_can_be_said_on_folds_with_no_more_rows_than_freedom():
    Phi, _, y = features(n=6, m=2, q=1)
    units = {"psi": all_columns("groups", 6)}
    fold = replace(moments_of(Phi, np.eye(6), y), units=units)
    assert np.isnan(held_out_shares(fold, ("phi",), np.ones((2, 1)), 1).shares).all()
    three = moments_of(Phi, np.eye(3)[np.arange(6) % 3], y)
    three = replace(three, units={"psi": all_columns("groups", 3)})
    share = held_out_shares(three, ("phi",), np.ones((2, 1)), 1)
    np.testing.assert_allclose(share.chance, 2 / 5)
    raw = naive.between_group_share(Phi.sum(axis=1), np.arange(6) % 3)
    np.testing.assert_allclose(share.shares[0, 0], (raw - 0.4) / 0.6)
    np.testing.assert_allclose(corrected(0.3, 0.4), (0.3 - 0.4) / 0.6)


def of_groups(seed, effect):
    """20 groups whose means differ by `effect` in 30 inputs; a β's share in the population."""
    population = np.random.default_rng(99)
    centre, coef = effect * population.normal(size=(20, 30)), population.normal(size=30)
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 20, 400)
    Phi = centre[groups] + rng.normal(size=(400, 30))
    between = np.cov(centre.T, bias=True)

    def truth(beta):
        return beta @ between @ beta / (beta @ between @ beta + beta @ beta)

    return Phi, np.eye(20)[groups], Phi @ coef + rng.normal(size=400), truth


def nystroem(s):
    landmarks = np.linspace(-2.5, 2.5, 15)
    K, k = (np.exp(-2 * (a[:, None] - landmarks) ** 2) for a in (landmarks, s))
    values, vectors = np.linalg.eigh(K)
    return k @ vectors / np.sqrt(values)


def of_a_number(seed, effect):
    """A continuous s that the inputs follow in curves; the population by quadrature over s."""
    population = np.random.default_rng(7)
    curves, coef = effect * population.normal(size=(4, 6)), population.normal(size=6)

    def centre(s):
        return np.column_stack([np.sin(2 * s), np.cos(3 * s), s, s**2 - 1]) @ curves

    rng = np.random.default_rng(seed)
    s = rng.normal(size=400)
    Phi = centre(s) + rng.normal(size=(400, 6))
    nodes = np.linspace(-8, 8, 2001)
    density = np.exp(-(nodes**2) / 2)
    density /= density.sum()
    Psi_nodes, means = (a - density @ a for a in (nystroem(nodes), centre(nodes)))
    C_psi = Psi_nodes.T @ (density[:, None] * Psi_nodes) + 1e-6 * np.eye(15)
    C = means.T @ (density[:, None] * Psi_nodes)
    explained = C @ np.linalg.solve(C_psi, C.T)
    whole = means.T @ (density[:, None] * means) + np.eye(6)

    def truth(beta):
        return beta @ explained @ beta / (beta @ whole @ beta)

    return Phi, nystroem(s), Phi @ coef + rng.normal(size=400), truth


def judged(Phi, Psi, y, truth, eta):
    """Share of five fits: ours, g learnt where β was, uncorrected, and the truth."""
    folds = [moments_of(Phi[k::5], Psi[k::5], y[k::5]) for k in range(5)]
    ours = FoldFits(FoldedMoments(folds, None, folds[0])).score(np.array([1e-2]), np.array([eta])).share
    wrong = []
    for k in range(5):
        train = reduce(add, folds[:k] + folds[k + 1 :])
        coef = Spectrum.of(System.build(train, eps=1e-6)).at(1e-2).coef(np.array([eta]))[0, :, 0]
        C_psi = train.covariance("psi", "psi") + 1e-6 * np.eye(Psi.shape[1])
        g = np.linalg.solve(C_psi, train.covariance("psi", "phi") @ coef)
        f = (Phi[k::5] - train.mean("phi")) @ coef
        rest = f - (Psi[k::5] - train.mean("psi")) @ g
        held_out = System.build(folds[k], eps=1e-6).explained_share(coef[:, None])
        wrong.append((1 - np.mean(rest**2) / np.mean(f**2), held_out, truth(coef)))
    return ours.mean(), *np.mean(wrong, axis=0)


@pytest.mark.parametrize(
    ("population", "effect", "eta", "least", "most"),
    [
        (of_groups, 0.0, 1.0, 0.0, 0.0),
        (of_groups, 0.5, 1.0, 0.1, 0.3),
        (of_a_number, 0.0, 0.3, 0.0, 0.0),
        (of_a_number, 1.0, 10.0, 0.1, 0.3),
    ],
)
def test_held_out_share_is_unbiased_and_the_obvious_versions_are_not(population, effect, eta, least, most):
    shares = np.array([judged(*population(seed, effect), eta) for seed in range(50)])
    truth = shares[:, 3]
    assert least <= truth.mean() <= most
    gaps = shares[:, :3] - truth[:, None]
    ours, same_rows, uncorrected = gaps.mean(axis=0) / (gaps.std(axis=0, ddof=1) / np.sqrt(50))
    # Of numbers it is the largest over three ridges of g: a little too large.
    assert -2 < ours < (2 if population is of_groups else uncorrected / 2)
    assert same_rows < -5
    assert uncorrected > 5


def table(mean, spread=0.0, share=0.0):
    """Scores of two folds, mean ± spread: the standard error is the spread."""
    mean, share = np.array(mean, float), np.array(share, float)
    share = np.broadcast_to(share, mean.shape)
    return GridScores(np.stack([mean - spread, mean + spread]), np.stack([share, share]))


def test_one_standard_error_rule():
    etas = np.array([0.0, 1.0, 10.0, np.inf])
    mean = [[1.0, 1.1, 1.5, 9.0], [1.2, 1.3, 1.25, 9.0]]
    pick = partial(largest_eta_within_one_error, etas=etas)
    assert pick(table(mean)) == Choice(0, 0)
    assert pick(table(mean, 0.1)) == Choice(0, 1)
    assert pick(table(mean, 0.24)) == Choice(0, 1)
    assert pick(table(mean, 0.26)) == Choice(1, 2)  # α is chosen anew for each η
    assert pick(table(mean, 8.0)) == Choice(0, 3)
    turned = table(np.array(mean)[:, ::-1], 0.26)
    assert largest_eta_within_one_error(turned, etas[::-1]) == Choice(1, 1)


def test_best_within_limit():
    mean = [[1.0, 2.0, 3.0], [1.5, 1.8, 2.5]]
    share = [[0.3, 0.1, -0.1], [0.2, 0.15, 0.02]]
    scores = table(mean, 0.1, share)
    chosen = {1.0: (0, 0), 0.2: (1, 0), 0.15: (1, 1), 0.1: (0, 1), 0.05: (1, 2), 0.01: (0, 2)}
    for limit, expected in chosen.items():
        assert choose(scores, np.zeros(3), limit) == expected
    assert choose(table(mean, share=0.5), np.zeros(3), 0.4) is None
    # Constant predictions have no share: they are not on the grid.
    constant = [[np.nan, 0.1, 0.1], [np.nan, 0.1, 0.3]]
    assert choose(table(mean, share=constant), np.zeros(3), 0.2) == Choice(1, 1)
    assert choose(table(mean, share=np.nan), np.zeros(3), 0.2) is None
    # ¾ of a standard error counts: of two folds 0.1 ± 0.02 it is 0.015.
    uneven = GridScores(scores.mse, scores.share + np.array([[[-0.02]], [[0.02]]]))
    assert choose(uneven, np.zeros(3), 0.1151) == Choice(0, 1)
    assert choose(uneven, np.zeros(3), 0.1149) == Choice(1, 2)
    # Folds that agree by chance do not make the error smaller than that of normal predictions.
    few = replace(scores, rows=100.0)
    for limit, expected in ((0.16, Choice(0, 1)), (0.14, Choice(1, 2))):
        bound = naive.bound_of_share(np.array([0.1, 0.1]), 100, limit)
        assert bound == pytest.approx(0.1 + 0.75 * 2 * (1 - limit) * np.sqrt(limit / 100))
        assert (bound <= limit) == (expected == Choice(0, 1))
        assert choose(few, np.zeros(3), limit) == expected
    # The fairest fits of all need no margin.
    infinite = np.array([0.0, 1.0, np.inf])
    assert choose(few, infinite, 0.021) == Choice(1, 2)
    assert choose(few, np.zeros(3), 0.021) is None
    assert choose(few, infinite, 0.019) == Choice(0, 2)


def test_without_any_share_the_error_alone_decides():
    mean = [[1.0, 2.0, 3.0], [1.5, 1.8, 2.5]]
    etas = np.array([0.0, 1.0, np.inf])
    assert choose(table(mean, share=0.4), etas, 0.0) == Choice(1, 2)
    assert choose(table(mean, share=np.nan), etas, 0.0) is None


def fitted_path(outputs=2, fit_intercept=True, scores=None):
    Phi, Psi, y = features(outputs=outputs)
    model = FairRidge(sensitive_kernel="linear", fit_intercept=fit_intercept, eta=1.0)
    model.fit(Phi, y, sensitive_features=Psi)
    return Phi, Psi, y, FairPath(model, [1e-3, 1e-1], [0.0, 0.5, 0.5, np.inf], scores)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_path_table_is_what_the_predictions_say(fit_intercept):
    Phi, Psi, y, path = fitted_path(fit_intercept=fit_intercept)
    assert list(path.table) == ["alpha", "eta", "mse", "r2", "explained_share", "hsic"]
    assert list(path.table["eta"]) == [0.0, 0.5, 0.5, np.inf] * 2
    assert list(path.table["alpha"]) == [1e-3] * 4 + [1e-1] * 4
    for row in path.table.itertuples():
        f = path.at(alpha=row.alpha, eta=row.eta).predict(Phi)
        np.testing.assert_allclose(row.mse, mean_squared_error(y, f), rtol=1e-9)
        np.testing.assert_allclose(row.r2, r2_score(y, f), rtol=1e-9)
        share = naive.share(f, Psi, eps=1e-6 * np.var(Psi, axis=0))
        np.testing.assert_allclose(row.explained_share, share, rtol=1e-8, atol=1e-12)
        hsic = np.sum(naive.covariance(Psi, f) ** 2)
        np.testing.assert_allclose(row.hsic, hsic, rtol=1e-8, atol=1e-12)


def held_out_scores(seed):
    rng = np.random.default_rng(seed)
    return GridScores(rng.uniform(1, 2, (3, 2, 4)), rng.uniform(-0.2, 1, (3, 2, 4)))


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_front_is_sorted_and_undominated(seed):
    scores = None if seed is None else held_out_scores(seed)
    *_, path = fitted_path(scores=scores)
    suffix = "" if seed is None else "_cv"
    share, error = "explained_share" + suffix, "mse" + suffix
    points = path.table[[share, error]].to_numpy()
    expected = [p for p in points if not any((q <= p).all() and (q < p).any() for q in points)]
    front = path.front()
    np.testing.assert_array_equal(front[[share, error]], sorted(set(map(tuple, expected))))
    assert list(front)[:2] == [share, error]
    assert {*front} == {*path.table}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_limit_on_a_cross_validated_path_holds_on_the_folds(seed):
    """The least mean error whose mean share, with ¾ of its standard error, is at most u."""
    scores = held_out_scores(seed)
    Phi, _, y, path = fitted_path(scores=scores)
    table = path.table
    margin = 0.75 * table["explained_share_cv_error"] * np.isfinite(table["eta"])
    sums = table["explained_share_cv"] + margin
    for limit in (sums.min(), 0.5, 1.0):
        allowed = table[sums <= limit]
        best = allowed.loc[allowed["mse_cv"].idxmin()]
        fit, plain = path.at(unfairness=limit), path.at(alpha=best["alpha"], eta=best["eta"])
        f, g = fit.predict(Phi), plain.predict(Phi)
        g -= g.mean(axis=0)
        scale = 1.0 if best["eta"] == 0 else np.sum(g * (y - y.mean(axis=0))) / np.sum(g**2)
        np.testing.assert_allclose(f - f.mean(axis=0), scale * g, atol=1e-10)
        assert fit.explained_share_ == pytest.approx(plain.explained_share_, rel=1e-10)
    with refused("unfairness=", f"{sums.min():.4g}", error=NotAttainableError):
        path.at(unfairness=0.99 * sums.min())


def test_no_share_on_a_cross_validated_path_is_the_infinite_weight():
    scores = held_out_scores(0)
    *_, path = fitted_path(outputs=1, scores=scores)
    fit, best = path.at(unfairness=0.0), int(np.argmin(scores.mse.mean(axis=0)[:, -1]))
    assert (fit.alpha, fit.unfairness) == (path.alphas[best], 0.0)
    assert fit.explained_share_ <= 1e-10
    with refused("unfairness=0.0", error=NotAttainableError):
        FairPath(fit, path.alphas, [0.0, 1.0, 2.0, 3.0], scores).at(unfairness=0.0)


def test_held_out_columns_are_means_and_errors_of_the_folds():
    scores = held_out_scores(0)
    *_, path = fitted_path(scores=scores)
    flat = {"mse_cv": scores.mse.reshape(3, 8), "explained_share_cv": scores.share.reshape(3, 8)}
    for name, folds in flat.items():
        np.testing.assert_allclose(path.table[name], np.maximum(folds.mean(axis=0), 0))
        np.testing.assert_allclose(path.table[f"{name}_error"], folds.std(axis=0, ddof=1) / 3**0.5)


def test_share_of_a_constant_prediction_is_undefined():
    """One input, which is s itself: at η = ∞ nothing is left of it."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=(50, 1))
    y = s[:, 0] + rng.normal(size=50)
    model = FairRidge(sensitive_kernel="linear").fit(s, y, sensitive_features=s)
    table = model.path(etas=[0.0, 1.0, np.inf]).table
    np.testing.assert_allclose(table["explained_share"][:2], 1, atol=1e-5)
    assert np.isnan(table["explained_share"][2])
    np.testing.assert_allclose(table["mse"][2], y.var(), rtol=1e-12)
    np.testing.assert_allclose(table["r2"][2], 0, atol=1e-12)
