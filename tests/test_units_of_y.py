"""Targets in other units: the same fit in those units, or a refusal."""

import numpy as np
import pytest

from scalefair import FairKernelRegressor, FairKernelRidge
from scalefair.losses import Huber, Loss, Poisson, Quantile, Squared

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
@pytest.mark.parametrize("loss", [Huber(1.0), Huber(0.01), Squared(), Expectile()], ids=str)
def test_newton_stops_at_the_same_point_in_any_unit(loss, goal, unit):
    def make(c):
        scaled = Huber(c * loss.delta) if isinstance(loss, Huber) else loss
        return FairKernelRegressor(loss=scaled, **COMMON, **goal)

    assert error(make, unit) < 1e-8


@pytest.mark.parametrize("unit", UNITS)
def test_newton_without_an_intercept_in_any_unit(unit):
    assert (
        error(lambda c: FairKernelRegressor(loss=Huber(c), fit_intercept=False, **COMMON), unit)
        < 1e-8
    )


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
    "share of huber": lambda c: FairKernelRegressor(
        loss=Huber(c), penalty="nocco_output", eta=c**2, **COMMON
    ),
    "share": lambda c: FairKernelRidge(
        penalty="nocco_output", output_kernel="rbf", eta=c**2, **COMMON
    ),
    "share alone": lambda c: FairKernelRidge(penalty="nocco_output", eta=c**2, **COMMON),
    "limit of share": lambda c: FairKernelRidge(
        penalty="nocco_output", output_kernel="rbf", unfairness=0.02, **COMMON
    ),
    "gamma": lambda c: FairKernelRegressor(loss="gamma", output_kernel="rbf", **COMMON),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", OUTPUT)
def test_the_descent_stops_at_the_same_point_in_any_unit(name, unit):
    y_of = (lambda y: np.exp(np.tanh(y))) if name == "gamma" else (lambda y: y)
    assert error(OUTPUT[name], unit, y_of) < 1e-8
