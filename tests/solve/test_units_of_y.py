"""Targets in other units: the same fit in those units, or a refusal."""

import dask.array as da
import numpy as np
import pytest

import scalefair
from scalefair import FairKernelRegressor, FairKernelRidge
from scalefair.losses import Huber, Loss, Poisson, Quantile, Squared
from tests.errors import refused

UNITS = [1e-6, 1e-4, 1e4, 1e6]
COMMON = {"alpha": 1e-3, "n_components": 40, "random_state": 0}


def rows(n=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    s = rng.integers(0, 2, n).astype(float)
    X[:, 0] += s
    X[:, 1] *= 1 + s
    return X, s, np.sin(X[:, 0]) + X[:, 1] + 0.5 * rng.standard_t(2, n)


def error(make, unit, y_of=lambda y: y):
    """Largest difference of the fits of y and of unit·y, in deviations of the predictions."""
    X, s, y = rows()
    f, g = (make(c).fit(X, c * y_of(y), sensitive_features=s).predict(X) / c for c in (1.0, unit))
    return np.abs(f - g).max() / f.std()


class Expectile(Loss):
    """A loss of one's own, which knows of no unit."""

    def value(self, f, y):
        return np.where(y > f, 0.9, 0.1) * (y - f) ** 2

    def gradient(self, f, y):
        return 2 * np.where(y > f, 0.9, 0.1) * (f - y)

    def curvature(self, f, y):
        return 2 * np.where(y > f, 0.9, 0.1)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("goal", [{"eta": 1.0}, {"eta": np.inf}, {"unfairness": 0.05}], ids=str)
@pytest.mark.parametrize(
    "loss", [Huber(1.0), Huber(0.01), Squared(), Expectile()], ids=["huber", "narrow huber", "squared", "expectile"]
)
def test_newton_stops_at_the_same_point_in_any_unit(loss, goal, unit):
    def make(c):
        scaled = Huber(c * loss.delta) if isinstance(loss, Huber) else loss
        return FairKernelRegressor(loss=scaled, **COMMON, **goal)

    assert error(make, unit) < 1e-8


@pytest.mark.parametrize("unit", UNITS)
def test_newton_without_an_intercept_in_any_unit(unit):
    assert error(lambda c: FairKernelRegressor(loss=Huber(c), fit_intercept=False, **COMMON), unit) < 1e-8


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("power", [1, -1])
def test_losses_that_grow_with_the_first_power_of_y(unit, power):
    """The weights of ridge and penalty scale along: cV(f, y) = V(cf, cy), or V(f + log c, cy)."""

    def make(c):
        weights = {**COMMON, "alpha": 1e-3 * c**power, "eta": c**power}
        loss = Quantile(0.7, 0.1 * c) if power < 0 else Poisson()
        return FairKernelRegressor(loss=loss, **weights)

    assert error(make, unit, (lambda y: y) if power < 0 else np.exp) < 1e-8


OUTPUT = {
    "ridge": lambda c: FairKernelRidge(output_kernel="rbf", **COMMON),
    "limit": lambda c: FairKernelRidge(output_kernel="rbf", unfairness=0.02, **COMMON),
    "huber": lambda c: FairKernelRegressor(loss=Huber(c), output_kernel="rbf", **COMMON),
    "share of huber": lambda c: FairKernelRegressor(loss=Huber(c), penalty="nocco_output", eta=c**2, **COMMON),
    "share": lambda c: FairKernelRidge(penalty="nocco_output", output_kernel="rbf", eta=c**2, **COMMON),
    "share alone": lambda c: FairKernelRidge(penalty="nocco_output", eta=c**2, **COMMON),
    "limit of share": lambda c: FairKernelRidge(penalty="nocco_output", output_kernel="rbf", unfairness=0.02, **COMMON),
    "gamma": lambda c: FairKernelRegressor(loss="gamma", output_kernel="rbf", **COMMON),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", OUTPUT)
def test_the_descent_stops_at_the_same_point_in_any_unit(name, unit):
    y_of = (lambda y: np.exp(np.tanh(y))) if name == "gamma" else (lambda y: y)
    assert error(OUTPUT[name], unit, y_of) < 1e-8


REGRESSORS = [
    scalefair.FairKernelRidge(n_components=20),
    scalefair.FairKernelRidge(feature_map="exact"),
    scalefair.FairRidge(),
    scalefair.FairKernelRidgeCV(n_components=20),
    scalefair.FairKernelRegressor(loss="huber", n_components=20),
    scalefair.FairGPRegressor(n_components=20),
    scalefair.FairGPRegressor(feature_map="exact", noise=1.0, amplitude=1.0),
]


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
@pytest.mark.parametrize("size", [1e-165, 1e-100, 1e100])
@pytest.mark.parametrize("container", [np.asarray, da.asarray], ids=["numpy", "dask"])
def test_targets_that_cannot_be_squared_are_refused(model, size, container):
    X, s, y = map(container, rows(60))
    with refused("column 0", "rescale", "75", error=ValueError):
        model.fit(X, size * y, sensitive_features=s)


@pytest.mark.parametrize("size", [1e-74, 1e70])
def test_the_largest_and_least_targets_that_are_taken_keep_a_limit(size):
    X, s, y = rows()
    model = scalefair.FairRidge(unfairness=0.01).fit(X, size * y, sensitive_features=s)
    f = model.predict(X) / size
    gap = f[s == 1].mean() - f[s == 0].mean()
    np.testing.assert_allclose(gap**2 * s.mean() * (1 - s.mean()) / f.var(), 0.01, rtol=1e-4)


def test_a_row_without_weight_makes_no_target_larger():
    X, s, y = rows(60)
    tiny, weight = np.where(np.arange(60) == 0, 1.0, 1e-165 * y), np.arange(60) > 0
    with refused("column 0", "rescale", "75", error=ValueError):
        scalefair.FairRidge().fit(X, tiny, sensitive_features=s, sample_weight=weight)


@pytest.mark.parametrize("level", [0.0, 3.0])
def test_a_constant_target_is_fitted(level):
    X, s, _ = rows(60)
    f = scalefair.FairRidge().fit(X, np.full(60, level), sensitive_features=s).predict(X)
    np.testing.assert_allclose(f, level, rtol=1e-12, atol=0)
