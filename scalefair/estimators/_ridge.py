"""What the fair ridge estimators share: the closed form from the moments."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from scalefair._checks import (
    FINITE,
    MISSING_SENSITIVE,
    check_alpha,
    check_closed_form,
    check_grid,
    check_penalty,
    check_weight_or_limit,
)
from scalefair._typing import Array
from scalefair.estimators._base import STATE, FairBase, all_or_nothing
from scalefair.estimators._data import TrainingData, open_batch
from scalefair.estimators._output import check_output_kernel, fit_with_output_kernel
from scalefair.estimators.fair_path import FairPath, default_etas
from scalefair.moments import (
    Moments,
)
from scalefair.solve.diagnostics import warn_of_few_digits
from scalefair.solve.fit import RidgeFit, Spec
from scalefair.solve.ridge.direct import fit_ridge
from scalefair.solve.ridge.limited import rescale


class FairRidgeBase(MultiOutputMixin, RegressorMixin, FairBase):
    """The flow of every fair ridge: `fit` reads as the method."""

    output_kernel: Any = None

    def _learn(self, data: TrainingData) -> None:
        self._learn_maps(data)
        self._learn_solution(data)

    def _learn_solution(self, data: TrainingData) -> None:
        self.moments_ = self._moments(data.source, data.n_rows)
        if self._sees_distribution():
            self._assign(fit_with_output_kernel(self, data, self._system(), self._spec()))
        else:
            self._solve()

    def _sees_distribution(self) -> bool:
        """Whether the penalty is on all of the distribution of f, not on its mean alone."""
        return self.output_kernel is not None and self.psi_ is not None

    def _check_sees_mean(self, what: str) -> None:
        if self._sees_distribution():
            raise ValueError(
                f"output_kernel={self.output_kernel!r} needs all rows again, but {what} has only "
                "their moments; fit on all rows at once, or use output_kernel=None"
            )

    def collect(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        control_features: Any = None,
    ) -> Moments:
        """Return the moments of more rows, made with the maps of this fitted estimator.

        Nothing is added to the estimator: parts can be collected on different machines or days,
        saved, added up with `+`, and solved with :meth:`solve_from`. Parameters as in `fit`.
        """
        check_is_fitted(self)
        self._check_has_moments("collect")
        source = open_batch(self, X, y, sensitive_features, sample_weight, control_features)
        return self._moments(source, source.n_rows)

    def solve_from(self, moments: Moments) -> Self:
        """Replace the moments of this fitted estimator by others and solve again.

        After cross-validation it solves at the values chosen then, without held-out scores.

        Parameters
        ----------
        moments : Moments
            Made with the same maps, by :meth:`collect`; or the sum of several such.
        """
        check_is_fitted(self)
        self._check_has_moments("solve_from")
        Moments.empty(self.moments_.blocks, self.moments_.key) + moments  # complains of others
        with all_or_nothing(self):
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
        scores = self._scores(X)
        return scores[:, 0] if self._one_target else scores

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
        self._check_sees_mean("a path")
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
            relative = self._ridges() | {"phi": 1.0}
            alpha = {name: ratio * alpha for name, ratio in relative.items()}
        other: FairRidgeBase = clone(self).set_params(unfairness=None, alpha=alpha, eta=eta)
        return other._with_state_of(self)

    def _limited(self, unfairness: float) -> Self:
        """Solve again, under a limit."""
        self.set_params(eta=None, unfairness=unfairness)
        self._solve()
        return self

    def _rescaled(self) -> Self:
        """Take the scale of least error on the training rows, which changes no share."""
        system = self._system()
        coef = rescale(system, np.atleast_2d(self.coef_).T)
        share = system.explained_share(coef)
        self._assign(RidgeFit(system.solution(coef), self.eta_, share, self.diagnostics_))
        return self

    def _with_state_of(self, fitted: FairRidgeBase) -> Self:
        """Take over the maps and moments of a fitted estimator, and solve."""
        for name in (*STATE, "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        self._check_parameters()
        self._solve()
        return self

    def _check_parameters(self) -> None:
        check_alpha(self.alpha)
        check_weight_or_limit(self.eta, self.unfairness)
        check_penalty(self.penalty, self.eps)
        check_output_kernel(self)
        self._check_engine()
        if self.unfairness is not None and self.output_kernel is None:
            check_closed_form(self.penalty, "unfairness")

    def _spec(self) -> Spec:
        eta, unfairness = check_weight_or_limit(self.eta, self.unfairness)
        alpha = self._ridges()["phi"]
        return Spec(alpha, eta, unfairness, self.penalty, self.eps, self.dtype)

    def _solve(self) -> None:
        """Set the coefficients from the moments."""
        if self.psi_ is None and not self._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        self._check_sees_mean("this")
        self._assign(fit_ridge(self._system(), self._spec()))

    def _assign(self, fit: RidgeFit) -> None:
        """Set the attributes of a fit."""
        coef, intercept = fit.solution
        self.coef_ = coef[:, 0] if self._one_target else coef.T
        self.intercept_ = float(intercept[0]) if self._one_target else intercept
        self._raw_coef = self._through_linear_part(coef)
        self.n_samples_seen_ = self.moments_.n_rows
        self.eta_, self.explained_share_ = fit.eta, fit.explained_share
        self.diagnostics_, self.jitter_ = fit.diagnostics, fit.diagnostics.jitter
        if fit.n_iter is not None:
            self.n_iter_ = fit.n_iter
        if fit.output_share is not None:
            self.output_share_ = fit.output_share
        warn_of_few_digits(fit.diagnostics, type(self).__name__)


class BatchRidgeBase(FairRidgeBase):
    """A ridge whose rows may come in batches: their moments add up exactly."""

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        control_features: Any = None,
    ) -> Self:
        """Add a batch of rows to those seen so far, and solve again.

        The first batch fixes the encoding, the length scales and the landmarks, so it should look
        like the rest; the moments of later batches are added exactly. Parameters as in `fit`.
        """
        if not hasattr(self, "moments_"):
            self.fit(
                X, y, sensitive_features=sensitive_features, sample_weight=sample_weight,
                control_features=control_features,
            )  # fmt: skip
            return self
        with all_or_nothing(self):
            self._check_parameters()
            source = open_batch(self, X, y, sensitive_features, sample_weight, control_features)
            self.moments_ = self.moments_ + self._moments(source, source.n_rows)
            self._solve()
        return self
