"""What all fair estimators share: data in, maps, moments, the predictor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils.validation import check_is_fitted

from scalefair._checks import (
    check_alpha,
    check_choice,
    check_count,
    check_flag,
    check_weight_or_limit,
)
from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.data.sources import ChunkSource
from scalefair.estimators._base_model import check_base
from scalefair.estimators._blocks import Blocks
from scalefair.estimators._control import check_left, control_blocks, control_maps
from scalefair.estimators._cross_fit import base_block, cross_fitted
from scalefair.estimators._curve import curve_block, curve_of
from scalefair.estimators._data import (
    Preparation,
    TrainingData,
    open_inputs,
    open_training,
)
from scalefair.estimators._maps import check_maps, sample_size, sensitive_map
from scalefair.estimators._predict import predictions, start_predicting
from scalefair.estimators._progress import watched
from scalefair.features.crossed import Crossed
from scalefair.features.design import Design
from scalefair.moments import ALL_ROWS, Checkpoint, FoldMoments, Folds, Moments, accumulate
from scalefair.moments.kept import KeptFeatures
from scalefair.solve.ridge.system import System

FEW = 2e10
"""Rows × features² that are whitened row by row: a fraction of a second."""

STATE = (
    "_preparation", "_n_targets", "_one_target", "n_features_in_", "phi_", "psi_", "moments_",
    "_exact_rows", "_raw_coef", "kernel_", "n_base_samples_", "upsilon_", "xi_",
    "curve_",
)  # fmt: skip
"""What a fit learns before it solves."""


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Undo what a failed fit has set: an estimator is fitted wholly, as before, or not at all."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class FairBase(Blocks, CallbackSupportMixin, BaseEstimator):
    """The flow of every fair estimator: `fit` reads as the method."""

    phi_: FeatureMap
    psi_: FeatureMap | None
    upsilon_: FeatureMap | None = None
    xi_: Crossed | None = None
    moments_: Moments
    _preparation: Preparation

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        control_features: Any = None,
    ) -> Self:
        """Fit the fair predictor.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (n, d)
            Inputs. Numbers are used as given; a frame with text, categories or missing values is
            encoded. Rows that are not in memory (dask, :func:`scalefair.scan_parquet`,
            :class:`scalefair.BatchSource`) are read chunk by chunk, twice.
        y : array-like of shape (n,) or (n, t)
            Targets; columns of the same scan, if X is one.
        sensitive_features : array, Series or frame of shape (n,) or (n, p), optional
            Sensitive attributes: numbers, categories or both. Needed unless `sensitive_columns`
            names them or `eta` is 0. `predict` does not need them.
        sample_weight : array-like of shape (n,), optional
            Weight 2 equals the row twice, in the error and in the penalty.
        control_features : array, Series or frame of shape (n,) or (n, r), optional
            Legitimate factors: only the dependence on the sensitive attributes that remains at
            each level of them is punished. The target itself asks for equalised odds in
            expectation. `predict` does not need them.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._check_parameters()
            self._forget()
            task = self._init_callback_context(max_subtasks=None)
            task.call_on_fit_task_begin(estimator=self)
            data = self._open(X, y, sensitive_features, sample_weight, control_features)
            data = cross_fitted(self, data)
            if data.n_base_samples is not None:
                self.n_base_samples_ = data.n_base_samples
            self._learn(data)
            if self.xi_ is not None:
                check_left(self.moments_)
            task.call_on_fit_task_end(estimator=self)
        return self

    def _open(self, X: Any, y: Any, *beside: Any) -> TrainingData:
        """Validate the arguments of `fit` and make the first pass over the rows.

        `beside` are the sensitive features, the weights and the control features.
        """
        s, weight, c = beside
        return open_training(self, X, y, s, weight, sample_size(self), c)

    @abstractmethod
    def _learn(self, data: TrainingData) -> None:
        """Set all that a fit learns from valid rows."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ValueError for parameters out of range."""

    def _forget(self) -> None:
        """Drop what an earlier fit has learnt: one in another mode sets other attributes."""
        for name in [*vars(self)]:
            if name.endswith("_") or name in STATE:
                delattr(self, name)

    @abstractmethod
    def _input_map(self, data: TrainingData) -> FeatureMap:
        """Return φ."""

    def _ridges(self) -> dict[str, float]:
        """α as "phi", and the relative ridge of the blocks that join φ."""
        return check_alpha(self.alpha)

    def _check_engine(self) -> None:
        check_maps(self)
        check_base(self)
        check_choice("dtype", self.dtype, ("float64", "float32"))
        for name in ("fit_intercept", "hide_sensitive"):
            check_flag(name, getattr(self, name))
        for name in ("chunk_rows", "n_jobs"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    def _is_ordinary(self) -> bool:
        return check_weight_or_limit(self.eta, self.unfairness)[0] == 0

    def _learn_maps(self, data: TrainingData) -> None:
        self._preparation = data.preparation
        self._n_targets, self._one_target = data.n_targets, data.one_target
        self.phi_ = self._input_map(data)
        self.psi_ = sensitive_map(self, data)
        self.upsilon_, self.xi_ = control_maps(self, data, self.psi_)
        self.curve_ = curve_of(self, data, self.psi_)

    def _least_alpha(self) -> float:
        return self._ridges()["phi"]

    def _row_map(self, n_rows: int | None) -> Design:
        # Whitening moments loses digits as machine precision over the cut-off.
        width = self.phi_.n_raw_
        small = n_rows is not None and n_rows * width**2 <= FEW
        fine = getattr(self.phi_, "cutoff", 1.0) < 1e-8 or self._least_alpha() <= 1e-8
        single = np.dtype(self.dtype) == np.float32
        return Design(
            self.phi_, self.psi_, self._n_targets, self.dtype,
            whiten_rows=small or fine or single, preparation=self._preparation.key,
            beside=(
                *control_blocks(self.upsilon_, self.xi_), *base_block(self._preparation.base),
                *curve_block(self.curve_),
            ),
        )  # fmt: skip

    def _moments(
        self, source: ChunkSource, n_rows: int | None, kept: KeptFeatures | None = None
    ) -> Moments:
        (moments,) = self._accumulate(source, n_rows, kept=kept)
        return moments

    def _accumulate(
        self,
        source: ChunkSource,
        n_rows: int | None,
        folds: Folds = ALL_ROWS,
        kept: KeptFeatures | None = None,
    ) -> FoldMoments:
        design, path = self._row_map(n_rows), getattr(self, "checkpoint", None)
        checkpoint = None if path is None else Checkpoint(Path(path))
        rows = self.chunk_rows or design.chunk_rows
        with watched(self, source, rows, n_rows) as told:
            return accumulate(
                told, design, folds=folds, rows=rows, checkpoint=checkpoint, kept=kept
            )

    def _system_options(self, moments: Moments, ratio: float, eps: float | None) -> dict[str, Any]:
        """Arguments of `System.build`; `ratio` is the relative ridge of the blocks that join φ."""
        ridge = self._ridge_of_features(moments, self._relative_ridges(ratio))
        return {
            "penalty": self.penalty, "eps": eps, "ridge": ridge,
            "fit_intercept": self.fit_intercept, "features": self._features,
        }  # fmt: skip

    def _system(self) -> System:
        return self._system_of(self.moments_)

    def _system_of(self, moments: Moments) -> System:
        options = self._system_options(moments, self._ridges()["psi"], self.eps)
        return System.build(moments, **options)

    def _scores(self, X: Any) -> Array:
        """Return f on the rows of X, shape (k, t); a dask array for a dask collection."""
        check_is_fitted(self)
        return predictions(self, open_inputs(self, X), self._predictor())

    def _through_linear_part(self, coef: Array) -> dict[str, Array]:
        """Coefficients of the raw rows of each map, so that `predict` skips the linear part."""
        maps = {"phi": self.phi_, "psi": self.psi_, "base": None, "curve": None}
        parts, start = {}, 0
        for name in self._features:
            stop = start + self.moments_.blocks[name]
            linear = getattr(maps[name], "linear_", None)
            part = coef[start:stop]
            parts[name] = part if linear is None else linear @ part
            start = stop
        return parts

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        """Return what makes f on chunks: only what is needed for it, since dask sends it around."""
        coef = {name: part.astype(self.dtype) for name, part in self._raw_coef.items()}
        psi = self.psi_ if "psi" in coef else None
        return partial(start_predicting, self.phi_, psi, coef, self.intercept_, self.curve_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags
