"""The shipped tables are the published ones; the synthetic ones obey their formulas."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
from importlib.resources import files
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2_contingency, kstest, norm
from sklearn.datasets import load_svmlight_file

from scalefair.datasets import load_adult, load_communities_crime, make_biased_income, make_toy1, make_toy2
from scalefair.datasets._income import STREAMS, _rows, _uniform

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SCALEFAIR_DATA", ROOT.parent / "shared" / "data"))
DATA = files("scalefair.datasets") / "data"
SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
    "communities.data": "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
    "communities.names": "80914f24ab37261fb0fbda7e417cad8001335dadda4a8d702c265601ef8434fc",
}


def shipped(name):
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


@pytest.mark.parametrize("name", SHA256)
def test_shipped_files_are_the_published_ones(name):
    content = shipped(name)
    assert hashlib.sha256(content).hexdigest() == SHA256[name]
    row = f"| {name}.gz | {len(content)} | {SHA256[name]} |"
    assert row in (DATA / "LICENSE-DATA.md").read_text()
    header = (DATA / f"{name}.gz").read_bytes()[:8]
    assert header[3:] == bytes(5), "a file name or a time stamp"


def adult_lines(name):
    lines = shipped(name).decode().splitlines()
    return [line.rstrip(".").split(", ") for line in lines if line and not line.startswith("|")]


@pytest.mark.parametrize("subset", ["train", "test", "all"])
def test_adult_is_its_file_line_by_line(subset):
    parts = {"train": adult_lines("adult.data"), "test": adult_lines("adult.test")}
    lines = parts.get(subset) or parts["train"] + parts["test"]
    adult = load_adult(subset=subset)
    assert adult.data.astype(str).to_numpy().tolist() == [line[:14] for line in lines]
    assert adult.target.tolist() == [int(line[14] == ">50K") for line in lines]
    assert adult.sensitive_features.equals(adult.data[["sex", "race"]])


def test_adult_has_the_published_counts():
    train, test = load_adult(), load_adult(subset="test")
    assert (train.data.shape, test.data.shape) == ((32561, 14), (16281, 14))
    assert (int(train.target.sum()), int(test.target.sum())) == (7841, 3846)
    assert [int((part.data == "?").any(axis=1).sum()) for part in (train, test)] == [2399, 1221]


def test_adult_subsets_share_dtypes_and_lose_nothing():
    train, test = load_adult().data, load_adult(subset="test").data
    assert (train.dtypes == test.dtypes).all()
    assert not pd.concat([train, test]).isna().any(axis=None)
    levels = {name: column.cat.categories for name, column in train.select_dtypes("category").items()}
    assert [n for n in levels if "?" in levels[n]] == ["workclass", "occupation", "native-country"]
    assert (train.drop(columns=list(levels)).dtypes == np.int64).all()


@pytest.mark.parametrize("encoding", ["raw", "a9a"])
def test_adult_arrays_hold_what_the_frames_hold(encoding):
    frame = load_adult(subset="test", encoding=encoding)
    array = load_adult(subset="test", encoding=encoding, as_frame=False)
    for key in ("data", "sensitive_features"):
        assert isinstance(array[key], np.ndarray)
        assert (array[key] == frame[key].to_numpy()).all()
    assert list(frame.data.columns) == frame.feature_names == array.feature_names
    assert (array.target == frame.target).all()


@pytest.mark.parametrize(("subset", "name"), [("train", "a9a.gz"), ("test", "a9a.t.gz")])
def test_a9a_is_libsvms_row_by_row(subset, name):
    path = SHARED / "a9a" / name
    if not path.exists():
        pytest.skip(f"no a9a/{name}: set SCALEFAIR_DATA to the folder that holds a9a/")
    X, y = load_svmlight_file(str(path), n_features=123)
    ours = load_adult(subset=subset, encoding="a9a", as_frame=False)
    assert ours.data.dtype == np.float64
    np.testing.assert_array_equal(ours.data, X.toarray())
    np.testing.assert_array_equal(2 * ours.target - 1, y)


@pytest.mark.parametrize(
    ("subset", "ones", "digest"),
    [
        ("train", 451592, "524ec711ecfc1fe00bf683ffdd8ea6aacfbc25daa852dc0053db8412606176f4"),
        ("test", 225731, "6995c9eacba05f5e892e0c9274371b3e0f8a492064350f52b0b2d46428b6eafa"),
    ],
)
def test_a9a_stays_what_was_checked_against_libsvm(subset, ones, digest):
    bits = load_adult(subset=subset, encoding="a9a", as_frame=False).data.astype(np.uint8)
    assert bits.sum() == ones
    assert hashlib.sha256(np.packbits(bits, axis=1).tobytes()).hexdigest() == digest


def test_a9a_names_say_what_the_bits_are_and_none_is_missing():
    raw = load_adult(subset="all").data
    a9a = load_adult(subset="all", encoding="a9a").data
    assert list(a9a.columns[[66, 70, 71]]) == ["race=White", "race=Black", "sex=Female"]
    for name in a9a:
        column, _, value = name.partition("=")
        low, dots, high = value.partition("..")
        if not dots:
            expected = raw[column].astype(str) == value
        else:
            expected = raw[column].between(float(low or "-inf"), float(high or "inf"))
        assert ((a9a[name] == 1) == expected).all(), name
    assert a9a.columns.is_unique
    assert (a9a.sum(axis=1) == (raw != "?").sum(axis=1)).all()


def crime_reference():
    lines = shipped("communities.names").decode().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    rows = [line.split(",") for line in shipped("communities.data").decode().splitlines()]
    columns = list(zip(names, zip(*rows, strict=True), strict=True))[5:]
    assert names[:5] == ["state", "county", "community", "communityname", "fold"]
    return {n: np.array([np.nan if v == "?" else float(v) for v in column]) for n, column in columns}


@pytest.mark.parametrize(("missing", "shape"), [("drop", (1994, 99)), ("keep", (1994, 122)), ("paper", (1993, 100))])
def test_crime_is_its_file(missing, shape):
    columns = crime_reference()
    absent = {name: int(np.isnan(column).sum()) for name, column in columns.items()}
    limit = {"drop": 0, "keep": 1994, "paper": 1}[missing]
    kept = [name for name in columns if absent[name] <= limit]
    rows = ~np.isnan(columns["OtherPerCap"]) | (missing != "paper")
    crime = load_communities_crime(missing=missing)
    assert crime.data.shape == shape
    assert crime.feature_names == list(crime.data.columns) == kept[:-1]
    for name in crime.data:
        np.testing.assert_array_equal(crime.data[name], columns[name][rows])
    np.testing.assert_array_equal(crime.target, columns["ViolentCrimesPerPop"][rows])
    assert list(crime.data.index) == list(range(shape[0]))


def test_crime_has_the_published_missing_values_and_mean():
    crime = load_communities_crime(missing="keep")
    absent = crime.data.isna().sum()
    assert absent["OtherPerCap"] == 1
    assert sorted(absent[absent > 1]) == [1675] * 22
    assert crime.target.mean() == pytest.approx(0.23798, abs=5e-6)


def test_crime_sensitive_columns_are_the_races():
    crime, array = load_communities_crime(), load_communities_crime(as_frame=False)
    races = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
    assert crime.sensitive_features.equals(crime.data[races])
    np.testing.assert_array_equal(array.data, crime.data.to_numpy())
    np.testing.assert_array_equal(array.sensitive_features, crime.data[races].to_numpy())


@pytest.mark.parametrize("bias", [0.5, -1.25, 0.0])
def test_toy1_obeys_its_formula(bias):
    toy = make_toy1(2000, bias=bias, noise=0, random_state=1)
    x1, x2, x3 = toy.data.T
    z = np.sqrt(2) * x3 - x1
    f = np.sign((x1 - z) * x3) * np.abs(x2)
    np.testing.assert_array_equal(toy.sensitive_features, x3[:, None])
    np.testing.assert_allclose(toy.fair_target, f, rtol=0, atol=0)
    np.testing.assert_allclose(toy.target, f + 2 * bias * (x3 > 0) - bias, atol=1e-12)


def test_toy1_has_the_stated_distribution():
    toy = make_toy1(40000, noise=0.3, bias=0.5, random_state=2)
    x1, x2, x3 = toy.data.T
    for column in (x1, x2, x3, (toy.target - toy.fair_target - np.sign(x3) * 0.5) / 0.3):
        assert kstest(column, "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(toy.data.T)[2], [np.sqrt(0.5), 0, 1], atol=0.02)


def test_toy1_fair_target_is_independent_of_the_sensitive_column():
    toy = make_toy1(40000, random_state=3)
    bands = [pd.qcut(column, 6, labels=False) for column in (toy.fair_target, toy.data[:, 2])]
    assert chi2_contingency(pd.crosstab(*bands)).pvalue > 1e-3
    biased = pd.crosstab(pd.qcut(toy.target, 6, labels=False), bands[1])
    assert chi2_contingency(biased).pvalue < 1e-10


def test_toy2_obeys_its_formula():
    toy = make_toy2(40000, sensitive_scale=2.0, input_scale=0.7, noise=0.4, random_state=1)
    s, x = toy.data.T
    np.testing.assert_array_equal(toy.sensitive_features, s[:, None])
    for column in (s / 2, (x - np.log(np.abs(s))) / 0.7, (toy.target - x**2 - s**2) / 0.4):
        assert kstest(column, "norm").pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_toy2_fair_target_is_the_projection(scale):
    """f = E[y|s,x] - E[y|s] + E[y], the two last means by quadrature."""
    toy = make_toy2(200, sensitive_scale=scale, input_scale=0.6, random_state=2)
    s, x = toy.data.T

    def mean_given(s):
        return np.log(abs(s)) ** 2 + 0.6**2 + s**2

    total, _ = quad(lambda u: 2 * mean_given(scale * u) * norm.pdf(u), 0, 12, points=[0.01, 1])
    np.testing.assert_allclose(toy.fair_target, x**2 + s**2 - mean_given(s) + total, atol=1e-6)


@pytest.mark.parametrize("make", [make_toy1, make_toy2])
def test_toys_repeat_with_the_seed(make):
    first, again, other = (make(random_state=seed) for seed in (5, np.random.RandomState(5), 6))
    assert len(first.target) == {make_toy1: 500, make_toy2: 700}[make]
    np.testing.assert_array_equal(first.data, again.data)
    np.testing.assert_array_equal(first.target, again.target)
    assert (first.target != other.target).all()
    assert (make().target != make().target).all()


EDUCATION = {"basic": 0.0, "secondary": 0.04, "vocational": 0.08, "bachelor": 0.15, "master": 0.2}
LEAVING_AGE = {"basic": 16, "secondary": 18, "vocational": 19, "bachelor": 22, "master": 24}
GRADES = [
    *(("cleaner", "shop assistant", "labourer"), ("care worker", "clerk", "driver")),
    *(("nurse", "accountant", "technician"), ("therapist", "manager", "engineer")),
]


@pytest.fixture(scope="module")
def income():
    return make_biased_income(300_000, random_state=0)


@pytest.mark.parametrize("chunks", [1000, 777, 1, 5000])
def test_income_does_not_depend_on_the_chunks(chunks):
    n_rows = 40 if chunks == 1 else 3001
    whole = make_biased_income(n_rows, random_state=7)
    lazy = make_biased_income(n_rows, chunks=chunks, random_state=7)
    assert lazy.data.npartitions == -(-n_rows // chunks)
    assert lazy.data.known_divisions
    keys = ["data", "target", "sensitive_features", "fair_target"]
    for key, part in zip(keys, dask.compute(*map(lazy.get, keys), scheduler="sync"), strict=True):
        frames = (part, whole[key]) if part.ndim == 2 else (part.to_frame(), whole[key].to_frame())
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert (lazy.data.dtypes == whole.data.dtypes).all()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([0, 3, 10**12]), st.integers(0, 500), st.integers(0, 60), st.integers(0, 99))
def test_income_rows_can_be_made_alone(first, skip, length, key):
    whole = _rows(first, first + 560, key)
    part = _rows(first + skip, first + skip + length, key)
    pd.testing.assert_frame_equal(part, whole.iloc[skip : skip + length], check_exact=True)


def test_income_streams_are_uniform_and_unrelated():
    draws = np.array([_uniform(11, 5, 20005, stream) for stream in STREAMS])
    assert min(kstest(draw, "uniform").pvalue for draw in draws) > 1e-4
    off_diagonal = np.corrcoef(draws) - np.eye(len(STREAMS))
    assert abs(off_diagonal).max() < 5 / np.sqrt(20000)


def test_income_has_the_documented_columns(income):
    assert list(income.data) == income.feature_names
    assert income.data.shape == (300_000, 10)
    categories = list(income.data.select_dtypes("category"))
    assert categories == ["education", "occupation", "region", "sex", "ethnicity"]
    assert not income.data.isna().any(axis=None)
    assert income.data["age"].between(25, 65).all()
    assert (income.data["tenure"] <= income.data["experience"]).all()
    assert np.isfinite(income.target).all()
    assert income.sensitive_features.equals(income.data[["sex", "ethnicity", "age"]])


def test_income_fair_target_is_the_documented_function_of_the_columns(income):
    for (_, row), fair in zip(income.data.head(500).iterrows(), income.fair_target, strict=False):
        grade = next(g for g, jobs in enumerate(GRADES) if row["occupation"] in jobs)
        share = row["experience"] / (row["age"] - LEAVING_AGE[row["education"]])
        expected = 2.3 + EDUCATION[row["education"]] + [0, 0.2, 0.45, 0.8][grade]
        expected += 0.12 * row["region"].endswith("city") + 0.5 * share**2
        expected += (0.06 + 0.04 * grade) * row["rating"]
        assert fair == pytest.approx(expected, abs=1e-12)


def group_errors(values, groups):
    grouped = values.groupby(groups, observed=True)
    return grouped.mean(), grouped.std() / np.sqrt(grouped.size())


def test_income_bias_is_recovered_by_group(income):
    s = income.sensitive_features
    by_age = -0.01 * (s["age"] - 45).clip(lower=0)
    excess = income.target - income.fair_target
    known = {"female": -0.20, "male": 0.0}
    known |= {"majority": 0.0, "minority A": -0.15, "minority B": -0.08, "minority C": -0.04}
    mean, error = group_errors(excess - by_age, [s["sex"], s["ethnicity"]])
    expected = pd.Series([known[a] + known[b] for a, b in mean.index], index=mean.index)
    assert len(mean) == 8
    assert (abs(mean - expected) < 4.5 * error).all()
    additive = s["sex"].map(known).astype(float) + s["ethnicity"].map(known).astype(float)
    mean, error = group_errors(excess - additive, s["age"])
    expected = -0.01 * (mean.index.to_series() - 45).clip(lower=0)
    assert (abs(mean - expected) < 4.5 * error).all()
    assert (excess - additive - by_age).std() == pytest.approx(0.2, rel=0.01)


def test_income_fair_target_is_independent_of_the_sensitive_columns(income):
    s = income.sensitive_features
    group = s["sex"].astype(str) + s["ethnicity"].astype(str) + (s["age"] // 14).astype(str)
    band = pd.qcut(income.fair_target, 8, labels=False)
    assert chi2_contingency(pd.crosstab(group, band)).pvalue > 1e-3


def test_income_keeps_its_bias_when_the_sensitive_columns_are_left_out(income):
    s, target, fair = income.sensitive_features, income.target, income.fair_target
    X = pd.get_dummies(income.data.drop(columns=list(s)), drop_first=True, dtype=float)
    X = np.column_stack([np.ones(len(X)), X])
    blind = pd.Series(X @ np.linalg.lstsq(X, target, rcond=None)[0])
    groups = [s["sex"] == "female", s["ethnicity"] == "minority A", s["age"] > 55]
    for group, kept in zip(groups, [0.4, 0.4, 0.2], strict=True):
        bias, gap = (f[group].mean() - f[~group].mean() for f in (target - fair, blind))
        assert gap / bias == pytest.approx(kept, abs=0.06)


def test_income_repeats_with_the_seed_and_travels():
    lazy = make_biased_income(50, chunks=20, random_state=np.random.RandomState(4))
    sent = pickle.loads(pickle.dumps(lazy.target)).compute(scheduler="sync")
    pd.testing.assert_series_equal(sent, make_biased_income(50, random_state=4).target)
    assert (make_biased_income(50, random_state=5).target != sent).all()
    assert (make_biased_income(50).target != make_biased_income(50).target).all()


@pytest.mark.parametrize(
    ("function", "name", "value", "error", "remedy"),
    [
        (load_adult, "subset", "valid", ValueError, "train"),
        (load_adult, "encoding", 1, ValueError, "a9a"),
        (load_adult, "as_frame", "no", TypeError, "True or False"),
        (load_communities_crime, "missing", None, ValueError, "paper"),
        (make_toy1, "n_rows", 0, ValueError, "at least 1"),
        (make_toy1, "n_rows", 2.0, TypeError, "positive integer"),
        (make_toy1, "n_rows", True, TypeError, "positive integer"),
        (make_toy1, "bias", float("nan"), ValueError, "between"),
        (make_toy1, "bias", "big", TypeError, "give a number"),
        (make_toy1, "noise", -1, ValueError, "between 0"),
        (make_toy1, "random_state", -1, ValueError, "2**32 - 1"),
        (make_toy2, "sensitive_scale", 0, ValueError, "between"),
        (make_toy2, "input_scale", float("inf"), ValueError, "between 0"),
        (make_biased_income, "n_rows", "9", TypeError, "positive integer"),
        (make_biased_income, "chunks", 0, ValueError, "at least 1"),
        (make_biased_income, "chunks", "auto", TypeError, "positive integer"),
        (make_biased_income, "random_state", 1.5, ValueError, "RandomState"),
    ],
)
def test_bad_arguments_are_named_with_their_remedy(function, name, value, error, remedy):
    rows = {"n_rows": 9} if function is make_biased_income else {}
    with pytest.raises(error) as caught:
        function(**{**rows, name: value})
    assert f"{name}={value!r}" in str(caught.value)
    assert remedy in str(caught.value)


def test_numpy_numbers_are_numbers():
    toy = make_toy1(np.int32(3), bias=np.float32(0.5), random_state=np.int64(0))
    np.testing.assert_array_equal(toy.data, make_toy1(3, random_state=0).data)
    assert len(make_biased_income(np.int64(4), chunks=np.int16(3)).target) == 4
