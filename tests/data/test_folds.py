"""Folds as a function of the row number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, PredefinedSplit, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from scalefair._hash import balanced_fold
from scalefair.data.folds import make_folds
from tests.errors import refused


@given(count=st.integers(2, 9), seed=st.integers(0, 2**63), first=st.integers(0, 10**9))
def test_balanced_folds_deal_every_run_of_rows_once_to_each(count, seed, first):
    runs = np.arange(first * count, (first + 20) * count)
    fold = balanced_fold(count, seed, runs)
    for run in fold.reshape(20, count):
        assert sorted(run) == list(range(count))
    # The fold of a row depends on nothing but its number.
    some = np.random.default_rng(0).permutation(len(runs))[:7]
    np.testing.assert_array_equal(balanced_fold(count, seed, runs[some]), fold[some])


def test_balanced_folds_are_random_and_of_equal_size():
    rows = np.arange(1003)
    fold = balanced_fold(5, 1, rows)
    sizes = np.bincount(fold, minlength=5)
    assert sizes.max() - sizes.min() <= 1
    assert 0.1 < np.mean(fold == balanced_fold(5, 2, rows)) < 0.3
    assert 0.1 < np.mean(fold == rows % 5) < 0.3
    np.testing.assert_array_equal(fold, balanced_fold(5, 1, rows))


def test_folds_are_those_of_the_splitter():
    X, y = np.zeros((20, 1)), np.arange(20.0)
    splitter = KFold(4, shuffle=True, random_state=3)
    masks = [np.isin(np.arange(20), test) for _, test in splitter.split(X)]
    as_masks = [(~test, test) for test in masks]
    for cv in (splitter, list(splitter.split(X)), as_masks):
        folds, some_always_train = make_folds(cv, X, y, 0)
        assert (folds.count, some_always_train) == (4, False)
        for k, (_, test) in enumerate(splitter.split(X)):
            np.testing.assert_array_equal(np.flatnonzero(folds.of_rows(np.arange(20)) == k), test)
    folds, some_always_train = make_folds(3, X, y, 7)
    assert (folds.count, some_always_train) == (3, False)
    np.testing.assert_array_equal(folds.of_rows(np.arange(20)), balanced_fold(3, 7, np.arange(20)))


def test_rows_that_no_split_tests_are_a_fold_of_their_own():
    labels = np.array([-1, 0, 1, -1, 1, 0])
    folds, some_always_train = make_folds(PredefinedSplit(labels), np.zeros((6, 1)), labels, 0)
    assert (folds.count, some_always_train) == (3, True)
    np.testing.assert_array_equal(folds.of_rows(np.arange(6)), [2, 0, 1, 2, 1, 0])


@pytest.mark.parametrize(
    ("cv", "words"),
    [
        (RepeatedKFold(n_splits=2, n_repeats=2), ["cv=RepeatedKFold", "twice"]),
        (ShuffleSplit(3, test_size=0.5, random_state=0), ["cv=ShuffleSplit", "twice"]),
        (TimeSeriesSplit(2), ["cv=TimeSeriesSplit", "training"]),
        ([([0, 1], [2, 3]), ([2, 3, 4, 5], [0, 1])], ["cv=[([", "training"]),
        ([([0, 0, 1], [3, 4, 5]), ([3, 4, 5], [0, 1, 2])], ["cv=[([", "training"]),
        ([([3, 4, 5], [3, 4, 5]), ([0, 1, 2], [0, 1, 2])], ["cv=[([", "training"]),
        ([([0, 1, 2], [3, 3, 3]), ([3, 4, 5], [0, 1, 2])], ["cv=[([", "training"]),
        (1, ["cv=1", 2]),
        (7, ["cv=7", 6]),
    ],
)
def test_splits_that_moments_cannot_follow_are_refused(cv, words):
    with refused(*words, error=ValueError):
        make_folds(cv, np.zeros((6, 1)), np.arange(6.0), 0)
