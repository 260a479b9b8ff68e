"""The estimators among their neighbours: containers, mixed tables, scikit-learn's tools."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from scalefair import CrossFit, FairKernelClassifier, FairKernelRegressor, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.kernels import RBF, Laplace
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, RandomFourier
from tests import naive
from tests.errors import refused

ESTIMATORS = {
    "linear": FairRidge(random_state=0),
    "kernel": FairKernelRidge(random_state=0),
    "exact": FairKernelRidge(feature_map="exact", random_state=0),
    "cv": FairKernelRidgeCV(random_state=0, alphas=[1e-3, 1e-1], etas=[0, 1, 10.0], cv=3),
}
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    groups = rng.choice(["f", "m", "x"], size=n, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(n, 3))
    X[:, 0] += s
    X[:, 1] += groups == "f"
    return X, X.sum(axis=1) + s + 0.1 * rng.normal(size=n), s, groups


def predictions(name, X, y, new=None, **fit):
    return clone(ESTIMATORS[name]).fit(X, y, **fit).predict(X if new is None else new)


NUMBERS = {
    "2-D": lambda s: s[:, None],
    "list": lambda s: s.tolist(),
    "tuple": lambda s: tuple(s.tolist()),
    "Series with any index": lambda s: pd.Series(s, index=np.arange(len(s))[::-1]),
    "DataFrame": lambda s: pd.DataFrame({"age": s}),
    "nullable": lambda s: pd.array(s, dtype="Float64"),
    "polars": lambda s: pl.Series("age", s),
    "polars frame": lambda s: pl.DataFrame({"age": s}),
    "arrow": lambda s: pa.chunked_array([s[:17], s[17:]]),
    "arrow table": lambda s: pa.table({"age": s}),
}
GROUPS = {
    "2-D": lambda g: g[:, None],
    "list": lambda g: g.tolist(),
    "objects": lambda g: g.astype(object),
    "Series": pd.Series,
    "category": lambda g: pd.Series(g, dtype="category"),
    "unused category": lambda g: pd.Series(pd.Categorical(g, ["x", "never", "m", "f"])),
    "renamed": lambda g: np.array(["q", "p", "r"])[np.unique(g, return_inverse=True)[1]],
    "DataFrame": lambda g: pd.DataFrame({"sex": g}),
    "polars": lambda g: pl.Series("sex", g.tolist(), dtype=pl.Categorical),
    "arrow": lambda g: pa.array(g.tolist()).dictionary_encode(),
}


@every_estimator
def test_sensitive_attributes_in_every_container(name):
    X, y, s, groups = rows()
    expected = predictions(name, X, y, sensitive_features=s)
    for container in NUMBERS.values():
        np.testing.assert_array_equal(predictions(name, X, y, sensitive_features=container(s)), expected)
    expected = predictions(name, X, y, sensitive_features=groups)
    for container in GROUPS.values():
        given = predictions(name, X, y, sensitive_features=container(groups))
        naive.close(given, expected, 1e-9)
    flags = groups == "f"
    expected = predictions(name, X, y, sensitive_features=flags)
    for same in (flags.tolist(), pd.Series(flags), np.where(flags, "yes", "no")):
        naive.close(predictions(name, X, y, sensitive_features=same), expected, 1e-9)
    mixed = pd.DataFrame({"age": s, "sex": groups, "flag": flags})
    expected = predictions(name, X, y, sensitive_features=mixed)
    for same in (pl.from_pandas(mixed), pa.Table.from_pandas(mixed), mixed.values.tolist()):
        naive.close(predictions(name, X, y, sensitive_features=same), expected, 1e-9)


@every_estimator
def test_inputs_and_targets_in_every_container(name):
    X, y, s, _ = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    expected = predictions(name, X, y, sensitive_features=s)
    for same in (X.tolist(), frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(predictions(name, same, y, sensitive_features=s), expected)
    model = clone(ESTIMATORS[name]).fit(pl.from_pandas(frame), y, sensitive_features=s)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(frame), expected)
    for same in (y.tolist(), pd.Series(y), pl.Series(y), pa.array(y)):
        np.testing.assert_array_equal(predictions(name, X, same, sensitive_features=s), expected)
    column = predictions(name, X, pd.DataFrame({"y": y}), sensitive_features=s)
    np.testing.assert_array_equal(column, expected[:, None])


@every_estimator
def test_sensitive_columns_by_name_by_position_or_apart(name):
    X, y, _, groups = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=groups)
    given = {}
    for columns in (["sex"], "sex", [3], 3, ["b", "sex"], [1, 3]):
        model = clone(ESTIMATORS[name]).set_params(sensitive_columns=columns)
        given[str(columns)] = model.fit(frame, y).predict(frame)
    for first, second in (("['sex']", "sex"), ("sex", "[3]"), ("[3]", "3"), ("['b', 'sex']", "[1, 3]")):
        np.testing.assert_array_equal(given[first], given[second])
    assert not np.allclose(given["sex"], given["[1, 3]"])
    codes = np.unique(groups, return_inverse=True)[1]
    coded = np.column_stack([X, codes])
    hidden = clone(ESTIMATORS[name]).set_params(
        sensitive_columns=[3], hide_sensitive=True, sensitive_kernel="categorical"
    )
    model = clone(ESTIMATORS[name]).set_params(sensitive_kernel="categorical")
    expected = model.fit(X, y, sensitive_features=codes).predict(X)
    naive.close(hidden.fit(coded, y).predict(coded), expected, 1e-9)


@every_estimator
def test_hidden_columns_are_not_used(name):
    X, y, _, groups = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=groups)
    hidden = clone(ESTIMATORS[name]).set_params(sensitive_columns=["sex"], hide_sensitive=True)
    expected = hidden.fit(frame, y).predict(frame)
    # What remains is numeric, and used as given.
    naive.close(expected, predictions(name, X, y, sensitive_features=groups), 1e-9)
    for other in (np.roll(groups, 1), "never seen", None):
        np.testing.assert_array_equal(hidden.predict(frame.assign(sex=other)), expected)
    with refused("X has 1 value", "'b'"):
        hidden.predict(frame.assign(b=np.where(np.arange(60) == 3, np.nan, X[:, 1])))
    seen = clone(ESTIMATORS[name]).set_params(sensitive_columns=["sex"]).fit(frame, y)
    changed = seen.predict(frame.assign(sex=np.roll(groups, 1)))
    assert not np.allclose(changed, seen.predict(frame))


def test_batches_of_tables_with_hidden_columns_add_up():
    X, y, _, groups = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=groups)
    hidden = FairRidge(sensitive_columns=["sex"], hide_sensitive=True)
    whole = clone(hidden).fit(frame, y)
    for start, stop in ((0, 25), (25, 40), (40, 60)):
        hidden.partial_fit(frame[start:stop], y[start:stop])
    naive.close(hidden.coef_, whole.coef_, 1e-10)
    kept = hidden.moments_
    with refused("X has 60 value", "'a'"):
        hidden.partial_fit(frame.assign(a=np.nan), y)
    assert hidden.moments_ is kept
    mixed, target = mixed_frame()
    model = FairKernelRidge(sensitive_columns=["sex"], random_state=0)
    model.partial_fit(mixed[:50], target[:50]).partial_fit(mixed[50:], target[50:])
    assert model.n_samples_seen_ == 80
    assert model.score(mixed, target) > 0.3


@pytest.mark.parametrize("name", ["kernel", "exact", "cv"])
def test_a_level_of_s_that_was_never_seen_is_an_error_where_s_is_used(name):
    X, y, _, groups = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=groups)
    seen = clone(ESTIMATORS[name]).set_params(sensitive_columns=["sex"]).fit(frame, y)
    with refused("'sex'", "'z'", "f, m, x"):
        seen.predict(frame.assign(sex="z"))
    with refused("'sex'", "60 missing"):
        seen.predict(frame.assign(sex=None))


def test_categories_are_crossed_and_numbers_standardised():
    X, y, s, groups = rows(n=90)
    other = np.where(np.random.default_rng(1).random(90) < 0.4, "u", "v")
    both = pd.DataFrame({"sex": groups, "flag": other})
    crossed = np.char.add(groups, other)
    for name in ("linear", "kernel"):
        expected = predictions(name, X, y, sensitive_features=crossed)
        naive.close(predictions(name, X, y, sensitive_features=both), expected, 1e-9)
        numbers = np.column_stack([s, X[:, 1] ** 2])
        expected = predictions(name, X, y, sensitive_features=numbers)
        rescaled = numbers * [1e3, 1e-2] + [5.0, -7.0]
        naive.close(predictions(name, X, y, sensitive_features=rescaled), expected, 1e-7)
        mixed = pd.DataFrame({"age": s, "sex": groups})
        expected = predictions(name, X, y, sensitive_features=mixed)
        mixed["age"] = 365 * mixed.age + 1e3
        naive.close(predictions(name, X, y, sensitive_features=mixed), expected, 1e-7)
    # Each intersection has the same mean prediction, not only each sex and each flag.
    fair = FairKernelRidge(unfairness=0, random_state=0).fit(X, y, sensitive_features=both)
    f = fair.predict(X)
    means = [f[crossed == level].mean() for level in np.unique(crossed)]
    assert len(means) == 6
    assert np.ptp(means) < 1e-8 * f.std()
    # Numbers and categories: a Gaussian kernel within each group, none between groups.
    psi = (
        FairRidge(sensitive_length_scale=0.7).fit(X, y, sensitive_features=pd.DataFrame({"age": s, "sex": groups})).psi_
    )
    Psi = psi.transform(np.column_stack([s, np.unique(groups, return_inverse=True)[1]]))
    z = s[:, None] / s.std()
    product = naive.rbf(z, z, 0.7) * (groups[:, None] == groups)
    np.testing.assert_allclose(Psi @ Psi.T, product, atol=1e-7)


def mixed_frame(n=80, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.lognormal(size=n),
            "rooms": pd.array(rng.integers(1, 9, size=n), dtype="Int64"),
            "city": rng.choice(["rome", "oslo", "lima"], size=n),
            "owner": rng.random(n) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "grade": pd.Categorical(rng.choice(["lo", "hi"], size=n)),
            "sex": rng.choice(["f", "m"], size=n),
            "age": rng.integers(20, 70, size=n).astype(float),
        }
    )
    y = np.log(frame.income) + (frame.sex == "f") + frame.age / 50 + (frame.city == "rome")
    for column in ("income", "rooms", "city", "grade"):
        frame.loc[rng.random(n) < 0.15, column] = None
    return frame, y.to_numpy()


@every_estimator
def test_mixed_tables_just_work(name):
    frame, y = mixed_frame()
    new, _ = mixed_frame(seed=1)
    model = clone(ESTIMATORS[name]).set_params(sensitive_columns=["sex", "age"]).fit(frame, y)
    expected = model.predict(new)
    assert np.isfinite(expected).all()
    assert np.std(expected) > 0
    for convert in (pl.from_pandas, pa.Table.from_pandas):
        naive.close(model.predict(convert(new)), expected, 1e-10)
        again = clone(model).fit(convert(frame), y)
        naive.close(again.predict(convert(new)), expected, 1e-9)
    strange = new.assign(city="paris", grade=None, income=np.nan, owner=False)
    assert np.isfinite(model.predict(strange)).all()
    # A level never seen is no level at all, neither rome nor oslo nor lima nor missing.
    others = [model.predict(new.assign(city=city)) for city in ("rome", "oslo", "lima", None)]
    assert all(not np.allclose(model.predict(new.assign(city="paris")), f) for f in others)
    naive.close(model.predict(new.assign(city="paris")), model.predict(new.assign(city="cork")), 0)
    numbered = frame.set_axis(range(frame.shape[1]), axis=1)
    by_position = clone(model).set_params(sensitive_columns=[6, 7]).fit(numbered, y)
    naive.close(by_position.predict(new.set_axis(numbered.columns, axis=1)), expected, 1e-10)


@every_estimator
def test_estimators_are_cloned_printed_and_changed_like_any_other(name):
    X, y, s, _ = rows()
    model = ESTIMATORS[name]
    assert clone(model).get_params() == model.get_params()
    changed = clone(model).set_params(penalty="hsic", sensitive_length_scale=0.5)
    assert changed.get_params()["penalty"] == "hsic"
    assert "hsic" in repr(changed)
    before = model.get_params()
    fitted = clone(model).fit(X, y, sensitive_features=s)
    assert fitted.get_params() == before
    assert type(model).__name__ in estimator_html_repr(fitted)
    assert fitted.score(X, y) == pytest.approx(1 - np.mean((y - fitted.predict(X)) ** 2) / y.var())


def test_clones_with_kernels_and_maps_as_parameters():
    X, y, s, groups = rows()
    model = FairKernelRidge(kernel=RBF(1.5) + Laplace(2.0), sensitive_kernel=RBF(0.7), alpha=0.01)
    expected = model.fit(X, y, sensitive_features=s).predict(X)
    again = clone(model)
    assert again.kernel == model.kernel
    naive.close(again.fit(X, y, sensitive_features=s).predict(X), expected, 1e-12)
    parts = ConcatMap([(Identity(), [0]), (Nystroem(length_scale=1.5), [1, 2])])
    model = FairKernelRidge(feature_map=parts, sensitive_kernel=OneHot(), alpha=0.01)
    expected = model.fit(X, y, sensitive_features=groups).predict(X)
    assert not hasattr(parts, "n_raw_")  # a copy is fitted, as for any nested estimator
    naive.close(clone(model).fit(X, y, sensitive_features=groups).predict(X), expected, 1e-12)
    assert "ConcatMap" in repr(model)
    assert "ConcatMap" in estimator_html_repr(model)
    model.set_params(feature_map__part1__length_scale=3.0).fit(X, y, sensitive_features=groups)
    assert not np.allclose(model.predict(X), expected)
    fourier = RandomFourier(n_components=20, random_state=0).set_output(transform="pandas")
    model = FairKernelRidge(feature_map=fourier).fit(X, y, sensitive_features=groups)
    assert isinstance(model.predict(X), np.ndarray)


def requesting(model):
    return clone(model).set_fit_request(sensitive_features=True, sample_weight=True)


@every_estimator
@pytest.mark.usefixtures("routing")
def test_pipelines_route_the_sensitive_features(name):
    X, y, _, groups = rows()
    weight = naive.weights(len(X))
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = Pipeline([("scale", scaler), ("fair", requesting(ESTIMATORS[name]))])
    pipeline.fit(X, y, sensitive_features=groups, sample_weight=weight)
    direct = clone(ESTIMATORS[name]).fit(scaler.fit_transform(X), y, sensitive_features=groups, sample_weight=weight)
    np.testing.assert_array_equal(pipeline.predict(X), direct.predict(scaler.transform(X)))


@pytest.mark.usefixtures("routing")
def test_searches_and_scores_route_the_sensitive_features():
    X, y, _, groups = rows()
    weight = naive.weights(len(X))
    model = requesting(FairRidge()).set_score_request(sample_weight=False)
    grid = {"unfairness": [0.001, 0.01], "alpha": [1e-3, 1.0]}
    search = GridSearchCV(model, grid, cv=KFold(3), error_score="raise")
    search.fit(X, y, sensitive_features=groups, sample_weight=weight)
    fits = [
        clone(model)
        .set_params(**search.cv_results_["params"][0])
        .fit(X[train], y[train], sensitive_features=groups[train], sample_weight=weight[train])
        .score(X[test], y[test])
        for train, test in KFold(3).split(X)
    ]
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(fits))
    best = search.best_estimator_
    assert best.explained_share_ == pytest.approx(best.unfairness, abs=1e-6)
    scores = cross_validate(
        model, X, y, cv=KFold(3), error_score="raise", params={"sensitive_features": groups, "sample_weight": weight}
    )["test_score"]
    assert np.isfinite(scores).all()
    with refused("sensitive_features"):
        cross_validate(clone(model), X, y, cv=3, error_score="raise")


def test_sensitive_columns_need_no_routing():
    X, y, _, groups = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex=groups)
    transform = ColumnTransformer(
        [("numbers", StandardScaler(), ["a", "b", "c"])], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipeline = make_pipeline(transform, FairKernelRidge(sensitive_columns=["sex"], unfairness=0.05))
    scores = cross_validate(pipeline, frame, y, cv=3, error_score="raise")["test_score"]
    assert np.isfinite(scores).all()
    fair = pipeline.fit(frame, y)[-1]
    assert fair.feature_names_in_.tolist() == ["a", "b", "c", "sex"]
    assert fair.explained_share_ <= 0.05 + 1e-6
    grid = {"fairkernelridge__unfairness": [0.0, 0.2]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(frame, y)
    assert search.best_params_["fairkernelridge__unfairness"] in (0.0, 0.2)


def parsed_as_linear(model):
    """The coefficients that SHAP (its sources of August 2026) reads off a model, as it does."""
    assert all(hasattr(model, name) for name in ("coef_", "intercept_"))
    single = len(model.coef_.shape) > 1 and model.coef_.shape[0] == 1
    return model.coef_[0] if single else model.coef_


OWN = CrossFit(Ridge(), sensitive_estimator=None)
SAME_WIDTH = {
    "kernel": FairKernelRidge(n_components=3, random_state=0),
    "cv": FairKernelRidgeCV(n_components=3, random_state=0),
    "loss": FairKernelRegressor(n_components=3, random_state=0),
    "classes": FairKernelClassifier(n_components=3, random_state=0),
    "base": FairRidge(base_estimator=OWN, sensitive_columns=[2], hide_sensitive=True),
}


@pytest.mark.parametrize("name", SAME_WIDTH)
def test_features_are_not_taken_for_columns_however_many_there_are(name):
    X, y, _, groups = rows()
    own = {} if name == "base" else {"sensitive_features": groups}
    model = clone(SAME_WIDTH[name]).fit(X, y > 0 if name == "classes" else y, **own)
    coef = parsed_as_linear(model)
    assert coef.shape[-1] == X.shape[1]
    with refused("model.predict", error=TypeError):
        np.dot(coef, X.mean(axis=0))
    assert type(vars(model)["coef_"]) is np.ndarray
    np.testing.assert_allclose(np.dot(X, coef), X @ np.asarray(coef))


def test_coefficients_of_columns_are_those_of_a_linear_model():
    X, y, _, groups = rows()
    model = FairRidge(eta=1.0).fit(X, y, sensitive_features=groups)
    coef = parsed_as_linear(model)
    assert type(coef) is np.ndarray
    mean = np.dot(coef, X.mean(axis=0)) + model.intercept_
    np.testing.assert_allclose((X - X.mean(axis=0)) @ coef + mean, model.predict(X))
