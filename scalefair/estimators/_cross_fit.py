"""Cross-fitting: every training row gets the prediction of a base model that never saw it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from scalefair._digest import digest
from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.sources import ArraySource, DaskSource, Sampler
from scalefair.data.sources.threads import available_threads, run_threads
from scalefair.estimators._base_model import (
    BaseModel,
    FromArray,
    check_varies,
    container,
    is_fitted,
    name_of,
    predictions,
    weight_name,
    whole_change,
)
from scalefair.estimators._collections import CollectionTasks, fold_of
from scalefair.estimators._data import TrainingData
from scalefair.estimators._progress import steps
from scalefair.features.design import Block
from scalefair.moments import Folds

FOLDS = 5
"""Folds of the cross-fitting where no cross-validation asks for others."""

SUSPICIOUS = 0.5
"""Less than this share of a fresh copy's error: a fitted model has seen the rows, most likely."""

SUSPECT_ROWS = 4000
"""Rows that this is judged on, half of them to fit the copy."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that base models are fitted on: a split chunk, and the number of each row."""

    chunk: Chunk
    numbers: NDArray[np.int64]
    one_target: bool

    @property
    def y(self) -> Array:
        """Targets, in as many dimensions as the user gave."""
        return np.asarray(self.chunk.y[:, 0] if self.one_target else self.chunk.y)


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Joins, to each row, the prediction of the model that was fitted without its fold."""

    models: tuple[Any, ...]
    folds: Folds
    base: BaseModel

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with ĥ(x) beside x."""
        numbers = np.arange(chunk.row, chunk.row + chunk.n_rows)
        fold = fold_of(self.folds, numbers)
        h = np.empty((chunk.n_rows, self.base.width))
        for k in np.unique(fold):
            at = np.flatnonzero(fold == k)
            h[at] = predictions(self.models[k], frames.take_rows(chunk.x, at), self.base.scale)
        return replace(chunk, h=h)


def base_block(base: BaseModel | None) -> tuple[Block, ...]:
    """Return ĥ as a block of rows beside φ and ψ; none without a base model."""
    return () if base is None else (Block("base", base.width, attrgetter("h"), base.key),)


def cross_fitted(estimator: Any, data: TrainingData) -> TrainingData:
    """Fit the base model of an estimator, if it has one, and let its predictions join the rows."""
    if getattr(estimator, "base_estimator", None) is None:
        return data
    if is_fitted(estimator.base_estimator):
        return _with_fitted(estimator, data)
    folds = estimator._make_folds(data)
    if estimator.base_fit == "collection":
        return _with_collections(estimator, data, folds)
    rows = _rows_to_fit(estimator, data)
    seeded = _seeded(estimator.base_estimator, data.seed)
    tasks = _Tasks(seeded, rows, fold_of(folds, rows.numbers), estimator._base_scale)
    with steps(estimator, "base models", folds.count + 1) as tell:
        models = in_lanes(partial(tasks.fit, tell), folds.count + 1, estimator.n_jobs)
    *held, whole = models
    base = _signed(whole, data, estimator._base_scale)
    joined = _joined(data, base, _training_change(data, tasks, held, folds, base))
    return replace(joined, n_base_samples=len(rows.numbers))


def _with_collections(estimator: Any, data: TrainingData, folds: Folds) -> TrainingData:
    """Let a base model that takes dask collections fit itself on them."""
    if not isinstance(data.given, DaskSource):
        raise ValueError(
            "base_fit='collection' is for dask collections, and X is none; use base_fit='sample', "
            "which takes all rows that are in memory"
        )
    tasks = CollectionTasks(_seeded(estimator.base_estimator, data.seed), data, folds)
    with steps(estimator, "base models", folds.count + 1) as tell:
        *held, whole = [tasks.fit(tell, k) for k in range(folds.count + 1)]
    base = _signed(whole, data, estimator._base_scale)
    check_varies(whole, [base.join(data.split_sample).h])
    joined = _joined(data, base, OutOfFold(tuple(held), folds, base))
    return replace(joined, n_base_samples=data.n_present)


def _with_fitted(estimator: Any, data: TrainingData) -> TrainingData:
    model = estimator.base_estimator
    base = _signed(model, data, estimator._base_scale)
    warn_of_fitted(model, data.split_sample)
    check_varies(model, [base.join(data.split_sample).h])
    joined = _joined(data, base, whole_change(data.given.then(data.preparation.split), base))
    return replace(joined, n_base_samples=0)


def warn_of_fitted(model: Any, chunk: Chunk, stacklevel: int = 5) -> None:
    """Warn that a fitted model is not cross-fitted, and louder where it has seen the rows."""
    text = (
        f"base_estimator ({name_of(model)}) is already fitted and is used as it is, without "
        "cross-fitting: if it was fitted on these rows, its errors on them look too small"
    )
    ratio = _error_ratio(model, chunk)
    if ratio is not None and ratio < SUSPICIOUS:
        text += (
            f"; it has seen them, most likely: its squared error on them is {ratio:.2g} times that "
            "of a fresh copy on rows that it has not seen"
        )
    warnings.warn(
        f"{text}; give sklearn.base.clone(model) to have it cross-fitted", stacklevel=stacklevel
    )


def _error_ratio(model: Any, chunk: Chunk) -> float | None:
    """Squared error of a fitted model over that of a copy, on rows that the copy has not seen."""
    n = min(chunk.n_rows, SUSPECT_ROWS)
    model = model.estimator if isinstance(model, FrozenEstimator) else model
    if n < 40 or chunk.y is None or chunk.y.shape[1] > 1:
        return None
    seen, unseen = np.arange(0, n, 2), np.arange(1, n, 2)
    x, y = container(chunk.x), chunk.y[:, 0]
    try:
        copy = clone(model).fit(frames.take_rows(x, seen), y[seen])
        rows = frames.take_rows(x, unseen)
        errors = [
            np.mean((y[unseen] - predictions(tried, rows, "probability")[:, 0]) ** 2)
            for tried in (model, copy)
        ]
    except Exception:  # a model that cannot be copied cannot be suspected
        return None
    return float(errors[0] / errors[1]) if errors[1] > 0 else None


class _Tasks:
    """Fits of the base model: one without each fold, and one on all rows.

    Parameters
    ----------
    model : estimator
        Not fitted.
    rows : Rows
        To fit on.
    fold : array of shape (n,)
        The fold of each row.
    scale : str
        Of a classifier's predictions.
    """

    def __init__(self, model: Any, rows: Rows, fold: NDArray[np.int64], scale: str) -> None:
        self._model, self._rows, self._fold, self._scale = model, rows, fold, scale
        weight = rows.chunk.weight
        self._weight = None if weight is None else np.asarray(weight)
        self._weight_name = weight_name(model)
        if self._weight is not None and self._weight_name is None:
            warnings.warn(
                f"base_estimator ({name_of(model)}) takes no sample_weight: its own fit counts "
                "every row of positive weight once",
                stacklevel=6,
            )
        self.out_of_fold: dict[int, Array] = {}

    def fit(self, tell: Callable[[], None], k: int) -> Any:
        """Return the model fitted without fold k; k beyond the last fold: on all rows."""
        counted = np.ones(len(self._fold), bool) if self._weight is None else self._weight > 0
        train = np.flatnonzero(counted & (self._fold != k))
        model = self._fitted(train)
        held = np.flatnonzero(self._fold == k)
        if len(held):
            x = frames.take_rows(self._rows.chunk.x, held)
            self.out_of_fold[k] = predictions(model, x, self._scale)
        tell()
        return model

    def _fitted(self, train: NDArray[np.int64]) -> Any:
        options = {}
        if self._weight is not None and self._weight_name is not None:
            options = {self._weight_name: self._weight[train]}
        x = container(frames.take_rows(self._rows.chunk.x, train))
        try:
            return clone(self._model).fit(x, self._rows.y[train], **options)
        except Exception as error:
            raise ValueError(
                f"base_estimator ({name_of(self._model)}) cannot be fitted on {len(train)} rows: "
                f"{error}; try it on X and y alone, or put what it needs before it in a pipeline"
            ) from error

    def columns(self) -> Array:
        """Return the out-of-fold predictions, one row for each row that was fitted on."""
        width = next(iter(self.out_of_fold.values())).shape[1]
        h = np.empty((len(self._fold), width))
        for k, part in self.out_of_fold.items():
            if part.shape[1] != width:
                raise ValueError(
                    f"base_estimator ({name_of(self._model)}) predicts {width} columns in some "
                    f"folds and {part.shape[1]} in others: a class is missing from a fold; use "
                    "fewer folds, or leave rare classes out"
                )
            h[self._fold == k] = part
        return h


def in_lanes(work: Callable[[int], Any], count: int, n_jobs: int | None) -> list[Any]:
    """Return [work(0), …, work(count − 1)], as many at once as there are cores (or `n_jobs`).

    Threads, each with its share of the cores for what the work runs in parallel itself: nothing is
    copied, and boosted trees, forests and BLAS let go of Python's lock.
    """
    cores = available_threads()
    lanes = min(count, n_jobs or cores)
    done: list[Any] = [None] * count
    stop = Event()

    def lane(number: int) -> None:
        with threadpool_limits(limits=max(1, cores // lanes), user_api="openmp"):
            for k in range(number, count, lanes):
                if stop.is_set():
                    return
                done[k] = work(k)

    run_threads(lane, lanes, stop)
    return done


def _rows_to_fit(estimator: Any, data: TrainingData) -> Rows:
    """All rows where they are in memory, else a sample by row number."""
    source, split = data.given, data.preparation.split
    if isinstance(source, ArraySource):
        chunk = Chunk(source.x, source.s, source.y, source.weight)
        return Rows(split(chunk), np.arange(source.n_rows), data.one_target)
    size, seed = int(estimator.base_sample), data.seed
    sample = source.fold(partial(Sampler, size, seed), 65536)
    return Rows(split(sample.chunk()), sample.rows, data.one_target)


def _seeded(model: Any, seed: int) -> Any:
    """Return a copy in which every random_state that is None is a number."""
    model = clone(model)
    parameters = model.get_params(deep=True)
    free = {
        name: seed % 2**31
        for name, value in parameters.items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    # Not what it returns, which is nothing for a FrozenEstimator.
    model.set_params(**free)
    return model


def _signed(model: Any, data: TrainingData, scale: str) -> BaseModel:
    h = predictions(model, data.split_sample.x, scale)
    return BaseModel(model, scale, h.shape[1], digest(h))


def _training_change(
    data: TrainingData, tasks: _Tasks, models: list[Any], folds: Folds, base: BaseModel
) -> Callable[[Chunk], Chunk]:
    h = tasks.columns()
    check_varies(base.model, list(tasks.out_of_fold.values()))
    if isinstance(data.given, ArraySource):
        return FromArray(h)
    return OutOfFold(tuple(models), folds, base)


def _joined(data: TrainingData, base: BaseModel, change: Callable[[Chunk], Chunk]) -> TrainingData:
    preparation = replace(data.preparation, base=base)
    source = preparation.applied_to(data.given, change)
    return replace(data, preparation=preparation, source=source)
