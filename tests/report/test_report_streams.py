"""Reports of rows that are not in memory: the same rows, and no more memory than the fit."""

import tracemalloc

import numpy as np
import pytest

import scalefair
from scalefair import FairKernelRidgeCV, FairRidge
from scalefair.auditing import audit
from scalefair.data import frames
from scalefair.errors import InputError
from scalefair.report import fit_frontier, from_scan, from_table
from scalefair.report.judge import Judge, Outputs
from tests.errors import refused
from tests.report.test_report_positions import SMALL, people


@pytest.mark.slow
def test_a_streamed_report_needs_no_more_memory_than_the_fit(tmp_path, monkeypatch):
    """Held-out rows are bounded, and no array has an entry for each of the others."""
    monkeypatch.setattr("scalefair.report.problem.MAX_HELD_OUT", 300)
    peaks = {}
    model = FairKernelRidgeCV(unfairness=0.05, sensitive_columns=["sex"], cv=2, **SMALL)
    with scalefair.config_context(chunk_rows=1000):
        for n in (4_000, 16_000):
            X, y, S = people(n)
            X.assign(sex=S["sex"], y=y).to_parquet(tmp_path / f"{n}.parquet", row_group_size=1000)
            scan = scalefair.scan_parquet(tmp_path / f"{n}.parquet")
            del X, y, S
            inputs = scan[["x", "grade", "sex"]]
            for name, work in (
                ("fit", lambda inputs=inputs, scan=scan: model.fit(inputs, scan["y"])),
                ("report", lambda scan=scan: fit_frontier(from_scan(scan, target="y", sensitive=["sex"]), model)),
            ):
                peaks[name, n] = peak_memory(work)
    growth = {name: peaks[name, 16_000] - peaks[name, 4_000] for name in ("fit", "report")}
    assert growth["report"] <= max(growth["fit"], 0) + 5 * 12_000, peaks
    assert peaks["report", 16_000] < 1.1 * peaks["fit", 16_000], peaks


def test_models_are_judged_some_at_a_time(monkeypatch):
    """The memory of a judgement does not grow with the number of models; nothing else changes."""
    _, y, S = people(300)
    rng, judge, seen = np.random.default_rng(0), Judge.of(S[["sex"]], y, None), []
    given = [Outputs(y + size * rng.normal(size=len(y))) for size in np.linspace(0.1, 1, 5)]
    expected = judge.positions(given, given[-1])

    def count(models, **options):
        seen.append(len(models))
        return audit(models, **options)

    monkeypatch.setattr("scalefair.report.judge.MAX_VALUES", 2 * len(y) + 1)
    monkeypatch.setattr("scalefair.report.judge.audit", count)
    for one, other in zip(judge.positions(given, given[-1]), expected, strict=True):
        assert [entry[:3] for entry in one.entries] == [entry[:3] for entry in other.entries]
        numbers, same = ([entry[3:6] for entry in position.entries] for position in (one, other))
        np.testing.assert_allclose(numbers, same, rtol=1e-10, atol=1e-14)
    assert seen == [2, 2, 1]


def peak_memory(work):
    work()  # imports and caches
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("text", [False, True])
def test_streamed_rows_are_fitted_without_those_held_out(tmp_path, text):
    X, y, S = people(400)
    y = np.where(y > 1, "yes", "no") if text else y
    weight = np.random.default_rng(0).random(400)
    table = X.assign(sex=S["sex"], y=y, w=weight)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=90)
    scan = scalefair.scan_parquet(tmp_path / "t.parquet")
    problem = from_scan(scan, target="y", sensitive=["sex"], weight="w", hidden=True)
    assert (problem.train.n_rows, problem.test.n_rows) == (320, 80)
    rest = np.delete(np.arange(400), problem.tested)
    target = (y == "yes").astype(float) if text else y
    model = problem.train.fit(FairRidge(eta=1.0))
    expected = FairRidge(eta=1.0).fit(
        X.iloc[rest], target[rest], sensitive_features=S[["sex"]].iloc[rest], sample_weight=weight[rest]
    )
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
    held_out = table.iloc[problem.tested]
    np.testing.assert_array_equal(frames.to_numpy(problem.test.X), held_out[["x", "grade"]])
    np.testing.assert_array_equal(problem.test.y, target[problem.tested])


def test_a_target_with_a_third_level_somewhere_is_refused(tmp_path):
    X, y, S = people(400)
    y = np.where(y > 1, "yes", "no").astype(object)
    tested = from_table(X.assign(y=y, sex=S["sex"]), target="y", sensitive=["sex"]).tested
    y[np.setdiff1d(np.arange(400), tested)[5]] = "maybe"
    X.assign(sex=S["sex"], y=y).to_parquet(tmp_path / "t.parquet")
    problem = from_scan(scalefair.scan_parquet(tmp_path / "t.parquet"), target="y", sensitive=["sex"])
    with refused("'y'", "'maybe'", error=InputError):
        problem.train.fit(FairRidge(eta=1.0, sensitive_columns=["sex"]))
