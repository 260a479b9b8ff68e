"""What the fair ridge estimators share: data in, maps, moments, closed form, attributes out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils.validation import check_is_fitted

from scalefair._checks import (
    FINITE,
    MISSING_SENSITIVE,
    check_alpha,
    check_choice,
    check_closed_form,
    check_count,
    check_flag,
    check_grid,
    check_penalty,
    check_weight_or_limit,
)
from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.estimators._data import (
    Preparation,
    TrainingData,
    open_batch,
    open_inputs,
    open_training,
)
from scalefair.estimators._maps import check_maps, sample_size, sensitive_map
from scalefair.estimators._progress import watched
from scalefair.estimators.fair_path import FairPath, default_etas
from scalefair.solve.limit import solve_under_limit
from scalefair.solve.output_nocco import solve_output_nocco
from scalefair.solve.primal import solve_primal
from scalefair.solve.system import Solution, System
from scalefair.statistics import (
    ALL_ROWS,
    Checkpoint,
    FoldMoments,
    Folds,
    Moments,
    RowMap,
    accumulate,
    chunk_rows,
)
from scalefair.stream import ChunkSource

PREDICT_ROWS = 512

FEW = 2e10
"""Rows × features² that are whitened row by row: a fraction of a second."""

STATE = (
    "_preparation", "_n_targets", "_one_target", "n_features_in_", "phi_", "psi_", "moments_",
    "_exact_rows", "_raw_coef", "kernel_",
)  # fmt: skip
"""What a fit learns before it solves."""


@contextmanager
def _all_or_nothing(estimator: Any) -> Iterator[None]:
    """Undo what a failed fit has set: an estimator is fitted wholly, as before, or not at all."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class FairRidgeBase(CallbackSupportMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """The flow of every fair ridge: `fit` reads as the method."""

    phi_: FeatureMap
    psi_: FeatureMap | None
    moments_: Moments
    _preparation: Preparation

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
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

        Returns
        -------
        self
        """
        with _all_or_nothing(self):
            self._check_parameters()
            self._forget()
            task = self._init_callback_context(max_subtasks=None)
            task.call_on_fit_task_begin(estimator=self)
            size = sample_size(self)
            self._learn(open_training(self, X, y, sensitive_features, sample_weight, size))
            task.call_on_fit_task_end(estimator=self)
        return self

    def _learn(self, data: TrainingData) -> None:
        """Set all that a fit learns from valid rows."""
        self._learn_maps(data)
        self.moments_ = self._moments(data.source, data.n_rows)
        self._solve()

    def _forget(self) -> None:
        """Drop what an earlier fit has learnt: one in another mode sets other attributes."""
        for name in [*vars(self)]:
            if name.endswith("_") or name in STATE:
                delattr(self, name)

    def partial_fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add a batch of rows to those seen so far, and solve again.

        The first batch fixes the encoding, the length scales and the landmarks, so it should look
        like the rest; the moments of later batches are added exactly. Parameters as in `fit`.
        """
        if not hasattr(self, "moments_"):
            self.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
            return self
        with _all_or_nothing(self):
            self._check_parameters()
            source = open_batch(self, X, y, sensitive_features, sample_weight)
            self.moments_ = self.moments_ + self._moments(source, source.n_rows)
            self._solve()
        return self

    def collect(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Moments:
        """Return the moments of more rows, made with the maps of this fitted estimator.

        Nothing is added to the estimator: parts can be collected on different machines or days,
        saved, added up with `+`, and solved with :meth:`solve_from`. Parameters as in `fit`.
        """
        check_is_fitted(self)
        self._check_has_moments("collect")
        source = open_batch(self, X, y, sensitive_features, sample_weight)
        return self._moments(source, source.n_rows)

    def solve_from(self, moments: Moments) -> Self:
        """Replace the moments of this fitted estimator by others and solve again.

        Parameters
        ----------
        moments : Moments
            Made with the same maps, by :meth:`collect`; or the sum of several such.
        """
        check_is_fitted(self)
        self._check_has_moments("solve_from")
        Moments.empty(self.moments_.blocks, self.moments_.key) + moments  # complains of others
        with _all_or_nothing(self):
            self._check_parameters()
            self.moments_ = moments
            self._solve()
        return self

    def predict(self, X: Any) -> Array:
        """Predict the targets; the sensitive attributes are not needed.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`.

        Returns
        -------
        array of shape (k,) or (k, t)
            A dask array, not yet computed, for a dask collection.
        """
        check_is_fitted(self)
        predictions = open_inputs(self, X).map(self._predictor(), PREDICT_ROWS)
        return predictions[:, 0] if self._one_target else predictions

    def path(self, alphas: Any = None, etas: Any = None) -> FairPath:
        """Return the accuracy–fairness path from the stored moments, without data.

        Parameters
        ----------
        alphas : array-like of shape (A,), optional
            Ridges; by default the one of the estimator.
        etas : array-like of shape (E,), optional
            Penalty weights; by default 25, from 0 to ∞.
        """
        check_is_fitted(self)
        check_closed_form(self.penalty, "a path")
        self._check_has_moments("path")
        system = self._system()
        alphas = [self._ridges()["phi"]] if alphas is None else alphas
        alphas = check_grid("alphas", alphas, high=FINITE)
        if etas is None:
            etas = [0.0] if self.psi_ is None else default_etas(system, alphas.min())
        grid = check_grid("etas", etas)
        if self.psi_ is None and grid.any():
            raise ValueError(MISSING_SENSITIVE)
        return FairPath(self, alphas, grid)

    def _check_has_moments(self, what: str) -> None:
        if not hasattr(self, "moments_"):
            raise ValueError(
                f"{what} needs moments, which feature_map='exact' does without; use "
                "feature_map='nystroem' with at least as many n_components as rows, or unfairness="
            )

    def _at(self, alpha: Any, eta: float) -> FairRidgeBase:
        """Return a copy at another point, solved from the same moments."""
        if isinstance(self.alpha, dict) and not isinstance(alpha, dict):
            alpha = {"phi": alpha, "psi": self._ridges()["psi"] * alpha}
        other: FairRidgeBase = clone(self).set_params(unfairness=None, alpha=alpha, eta=eta)
        return other._with_state_of(self)

    def _with_state_of(self, fitted: FairRidgeBase) -> Self:
        """Take over the maps and moments of a fitted estimator, and solve."""
        for name in (*STATE, "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        self._check_parameters()
        self._solve()
        return self

    @abstractmethod
    def _input_map(self, data: TrainingData) -> FeatureMap:
        """Return φ."""

    @property
    def _joins_sensitive(self) -> bool:
        """Whether ψ(s) is part of Φ: where the model may see s as columns of X."""
        return False

    @property
    def _features(self) -> tuple[str, ...]:
        return ("phi", "psi") if self._joins_sensitive and self.psi_ is not None else ("phi",)

    def _ridges(self) -> dict[str, float]:
        """α as "phi", and the relative ridge of the blocks that join φ."""
        return check_alpha(self.alpha)

    def _check_parameters(self) -> None:
        check_alpha(self.alpha)
        check_weight_or_limit(self.eta, self.unfairness)
        check_penalty(self.penalty, self.eps)
        self._check_engine()
        if self.unfairness is not None:
            check_closed_form(self.penalty, "unfairness")

    def _check_engine(self) -> None:
        check_maps(self)
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

    def _least_alpha(self) -> float:
        return self._ridges()["phi"]

    def _row_map(self, n_rows: int | None) -> RowMap:
        # Whitening moments loses digits as machine precision over the cut-off (METHOD.md 7).
        width = self.phi_.n_raw_
        small = n_rows is not None and n_rows * width**2 <= FEW
        fine = getattr(self.phi_, "cutoff", 1.0) < 1e-8 or self._least_alpha() <= 1e-8
        single = np.dtype(self.dtype) == np.float32
        return RowMap(
            self.phi_, self.psi_, self._n_targets, self.dtype,
            whiten_rows=small or fine or single, preparation=self._preparation.key,
        )  # fmt: skip

    def _moments(self, source: ChunkSource, n_rows: int | None) -> Moments:
        (moments,) = self._accumulate(source, n_rows)
        return moments

    def _accumulate(
        self, source: ChunkSource, n_rows: int | None, folds: Folds = ALL_ROWS
    ) -> FoldMoments:
        row_map = self._row_map(n_rows)
        rows = self.chunk_rows or chunk_rows(row_map.blocks["phi"], row_map.dtype)
        kept = self._checkpoint()
        with watched(self, source, rows, n_rows) as told:
            return accumulate(told, row_map, folds=folds, rows=rows, checkpoint=kept)

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(Path(self.checkpoint))

    def _system_options(self, ratio: float, eps: float) -> dict[str, Any]:
        """Arguments of `System.build`; `ratio` is the relative ridge of the blocks that join φ."""
        width = self.moments_.blocks
        relative = {"phi": 1.0, "psi": ratio}
        ridge = np.concatenate([np.full(width[name], relative[name]) for name in self._features])
        return {
            "penalty": self.penalty, "eps": eps, "ridge": ridge,
            "fit_intercept": self.fit_intercept, "features": self._features,
        }  # fmt: skip

    def _system(self) -> System:
        return System.build(self.moments_, **self._system_options(self._ridges()["psi"], self.eps))

    def _solve(self) -> None:
        """Set the coefficients from the moments."""
        if self.psi_ is None and not self._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        system, alpha = self._system(), self._ridges()["phi"]
        eta, unfairness = check_weight_or_limit(self.eta, self.unfairness)
        self.jitter_ = 0.0
        if unfairness is not None:
            coef, self.eta_ = solve_under_limit(system, alpha, unfairness)
        elif self.penalty == "nocco_output":
            coef, self.eta_ = solve_output_nocco(system, alpha, eta, self.eps), eta
        else:
            (coef, self.jitter_), self.eta_ = solve_primal(system, alpha, eta), eta
        self._set_solution(system.solution(coef))
        without = self.psi_ is None
        self.explained_share_ = float("nan") if without else system.explained_share(coef)

    def _set_solution(self, solution: Solution) -> None:
        coef, intercept = solution
        self.coef_ = coef[:, 0] if self._one_target else coef.T
        self.intercept_ = float(intercept[0]) if self._one_target else intercept
        self.n_samples_seen_ = self.moments_.n_rows
        self._raw_coef = self._through_linear_part(coef)

    def _through_linear_part(self, coef: Array) -> dict[str, Array]:
        """Coefficients of the raw rows of each map, so that `predict` skips the linear part."""
        maps = {"phi": self.phi_, "psi": self.psi_}
        parts, start = {}, 0
        for name in self._features:
            stop = start + self.moments_.blocks[name]
            linear = maps[name].linear_  # type: ignore[union-attr]
            part = coef[start:stop]
            parts[name] = part if linear is None else linear @ part
            start = stop
        return parts

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        """Return what makes f on chunks: only what is needed for it, since dask sends it around."""
        coef = {name: part.astype(self.dtype) for name, part in self._raw_coef.items()}
        psi = self.psi_ if "psi" in coef else None
        return partial(_start_predicting, self.phi_, psi, coef, self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags


def _start_predicting(
    phi: FeatureMap, psi: FeatureMap | None, coef: dict[str, Array], intercept: Any
) -> Callable[[Chunk], Array]:
    """Return f = φ(x)β + ψ(s)γ + b on chunks, with a buffer for the rows of φ."""
    buffer = np.empty((PREDICT_ROWS, phi.n_raw_), coef["phi"].dtype)
    raw = RowMap(phi, dtype=buffer.dtype).start_phi()

    def predict(chunk: Chunk) -> Array:
        rows = buffer[: chunk.n_rows]
        raw(chunk.x, rows)
        f = rows @ coef["phi"]
        if psi is not None:
            f = f + psi.raw(chunk.s) @ coef["psi"]
        return np.asarray(f + intercept, dtype=np.float64)

    return predict
