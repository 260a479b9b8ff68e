"""Base models that take dask collections whole, fitted without each fold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from scalefair.data.sources.dask_tasks import without_columns
from scalefair.estimators._base_model import name_of, weight_name
from scalefair.estimators._data import TrainingData
from scalefair.moments import Folds


def fold_of(folds: Folds, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold of each row."""
    return np.zeros_like(numbers) if folds.of is None else folds.of(numbers)


def _is_outside(folds: Folds, k: int, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(fold_of(folds, numbers) != k)


class CollectionTasks:
    """Fits of a base model: one without each fold, and one on all rows.

    Parameters
    ----------
    model : estimator
        Whose `fit` takes dask collections.
    data : TrainingData
        In a `DaskSource`.
    folds : Folds
    """

    def __init__(self, model: Any, data: TrainingData, folds: Folds) -> None:
        self._model, self._data, self._folds = model, data, folds
        self._weight_name = weight_name(model)

    def fit(self, tell: Callable[[], None], k: int) -> Any:
        """Return the model fitted without fold k; k beyond the last fold: on all rows."""
        given: Any = self._data.given
        parts = given.collections(partial(_is_outside, self._folds, k))
        x, y, preparation = parts["x"], parts["y"], self._data.preparation
        if preparation.hide_sensitive and preparation.sensitive_columns is not None:
            x = without_columns(x, preparation.sensitive_columns)
        options = {}
        if "weight" in parts and self._weight_name is not None:
            options = {self._weight_name: parts["weight"]}
        try:
            model = clone(self._model).fit(x, y, **options)
        except Exception as error:
            raise ValueError(
                f"base_estimator ({name_of(self._model)}) cannot be fitted on dask collections: "
                f"{error}; use base_fit='sample'"
            ) from error
        tell()
        return model
