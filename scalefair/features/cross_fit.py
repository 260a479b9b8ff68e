"""Cross-fitting: every training row gets the prediction of a base model that never saw it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from scalefair._hash import balanced_fold, digest
from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.data.folds import Folds, make_folds
from scalefair.data.progress import Progress
from scalefair.data.sources import ArraySource, ChunkSource, DaskSource, Sampler
from scalefair.data.sources.dask_tasks import without_columns
from scalefair.data.sources.threads import available_threads, run_each
from scalefair.errors import check_choice, check_count
from scalefair.features.base import Stores
from scalefair.features.base_model import (
    BaseModel,
    FromArray,
    SensitiveTarget,
    check_base,
    check_sensitive,
    check_varies,
    container,
    is_fitted,
    learn_propensities,
    name_of,
    predictions,
    sensitive_model,
    weight_name,
)
from scalefair.features.training import Training, sensitive_map
from scalefair.features.trees import OF_SCALE, Trees

FOLDS = 5  # folds of the cross-fitting where no cross-validation asks for others
SPLIT = 3  # of so many rows the fair model gets one, where the base model is fitted once
# Less than this share of a fresh copy's error: a fitted model has seen the rows, most likely
SUSPICIOUS = 0.5
SUSPECT_ROWS = 4000  # rows that this is judged on, half of them to fit the copy


class CrossFit(Stores, BaseEstimator):
    """How the base model of a fair estimator is fitted: ``base_estimator=CrossFit(model, ...)``.

    Parameters
    ----------
    estimator : estimator or "trees"
        Any scikit-learn regressor, classifier or pipeline, fitted or not; "trees" are boosted ones.
    sample_size : int, default=100_000
        Number of rows that it is fitted on if X is not in memory, chosen by row number.
    fit_on : {"sample", "split", "collection"}, default="sample"
        "sample" fits a copy without each fold, and one on all rows. "split" is quick: one fit, on two of three rows by
        row number; the fair model is fitted and judged on the others. "collection" passes dask collections to its `fit`
        instead, for models that accept them; its `predict` must accept the rows of a partition.
    sensitive_estimator : "auto", estimator or None, default="auto"
        Model of the sensitive attributes given X, used if they are hidden from predictions: its prediction ê(x) becomes
        a feature like ĥ(x), and the fair model then has all it can use. "auto" takes the family of `estimator`: a
        classifier of up to four groups; else regressors of the function of s that explains ĥ best, of the one that
        explains its prediction best, and so on, three in all. None leaves it out, as does ``fit_on="collection"``.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from scalefair import CrossFit, FairKernelRidge
    >>> trees = CrossFit(DecisionTreeRegressor(max_depth=3), sample_size=10_000)
    >>> model = FairKernelRidge(base_estimator=trees, unfairness=0.05)
    """

    def __init__(
        self, estimator: Any, *, sample_size: int = 100_000, fit_on: str = "sample", sensitive_estimator: Any = "auto"
    ) -> None:
        self._store(locals())

    @classmethod
    def of(cls, base: Any) -> CrossFit:
        """Return the settings of a valid `base_estimator`."""
        how = base if isinstance(base, cls) else cls(base)
        check_base(how.estimator)
        check_count("sample_size", how.sample_size)
        check_choice("fit_on", how.fit_on, ("sample", "split", "collection"))
        check_sensitive(how.sensitive_estimator)
        return how


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Joins, to each row, the prediction of the model that was fitted without its fold."""

    models: tuple[BaseModel, ...]
    folds: Folds
    base: BaseModel

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with ĥ(x) beside x."""
        fold = self.folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
        h = np.empty((chunk.n_rows, self.base.width))
        for k in np.unique(fold):
            at = np.flatnonzero(fold == k)
            h[at] = self.models[k].predict(frames.take_rows(chunk.x, at))
        return replace(chunk, h=h)


def _only_unseen(folds: Folds, chunk: Chunk) -> Chunk:
    """Return the chunk with weight 0 for rows that one base model was fitted on: all but fold 0."""
    fold = folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
    return replace(chunk, weight=np.where(fold == 0, chunk.weights, 0.0))


def cross_fit(  # noqa: PLR0917
    training: Training, how: CrossFit, scale: str, folds: Folds | None, n_jobs: int | None, progress: Progress | None
) -> Training:
    """Fit a base model, `n_jobs` folds at once; its predictions, on a `scale`, join the rows."""
    model, split = how.estimator, training.given.then(training.preparation.split)
    model = Trees(OF_SCALE[scale]) if isinstance(model, str) else model
    fitted, with_sensitive = is_fitted(model), _wants_sensitive(training, how)
    if fitted:
        base = _signed(BaseModel(model, scale), training)
        warn_of_fitted(model, training.split_sample)
        check_varies(model, [base.join(training.split_sample).h])
        if not with_sensitive:
            return _with_base(training, base, base.attach(split), 0)
    folds = _folds_of_fits(training, how, folds, fitted=fitted)
    split = split if folds.count else split.then(partial(_only_unseen, folds))
    model = model if fitted else _seeded(model, training.seed)
    if how.fit_on == "collection":
        fit = partial(_fit_on_collections, model, training, folds)
        return _with_collections(training, fit, folds, split, scale=scale, progress=progress)
    with progress.steps("base models") if progress else nullcontext() as step:
        fits = _FoldFits(training, how, folds, n_jobs, step)
        bases, h = fits.base_models(model, scale)
        check_varies(model, [h[fits.fold == k] for k in range(max(folds.count, 1))])
        if with_sensitive:
            bases, h = fits.with_propensities(how.sensitive_estimator, bases, h)
    base = _signed(bases[-1], training)
    join: Any = OutOfFold(tuple(bases[:-1]), folds, base) if folds.count else base.join
    join = FromArray(h) if isinstance(training.given, ArraySource) else join
    return _with_base(training, base, split.then(join), 0 if fitted else int(np.sum(fits.fold != folds.count)))


def _with_collections(
    training: Training, fit: Callable[..., Any], folds: Folds, split: ChunkSource, *,
    scale: str, progress: Progress | None,
) -> Training:  # fmt: skip
    """Return the rows with predictions of models that are fitted on dask collections, fold by fold."""
    count = folds.count + 1
    with progress.steps("base models", count) if progress else nullcontext() as step:
        bases = [BaseModel(fit(step, k), scale) for k in range(count)]
    base = _signed(bases[-1], training)
    check_varies(base.model, [base.join(training.split_sample).h])
    source = split.then(OutOfFold(tuple(bases[:-1]), folds, base))
    return _with_base(training, base, source, training.survey.n_present)


def _folds_of_fits(training: Training, how: CrossFit, folds: Folds | None, *, fitted: bool) -> Folds:
    """Return the folds; for one fit a count of 0, and fold 0 is left out."""
    if how.fit_on == "split" and not fitted:  # not the seed of the folds that judge: each needs such rows
        return Folds(0, partial(balanced_fold, SPLIT, training.seed + 3))
    n = training.survey.n_rows
    return folds or make_folds(min(FOLDS, n), None, range(n), training.seed + 1)[0]


def _wants_sensitive(training: Training, how: CrossFit) -> bool:
    """Return True if models of s are requested: where predictions do not see s."""
    prepared = training.preparation
    seen = prepared.sensitive_columns is not None and not prepared.hide_sensitive
    wanted = how.sensitive_estimator is not None and how.fit_on != "collection"
    return wanted and not seen and prepared.sensitive_encoder is not None and not training.partial


def _signed(base: BaseModel, training: Training) -> BaseModel:
    with threadpool_limits(limits=1, user_api="openmp"):  # threads would wait for each other after every tree
        h = base.predict(training.split_sample.x)
    return replace(base, columns=h.shape[1], digest=digest(h))


def _with_base(training: Training, base: BaseModel, source: ChunkSource, n: int) -> Training:
    numeric = source.then(training.preparation.encode)
    return replace(training, base=base, source=numeric, n_base_samples=n)


def _is_outside(folds: Folds, k: int, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(folds.of_rows(numbers) != k)


def _fit_on_collections(model: Any, training: Training, folds: Folds, step: Callable[[], None] | None, k: int) -> Any:
    """Return a model fitted on dask collections without fold k; beyond the last: on all rows."""
    given, preparation = training.given, training.preparation
    if not isinstance(given, DaskSource):
        raise ValueError(
            "fit_on='collection' is for dask collections, and X is not one; use fit_on='sample', "
            "which takes all rows that are in memory"
        )
    parts = given.collections(partial(_is_outside, folds, k))
    x = parts["x"]
    if preparation.hide_sensitive and preparation.sensitive_columns is not None:
        x = without_columns(x, preparation.sensitive_columns)
    name = weight_name(model)
    options = {name: parts["weight"]} if "weight" in parts and name is not None else {}
    try:
        fitted = clone(model).fit(x, parts["y"], **options)
    except Exception as error:
        raise ValueError(
            f"base_estimator ({name_of(model)}) cannot be fitted on dask collections: {error}; use fit_on='sample'"
        ) from error
    if step:
        step()
    return fitted


def warn_of_fitted(model: Any, chunk: Chunk, stacklevel: int = 5) -> None:
    """Warn that a fitted model is not cross-fitted, more strongly where it has seen the rows."""
    text = (
        f"base_estimator ({name_of(model)}) is already fitted and is used as it is, without "
        "cross-fitting: if it was fitted on these rows, its errors on them look too small"
    )
    ratio = _error_ratio(model, chunk)
    if ratio is not None and ratio < SUSPICIOUS:
        text += (
            f"; most likely it was fitted on them: its squared error on them is {ratio:.2g} times that "
            "of a fresh copy on rows that it was not fitted on"
        )
    warnings.warn(f"{text}; give sklearn.base.clone(model) to have it cross-fitted", stacklevel=stacklevel)


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
        errors = [np.mean((y[unseen] - predictions(tried, rows, "probability")[:, 0]) ** 2) for tried in (model, copy)]
    except Exception:  # a model that cannot be copied cannot be suspected
        return None
    return float(errors[0] / errors[1]) if errors[1] > 0 else None


class _FoldFits:
    """Fits without each fold, and one on all rows, of the rows that models are fitted on."""

    def __init__(
        self, training: Training, how: CrossFit, folds: Folds, n_jobs: int | None, step: Callable[[], None] | None
    ) -> None:
        self._rows, numbers = _rows_to_fit(training, how.sample_size)
        self._training, self._n_jobs, self._step = training, n_jobs, step
        self._count, self.fold = folds.count + 1, folds.of_rows(numbers)
        self._weight = self._rows.weights
        self.counted = np.flatnonzero(self._weight > 0)

    def base_models(self, model: Any, scale: str) -> tuple[list[BaseModel], Array]:
        """Return the models, and ĥ of each row by the one that has not seen it."""
        y = self._rows.y[:, 0] if self._training.one_target else self._rows.y
        predict = partial(predictions, scale=scale)
        unequal = np.ptp(self._weight[self.counted]) > 0
        if unequal and weight_name(model) is None and not is_fitted(model):
            warnings.warn(
                f"base_estimator ({name_of(model)}) takes no sample_weight: its own fit counts "
                "every row of positive weight once",
                stacklevel=6,
            )
        y = np.asarray(y)[self.counted]
        models, h = self.fit(model, y, predict, "base_estimator")
        return [BaseModel(one, scale) for one in models], h

    def with_propensities(self, asked: Any, bases: list[BaseModel], h: Array) -> tuple[list[BaseModel], Array]:
        """Return the models with models of s, and [h, e]; "auto": of the family of the base."""
        encoder: Any = self._training.preparation.sensitive_encoder
        s = encoder.transform(frames.take_rows(self._rows.s, self.counted))
        psi: Any = sensitive_map(self._training)
        # Rows that one fit has seen choose no function of s: h is not known of them.
        weight = self._weight * ((self.fold == 0) | (self._count > 1))
        target = SensitiveTarget(psi, np.asarray(s), weight[self.counted], self.counted)
        own = sensitive_model(bases[0].model, of_groups=target.n_groups > 0)
        model = _seeded(own if isinstance(asked, str) else asked, self._training.seed)
        propensities, e = learn_propensities(target, partial(self.fit, model), h)
        pairs = zip(bases, propensities, strict=False)  # none where s explains nothing of h
        return [replace(base, sensitive=one) for base, one in pairs] or bases, np.hstack([h, e])

    def fit(
        self, model: Any, values: Any, predict: Callable[[Any, Any], Array], name: str = "sensitive_estimator"
    ) -> tuple[list[Any], Array]:
        """Return models of the values of rows that count, and their predictions of unseen rows."""
        parts: dict[int, Array] = {}
        cores = available_threads()
        each = max(1, cores // min(self._count, self._n_jobs or cores))

        def one(k: int) -> Any:
            at = np.flatnonzero(self.fold[self.counted] != k)
            unseen = np.flatnonzero(self.fold == k)
            with threadpool_limits(limits=each, user_api="openmp"):
                fitted = model if is_fitted(model) else self._fitted(name, model, values, at)
                if len(unseen):
                    parts[k] = predict(fitted, frames.take_rows(self._rows.x, unseen))
            if self._step:
                self._step()
            return fitted

        models = run_each(one, self._count, self._n_jobs)
        return models, self._columns(name, model, parts)

    def _fitted(self, name: str, model: Any, values: Any, at: NDArray[np.int64]) -> Any:
        rows, weighed = self.counted[at], weight_name(model)
        options = {}
        if self._rows.weight is not None and weighed is not None:
            options = {weighed: self._weight[rows]}
        x = container(frames.take_rows(self._rows.x, rows))
        try:
            return clone(model).fit(x, values[at], **options)
        except Exception as error:
            raise ValueError(
                f"{name} ({name_of(model)}) cannot be fitted on {len(at)} rows: "
                f"{error}; try it on X and y alone, or put what it needs before it in a pipeline"
            ) from error

    def _columns(self, name: str, model: Any, parts: dict[int, Array]) -> Array:
        """Return the predictions of unseen rows, one row for each row that was fitted on."""
        width = next(iter(parts.values())).shape[1]
        h = np.zeros((len(self.fold), width))
        for k, part in parts.items():
            if part.shape[1] != width:
                raise ValueError(
                    f"{name} ({name_of(model)}) predicts {width} columns in some folds and "
                    f"{part.shape[1]} in others: a class is missing from a fold; use fewer folds, "
                    "or leave rare classes out"
                )
            h[self.fold == k] = part
        return h


def _rows_to_fit(training: Training, size: int) -> tuple[Chunk, NDArray[np.int64]]:
    """All rows and their numbers where they are in memory, else a sample by row number."""
    source, split = training.given, training.preparation.split
    if isinstance(source, ArraySource):
        chunk = Chunk(source.x, source.s, source.y, source.weight)
        return split(chunk), np.arange(source.n_rows)
    sample = source.fold(partial(Sampler, int(size), training.seed), 65536)
    return split(sample.chunk), sample.rows


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
