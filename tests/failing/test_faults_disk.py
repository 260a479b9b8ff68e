"""A disk that is full: an error that says so, the old file as it was, and no row lost."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from scalefair import Moments, load, save
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import RandomFourier
from scalefair.moments import Checkpoint, accumulate
from tests.errors import refused
from tests.faults import RNG, TIMES, N, X, Y, fitted, nothing_left_running


@contextmanager
def usual_disk():
    """Afterwards files may be as large as before."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def limit_files(size):
    """No file may grow beyond so many bytes, which is how a full disk shows."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def disk_of(size):
    with usual_disk():
        limit_files(size)
        yield


class Filling:
    """The disk is full from a row on."""

    def __init__(self, row):
        self.row = row

    def __call__(self, chunk):
        if chunk.row >= self.row:
            limit_files(100)
        return chunk


@pytest.fixture(scope="module")
def models():
    old, new = fitted(), fitted(eta=5.0, n_components=60)
    return old, new


@pytest.mark.parametrize("kind", ["model", "moments"])
def test_a_full_disk_while_saving_keeps_the_old_file(models, kind, tmp_path):
    write = save if kind == "model" else lambda model, path: model.moments_.save(path)
    path, (old, new) = tmp_path / "kept", models
    write(new, path)
    size = path.stat().st_size
    write(old, path)
    before = path.read_bytes()
    with nothing_left_running():
        for limit in RNG.integers(0, size, TIMES):
            with disk_of(int(limit)), refused("kept", error=OSError):
                write(new, path)
            assert os.listdir(tmp_path) == ["kept"]
            assert path.read_bytes() == before
    with disk_of(size):
        write(new, path)
    if kind == "model":
        np.testing.assert_array_equal(load(path).predict(X), new.predict(X))
    else:
        np.testing.assert_array_equal(Moments.load(path).scatter, new.moments_.scatter)


def test_a_full_disk_while_checkpointing_loses_no_row(tmp_path):
    design = Design(RandomFourier(n_components=20, random_state=0).fit(X))
    y = Y[:, None]
    (expected,) = accumulate(ArraySource(X, None, y, n_threads=2), design, rows=100)
    path = tmp_path / "c"
    run = partial(accumulate, design=design, rows=100, checkpoint=Checkpoint(path, 0.0, 4))
    for _ in range(TIMES):
        full = Filling(400 * RNG.integers(1, N // 400))
        with nothing_left_running(), usual_disk(), refused(error=OSError):
            run(ArraySource(X, None, y, n_threads=2).then(full))
        assert os.listdir(tmp_path) == ["c"]  # of the round before
        (moments,) = run(ArraySource(X, None, y, n_threads=2))
        assert moments.n_rows == N
        np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=1e-10, atol=1e-9)
        assert os.listdir(tmp_path) == []
