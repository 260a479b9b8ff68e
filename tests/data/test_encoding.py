"""The encoders against scikit-learn and pandas, and the laws of the fold that teaches them."""

import datetime as dt
import pickle
import sys
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from scalefair.data.columns import Spread, TableStatistics, sensitive_statistics, table_statistics
from scalefair.data.encoding import SensitiveEncoder, TableEncoder
from tests.errors import refused

NUMBERS = ["age", "gain"]
LEVELS = ["job", "race", "sex"]


def people(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    share = np.array([0.5, 0.3, 0.17, 0.02, 0.01])
    return pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "job": rng.choice(["clerk", "driver", "nurse", "pilot", "judge"], n, p=share),
            "gain": rng.exponential(1e3, n),
            "race": rng.choice(["White", "Black", "Other"], n, p=[0.8, 0.19, 0.01]),
            "sex": rng.choice(["Male", "Female"], n),
        }
    )


def reference(min_frequency: float | None, drop: str | None):
    one_hot = OneHotEncoder(
        drop=drop, min_frequency=min_frequency, sparse_output=False, handle_unknown="infrequent_if_exist"
    )
    return make_column_transformer((StandardScaler(), NUMBERS), (one_hot, LEVELS))


def ordered(encoder: TableEncoder, X: pd.DataFrame) -> np.ndarray:
    """The encoded rows with the numbers first, the order of the reference."""
    names = list(encoder.get_feature_names_out())
    numbers = [names.index(name) for name in NUMBERS]
    rest = [j for j in range(len(names)) if j not in numbers]
    return encoder.transform(X)[:, numbers + rest]


@pytest.mark.parametrize("min_frequency", [0.0, 0.015, 0.05])
def test_equals_scaler_and_one_hot_of_scikit_learn(min_frequency):
    train, test = people(), people(seed=1)
    encoder = TableEncoder(min_frequency=min_frequency).fit(train)
    expected = reference(min_frequency or None, "if_binary").fit(train)
    for X in (train, test):
        np.testing.assert_allclose(ordered(encoder, X), expected.transform(X), atol=1e-12)


def test_equals_get_dummies_names_included():
    X = people()[LEVELS]
    X = X[[name for name in X if X[name].nunique() > 2]]
    expected = pd.get_dummies(X, dtype=float)
    encoder = TableEncoder(min_frequency=0).set_output(transform="pandas")
    pd.testing.assert_frame_equal(encoder.fit_transform(X), expected)


def test_weighted_scaling_equals_scikit_learn():
    X = people()
    weight = np.random.default_rng(2).exponential(size=len(X))
    ours = TableEncoder().fit_transform(X[NUMBERS], sample_weight=weight)
    theirs = StandardScaler().fit(X[NUMBERS], sample_weight=weight).transform(X[NUMBERS])
    np.testing.assert_allclose(ours, theirs, atol=1e-11)
    assert TableEncoder().fit(X, sample_weight=2.0).columns_ == TableEncoder().fit(X).columns_


def mixed() -> dict[str, list]:
    day = dt.datetime(2020, 1, 1)
    return {
        "x": [1.5, None, -2.0, 4.0, 0.5, 2.0],
        "n": [3, 1, 4, 1, 5, 9],
        "c": ["b", "a", None, "b", "c", "a"],
        "b": [True, False, True, None, True, False],
        "d": [day, None, day + dt.timedelta(1), day, day, day - dt.timedelta(hours=12)],
    }


def test_known_answer_with_missing_values_booleans_and_dates():
    encoder = TableEncoder(min_frequency=0).fit(pd.DataFrame(mixed()))
    columns = encoder.transform(pd.DataFrame(mixed())).T
    out = dict(zip(encoder.get_feature_names_out(), columns, strict=True))
    x = np.array([1.5, -2.0, 4.0, 0.5, 2.0])
    z = (x - x.mean()) / x.std()
    days = np.array([0, 1, 0, 0, -0.5])
    expected = {
        "x": [z[0], 0, *z[1:]],
        "x_missing": [0, 1, 0, 0, 0, 0],
        "n": (np.array(mixed()["n"]) - 23 / 6) / np.std(mixed()["n"]),
        "c_a": [0, 1, 0, 0, 0, 1],
        "c_b": [1, 0, 0, 1, 0, 0],
        "c_c": [0, 0, 0, 0, 1, 0],
        "c_missing": [0, 0, 1, 0, 0, 0],
        "b": [1, 0, 1, 0.6, 1, 0],
        "b_missing": [0, 0, 0, 1, 0, 0],
        "d": np.insert((days - 0.1) / days.std(), 1, 0.0),
        "d_missing": [0, 1, 0, 0, 0, 0],
    }
    assert list(out) == list(expected)
    for name, column in expected.items():
        np.testing.assert_allclose(out[name], column, atol=1e-10, err_msg=name)


def test_constant_columns_become_zero_even_where_rounding_says_otherwise():
    X = pd.DataFrame({"a": np.full(1000, 0.1), "b": np.full(1000, 1e70), "c": np.zeros(1000)})
    np.testing.assert_array_equal(TableEncoder().fit_transform(X), np.zeros((1000, 3)))


@pytest.mark.parametrize("mean", [0.0, 1e6, -1e9])
def test_means_far_beyond_the_deviation(mean):
    deviations = np.linspace(-1, 1, 4001)
    x = (mean + deviations)[:, None]
    z = (x[:, 0] - mean) / np.std(deviations)
    statistics = reduce(add, map(table_statistics, np.array_split(x, 13)))
    for encoder in (TableEncoder().fit(x), TableEncoder().finish(statistics)):
        assert np.abs(encoder.transform(x)[:, 0] - z).max() < 1e-15 * max(abs(mean), 10) * 10
        assert encoder.columns_[0].scale == pytest.approx(np.std(x - mean), rel=1e-13)


def test_numbers_too_large_to_square():
    X = np.array([[-1e200], [1e200], [0.0]])
    with refused("'x0'", error=ValueError):
        TableEncoder().fit(X)


def test_missing_values_that_fit_did_not_see():
    train = pd.DataFrame({"x": [1.0, 3.0, 2.0], "c": ["a", "b", "d"], "p": ["u", "v", "u"]})
    test = pd.DataFrame({"x": [np.nan], "c": [None], "p": ["v"]})
    np.testing.assert_array_equal(TableEncoder().fit(train).transform(test), [[0, 0, 0, 0, 1]])


def test_a_column_without_values_is_left_out_with_a_warning():
    X = people()
    empty = X.assign(none=np.nan, nothing=None)
    with pytest.warns(UserWarning, match="'none'|'nothing'") as caught:
        encoder = TableEncoder().fit(empty)
    assert len(caught) == 2
    expected = TableEncoder().fit_transform(X)
    for later in (empty, empty.assign(none=1.0), empty.assign(nothing="text")):
        np.testing.assert_array_equal(encoder.transform(later), expected)
    assert list(encoder.get_feature_names_out()) == list(TableEncoder().fit(X).get_feature_names_out())
    with refused("'none'", error=ValueError), pytest.warns(UserWarning, match="'none'"):
        TableEncoder().fit(empty[["none"]])


def test_rare_levels_are_pooled_except_where_kept():
    values = ["a"] * 60 + ["b"] * 35 + ["c"] * 3 + ["d"] * 2
    X = pd.DataFrame({"job": values, "race": values})
    encoder = TableEncoder(min_frequency=0.035, keep=["race"]).fit(X)
    names = ["job_a", "job_b", "job_infrequent", "race_a", "race_b", "race_c", "race_d"]
    assert list(encoder.get_feature_names_out()) == names
    assert [code.pooled for code in encoder.columns_] == [("c", "d"), ()]
    new = pd.DataFrame({"job": ["d", "new", "b"], "race": ["d", "new", "b"]})
    expected = [[0, 0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0, 0]]
    np.testing.assert_array_equal(encoder.transform(new), expected)
    by_position = clone(encoder).set_params(keep=[1]).fit(X)
    np.testing.assert_array_equal(by_position.transform(X), encoder.transform(X))


def test_a_share_that_equals_the_limit_is_kept():
    X = pd.DataFrame({"c": ["a"] * 9 + ["b"]})
    weight = np.full(10, 0.1)
    thirds = pd.DataFrame({"c": list("abc")})
    for least, rows, w, pooled in ((0.1, X, weight, ()), (0.11, X, weight, ("b",)), (1 / 3, thirds, None, ())):
        encoder = TableEncoder(min_frequency=least).fit(rows, sample_weight=w)
        assert encoder.columns_[0].pooled == pooled


def test_at_most_max_levels_the_heaviest_ties_by_name():
    X = pd.DataFrame({"c": list("aabbbccd")})
    encoder = TableEncoder(min_frequency=0, max_levels=2).fit(X)
    assert encoder.columns_[0].levels == ("a", "b")
    assert encoder.columns_[0].pooled == ("c", "d")
    # 0.1 + 0.2 is not 0.3 in binary, but it is a tie.
    tie = TableEncoder(max_levels=1).fit(pd.DataFrame({"c": list("bba")}), None, [0.1, 0.2, 0.3])
    assert tie.columns_[0].levels == ("a",)


def test_identifiers_are_refused_by_name(monkeypatch):
    X = pd.DataFrame({"id": [f"p{i}" for i in range(600)], "x": np.arange(600.0)})
    with refused("'id'", 600, error=ValueError) as caught:
        TableEncoder().fit(X)
    assert caught.value.column == "id"
    assert TableEncoder(keep=["id"]).fit(X).n_features_out_ == 601
    monkeypatch.setattr(sys.modules[TableStatistics.__module__], "MAX_LEVELS", 400)
    halves = [table_statistics(X[:300]), table_statistics(X[300:])]
    for build in (lambda: table_statistics(X), lambda: halves[0] + halves[1]):
        with refused("'id'", 400, error=ValueError):
            build()


def test_a_column_of_rare_levels_that_is_often_missing_says_whether_it_is_present():
    X = pd.DataFrame({"cabin": ["C85", None, None, "E46"] * 2})
    encoder = TableEncoder(min_frequency=0.3).fit(X)
    assert list(encoder.get_feature_names_out()) == ["cabin_missing"]
    np.testing.assert_array_equal(encoder.transform(X)[:, 0], [0, 1, 1, 0] * 2)


def test_names_stay_unique_where_a_level_is_called_missing():
    X = pd.DataFrame({"c": ["missing", None, "x", "x_missing"], "c_x": ["u", "v", "w", "u"]})
    names = list(TableEncoder(min_frequency=0).fit(X).get_feature_names_out())
    assert len(set(names)) == len(names) == 7
    assert TableEncoder().set_output(transform="polars").fit_transform(X).shape == (4, 7)


values = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))
row = st.tuples(
    st.one_of(st.none(), values),
    st.one_of(st.none(), st.sampled_from("abcdef")),
    st.one_of(st.none(), st.booleans()),
    st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.0]),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(row, max_size=25), cuts=st.lists(st.integers(0, 27), max_size=6), seed=st.integers(0, 99))
def test_any_chunking_in_any_order_gives_the_same_encoder(rows, cuts, seed):
    rows = [(1.0, "a", True, 1.0), (2.0, "b", False, 1.0), *rows]
    X = pd.DataFrame([r[:3] for r in rows], columns=["x", "c", "b"], dtype=object)
    weight = np.array([r[3] for r in rows])
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [table_statistics(X[i:j], weight[i:j]) for i, j in pairwise(edges)]
    np.random.default_rng(seed).shuffle(parts)
    whole = TableEncoder(min_frequency=0.1, max_levels=3).fit(X, sample_weight=weight)
    merged = clone(whole).finish(reduce(add, parts, TableStatistics()))
    assert list(merged.get_feature_names_out()) == list(whole.get_feature_names_out())
    assert [c.outputs("") for c in merged.columns_] == [c.outputs("") for c in whole.columns_]
    np.testing.assert_allclose(merged.transform(X), whole.transform(X), rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=20), data=st.data())
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(rows, data):
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    rows = [(1.0, "a", True, 1.0), (2.0, "b", False, 1.0), *rows]
    counts = np.array([1, 1, *counts])
    X = pd.DataFrame([r[:3] for r in rows], columns=["x", "c", "b"], dtype=object)
    repeated = X.loc[np.repeat(np.arange(len(X)), counts)]
    weighted = TableEncoder(min_frequency=0.15).fit(X, sample_weight=counts)
    expected = TableEncoder(min_frequency=0.15).fit(repeated)
    assert list(weighted.get_feature_names_out()) == list(expected.get_feature_names_out())
    np.testing.assert_allclose(weighted.transform(X), expected.transform(X), atol=1e-10)


def test_the_empty_statistics_are_neutral_and_statistics_travel():
    statistics = table_statistics(people(50))
    assert statistics + TableStatistics() == statistics == TableStatistics() + statistics
    assert pickle.loads(pickle.dumps(statistics)) == statistics
    assert Spread() + Spread() == Spread()
    encoder = TableEncoder(min_frequency=0.05, keep="race").finish(statistics)
    expected = TableEncoder(min_frequency=0.05, keep="race").fit(people(50))
    assert encoder.columns_ == expected.columns_
    assert list(encoder.feature_names_in_) == list(people(1).columns)


def test_chunks_of_different_schema_are_refused_by_name():
    a = pd.DataFrame({"x": [1.0], "c": ["a"]})
    for other, words in (
        (pd.DataFrame({"x": ["1"], "c": ["a"]}), ["'x'", "numeric", "categorical"]),
        (pd.DataFrame({"x": [True], "c": ["a"]}), ["'x'", "numeric", "boolean"]),
        (pd.DataFrame({"x": [1.0], "d": ["a"]}), ["'c'", "'d'"]),
        (pd.DataFrame({"x": [1.0]}), [2, 1, "columns"]),
    ):
        with refused(*words, error=ValueError):
            table_statistics(a) + table_statistics(other)
    with refused("'x'", "numeric", "categorical", error=ValueError):
        TableEncoder().fit(a).transform(pd.DataFrame({"x": ["1"], "c": ["a"]}))


def test_a_chunk_without_values_fits_every_kind():
    X = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"]})
    blank = pd.DataFrame({"x": [None], "c": [np.nan]})
    for order in ([X, blank], [blank, X]):
        encoder = TableEncoder().finish(reduce(add, map(table_statistics, order)))
        expected = ["x", "x_missing", "c_a", "c_b", "c_missing"]
        assert list(encoder.get_feature_names_out()) == expected
        np.testing.assert_array_equal(encoder.transform(blank), [[0, 1, 0, 0, 1]])
    weightless = X[["c"]].assign(c=["a", None])
    for column, rows, weight in (("x", blank[["x"]], None), ("c", weightless, [0, 1])):
        with pytest.warns(UserWarning, match=f"'{column}'"), refused(f"'{column}'", error=ValueError):
            TableEncoder().fit(rows, sample_weight=weight)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"min_frequency": 1.0}, ["'min_frequency'", "Got 1.0"]),
        ({"max_levels": 0}, ["'max_levels'", "Got 0"]),
        ({"keep": ["rase"]}, ["'rase'", "'race'"]),
    ],
)
def test_wrong_parameters_are_named(params, words):
    with refused(*words, error=ValueError):
        TableEncoder(**params).fit(people(20))


def test_sensitive_numbers_as_given_and_categories_as_codes():
    s = pd.DataFrame({"race": ["b", "a", "c", "a"], "age": [30, 20, 40, 20], "f": [True, False, False, True]})
    encoder = SensitiveEncoder().fit(s)
    expected = np.array([[1, 30, 1], [0, 20, 0], [2, 40, 0], [0, 20, 1]], dtype=float)
    np.testing.assert_array_equal(encoder.transform(s), expected)
    np.testing.assert_array_equal(encoder.transform(s.to_numpy()), expected)
    assert list(encoder.categorical_) == [True, False, True]
    assert encoder.levels_ == {"race": ("a", "b", "c"), "f": ("False", "True")}
    assert encoder.names_ == list(s.columns) == list(encoder.get_feature_names_out())
    assert encoder.n_features_in_ == 3


@example(rows=[], cut=1)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(values, st.sampled_from("abcd")), max_size=12), cut=st.integers(0, 14))
def test_sensitive_encoding_does_not_depend_on_chunks(rows, cut):
    s = pd.DataFrame([(0.0, "a"), (1.0, "b"), *rows], columns=["age", "race"])
    halves = sensitive_statistics(s[cut:]) + sensitive_statistics(s[:cut])
    merged, whole = SensitiveEncoder().finish(halves), SensitiveEncoder().fit(s)
    assert merged.levels_ == whole.levels_ == {"race": tuple(sorted(set(s["race"])))}
    np.testing.assert_array_equal(merged.transform(s), whole.transform(s))


@pytest.mark.parametrize(
    ("s", "weight", "words"),
    [
        ({"race": ["a", None, None]}, None, ["'race'", 2, "missing", "'unknown'"]),
        ({"age": [1.0, np.nan, 2.0]}, None, ["'age'", 1, "missing"]),
        ({"race": ["a", "a", "a"]}, None, ["'race'", "'a'"]),
        ({"race": ["a", "b", "a"]}, [1, 0, 1], ["'race'", "'a'", "weight"]),
        ({"age": [1.0, 2.0, 2.0]}, [0, 1, 1], ["'age'", 2.0]),
        ({"f": [True, True, True]}, None, ["'f'", True]),
    ],
)
def test_sensitive_columns_that_protect_nobody_are_refused(s, weight, words):
    rows, w = pd.DataFrame(s), np.array(weight or [1, 1, 1])
    with refused(*words, error=ValueError):
        SensitiveEncoder().fit(rows, sample_weight=weight)
    chunks = [sensitive_statistics(rows[i : i + 1], w[i : i + 1]) for i in range(3)]
    with refused(*words, error=ValueError):
        SensitiveEncoder().finish(reduce(add, chunks))


def test_sensitive_transform_refuses_what_fit_did_not_see():
    s = pd.DataFrame({"race": ["a", "b", "c"], "age": [1.0, 2.0, 3.0]})
    encoder = SensitiveEncoder().fit(s, sample_weight=[1, 1, 0])
    np.testing.assert_array_equal(encoder.transform(s)[:, 0], [0, 1, 2])
    for other, words in (
        (s.assign(race="z"), ["'race'", "'z'", "a, b, c"]),
        (s.assign(race=None), ["'race'", 3, "missing"]),
        (s.assign(age=np.nan), ["'age'", 3, "missing"]),
        (s.assign(age="old"), ["'age'", "numeric", "categorical"]),
        (s[["race"]], [["race"], ["race", "age"]]),
        (s[["age", "race"]], [["age", "race"], ["race", "age"]]),
        (s.to_numpy()[:, :1], [1, ["race", "age"]]),
    ):
        with refused(*words, error=ValueError):
            encoder.transform(other)


@parametrize_with_checks([TableEncoder()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
