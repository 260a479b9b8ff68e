"""How many rows a pass reads at a time, and of how many it makes features: the sums do not depend on it."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair._typing import Chunk
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity, RandomFourier
from scalefair.moments import Folds, accumulate
from scalefair.moments.accumulate import MomentAccumulator, Rows
from tests import naive


@pytest.mark.parametrize("folds", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_more_rows_may_be_read_at_once_than_have_features(dtype, folds):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
    phi, psi = RandomFourier(n_components=8, random_state=0).fit(X), Identity().fit(X)
    parts, design = Folds(folds, lambda rows: rows % folds), Design(phi, psi, dtype=dtype)
    some = MomentAccumulator(design, parts, 64)
    some.add(Chunk(X, X, y))
    at_once = accumulate(ArraySource(X, X, y, n_threads=1), design, folds=parts, rows=300)
    for ours, expected in zip(some.result(), at_once, strict=True):
        naive.close(ours.scatter, expected.scatter, 1e-12 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize(
    ("chunk_rows", "expected"),
    [(None, [6_667] * 5 + [6_665]), (9_000, [9_000] * 4 + [4_000])],
    ids=["default", "given"],
)
def test_every_thread_reads_as_many_chunks(chunk_rows, expected):
    X, y = np.random.default_rng(0).normal(size=(2, 40_000, 1))
    source, design, read = ArraySource(X, None, y, n_threads=2), Design(Identity().fit(X)), list[int]()
    counted = source.then(lambda chunk: read.append(chunk.n_rows) or chunk)
    Rows(counted, design, chunk_rows=chunk_rows).moments()
    assert sorted(read, reverse=True) == expected
