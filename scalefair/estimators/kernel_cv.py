"""Fair kernel ridge regression with cross-validated alpha and eta, in one pass."""

from __future__ import annotations

from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from scalefair._checks import (
    FINITE,
    JOINED_RIDGE,
    TINY,
    check_choice,
    check_closed_form,
    check_grid,
    check_number,
    check_penalty,
)
from scalefair.data.sources import ArraySource
from scalefair.estimators._data import TrainingData
from scalefair.estimators._folds import make_folds
from scalefair.estimators._kernel_inputs import KernelInputsMixin
from scalefair.estimators._maps import group_names
from scalefair.estimators._ridge import FairRidgeBase
from scalefair.estimators._search import FoldedMoments, SearchResult, check_judgeable, search
from scalefair.estimators.fair_path import FairPath, default_alphas, default_etas
from scalefair.estimators.kernel import FairKernelRidge
from scalefair.moments import Folds, Moments
from scalefair.solve.diagnostics import of_eigenvalues, rounding_of
from scalefair.solve.ridge.direct import ridge_fit
from scalefair.solve.ridge.limited import rescale
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System

RIDGE_RATIOS = (1.0, 1e-3)
EPS_GRID = (None, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
HELD_OUT = ("explained_share_cv_", "explained_share_cv_error_", "cv_results_", "path_")
"""What only the moments of each fold can tell, not those of all rows."""


class FairKernelRidgeCV(KernelInputsMixin, FairRidgeBase):
    """Fair kernel ridge regression that chooses alpha and eta by cross-validation, in one pass.

    The statistics are kept per fold, so that every (alpha, eta) is fitted on the other folds and
    scored on each without looking at the data again. The final fit is on all rows.

    Without a limit it takes the largest eta whose error is within one standard error of the best:
    the fairest of the models that are as good as the best. With `unfairness` it takes the least
    error among those whose held-out share, with half its standard error, is within the limit, or
    a constant, with a warning, where that errs less.

    Parameters
    ----------
    alphas : array-like, optional
        Ridges to try; by default 10, relative to the variance of the features.
    etas : array-like, optional
        Penalty weights to try; by default 25, from 0 to ∞.
    cv : int, splitter or iterable, default=5
        Number of random folds, or anything that splits the rows into disjoint test sets.
    ridge_ratios : sequence of float, default=(1.0, 1e-3)
        Ridges to try for ψ(s) where it joins φ(x), relative to alpha; ĥ(x) gets 1e-3 of that.
    eps : float, "auto" or None, default=None
        Regularisation ε of the penalty, as in :class:`FairKernelRidge`; "auto" chooses it by the
        held-out error within the limit. Shares are measured without it.
    feature_map, kernel, length_scale, n_components, sensitive_kernel, sensitive_length_scale, \
    n_sensitive_components, unfairness, penalty, base_estimator, base_sample, base_fit, \
    fit_intercept, sensitive_columns, \
    hide_sensitive, dtype, chunk_rows, n_jobs, checkpoint, random_state
        As in :class:`FairKernelRidge`.

    Attributes
    ----------
    alpha_, eta_, eps_, ridge_ratio_ : float
        What was chosen.
    path_ : FairPath
        The whole grid with its held-out scores.
    cv_results_ : dict of arrays of shape (K, A, E)
        Error ("mse") and share ("explained_share") of each fold, and the grid ("alphas", "etas").
    explained_share_ : float
        Explained share on the training rows: reported, not limited. NaN for a constant.
    explained_share_cv_ : float
        Held-out share: mean over the folds, corrected for chance, floored at 0. For numeric
        attributes the largest over three ridges of the function of s, a little too large.
    explained_share_cv_error_ : float
        Its standard error.
    coef_, intercept_, moments_, n_samples_seen_, diagnostics_, base_estimator_, n_base_samples_
        As in :class:`FairKernelRidge`.

    Notes
    -----
    `solve_from` has no folds to choose by: it solves at `alpha_`, `eta_`, `eps_` and `ridge_ratio_`
    as they are, and reports `explained_share_`, which it does not limit. Held-out scores would be
    those of other rows: `explained_share_cv_`, its error and `cv_results_` are removed, and
    `path_` is that of the new moments, without scores.

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

    def __init__(
        self,
        *,
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
        eps: Any = None,
        ridge_ratios: Any = RIDGE_RATIOS,
        base_estimator: Any = None,
        base_sample: int = 100_000,
        base_fit: str = "sample",
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        dtype: str = "float64",
        chunk_rows: int | None = None,
        n_jobs: int | None = None,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.alphas = alphas
        self.etas = etas
        self.cv = cv
        self.feature_map = feature_map
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.sensitive_kernel = sensitive_kernel
        self.sensitive_length_scale = sensitive_length_scale
        self.n_sensitive_components = n_sensitive_components
        self.unfairness = unfairness
        self.penalty = penalty
        self.eps = eps
        self.ridge_ratios = ridge_ratios
        self.base_estimator = base_estimator
        self.base_sample = base_sample
        self.base_fit = base_fit
        self.fit_intercept = fit_intercept
        self.sensitive_columns = sensitive_columns
        self.hide_sensitive = hide_sensitive
        self.dtype = dtype
        self.chunk_rows = chunk_rows
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _learn(self, data: TrainingData) -> None:
        self._learn_maps(data)
        moments = self._folded_moments(data)
        self.moments_ = moments.total
        self._take(self._search(moments))

    def _check_parameters(self) -> None:
        check_penalty(self.penalty, None)
        self._epses()
        check_closed_form(self.penalty, "cross-validation")
        self._check_engine()
        self._check_finite_map()
        if self.alphas is not None:
            check_grid("alphas", self.alphas, high=FINITE)
        if self.etas is not None:
            check_grid("etas", self.etas)
        check_grid("ridge_ratios", self.ridge_ratios, low=TINY, high=FINITE)
        if self.unfairness is not None:
            check_number("unfairness", self.unfairness, 0.0, 1.0)

    def _is_ordinary(self) -> bool:
        return self.unfairness is None and self.etas is not None and not np.any(self.etas)

    def _ridges(self) -> dict[str, float]:
        return self._relative_ridges(self.ridge_ratio_) | {"phi": self.alpha_}

    def _relative_ridges(self, ratio: float) -> dict[str, float]:
        return {"phi": 1.0, "psi": ratio, "base": JOINED_RIDGE * ratio}

    def _least_alpha(self) -> float:
        return np.inf if self.alphas is None else float(np.min(self.alphas))

    def _epses(self) -> tuple[float | None, ...]:
        if self.eps is None:
            return (None,)
        if isinstance(self.eps, str):
            check_choice("eps", self.eps, ("auto",))
            return EPS_GRID
        return (check_number("eps", self.eps, 0.0, FINITE),)

    def _folds(self, data: TrainingData) -> tuple[Folds, bool]:
        source = data.source
        X, y = getattr(source, "x", None), getattr(source, "y", None)
        if not isinstance(source, ArraySource):
            X = y = range(data.n_rows)
        # Not the seed of the sample: landmarks must not gather in one fold.
        return make_folds(self.cv, X, y, data.seed + 1)

    def _make_folds(self, data: TrainingData) -> Folds:
        return self._folds(data)[0]

    def _folded_moments(self, data: TrainingData) -> FoldedMoments:
        folds, some_always_train = self._folds(data)
        parts = self._accumulate(data.source, data.n_rows, folds)
        held, always = (parts[:-1], parts[-1]) if some_always_train else (parts, None)
        if not all(fold.weight for fold in held):
            raise ValueError(
                f"cv={self.cv!r} makes a fold in which sample_weight is zero for every row; use "
                "fewer folds, or leave those rows out"
            )
        return FoldedMoments(held, always, reduce(add, parts))

    def _search(self, moments: FoldedMoments) -> SearchResult:
        if self.psi_ is not None and self.unfairness is not None:
            names = group_names(self.psi_, self._preparation.sensitive_encoder)
            check_judgeable(moments.folds, names)
        joined = len(self._features) > 1
        ratios = tuple(np.ravel(self.ridge_ratios)) if joined else (1.0,)
        options = partial(self._system_options, moments.total)
        system = System.build(moments.total, **options(ratios[0], self._epses()[0]))
        alphas = (
            default_alphas(system) if self.alphas is None else check_grid("alphas", self.alphas)
        )
        etas = self.etas
        if etas is None:
            etas = default_etas(system, float(alphas.min()))
        return search(
            moments, options, alphas=alphas, etas=np.sort(check_grid("etas", etas)),
            epses=self._epses(), ratios=ratios, unfairness=self.unfairness,
        )  # fmt: skip

    def _take(self, result: SearchResult) -> None:
        """Refit on all rows at the chosen point and set the attributes."""
        self.alpha_, self.eta_ = result.alpha, result.eta
        self.eps_, self.ridge_ratio_ = result.eps, result.ratio
        self._refit(constant=result.choice is None)
        self.explained_share_cv_ = float(result.share.value)
        self.explained_share_cv_error_ = float(result.share.error)
        self.path_ = FairPath(self, result.alphas, result.etas, result.scores)
        self.cv_results_ = {
            "alphas": result.alphas, "etas": result.etas,
            "mse": result.scores.mse, "explained_share": result.scores.share,
        }  # fmt: skip

    def _solve(self) -> None:
        """Solve again at the chosen point; what was measured on folds is gone, as their rows are.

        A limit was met on those folds: here the share is reported, not limited.
        """
        alphas, etas = self.path_.alphas, self.path_.etas
        for name in HELD_OUT:
            self.__dict__.pop(name, None)
        self._refit(constant=not np.any(self.coef_))
        self.path_ = FairPath(self, alphas, etas)

    def _refit(self, *, constant: bool) -> None:
        """Set the fit of all rows at the chosen point, or the best constant."""
        system = self._system()
        spectrum = Spectrum.of(system)
        coef = spectrum.at(self.alpha_).coef(np.array([self.eta_]))[0]
        if constant:
            coef = np.zeros_like(coef)
        elif self.unfairness is not None and self.eta_ > 0:
            coef = rescale(system, coef)
        rounding = rounding_of(self.dtype, self.moments_.n_rows)
        diagnostics = of_eigenvalues(spectrum.values, self.alpha_, rounding)
        self._assign(ridge_fit(system, coef, self.eta_, diagnostics))

    def _system_options(self, moments: Moments, ratio: float, eps: float | None) -> dict[str, Any]:
        # A limit of 0 is η = ∞, which leaves no share whatever ε, but with `nocco` would.
        own = {"penalty": "normalized", "eps": None} if self.unfairness == 0 else {}
        return super()._system_options(moments, ratio, eps) | own

    def _system(self) -> System:
        options = self._system_options(self.moments_, self.ridge_ratio_, self.eps_)
        return System.build(self.moments_, **options)

    def _at(self, alpha: Any, eta: float) -> FairKernelRidge:
        """Return a `FairKernelRidge` at another point, solved from the same moments."""
        own = self.get_params(deep=False)
        shared = {name: own[name] for name in FairKernelRidge().get_params() if name in own}
        if len(self._features) > 1 and not isinstance(alpha, dict):
            relative = self._relative_ridges(self.ridge_ratio_)
            alpha = {name: part * alpha for name, part in relative.items()}
        shared |= {"eps": self.eps_, "unfairness": None, "eta": eta, "alpha": alpha}
        return FairKernelRidge(**shared)._with_state_of(self)
