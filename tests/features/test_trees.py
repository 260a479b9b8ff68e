"""Boosted trees as arrays: the same predictions as scikit-learn's, and refused where damaged."""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from dataclasses import fields, replace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingClassifier
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import scalefair
from scalefair import CrossFit, FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge, _files
from scalefair.datasets import make_biased_income
from scalefair.features.trees import MAX_LEVELS, Forest, Trees
from tests.errors import refused
from tests.golden.write import FOLDER
from tests.models import rows


@pytest.fixture(scope="module")
def pay():
    made = make_biased_income(700, random_state=3)
    X = made.data.copy()
    X["region"] = X["region"].astype(object)
    X.loc[::9, "region"] = None
    X.loc[::4, "rating"] = np.nan
    return X, np.asarray(made.target)


def forbid_pickle(patch):
    def forbidden(*_, **__):
        raise AssertionError("a file was unpickled")

    for name in ("Unpickler", "loads", "load"):
        patch.setattr(pickle, name, forbidden)


def as_categories(X):
    text = [name for name in X if X[name].dtype.kind not in "biuf"]
    return X.astype(dict.fromkeys(text, "category"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "poisson"},
        {"loss": "gamma"},
        {"loss": "quantile", "quantile": 0.7},
        {"loss": "absolute_error"},
        {"max_depth": 1},
        {"max_iter": 1},
    ],
)
def test_regressions_are_equal_to_the_bit(pay, options):
    X, y = as_categories(pay[0]), pay[1]
    model = HistGradientBoostingRegressor(**{"max_iter": 30, "categorical_features": "from_dtype"} | options).fit(X, y)
    np.testing.assert_array_equal(Trees.of(model).predict(X), model.predict(X))


@pytest.mark.parametrize("count", [2, 4])
def test_classes_are_equal_to_the_bit(pay, count):
    X, y = as_categories(pay[0]), pay[1]
    labels = np.digitize(y, np.quantile(y, np.arange(1, count) / count)).astype(str)
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype")
    model.fit(X, labels)
    ours = Trees.of(model)
    np.testing.assert_array_equal(ours.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(ours.predict(X), model.predict(X))


def test_levels_that_fit_has_not_seen_are_missing(pay):
    X, y = pay
    model = Trees(random_state=0).fit(X, y)
    strange, absent = X[:50].copy(), X[:50].copy()
    strange["region"], absent["region"] = "Atlantis", None
    np.testing.assert_array_equal(model.predict(strange), model.predict(absent))


def test_categories_are_no_order():
    """The levels of a column may be renamed, and far more than trees can tell apart are taken."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 12, 2000)
    y = rng.normal(size=12)[level] + 0.1 * rng.normal(size=2000)
    for names in ([f"l{j:02}" for j in range(12)], [f"l{j}" for j in rng.permutation(12)]):
        X = pd.DataFrame({"a": np.array(names)[level], "b": rng.normal(size=2000)})
        assert Trees(random_state=0).fit(X, y).predict(X) @ y > 0.9 * y @ y
    many = pd.DataFrame({"a": [f"l{j % 700}" for j in range(2000)], "b": y})
    assert len(Trees(random_state=0).fit(many, y).levels_[0]) <= MAX_LEVELS


def agree(found, expected):
    """Chunks of another size round sums differently; classes are the same."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


def fair(pay, base, kind=FairKernelRidge, **options):
    X, y = pay
    y = y > np.median(y) if kind is FairKernelClassifier else y
    model = kind(base_estimator=base, n_components=20, unfairness=0.05, random_state=0, **options)
    return model.fit(X, y, sensitive_features=X[["sex", "ethnicity"]])


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("trees", FairKernelRidge),
        ("trees", FairKernelRidgeCV),
        ("trees", FairKernelClassifier),
        (CrossFit("trees"), FairKernelRidge),
        pytest.param(CrossFit("trees"), FairKernelRidgeCV, marks=pytest.mark.every),
        pytest.param(CrossFit("trees"), FairKernelClassifier, marks=pytest.mark.every),
    ],
)
def test_one_word_is_enough(pay, kind, base, tmp_path, monkeypatch):
    """It learns, is saved and loaded without pickle, and predicts parquet and dask alike."""
    model, X = fair(pay, base, kind), pay[0]
    assert isinstance(model.base_estimator_, Trees)
    scalefair.save(model, tmp_path / "m")
    with monkeypatch.context() as patch:
        forbid_pickle(patch)
        back = scalefair.load(tmp_path / "m")
    expected = model.predict(X)
    np.testing.assert_array_equal(back.predict(X), expected)
    assert repr(back) == repr(model)
    X.to_parquet(tmp_path / "x.parquet")
    scan = scalefair.scan_parquet(str(tmp_path / "x.parquet"))
    agree(back.predict(scan), expected)
    frame = dd.from_pandas(X, npartitions=3)
    agree(np.asarray(back.predict(frame).compute()), expected)


def test_trees_learn_what_few_kernel_features_do_not(pay):
    """Pay depends on steps: with trees inside the held-out error is less."""
    errors = [fair(pay, base, FairKernelRidgeCV).path_.table["mse_cv"].min() for base in (None, "trees")]
    assert errors[1] < errors[0]


def test_the_users_own_boosted_trees_are_saved(pay, tmp_path):
    X, y = as_categories(pay[0]), pay[1]
    own = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype")
    model = fair((X, y), own)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.base_estimator.get_params() == own.get_params()
    again = back.fit(X, y, sensitive_features=X[["sex", "ethnicity"]])
    np.testing.assert_array_equal(again.predict(X), fair((X, y), own).predict(X))


def test_other_models_are_stored_by_skops_where_it_trusts_them(pay, tmp_path):
    pytest.importorskip("skops.io")
    X, y = pay[0].select_dtypes("number").fillna(0.0), pay[1]
    own = {"sensitive_features": pay[0]["sex"]}
    base = make_pipeline(StandardScaler(), Ridge())
    model = FairKernelRidge(base_estimator=base, n_components=10, eta=1.0, random_state=0)
    scalefair.save(model.fit(X, y, **own), tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    logit = FairKernelClassifier(
        base_estimator=LogisticRegression(max_iter=2000), n_components=10, eta=1.0, random_state=0
    ).fit(X, y > y.mean(), **own)
    scalefair.save(logit, tmp_path / "c")
    np.testing.assert_array_equal(scalefair.load(tmp_path / "c").predict_proba(X), logit.predict_proba(X))


def test_damaged_trees_are_refused(pay):
    """Every array of wrong length, and every way that would not end or leave the arrays."""
    X, y = pay
    forest = Trees(random_state=0).fit(X, y).forest_
    width = X.shape[1]
    forest.check(width)
    split = int(np.flatnonzero(forest.feature >= 0)[-1])
    for field in fields(Forest)[1:]:  # without its last root a forest is one tree smaller
        with refused("trees", error=ValueError):
            replace(forest, **{field.name: getattr(forest, field.name)[:-1]}).check(width)
    for name, value in (
        ("child", split),
        ("child", 10**6),
        ("feature", width),
        ("levels", 10**6),
        ("roots", len(forest.feature)),
        ("roots", -1),
    ):
        array = getattr(forest, name).copy()
        array.reshape(len(array), -1)[split if name != "roots" else 0, 0] = value
        with refused("trees", error=ValueError):
            replace(forest, **{name: array}).check(width)


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused(tmp_path, monkeypatch, count):
    """Of ten files nine with a changed bit or cut off, and a whole one with a changed array."""
    forbid_pickle(monkeypatch)
    golden, path = FOLDER / "schema2" / "trees.scalefair", tmp_path / "m"
    rng = np.random.default_rng(0)
    content = np.frombuffer(golden.read_bytes(), dtype=np.uint8)
    for number in range(count * 9 // 10):
        damaged = content.copy()
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged[: rng.integers(len(damaged)) if number % 9 == 0 else None])
        with refused(path, error=ValueError):
            scalefair.load(path)
    arrays, values = _files.read(golden, "model")
    for _ in range(count // 10):
        name = str(rng.integers(len(arrays)))
        changed = np.array(arrays[name])
        if changed.size:
            changed.reshape(-1)[rng.integers(changed.size)] = rng.choice([-1, 0, 1, 100])
        _files.write(path, "model", arrays | {name: changed}, values)
        with suppress(ValueError), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scalefair.load(path).predict(rows("trees")[:5])


def test_another_word_is_refused(pay):
    with refused("base_estimator='forest'", "trees", error=TypeError):
        fair(pay, "forest")


@pytest.mark.parametrize("labels", ["array", "objects", "series", "scan", "dask"])
@pytest.mark.parametrize("kind", [FairKernelRidgeCV, FairRidge])
def test_a_regressor_on_classes_names_the_classifier(pay, tmp_path, labels, kind):
    X, y = pay[0], np.where(pay[1] > np.median(pay[1]), "high", "low")
    whole = X.assign(y=y)
    whole.to_parquet(tmp_path / "x.parquet")
    scan = scalefair.scan_parquet(str(tmp_path / "x.parquet"))
    frame = dd.from_pandas(whole, npartitions=2)
    given = {
        "array": (X, y, X["sex"]),
        "objects": (X, y.astype(object), X["sex"]),
        "series": (X, pd.Series(y), X["sex"]),
        "scan": (scan.drop("y"), scan["y"], scan["sex"]),
        "dask": (frame.drop(columns="y"), frame["y"], frame["sex"]),
    }[labels]
    with refused("y", "FairKernelClassifier", error=ValueError):
        kind().fit(*given[:2], sensitive_features=given[2])


def test_classes_that_cannot_be_learnt_are_named(pay):
    X, y = pay[0].select_dtypes("number").fillna(0.0), np.where(pay[1] > 3, "high", "low")
    own = {"sensitive_features": pay[0]["sex"]}
    hard = VotingClassifier([("a", LogisticRegression()), ("b", Perceptron())])
    with refused("base_estimator=VotingClassifier", "predict_proba", error=TypeError):
        FairKernelClassifier(base_estimator=hard, eta=1.0).fit(X, y, **own)
    with refused("'high'", error=ValueError):
        FairKernelClassifier(base_estimator="trees", eta=1.0).fit(X, np.full(len(y), "high"), **own)
    rare = y.astype(object)
    rare[3] = "rare"
    with refused("base_estimator (Trees)", "fold", error=ValueError):
        FairKernelClassifier(base_estimator="trees", eta=1.0).fit(X, rare, **own)


def test_few_rows_have_trees_too(pay):
    X, y = pay[0][:40], pay[1][:40]
    model = FairKernelRidge(base_estimator="trees", eta=1.0, random_state=0)
    assert np.isfinite(model.fit(X, y, sensitive_features=X["age"]).predict(X)).all()


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "log_loss"])
def test_a_common_factor_of_the_weights_changes_nothing(pay, loss):
    X, y = pay
    y = y > np.median(y) if loss == "log_loss" else y
    w = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(y))
    fits = [Trees(loss, random_state=0).fit(X, y, c * w).forest_(np.zeros((1, X.shape[1]))) for c in (1, 1 / len(y))]
    np.testing.assert_allclose(*fits, rtol=1e-6)


def test_units_of_the_target_do_not_stop_trees_early(pay):
    X, y = pay
    fits = [Trees(random_state=0).fit(X, c * y).predict(X) / c for c in (1.0, 2.0**-20)]
    np.testing.assert_allclose(*fits, rtol=1e-6)
