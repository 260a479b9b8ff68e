"""Fair regression with any loss: moments, then Newton's passes over the rows."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.data import is_stream
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.errors import MISSING_SENSITIVE, check_alpha, check_grid, check_weight_or_limit
from scalefair.estimators.base import FairEstimator, names_of_columns
from scalefair.estimators.parameters import described
from scalefair.estimators.path import LossPath
from scalefair.features.design import Design, Finished
from scalefair.features.rows import encoded_once, open_predict_rows
from scalefair.features.training import Training, learn_design
from scalefair.losses import LOSSES, Gamma, Poisson, SumToZero
from scalefair.losses.base import LOSS_METHODS, check_row_targets
from scalefair.moments import Moments
from scalefair.moments.accumulate import FeatureCache, Rows
from scalefair.penalties import check_control
from scalefair.solve.decisions.fit import Decisions, FairDecisions, Limited, check_groups, learn_decisions
from scalefair.solve.fit import MIN_DIGITS, LossFit, warn_of_few_digits
from scalefair.solve.newton.descent import fit_loss, loss_path
from scalefair.solve.newton.model import Problem, mean_curvature
from scalefair.solve.ridge.path import default_etas
from scalefair.solve.ridge.system import Solution

# Features of rows in memory that are cached between passes
MAX_CACHED_BYTES = 2**28


class LossBase(FairEstimator):
    """The flow of every fair estimator whose loss is not the squared one."""

    loss_: Any
    psi_: Any
    decisions_: FairDecisions
    class_weight: Any = None
    _decides_classes: ClassVar[bool] = False
    _squeezes: ClassVar[bool] = True  # whether `coef_` of one score has one dimension

    @property
    def _asked(self) -> Decisions | None:
        """Which decisions are limited; None: the scores are."""
        if isinstance(self.limit_on, str) and self.limit_on == "scores":
            return None
        return Decisions.of(self.limit_on, self.unfairness, classes=self._decides_classes)

    def _is_ordinary(self) -> bool:
        return self._asked is None and super()._is_ordinary()

    @abstractmethod
    def _gains(self, loss: Any) -> Callable[[Array], Array]:
        """Return what turns scores into probabilities of classes, or into predictions (n, 1)."""

    def _decisions(  # noqa: PLR0917
        self, asked: Decisions, rows: Rows, problems: Sequence[Problem], fits: Sequence[Solution],
        alpha: float, known: dict[str, Any], folds: Folds, limit: float,
    ) -> dict[str, Any]:  # fmt: skip
        """Return `decisions_` of fits without each fold, and of all rows last; or of these."""
        labels = known.get("classes_", np.array([False, True]))
        limited = Limited(asked, limit, self._gains(known["loss_"]), labels)
        return {"decisions_": learn_decisions(rows, problems, fits, alpha, limited, folds)}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.loss, type):
            raise TypeError(f"loss={self.loss!r} is a class; give an object of it")
        self._check_point()

    def _check_point(self) -> None:
        """Raise ValueError if there is no fit at this ridge and weight."""
        check_alpha(self.alpha)
        if self._asked is None:
            check_weight_or_limit(self.eta, self.unfairness)
        else:
            check_weight_or_limit(self.eta or 0.0, None)
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

    def _learn_loss(self, training: Training, loss: Any, known: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of a fit, those that are known already among them."""
        loss, training, rows = self._loss_rows(training, loss, dtype := current_config().dtype)
        cache = FeatureCache.within(MAX_CACHED_BYTES, rows.source, rows.design)
        (moments,) = rows.moments(cache=cache)
        if "xi" in moments.blocks:
            check_control(moments)
        if self.class_weight is not None:
            loss = self._weighed(loss, known["classes_"], moments)
        system, y = self._system(rows.design, moments), training.sample.y
        spec = self._spec(dtype, moments.n_rows, mean_curvature(loss, moments, y))
        solved = loss if loss.n_scores == 1 else self._solved_loss(loss)
        problem = Problem(rows.source, rows.design, solved, system, rows.chunk_rows, cache)
        fit = fit_loss(rows, problem, spec, self.output_kernel, self.tol, self.max_iter)
        known = known | {"loss_": loss}
        if training.base is not None:
            known["n_base_samples_"] = training.n_base_samples
        if (asked := self._asked) is not None:
            scores = [self._scores_of(loss, fit.coef, fit.intercept)]
            known |= self._decisions(asked, rows, [problem], scores, spec.alpha, known, ALL_ROWS, self.unfairness)
        return known | self._solution(rows.design, moments, loss, fit) | {"alpha_": spec.alpha}

    def _loss_rows(
        self, training: Training, loss: Any, dtype: str, least_alpha: float | None = None
    ) -> tuple[Any, Training, Rows]:
        """Return the loss with its scales, and the rows with the design that is learnt on them."""
        y = training.sample.y
        loss = loss.fitted(y[:, 0] if loss.n_targets == 1 else y, training.sample.weight)
        if training.preparation.encoder is not None:
            training = encoded_once(training)
        if self.output_kernel is None:
            seen = self.sensitive_columns is not None and self._sees_sensitive()
            design = learn_design(training, dtype=dtype, sees_sensitive=seen)
        else:
            design = self._curved_design(training, dtype)
        if design.psi is None and not self._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        if self._asked is not None:
            check_groups(design)
        n_rows = training.survey.n_rows
        return loss, training, self._rows(training.source, design, n_rows, least_alpha)

    def _solution(self, design: Design, moments: Moments, loss: Any, fit: LossFit) -> dict[str, Any]:
        """Return the attributes of a fit."""
        coef, intercept, one = fit.coef, fit.intercept, self._squeezes and loss.n_scores == 1
        if coef.shape[1] < loss.n_scores:
            coef, intercept = self._scores_of(loss, coef, intercept)
        nonlinear = {} if fit.output_share is None else {"output_share_": fit.output_share}
        return {
            "_design": design, "phi_": design.phi, "psi_": design.psi,
            "coef_": coef[:, 0] if one else coef.T, "_raw_coef": design.raw_coef(coef),
            "intercept_": float(intercept[0]) if one else intercept, "moments_": moments,
            "n_samples_seen_": moments.n_rows, "eta_": fit.eta,
            "mean_loss_": fit.mean_loss, "n_iter_": fit.n_iter, "n_passes_": fit.n_passes,
            "explained_share_": fit.explained_share, "diagnostics_": fit.diagnostics, **nonlinear,
        }  # fmt: skip

    def _scores_of(self, loss: Any, coef: Array, intercept: Array) -> Solution:
        """Return the scores of the loss, from those that were solved for."""
        solved = self._solved_loss(loss)
        if isinstance(solved, SumToZero):
            coef, intercept = coef @ solved.contrasts.T, intercept @ solved.contrasts.T
        return Solution(coef, intercept)

    def _decided(self, X: Any, finish: Callable[..., Array]) -> Any:
        """Return finish(decisions, gains, [f, ê]) of the rows of X."""
        check_is_fitted(self)
        if "decisions_" not in vars(self):
            raise ValueError("the model makes no decisions; fit with limit_on=Decisions(threshold=...) or top=...")
        decisions, design = self.decisions_, self._design
        start = decisions.predictor(design, self._raw_coef, self.intercept_)
        made = Finished(start, partial(finish, decisions, self._gains(self.loss_)))
        return design.predict(open_predict_rows(self, X, design), made)

    def path(
        self, X: Any, y: Any, etas: Any = None, *, sensitive_features: Any = None,
        sample_weight: Any = None, control_features: Any = None,
    ) -> LossPath:  # fmt: skip
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
        system = self._system(rows.design, moments)
        spec = self._spec(rows.design.dtype, moments.n_rows)
        spec = replace(spec, alpha=vars(self).get("alpha_", spec.alpha))
        solved = self._solved_loss(self.loss_)
        problem = Problem(rows.source, rows.design, solved, system, rows.chunk_rows, cache)
        etas = default_etas(system, spec.alpha, 9) if etas is None else etas
        grid = np.sort(check_grid("etas", etas))
        fits = loss_path(problem, spec, grid, self.tol, self.max_iter)
        worst = min((fit.diagnostics for fit in fits), key=lambda fit: fit.digits)
        if worst.digits < MIN_DIGITS:
            warn_of_few_digits(worst, type(self).__name__)
        return LossPath([self._at(moments, fit) for fit in fits])

    def _check_path(self) -> None:
        if self.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        if vars(self).get("n_base_samples_"):
            warnings.warn(
                "the base model was fitted on all rows of fit: give rows to path that it has not "
                "seen, or its errors look too small",
                stacklevel=3,
            )
        if self.output_kernel is not None or self.penalty == "nocco_output":
            raise ValueError(
                f"a path is not available with output_kernel={self.output_kernel!r} and "
                f"penalty={self.penalty!r}; fit one model for each eta"
            )

    def _rows_again(self, given: Chunk) -> Any:
        """Return the rows of `path`, with targets as the loss expects them."""
        return self._more_rows(given)

    def _at(self, moments: Moments, fit: LossFit) -> Self:
        """Return a copy with another fit."""
        other: Self = copy(self).set_params(eta=fit.eta, unfairness=None, limit_on="scores")
        other.__dict__.pop("decisions_", None)  # those of this fit
        other.__dict__.update(other._solution(self._design, moments, self.loss_, fit))
        return other


@described
class LossRegression(RegressorMixin, LossBase):
    """A fair regression with any loss, whatever finds its ridge and weight."""

    _own_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(set(LOSSES) - {"logistic"}), HasMethods(LOSS_METHODS)]
    }

    @property
    def _is_positive(self) -> bool:
        return isinstance(self.loss, Poisson | Gamma) or self.loss in ("poisson", "gamma")

    @property
    def _base_scale(self) -> str:  # type: ignore[override]
        return "log" if self._is_positive else "probability"

    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        y = given.y
        if not is_stream(given.x) and y is not None and np.asarray(y).shape[1:] == (1,):
            given = replace(given, y=column_or_1d(y, warn=True))
        training = self._train(checked, given, current_config().dtype)
        loss = LOSSES[self.loss]() if isinstance(self.loss, str) else self.loss
        if training.n_targets != loss.n_targets:
            raise ValueError(
                f"y has {training.n_targets} columns, but the {type(loss).__name__} loss is for "
                f"{loss.n_targets}; fit one target at a time"
            )
        source = training.source.then(partial(check_row_targets, loss))
        training = replace(training, source=source)
        return self._learn_loss(training, loss, names_of_columns(checked))

    def predict(self, X: Any) -> Any:
        """Predict the mean (or quantile) of y; the sensitive attributes are not needed.

        @@ (k,)
        """
        return self._scores(X, partial(_linked, vars(self).get("loss_")))

    def predict_scores(self, X: Any) -> Any:
        """Return the scores f, to which the penalty applies; `predict` is a function of them.

        @@ (k,)
        """
        return self._scores(X, partial(_linked, None))

    def _gains(self, loss: Any) -> Callable[[Array], Array]:
        return partial(_decided, loss)

    def decide(self, X: Any) -> Any:
        """Return the decision of each row: whether it exceeds the threshold, or is at the top.

        Only with `limit_on`. Rates of the groups differ by at most `unfairness`.

        @@ (k,)
        """
        return self._decided(X, FairDecisions.decide) > 0

    def rank_scores(self, X: Any) -> Any:
        """Return numbers to rank rows by, so that each group is selected at about the same rate.

        Only with `limit_on`. Positive where :meth:`decide` says yes, unless that is randomised.

        @@ (k,)
        """
        return self._decided(X, FairDecisions.lead)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._is_positive
        return tags


@described
class FairKernelRegressor(LossRegression):
    """Kernel regression with any loss, whose scores do not depend on sensitive attributes.

    Minimises 1/n ΣV(f(xᵢ), yᵢ) + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where |Rᵀβ|² measures the dependence
    between the scores f and the sensitive attributes. Newton's method: one pass over the rows for the moments and
    one for each of a few iterations. For the squared loss :class:`FairKernelRidge` has a closed form.

    Parameters
    ----------
    @ *
    loss : str or loss, default="huber"
        V. "poisson" and "gamma": counts and positive amounts, with f the log of their mean. "huber": squared, but
        robust. "quantile": the median. "squared": as :class:`FairKernelRidge`. Or an object of `scalefair.losses`,
        such as ``Quantile(0.9)`` or ``Huber(delta=2.0)``, or of a subclass of `Loss`. A base model's prediction
        joins "poisson" and "gamma" as log(1 + ĥ).

    Attributes
    ----------
    coef_ : array of shape (m,)
        β.
    loss_ : loss
        V, with the scales that were estimated.
    @ intercept_ alpha_ eta_ explained_share_ output_share_ mean_loss_ n_iter_ n_passes_ moments_
    @ n_samples_seen_ diagnostics_ decisions_

    Notes
    -----
    The penalty concerns parity of the scores f in expectation. With a logarithmic link that is
    parity of the mean of log predictions; the means of the predictions themselves may still differ.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import FairKernelRegressor
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> counts = np.random.default_rng(0).poisson(np.exp(toy.target / 4))
    >>> model = FairKernelRegressor(loss="poisson", unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, counts, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    """

    def __init__(
        self, *, loss: Any = "huber", feature_map: Any = "nystroem", kernel: Any = "rbf",
        length_scale: Any = "median", n_components: int = 500, sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median", n_sensitive_components: int = 100,
        alpha: Any = "auto", eta: float | None = None, unfairness: float | None = None,
        limit_on: Any = "scores", penalty: str = "normalized", eps: float | None = None,
        base_estimator: Any = None, output_kernel: Any = None, fit_intercept: bool = True,
        sensitive_columns: Any = None, hide_sensitive: bool = False, tol: float = 1e-10,
        max_iter: int = 50, n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())


def _linked(loss: Any, f: Array) -> Array:
    f = f[:, 0] if f.shape[1] == 1 else f
    return f if loss is None else np.asarray(loss.inverse_link(f))


def _decided(loss: Any, f: Array) -> Array:
    return np.asarray(loss.inverse_link(f[:, 0]))[:, None]
