"""Bad input: an error that names argument, value and remedy, and nothing fitted half."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge
from tests.errors import named, refused

N = 40
ESTIMATORS = [FairRidge, FairKernelRidge, FairKernelRidgeCV]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def rows():
    rng = np.random.default_rng(0)
    s = rng.normal(size=N)
    X = rng.normal(size=(N, 3))
    X[:, 0] += s
    return X, X @ [1.0, 2.0, 3.0] + s, s


def accepts(estimator, parameters):
    return set(parameters) <= set(estimator().get_params())


def plain(model):
    """Set parameters that are good, and quick to fit."""
    model.set_params(**type(model)().get_params()).set_params(sensitive_columns=[0])
    return model.set_params(alphas=[0.1], etas=[1.0]) if hasattr(model, "alphas") else model


def unchanged(model, words, X, y, **fit):
    """Assert that fit raises, that a fresh estimator stays fresh and a fitted one as it was."""
    with refused(*words):
        model.fit(X, y, **fit)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)
    good = rows()
    bad_parameters = model.get_params()
    before = plain(model).fit(*good[:2]).predict(good[0])
    moments = model.moments_
    model.set_params(**bad_parameters)
    with refused(*words):
        model.fit(X, y, **fit)
    assert model.moments_ is moments
    plain(model)
    np.testing.assert_array_equal(model.predict(good[0]), before)


@every_estimator
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y", "sensitive_features", "sample_weight"])
def test_values_that_are_not_finite(estimator, where, value):
    X, y, s = rows()
    given = {"X": X, "y": y, "sensitive_features": s, "sample_weight": np.ones(N)}
    given[where][3] = value
    unchanged(estimator(), ["s0" if where == "sensitive_features" else where], **given)


@every_estimator
@pytest.mark.parametrize("short", ["y", "sensitive_features", "sample_weight"])
def test_lengths_that_differ(estimator, short):
    X, y, s = rows()
    given = {"X": X, "y": y, "sensitive_features": s, "sample_weight": np.ones(N)}
    given[short] = given[short][:-1]
    unchanged(estimator(), ["39", "40", *([] if short == "y" else [short])], **given)


@every_estimator
def test_lengths_that_differ_in_frames(estimator):
    X, y, s = rows()
    frame = pd.DataFrame(X).add_prefix("x").assign(g=["u", "v"] * 20)
    unchanged(estimator(), ["39", "40"], frame, y[:-1], sensitive_features=s)
    unchanged(estimator(), ["sensitive_features", "39"], frame, y, sensitive_features=s[1:])


PARAMETERS = [
    {"alpha": -1.0},
    {"alpha": np.nan},
    {"alpha": np.inf},
    {"alpha": "1"},
    {"alpha": True},
    {"alpha": {"psi": 1.0}},
    {"alpha": {"phi": 1.0, "xi": 1.0}},
    {"alpha": {"phi": 1.0, "psi": 0.0}},
    {"eta": -1.0},
    {"eta": np.nan},
    {"eta": "large"},
    {"eps": -1e-3},
    {"eps": np.nan},
    {"eps": np.inf},
    {"eps": "small"},
    {"unfairness": -0.1},
    {"unfairness": 1.1},
    {"unfairness": 5},
    {"unfairness": np.nan},
    {"unfairness": "5%"},
    {"eta": 1.0, "unfairness": 0.1},
    {"penalty": "hsci"},
    {"penalty": None},
    {"kernel": "gauss"},
    {"kernel": 3},
    {"sensitive_kernel": "gauss"},
    {"sensitive_kernel": 3},
    {"feature_map": "nystrom"},
    {"feature_map": 3},
    {"feature_map": "exact", "penalty": "nocco"},
    {"feature_map": "fourier", "kernel": "linear"},
    {"length_scale": "mean"},
    {"length_scale": -1.0},
    {"length_scale": [1.0, 0.0, 1.0]},
    {"length_scale": [1.0, 2.0]},
    {"sensitive_length_scale": "mean"},
    {"sensitive_length_scale": 0.0},
    {"n_components": 0},
    {"n_components": 2.5},
    {"n_components": None},
    {"n_sensitive_components": 0},
    {"n_sensitive_components": "all"},
    {"fit_intercept": "no"},
    {"hide_sensitive": None},
    {"alphas": []},
    {"alphas": "auto"},
    {"alphas": [np.inf]},
    {"alphas": [[1.0]]},
    {"etas": [1.0, -1.0]},
    {"etas": [np.nan]},
    {"ridge_ratios": [0.0]},
]
UNNAMED = {"[1.0, 2.0]", "feature_map", "'fourier'", "kernel", "'linear'", "{'phi': 1.0, 'psi': 0.0}"}
"""Parameters whose error names a part of them: an entry, or the object they stand for."""


@pytest.mark.parametrize(
    ("estimator", "parameters"), [(e, case) for case in PARAMETERS for e in ESTIMATORS if accepts(e, case)]
)
def test_parameters_out_of_range(estimator, parameters):
    X, y, s = rows()
    model = estimator(**parameters)
    with refused(*({*named(parameters)} - UNNAMED)):
        model.fit(X, y, sensitive_features=s)
    assert not [name for name in vars(model) if name.endswith("_")]


@every_estimator
def test_missing_sensitive_attributes_are_never_silently_ignored(estimator):
    X, y, s = rows()
    words = "sensitive_features=s", "sensitive_columns=[", "eta=0"
    unchanged(estimator(), words, X, y)
    unchanged(estimator(unfairness=0.5), words, X, y)
    unchanged(estimator(unfairness=1.0), words, X, y)
    both = estimator(sensitive_columns=[0])
    unchanged(both, ["sensitive_columns=[0]", "sensitive_features"], X, y, sensitive_features=s)


@every_estimator
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["sexx"], ["'sex'"]),
        ("nothing", ["sex, x1, x2"]),
        ([3], ["0 to 2"]),
        ([-1], ["0 to 2"]),
        ([], []),
        ([0, 0], []),
        (["sex", 0], []),
        ([1.5], []),
        (1.5, []),
        ([True], []),
    ],
)
def test_sensitive_columns_that_are_not_there(estimator, columns, words):
    X, y, _ = rows()
    frame = pd.DataFrame(X, columns=["sex", "x1", "x2"])
    words = [f"sensitive_columns={columns!r}", *words]
    unchanged(estimator(sensitive_columns=columns), words, frame, y)


@every_estimator
def test_names_need_a_frame_and_hiding_needs_something_left(estimator):
    X, y, _ = rows()
    unchanged(estimator(sensitive_columns=["sex"]), ["sensitive_columns=['sex']"], X, y)
    hidden = estimator(sensitive_columns=[0, 1, 2], hide_sensitive=True)
    unchanged(hidden, ["hide_sensitive=True"], X, y)


SENSITIVE = {
    "constant number": (np.full(N, 2.0), ["s0", "2.0"]),
    "constant text": (["x"] * N, ["s0", "'x'"]),
    "constant bool": ([True] * N, ["s0", "True"]),
    "one constant column": (pd.DataFrame({"a": range(N), "b": "u"}), ["'b'"]),
    "identifiers": ([f"id{i}" for i in range(N)], ["every row"]),
    "own intersections": ([[str(i % 8), f"{i // 8}!"] for i in range(N)], ["40 combinations"]),
    "missing text": (["a", None] * 20, ["s0", "20 missing"]),
    "missing pandas": (pd.Series(["a", pd.NA] * 20, name="sex"), ["'sex'", "20 missing"]),
    "a number": (3, ["sensitive_features=3"]),
    "a name": ("sex", ["sensitive_features='sex'", "sensitive_columns"]),
    "no dimension": (np.array(3.0), ["sensitive_features=array(3.)"]),
    "three dimensions": (np.zeros((N, 2, 2)), ["(40, 2, 2)"]),
    "no columns": (np.empty((N, 0)), ["sensitive_features"]),
    "complex": (np.full(N, 1j), ["omplex"]),
    "mixed types": (np.array(["a", 1.0] * 20, dtype=object), ["s0"]),
    "same names": (pd.DataFrame(rows()[0][:, :2], columns=["a", "a"]), ["unique"]),
}


@every_estimator
@pytest.mark.parametrize("kind", SENSITIVE)
def test_sensitive_attributes_that_nothing_can_be_made_of(estimator, kind):
    X, y, _ = rows()
    s, words = SENSITIVE[kind]
    unchanged(estimator(), words, X, y, sensitive_features=s)


@every_estimator
def test_numbers_taken_as_categories_may_tell_all_rows_apart(estimator):
    X, y, s = rows()
    model = estimator(sensitive_kernel="categorical")
    unchanged(model, ["every row"], X, y, sensitive_features=s)
    model = estimator(sensitive_kernel="rbf")
    unchanged(model, ["sensitive_kernel='rbf'"], X, y, sensitive_features=["a", "b"] * 20)


INPUTS = {
    "complex": (lambda X: X + 1j, ValueError, "omplex"),
    "one dimension": (lambda X: X[:, 0], ValueError, "2D array"),
    "three dimensions": (lambda X: X[:, :, None], ValueError, "3"),
    "no rows": (lambda X: X[:0], ValueError, "0 sample"),
    "no columns": (lambda X: X[:, :0], ValueError, "0 feature"),
    "text": (lambda X: np.where(X > 0, "u", "v"), ValueError, ""),
    "none": (lambda X: None, (ValueError, TypeError), ""),
    "frame with infinity": (lambda X: pd.DataFrame(X).add_prefix("x").assign(x0=np.inf, g="u"), ValueError, "'x0'"),
    "frame with the same name twice": (lambda X: pd.DataFrame(X, columns=["a", "b", "a"]), ValueError, "unique"),
    "frame with numbers and text as names": (lambda X: pd.DataFrame(X, columns=["a", 1, 2]), TypeError, "str"),
    "frame of lists": (lambda X: pd.DataFrame(X).add_prefix("x").assign(x0=[[1]] * len(X)), ValueError, "'x0'"),
}


@every_estimator
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_that_are_no_table_of_numbers(estimator, kind):
    X, y, s = rows()
    make, error, word = INPUTS[kind]
    bad = make(X)
    model = estimator()
    with refused(word, error=error):
        model.fit(bad, y[: 0 if kind == "no rows" else N], sensitive_features=s)
    assert not [name for name in vars(model) if name.endswith("_")]


@every_estimator
def test_targets_that_are_no_numbers(estimator):
    X, y, s = rows()
    unchanged(estimator(), ["y", "numbers"], X, ["no", "yes"] * 20, sensitive_features=s)
    unchanged(estimator(), ["omplex"], X, y + 1j, sensitive_features=s)
    unchanged(estimator(), ["y", "None"], X, None, sensitive_features=s)
    frame = pd.DataFrame(X).add_prefix("x").assign(g=["u", "v"] * 20)
    unchanged(estimator(), ["y", "NaN"], frame, np.where(y > 0, y, np.nan), sensitive_features=s)


@every_estimator
@pytest.mark.parametrize("weight", [np.zeros(N), np.full(N, -1.0), np.ones((N, 2))])
def test_weights_that_are_none(estimator, weight):
    X, y, s = rows()
    unchanged(estimator(), ["ample"], X, y, sensitive_features=s, sample_weight=weight)


@every_estimator
def test_attributes_that_are_constant_where_rows_count(estimator):
    X, y, _ = rows()
    only = (np.arange(N) < 5).astype(float)
    constant = np.where(only > 0, "a", "b")
    unchanged(estimator(), ["s0", "'a'"], X, y, sensitive_features=constant, sample_weight=only)


@every_estimator
def test_prediction_rows_that_do_not_fit(estimator):
    X, y, s = rows()
    model = estimator().fit(X, y, sensitive_features=s)
    for bad, word in (
        (X[:, :2], "2 features"),
        (X[0], "2D array"),
        (np.where(X > 2, np.nan, X) if (X > 2).any() else X * np.nan, "NaN"),
        (X[:0], "0 sample"),
    ):
        with refused(word):
            model.predict(bad)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name = estimator(sensitive_columns=["a"]).fit(frame, y)
    with refused("feature names"):
        by_name.predict(frame[["b", "a", "c"]])
    with pytest.raises(NotFittedError):
        estimator().predict(X)


@pytest.mark.parametrize("estimator", [FairRidge, FairKernelRidge])
def test_a_batch_that_fails_is_not_counted(estimator):
    X, y, s = rows()
    model = estimator(sensitive_kernel="linear", random_state=0)
    before = model.partial_fit(X, y, sensitive_features=s).predict(X)
    for batch, word in (
        ({"X": X, "y": y}, "sensitive_features"),
        ({"X": X[:, :2], "y": y, "sensitive_features": s}, "X has 2 features"),
        ({"X": X, "y": y, "sensitive_features": s[1:]}, "sensitive_features has 39 rows"),
        ({"X": X, "y": np.c_[y, y], "sensitive_features": s}, "y has 2 columns"),
        ({"X": X, "y": y, "sensitive_features": np.c_[s, s]}, "s0"),
        ({"X": X, "y": y * np.nan, "sensitive_features": s}, "NaN"),
    ):
        with refused(word):
            model.partial_fit(**batch)
    # This one fails after its rows were summed: no predictor of X is so fair to X itself.
    hard = (
        estimator(sensitive_kernel="linear", unfairness=0.5, feature_map="linear")
        if (estimator is FairKernelRidge)
        else estimator(sensitive_kernel="linear", unfairness=0.5)
    )
    fair = hard.partial_fit(X, y, sensitive_features=np.c_[s, s**2, np.abs(s)])
    kept = fair.moments_, fair.coef_
    with refused("unfairness=0.5"):
        fair.partial_fit(1e6 * X, y, sensitive_features=1e6 * X)
    assert (fair.moments_, fair.coef_) == kept
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.n_samples_seen_ == N


def test_batches_need_an_explicit_map():
    for model in (FairKernelRidge(feature_map="exact"), FairKernelRidgeCV()):
        with refused("partial_fit", error=AttributeError):
            model.partial_fit  # noqa: B018


def test_a_limit_that_only_a_constant_meets_is_refused():
    """The ridge leaves so little of f that next to a mean of 1e9 it is rounding error."""
    rng = np.random.default_rng(17)
    s, x = rng.normal(size=(2, 60))
    X = np.column_stack([s, 1e-5 * x])
    model = FairRidge(unfairness=0.01, sensitive_kernel="linear", alpha=1.0)
    with refused("unfairness=0.01", "alpha"):
        model.fit(X, X[:, 0] + 1e9, sensitive_features=s)
    assert not hasattr(model, "coef_")
    model.fit(X * [1, 1e5], X[:, 0] + x, sensitive_features=s)
    assert model.explained_share_ == pytest.approx(0.01, abs=1e-6)
