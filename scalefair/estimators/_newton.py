"""What the estimators of general losses share: moments, then Newton's passes over the rows."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair._checks import (
    FINITE,
    MISSING_SENSITIVE,
    check_alpha,
    check_choice,
    check_count,
    check_grid,
    check_number,
    check_penalty,
    check_weight_or_limit,
)
from scalefair._typing import Array, Chunk
from scalefair.data import SURVEY_ROWS
from scalefair.data.sources import ArraySource, ChunkSource
from scalefair.data.sources.base import PARTS
from scalefair.estimators._base import FairBase
from scalefair.estimators._base_model import FromArray
from scalefair.estimators._data import TrainingData, open_batch, open_inputs
from scalefair.estimators._kernel_inputs import KernelInputsMixin
from scalefair.estimators._output import (
    check_finite_weight,
    check_output_kernel,
    fit_loss_with_output,
    goes_on,
)
from scalefair.estimators._predict import PREDICT_ROWS, predictions
from scalefair.estimators._progress import steps, watched
from scalefair.estimators.fair_path import LossPath, default_etas
from scalefair.features.design import chunk_rows
from scalefair.losses import Loss
from scalefair.moments.kept import KeptFeatures
from scalefair.solve.diagnostics import warn_of_few_digits
from scalefair.solve.fit import LossFit, Spec
from scalefair.solve.newton.descent import Goal, newton
from scalefair.solve.newton.model import Problem

HELD = 2**28
"""Bytes of encoded rows that are kept rather than encoded anew for every pass."""

KEPT = 2**28
"""Bytes of features of rows in memory that are kept, from the pass for the moments on."""

METHODS = (
    "value", "gradient", "curvature", "inverse_link", "check_targets", "fitted", "scale", "start",
)  # fmt: skip
"""What an object must have to be a loss."""


class FairNewtonBase(KernelInputsMixin, FairBase):
    """The flow of every fair estimator whose loss is not the squared one."""

    loss_: Any

    def _check_parameters(self) -> None:
        check_alpha(self.alpha)
        check_weight_or_limit(self.eta, self.unfairness)
        check_penalty(self.penalty, self.eps)
        check_output_kernel(self)
        check_finite_weight(self)
        self._check_engine()
        check_number("tol", self.tol, 0.0, FINITE)
        check_count("max_iter", self.max_iter)
        check_loss(self.loss, self._loss_names)

    @property
    @abstractmethod
    def _loss_names(self) -> tuple[str, ...]:
        """Names that `loss` may have."""

    @abstractmethod
    def _prepare(self, data: TrainingData) -> TrainingData:
        """Return the rows with targets as the loss wants them."""

    @abstractmethod
    def _make_loss(self, data: TrainingData) -> Any:
        """Return the loss with nothing left open; the moments are known."""

    @property
    def _solved_loss(self) -> Any:
        """The loss in the scores that are solved for."""
        return self.loss_

    def _learn(self, data: TrainingData) -> None:
        data = held(self._prepare(data))
        self._learn_maps(data)
        kept = self._kept(data.source, data.n_rows)
        self.moments_ = self._moments(data.source, data.n_rows, kept)
        if self.psi_ is None and not self._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        self.loss_ = self._make_loss(data)
        problem = self._problem(data.source, data.n_rows, kept)
        spec = self._spec()
        with (
            watched(self, data.source, problem.rows or PREDICT_ROWS, None) as told,
            steps(self, "iterations", None) as tell,
        ):
            problem = replace(problem, source=told)
            options = {"tol": self.tol, "max_iter": self.max_iter, "progress": tell}
            if self.psi_ is not None and goes_on(self) and not self._has_linear_limit():
                solve = partial(newton, problem, **options)
                fit = fit_loss_with_output(self, data, problem, spec, newton=solve, progress=tell)
            else:
                goal = Goal(spec.alpha, spec.eta, spec.unfairness)
                fit = problem.fit(newton(problem, goal, **options), spec)
        self._assign(fit)

    def _spec(self) -> Spec:
        eta, unfairness = check_weight_or_limit(self.eta, self.unfairness)
        alpha = self._ridges()["phi"]
        return Spec(alpha, eta, unfairness, self.penalty, self.eps, self.dtype)

    def _has_linear_limit(self) -> bool:
        """Return True if the limit of the penalty is that of the linear one: no share at all."""
        return self.output_kernel is None and self.unfairness == 0

    def _kept(self, source: ChunkSource, n_rows: int | None) -> KeptFeatures | None:
        return KeptFeatures.within(KEPT, source, self._row_map(n_rows))

    def _problem(
        self, source: ChunkSource, n_rows: int | None, kept: KeptFeatures | None
    ) -> Problem:
        design = self._row_map(n_rows)
        rows = self.chunk_rows or chunk_rows(design.blocks["phi"], design.dtype)
        return Problem(source, design, self._solved_loss, self._system(), rows, kept)

    def _assign(self, fit: LossFit) -> None:
        """Set the attributes of a fit."""
        coef, intercept = self._all_scores(fit.coef, fit.intercept)
        self._raw_coef = self._through_linear_part(coef)
        self._set_coef(coef, intercept)
        self.n_samples_seen_ = self.moments_.n_rows
        self.eta_, self.mean_loss_ = fit.eta, fit.mean_loss
        self.n_iter_, self.n_passes_ = fit.n_iter, fit.n_passes
        self.explained_share_, self.diagnostics_ = fit.explained_share, fit.diagnostics
        if fit.output_share is not None:
            self.output_share_ = fit.output_share
        warn_of_few_digits(fit.diagnostics, type(self).__name__)

    def _all_scores(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Coefficients of the loss's scores from those of the scores that were solved for."""
        return coef, intercept

    @abstractmethod
    def _set_coef(self, coef: Array, intercept: Array) -> None:
        """Set `coef_` and `intercept_` from arrays of shape (m, k) and (k,)."""

    def _predictions(self, X: Any, finish: Callable[[Array], Array]) -> Any:
        """Return finish(f) of every row of X; a dask array for a dask collection."""
        check_is_fitted(self)
        start = partial(_start_finishing, self._predictor(), finish)
        return predictions(self, open_inputs(self, X), start)

    def path(
        self,
        X: Any,
        y: Any,
        etas: Any = None,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        control_features: Any = None,
    ) -> LossPath:
        """Return the accuracy–fairness path of a fitted estimator, over rows that are read again.

        Unlike the squared loss, a general one needs the rows: a few passes for each eta, each
        starting where the one before ended. The maps are those of the fit.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight, control_features
            As in `fit`.
        etas : array-like of shape (E,), optional
            Penalty weights; by default 9, from 0 to ∞.
        """
        check_is_fitted(self)
        if self.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        if getattr(self, "n_base_samples_", 0):
            warnings.warn(
                "the base model was fitted on all rows of fit: give rows to path that it has not "
                "seen, or its errors look too small",
                stacklevel=2,
            )
        if goes_on(self):
            raise ValueError(
                f"a path has no form with output_kernel={self.output_kernel!r} and "
                f"penalty={self.penalty!r}; fit one model for each eta"
            )
        source = self._open_again(X, y, sensitive_features, sample_weight, control_features)
        copied = copy(self)
        kept = self._kept(source, source.n_rows)
        copied.moments_ = self._moments(source, source.n_rows, kept)
        problem = copied._problem(source, source.n_rows, kept)
        alpha = self._ridges()["phi"]
        if etas is None:
            etas = default_etas(problem.system, alpha, 9)
        fits, warm = [], None
        for eta in np.sort(check_grid("etas", etas)):
            # The limit of η → ∞ starts anew: until Rᵀβ is 0, no step can be compared with another.
            warm = None if np.isinf(eta) else warm
            goal = Goal(alpha, float(eta))
            fit = newton(problem, goal, warm=warm, tol=self.tol, max_iter=self.max_iter)
            fits.append(copied._at(problem.fit(fit, copied._spec())))
            warm = fit.local
        return LossPath(fits)

    def _open_again(self, X: Any, y: Any, *beside: Any) -> ChunkSource:
        """Return the rows of `path`, with targets as the loss wants them."""
        return open_batch(self, X, y, *beside)

    def _at(self, fit: LossFit) -> Any:
        """Return a copy with another fit."""
        other = copy(self)
        other.eta, other.unfairness = fit.eta, None
        other._assign(fit)
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


def held(data: TrainingData) -> TrainingData:
    """Return the same rows as arrays, where they are a table in memory that is not too long."""
    source, width = data.source, data.sample.x.shape[1]
    few = 8 * data.n_rows * width <= HELD
    if not isinstance(source, ArraySource) or data.preparation.encoder is None or not few:
        return data
    parts = _joined(source.chunks(SURVEY_ROWS), data.n_rows)
    h = parts.pop("h", None)
    rows = ArraySource(**parts, n_threads=source.n_threads)
    return replace(data, source=rows if h is None else rows.then(FromArray(h)))


def _joined(chunks: Iterable[Chunk], n_rows: int) -> dict[str, Any]:
    """Return the parts of all chunks as whole arrays, of which no second copy is ever held."""
    whole: dict[str, Any] = {}
    for chunk in chunks:
        given = {name: part for name in PARTS if (part := getattr(chunk, name)) is not None}
        for name, part in given.items():
            if name not in whole:
                whole[name] = np.empty((n_rows, *part.shape[1:]), part.dtype)
            whole[name][chunk.row : chunk.row + chunk.n_rows] = part
    return whole


def check_loss(loss: Any, names: tuple[str, ...]) -> None:
    """Raise ValueError unless `loss` is one of the names, or a loss object."""
    if isinstance(loss, str):
        check_choice("loss", loss, names)
        return
    missing = [name for name in METHODS if not hasattr(loss, name)]
    if missing or isinstance(loss, type):
        raise TypeError(
            f"loss={loss!r} is no loss; choose one of {', '.join(names)}, or give an object of a "
            "subclass of scalefair.losses.Loss"
        )


def check_row_targets(loss: Loss, chunk: Chunk) -> Chunk:
    """Pass a chunk on whose targets are in the domain of the loss, where they count."""
    y = np.asarray(chunk.y)
    if chunk.weight is not None:
        y = y[np.asarray(chunk.weight) > 0]
    try:
        loss.check_targets(y[:, 0] if loss.n_targets == 1 else y)
    except ValueError as error:
        raise ValueError(f"{chunk.where}: {error}" if chunk.where else str(error)) from None
    return chunk


def _start_finishing(
    start: Callable[[], Callable[[Chunk], Array]], finish: Callable[[Array], Array]
) -> Callable[[Chunk], Array]:
    predict = start()
    return lambda chunk: finish(predict(chunk))
