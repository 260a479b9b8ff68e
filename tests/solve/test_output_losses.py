"""A kernel on the output and NOCCO of the output, for every loss; the optimum itself."""

import numpy as np
import pytest

from scalefair import FairKernelClassifier, FairKernelRegressor, FairKernelRidge
from scalefair.solve.output import hsic as output_descent
from tests.solve.test_output_kernel import fits_elsewhere, hsic, toy

LOSSES = ["logistic", "multinomial", "poisson", "gamma", "huber", "quantile", "squared"]


def model_of(loss, **settings):
    settings = {"feature_map": "linear", "alpha": 1e-3} | settings
    if loss in {"logistic", "multinomial"}:
        return FairKernelClassifier(**settings)
    return FairKernelRegressor(loss=loss, **settings)


def problem(loss, shifted, n=1500):
    """The toy, with a target that the loss takes; or with groups that differ in the mean, too."""
    x, y, s = toy(n)
    if shifted:
        x[:, 0] += np.where(s == "a", -1.0, 1.0)
    latent = x[:, 0] + x[:, 1]
    rng = np.random.default_rng(3)
    targets = {
        "logistic": lambda: latent > 0,
        "multinomial": lambda: np.digitize(latent, [-0.8, 0.8]),
        "poisson": lambda: rng.poisson(np.exp(np.clip(latent / 3, -3, 3))),
        "gamma": lambda: rng.gamma(5.0, np.exp(latent / 3) / 5),
    }
    return x, targets.get(loss, lambda: y)(), s


def scores(model, x):
    """All scores of the rows, of shape (n, k)."""
    f = x @ np.atleast_2d(model.coef_).T + model.intercept_
    return f - f.mean(axis=1, keepdims=True) if f.shape[1] > 1 else f


@pytest.mark.parametrize("loss", LOSSES)
def test_a_kernel_on_the_output_lowers_hsic_fivefold_for_every_loss(loss):
    """The groups differ in the spread of x₀ alone, which a penalty on means cannot see."""
    x, y, s = problem(loss, shifted=False)
    linear, fair = (
        model_of(loss, eta=100.0, output_kernel=kernel).fit(x, y, sensitive_features=s) for kernel in (None, "rbf")
    )
    for before, after in zip(scores(linear, x).T, scores(fair, x).T, strict=True):
        if hsic(before, s) > 2e-3:  # the middle class of three hardly depends on s
            assert hsic(after, s) < hsic(before, s) / 5
    assert fair.mean_loss_ > linear.mean_loss_  # the price
    assert np.isfinite(fair.coef_).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_nocco_of_the_output_lowers_the_share_for_every_loss_and_does_not_shrink(loss):
    x, y, s = problem(loss, shifted=True)
    free, fair = (
        model_of(loss, eta=eta, penalty="nocco_output").fit(x, y, sensitive_features=s) for eta in (0.0, 20.0)
    )
    assert fair.explained_share_ < 0.5 * free.explained_share_
    if loss == "multinomial":
        return
    # Along f itself the penalty is constant: the loss and the ridge alone set its scale.
    f = scores(fair, x)[:, 0]
    along, ridge = f - fair.intercept_, 2e-3 * np.sum(fair.coef_**2)
    slope = np.mean(fair.loss_.gradient(f, y.astype(float)) * along)
    assert slope + ridge == pytest.approx(0.0, abs=5e-3 * f.std())


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_any_chunks_and_dask_have_the_same_optimum(loss, monkeypatch):
    """Solved to the end: by default it stops where a step no longer matters."""
    monkeypatch.setitem(output_descent.solve_output.__kwdefaults__, "tol", 1e-9)
    monkeypatch.setattr(output_descent, "LEAST_FALL", 0.0)
    x, y, s = problem(loss, shifted=True, n=800)
    kind = FairKernelRidge if loss == "squared" else FairKernelClassifier
    expected = kind(eta=2.0, output_kernel="rbf", n_components=15, alpha=1e-2, random_state=0)
    expected.fit(x, y, sensitive_features=s)
    for model in fits_elsewhere(expected, x, y, s, monkeypatch):
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-7)
        assert model.output_share_ == pytest.approx(expected.output_share_, abs=1e-8)


@pytest.mark.parametrize("kind", [FairKernelRidge, FairKernelClassifier])
def test_callbacks_hear_of_every_step(kind):
    from tests.solve.test_solver_choice import Recorder

    x, y, s = problem("logistic", shifted=True, n=300)
    recorder = Recorder()
    model = kind(eta=2.0, output_kernel="rbf", n_components=10, random_state=0)
    model.set_callbacks(recorder).fit(x, y.astype(float), sensitive_features=s)
    assert recorder.begun.count("iterations") >= model.n_iter_ > 1
