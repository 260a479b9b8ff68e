"""A long pass that crashes goes on where it stopped, and counts no row twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from scalefair import BatchSource, FairKernelRidge, FairKernelRidgeCV, FairRidge, config_context, scan_csv, scan_parquet
from scalefair.data.encoding import SensitiveEncoder
from scalefair.data.preparation import Preparation
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity
from scalefair.moments import Checkpoint, accumulate
from tests.errors import refused
from tests.models import fit_within

N = 1000


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, X[:, :1] + rng.normal(size=(N, 1))


class CrashError(Exception):
    pass


class Watched:
    """A change that counts the rows that pass, and may fail at one of them."""

    def __init__(self, fail_at=None):
        self.fail_at, self.seen = fail_at, []

    def __call__(self, chunk):
        if self.fail_at is not None and chunk.row >= self.fail_at:
            raise CrashError
        self.seen.extend(range(chunk.row, chunk.row + chunk.n_rows))
        return chunk


def source(change, n_threads):
    X, y = problem()
    return ArraySource(X, None, y, n_threads=n_threads).then(change)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("fail_at", [0, 35, 400, 990])
def test_a_crashed_pass_goes_on(fail_at, n_threads, tmp_path):
    X, y = problem()
    design = Design(Identity().fit(X))
    (expected,) = accumulate(ArraySource(X, None, y), design)
    checkpoint = Checkpoint(tmp_path / "c", seconds=0.0, chunks=3)
    with pytest.raises(CrashError):
        accumulate(source(Watched(fail_at), n_threads), design, rows=10, checkpoint=checkpoint)
    _, kept = checkpoint.read(design.key, 1)
    assert kept == fail_at // 30 * 30
    second = Watched()
    (moments,) = accumulate(source(second, n_threads), design, rows=10, checkpoint=checkpoint)
    assert sorted(second.seen) == list(range(N))  # once each: what was counted is compared
    assert moments.n_rows == N
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=1e-11, atol=1e-9)
    assert not (tmp_path / "c").exists()


def test_other_chunks_may_read_the_rest(tmp_path):
    X, y = problem()
    design = Design(Identity().fit(X))
    checkpoint = Checkpoint(tmp_path / "c", seconds=0.0, chunks=2)
    with pytest.raises(CrashError):
        accumulate(source(Watched(500), 2), design, rows=7, checkpoint=checkpoint)
    (moments,) = accumulate(source(Watched(), 1), design, rows=64, checkpoint=checkpoint)
    (expected,) = accumulate(ArraySource(X, None, y), design)
    assert moments.n_rows == N
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=1e-11, atol=1e-9)


def test_other_maps_refuse_the_file(tmp_path):
    X, _ = problem()
    checkpoint = Checkpoint(tmp_path / "c", seconds=0.0, chunks=2)
    design = Design(Identity().fit(X))
    with pytest.raises(CrashError):
        accumulate(source(Watched(500), 1), design, rows=10, checkpoint=checkpoint)
    other = replace(design, preparation=Preparation(sensitive_encoder=SensitiveEncoder().fit(X)))
    with refused("checkpoint=", tmp_path / "c", error=ValueError):
        accumulate(source(Watched(), 1), other, rows=10, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("change", "parameters"),
    [
        ("y", {}),  # of which the maps know nothing
        ("weight", {}),
        ("folds", {"cv": 4}),
        ("folds", {"random_state": 1}),
    ],
)
def test_other_targets_weights_and_folds_refuse_the_file(change, parameters, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)  # as if it had crashed at its end
    X, y = problem()
    settings = {"checkpoint": tmp_path / "c", "chunk_rows": 50}
    given = {"y": y[:, 0], "sensitive_features": X[:, 0] > 0, "sample_weight": np.ones(N)}
    model = FairKernelRidgeCV(feature_map="linear", random_state=0, cv=3)
    plain, again = (fit_within(settings, model, X, **given).predict(X) for _ in range(2))
    np.testing.assert_array_equal(again, plain)
    if change == "y":
        given["y"] = -given["y"]
    elif change == "weight":
        given["sample_weight"] = np.arange(1.0, N + 1)
    with refused("checkpoint=", tmp_path / "c", error=ValueError):
        fit_within(settings | parameters, model, X, **given)


@pytest.mark.parametrize("cls", [FairKernelRidge, FairKernelRidgeCV])
def test_an_estimator_goes_on_after_a_crash(cls, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))
    X, y = problem()
    s = X[:, 0] + 1
    passes = []

    def batches(fail):
        passes.append(0)
        for start in range(0, N, 50):
            if fail and len(passes) == fail and start == 600:
                raise CrashError
            passes[-1] += 50
            rows = slice(start, start + 50)
            yield X[rows], y[rows, 0], s[rows], None

    settings = {"chunk_rows": 50, "checkpoint": tmp_path / "c"}
    model = cls(n_components=20, random_state=0)
    expected = clone(model).fit(X, y[:, 0], sensitive_features=s)
    last = _passes_of_a_fit(model, X, y, s)
    passes.clear()
    with pytest.raises(CrashError):
        fit_within(settings, model, BatchSource(lambda: batches(last)), None)
    assert (tmp_path / "c").exists()
    assert not hasattr(model, "coef_")
    passes.clear()
    fit_within(settings, model, BatchSource(lambda: batches(0)), None)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-9, atol=1e-10)
    assert model.n_samples_seen_ == N
    assert not (tmp_path / "c").exists()


def _eager(init):
    return lambda self, path: init(self, path, seconds=0.0, chunks=2)


def _passes_of_a_fit(model, X, y, s):
    """How often a fit begins to read: the last time is the pass that sums."""
    count = []

    def batches():
        count.append(1)
        for start in range(0, N, 50):
            rows = slice(start, start + 50)
            yield X[rows], y[rows, 0], s[rows], None

    clone(model).fit(BatchSource(batches), None)
    return len(count)


OTHERS = {
    "other rows": lambda X, y: (X + 1.0, y),
    "another target": lambda X, y: (X, 2.0 * y),
    "fewer rows": lambda X, y: (X[:400], y[:400]),
    "one input": lambda X, y: (_changed(X), y),
    "one target": lambda X, y: (X, _changed(y)),
    "two rows in another order": lambda X, y: (_swapped(X), _swapped(y)),
}


def _changed(values, row=300):
    """The least change of one number, amid the rows that have been counted."""
    values = values.copy()
    values[row] = np.nextafter(values[row], np.inf)
    return values


def _swapped(values):
    return np.concatenate([values[:300], values[300:302][::-1], values[302:]])


@pytest.mark.parametrize("how", OTHERS)
def test_other_data_does_not_go_on_from_the_sums(how, tmp_path, monkeypatch):
    """Nothing about a linear map of numbers tells the data: the checkpoint itself must."""
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))
    X, y = problem()
    model = FairRidge(eta=0.0, n_jobs=1)
    expected = clone(model).fit(X, y[:, 0])
    with config_context(chunk_rows=10, checkpoint=tmp_path / "c"):
        _crash(model, lambda model: model.fit(X, y[:, 0]))
        with refused("checkpoint=", tmp_path / "c", error=ValueError):
            model.fit(*OTHERS[how](X, y[:, 0]))
        np.testing.assert_allclose(model.fit(X, y[:, 0]).coef_, expected.coef_, rtol=1e-10)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("row", [0, 1, 299, 300, 301, 539, 540, 999])
def test_a_change_is_noticed_in_counted_rows_only(row, n_threads, tmp_path):
    """Rows that come after them may be others: they have not been counted yet."""
    X, y = problem()
    design = Design(Identity().fit(X))
    checkpoint = Checkpoint(tmp_path / "c", seconds=0.0, chunks=3)
    with pytest.raises(CrashError):
        accumulate(source(Watched(555), n_threads), design, rows=10, checkpoint=checkpoint)
    assert checkpoint.read(design.key, 1)[1] == 540
    other = ArraySource(X, None, _changed(y, row), n_threads=n_threads)
    go_on = partial(accumulate, design=design, rows=17, checkpoint=checkpoint)
    if row < 540:
        with refused("checkpoint=", tmp_path / "c", error=ValueError):
            go_on(other)
        assert (tmp_path / "c").exists()
        other = ArraySource(X, None, y, n_threads=n_threads)
    (moments,) = go_on(other)
    assert moments.n_rows == N


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_with_another_row_is_noticed(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))
    X, y = problem()
    path = tmp_path / f"data.{suffix}"
    scan = {"csv": scan_csv, "parquet": scan_parquet}[suffix]

    def fit(model, table):
        table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
        data = scan(path)
        return model.fit(data.drop(["y", "g"]), data["y"], sensitive_features=data["g"])

    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table = table.assign(y=y[:, 0], g=np.where(X[:, 0] > 0, "u", "v"))
    model = FairRidge(eta=1.0, n_jobs=1)
    expected = fit(clone(model), table)
    other = table.copy()
    other.loc[300, "g"] = "v" if table["g"][300] == "u" else "u"
    with config_context(chunk_rows=10, checkpoint=tmp_path / "c"):
        _crash(model, lambda model: fit(model, table))
        with refused("checkpoint=", tmp_path / "c", error=ValueError):
            fit(model, other)
        np.testing.assert_allclose(fit(model, table).coef_, expected.coef_, rtol=1e-9)


def test_fewer_batches_than_were_counted_are_noticed(tmp_path):
    """Nothing but reading tells how many there are."""
    X, y = problem()
    design = Design(Identity().fit(X))
    checkpoint = Checkpoint(tmp_path / "c", seconds=0.0, chunks=3)
    with pytest.raises(CrashError):
        accumulate(source(Watched(555), 1), design, rows=10, checkpoint=checkpoint)
    fewer = BatchSource(lambda: ((X[i : i + 50], y[i : i + 50]) for i in range(0, 500, 50)))
    with refused("checkpoint=", tmp_path / "c", error=ValueError):
        accumulate(fewer, design, rows=10, checkpoint=checkpoint)


def test_other_folds_do_not_go_on_from_the_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))
    X, y = problem()
    model = FairKernelRidgeCV(feature_map="linear", etas=[0.0], cv=3, n_jobs=1, random_state=0)
    settings = {"chunk_rows": 10, "checkpoint": tmp_path / "c"}
    _crash(model, lambda model: fit_within(settings, model, X, y[:, 0]))
    for other in ({"cv": 4}, {"random_state": 1}):
        with refused("checkpoint=", tmp_path / "c", error=ValueError):
            fit_within(settings | other, clone(model), X, y[:, 0])


def _crash(model, fit):
    """Fit until a few sums have been kept."""
    kept = []

    def write(self, moments, next_row):
        kept.append(next_row)
        WRITE(self, moments, next_row)
        if len(kept) == 30:
            raise CrashError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", write)
        with pytest.raises(CrashError):
            fit(clone(model))
    assert kept[-1] > 400


WRITE = Checkpoint.write
