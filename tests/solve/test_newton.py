"""Newton over a stream of rows against finite differences and direct minimisation."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.losses import (
    ClassWeighted,
    Gamma,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Quantile,
    Squared,
    SumToZero,
)
from scalefair.maps import Identity, Nystroem, OneHot
from scalefair.moments import accumulate, curvature
from scalefair.moments.accumulate import SHIFTED, FeatureCache
from scalefair.moments.curvature import Along, loss_sums
from scalefair.solve.newton.descent import Goal, newton
from scalefair.solve.newton.model import Local, Problem
from scalefair.solve.ridge.direct import solve_primal
from scalefair.solve.ridge.system import System

N, D = 300, 4
MULTI = SumToZero(ClassWeighted(Multinomial(3), np.array([1.0, 0.5, 2.0])))
LOSSES = [
    Squared(),
    Logistic(),
    ClassWeighted(Logistic(), np.array([0.4, 2.0])),
    Poisson(),
    Gamma(),
    Huber(0.8),
    Quantile(0.7, 0.1),
    SumToZero(Multinomial(3)),
    MULTI,
]


def ids(loss):
    return type(loss).__name__ + type(getattr(loss, "loss", "")).__name__.replace("str", "")


def table(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    s = (X[:, 0] + rng.standard_normal(N) > 0).astype(float) + (X[:, 1] > 1)
    signal = X @ np.array([1.0, -0.5, 0.3, 0.0]) / 2 + 0.4 * s
    if loss.n_targets > 1:
        y = np.eye(3)[np.argmax(signal[:, None] * [-1, 0, 1] + rng.gumbel(size=(N, 3)), axis=1)]
    elif isinstance(getattr(loss, "loss", loss), Logistic):
        y = (signal + rng.logistic(size=N) > 0).astype(float)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(signal)).astype(float)
    elif isinstance(loss, Gamma):
        y = rng.gamma(2.0, np.exp(signal))
    else:
        y = signal + rng.standard_t(3, size=N)
    return X, s[:, None], y.reshape(N, -1), rng.integers(0, 3, N).astype(float)


def problem(loss, *, phi=None, rows=None, weight=True, joined=False, intercept=True, **options):
    X, s, y, w = table(loss)
    w = w if weight else None
    source = ArraySource(X, s, y, w)
    phi = Identity().fit(X) if phi is None else phi.fit(X)
    design = Design(phi, OneHot().fit(s), y.shape[1], **options)
    (moments,) = accumulate(source, design)
    features = ("phi", "psi") if joined else ("phi",)
    width = sum(moments.blocks[name] for name in features)
    ridge = np.linspace(0.5, 2.0, width)
    system = System.build(moments, fit_intercept=intercept, features=features, ridge=ridge)
    return Problem(source, design, loss, system, rows)


def objective(loss, flat, alpha, eta, *, joined=False, intercept=True):
    """J by its definition, on all rows at once, features not centred."""
    X, s, y, w = table(loss)
    phi = np.hstack([X, OneHot().fit(s).transform(s)]) if joined else X
    k = loss.n_scores
    theta = flat.reshape(-1, k)
    beta, b = (theta[:-1], theta[-1]) if intercept else (theta, 0.0)
    f = phi @ beta + b
    f, y = (f[:, 0] if k == 1 else f), (y[:, 0] if loss.n_targets == 1 else y)
    ridge = np.linspace(0.5, 2.0, phi.shape[1])
    psi = OneHot().fit(s).transform(s)
    w = w / w.sum()
    centred = [part - w @ part for part in (phi, psi)]
    C = [(a * w[:, None]).T @ b for a in centred for b in centred]
    values, vectors = np.linalg.eigh(C[3])
    keep = values > 1e-12
    R = C[1] @ (vectors[:, keep] / np.sqrt(values[keep] + 1e-6))
    fair = eta * np.sum((R.T @ beta) ** 2)
    return w @ loss.value(f, y) + alpha * ridge @ np.sum(beta**2, axis=1) + fair


def whole(problem_, theta):
    coef, intercept = problem_.solution(theta)
    return np.vstack([coef, intercept]) if problem_.system.fit_intercept else coef


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_one_pass_gives_value_gradient_and_second_derivative(loss):
    p = problem(loss, joined=True, rows=70)
    rng = np.random.default_rng(1)
    shape = (len(p.metric), loss.n_scores)
    theta, way = 0.3 * rng.standard_normal(shape), rng.standard_normal(shape)
    before = Local(theta - way, theta, np.empty((0, 0)))
    local, values = p.evaluate(theta, before, (0.5, 0.0))
    again = [p.evaluate(theta - back * way)[0] for back in (0.5, 1.0)]
    np.testing.assert_allclose(values, [point.value for point in again], rtol=1e-12)
    if isinstance(loss, Huber):
        return  # its second derivative jumps between the two points
    h = 1e-5
    up, down = (p.evaluate(theta + t * way)[0] for t in (h, -h))
    slope = np.sum(local.gradient * way)
    np.testing.assert_allclose((up.value - down.value) / (2 * h), slope, rtol=1e-6)
    curved = (local.hessian @ way.T.ravel()).reshape(way.T.shape).T
    np.testing.assert_allclose((up.gradient - down.gradient) / (2 * h), curved, atol=2e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@pytest.mark.parametrize(
    "options", [{"joined": True}, {"intercept": False}, {}], ids=["joined", "no intercept", "plain"]
)
def test_the_optimum_is_that_of_direct_minimisation(loss, options):
    alpha, eta = 1e-2, 0.7
    p = problem(loss, **options)
    found = whole(p, newton(p, Goal(alpha, eta)).theta)
    J = lambda flat: objective(loss, flat, alpha, eta, **options)  # noqa: E731
    if isinstance(loss, Huber | Quantile) and "joined" not in options:
        best = minimize(J, np.zeros(found.size), method="BFGS", options={"gtol": 1e-9}).fun
        assert abs(J(found.ravel()) - best) < 1e-9
    # A stationary point: J is convex, so there is no other.
    h = 1e-5
    slopes = [(J(found.ravel() + h * e) - J(found.ravel() - h * e)) / (2 * h) for e in np.eye(found.size)]
    assert np.abs(slopes).max() < 1e-6


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_every_chunking_and_whitening_has_the_same_optimum(loss):
    phi = Nystroem(n_components=20, random_state=0)
    goal = Goal(1e-3, 0.5)
    reference = problem(loss, phi=phi, rows=1000, joined=True, whiten_rows=True)
    expected = newton(reference, goal).theta
    for rows, whiten in [(37, True), (64, False), (1000, False)]:
        p = problem(loss, phi=phi, rows=rows, joined=True, whiten_rows=whiten)
        np.testing.assert_allclose(newton(p, goal).theta, expected, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_eta_to_infinity_leaves_nothing_explained(loss):
    p = problem(loss)
    shares = [p.share(newton(p, Goal(1e-3, eta)).theta) for eta in (0.0, 1e2, 1e8, np.inf)]
    assert shares[0] > 1e-3
    assert shares[1] < shares[0]
    assert shares[2] < 1e-10
    assert shares[3] < 1e-20


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_a_limit_finds_its_eta_in_the_passes_of_one_fit(loss):
    p = problem(loss)
    free = p.share(newton(p, Goal(1e-3)).theta)
    limited = newton(p, Goal(1e-3, unfairness=free / 3))
    assert p.share(limited.theta) == pytest.approx(free / 3, rel=1e-9)
    plain = newton(p, Goal(1e-3, limited.eta))
    np.testing.assert_allclose(limited.theta, plain.theta, atol=1e-6)
    assert limited.n_passes <= plain.n_passes + 2
    assert newton(p, Goal(1e-3, unfairness=1.0)).eta == 0.0
    assert p.share(newton(p, Goal(1e-3, unfairness=0.0)).theta) < 1e-20


def test_squared_loss_is_the_closed_form():
    p = problem(Squared(), joined=True)
    for eta in (0.0, 3.0, np.inf):
        coef, _ = solve_primal(p.system, 1e-2, eta)
        fit = newton(p, Goal(1e-2, eta))
        np.testing.assert_allclose(p.solution(fit.theta).coef, coef, atol=1e-12)
        assert fit.n_passes == 1


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_a_warm_start_saves_passes_and_changes_nothing(loss):
    p = problem(loss)
    first = newton(p, Goal(1e-3, 1.0))
    cold = newton(p, Goal(1e-3, 1.3))
    warm = newton(p, Goal(1e-3, 1.3), warm=first.local)
    np.testing.assert_allclose(warm.theta, cold.theta, atol=1e-7)
    assert warm.n_passes <= cold.n_passes


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@pytest.mark.parametrize("goal", [Goal(1e-3, 1.0), Goal(1e-3, unfairness=0.01)], ids=str)
def test_light_passes_find_the_same_optimum(loss, goal, monkeypatch):
    p, lights = problem(loss, joined=True), []
    full = newton(p, goal)
    monkeypatch.setattr("scalefair.solve.newton.descent.WIDE", 1)
    evaluate = Problem.evaluate

    def counted(*given, light=False):
        lights.append(light)
        return evaluate(*given, light=light)

    monkeypatch.setattr(Problem, "evaluate", counted)
    light = newton(p, goal)
    np.testing.assert_allclose(light.theta, full.theta, atol=2e-6)
    assert lights.count(False) <= full.n_passes
    if not isinstance(loss, Squared):
        assert any(lights)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@pytest.mark.parametrize("weight", [False, True])
def test_kept_features_change_no_bit_and_are_made_once(loss, weight):
    """Chunks with rows of weight zero are made anew, since those rows are left out."""
    p = problem(loss, phi=Nystroem(n_components=20, random_state=0), weight=weight, rows=50)
    kept = FeatureCache.within(2**20, p.source, p.design)
    expected, found = (newton(each, Goal(1e-3, 1.0)) for each in (p, replace(p, cache=kept)))
    np.testing.assert_array_equal(found.theta, expected.theta)
    assert FeatureCache.within(100, p.source, p.design) is None
    if not weight:
        assert kept.take(0, N)[1] == SHIFTED


def test_features_that_the_moments_took_are_not_made_again(monkeypatch):
    p = problem(Logistic(), phi=Nystroem(n_components=20, random_state=0), weight=False, rows=50)
    expected = newton(p, Goal(1e-3, 1.0))
    kept = FeatureCache.within(2**20, p.source, p.design)
    (moments,) = accumulate(p.source, p.design, rows=37, cache=kept)
    np.testing.assert_allclose(moments.scatter, p.system.moments.scatter, atol=1e-10)

    def never(x, out):
        raise AssertionError("features were made again")

    monkeypatch.setattr(curvature, "row_filler", lambda *_, **__: never)
    found = newton(replace(p, cache=kept), Goal(1e-3, 1.0))
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-10, atol=1e-12)


def test_a_light_pass_learns_the_curvature_along_its_way():
    p = problem(Poisson())
    theta, way = np.zeros((len(p.metric), 1)), np.full((len(p.metric), 1), 0.1)
    first, _ = p.evaluate(theta)
    light, _ = p.evaluate(theta + way, first, light=True)
    full, _ = p.evaluate(theta + way, first)
    np.testing.assert_allclose(light.gradient, full.gradient, rtol=1e-12)
    change = (full.gradient - first.gradient)[:, 0]
    np.testing.assert_allclose(light.hessian @ way[:, 0], change, rtol=1e-9)
    assert np.linalg.eigvalsh(light.hessian).min() > 0


def test_features_far_from_zero_lose_no_digits():
    X, s, y, _ = table(Logistic())
    fits = []
    for shift in (0.0, 1e7):
        source = ArraySource(X + shift, s, y)
        design = Design(Identity().fit(X), OneHot().fit(s))
        (moments,) = accumulate(source, design)
        p = Problem(source, design, Logistic(), System.build(moments))
        fits.append(p.solution(newton(p, Goal(1e-3, 1.0)).theta).coef)
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-7)


def separated(alpha):
    X = np.linspace(-1, 1, 50)[:, None]
    y = (X > 0).astype(float)
    source = ArraySource(X, None, y)
    design = Design(Identity().fit(X))
    (moments,) = accumulate(source, design)
    p = Problem(source, design, Logistic(), System.build(moments))
    return p.solution(newton(p, Goal(alpha)).theta)


def test_separated_classes_have_a_finite_answer_with_a_ridge():
    coef, intercept = separated(1e-8)
    assert 100 < coef[0, 0] < 1e5
    assert np.isfinite(intercept).all()


def test_separated_classes_without_a_ridge_end_where_nothing_is_gained():
    coef, intercept = separated(0.0)
    assert coef[0, 0] > 100
    assert np.isfinite(intercept).all()


def test_too_few_iterations_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        newton(problem(Poisson()), Goal(1e-3), max_iter=1)


class Uphill(Squared):
    """A loss of one's own whose gradient has the wrong sign."""

    def gradient(self, f, y):
        return -super().gradient(f, y)

    def start(self, mean):
        return None


def test_a_wrong_gradient_is_warned_of():
    with pytest.warns(ConvergenceWarning):
        fit = newton(problem(Uphill()), Goal(1e-3))
    assert not fit.converged


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_start_far_away_is_recovered_from(scale):
    """Outliers move the mean so far that no row has any curvature there."""
    X, s, y, _ = table(Huber(1.0))
    y = np.where(np.arange(N)[:, None] < 30, 1e5, y) * scale
    source = ArraySource(X, s, y)
    design = Design(Identity().fit(X), OneHot().fit(s))
    (moments,) = accumulate(source, design)
    loss = Huber(scale)
    p = Problem(source, design, loss, System.build(moments))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = newton(p, Goal(1e-6), max_iter=100)
    f = X @ p.solution(fit.theta).coef[:, 0] + p.solution(fit.theta).intercept
    good = np.arange(N) >= 30
    assert np.median(np.abs(y[good, 0] - f[good])) < 1.5 * scale


def test_a_loss_without_a_start_begins_with_a_pass_at_zero():
    class Cosh(Loss):
        def value(self, f, y):
            return np.logaddexp(f - y, y - f)

        def gradient(self, f, y):
            return np.tanh(f - y)

        def curvature(self, f, y):
            return 1 - np.tanh(f - y) ** 2

    loss = Cosh()
    p = problem(loss)
    found = whole(p, newton(p, Goal(1e-2, 0.7)).theta)
    J = lambda flat: objective(loss, flat, 1e-2, 0.7)  # noqa: E731
    best = minimize(J, np.zeros(found.size), method="BFGS", options={"gtol": 1e-9}).fun
    assert abs(J(found.ravel()) - best) < 1e-9


def test_single_precision_rows_are_solved_to_the_last_digit_they_have():
    double = newton(problem(Logistic()), Goal(1e-3, 1.0)).theta
    single = newton(problem(Logistic(), dtype=np.float32, whiten_rows=True), Goal(1e-3, 1.0)).theta
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_sums_add_up_over_parts_of_the_rows():
    p = problem(Poisson(), rows=50)
    theta = np.full((len(p.metric), 1), 0.1)
    along = Along(theta, theta)
    X, s, y, w = table(Poisson())
    parts = [
        loss_sums(ArraySource(X[a:b], s[a:b], y[a:b], w[a:b]), p.frame, p.loss, along)
        for a, b in [(0, 100), (100, 100), (100, N)]
    ]
    total = parts[0] + parts[1] + parts[2]
    expected = loss_sums(p.source, p.frame, p.loss, along)
    np.testing.assert_allclose(total.hessian, expected.hessian, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total.values, expected.values)
