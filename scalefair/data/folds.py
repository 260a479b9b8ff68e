"""Folds of a cross-validation as a function of the row number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from scalefair._hash import balanced_fold


@dataclass(frozen=True)
class Folds:
    """Fold 0..count−1 of every row, by its global number; −1 leaves it out, None is fold 0."""

    count: int
    of: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None

    def of_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the fold of each row."""
        return np.zeros_like(numbers) if self.of is None else self.of(numbers)


ALL_ROWS = Folds(1, None)


def make_folds(cv: Any, X: Any, y: Any, seed: int) -> tuple[Folds, bool]:
    """Return the folds of a splitter, of splits or of a count, and whether rows always train."""
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        count = int(cv)
        if count < 2:
            raise ValueError(f"cv={cv!r} is too small; give at least 2 folds")
        if len(y) < count:
            raise ValueError(f"cv={cv!r} makes more folds than there are rows ({len(y)})")
        return Folds(count, partial(balanced_fold, count, seed)), False
    fold = _fold_of_rows(cv, X, y)
    count = int(fold.max()) + 1
    if count < 2:
        raise ValueError(f"cv={cv!r} makes {count} fold, which has no standard error; give at least 2 folds")
    if (fold >= 0).all():
        return Folds(count, lambda rows: fold[rows]), False
    fold = np.where(fold < 0, count, fold)
    return Folds(count + 1, lambda rows: fold[rows]), True


def _fold_of_rows(cv: Any, X: Any, y: Any) -> NDArray[np.int64]:
    """Fold of each row, −1 for rows that are never tested."""
    n = len(y)
    fold = np.full(n, -1)
    if isinstance(X, range):
        X = y = np.empty((n, 1))
    for number, split in enumerate(check_cv(cv, y).split(X, y)):
        train, test = (np.arange(n)[part] for part in split)  # numbers, or flags
        if (fold[test] >= 0).any():
            raise ValueError(
                f"cv={cv!r} tests some rows twice; moments need folds that do not overlap, such as KFold's"
            )
        fold[test] = number
        if not np.array_equal(np.sort(np.concatenate([train, test])), np.arange(n)):
            raise ValueError(
                f"cv={cv!r} leaves rows out of training that it does not test; moments need folds "
                "whose training rows are all the others, such as KFold's"
            )
    return fold
