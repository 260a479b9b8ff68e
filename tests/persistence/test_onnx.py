"""Exported predictors say what the fitted ones say, in another runtime."""

from __future__ import annotations

import builtins
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import scalefair
from scalefair import FairKernelClassifier, FairKernelRegressor, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.datasets import make_biased_income
from scalefair.exporting.onnx import MISSING
from scalefair.kernels import RBF, Laplace, Linear, Scaled
from tests.errors import refused
from tests.models import MODELS, fitted, numbers, pay, rows

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

EXPORTED = [name for name in MODELS if name not in ("joined", "bent")]


def feeds(X):
    """Rows as the graph wants them."""
    if isinstance(X, np.ndarray):
        return {"X": np.asarray(X, dtype=float)}
    found = {}
    for name in X.columns:
        column = X[name]
        if column.dtype.kind in "fiub":
            found[name] = column.to_numpy(float)[:, None]
        else:
            text = column.astype(object).where(column.notna(), MISSING)
            found[name] = text.to_numpy(object)[:, None]
    return found


def run(model, X, path=None):
    made = scalefair.to_onnx(model, path)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    wanted = {each.name for each in session.get_inputs()}
    given = {name: value for name, value in feeds(X).items() if name in wanted}
    return dict(zip(names, session.run(None, given), strict=True))


def same(model, X, tolerance=1e-9):
    said = run(model, X)
    if "label" in said:
        np.testing.assert_array_equal(said["label"], model.predict(X).astype(said["label"].dtype))
        np.testing.assert_allclose(said["probabilities"], model.predict_proba(X), atol=tolerance)
    if "scores" in said:
        expected = np.reshape(model.decision_function(X), said["scores"].shape)
        np.testing.assert_allclose(said["scores"], expected, rtol=tolerance, atol=tolerance)
    if "prediction" in said:
        expected = np.reshape(model.predict(X), said["prediction"].shape)
        np.testing.assert_allclose(said["prediction"], expected, rtol=tolerance, atol=tolerance)
    assert said


@pytest.mark.parametrize("name", EXPORTED)
def test_every_estimator(name):
    same(fitted(name), rows(name), 1e-4 if name == "float32" else 1e-8)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF((1.0, 2.0, 0.5, 3.0, 4.0)),
        Laplace(3.0),
        RBF(2.0) * Linear(),
        Scaled(RBF(2.0), 3.0) + Laplace(1.0),
        "matern12",
        "matern32",
        "matern52",
    ],
)
@pytest.mark.parametrize("feature_map", ["nystroem", "exact", "fourier"])
def test_every_kernel(kernel, feature_map):
    if feature_map == "fourier" and not isinstance(kernel, str | RBF | Laplace):
        pytest.skip("has no spectral sample")
    X = numbers()
    options = {"feature_map": feature_map, "kernel": kernel, "n_components": 10}
    model = FairKernelRidge(**options, eta=1.0, random_state=0)
    model.fit(X, np.asarray(pay().target), sensitive_features=pay().data["sex"])
    same(model, X, 1e-7)


def test_missing_and_unknown_values_are_read_alike():
    X = pay().data.copy()
    X.loc[::5, "rating"] = np.nan
    X["region"] = X["region"].astype(object)
    X.loc[::7, "region"] = None
    model = FairKernelRidge(n_components=20, eta=1.0, random_state=0)
    model.fit(X, pay().target, sensitive_features=pay().sensitive_features)
    X.loc[1, "region"] = "Atlantis"
    X.loc[2, "experience"] = np.nan
    same(model, X)


@pytest.mark.parametrize("kind", [FairKernelRidgeCV, FairKernelClassifier, FairKernelRegressor])
def test_trees_inside(kind):
    """Missing and unknown levels go where the trees send them."""
    made = make_biased_income(400, random_state=1)
    X, y = made.data, np.asarray(made.target)
    X["region"] = X["region"].astype(object)
    X.loc[::7, "region"] = None
    X.loc[::5, "rating"] = np.nan
    target = y > np.median(y) if kind is FairKernelClassifier else y
    options = {"loss": "poisson"} if kind is FairKernelRegressor else {}
    model = kind(base_estimator="trees", sensitive_columns=["sex"], n_components=10, **options)
    model.set_params(unfairness=0.05, random_state=0).fit(X, target)
    X.loc[1, "region"] = "Atlantis"
    same(model, X)


def test_several_targets_and_classes():
    X, y = numbers(), np.asarray(pay().target)
    s = pay().data["sex"]
    model = FairRidge(eta=1.0).fit(X, np.stack([y, -y, y**2], axis=1), sensitive_features=s)
    same(model, X)
    bins = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    for labels in (bins, bins.astype(str), bins * 2.0, bins > 0):
        model = FairKernelClassifier(n_components=10, eta=1.0, random_state=0)
        same(model.fit(X, labels, sensitive_features=s), X)


def test_the_file_is_the_model(tmp_path):
    model = fitted("nystroem")
    made = scalefair.to_onnx(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == made.SerializeToString()
    kept = {entry.key: entry.value for entry in made.metadata_props}
    assert kept["model"] == "FairKernelRidge"
    assert float(kept["eta"]) == model.eta_


def test_what_has_no_form_is_refused():
    X, y, s = numbers(), np.asarray(pay().target), pay().data["sex"]
    with refused("DecisionTreeRegressor", error=TypeError):
        scalefair.to_onnx(DecisionTreeRegressor())
    with refused("base_estimator", error=ValueError):
        scalefair.to_onnx(fitted("joined"))
    dual = FairKernelRidge(feature_map="exact", sensitive_columns=[0], eta=1.0).fit(X, y)
    with refused("feature_map='exact'", "sensitive_columns", error=ValueError):
        scalefair.to_onnx(dual)
    assert s is not None


def test_without_onnx_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def none(name, *rest, **more):
        if name == "onnx":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", none)
    monkeypatch.delitem(sys.modules, "onnx", raising=False)
    with refused("scalefair[onnx]", error=ImportError):
        scalefair.to_onnx(fitted("nystroem"))


def test_dates_and_durations_are_days_as_documented():
    """Days since 1970, whole or not, with NaN for none: the graph gets numbers, not dates."""
    X, y, s = dated_rows()
    model = FairRidge(unfairness=0.5).fit(X, y, sensitive_features=s)
    graph = scalefair.to_onnx(model)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    epoch, day = pd.Timestamp("1970-01-01"), pd.Timedelta(days=1)
    given = {
        "hired": ((X["hired"] - epoch) / day).to_numpy(float)[:, None],
        "wait": (X["wait"] / day).to_numpy(float)[:, None],
        "job": X["job"].to_numpy(object)[:, None],
    }
    (said,) = session.run(["prediction"], given)
    np.testing.assert_allclose(said.ravel(), model.predict(X), rtol=1e-9)
    assert "days since 1970" in scalefair.to_onnx.__doc__


def dated_rows(n=80):
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 99_999, n)
    X = pd.DataFrame(
        {
            "hired": pd.Timestamp("2001-02-03") + pd.to_timedelta(hours, unit="h"),
            "wait": pd.to_timedelta(rng.integers(0, 500, n), unit="h"),
            "job": rng.choice(["cook", "clerk", "judge"], n),
        }
    )
    X.loc[3, ["hired", "wait"]] = pd.NaT
    return X, hours / 1e4 + rng.normal(size=n), rng.choice(["f", "m"], n)
