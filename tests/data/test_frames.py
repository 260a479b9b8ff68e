"""Every container is the same table: what numpy says of the rows, all of them must say."""

import datetime as dt

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from scalefair.data import frames
from scalefair.data.encoding import SensitiveEncoder, TableEncoder
from tests.errors import refused

AGE = [39, 50, 28, 61]
PAY = [1.5, None, -2.0, 0.25]
RACE = ["White", "Black", None, "White"]
FULL = [True, False, True, True]
BORN = [dt.datetime(1970, 1, 2, 12), None, dt.datetime(1969, 12, 31), dt.datetime(2020, 1, 1)]
DAYS = [1.5, np.nan, -1.0, 18262.0]
DATA = {"age": AGE, "pay": PAY, "race": RACE, "full": FULL, "born": BORN}
KINDS = {"age": "numeric", "pay": "numeric", "race": "categorical", "full": "boolean", "born": "datetime"}
ROWS = list(zip(*DATA.values(), strict=True))


def arrow() -> pa.Table:
    return pa.table(DATA)


CONTAINERS = {
    "pandas": lambda: pd.DataFrame(DATA),
    "pandas-object": lambda: pd.DataFrame(DATA, dtype=object),
    "pandas-category": lambda: pd.DataFrame(DATA).astype({"race": "category"}),
    "pandas-nullable": lambda: pd.DataFrame(DATA).convert_dtypes(),
    "pandas-pyarrow": lambda: arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(DATA),
    "polars-categorical": lambda: pl.DataFrame(DATA).with_columns(pl.col("race").cast(pl.Categorical)),
    "pyarrow": arrow,
    "pyarrow-dictionary": lambda: arrow().set_column(2, "race", arrow()["race"].dictionary_encode()),
    "narwhals": lambda: nw.from_native(pl.DataFrame(DATA)),
}
UNNAMED = {"object-array": lambda: np.array(ROWS, dtype=object), "lists": lambda: [list(row) for row in ROWS]}
ALL = CONTAINERS | UNNAMED


def values(column: frames.Column) -> list[str | None]:
    codes, levels = column.codes()
    return [None if code < 0 else levels[code] for code in codes]


@pytest.mark.parametrize("name", ALL)
def test_kinds_numbers_and_levels_do_not_depend_on_the_container(name):
    X = ALL[name]()
    assert frames.n_rows(X) == 4
    assert frames.n_columns(X) == 5
    age, pay, race, full, born = frames.columns(X)
    assert [c.kind for c in (age, pay, race, full, born)] == list(KINDS.values())
    np.testing.assert_array_equal(age.floats(), AGE)
    np.testing.assert_array_equal(pay.floats(), np.array(PAY, dtype=float))
    np.testing.assert_array_equal(full.floats(), [1.0, 0.0, 1.0, 1.0])
    np.testing.assert_array_equal(born.floats(), DAYS)
    assert values(race) == RACE
    assert values(age) == [str(age) for age in AGE]
    assert not frames.is_all_numeric(X)


@pytest.mark.parametrize("name", ALL)
def test_encoded_rows_do_not_depend_on_the_container(name):
    X, frame = ALL[name](), pd.DataFrame(DATA)
    expected = TableEncoder().fit_transform(frame)
    assert expected.shape == (4, 9)
    np.testing.assert_array_equal(TableEncoder().fit_transform(X), expected)
    if name in CONTAINERS:
        np.testing.assert_array_equal(TableEncoder().fit(frame).transform(X), expected)
    s = SensitiveEncoder().fit_transform(frames.take_columns(X, [0, 3]))
    np.testing.assert_array_equal(s, np.column_stack([AGE, FULL]))
    job = frames.take_rows(frames.take_columns(X, 2), np.array([0, 1, 3]))
    np.testing.assert_array_equal(SensitiveEncoder().fit_transform(job), [[1], [0], [1]])


def test_durations_are_days_and_periods_their_first_day():
    hours = [0, 12, None, 48]
    month = pd.period_range("1970-01", periods=4, freq="M")
    X = pd.DataFrame({"wait": pd.to_timedelta(hours, unit="h"), "month": month})
    wait, months = frames.columns(X)
    np.testing.assert_array_equal(wait.floats(), [0, 0.5, np.nan, 2])
    assert (wait.kind, months.kind) == ("datetime", "datetime")
    np.testing.assert_array_equal(months.floats(), [0, 31, 59, 90])
    (again,) = frames.columns(pl.DataFrame({"wait": [None if h is None else dt.timedelta(hours=h) for h in hours]}))
    np.testing.assert_array_equal(again.floats(), wait.floats())


def test_sparse_columns_are_read_as_dense_ones():
    x = np.array([0.0, 1.5, 0.0, np.nan])
    X = pd.DataFrame({"x": pd.arrays.SparseArray(x), "b": pd.arrays.SparseArray(x > 1)})
    dense = pd.DataFrame({"x": x, "b": x > 1})
    np.testing.assert_array_equal(frames.to_numpy(X), frames.to_numpy(dense))
    assert frames.column_kinds(X) == {"x": "numeric", "b": "boolean"}


@pytest.mark.parametrize(
    ("values", "word"), [([dt.time(1), dt.time(2)], "time"), (np.array([1j, 2j]), "complex128"), ([1, "1"], "integer")]
)
def test_other_types_are_named_with_their_column(values, word):
    with refused("'c'", word, error=ValueError) as caught:
        frames.columns(pd.DataFrame({"c": values}))
    assert caught.value.column == "c"


@pytest.mark.parametrize("name", CONTAINERS)
def test_names_and_kinds_by_name(name):
    X = CONTAINERS[name]()
    assert frames.column_names(X) == list(DATA)
    assert frames.column_kinds(X) == KINDS


@pytest.mark.parametrize("name", UNNAMED)
def test_a_table_without_names_is_labelled_by_position(name):
    X = UNNAMED[name]()
    assert frames.column_names(X) is None
    assert list(frames.column_kinds(X)) == ["x0", "x1", "x2", "x3", "x4"]
    assert list(frames.column_kinds(X, prefix="s")) == ["s0", "s1", "s2", "s3", "s4"]


@pytest.mark.parametrize("name", ALL)
def test_parts_are_the_same_rows_and_columns_in_the_same_container(name):
    X = ALL[name]()
    parts = {
        "slice": (frames.slice_rows(X, 1, 3), [1, 2], range(5)),
        "rows": (frames.take_rows(X, np.array([3, 0])), [3, 0], range(5)),
        "take": (frames.take_columns(X, [4, 0]), range(4), [4, 0]),
        "drop": (frames.drop_columns(X, [2]), range(4), [0, 1, 3, 4]),
    }
    whole = [values(column) for column in frames.columns(X)]
    for key, (part, rows, positions) in parts.items():
        container = np.ndarray if name == "lists" and key in ("take", "drop", "rows") else type(X)
        assert type(part) is (pl.DataFrame if name == "narwhals" else container), key
        found = [values(column) for column in frames.columns(part)]
        assert found == [[whole[j][i] for i in rows] for j in positions], key


@pytest.mark.parametrize("make", [pd.Series, pl.Series, lambda v: pa.chunked_array([v]), np.array])
def test_rows_of_one_column(make):
    column = make([3.0, 1.0, 2.0])
    assert list(map(float, np.asarray(frames.slice_rows(column, 1, 3)))) == [1.0, 2.0]
    assert list(map(float, np.asarray(frames.take_rows(column, np.array([2, 0]))))) == [2.0, 3.0]
    (only,) = frames.columns(frames.as_table(column, one_column=True), prefix="s")
    assert only.name == "s0"
    np.testing.assert_array_equal(only.floats(), [3.0, 1.0, 2.0])


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pd.Categorical])
def test_sensitive_one_column(make):
    encoder = SensitiveEncoder()
    np.testing.assert_array_equal(encoder.fit_transform(make(["m", "f", "m"])), [[1], [0], [1]])
    assert encoder.names_ == ["s0"]
    assert encoder.fit(np.eye(2)).names_ == ["s0", "s1"]


def test_columns_by_name_equal_columns_by_position():
    X = pd.DataFrame(DATA)
    pd.testing.assert_frame_equal(frames.take_columns(X, ["race", "age"]), X[["race", "age"]])
    pd.testing.assert_frame_equal(frames.take_columns(X, "race"), X[["race"]])
    pd.testing.assert_frame_equal(frames.drop_columns(X, np.int64(0)), X.drop(columns="age"))
    pd.testing.assert_frame_equal(frames.drop_columns(X, []), X)


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        ("rase", ValueError, ["'rase'", "'race'", *DATA]),
        ("zzz", ValueError, ["'zzz'", *DATA]),
        (5, ValueError, ["column 5", 0, 4]),
        (-1, ValueError, ["column -1", 0, 4]),
        ([1.5], TypeError, ["column 1.5", "float"]),
        ([True], TypeError, ["column True", "bool"]),
    ],
)
def test_a_wrong_column_is_named(chosen, error, words):
    for choose in (frames.take_columns, frames.drop_columns):
        with refused(*words, error=error):
            choose(pl.DataFrame(DATA), chosen)


def test_names_in_a_table_without_names():
    with refused("'age'", error=ValueError) as caught:
        frames.take_columns(np.eye(2), ["age"])
    assert caught.value.column == "age"


NUMERIC = np.array([[1.0, 0.0], [2.5, 1.0]])


@pytest.mark.parametrize(
    "X",
    [
        NUMERIC,
        NUMERIC.tolist(),
        NUMERIC.astype(object),
        pd.DataFrame(NUMERIC),
        pd.DataFrame({"a": [1.0, 2.5], "b": [False, True]}),
        pd.DataFrame({"a": [1.0, 2.5], "b": [0, 1]}).convert_dtypes(),
        pl.DataFrame({"a": [1.0, 2.5], "b": [False, True]}),
        pa.table({"a": pa.array([1.0, 2.5], pa.float32()), "b": pa.array([0, 1], pa.uint8())}),
    ],
)
def test_numbers_as_an_array(X):
    assert frames.is_all_numeric(X)
    for dtype in (np.float64, np.float32):
        array = frames.to_numpy(X, dtype)
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, NUMERIC)


def test_missing_numbers_are_nan_and_not_all_numeric():
    for X in (
        np.array([[1.0], [np.nan]]),
        pl.DataFrame({"a": [1, None]}),
        pl.DataFrame({"a": [1.0, np.nan]}),
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame({"a": pd.Series([1, pd.NA], dtype=object)}),
    ):
        assert not frames.is_all_numeric(X)
        np.testing.assert_array_equal(frames.to_numpy(X), [[1.0], [np.nan]])
    with refused("'race'", error=ValueError):
        frames.to_numpy(pd.DataFrame(DATA))


def test_plain_numbers_are_no_frame():
    assert isinstance(frames.as_table([[1, 2.5], [3, 4]]), np.ndarray)
    assert isinstance(frames.as_table(np.eye(2) > 0), np.ndarray)
    assert not isinstance(frames.as_table(np.array([["a"], ["b"]])), np.ndarray)


@pytest.mark.parametrize(
    "array",
    [
        np.array([["b"], ["a"], ["b"]]),
        np.array([[b"b"], [b"a"], [b"b"]]),
        np.array([["b"], ["a"], ["b"]], dtype=np.dtypes.StringDType()),
    ],
)
def test_arrays_of_text(array):
    (column,) = frames.columns(array)
    assert column.kind == "categorical"
    assert values(column) == ["b", "a", "b"]


def test_dates_are_days_in_utc_whatever_their_unit_or_zone():
    noon = pd.Series([pd.Timestamp("1970-01-03 13:00", tz="Europe/Paris"), pd.NaT])
    for X in (
        pd.DataFrame({"d": noon}),
        pl.from_pandas(pd.DataFrame({"d": noon})),
        pa.table({"d": pa.array(noon)}),
        pd.DataFrame({"d": noon.dt.tz_convert(None).astype("datetime64[s]")}),
        np.array([["1970-01-03T12"], ["NaT"]], dtype="datetime64[ms]"),
        pd.DataFrame({"d": noon.astype(object)}),
    ):
        (column,) = frames.columns(X)
        assert column.kind == "datetime"
        np.testing.assert_array_equal(column.floats(), [2.5, np.nan])
    zones = [noon[0].tz_convert("UTC"), noon[0]]
    assert list(frames.columns(np.array([zones], dtype=object).T)[0].floats()) == [2.5, 2.5]
    for day in (pl.DataFrame({"d": [dt.date(1970, 1, 3)]}), pa.table({"d": [dt.date(1970, 1, 3)]})):
        assert frames.to_numpy(day).item() == 2.0
    assert frames.to_numpy(pd.DataFrame({"d": [dt.date(1970, 1, 3)]})).item() == 2.0


def test_levels_are_text_and_a_whole_number_reads_alike_with_and_without_missing_values():
    for category in (pd.Categorical([1, 10, 2]), pd.Categorical([1.0, 10.0, 2.0]), pd.Categorical(["1", "10", "2"])):
        assert values(frames.columns(pd.DataFrame({"c": category}))[0]) == ["1", "10", "2"]
    bins = pd.cut(pd.Series([1, 7]), [0, 5, 10])
    assert values(frames.columns(pd.DataFrame({"c": bins}))[0]) == ["(0, 5]", "(5, 10]"]


def test_only_levels_that_occur_are_listed():
    unused = pd.Categorical(["b", None], categories=["a", "b"])
    stored = pa.DictionaryArray.from_arrays(pa.array([2, 1], pa.int8()), ["a", None, "b"])
    for X in (pd.DataFrame({"c": unused}), pa.table({"c": stored})):
        codes, levels = frames.columns(X)[0].codes()
        assert levels == ["b"]
        assert list(codes) == [0, -1]


def test_a_column_without_values_is_empty_and_reads_as_any_kind():
    for X in (
        pd.DataFrame({"a": [None, None]}, dtype=object),
        pl.DataFrame({"a": [None, None]}),
        pa.table({"a": pa.nulls(2)}),
    ):
        (column,) = frames.columns(X)
        assert column.kind == "empty"
        assert np.isnan(column.floats()).all()
        assert values(column) == [None, None]
    for kind in ("numeric", "categorical", "datetime", "boolean"):
        assert column.expect(kind) is column
    no_number = frames.Column("a", "numeric", np.array([np.nan]))
    assert no_number.expect("categorical").kind == "empty"


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (pl.LazyFrame({"a": [1]}), TypeError, ["LazyFrame", "collect"]),
        # scikit-learn's own words, which its checks look for
        (np.eye(2) * 1j, ValueError, ["Complex data not supported"]),
        (np.ones(3), ValueError, ["Expected 2D array, got 1D", "Reshape your data", (3,)]),
        (pd.Series([1.0]), ValueError, ["Expected 2D array, got 1D", (1,)]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, ["unique", "'a'"]),
        (pd.DataFrame({"m": [1, "a"]}, dtype=object), ValueError, ["'m'", "mixed-integer"]),
        (np.array([[True], [2.5]], dtype=object), ValueError, ["'x0'", "mixed"]),
        (pl.DataFrame({"l": [[1]]}), ValueError, ["'l'", "List(Int64)"]),
    ],
)
def test_what_is_no_table_is_refused_by_name(X, error, words):
    with refused(*words, error=error):
        frames.columns(X)


def test_finite_names_the_column():
    with refused("'x1'", 2, error=ValueError):
        frames.columns(np.array([[0, np.inf], [1, -np.inf]]))[1].floats(largest=1e75)


def test_infinity_is_refused_in_fit_and_in_transform():
    X, bad = np.array([[1.0], [2.0]]), np.array([[1.0], [np.inf]])
    for encoder in (TableEncoder(), SensitiveEncoder()):
        for call in (lambda e=encoder: e.fit(bad), lambda e=encoder: e.fit(X).transform(bad)):
            with refused("0'", error=ValueError):
                call()


@pytest.mark.parametrize("weight", [np.ones(3), [-1.0] * 20, [np.nan] * 20, np.zeros(20)])
def test_wrong_weights_are_refused(weight):
    for encoder in (TableEncoder(), SensitiveEncoder()):
        with refused("weight", error=ValueError):
            encoder.fit(np.arange(40.0).reshape(20, 2), sample_weight=weight)


def test_result_tables_are_pandas():
    frame = frames.make_frame({"eta": np.array([0.0, 1.0]), "share": [0.5, 0.25]})
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"eta": [0.0, 1.0], "share": [0.5, 0.25]}))


def test_a_column_that_changes_its_type_after_fit_is_named_with_both():
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0], "c": ["a", "b", "c"]})
    encoder = TableEncoder().fit(X)
    for name, was, now in (("x", "numeric", "categorical"), ("c", "categorical", "numeric")):
        other = X[["c"]] if name == "x" else X[["x"]]
        with refused(repr(name), was, now, error=ValueError) as caught:
            encoder.transform(X.assign(**{name: other.iloc[:, 0]}))
        assert caught.value.column == name


def test_a_number_and_a_text_that_read_alike_are_refused():
    both = pd.Series(pd.Categorical([1, "1", 1], categories=[1, "1"]), name="c")
    for encoder in (TableEncoder(), SensitiveEncoder()):
        with refused("'c'", 1, error=ValueError) as caught:
            encoder.fit(both.to_frame())
        assert caught.value.column == "c"
