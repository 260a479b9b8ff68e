"""What users are told, and in whose words; and methods that scikit-learn's users look for."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from scalefair import (
    FairGPClassifier,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelClassifierCV,
    FairKernelRegressorCV,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
)
from tests.errors import refused

N = 200
OPTIONS = {"unfairness": 0.05, "n_components": 20, "random_state": 0}


def rows():
    rng = np.random.default_rng(0)
    s, x = rng.choice(["f", "m"], N), rng.normal(size=N)
    X = pd.DataFrame({"x": x, "g": rng.choice(["a", "b", "c"], N)})
    return X, x + (s == "f") + 0.1 * rng.normal(size=N), s


@pytest.mark.parametrize("estimator", [FairKernelRidgeCV, FairKernelRegressorCV])
def test_a_constant_target_is_the_reason_for_a_constant_prediction(estimator):
    X, _, s = rows()
    with pytest.warns(UserWarning, match="y is constant") as caught:
        model = estimator(**OPTIONS).fit(X, np.full(N, 3.0), sensitive_features=s)
    assert not any("inf" in str(one.message) for one in caught)
    np.testing.assert_allclose(model.predict(X), 3.0)


@pytest.mark.parametrize("estimator", [FairKernelRidge, FairKernelRidgeCV, FairGPRegressor])
def test_attributes_too_small_to_square_are_named(estimator):
    X, y, _ = rows()
    with refused("sensitive attributes", "1e-75", error=ValueError):
        estimator(**OPTIONS).fit(X, y, sensitive_features=1e-200 * y)


def test_a_limit_without_a_ridge():
    """The limit is met where numbers allow it, and what is wrong is said to be alpha."""
    X, y, s = rows()
    model = FairKernelClassifier(alpha=0, feature_map="linear", **OPTIONS)
    assert model.fit(X[["x"]], y > 1, sensitive_features=s).explained_share_ <= 0.05 + 1e-6
    for size in (5, 20, 100):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = FairKernelClassifier(alpha=0, **OPTIONS | {"n_components": size})
            model.fit(X, y > 0, sensitive_features=s)
        assert all("alpha" in str(one.message) for one in caught)
        assert model.explained_share_ <= 0.05 + 1e-3
    with refused("alpha=0", error=ValueError):
        FairRidge(alpha=0, unfairness=0.05).fit(X.assign(z=X["x"]), y, sensitive_features=s)


@pytest.mark.parametrize("base", [None, "trees"])
def test_warnings_name_the_class_of_the_user(base):
    X, y, s = rows()
    model = FairKernelRidgeCV(base_estimator=base, **OPTIONS).fit(X, y, sensitive_features=s)
    with pytest.warns(UserWarning, match="feature names") as caught:
        model.predict(X.to_numpy(dtype=object))
    (only,) = caught
    assert "FairKernelRidgeCV" in str(only.message)


def test_an_unseen_combination_gets_advice_that_can_be_followed():
    X, y, _ = rows()
    X = X.assign(h=np.where(X["g"] == "a", "u", np.where(X["x"] > 0, "u", "v")))
    model = FairKernelRidge(sensitive_columns=["g", "h"], **OPTIONS).fit(X, y)
    with refused("not seen in fit", error=ValueError) as caught:
        model.partial_fit(X.assign(h="v"), y)
    assert "unknown=" not in str(caught.value)


def test_a_process_that_is_not_optimised_keeps_what_it_is_given():
    X, y, s = rows()
    given = {"length_scale": 2.0, "amplitude": 1.5, "noise": 0.25, "optimizer": None}
    model = FairGPRegressor(**OPTIONS | given).fit(X[["x"]], y, sensitive_features=s)
    assert model.kernel_.length_scale == 2.0
    assert (model.amplitude_, model.noise_) == (1.5, 0.25)
    learnt = FairGPRegressor(length_scale=2.0, optimizer=None, **OPTIONS)
    learnt.fit(X[["x"]], y, sensitive_features=s)
    assert learnt.kernel_.length_scale == 2.0
    assert learnt.noise_ != 0.25
    first = FairGPRegressor.__doc__.partition("\noptimizer :")[2] or FairGPRegressor.__doc__
    assert "Unlike in scikit-learn, None" in first


@pytest.mark.parametrize("estimator", [FairKernelClassifier, FairKernelClassifierCV, FairGPClassifier])
def test_log_probabilities(estimator):
    X, y, s = rows()
    for target in (y > 0, np.digitize(y, [0, 1])):
        model = estimator(**OPTIONS | {"unfairness": 0.5}).fit(X, target, sensitive_features=s)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


def test_names_of_the_coefficients():
    X, y, s = rows()
    linear = partial(FairRidge, unfairness=0.05)
    model = linear().fit(X, y, sensitive_features=s)
    assert list(model.get_feature_names_out()) == ["x", "g_a", "g_b", "g_c"]
    assert len(model.coef_) == 4
    plain = linear().fit(X[["x"]], y, sensitive_features=s)
    assert list(plain.get_feature_names_out()) == ["x"]
    array = linear().fit(X[["x"]].to_numpy(), y, sensitive_features=s)
    assert list(array.get_feature_names_out()) == ["x0"]
    hidden = linear(sensitive_columns=["g"], hide_sensitive=True).fit(X, y)
    assert list(hidden.get_feature_names_out()) == ["x"]
    seen = linear(sensitive_columns=["g"], base_estimator="trees").fit(X, y)
    assert len(seen.get_feature_names_out()) == len(seen.coef_)


class Listener:
    """A callback that skops does not know."""

    def setup(self, *args, **options): ...
    def teardown(self, *args, **options): ...
    def on_fit_task_begin(self, *args, **options): ...
    def on_fit_task_end(self, *args, **options): ...


@pytest.mark.parametrize("estimator", [FairKernelRidgeCV, FairKernelClassifierCV])
def test_no_callback_is_left_over_inside_a_cross_validated_model(estimator):
    X, y, s = rows()
    y = y > 0 if estimator is FairKernelClassifierCV else y
    model = estimator(**OPTIONS).set_callbacks(Listener()).fit(X, y, sensitive_features=s)
    inner = [v for v in vars(model).values() if hasattr(v, "get_params")]
    inner += [model.path_.at(unfairness=0.05)]
    assert not [name for one in inner for name in vars(one) if "callback" in name]
    io = pytest.importorskip("skops.io")
    del model.__dict__["_skl_callbacks"]  # the user's own
    unknown = io.get_untrusted_types(data=io.dumps(model))
    assert all(name.startswith("scalefair.") for name in unknown)


@pytest.mark.parametrize("estimator", [FairKernelRidge, FairKernelRidgeCV, FairKernelRegressorCV, FairGPRegressor])
def test_dates_are_no_numeric_target(estimator):
    X, s = np.random.default_rng(0).normal(size=(40, 2)), np.tile(["a", "b"], 20)
    for dates in (pd.date_range("2020", periods=40), pd.to_timedelta(np.arange(40), "D")):
        with refused("y", str(dates.to_numpy()[0])):
            estimator(unfairness=0.5).fit(X, dates, sensitive_features=s)
