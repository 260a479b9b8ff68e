"""Fair kernel ridge regression, also with cross-validated alpha and eta, from sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.auditing.candidates import Candidates, JudgedPath, Judgement, Judges, Part, judge, judge_path
from scalefair.auditing.certificate import Claim
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.sources.threads import one_blas_thread
from scalefair.errors import FINITE, JOINED_RIDGE, TINY, check_alpha, check_closed_form, check_grid
from scalefair.estimators.base import OnFolds, feature_ridges, learnt, names_of_columns
from scalefair.estimators.parameters import NOT_NEGATIVE, described
from scalefair.estimators.path import FairPath
from scalefair.estimators.ridge import Regression, RidgeBase
from scalefair.features.base import seed_of
from scalefair.features.cross_fit import CrossFit
from scalefair.features.design import Design
from scalefair.features.mixed import for_new_rows
from scalefair.features.rows import FitRows, open_fit_rows
from scalefair.features.training import Training, learn_design
from scalefair.moments import Moments
from scalefair.solve.fit import MIN_DIGITS, of_eigenvalues, warn_of_few_digits
from scalefair.solve.ridge.direct import ridge_fit
from scalefair.solve.ridge.path import FoldedMoments, Spectrum, default_alphas, default_etas
from scalefair.solve.ridge.search import SearchResult, search, warn_of_constant
from scalefair.solve.ridge.system import System, rescale

RIDGE_RATIOS = (1.0, 1e-3)
EPS_GRID = (None, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# Attributes that need the moments of each fold
HELD_OUT = ("explained_share_cv_", "explained_share_cv_error_", "cv_results_", "certificate_")


@described
class FairKernelRidge(RidgeBase):
    """Kernel ridge regression whose predictions do not depend on sensitive attributes.

    Minimises 1/n |y − b − Φβ|² + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where |Rᵀβ|² measures the
    dependence between the predictions and the sensitive attributes. Only sums over rows are
    needed, so memory does not grow with their number.

    Parameters
    ----------
    @ *

    Attributes
    ----------
    coef_ : array of shape (m,) or (t, m)
        β; not there with ``feature_map="exact"``.
    dual_coef_ : array of shape (n,) or (n, t)
        With ``feature_map="exact"`` only: f(x) = k(x, X) dual_coef + intercept.
    @ intercept_ alpha_ eta_ explained_share_ moments_ output_share_ n_iter_ n_samples_seen_
    @ diagnostics_ base_estimator_ n_base_samples_

    Notes
    -----
    With a linear kernel on f the penalties concern parity in expectation: E[f | s] does not depend
    on s. The distribution of f around its mean still may.

    Examples
    --------
    >>> from scalefair import FairKernelRidge
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairKernelRidge(unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    """

    def __init__(
        self, *, feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any = "median",
        n_components: int = 500, sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median", n_sensitive_components: int = 100,
        alpha: Any = "auto", eta: float | None = None, unfairness: float | None = None,
        penalty: str = "normalized", eps: float | None = None, output_kernel: Any = None,
        base_estimator: Any = None, fit_intercept: bool = True, sensitive_columns: Any = None,
        hide_sensitive: bool = False, missing_labels: str = "error", n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    _may_iterate = True

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        # What was fitted decides, not the parameters, which may have been changed since.
        if "dual_coef_" not in vars(self):
            return super()._predictor()
        dual_coef = self.dual_coef_.reshape(len(self.dual_coef_), -1)
        prepared, intercept = self._design.preparation, self.intercept_
        encoder = None if prepared is None else prepared.sensitive_encoder
        rows = replace(self._exact_rows, psi=for_new_rows(self._exact_rows.psi, encoder))

        def predict(chunk: Chunk) -> Array:
            return np.asarray(rows.cross(chunk.x, chunk.s) @ dual_coef + intercept)

        return lambda: predict


class CrossValidated(OnFolds):
    """A fair estimator that chooses alpha and eta on held-out folds; with a `confidence` it certifies its limit."""

    confidence: float | None = None
    guarantee: str = "split"

    def _claim(self) -> Claim | None:
        return None if self.confidence is None else Claim.of(self.unfairness, self.confidence)

    def _check_grids(self) -> None:
        base, split = self.base_estimator, self.guarantee == "split"
        collection = isinstance(base, CrossFit) and base.fit_on == "collection"
        if self._claim() is not None and split and collection:
            raise ValueError(
                "fit_on='collection' gives a base model all rows, those that calibrate among them; "
                "use fit_on='sample' or guarantee='cross'"
            )
        check_closed_form(self.penalty, "cross-validation")
        if self.alphas is not None:
            check_grid("alphas", self.alphas, high=FINITE)
        if self.etas is not None:
            check_grid("etas", self.etas)

    def _is_ordinary(self) -> bool:
        return self.unfairness is None and self.etas is not None and not np.any(self.etas)

    def _least_alpha(self) -> float:
        return np.inf if self.alphas is None else float(np.min(self.alphas))

    def _base_folds(self, training: Training) -> Folds:
        return self._folds(training)[0]

    def _penalty(self, eps: float | None) -> dict[str, Any]:
        # A limit of 0 is η = ∞, which leaves no share whatever ε, but with `nocco` would.
        free = self.unfairness == 0
        return {"penalty": "normalized" if free else self.penalty, "eps": None if free else eps}

    def _certified(
        self, result: Any, judge: Callable[[float], JudgedPath]
    ) -> tuple[Any, Callable[[Any], dict[str, Any]]]:
        """Return the search with a certified choice, where requested, and what certifies a model."""
        claim = self._claim()
        if claim is None:
            if result.choice is None:
                warn_of_constant(result.scores, result.etas, self.unfairness or 0.0)
            return result, lambda _: {}
        path = judge(claim.limit)
        chosen = replace(path.result, choice=path.choices[path.choose(claim)])
        return chosen, lambda model: {"certificate_": path.certificate(claim, model)}

    def _plain_at(self, plain: type, eps: float | None, known: dict[str, Any], **point: Any) -> Any:
        """Return the plain estimator at a point, with what is known but for its solution."""
        own = self.get_params(deep=False)
        shared = {name: own[name] for name in signature(plain).parameters if name in own}
        model = plain(**shared | self._penalty(eps) | point | {"unfairness": None})
        model.__dict__.update(known)
        return model

    @staticmethod
    def _fitted(model: Any) -> dict[str, Any]:
        """Return the attributes that a fit has set."""
        parameters = model.get_params(deep=False)
        return {name: value for name, value in vars(model).items() if name not in parameters}

    def _held_out(self, result: Any, error: str, path: Any) -> dict[str, Any]:
        """Return the attributes that say what was chosen, and what the others scored."""
        share, scores = result.share, result.scores
        results = {"alphas": result.alphas, "etas": result.etas, error: scores.mse, "explained_share": scores.share}
        return {
            "alpha_": result.alpha, "path_": path, "cv_results_": results,
            "explained_share_cv_": float(share.value), "explained_share_cv_error_": float(share.error),
        }  # fmt: skip

    def _train(self, checked: Self, given: Chunk, dtype: str, rows: FitRows | None = None) -> Training:
        if self.confidence is None or self.guarantee == "cross":
            return super()._train(checked, given, dtype, rows)
        rows = open_fit_rows(checked, given, keeps_frames=self.base_estimator is not None)
        part = Part(seed_of(self.random_state) + 2, calibrates=False)
        calibrating = replace(part, calibrates=True).of(rows).source
        training = super()._train(checked, given, dtype, part.of(rows))
        return replace(training, calibrating=calibrating)

    def _judging(self, training: Training, design: Design, candidates: Candidates) -> Judgement:
        """Return the shares of candidates on rows that calibrate, or on those outside their fit."""
        if training.calibrating is not None:
            source = design.numbers(training.calibrating, sensitive=True)
            return judge(source, design, ALL_ROWS, candidates)
        folds, some_always_train = self._folds(training)
        tested = replace(folds, count=folds.count - some_always_train)  # the last one is not judged
        return judge(training.source, design, tested, candidates)


@described
class FairKernelRidgeCV(CrossValidated, Regression):
    """Fair kernel ridge regression that chooses alpha and eta by cross-validation.

    Moments are stored per fold, so that every (alpha, eta) is fitted on the other folds and scored
    on each without reading the data again. The final fit is on all rows.

    Without a limit it takes the largest eta whose error is within one standard error of the best: the fairest of the
    models that are as accurate as the best. With `unfairness` it takes the least error among those whose held-out
    share, plus ¾ of its standard error, is within the limit, or a constant, with a warning, if that has less error.

    Parameters
    ----------
    @ *
    alphas : array-like, optional
        Ridges to try; by default 10, relative to the variance of the features.
    etas : array-like, optional
        Penalty weights to try; by default 25, from 0 to ∞.
    eps : float, "auto" or None, default=None
        Regularisation ε of the penalty, as in :class:`FairKernelRidge`; "auto" chooses it by the
        held-out error within the limit. Shares are measured without it.
    ridge_ratios : sequence of float, default=(1.0, 1e-3)
        Ridges to try for ψ(s), if it is added to φ(x), relative to alpha; ĥ(x) gets 1e-3 of that.

    Attributes
    ----------
    alpha_, eta_, eps_, ridge_ratio_ : float
        The values that were chosen.
    path_ : FairPath
        The whole grid with its held-out scores.
    cv_results_ : dict of arrays of shape (K, A, E)
        Error ("mse") and share ("explained_share") of each fold, and the grid ("alphas", "etas").
    @ cv.explained_share_ explained_share_cv_ explained_share_cv_error_ cv.certificate_
    coef_ : array of shape (m,) or (t, m)
        β.
    @ intercept_ moments_ n_samples_seen_ diagnostics_ base_estimator_ n_base_samples_

    Notes
    -----
    `solve_from` has no folds: it solves at the present `alpha_`, `eta_`, `eps_` and `ridge_ratio_`
    and reports `explained_share_`, without limiting it. Held-out scores would not apply to these
    rows, so `explained_share_cv_`, its error and `cv_results_` are removed, and `path_` is that of
    the new moments, without scores.

    Examples
    --------
    >>> from scalefair import FairKernelRidgeCV
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairKernelRidgeCV(unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> model.explained_share_cv_ <= 0.05
    True
    """

    moments_: Moments
    path_: FairPath
    _own_constraints: ClassVar[dict[str, Any]] = {"eps": [None, StrOptions({"auto"}), NOT_NEGATIVE]}
    _ridge: FairKernelRidge  # The ridge at the chosen point

    def __init__(
        self, *, alphas: Any = None, etas: Any = None, cv: Any = 5, feature_map: Any = "nystroem",
        kernel: Any = "rbf", length_scale: Any = "median", n_components: int = 500,
        sensitive_kernel: Any = "auto", sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100, unfairness: float | None = None,
        confidence: float | None = None, guarantee: str = "split", penalty: str = "normalized",
        eps: Any = None, ridge_ratios: Any = RIDGE_RATIOS, base_estimator: Any = None,
        fit_intercept: bool = True, sensitive_columns: Any = None, hide_sensitive: bool = False,
        missing_labels: str = "error", n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_grids()
        check_grid("ridge_ratios", self.ridge_ratios, low=TINY, high=FINITE)

    def _epses(self) -> tuple[float | None, ...]:
        if self.eps is None:
            return (None,)
        return EPS_GRID if isinstance(self.eps, str) else (float(self.eps),)

    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        config = current_config()
        training = self._train(checked, given, config.dtype)
        design = learn_design(training, dtype=config.dtype, sees_sensitive=self._sees_sensitive())
        rows = self._rows(training.source, design, training.survey.n_rows, self._least_alpha())
        _, moments = self._fold_moments(rows, training, checkpoint=config.checkpoint)
        known = names_of_columns(checked) | learnt(training, design)
        known["_one_target"] = training.one_target
        return self._choose(design, moments, known, partial(self._judging, training, design))

    def _choose(self, design: Design, moments: FoldedMoments, known: dict[str, Any], judges: Judges) -> dict[str, Any]:
        """Return what a fit sets, from moments and what is known of the design."""
        searched = self._search(design, moments)
        moments = replace(moments, total=moments.total.calibrated(searched.calibration))

        def judge(limit: float) -> JudgedPath:
            options = self._options(design, moments.total, searched.ratio, searched.eps)
            system, split = System.build(moments.total, **options), self.guarantee == "split"
            return judge_path(limit, searched, system, judges, split=split)

        result, certificate = self._certified(searched, judge)
        alpha: Any = result.alpha
        if len(design.features) > 1:
            relative = {"phi": 1.0, "psi": result.ratio, "base": JOINED_RIDGE * result.ratio}
            alpha = {name: part * alpha for name, part in relative.items()}
        point = {"alpha": alpha, "eta": result.eta}
        ridge: FairKernelRidge = self._plain_at(FairKernelRidge, result.eps, known, **point)
        self._refit(ridge, moments.total, constant=result.choice is None)
        path = FairPath(ridge, result.alphas, result.etas, result.scores)
        chosen = self._fitted(ridge) | {"_ridge": ridge} | self._held_out(result, "mse", path) | certificate(ridge)
        return chosen | {"eps_": result.eps, "ridge_ratio_": result.ratio}

    def _options(self, design: Design, moments: Moments, ratio: float, eps: float | None) -> dict[str, Any]:
        """Arguments of `System.build`; `ratio` is the relative ridge of the blocks that join φ."""
        relative = {"psi": ratio, "base": JOINED_RIDGE * ratio}
        return self._penalty(eps) | {
            "ridge": feature_ridges(design.features, moments, relative),
            "fit_intercept": self.fit_intercept,
            "features": design.features,
        }

    def _search(self, design: Design, moments: FoldedMoments) -> SearchResult:
        joined = len(design.features) > 1
        ratios = tuple(np.ravel(self.ridge_ratios)) if joined else (1.0,)
        options = partial(self._options, design, moments.total)
        with one_blas_thread(len(moments.total.shift)):
            system = System.build(moments.total, **options(ratios[0], self._epses()[0]))
            alphas = default_alphas(system) if self.alphas is None else self.alphas
            alphas = check_grid("alphas", alphas)
            etas = default_etas(system, float(alphas.min())) if self.etas is None else self.etas
        return search(
            moments, options, alphas=alphas, etas=np.sort(check_grid("etas", etas)),
            epses=self._epses(), ratios=ratios, unfairness=self.unfairness,
        )  # fmt: skip

    def _refit(self, ridge: FairKernelRidge, moments: Moments, *, constant: bool) -> None:
        """Solve at the point of the ridge, for all rows; or take the best constant."""
        alpha, eta = check_alpha(ridge.alpha)["phi"], float(ridge.eta or 0.0)
        with one_blas_thread(len(moments.shift)):
            system = ridge._system(ridge._design, moments)
            spectrum = Spectrum.of(system)
            coef = spectrum.at(alpha).coef(np.array([eta]))[0]
        if constant:
            coef = np.zeros_like(coef)
        elif self.unfairness is not None and eta > 0:
            coef = rescale(system, coef)
        rounding = ridge._spec(ridge._design.dtype, moments.n_rows).rounding
        diagnostics = of_eigenvalues(spectrum.values, alpha, rounding)
        fit = ridge_fit(system, coef, alpha, eta, diagnostics)
        one = ridge._one_target
        ridge.__dict__.update(ridge._solution(moments, fit, ridge._design, one_target=one))

    def collect(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None, control_features: Any = None
    ) -> Moments:
        """Return the moments of more rows; see :meth:`FairKernelRidge.collect`."""
        check_is_fitted(self)
        return self._ridge.collect(
            X, y, sensitive_features=sensitive_features, sample_weight=sample_weight, control_features=control_features
        )

    def _without_penalty(self) -> Any:
        return self._ridge._without_penalty()

    def path(self, alphas: Any = None, etas: Any = None) -> FairPath:
        """Return a path from the moments of all rows; see :meth:`FairKernelRidge.path`."""
        check_is_fitted(self)
        return self._ridge.path(alphas, etas)

    def solve_from(self, moments: Moments) -> Self:
        """Solve again at the chosen values, without held-out scores; see :meth:`FairKernelRidge.solve_from`."""
        check_is_fitted(self)
        self.moments_.check_same_rows(moments)
        moments = moments.calibrated(self.moments_.calibration)
        ridge = copy(self._ridge)
        self._refit(ridge, moments, constant=not np.any(self.coef_))
        if ridge.diagnostics_.digits < MIN_DIGITS:
            warn_of_few_digits(ridge.diagnostics_, type(self).__name__)
        for name in HELD_OUT:
            self.__dict__.pop(name, None)
        self.__dict__.update(self._fitted(ridge) | {"_ridge": ridge})
        self.path_ = FairPath(ridge, self.path_.alphas, self.path_.etas)
        return self
