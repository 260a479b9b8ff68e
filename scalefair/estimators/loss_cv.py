"""Fair classification and regression with any loss, alpha and eta chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair._config import current_config
from scalefair._typing import Array
from scalefair.errors import check_alpha, check_grid
from scalefair.estimators.base import OF_COLUMNS, feature_ridges
from scalefair.estimators.classifier import Classification, FairKernelClassifier
from scalefair.estimators.loss import (
    MAX_CACHED_BYTES,
    FairKernelRegressor,
    LossBase,
    LossRegression,
)
from scalefair.estimators.parameters import described
from scalefair.estimators.path import LossPath
from scalefair.estimators.ridge_cv import CrossValidated
from scalefair.features.design import Design
from scalefair.features.training import Training
from scalefair.moments import Moments
from scalefair.moments.accumulate import FeatureCache, Rows
from scalefair.solve.diagnostics import Diagnostics, warn_of_few_digits
from scalefair.solve.fit import LossFit
from scalefair.solve.newton.descent import fit_loss
from scalefair.solve.newton.folds import FoldProblem, LossSearch, Point, PointFit, search_loss
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.path import default_alphas
from scalefair.solve.ridge.search import warn_of_constant
from scalefair.solve.ridge.system import System
from scalefair.solve.spec import Spec

N_ALPHAS = 8
"""Ridges that are tried by default, a decade apart; more beside the best."""


class LossCV(CrossValidated, LossBase):
    """Chooses a ridge and a weight for a general loss; `_plain` is the class at one point."""

    _plain: ClassVar[Any]
    _model: Any
    """The plain estimator at the chosen point."""

    def _check_point(self) -> None:
        self._check_grids()

    def _learn_loss(
        self,
        checked: Self,
        training: Training,
        loss: Any,
        known: dict[str, Any],
        weigh: Callable[[Any, Moments], Any] | None = None,
    ) -> dict[str, Any]:
        dtype = current_config().dtype
        loss, training, rows = self._loss_rows(training, loss, dtype, self._least_alpha())
        cache = FeatureCache.within(MAX_CACHED_BYTES, rows.source, rows.design)
        folds, moments = self._fold_moments(rows, training, cache=cache)
        loss = loss if weigh is None else weigh(loss, moments.total)
        system = partial(self._system_of, rows.design, moments.total)
        whole = Problem(
            rows.source, rows.design, self._solved_loss(loss), system(moments.total),
            rows.chunk_rows, cache,
        )  # fmt: skip
        alphas, etas = self._grids(whole.system)
        problem = FoldProblem.build(whole, folds, moments, system)
        result = search_loss(problem, alphas, etas, self.unfairness, finer=self.alphas is None)
        if result.choice is None:
            warn_of_constant(result.scores, self.unfairness or 0.0)
        fit = self._fit_at(rows, whole, result, dtype)
        warn_of_few_digits(fit.diagnostics, type(self).__name__)
        known = known | {name: vars(checked)[name] for name in OF_COLUMNS if name in vars(checked)}
        known = known | self._learnt(training, rows.design, loss)
        return self._chosen(known, whole, result, fit)

    def _system_of(self, design: Design, total: Moments, moments: Moments) -> System:
        """Return the system of some rows, with the ridges of all."""
        ridge = feature_ridges(design.features, total, check_alpha(1.0))
        return System.build(
            moments, fit_intercept=self.fit_intercept, features=design.features, ridge=ridge,
            **self._penalty(self.eps),
        )  # fmt: skip

    def _grids(self, system: System) -> tuple[Array, Array | None]:
        alphas = default_alphas(system, N_ALPHAS) if self.alphas is None else self.alphas
        etas = None if self.etas is None else np.unique(check_grid("etas", self.etas))
        if not system.factor.shape[1]:
            etas = np.zeros(1)
        return check_grid("alphas", alphas), etas

    def _fit_at(self, rows: Rows, whole: Problem, result: LossSearch, dtype: str) -> LossFit:
        """Return the fit of all rows at the point that was chosen; a constant is one already."""
        penalty = self._penalty(self.eps)
        spec = Spec(result.alpha, result.eta, None, penalty["penalty"], penalty["eps"], dtype)
        if result.choice is None and result.constant is not None:
            return _constant(whole, result.constant, whole.diagnosed(result.warm, spec))
        return fit_loss(rows, whole, spec, None, self.tol, self.max_iter, result.warm)

    def _chosen(
        self, known: dict[str, Any], whole: Problem, result: LossSearch, fit: LossFit
    ) -> dict[str, Any]:
        """Return the attributes of the chosen fit, and what the others scored."""
        own = self.get_params(deep=False)
        shared = {name: own[name] for name in self._plain().get_params() if name in own}
        plain = self._plain(**shared | self._penalty(self.eps) | {"unfairness": None})
        plain.__dict__.update(known)
        moments = whole.system.moments
        at = partial(_at_point, plain, moments)
        fits = [
            at(point, _fit_of(whole, point.eta, tried, fit.diagnostics))
            for point, tried in result.fits.items()
        ]
        constant = None
        if result.constant is not None:
            flat = _constant(whole, result.constant, fit.diagnostics)
            constant = at(Point(result.alpha, np.inf), flat)
        model = at(Point(result.alpha, result.eta), fit)
        scores, share = result.scores, result.share
        parameters = plain.get_params(deep=False)
        fitted = {name: value for name, value in vars(model).items() if name not in parameters}
        return fitted | {
            "_model": model, "alpha_": result.alpha,
            "explained_share_cv_": float(share.value),
            "explained_share_cv_error_": float(share.error),
            "path_": LossPath(fits, result.listed(), constant),
            "cv_results_": {
                "alphas": result.alphas, "etas": result.etas, "loss": scores.mse,
                "explained_share": scores.share,
            },
        }  # fmt: skip

    def path(self, X: Any, y: Any, etas: Any = None, **given: Any) -> LossPath:
        """Return the path of the chosen ridge over rows; see :meth:`FairKernelClassifier.path`."""
        check_is_fitted(self)
        return self._model.path(X, y, etas, **given)  # type: ignore[no-any-return]


def _fit_of(whole: Problem, eta: float, tried: PointFit, diagnostics: Diagnostics) -> LossFit:
    """Return the fit of all rows that a search made at a point."""
    coef, intercept = whole.solution(tried.theta[-1])
    share = whole.system.explained_share(coef)
    return LossFit(coef, intercept, eta, share, diagnostics, tried.loss, 0, 0)


def _constant(whole: Problem, tried: PointFit, diagnostics: Diagnostics) -> LossFit:
    """Return the best constant: its coefficients are 0 but for the last digits."""
    theta = np.array(tried.theta)
    theta[:, : len(whole.system.ridge)] = 0.0
    return _fit_of(whole, np.inf, tried._replace(theta=theta), diagnostics)


def _at_point(plain: Any, moments: Moments, point: Point, fit: LossFit) -> Any:
    """Return a plain estimator with the fit at a point."""
    return plain.set_params(alpha=float(point.alpha))._at(moments, fit)


@described
class FairKernelClassifierCV(LossCV, Classification):
    """Fair kernel classification that chooses alpha and eta by cross-validation.

    As :class:`FairKernelClassifier`, with the ridge and the weight of the penalty chosen by the
    mean loss and the explained share of the scores on held-out folds. The fits of all folds share
    their passes over the rows, and the final fit is on all rows.

    Without a limit it takes the largest eta whose loss is within one standard error of the best:
    the fairest of the models that are as good as the best. With `unfairness` it takes the least
    loss among those whose held-out share, with half its standard error, is within the limit, or
    a constant, with a warning, where that errs less.

    Parameters
    ----------
    loss : {"logistic", "multinomial"} or loss, default="logistic"
        V. "logistic" means the multinomial loss where there are more than two classes. An object of
        `scalefair.losses` is told classes as 0 and 1, or as one-hot rows.
    class_weight : None, "balanced" or dict, default=None
        How often each class counts in the loss; "balanced": all classes equally often. The penalty
        and the explained share are about the rows as they are.
    @ cv.alphas cv.etas cv
    @ feature_map kernel length_scale n_components sensitive_kernel sensitive_length_scale
    @ n_sensitive_components
    @ cv.unfairness
    @ penalty eps base_estimator fit_intercept sensitive_columns hide_sensitive tol max_iter n_jobs
    @ random_state

    Attributes
    ----------
    classes_ : array of shape (k,)
        The labels, sorted.
    coef_ : array of shape (1, m) or (k, m)
        β; for more than two classes one row each, which add up to zero.
    loss_ : loss
        V, class weights included.
    @ cv.alpha_ cv.path_ cv.cv_results_ explained_share_cv_ explained_share_cv_error_
    @ cv.explained_share_
    @ intercept_ mean_loss_ n_iter_ n_passes_ moments_ n_samples_seen_ diagnostics_

    Notes
    -----
    Ridges are compared at the least eta first, from the largest on; the best and its neighbours at
    all etas, and more beside the best pair. Pairs that were not tried are NaN in `cv_results_`.

    Examples
    --------
    >>> from scalefair import FairKernelClassifierCV
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairKernelClassifierCV(unfairness=0.05, n_components=50, random_state=0)
    >>> model = model.fit(toy.data, toy.target > 0, sensitive_features=toy.sensitive_features)
    >>> model.explained_share_cv_ <= 0.05
    True
    """

    _plain = FairKernelClassifier

    def __init__(
        self,
        *,
        loss: Any = "logistic",
        class_weight: Any = None,
        alphas: Any = None,
        etas: Any = None,
        cv: Any = 5,
        feature_map: Any = "nystroem",
        kernel: Any = "rbf",
        length_scale: Any = "median",
        n_components: int = 500,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        base_estimator: Any = None,
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        tol: float = 1e-10,
        max_iter: int = 50,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self._store(locals())


@described
class FairKernelRegressorCV(LossCV, LossRegression):
    """Fair kernel regression with any loss that chooses alpha and eta by cross-validation.

    As :class:`FairKernelRegressor`, with the ridge and the weight of the penalty chosen as
    :class:`FairKernelClassifierCV` does. For the squared loss :class:`FairKernelRidgeCV` needs one
    pass.

    Parameters
    ----------
    loss : str or loss, default="huber"
        V, as in :class:`FairKernelRegressor`.
    @ cv.alphas cv.etas cv
    @ feature_map kernel length_scale n_components sensitive_kernel sensitive_length_scale
    @ n_sensitive_components
    @ cv.unfairness
    @ penalty eps base_estimator fit_intercept sensitive_columns hide_sensitive tol max_iter n_jobs
    @ random_state

    Attributes
    ----------
    coef_ : array of shape (m,)
        β.
    loss_ : loss
        V, with the scales that were left open.
    @ cv.alpha_ cv.path_ cv.cv_results_ explained_share_cv_ explained_share_cv_error_
    @ cv.explained_share_
    @ intercept_ mean_loss_ n_iter_ n_passes_ moments_ n_samples_seen_ diagnostics_

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import FairKernelRegressorCV
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> counts = np.random.default_rng(0).poisson(np.exp(toy.target / 4))
    >>> options = {"n_components": 50, "random_state": 0}
    >>> model = FairKernelRegressorCV(loss="poisson", unfairness=0.05, **options)
    >>> model = model.fit(toy.data, counts, sensitive_features=toy.sensitive_features)
    >>> model.explained_share_cv_ <= 0.05
    True
    """

    _plain = FairKernelRegressor

    def __init__(
        self,
        *,
        loss: Any = "huber",
        alphas: Any = None,
        etas: Any = None,
        cv: Any = 5,
        feature_map: Any = "nystroem",
        kernel: Any = "rbf",
        length_scale: Any = "median",
        n_components: int = 500,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        base_estimator: Any = None,
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        tol: float = 1e-10,
        max_iter: int = 50,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self._store(locals())
