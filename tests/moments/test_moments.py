"""Moments are those of the rows, for any chunking, order, threads, weights, folds and merges."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Barrier, Thread, get_ident

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from scalefair.data.sources import ArraySource, StackedSource
from scalefair.data.sources.threads import available_threads
from scalefair.features.design import Design
from scalefair.maps import Identity, Nystroem, OneHot, RandomFourier
from scalefair.moments import Folds, Moments, accumulate
from scalefair.moments.accumulate import Rows
from tests import naive
from tests.errors import refused
from tests.models import RowsBlock

SLOW = settings(deadline=None, max_examples=40)
PSI = {"phi": 3, "psi": 2, "y": 2}


def problem(n=57, seed=0, offset=0.0):
    """Rows [Φ, Ψ, y] of widths 3, 2, 2 and weights with zeros among them."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 7)) @ rng.normal(size=(7, 7))
    Z = Z / Z.std(axis=0) + offset
    return Z[:, :3], Z[:, 3:5], Z[:, 5:], rng.integers(0, 3, n) * 0.5


def design(Phi, Psi, y, **options):
    return Design(Identity().fit(Phi), Identity().fit(Psi), y.shape[1], **options)


def moments_of(Phi, Psi, y, weight=None, *, rows=None, n_threads=1, **options):
    source = ArraySource(Phi, Psi, y, weight, n_threads=n_threads)
    (moments,) = accumulate(source, design(Phi, Psi, y, **options), rows=rows)
    return moments


def reference(Phi, Psi, y, weight=None):
    return Moments(**naive.moment_parts(Phi, Psi, y, weight))


def assert_same(actual, expected, tolerance=1e-12, mean_tolerance=None):
    """Entries of the scatter relative to √(S_ii S_jj), means relative to the deviation."""
    assert dict(actual.blocks) == dict(expected.blocks)
    assert actual.n_rows == expected.n_rows
    np.testing.assert_allclose(actual.weight, expected.weight, rtol=1e-14)
    size = np.sqrt(np.diagonal(expected.scatter))
    error = np.abs(actual.scatter - expected.scatter) / np.outer(size, size)
    assert error.max() <= tolerance
    deviation = size / np.sqrt(expected.weight)
    gap = (actual.shift - expected.shift) + (actual.offset - expected.offset)
    # The mean itself is no better known than the numbers it is the mean of.
    scale = deviation + 1e-4 * np.abs(expected.shift)
    assert (np.abs(gap) / scale).max() <= (mean_tolerance or tolerance)


@given(
    n=st.integers(2, 60),
    rows=st.integers(1, 70),
    n_threads=st.integers(1, 4),
    offset=st.sampled_from([0.0, 1.0, 1e3, -1e6]),
    weighted=st.booleans(),
    seed=st.integers(0, 10),
)
@SLOW
def test_any_chunking_and_any_threads(n, rows, n_threads, offset, weighted, seed):
    Phi, Psi, y, weight = problem(n, seed, offset)
    weight = weight + (np.arange(n) < 2) if weighted else None
    moments = moments_of(Phi, Psi, y, weight, rows=rows, n_threads=n_threads)
    assert_same(moments, reference(Phi, Psi, y, weight))


@given(order=st.permutations(range(23)), rows=st.integers(1, 23))
@SLOW
def test_any_row_order(order, rows):
    Phi, Psi, y, weight = problem(23, offset=1e6)
    permuted = (part[order] for part in (Phi, Psi, y, weight))
    assert_same(moments_of(*permuted, rows=rows), reference(Phi, Psi, y, weight))


def random_tree(parts, draw):
    """Merge neighbours until one is left: the commutative, associative sum in any bracketing."""
    parts = list(parts)
    while len(parts) > 1:
        i = draw(st.integers(0, len(parts) - 2))
        left, right = parts[i], parts[i + 1]
        parts[i : i + 2] = [right + left if draw(st.booleans()) else left + right]
    return parts[0]


@given(data=st.data(), offset=st.sampled_from([0.0, 1e6]))
@SLOW
def test_any_merge_tree(data, offset):
    Phi, Psi, y, weight = problem(30, offset=offset)
    cuts = sorted(data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=6)))
    spans = zip([0, *cuts], [*cuts, 30], strict=True)
    parts = [
        moments_of(*(part[a:b] for part in (Phi, Psi, y, weight))) if b > a else Moments.empty(PSI) for a, b in spans
    ]
    assert_same(random_tree(parts, data.draw), reference(Phi, Psi, y, weight))


def test_days_that_drift_merge_exactly():
    """Means of the parts far apart against the deviation inside each."""
    parts = [problem(20, seed, 1e3 * seed)[:3] for seed in range(5)]
    total = sum(moments_of(*part) for part in parts)
    together = [np.concatenate(column) for column in zip(*parts, strict=True)]
    assert_same(total, reference(*together))


def test_empty_is_neutral():
    moments, empty = moments_of(*problem()), Moments.empty(PSI)
    for sum_ in (moments + empty, empty + moments):
        np.testing.assert_array_equal(sum_.scatter, moments.scatter)
        np.testing.assert_array_equal(sum_.mean("phi", "psi", "y"), moments.mean("phi", "psi", "y"))
        assert (sum_.n_rows, sum_.weight) == (moments.n_rows, moments.weight)
    assert (empty + empty).weight == 0
    Phi, Psi, y, _ = problem()
    none = moments_of(Phi, Psi, y, np.zeros(len(y)))
    assert (none.n_rows, none.weight) == (0, 0.0)
    assert_same(none + moments, moments)
    no_rows = ArraySource(Phi[:0], Psi[:0], y[:0])
    assert accumulate(no_rows, design(Phi, Psi, y))[0].weight == 0


def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row():
    Phi, Psi, y, _ = problem(40)
    weight = np.random.default_rng(1).integers(0, 4, 40).astype(float)
    times = weight.astype(int)
    repeated = moments_of(*(np.repeat(part, times, axis=0) for part in (Phi, Psi, y)))
    weighted = moments_of(Phi, Psi, y, weight, rows=7, n_threads=2)
    np.testing.assert_allclose(weighted.scatter, repeated.scatter, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weighted.mean("phi", "y"), repeated.mean("phi", "y"), atol=1e-14)
    assert weighted.weight == repeated.weight
    assert weighted.n_rows == np.count_nonzero(weight)
    present = weight > 0
    dropped = moments_of(*(part[present] for part in (Phi, Psi, y, weight)))
    assert_same(weighted, dropped)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_rows_of_weight_zero_do_not_cost_digits(rows):
    """Absent rows often hold a stand-in for a missing number, far from all the others."""
    Phi, Psi, y, _ = problem(40)
    weight = np.ones(40)
    weight[[0, 1, 2, 17]] = 0
    spoilt = [np.where(weight[:, None] > 0, part, -1e9) for part in (Phi, Psi, y)]
    clean = (part[weight > 0] for part in (Phi, Psi, y))
    assert_same(moments_of(*spoilt, weight, rows=rows), reference(*clean))


@given(rows=st.integers(1, 70), n_threads=st.integers(1, 3), weighted=st.booleans())
@SLOW
def test_folds_are_the_moments_of_their_rows_and_add_up(rows, n_threads, weighted):
    Phi, Psi, y, weight = problem(57, offset=10.0)
    weight = weight if weighted else None
    fold = np.random.default_rng(2).integers(-1, 4, 57)
    folds = Folds(4, lambda numbers: fold[numbers])
    source = ArraySource(Phi, Psi, y, weight, n_threads=n_threads)
    parts = accumulate(source, design(Phi, Psi, y), folds=folds, rows=rows)

    def of(chosen):
        return reference(*(None if p is None else p[chosen] for p in (Phi, Psi, y, weight)))

    for k, part in enumerate(parts):
        assert_same(part, of(fold == k))
    assert_same(sum(parts), of(fold >= 0))
    for one, twice in zip(parts, sum([parts, parts]), strict=True):
        assert_same(twice, one + one)


def test_a_fold_without_rows_is_empty():
    Phi, Psi, y, _ = problem(20)
    folds = Folds(3, lambda rows: np.where(rows < 10, 0, 2))
    source = ArraySource(Phi, Psi, y)
    first, none, last = accumulate(source, design(Phi, Psi, y), folds=folds, rows=6)
    assert none.weight == 0
    assert_same(first + none + last, reference(Phi, Psi, y))


def test_only_equal_blocks_and_keys_add():
    moments = Moments.empty(PSI, "a")
    with refused(PSI, {"phi": 5, "y": 2}, error=ValueError):
        moments + Moments.empty({"phi": 5, "y": 2}, "a")
    with refused("'a'", "'b'", error=ValueError):
        moments + Moments.empty(PSI, "b")
    with pytest.raises(TypeError):
        moments + 1
    with pytest.raises(TypeError):
        1 + moments
    assert (moments + Moments.empty(PSI, "a")).key == "a"


def test_mean_and_covariance_name_their_blocks():
    Phi, Psi, y, weight = problem()
    moments = moments_of(Phi, Psi, y, weight)
    cases = {"phi": Phi, "psi": Psi, "y": y, ("psi", "phi"): np.hstack([Psi, Phi])}
    for a, A in cases.items():
        names = (a,) if isinstance(a, str) else a
        np.testing.assert_allclose(moments.mean(*names), naive.mean(A, weight), atol=1e-13)
        for b, B in cases.items():
            expected = naive.covariance(A, B, weight)
            np.testing.assert_allclose(moments.covariance(a, b), expected, atol=1e-13)


@pytest.mark.parametrize("blocks", [("phi",), ("psi", "y"), ("phi", "psi", "y"), ()])
def test_transform_is_that_of_the_rows(blocks):
    Phi, Psi, y, weight = problem(offset=100.0)
    rng = np.random.default_rng(3)
    widths = {"phi": (3, 5), "psi": (2, 1), "y": (2, 2)}
    linear = {name: rng.normal(size=widths[name]) for name in blocks}
    parts = {"phi": Phi, "psi": Psi, "y": y}
    changed = [part @ linear[name] if name in linear else part for name, part in parts.items()]
    transformed = moments_of(Phi, Psi, y, weight).transform(**linear)
    # Five columns made of three: relative to the largest, not to each.
    expected = reference(*changed, weight)
    naive.close(transformed.scatter, expected.scatter, 1e-12)
    naive.close(transformed.mean(*parts), expected.mean(*parts), 1e-13)
    if len(blocks) == 3:
        np.testing.assert_array_equal(transformed.scatter, transformed.scatter.T)
    assert dict(transformed.blocks) == dict(expected.blocks)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_float32_rows_agree_to_float32(offset, n_threads):
    """Of the same numbers: what float32 rounds is the deviation, not the mean."""
    Phi, Psi, y, weight = problem(300, offset=offset)
    Phi = Phi.astype(np.float32)
    single = moments_of(Phi, Psi, y, weight, rows=20, n_threads=n_threads, dtype=np.float32)
    expected = reference(Phi.astype(float), Psi, y, weight)
    assert_same(single, expected, 1e-6)
    assert single.scatter.dtype == np.float64
    # ψ and y do not pass through float32.
    exact = expected.covariance("psi", "y")
    np.testing.assert_allclose(single.covariance("psi", "y"), exact, rtol=0, atol=1e-12)


def test_sums_over_chunks_are_float64():
    """Added to 2e8 in float32, a chunk's 2 would be lost, and so would all that follow."""
    sign = np.tile([[1.0], [-1.0]], (1001, 1))
    Phi = np.where(np.arange(2002)[:, None] < 2, 1e4, 1.0) * sign
    moments = moments_of(Phi.astype(np.float32), Phi, Phi, rows=2, dtype=np.float32)
    np.testing.assert_allclose(moments.scatter[0, 0], 2e8 + 2000, rtol=1e-12)


@pytest.mark.parametrize("n_landmarks", [10, 40])
def test_whitening_moments_is_whitening_rows(n_landmarks):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
    S = rng.integers(0, 3, (300, 1)).astype(float)
    phi = Nystroem(n_components=n_landmarks, cutoff=1e-8, random_state=0).fit(X)
    psi = OneHot().fit(S)
    source = ArraySource(X, S, y, n_threads=2)
    (rows,) = accumulate(source, Design(phi, psi, whiten_rows=True), rows=64)
    (moments,) = accumulate(source, Design(phi, psi), rows=64)
    expected = reference(phi.transform(X), psi.transform(S), y)
    naive.close(rows.scatter, expected.scatter, 1e-11)
    naive.close(moments.scatter, expected.scatter, 1e-8)
    assert dict(moments.blocks) == dict(expected.blocks)


MAPS = [Identity(), RandomFourier(n_components=8, random_state=0), Nystroem(n_components=8)]


@pytest.mark.parametrize("phi", MAPS, ids=lambda phi: type(phi).__name__)
@pytest.mark.parametrize("whiten_rows", [False, True])
def test_read_only_and_strided_inputs(phi, whiten_rows):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 1))
    phi = phi.fit(X)
    psi = Identity().fit(X)
    strided = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    for inputs in (X.copy(), np.asfortranarray(X), strided):
        inputs.flags.writeable = False
        weight = np.ones(50)
        weight.flags.writeable = False
        source = ArraySource(inputs, inputs, y, weight, n_threads=2)
        maps = Design(phi, psi, whiten_rows=whiten_rows)
        for folds in (Folds(1, np.zeros_like), None):
            (moments,) = accumulate(source, maps, rows=11, **({"folds": folds} if folds else {}))
            expected = reference(phi.transform(X), X, y)
            naive.close(moments.scatter, expected.scatter, 1e-8)
            np.testing.assert_array_equal(inputs, X)


def test_without_sensitive_attributes_there_is_no_psi():
    Phi, _, y, _ = problem()
    (moments,) = accumulate(ArraySource(Phi, None, y), Design(Identity().fit(Phi), None, 2))
    assert dict(moments.blocks) == {"phi": 3, "y": 2}
    np.testing.assert_allclose(moments.covariance("phi", "y"), naive.covariance(Phi, y), atol=1e-13)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_pass_gives_the_same_bits(n_threads, dtype):
    rng = np.random.default_rng(0)
    Phi, Psi, y = (rng.normal(size=(4000, 40)), rng.normal(size=(4000, 3)), rng.normal(size=(4000, 1)))
    run = partial(moments_of, Phi, Psi, y, rows=128, n_threads=n_threads, dtype=dtype)
    first = run()
    for again in (run() for _ in range(5)):
        np.testing.assert_array_equal(again.scatter, first.scatter)
        np.testing.assert_array_equal(again.mean("phi", "psi", "y"), first.mean("phi", "psi", "y"))


def test_two_passes_at_once_are_right_and_give_blas_back():
    blas = ThreadpoolController().select(user_api="blas")
    before = [library["num_threads"] for library in blas.info()]
    rng = np.random.default_rng(0)
    Phi, Psi, y = (rng.normal(size=(3000, 30)), rng.normal(size=(3000, 2)), rng.normal(size=(3000, 1)))
    expected = moments_of(Phi, Psi, y, rows=100, n_threads=2).scatter
    barrier, found = Barrier(2, timeout=10), []

    def fit():
        barrier.wait()
        for _ in range(5):
            found.append(moments_of(Phi, Psi, y, rows=100, n_threads=2).scatter)

    threads = [Thread(target=fit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    for scatter in found:
        np.testing.assert_array_equal(scatter, expected)
    assert [library["num_threads"] for library in blas.info()] == before


@pytest.mark.parametrize("folds", [None, lambda row: row % 2])
def test_blocks_beside_are_columns_like_those_of_psi(folds):
    """Columns given to Ψ or to a block beside it have the same moments, under other names."""
    Phi, Psi, y, weight = problem()
    source = ArraySource(Phi, Psi, y, weight).then(lambda chunk: replace(chunk, h=chunk.s[:, 1:]))
    split = Design(
        Identity().fit(Phi),
        None,
        y.shape[1],
        beside=(RowsBlock("first", 1, lambda chunk: chunk.s[:, :1]), RowsBlock("h", 1, lambda chunk: chunk.h)),
    )
    how = Folds(1, None) if folds is None else Folds(2, folds)
    together = accumulate(source, design(Phi, Psi, y), folds=how, rows=10)
    apart = accumulate(source, split, folds=how, rows=10)
    for one, other in zip(together, apart, strict=True):
        assert list(other.blocks) == ["phi", "first", "h", "y"]
        np.testing.assert_allclose(other.covariance("phi", ("first", "h")), one.covariance("phi", "psi"), rtol=1e-12)
        np.testing.assert_allclose(other.scatter, one.scatter, rtol=1e-12)
    assert "first=first;h=h;" in other.key


@pytest.mark.parametrize("width", [3, 400])
def test_rows_of_one_chunk_are_divided_among_threads_and_blas_has_one(width):
    rng = np.random.default_rng(0)
    Phi, Psi, y = rng.normal(size=(700, width)), rng.normal(size=(700, 2)), rng.normal(size=(700, 1))
    chunks = []

    def count(chunk):
        blas = ThreadpoolController().select(user_api="blas").info()
        chunks.append((chunk.n_rows, {library["num_threads"] for library in blas}))
        return chunk

    (divided,) = accumulate(ArraySource(Phi, Psi, y, n_threads=2).then(count), design(Phi, Psi, y))
    assert {rows for rows, _ in chunks} == ({700} if width == 3 else {350})
    assert all(threads == {1} for _, threads in chunks)
    assert_same(divided, moments_of(Phi, Psi, y, rows=100))


@pytest.mark.skipif(available_threads() < 2, reason="one core, or one thread of BLAS")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_pass_uses_every_thread_that_the_caller_leaves_it(streamed):
    """A limit on BLAS that the pass sets itself must not count as one of the caller's."""
    rng, seen = np.random.default_rng(0), set()
    Phi, Psi, y = rng.normal(size=(4000, 100)), rng.normal(size=(4000, 2)), rng.normal(size=(4000, 1))

    def count(chunk):
        seen.add(get_ident())
        return chunk

    source = ArraySource(Phi, Psi, y)
    source = StackedSource(source, ArraySource(Phi, Psi, y)) if streamed else source
    Rows(source.then(count), design(Phi, Psi, y), chunk_rows=100).moments()
    assert len(seen) >= min(2, available_threads())
    alone = ArraySource(Phi, Psi, y, n_threads=1).then(count)
    seen.clear()
    Rows(alone, design(Phi, Psi, y), chunk_rows=100).moments()
    assert len(seen) == 1
