"""One opener and one first pass: any container and any chunking tell the same."""

import functools
import operator

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalefair
from scalefair import FairKernelClassifier, FairRidge, audit
from scalefair._typing import Chunk
from scalefair.data import Look, open_rows, survey_rows
from scalefair.data.encoding import SensitiveEncoder
from scalefair.data.sources import BatchSource, FileSource
from scalefair.data.survey import Surveyor
from scalefair.measures import explained_share, group_gaps, hsic
from tests.errors import refused
from tests.groups import people

pytestmark = pytest.mark.filterwarnings("ignore:.*too small to judge")

S = ["sex", "race", "few", "age"]
LOOKS = {"x": Look("y_pred", values=True), "s": Look("s", values=True, groups=True), "y": Look("y_true")}
NAMES = [
    "explained_share",
    "explained_share_in_sample",
    "normalized_hsic",
    "hsic",
    "nocco",
    "distance_correlation",
    "mutual_information",
    "hsic_pvalue",
    "conditional_hsic_pvalue",
]


@pytest.fixture(scope="module")
def frame():
    return people(900).assign(few=np.arange(900) % 3.0)


def surveyed(frame, *, drop=False, rows=None, **parts):
    source = open_rows(frame[["score"]], frame[S], frame["truth"], frame["weight"], **parts).source
    if rows is None:
        return survey_rows(source, LOOKS, size=50, seed=3, drop=drop)
    return source.fold(lambda: Surveyor(LOOKS, 50, 3, drop=drop), rows)


def check_same(first, second):
    assert first.n_rows == second.n_rows
    assert first.n_present == second.n_present
    assert first.n_missing == second.n_missing
    assert first.weight == pytest.approx(second.weight)
    assert first.heaviest == second.heaviest
    assert sorted(first.sample.rows) == sorted(second.sample.rows)
    for part in LOOKS:
        a, b = first.parts[part], second.parts[part]
        assert [c.few for c in a.columns.columns] == [c.few for c in b.columns.columns]
        for left, right in zip(a.columns.columns, b.columns.columns, strict=True):
            assert left.levels == pytest.approx(right.levels)
            assert left.kind == right.kind
            ends = (left.spread.low, left.spread.high, left.spread.mean, left.spread.scatter)
            others = (right.spread.low, right.spread.high, right.spread.mean, right.spread.scatter)
            assert ends == pytest.approx(others)


def combinations(survey, columns):
    groups = survey.parts["s"].groups
    return set(map(tuple, pd.DataFrame(groups, columns=S)[columns].astype(str).to_numpy()))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=4), st.randoms())
def test_surveys_merge_in_any_order(cuts, random):
    frame = people(200, seed=3).assign(few=np.arange(200) % 3.0)
    whole, parts = surveyed(frame), []
    for first, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 200], strict=True):
        part = frame.iloc[first:stop]
        surveyor = Surveyor(LOOKS, 50, 3, drop=False)
        y, w = part["truth"].to_numpy(float)[:, None], part["weight"].to_numpy(float)
        surveyor.add(Chunk(part[["score"]], part[S], y, w, row=first))
        parts.append(surveyor.result())
    random.shuffle(parts)
    check_same(functools.reduce(operator.add, parts), whole)


def test_a_survey_counts_what_pandas_counts(frame):
    gaps = frame.assign(race=frame["race"].where(frame.index % 7 > 0))
    kept = gaps[gaps["race"].notna() & (gaps["weight"] > 0)]
    survey = surveyed(gaps, drop=True)
    assert (survey.n_rows, survey.n_present) == (900, len(kept))
    assert survey.n_missing == ((gaps["weight"] > 0) & gaps["race"].isna()).sum()
    assert survey.weight == kept["weight"].sum()
    assert survey.heaviest == kept["weight"].max()
    expected = set(map(tuple, kept[["sex", "race", "few"]].astype(str).to_numpy()))
    assert combinations(survey, ["sex", "race", "few"]) == expected
    assert survey.parts["s"].columns.columns[2].few == (0.0, 1.0, 2.0)
    assert survey.parts["s"].columns.columns[3].few is None
    check_same(surveyed(gaps, drop=True, rows=37), survey)


def test_numbers_with_more_values_than_a_chunk_shows_are_no_categories(frame):
    ordered = frame.assign(few=np.arange(900) // 100.0)
    whole, cut = surveyed(ordered), surveyed(ordered, rows=100)
    assert whole.parts["s"].columns.columns[2].few is None
    check_same(cut, whole)
    assert len(cut.parts["s"].groups) == len(whole.parts["s"].groups) == 6


@pytest.mark.parametrize("kind", ["polars", "dask", "scan", "batches"])
def test_every_container_is_surveyed_alike(frame, kind, tmp_path):
    frame.to_parquet(tmp_path / "people.parquet", row_group_size=200)
    parts = (frame[["score"]], frame[S], frame["truth"], frame["weight"])
    data = {"polars": pl.from_pandas, "dask": lambda f: dd.from_pandas(f, npartitions=3)}.get(kind)
    if kind == "batches":
        cut = [
            tuple(part[i : i + 250] for part in (parts[0], parts[2], parts[1], parts[3])) for i in range(0, 900, 250)
        ]
        rows = open_rows(BatchSource(cut))
    else:
        data = scalefair.scan_parquet(tmp_path) if kind == "scan" else data(frame)
        rows = open_rows(data[["score"]], data[S], data["truth"], data["weight"])
    assert rows.in_memory == (kind == "polars")
    check_same(survey_rows(rows.source, LOOKS, size=50, seed=3), surveyed(frame))


def test_batches_bring_all_parts(frame):
    source = BatchSource([(frame[["score"]], frame["truth"], frame[S])])
    with refused("sensitive_features", error=ValueError):
        open_rows(source, frame[S])


class Counting:
    """Batches of people that count how many of them were handed over."""

    def __init__(self, frame, size=100):
        self.frame, self.size, self.count = frame, size, 0

    def __call__(self):
        for first in range(0, len(self.frame), self.size):
            part = self.frame[first : first + self.size]
            yield part[["score", "target"]], part["truth"], part[S]
            self.count += 1  # not reached where only the first batch is looked at


def test_an_audit_reads_batches_twice(frame):
    batches = Counting(frame)
    found = audit(BatchSource(batches), sensitive_features=None, threshold=0.3)
    assert batches.count == 2 * 9
    data = dd.from_pandas(frame, npartitions=2)
    same = audit(data[["score", "target"]], sensitive_features=data[S], y_true=data["truth"], threshold=0.3)
    assert set(found.table["measure"]) >= set(NAMES)
    pd.testing.assert_frame_equal(found.table, same.table, rtol=1e-9)


def test_an_audit_reads_files_twice(frame, tmp_path, monkeypatch):
    frame.to_parquet(tmp_path / "people.parquet", row_group_size=200)
    data, passes = scalefair.scan_parquet(tmp_path), []
    read = FileSource._read
    monkeypatch.setattr(FileSource, "_read", lambda s, rows: passes.append(rows) or read(s, rows))
    audit(data[["score", "target"]], sensitive_features=data[S], y_true=data["truth"])
    assert len(passes) == 2
    group_gaps(data["score"], sensitive_features=data["sex"])
    assert len(passes) == 4


def test_an_audit_computes_dask_twice(frame):
    blocks = []
    score = da.from_array(frame["score"].to_numpy(), chunks=300)
    score = score.map_blocks(lambda block: blocks.append(len(block)) or block, meta=np.empty(0))
    audit(score, sensitive_features=frame[S], y_true=frame["truth"])
    assert sum(blocks) == 2 * 900


def test_a_measure_reads_files_twice(frame, tmp_path, monkeypatch):
    frame.to_parquet(tmp_path / "people.parquet")
    data, passes = scalefair.scan_parquet(tmp_path), []
    read = FileSource._read
    monkeypatch.setattr(FileSource, "_read", lambda s, rows: passes.append(rows) or read(s, rows))
    for measure in (explained_share, hsic):
        measure(data["score"], data[S])
        assert len(passes) == 2
        passes.clear()


def test_rows_of_weight_0_do_not_count_whatever_they_hold(frame):
    s = frame[["sex", "age"]].assign(sex=frame["sex"].where(frame["weight"] > 0))
    present = frame["weight"] > 0
    for measure in (explained_share, hsic):
        with_gaps = measure(frame["score"], s, sample_weight=frame["weight"])
        filled = measure(frame["score"], frame[["sex", "age"]], sample_weight=frame["weight"])
        assert with_gaps == pytest.approx(filled, rel=1e-12)
    without = hsic(frame["score"][present], s[present], sample_weight=frame["weight"][present])
    assert hsic(frame["score"], s, sample_weight=frame["weight"]) == pytest.approx(without)


def test_an_encoder_knows_rows_of_weight_zero_and_groups_do_not(frame):
    s = frame["sex"].astype(str).where(frame.index > 0, "only here")
    weight = np.where(frame.index > 0, 1.0, 0.0)
    rows = open_rows(frame[["score"]], s, frame["truth"], weight).source
    looks = {"s": Look("", groups=True)}
    survey = survey_rows(rows, looks, size=None, seed=3, all_rows=True)
    (column,) = survey.parts["s"].columns.columns
    assert column.levels["only here"] == 0.0
    assert set(survey.parts["s"].groups["sex"]) == set(s[1:])
    assert (survey.n_rows, survey.n_present, len(survey.sample.rows)) == (900, 899, 899)


def test_a_survey_says_where_numbers_are_not_finite_and_attributes_missing(frame):
    x, s = frame[["score"]].to_numpy(), frame["sex"].astype(str)
    infinite, gap = np.where(np.arange(900)[:, None] == 800, np.inf, x), s.where(s.index != 5)
    looks = {"s": Look("", check=SensitiveEncoder.check_present)}
    batches = [
        (
            "batches 0 to 1",
            ["X has", "1 value", "column 0", "infinite"],
            [(infinite[:300], None, s[:300]), (infinite[300:], None, s[300:])],
        ),
        ("batch 0", ["'sex'", "1 missing"], [(x, None, gap)]),
    ]
    for where, words, batch in batches:
        with refused(*words, error=ValueError) as caught:
            survey_rows(BatchSource(batch), looks, size=5, seed=3, finite=("x", "weight"))
        assert caught.value.where == where


def test_weights_beside_dask_in_memory_or_as_a_frame(frame):
    data = dd.from_pandas(frame, npartitions=3)
    for weight in (frame["weight"], frame["weight"].tolist(), data[["weight"]]):
        source = open_rows(data[["score"]], data[S], data["truth"], weight).source
        check_same(survey_rows(source, LOOKS, size=50, seed=3), surveyed(frame))


@pytest.mark.parametrize("model", [FairRidge(), FairKernelClassifier(random_state=0)])
def test_fits_of_scans_compute_what_is_in_dask(frame, model, tmp_path):
    frame.to_parquet(tmp_path / "people.parquet")
    scan, lazy = scalefair.scan_parquet(tmp_path), dd.from_pandas(frame, npartitions=3)
    x, y = ["score", "age"], "truth"
    options = {"sensitive_features": lazy["sex"], "sample_weight": lazy["weight"]}
    streamed = model.fit(scan[x], scan[y], **options).predict(frame[x])
    options = {"sensitive_features": frame["sex"], "sample_weight": frame["weight"]}
    np.testing.assert_allclose(streamed, model.fit(frame[x], frame[y], **options).predict(frame[x]))


def test_targets_and_weights_of_a_scan_beside_rows_in_memory(frame, tmp_path):
    frame.to_parquet(tmp_path / "people.parquet")
    scan, x = scalefair.scan_parquet(tmp_path), frame[["score", "age"]]
    model = FairRidge().fit(x, scan["truth"], sensitive_features=scan["sex"], sample_weight=scan["weight"])
    expected = FairRidge().fit(x, frame["truth"], sensitive_features=frame["sex"], sample_weight=frame["weight"])
    np.testing.assert_array_equal(model.predict(x), expected.predict(x))
