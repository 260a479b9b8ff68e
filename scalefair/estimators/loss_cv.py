"""Fair classification and regression with any loss, alpha and eta chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from scalefair._config import current_config
from scalefair._typing import Array, DataFrame
from scalefair.auditing.candidates import Calibration, certified_decisions, judge_fits
from scalefair.auditing.certificate import Claim
from scalefair.data import frames
from scalefair.errors import check_alpha, check_grid
from scalefair.estimators.base import feature_ridges, learnt
from scalefair.estimators.classifier import Classification, FairKernelClassifier
from scalefair.estimators.kernel_ridge import CrossValidated
from scalefair.estimators.loss import MAX_CACHED_BYTES, FairKernelRegressor, LossBase, LossRegression
from scalefair.estimators.parameters import described
from scalefair.estimators.path import BOUND, LossPath, PathBase, held_out_columns, not_within, with_held_out
from scalefair.features.design import Design
from scalefair.features.training import Training
from scalefair.held_out import NO_SHARE
from scalefair.moments import Moments
from scalefair.moments.accumulate import FeatureCache, Rows
from scalefair.solve.fit import ROUNDING, LossFit, Spec, single_rounding
from scalefair.solve.newton.descent import fit_loss
from scalefair.solve.newton.folds import FoldProblem, LossSearch, Point, PointFit, search_loss
from scalefair.solve.newton.model import Problem, mean_curvature
from scalefair.solve.ridge.path import GridScores, choose, default_alphas
from scalefair.solve.ridge.search import warn_of_constant
from scalefair.solve.ridge.system import System

N_ALPHAS = 8  # that are tried by default, a decade apart; more beside the best


class LossPathCV(PathBase):
    """Fits of one model at several ridges and weights, with their held-out scores.

    Parameters
    ----------
    estimator : fitted estimator
        The plain one at some point.
    alphas, fits : ridges and fits of all rows
        G of them; the best constant may follow the fits.
    scores : GridScores
        Held-out scores, of shape (K, 1, G).

    Attributes
    ----------
    table : DataFrame
        One row per fit with alpha, eta, the mean loss and the explained share of the scores on the
        training rows, and on held-out folds loss_cv, loss_cv_error, explained_share_cv and
        explained_share_cv_error: means over the folds and their standard errors.

    Notes
    -----
    ``at(alpha=, eta=)`` returns one of these fits, with the same tolerance as the fits of the folds.
    ``at(unfairness=u)`` is the fit of least held-out loss whose held-out share, plus ¾ of its
    standard error, is at most u, or a constant, with a warning, if that has less error. Both have
    `explained_share_cv_` and its error.
    """

    etas: Array

    def __init__(self, estimator: Any, alphas: Array, fits: Sequence[LossFit], scores: GridScores) -> None:
        self._estimator, self._scores, self._alphas = estimator, scores, alphas
        self.etas = np.array([fit.eta for fit in fits[: len(alphas)]])
        self._losses = np.array([fit.mean_loss for fit in fits])
        self._shares = np.array([fit.explained_share for fit in fits])
        self._coef = np.stack([fit.coef for fit in fits])
        self._intercept = np.stack([fit.intercept for fit in fits])

    @cached_property
    def table(self) -> DataFrame:
        """The path as a data frame."""
        count = len(self._alphas)
        columns = {
            "alpha": self._alphas,
            "eta": self.etas,
            "loss": self._losses[:count],
            "explained_share": self._shares[:count],
        }
        return frames.make_frame(columns | held_out_columns(self._scores, "loss"))

    @property
    def _criteria(self) -> tuple[str, str]:
        return "explained_share_cv", "loss_cv"

    def _fit(self, at: int) -> Any:
        """Return one of the fits; −1: the constant."""
        estimator = self._estimator
        share = NO_SHARE if at < 0 else self._scores.estimate[0, at]
        alpha = float(self._alphas.max() if at < 0 else self._alphas[at])
        eta = np.inf if at < 0 else float(self.etas[at])
        fit = LossFit(
            self._coef[at], self._intercept[at], eta, float(self._shares[at]),
            estimator.diagnostics_, float(self._losses[at]), 0, 0,
        )  # fmt: skip
        other = estimator._at(estimator.moments_, fit).set_params(alpha=alpha)
        other.alpha_ = alpha
        return with_held_out(other, share)

    def _at_weight(self, alpha: float | None, eta: float) -> Any:
        same = (self.etas == eta) & ((self._alphas == alpha) | (alpha is None))
        if same.sum() != 1:
            raise ValueError(
                f"at(alpha={alpha!r}, eta={eta!r}) is not one fit of the path; its table has all "
                f"pairs, such as {(float(self._alphas[0]), float(self.etas[0]))}"
            )
        return self._fit(int(np.argmax(same)))

    def _at_limit(self, unfairness: float) -> Any:
        choice = choose(self._scores, self.etas, unfairness)
        if choice is not None:
            return self._fit(choice.eta)
        if self._scores.constant is None:
            raise not_within(unfairness, self._scores.bounds(self.etas, unfairness), BOUND)
        warn_of_constant(self._scores, self.etas, unfairness)
        return self._fit(-1)

    def __repr__(self) -> str:
        return f"<LossPathCV: {len(self._alphas)} fits>"


class LossCV(CrossValidated, LossBase):
    """Chooses a ridge and a weight for a general loss; `_plain` is the class at one point."""

    _plain: ClassVar[Any]
    _model: Any  # The plain estimator at the chosen point

    def _check_point(self) -> None:
        self._check_grids()
        asked = self._asked
        if asked is None or self.confidence is None:
            return
        Claim.of(self.unfairness, self.confidence, asked.limit)
        if asked.limit != "decisions" or self.guarantee != "split":
            raise ValueError(
                f"confidence={self.confidence!r} with limit_on={asked.limit!r} and "
                f"guarantee={self.guarantee!r}: a fit certifies rates of decisions, by a split; "
                "certify others on new rows, by certify(model, X, limit_on='odds', ...)"
            )

    def _learn_loss(self, training: Training, loss: Any, known: dict[str, Any]) -> dict[str, Any]:
        dtype, asked = current_config().dtype, self._asked
        loss, training, rows = self._loss_rows(training, loss, dtype, self._least_alpha())
        cache = FeatureCache.within(MAX_CACHED_BYTES, rows.source, rows.design)
        folds, moments = self._fold_moments(rows, training, cache=cache)
        if self.class_weight is not None:
            loss = self._weighed(loss, known["classes_"], moments.total)
        system = partial(self._system_of, rows.design, moments.total)
        of_all, solved = system(moments.total), self._solved_loss(loss)
        whole = Problem(rows.source, rows.design, solved, of_all, rows.chunk_rows, cache)
        problem = FoldProblem.build(whole, folds, moments, system)
        limit = self.unfairness if asked is None else None
        result = search_loss(problem, *self._grids(of_all, loss, training.sample.y), limit, finer=self.alphas is None)
        if asked is None:
            judges = partial(self._judging, training, rows.design)
            judge = partial(judge_fits, result=result, problem=problem, judges=judges, split=self.guarantee == "split")
            result, certify = self._certified(result, judge)
        fit = self._fit_at(rows, whole, result, dtype)
        known = known | learnt(training, rows.design) | {"loss_": loss}
        chosen = self._chosen(known, whole, result, fit)
        if asked is None:
            return chosen | certify(chosen["_model"])
        without = result.tried[Point(result.alpha, result.eta)].theta[:-1]
        scores = [self._scores_of(loss, *both) for both in (*map(whole.solution, without), (fit.coef, fit.intercept))]
        learn = partial(self._decisions, asked, rows, problem.parts, scores, result.alpha, known, folds)
        if self.confidence is None:
            return chosen | learn(self.unfairness)
        source = rows.design.numbers(training.calibrating, sensitive=True)  # type: ignore[arg-type]
        calibration = Calibration(rows.design, source, scores[-1], self._gains(loss))
        claim = Claim.of(self.unfairness, self.confidence, asked.limit)
        return chosen | certified_decisions(learn, claim, calibration, chosen["_model"])

    def _system_of(self, design: Design, total: Moments, moments: Moments) -> System:
        """Return the system of some rows, with the ridges of all."""
        ridge = feature_ridges(design.features, total, check_alpha(1.0))
        return System.build(
            moments, fit_intercept=self.fit_intercept, features=design.features, ridge=ridge, **self._penalty(self.eps)
        )

    def _grids(self, system: System, loss: Any, y: Array) -> tuple[Array, Array | None]:
        # The losses of counts and quantiles have units, those of classes have none.
        unit = 1.0 if is_classifier(self) else mean_curvature(loss, system.moments, y)
        alphas = unit * default_alphas(system, N_ALPHAS) if self.alphas is None else self.alphas
        etas = None if self.etas is None else np.unique(check_grid("etas", self.etas))
        if not system.factor.shape[1] or (etas is None and self._asked is not None):
            etas = np.zeros(1)
        return check_grid("alphas", alphas), etas

    def _fit_at(self, rows: Rows, whole: Problem, result: LossSearch, dtype: str) -> LossFit:
        """Return the fit of all rows at the point that was chosen, or the best constant."""
        n_rows = whole.system.moments.n_rows
        rounding = single_rounding(n_rows) if dtype == "float32" else ROUNDING
        penalty = self._penalty(self.eps)
        spec = Spec(result.alpha, result.eta, None, rounding=rounding, **penalty)
        fit = fit_loss(rows, whole, spec, None, self.tol, self.max_iter, result.warm)
        constant = None if result.choice is not None else result.constant
        return fit if constant is None else _constant(whole, constant, fit)

    def _chosen(self, known: dict[str, Any], whole: Problem, result: LossSearch, fit: LossFit) -> dict[str, Any]:
        """Return the attributes of the chosen fit, and what the others scored."""
        point = {"alpha": result.alpha, "eta": result.eta, "limit_on": "scores"}
        plain = self._plain_at(self._plain, self.eps, known, **point)
        model = plain._at(whole.system.moments, fit)
        tried = [_fit_of(whole, point.eta, at, fit) for point, at in result.tried.items()]
        if result.constant is not None:
            tried.append(_constant(whole, result.constant, fit))
        alphas = np.array([point.alpha for point in result.tried])
        path = LossPathCV(model, alphas, tried, result.listed())
        return self._fitted(model) | self._held_out(result, "loss", path) | {"_model": model}

    def path(self, X: Any, y: Any, etas: Any = None, **given: Any) -> LossPath:
        """Return the path of the chosen ridge over rows; see :meth:`FairKernelClassifier.path`."""
        check_is_fitted(self)
        return self._model.path(X, y, etas, **given)  # type: ignore[no-any-return]


def _fit_of(whole: Problem, eta: float, tried: PointFit, like: LossFit) -> LossFit:
    """Return the fit of all rows that a search made at a point, beside one that is known."""
    coef, intercept = whole.solution(tried.theta[-1])
    share = whole.system.explained_share(coef)
    return replace(
        like, coef=coef, intercept=intercept, eta=eta, explained_share=share, mean_loss=tried.loss, n_iter=0, n_passes=0
    )


def _constant(whole: Problem, tried: PointFit, like: LossFit) -> LossFit:
    """Return the best constant: its coefficients are 0 but for the last digits."""
    theta = np.array(tried.theta)
    theta[:, : len(whole.system.ridge)] = 0.0
    return _fit_of(whole, np.inf, tried._replace(theta=theta), like)


@described
class FairKernelClassifierCV(LossCV, Classification):
    """Fair kernel classification that chooses alpha and eta by cross-validation.

    As :class:`FairKernelClassifier`, with the ridge and the weight of the penalty chosen by the
    mean loss and the explained share of the scores on held-out folds. The fits of all folds share
    their passes over the rows, and the final fit is on all rows.

    Without a limit it takes the largest eta whose loss is within one standard error of the best,
    with `unfairness` the least loss among those whose held-out share, plus ¾ of its standard error,
    is within the limit, or a constant, with a warning, if that has less error.

    Parameters
    ----------
    @ *

    Attributes
    ----------
    @ classes_ coef_ loss_
    @ cv.alpha_ cv.path_ cv.cv_results_ explained_share_cv_ explained_share_cv_error_
    @ cv.certificate_
    @ cv.explained_share_
    @ intercept_ mean_loss_ n_iter_ n_passes_ moments_ n_samples_seen_ diagnostics_ decisions_

    Notes
    -----
    Ridges are compared at the least eta first, then all etas at the best, then neighbours of the
    best pair. Pairs that were not tried are NaN in `cv_results_`.

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
        self, *, loss: Any = "logistic", class_weight: Any = None, alphas: Any = None, etas: Any =
        None, cv: Any = 5, feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any =
        "median", n_components: int = 500, sensitive_kernel: Any = "auto", sensitive_length_scale:
        Any = "median", n_sensitive_components: int = 100, unfairness: float | None = None,
        limit_on: Any = "scores", confidence: float | None = None, guarantee: str = "split",
        penalty: str = "normalized", eps: float | None = None, base_estimator: Any = None,
        fit_intercept: bool = True, sensitive_columns: Any = None, hide_sensitive: bool = False,
        tol: float = 1e-10, max_iter: int = 50, n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())


@described
class FairKernelRegressorCV(LossCV, LossRegression):
    """Fair kernel regression with any loss that chooses alpha and eta by cross-validation.

    As :class:`FairKernelRegressor`, with the ridge and the weight of the penalty chosen as
    :class:`FairKernelClassifierCV` does. For the squared loss :class:`FairKernelRidgeCV` has a closed form.

    Parameters
    ----------
    @ *
    loss : str or loss, default="huber"
        V, as in :class:`FairKernelRegressor`.

    Attributes
    ----------
    coef_ : array of shape (m,)
        β.
    loss_ : loss
        V, with the scales that were estimated.
    @ cv.alpha_ cv.path_ cv.cv_results_ explained_share_cv_ explained_share_cv_error_
    @ cv.certificate_
    @ cv.explained_share_
    @ intercept_ mean_loss_ n_iter_ n_passes_ moments_ n_samples_seen_ diagnostics_ decisions_

    Examples
    --------
    >>> from scalefair import FairKernelRegressorCV
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairKernelRegressorCV(unfairness=0.05, n_components=50, random_state=0)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> model.explained_share_cv_ <= 0.05
    True
    """

    _plain = FairKernelRegressor

    def __init__(
        self, *, loss: Any = "huber", alphas: Any = None, etas: Any = None, cv: Any = 5,
        feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any = "median",
        n_components: int = 500, sensitive_kernel: Any = "auto", sensitive_length_scale: Any =
        "median", n_sensitive_components: int = 100, unfairness: float | None = None, limit_on:
        Any = "scores", confidence: float | None = None, guarantee: str = "split",
        penalty: str = "normalized", eps: float | None = None, base_estimator: Any = None,
        fit_intercept: bool = True, sensitive_columns: Any
        = None, hide_sensitive: bool = False, tol: float = 1e-10, max_iter: int = 50, n_jobs: int |
        None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())
