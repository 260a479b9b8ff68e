"""A kernel on the output: the distribution of f, not its mean alone, is made independent of s."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import scalefair
from scalefair import FairKernelClassifier, FairKernelRegressor, FairKernelRidge, FairRidge
from scalefair.kernels import RBF
from scalefair.losses import Logistic, Squared
from scalefair.moments import output_features
from scalefair.moments.output_features import OutputKernel
from scalefair.solve.output import hsic as output_descent
from scalefair.solve.output.fit import output_objective
from scalefair.solve.ridge.direct import fit_ridge
from tests.errors import refused
from tests.models import fit_within


def toy(n=3000, seed=0):
    """E[f|s] is constant and Var[f|s] is not: x₀ has deviation ½ or 2, as the group has it."""
    rng = np.random.default_rng(seed)
    s = rng.choice(["a", "b"], n)
    x = rng.normal(size=(n, 3))
    x[:, 0] *= np.where(s == "a", 0.5, 2.0)
    for group in "ab":
        x[s == group] -= x[s == group].mean(axis=0)
    y = x[:, 0] + x[:, 1] + 0.3 * rng.normal(size=n)
    return x, y, s


def hsic(f, s, rows=1000):
    """Biased HSIC by Gram matrices: Gaussian on f (median heuristic), 1[s = s'] on s."""
    f, s = f[:rows], s[:rows]
    distance = np.abs(f[:, None] - f)
    K = np.exp(-(distance**2) / (2 * np.median(distance[distance > 0]) ** 2))
    L = (s[:, None] == s).astype(float)
    H = np.eye(len(f)) - 1 / len(f)
    return np.trace(K @ H @ L @ H) / len(f) ** 2


def objective_of(model, x, y, s, loss=None, eta=2.0, budget=2**30, options=None, **fit):
    """J of a fitted estimator, over given rows."""
    captured = []

    def keep(rows, system, spec, kernel):
        captured[:] = rows, system, spec
        return fit_ridge(system, spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalefair.estimators.ridge.fit_with_output_kernel", keep)
        fit_within(options or {}, model, x, y, sensitive_features=s, **fit)
        patch.setattr(output_features, "MAX_CACHED_BYTES", budget)
        made = output_objective(*captured, OutputKernel.gaussian(), loss)
    return replace(made, eta=eta)


def gradient_error(objective, coef, intercept, loss):
    """Largest difference from central differences, relative to the gradient."""
    _, slope, slope_b = objective(coef, intercept)
    step, found = 1e-5, np.empty_like(coef)
    chosen = [at for at in np.ndindex(coef.shape) if at[0] in (0, 3, 7, len(coef) - 1)]
    for at in chosen:
        ends = []
        for sign in (1, -1):
            moved = coef.copy()
            moved[at] += sign * step
            ends.append(objective(moved, intercept)[0])
        found[at] = (ends[0] - ends[1]) / (2 * step)
    error = max(abs(found[at] - slope[at]) for at in chosen) / np.abs(slope).max()
    if loss is not None:
        up, down = (objective(coef, intercept + sign * step)[0] for sign in (1, -1))
        error = max(error, abs((up - down) / (2 * step) - slope_b.sum()))
    return error


@pytest.mark.parametrize("budget", [2**30, 0])
@pytest.mark.parametrize("penalty", ["normalized", "nocco_output"])
@pytest.mark.parametrize("loss", [None, Logistic()])
def test_the_gradient_is_that_of_finite_differences(loss, penalty, budget):
    rng = np.random.default_rng(1)
    x, y, s = toy(400)
    y = (y > 0).astype(float) if loss else np.column_stack([y, x[:, 1] ** 2])
    model = FairKernelRidge(n_components=60, output_kernel="rbf", penalty=penalty, random_state=0)
    given = {"sample_weight": rng.integers(0, 3, 400).astype(float), "options": {"chunk_rows": 200}}
    objective = objective_of(model, x, y, s, loss, budget=budget, **given)
    assert objective.rows.cached == (budget > 0)
    small = np.zeros((len(objective.system.gram), 1 if loss else 2))
    small[:6] = rng.normal(size=(6, small.shape[1]))
    assert gradient_error(objective, small, np.full(small.shape[1], 0.3), loss) < 1e-6


def test_one_pass_or_two_and_kept_or_not_are_one_objective():
    x, y, s = toy(500)
    found = []
    for components, budget in ((30, 2**30), (30, 0), (80, 0), (80, 2**30)):
        model = FairKernelRidge(n_components=components, output_kernel="rbf", random_state=0)
        objective = objective_of(model, x, y, s, budget=budget)
        coef = np.random.default_rng(3).normal(size=(len(objective.system.gram), 1))
        found.append((objective(coef, np.zeros(1)), objective._fused))
    (kept, _), (two, fused), (one, fused_wide), (kept_wide, _) = found
    assert (fused, fused_wide) == (False, True)
    for a, b in ((kept, two), (one, kept_wide)):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-9)
        np.testing.assert_allclose(a[1], b[1], rtol=1e-6, atol=1e-7)


def test_q_is_hsic_by_gram_matrices():
    """Σ a_k|T_k|² is tr(KHLH)/n² with K the sum of waves and L the whitened attributes'."""
    x, y, s = toy(300)
    objective = objective_of(FairRidge(output_kernel="rbf", eps=1e-10), x, y, s)
    coef = np.array([[1.0], [0.5], [-0.2]])
    f = (x @ coef)[:, 0]
    u, kernel = (f - f.mean()) / f.std(), objective.kernel
    K = kernel.linear * np.outer(u, u)
    for a, omega in zip(kernel.weights, kernel.frequencies, strict=True):
        K = K + a * np.cos(omega * (u[:, None] - u))
    L = np.zeros((300, 300))
    for group in "ab":
        L[np.ix_(s == group, s == group)] = 1 / np.mean(s == group)
    H = np.eye(300) - 1 / 300
    expected = np.trace(K @ H @ L @ H) / 300**2
    assert objective.dependence(coef).q == pytest.approx(expected, rel=1e-6)
    share = expected / (np.trace(K @ H) / 300)
    assert objective.dependence(coef).share == pytest.approx(share, rel=1e-6)


def test_the_waves_are_a_gaussian_kernel():
    kernel, u = OutputKernel.gaussian((0.5,)), np.linspace(-3, 3, 50)
    waves = kernel.waves(u)
    K = (waves * kernel.weights) @ waves.conj().T
    gaussian = np.exp(-((u[:, None] - u) ** 2) / (2 * 0.5**2))
    both = [A - A.mean(0) - A.mean(1)[:, None] + A.mean() for A in (K.real, gaussian)]
    scale = both[0][0, 0] / both[1][0, 0]
    np.testing.assert_allclose(both[0], scale * both[1], atol=0.02 * scale)


def test_a_small_shift_of_a_normal_f_counts_as_in_the_linear_penalty():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 20000)
    x = rng.normal(size=(20000, 1))
    x += 0.2 * s[:, None]
    objective = objective_of(FairRidge(output_kernel="rbf"), x, x[:, 0], s.astype(str))
    coef = np.ones((1, 1))
    assert objective.dependence(coef).q == pytest.approx(objective.system.explained_share(coef), rel=0.15)


def test_the_linear_penalty_leaves_the_distribution_and_the_nonlinear_one_does_not():
    x, y, s = toy()
    plain = FairRidge(eta=0.0).fit(x, y, sensitive_features=s).predict(x)
    linear = FairRidge(eta=100.0).fit(x, y, sensitive_features=s).predict(x)
    model = FairRidge(eta=100.0, output_kernel="rbf").fit(x, y, sensitive_features=s)
    fair = model.predict(x)
    before, same, after = (hsic(f, s) for f in (plain, linear, fair))
    assert same == pytest.approx(before, rel=0.05)
    assert after < before / 5
    # The price: x₀ explains most of y, and the fair f can hardly use it.
    errors = [np.mean((y - f) ** 2) for f in (plain, linear, fair)]
    assert errors[1] < 1.05 * errors[0]
    best_without_x0 = LinearRegression().fit(x[:, 1:], y).predict(x[:, 1:])
    assert 5 * errors[0] < errors[2] <= 1.02 * np.mean((y - best_without_x0) ** 2)


def test_eta_zero_is_the_closed_form():
    x, y, s = toy(500)
    one, other = (FairRidge(eta=0.0, output_kernel=kernel).fit(x, y, sensitive_features=s) for kernel in (None, "rbf"))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert other.output_share_ > 0.01


def fits_elsewhere(model, x, y, s, monkeypatch):
    """Fits of the same rows: in small chunks, as dask arrays, and on two threads that keep no features."""
    chunked = [da.from_array(part, chunks=(300, *part.shape[1:])) for part in (x, y, s)]
    yield fit_within({"chunk_rows": 77}, clone(model), x, y, sensitive_features=s)
    yield clone(model).fit(*chunked[:2], sensitive_features=chunked[2])
    monkeypatch.setattr(output_features, "MAX_CACHED_BYTES", 0)
    yield clone(model).set_params(n_jobs=2).fit(x, y, sensitive_features=s)


def test_any_chunking_container_and_budget_give_the_same_optimum(monkeypatch):
    x, y, s = toy(800)
    expected = FairKernelRidge(eta=5.0, output_kernel="rbf", n_components=20, random_state=0)
    expected.fit(x, y, sensitive_features=s)
    for model in fits_elsewhere(expected, x, y, s, monkeypatch):
        np.testing.assert_allclose(model.predict(x), expected.predict(x), atol=2e-3)
        assert model.output_share_ == pytest.approx(expected.output_share_, rel=0.02)


def test_weight_two_is_the_row_twice():
    x, y, s = toy(400)
    times = np.random.default_rng(0).integers(0, 3, 400)
    settings = {"eta": 5.0, "output_kernel": "rbf"}
    twice = [np.repeat(part, times, axis=0) for part in (x, y, s)]
    one = FairRidge(**settings).fit(*twice[:2], sensitive_features=twice[2])
    other = FairRidge(**settings).fit(x, y, sensitive_features=s, sample_weight=times * 1.0)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-3)


def test_the_limit_is_on_the_share_of_the_distribution():
    x, y, s = toy()
    model = FairRidge(unfairness=0.005, output_kernel="rbf").fit(x, y, sensitive_features=s)
    assert 0.003 < model.output_share_ <= 0.005
    assert model.eta_ > 0
    # Ends with the scale of least error.
    f = model.predict(x)
    assert np.cov(f, y)[0, 1] / np.var(f, ddof=1) == pytest.approx(1.0, abs=1e-6)
    free = FairRidge(unfairness=0.9, output_kernel="rbf").fit(x, y, sensitive_features=s)
    assert free.eta_ == 0


def test_a_smaller_length_scale_may_be_asked_for():
    x, y, s = toy(600)
    settings = {"eta": 20.0, "penalty": "nocco_output"}
    model = FairRidge(output_kernel=RBF(0.5), **settings).fit(x, y, sensitive_features=s)
    assert model.output_share_ < 0.01


def test_under_control_f_is_independent_of_s_at_each_level():
    """Within the levels of c the variance depends on s; over both levels it does not."""
    rng = np.random.default_rng(0)
    n = 4000
    s, c = rng.choice(["a", "b"], n), rng.choice(["u", "v"], n)
    x = rng.normal(size=(n, 3))
    x[:, 0] *= np.where((s == "a") == (c == "u"), 0.5, 2.0)
    y = x[:, 0] + x[:, 1]
    settings = {"eta": 50.0, "output_kernel": "rbf"}
    marginal = FairRidge(**settings).fit(x, y, sensitive_features=s)
    model = FairRidge(**settings).fit(x, y, sensitive_features=s, control_features=c)
    assert marginal.coef_[0] > 0.7
    assert abs(model.coef_[0]) < 0.4 * marginal.coef_[0]


@pytest.mark.parametrize("settings", [{"output_kernel": "rbf"}, {"penalty": "nocco_output"}])
def test_other_losses(settings):
    x, y, s = toy(1500)
    if "penalty" in settings:
        x[:, 0] += np.where(s == "a", -1.0, 1.0)
    label = np.where(y + x[:, 0] > 0, "yes", "no")
    options = {"feature_map": "linear", "alpha": 1e-3}
    plain = FairKernelClassifier(eta=0.0, **options).fit(x, label, sensitive_features=s)
    fair = FairKernelClassifier(eta=20.0, **options, **settings).fit(x, label, sensitive_features=s)
    before, after = (hsic(model.decision_function(x), s) for model in (plain, fair))
    assert after < before / 3
    assert fair.score(x, label) > 0.55
    model = FairKernelRegressor(loss="huber", eta=20.0, **options, **settings)
    model.fit(x, y, sensitive_features=s)
    assert hsic(model.predict(x), s) < before / 3


def test_nocco_of_the_output_for_a_general_loss_is_that_of_the_squared_one():
    """L-BFGS finds the fixed point of the squared loss, ½|y − f|² being half of it."""
    rng = np.random.default_rng(0)
    x, _, s = toy(1000)
    x[:, 0] += np.where(s == "a", -1.0, 1.0)
    y = x[:, 0] + x[:, 1] + rng.normal(size=1000)
    unit = float(Squared().value(np.ones(1), np.zeros(1))[0])
    squared = FairRidge(eta=20 / unit, alpha=1e-3 / unit, penalty="nocco_output", eps=1e-9)
    squared.fit(x, y, sensitive_features=s)
    general = FairKernelRegressor(
        loss=Squared(), feature_map="linear", eta=20.0, alpha=1e-3, penalty="nocco_output", eps=1e-9
    )
    general.fit(x, y, sensitive_features=s)
    np.testing.assert_allclose(general.coef_, squared.coef_, atol=1e-3)
    free = FairRidge(eta=0.0).fit(x, y, sensitive_features=s).explained_share_
    assert general.explained_share_ < 0.5 * free


def test_a_base_model_brings_its_curves(tmp_path):
    x, y, s = toy(1200)
    frame = {"X": np.column_stack([x, s == "a"]), "columns": [3]}
    base = FairRidge(eta=0.0)
    settings = {"feature_map": "linear", "base_estimator": base, "eta": 50.0, "random_state": 0}
    errors = {}
    for hide in (False, True):
        model = FairKernelRidge(
            output_kernel="rbf", sensitive_columns=frame["columns"], hide_sensitive=hide, **settings
        )
        model.fit(frame["X"], y)
        assert model._design.features[-1] == "curve"
        f = model.predict(frame["X"])
        errors[hide] = np.mean((f - y) ** 2)
        assert hsic(f, s) < hsic(y, s) / 5
        scalefair.save(model, tmp_path / "model")
        np.testing.assert_array_equal(scalefair.load(tmp_path / "model").predict(frame["X"]), f)
    assert errors[True] > 1.5 * errors[False]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"output_kernel": "laplace"}, ["output_kernel", "'laplace'"]),
        ({"output_kernel": RBF((1.0, 2.0))}, ["output_kernel=RBF(", (1.0, 2.0)]),
        ({"output_kernel": "rbf", "penalty": "hsic"}, ["penalty='hsic'", "output_kernel='rbf'"]),
        ({"output_kernel": "rbf", "eta": np.inf}, ["eta=inf", "output_kernel='rbf'"]),
        ({"output_kernel": "rbf", "solver": "iterative"}, ["'iterative'", "solver='direct'"]),
    ],
)
def test_bad_parameters(settings, words):
    x, y, s = toy(60)
    with refused(*words, error=ValueError):
        fit_within(settings, FairKernelRidge(n_components=10), x, y, sensitive_features=s)


def test_what_needs_the_rows_again_says_so():
    x, y, s = toy(200)
    model = FairRidge(output_kernel="rbf").fit(x, y, sensitive_features=s)
    with refused("output_kernel='rbf'", error=ValueError):
        model.path()
    with refused("output_kernel='rbf'", error=ValueError):
        model.partial_fit(x, y, sensitive_features=s)


def test_a_fit_that_has_not_converged_warns(monkeypatch):
    x, y, s = toy(300)
    monkeypatch.setitem(output_descent.solve_output.__kwdefaults__, "max_iter", 2)
    with pytest.warns(ConvergenceWarning, match="2 steps"):
        FairRidge(eta=50.0, output_kernel="rbf").fit(x, y, sensitive_features=s)


def test_a_classifier_keeps_the_curves_of_an_encoded_table():
    x, y, s = toy(900)
    X = pd.DataFrame(x, columns=["x0", "x1", "x2"]).assign(s=s)
    label = y > 0
    model = FairKernelClassifier(
        feature_map="linear",
        base_estimator=LogisticRegression(),
        sensitive_columns=["s"],
        eta=3.0,
        output_kernel="rbf",
        random_state=0,
    )
    base = make_pipeline(
        make_column_transformer((OneHotEncoder(sparse_output=False), ["s"]), remainder="passthrough"),
        LogisticRegression(),
    )
    fair = model.set_params(base_estimator=base).fit(X, label)
    plain = base.fit(X, label)
    assert fair._design.features == ("phi", "psi", "base", "curve")
    after, before = fair.decision_function(X), plain.decision_function(X)
    assert np.isfinite(after).all()
    assert hsic(after, s) < hsic(before, s) / 5
    assert fair.score(X, label) > 0.7
