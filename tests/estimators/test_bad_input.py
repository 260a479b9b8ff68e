"""Bad input: an error that names argument, value and remedy, and nothing fitted half."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge

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


def refused(model, match, X, y, *, error=(ValueError, TypeError), **fit):
    """Assert that fit raises, that a fresh estimator stays fresh and a fitted one as it was."""
    with pytest.raises(error, match=match):
        model.fit(X, y, **fit)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)
    good = rows()
    bad_parameters = model.get_params()
    before = plain(model).fit(*good[:2]).predict(good[0])
    moments = model.moments_
    model.set_params(**bad_parameters)
    with pytest.raises(error, match=match):
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
    kind = "NaN|missing" if np.isnan(value) else "infinity|Negative"
    name = "s0" if where == "sensitive_features" else where
    refused(estimator(), f"(?s){name}.*({kind})", **given)


@every_estimator
@pytest.mark.parametrize("short", ["y", "sensitive_features", "sample_weight"])
def test_lengths_that_differ(estimator, short):
    X, y, s = rows()
    given = {"X": X, "y": y, "sensitive_features": s, "sample_weight": np.ones(N)}
    given[short] = given[short][:-1]
    match = r"\[40, 39\]" if short == "y" else f"{short}.*39.*40"
    refused(estimator(), match, **given)


@every_estimator
def test_lengths_that_differ_in_frames(estimator):
    X, y, s = rows()
    frame = pd.DataFrame(X).add_prefix("x").assign(g=["u", "v"] * 20)
    refused(estimator(), r"\[40, 39\]", frame, y[:-1], sensitive_features=s)
    refused(estimator(), "sensitive_features has 39 rows", frame, y, sensitive_features=s[1:])


VALUES = [
    ("alpha", -1.0),
    ("alpha", np.nan),
    ("alpha", np.inf),
    ("alpha", "1"),
    ("alpha", True),
    ("eta", -1.0),
    ("eta", np.nan),
    ("eta", "large"),
    ("eps", -1e-3),
    ("eps", np.nan),
    ("eps", np.inf),
    ("eps", "small"),
    ("unfairness", -0.1),
    ("unfairness", 1.1),
    ("unfairness", 5),
    ("unfairness", np.nan),
    ("unfairness", "5%"),
    ("penalty", "hsci"),
    ("penalty", None),
    ("kernel", "gauss"),
    ("kernel", 3),
    ("sensitive_kernel", "gauss"),
    ("sensitive_kernel", 3),
    ("feature_map", "nystrom"),
    ("feature_map", 3),
    ("length_scale", "mean"),
    ("length_scale", -1.0),
    ("sensitive_length_scale", "mean"),
    ("sensitive_length_scale", 0.0),
    ("n_components", 0),
    ("n_components", 2.5),
    ("n_components", None),
    ("n_sensitive_components", 0),
    ("n_sensitive_components", "all"),
    ("fit_intercept", "no"),
    ("hide_sensitive", None),
]  # fmt: skip
"""Each is named by the error."""

PARAMETERS = [
    *(({name: value}, f"{name}.*{re.escape(repr(value))}") for name, value in VALUES),
    ({"alpha": {"psi": 1.0}}, "alpha=.*'phi'"),
    ({"alpha": {"phi": 1.0, "xi": 1.0}}, "alpha=.*remove .*xi"),
    ({"alpha": {"phi": 1.0, "psi": 0.0}}, "alpha=.*must be positive"),
    ({"eta": 1.0, "unfairness": 0.1}, r"eta=1\.0 and unfairness=0\.1 are both given.*give one"),
    ({"feature_map": "exact", "penalty": "nocco"}, "penalty='nocco'.*feature_map='exact'.*use"),
    ({"feature_map": "fourier", "kernel": "linear"}, "(?i)linear"),
    ({"length_scale": [1.0, 0.0, 1.0]}, r"length_scale=\[1\.0, 0\.0, 1\.0\] must be"),
    ({"length_scale": [1.0, 2.0]}, "length_scale has 2 entries for 3 inputs"),
    ({"alphas": []}, r"alphas=\[\] must be a list of finite non-negative numbers, at least one"),
    ({"alphas": "auto"}, "alphas.*'auto'"),
    ({"alphas": [np.inf]}, "alphas=.*finite"),
    ({"alphas": [[1.0]]}, "alphas="),
    ({"etas": [1.0, -1.0]}, r"etas=\[1\.0, -1\.0\] must be a list of non-negative numbers"),
    ({"etas": [np.nan]}, "etas="),
    ({"ridge_ratios": [0.0]}, r"ridge_ratios=\[0\.0\] must be a list of finite positive numbers"),
]


@pytest.mark.parametrize(
    ("estimator", "parameters", "match"),
    [(e, *case) for case in PARAMETERS for e in ESTIMATORS if accepts(e, case[0])],
)
def test_parameters_out_of_range(estimator, parameters, match):
    X, y, s = rows()
    model = estimator(**parameters)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(X, y, sensitive_features=s)
    assert not [name for name in vars(model) if name.endswith("_")]


@every_estimator
def test_missing_sensitive_attributes_are_never_silently_ignored(estimator):
    X, y, s = rows()
    match = r"sensitive_features=s.*sensitive_columns=\[.*eta=0"
    refused(estimator(), match, X, y)
    refused(estimator(unfairness=0.5), match, X, y)
    refused(estimator(unfairness=1.0), match, X, y)
    both = estimator(sensitive_columns=[0])
    refused(both, r"sensitive_columns=\[0\] and sensitive_features are both given", X, y,
            sensitive_features=s)  # fmt: skip


@every_estimator
@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["sexx"], r"sensitive_columns=\['sexx'\].*did you mean 'sex'"),
        ("nothing", "sensitive_columns='nothing'.*Available: sex, x1, x2"),
        ([3], r"sensitive_columns=\[3\].*position from 0 to 2"),
        ([-1], r"sensitive_columns=\[-1\].*position from 0 to 2"),
        ([], r"sensitive_columns=\[\] must name at least one"),
        ([0, 0], r"sensitive_columns=\[0, 0\].*none twice"),
        (["sex", 0], r"sensitive_columns=\['sex', 0\].*none twice"),
        ([1.5], r"sensitive_columns=\[1\.5\].*expected a name or a position"),
        (1.5, r"sensitive_columns=1\.5"),
        ([True], r"sensitive_columns=\[True\]"),
    ],
)
def test_sensitive_columns_that_are_not_there(estimator, columns, match):
    X, y, _ = rows()
    frame = pd.DataFrame(X, columns=["sex", "x1", "x2"])
    refused(estimator(sensitive_columns=columns), match, frame, y)


@every_estimator
def test_names_need_a_frame_and_hiding_needs_something_left(estimator):
    X, y, _ = rows()
    match = r"sensitive_columns=\['sex'\].*no column names.*positions"
    refused(estimator(sensitive_columns=["sex"]), match, X, y)
    hidden = estimator(sensitive_columns=[0, 1, 2], hide_sensitive=True)
    refused(hidden, "hide_sensitive=True leaves no input", X, y)


SENSITIVE = {
    "constant number": (np.full(N, 2.0), r"s0.*2\.0.*every row.*drop it"),
    "constant text": (["x"] * N, "s0.*'x'.*every row.*drop it"),
    "constant bool": ([True] * N, "s0.*True.*every row.*drop it"),
    "one constant column": (pd.DataFrame({"a": range(N), "b": "u"}), "'b'.*every row.*drop it"),
    "identifiers": ([f"id{i}" for i in range(N)], "every row is its own group.*identifiers"),
    "own intersections": (
        [[str(i % 8), f"{i // 8}!"] for i in range(N)],
        "every row is its own group.*40 combinations in 40 rows",
    ),
    "missing text": (["a", None] * 20, "s0.*20 missing.*level of their own"),
    "missing pandas": (pd.Series(["a", pd.NA] * 20, name="sex"), "'sex'.*20 missing"),
    "a number": (3, "sensitive_features=3 is a int; give an array"),
    "a name": ("sex", "sensitive_features='sex' is a str.*sensitive_columns"),
    "no dimension": (np.array(3.0), r"sensitive_features=array\(3\.\)"),
    "three dimensions": (np.zeros((N, 2, 2)), r"\(40, 2, 2\)"),
    "no columns": (np.empty((N, 0)), "sensitive_features has no columns"),
    "complex": (np.full(N, 1j), "(?i)complex"),
    "sparse": (csr_array(np.eye(N)), "(?i)sparse.*toarray"),
    "mixed types": (np.array(["a", 1.0] * 20, dtype=object), "s0.*mixes types.*convert"),
    "same names": (pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), columns=["a", "a"]),
                   "not unique.*rename"),
}  # fmt: skip


@every_estimator
@pytest.mark.parametrize("kind", SENSITIVE)
def test_sensitive_attributes_that_nothing_can_be_made_of(estimator, kind):
    X, y, _ = rows()
    s, match = SENSITIVE[kind]
    refused(estimator(), match, X, y, sensitive_features=s)


@every_estimator
def test_numbers_taken_as_categories_may_tell_all_rows_apart(estimator):
    X, y, s = rows()
    model = estimator(sensitive_kernel="categorical")
    refused(model, "every row is its own group.*numbers", X, y, sensitive_features=s)
    refused(
        estimator(sensitive_kernel="rbf"), "sensitive_kernel='rbf' needs numbers.*'auto'", X, y,
        sensitive_features=["a", "b"] * 20,
    )  # fmt: skip


INPUTS = {
    "sparse": (csr_array, TypeError, "(?i)sparse"),
    "complex": (lambda X: X + 1j, ValueError, "(?i)complex"),
    "one dimension": (lambda X: X[:, 0], ValueError, "(?s)2D array.*reshape"),
    "three dimensions": (lambda X: X[:, :, None], ValueError, r"(?i)dim 3|3D"),
    "no rows": (lambda X: X[:0], ValueError, "(?i)0 sample"),
    "no columns": (lambda X: X[:, :0], ValueError, r"0 feature\(s\).*minimum of 1"),
    "text": (lambda X: np.where(X > 0, "u", "v"), ValueError, "(?i)string|numeric|float"),
    "none": (lambda X: None, (ValueError, TypeError), "(?i)None|expected"),
    "frame with infinity": (
        lambda X: pd.DataFrame(X).add_prefix("x").assign(x0=np.inf, g="u"),
        ValueError, "'x0'.*infinity.*clip",
    ),
    "frame with an empty column": (
        lambda X: pd.DataFrame(X).add_prefix("x").assign(x1=np.nan), ValueError, "'x1'.*drop it",
    ),
    "frame with the same name twice": (
        lambda X: pd.DataFrame(X, columns=["a", "b", "a"]), ValueError, "not unique.*rename",
    ),
    "frame with numbers and text as names": (
        lambda X: pd.DataFrame(X, columns=["a", 1, 2]), TypeError, "(?i)feature names.*str",
    ),
    "frame of lists": (
        lambda X: pd.DataFrame(X).add_prefix("x").assign(x0=[[1]] * len(X)),
        ValueError, "'x0'.*convert",
    ),
}  # fmt: skip


@every_estimator
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_that_are_no_table_of_numbers(estimator, kind):
    X, y, s = rows()
    make, error, match = INPUTS[kind]
    bad = make(X)
    model = estimator()
    with pytest.raises(error, match=match):
        model.fit(bad, y[: 0 if kind == "no rows" else N], sensitive_features=s)
    assert not [name for name in vars(model) if name.endswith("_")]


@every_estimator
def test_targets_that_are_no_numbers(estimator):
    X, y, s = rows()
    refused(estimator(), "y has values that are not numbers.*0 and 1", X, ["no", "yes"] * 20,
            sensitive_features=s)  # fmt: skip
    refused(estimator(), "(?i)complex", X, y + 1j, sensitive_features=s)
    refused(estimator(), "(?i)y.*None|None.*y", X, None, sensitive_features=s)
    refused(estimator(), "(?i)y.*NaN", pd.DataFrame(X).add_prefix("x").assign(g=["u", "v"] * 20),
            np.where(y > 0, y, np.nan), sensitive_features=s)  # fmt: skip


@every_estimator
def test_weights_that_are_none(estimator):
    X, y, s = rows()
    refused(estimator(), "sample_weight is zero for every row", X, y,
            sensitive_features=s, sample_weight=np.zeros(N))  # fmt: skip
    refused(estimator(), "(?i)negative.*sample_weight|sample_weight.*negative", X, y,
            sensitive_features=s, sample_weight=np.full(N, -1.0))  # fmt: skip
    refused(estimator(), "sample_weight|Sample weights", X, y,
            sensitive_features=s, sample_weight=np.ones((N, 2)))  # fmt: skip
    only = (np.arange(N) < 5).astype(float)
    constant = np.where(only > 0, "a", "b")
    refused(estimator(), "s0.*'a' in every row of positive weight", X, y,
            sensitive_features=constant, sample_weight=only)  # fmt: skip


@every_estimator
def test_prediction_rows_that_do_not_fit(estimator):
    X, y, s = rows()
    model = estimator().fit(X, y, sensitive_features=s)
    for bad, match in (
        (X[:, :2], "X has 2 features, but .* is expecting 3 features"),
        (X[0], "2D array"),
        (np.where(X > 2, np.nan, X) if (X > 2).any() else X * np.nan, "X contains NaN"),
        (X[:0], "0 sample"),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(bad)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = estimator(sensitive_columns=["a"]).fit(frame, y)
    with pytest.raises(ValueError, match=re.compile("feature names.*(order|missing|unseen)", re.S)):
        named.predict(frame[["b", "a", "c"]])
    with pytest.raises(NotFittedError):
        estimator().predict(X)


@pytest.mark.parametrize("estimator", [FairRidge, FairKernelRidge])
def test_a_batch_that_fails_is_not_counted(estimator):
    X, y, s = rows()
    model = estimator(sensitive_kernel="linear", random_state=0)
    before = model.partial_fit(X, y, sensitive_features=s).predict(X)
    for batch, match in (
        ({"X": X, "y": y}, "sensitive_features must be given to every partial_fit"),
        ({"X": X[:, :2], "y": y, "sensitive_features": s}, "X has 2 features"),
        ({"X": X, "y": y, "sensitive_features": s[1:]}, "sensitive_features has 39 rows"),
        ({"X": X, "y": np.c_[y, y], "sensitive_features": s}, "y has 2 columns but .* had 1"),
        ({"X": X, "y": y, "sensitive_features": np.c_[s, s]}, "expected .*s0"),
        ({"X": X, "y": y * np.nan, "sensitive_features": s}, "y contains NaN"),
    ):
        with pytest.raises(ValueError, match=match):
            model.partial_fit(**batch)
    # This one fails after its rows were summed: no predictor of X is so fair to X itself.
    hard = estimator(sensitive_kernel="linear", unfairness=0.5, feature_map="linear") if (
        estimator is FairKernelRidge
    ) else estimator(sensitive_kernel="linear", unfairness=0.5)  # fmt: skip
    fair = hard.partial_fit(X, y, sensitive_features=np.c_[s, s**2, np.abs(s)])
    kept = fair.moments_, fair.coef_
    with pytest.raises(ValueError, match=r"unfairness=0\.5 cannot be reached"):
        fair.partial_fit(1e6 * X, y, sensitive_features=1e6 * X)
    assert (fair.moments_, fair.coef_) == kept
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.n_samples_seen_ == N


def test_batches_need_an_explicit_map():
    for model in (FairKernelRidge(feature_map="exact"), FairKernelRidgeCV()):
        with pytest.raises(AttributeError, match="partial_fit"):
            model.partial_fit  # noqa: B018


def test_a_limit_that_only_a_constant_meets_is_refused():
    """The ridge leaves so little of f that next to a mean of 1e9 it is rounding error."""
    rng = np.random.default_rng(17)
    s, x = rng.normal(size=(2, 60))
    X = np.column_stack([s, 1e-5 * x])
    model = FairRidge(unfairness=0.01, sensitive_kernel="linear", alpha=1.0)
    with pytest.raises(ValueError, match=r"unfairness=0\.01 leaves nothing but a constant.*alpha"):
        model.fit(X, X[:, 0] + 1e9, sensitive_features=s)
    assert not hasattr(model, "coef_")
    model.fit(X * [1, 1e5], X[:, 0] + x, sensitive_features=s)
    assert model.explained_share_ == pytest.approx(0.01, abs=1e-6)
