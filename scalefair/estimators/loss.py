"""Fair kernel regression with any loss: moments, then Newton's passes over the rows."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair._typing import Array, Chunk
from scalefair.data import SURVEY_ROWS
from scalefair.data.sources import ArraySource, ChunkSource
from scalefair.data.sources.base import PARTS
from scalefair.errors import (
    MISSING_SENSITIVE,
    check_grid,
)
from scalefair.estimators.base import FairEstimator, check_control
from scalefair.estimators.path import LossPath, default_etas
from scalefair.features.base_model import FromArray
from scalefair.features.design import Design
from scalefair.features.training import Training, learn_design
from scalefair.losses import Loss
from scalefair.moments import Moments
from scalefair.moments.accumulate import FeatureCache
from scalefair.solve.diagnostics import warn_of_few_digits
from scalefair.solve.fit import LossFit
from scalefair.solve.newton.fit import fit_loss, loss_path, loss_problem

MAX_ENCODED_BYTES = 2**28
"""Encoded rows that are held rather than encoded anew for every pass."""

MAX_CACHED_BYTES = 2**28
"""Features of rows in memory that are held, from the pass for the moments on."""

LOSS_METHODS = [
    "value", "gradient", "curvature", "inverse_link", "check_targets", "fitted", "scale", "start",
]  # fmt: skip
"""What an object must have to be a loss."""


class LossBase(FairEstimator):
    """The flow of every fair estimator whose loss is not the squared one."""

    loss_: Any
    psi_: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_weight()
        if isinstance(self.loss, type):
            raise TypeError(f"loss={self.loss!r} is a class; give an object of it")
        nonlinear = self.output_kernel is not None or self.penalty == "nocco_output"
        if nonlinear and self.eta is not None and np.isinf(self.eta):
            raise ValueError(
                f"eta={self.eta!r} with penalty={self.penalty!r} has no limit that can be computed "
                "for a general loss; use a large eta such as 1e4, unfairness=, or "
                "penalty='normalized'"
            )

    def _solved_loss(self, loss: Any) -> Any:
        """Return the loss in the scores that are solved for."""
        return loss

    def _learn_loss(
        self,
        training: Training,
        loss: Any,
        dtype: str,
        weigh: Callable[[Any, Moments], Any] | None = None,
    ) -> dict[str, Any]:
        """Return the attributes of a fit to rows whose targets are as the loss wants them."""
        y = training.sample.y
        loss = loss.fitted(y[:, 0] if loss.n_targets == 1 else y, training.sample.weight)
        training = encoded_once(training)
        design = learn_design(
            training, dtype=dtype, sees_sensitive=self._sees_sensitive(),
            curved=self.output_kernel is not None,
        )  # fmt: skip
        if design.psi is None and not self._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        rows = self._rows(training.source, design, training.n_rows)
        cache = FeatureCache.within(MAX_CACHED_BYTES, rows.source, rows.design)
        (moments,) = rows.moments(cache=cache)
        check_control(moments)
        loss = loss if weigh is None else weigh(loss, moments)
        system = self._system(design, moments)
        problem = loss_problem(rows, self._solved_loss(loss), system, cache)
        spec = self._spec(dtype)
        fit = fit_loss(rows, problem, spec, self.output_kernel, self.tol, self.max_iter)
        based = {} if training.base is None else {"n_base_samples_": training.n_base_samples}
        return {
            "_design": design, "phi_": design.phi, "psi_": design.psi, "loss_": loss, **based,
            **self._solution(design, moments, loss, fit),
        }  # fmt: skip

    def _solution(
        self, design: Design, moments: Moments, loss: Any, fit: LossFit
    ) -> dict[str, Any]:
        """Return the attributes of a fit."""
        warn_of_few_digits(fit.diagnostics, type(self).__name__)
        coef, intercept = self._all_scores(loss, fit.coef, fit.intercept)
        nonlinear = {} if fit.output_share is None else {"output_share_": fit.output_share}
        return {
            **self._shaped(loss, coef, intercept), "_raw_coef": design.raw_coef(coef),
            "moments_": moments, "n_samples_seen_": moments.n_rows, "eta_": fit.eta,
            "mean_loss_": fit.mean_loss, "n_iter_": fit.n_iter, "n_passes_": fit.n_passes,
            "explained_share_": fit.explained_share, "diagnostics_": fit.diagnostics, **nonlinear,
        }  # fmt: skip

    def _all_scores(self, loss: Any, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Coefficients of the loss's scores from those of the scores that were solved for."""
        del loss
        return coef, intercept

    @abstractmethod
    def _shaped(self, loss: Any, coef: Array, intercept: Array) -> dict[str, Any]:
        """Return `coef_` and `intercept_` from arrays of shape (m, k) and (k,)."""

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
        self._check_path()
        rows = self._rows_again(Chunk(X, sensitive_features, y, sample_weight, c=control_features))
        cache = FeatureCache.within(MAX_CACHED_BYTES, rows.source, rows.design)
        (moments,) = rows.moments(cache=cache)
        system, spec = self._system(rows.design, moments), self._spec(rows.design.dtype)
        problem = loss_problem(rows, self._solved_loss(self.loss_), system, cache)
        etas = default_etas(system, spec.alpha, 9) if etas is None else etas
        grid = np.sort(check_grid("etas", etas))
        fits = loss_path(problem, spec, grid, self.tol, self.max_iter)
        return LossPath([self._at(moments, fit) for fit in fits])

    def _check_path(self) -> None:
        if self.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        if getattr(self, "n_base_samples_", 0):
            warnings.warn(
                "the base model was fitted on all rows of fit: give rows to path that it has not "
                "seen, or its errors look too small",
                stacklevel=3,
            )
        if self.output_kernel is not None or self.penalty == "nocco_output":
            raise ValueError(
                f"a path has no form with output_kernel={self.output_kernel!r} and "
                f"penalty={self.penalty!r}; fit one model for each eta"
            )

    def _rows_again(self, given: Chunk) -> Any:
        """Return the rows of `path`, with targets as the loss wants them."""
        return self._more_rows(given)

    def _at(self, moments: Moments, fit: LossFit) -> Self:
        """Return a copy with another fit."""
        other: Self = copy(self).set_params(eta=fit.eta, unfairness=None)
        other.__dict__.update(other._solution(self._design, moments, self.loss_, fit))
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


def encoded_once(training: Training) -> Training:
    """Return the same rows as arrays, where they are a table in memory that is not too long."""
    source, width = training.source, training.sample.x.shape[1]
    few = 8 * training.n_rows * width <= MAX_ENCODED_BYTES
    if not isinstance(source, ArraySource) or training.preparation.encoder is None or not few:
        return training
    # Whole arrays, of which no second copy is ever held.
    whole: dict[str, Any] = {}
    for chunk in source.chunks(SURVEY_ROWS):
        given = {name: part for name in PARTS if (part := getattr(chunk, name)) is not None}
        for name, part in given.items():
            if name not in whole:
                whole[name] = np.empty((training.n_rows, *part.shape[1:]), part.dtype)
            whole[name][chunk.row : chunk.row + chunk.n_rows] = part
    h = whole.pop("h", None)
    rows: ChunkSource = ArraySource(**whole, n_threads=source.n_threads)
    return replace(training, source=rows if h is None else rows.then(FromArray(h)))


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
