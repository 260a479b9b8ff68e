"""Fair kernel ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from scalefair._checks import check_alpha, check_choice, check_weight_or_limit
from scalefair._typing import Array, Chunk
from scalefair.estimators._data import TrainingData
from scalefair.estimators._exact import exact_rows
from scalefair.estimators._iterative import SOLVERS, fit_streamed, is_iterative
from scalefair.estimators._kernel_inputs import KernelInputsMixin
from scalefair.estimators._ridge import BatchRidgeBase
from scalefair.solve.diagnostics import warn_of_few_digits


def _sums_over_rows(estimator: FairKernelRidge) -> bool:
    """Return True if rows may come in batches; the exact mode needs all of them at once."""
    if estimator.feature_map == "exact":
        raise AttributeError(
            "partial_fit needs a FairKernelRidge with an explicit feature map: feature_map='exact' "
            "needs all rows at once"
        )
    return True


class FairKernelRidge(KernelInputsMixin, BatchRidgeBase):
    """Kernel ridge regression whose predictions do not depend on sensitive attributes.

    Minimises 1/n |y − b − Φβ|² + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where |Rᵀβ|² measures the
    dependence between the predictions and the sensitive attributes. Only sums over rows are
    needed, so the fit is one pass over data of any length.

    Parameters
    ----------
    feature_map : {"nystroem", "fourier", "exact", "linear"} or feature map, default="nystroem"
        φ. "exact" is the dense n×n solution, for validation and small n.
    kernel : str or kernel, default="rbf"
        "rbf", "laplace", "matern12", "matern32", "matern52", "linear", or a kernel object.
    length_scale : float, array of shape (d,) or "median", default="median"
        Length scale of the kernel, one per input for ARD.
    n_components : int, default=500
        Number of features m.
    sensitive_kernel : str or kernel, default="auto"
        Kernel on the sensitive attributes. "auto": categories are crossed and one-hot, numbers
        standardised with a Gaussian kernel, both together their product.
    sensitive_length_scale : float, array or "median", default="median"
        Its length scale.
    n_sensitive_components : int, default=100
        Nyström features for sensitive attributes that are not categories. Where these are crossed
        with groups, ψ has at most four times as many columns, but at least five for each group.
    solver : {"auto", "direct", "iterative"}, default="auto"
        "direct" sums m×m moments in one pass and solves in closed form. "iterative" is for wide
        maps: preconditioned conjugate gradients, one pass per iteration, O(nm) each, no m×m
        matrix, and so no path or partial_fit. "auto" takes it from 8,000 features on.
    alpha : float or dict, default=1e-3
        Ridge per row: scikit-learn's `KernelRidge` has alpha = n times this one. A dict gives one
        per block of features, ``{"phi": 1e-3, "psi": 1e-6, "base": 1e-6}``: of φ(x), of ψ(s) and
        of ĥ(x), the last in units of its variance. A number is that of φ; the others get 1e-3 of
        it.
    eta : float or None, default=None
        Weight of the penalty; 0 is an ordinary fit, ``inf`` the limit in which the penalised
        dependence is gone. None means 1 unless `unfairness` is given.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share: the share of the variance of the predictions that the
        sensitive attributes explain. Finds eta itself.
    penalty : {"normalized", "hsic", "nocco", "nocco_output"}, default="normalized"
        What is punished: the variance of f that s explains; HSIC; NOCCO of φ and ψ; or NOCCO of
        the prediction itself, the share that s explains. A share has no units, so that the eta of
        the last has those of the variance of y: y·c needs eta·c².
    eps : float or None, default=None
        Regularisation ε of the normalised penalties. None: none for groups, 1e-6 for numbers, in
        units of their kernel or variance. The explained share is measured without it. For
        "nocco_output" it is added to the variance of f too, times the variance of y.
    output_kernel : None, "rbf" or RBF, default=None
        None: the penalty sees the mean of the predictions given s. "rbf": it sees all of their
        distribution, by Gaussian kernels of one and of a quarter of their standard deviation; or
        of the length scale given, in that unit. Has no closed form: L-BFGS, each step a pass over
        rows that are kept in memory up to 1 GB. `unfairness` then limits `output_share_`.
    base_estimator : estimator or None, default=None
        Another model, whose prediction ĥ(x) joins the features: any scikit-learn regressor,
        classifier (its probabilities) or pipeline. It sees X as given, without the columns that
        `hide_sensitive` hides. Training rows get the prediction of a copy that was fitted without
        their fold; `predict` uses one that was fitted on all rows. A model that is fitted already
        is used as it is, with a warning; wrapped in scikit-learn's `FrozenEstimator` it stays so
        in copies, as a grid search makes them.
    base_sample : int, default=100_000
        Rows that the base model is fitted on where X is not in memory, chosen by row number.
    base_fit : {"sample", "collection"}, default="sample"
        "collection" gives dask collections to the base model's `fit` instead, for models that take
        them; its `predict` must take the rows of a partition.
    fit_intercept : bool, default=True
        Whether to fit b.
    sensitive_columns : list of str or int, optional
        Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`.
        The model sees them, and ψ(s) joins φ(x).
    hide_sensitive : bool, default=False
        Whether the model may not use those columns.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the feature rows; sums over rows are float64 in any case.
    chunk_rows : int or None, default=None
        Rows per chunk; None chooses them so that the rows in flight fit the cache.
    n_jobs : int or None, default=None
        Chunks in flight at once, each in a thread; None: one per core that BLAS may use.
    checkpoint : path or None, default=None
        File that keeps the sums of a long fit, written every minute. A fit that crashed goes on
        from it, with the same data, parameters and an int as `random_state`; rows that were
        counted and have changed since are a ValueError.
    random_state : int, RandomState or None, default=None
        Seed for samples, landmarks and frequencies.

    Attributes
    ----------
    coef_ : array of shape (m,) or (t, m)
        β. Not there with ``feature_map="exact"``.
    dual_coef_ : array of shape (n,) or (n, t)
        With ``feature_map="exact"`` only: f(x) = k(x, X) dual_coef + intercept.
    intercept_ : float or array of shape (t,)
        b.
    eta_ : float
        The weight that was used or found.
    explained_share_ : float
        Explained share on the training rows; NaN where there is none.
    moments_ : Moments
        Statistics of the training rows, from which every other (alpha, eta) follows.
    output_share_ : float
        With `output_kernel` only: share of the variance of the features of f, those of the kernel,
        that the sensitive attributes explain on the training rows. 0: independent of them.
    n_iter_ : int
        Steps of an iterative solution.
    n_samples_seen_ : int
        Rows of positive weight.
    diagnostics_ : Diagnostics
        Condition number, jitter, rank of the features, and the digits that rounding has left;
        fewer than four are warned of.
    base_estimator_ : estimator or None
        The base model that `predict` uses.
    n_base_samples_ : int
        Rows that it was fitted on: all, or a sample of those that are not in memory; 0 where it
        was fitted before.

    Notes
    -----
    With a linear kernel on f the penalties promise parity in expectation: E[f | s] does not depend
    on s. The distribution of f around it may.

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
        self,
        *,
        feature_map: Any = "nystroem",
        kernel: Any = "rbf",
        length_scale: Any = "median",
        n_components: int = 500,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        solver: str = "auto",
        alpha: Any = 1e-3,
        eta: float | None = None,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        output_kernel: Any = None,
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
        self.feature_map = feature_map
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.sensitive_kernel = sensitive_kernel
        self.sensitive_length_scale = sensitive_length_scale
        self.n_sensitive_components = n_sensitive_components
        self.solver = solver
        self.alpha = alpha
        self.eta = eta
        self.unfairness = unfairness
        self.penalty = penalty
        self.eps = eps
        self.output_kernel = output_kernel
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

    @available_if(_sums_over_rows)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        control_features: Any = None,
    ) -> Self:
        """Add a batch of rows to those seen so far; see :meth:`FairRidge.partial_fit`."""
        return super().partial_fit(
            X, y, sensitive_features=sensitive_features, sample_weight=sample_weight,
            control_features=control_features,
        )  # fmt: skip

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_finite_map()

    def _check_engine(self) -> None:
        super()._check_engine()
        check_choice("solver", self.solver, SOLVERS)

    def _check_finite_map(self) -> None:
        super()._check_finite_map()
        if self._is_dual() and self.base_estimator is not None:
            raise ValueError(
                "base_estimator joins explicit features, which feature_map='exact' with a weight "
                "eta does not have; use feature_map='nystroem', or a limit unfairness="
            )

    def _is_dual(self) -> bool:
        return self._is_exact() and self.unfairness is None and self.output_kernel is None

    def _learn(self, data: TrainingData) -> None:
        # Under control the penalty needs the moments: then every row is a landmark.
        if self._is_dual() and data.preparation.control_encoder is None:
            self._learn_kernels(data)
            self._solve_dual()
            return
        self._learn_maps(data)
        if is_iterative(self.solver, self.phi_.n_raw_):
            self.moments_, fit = fit_streamed(self, data, self._spec())
            self._assign(fit)
            return
        self._learn_solution(data)

    def _learn_kernels(self, data: TrainingData) -> None:
        """Learn the kernels and keep all rows: the exact mode has no explicit features."""
        self._preparation = data.preparation
        self._n_targets, self._one_target = data.n_targets, data.one_target
        self._exact_rows = exact_rows(self, data)
        self.psi_ = self._exact_rows.psi
        self.kernel_ = self._exact_rows.kernel

    def _solve_dual(self) -> None:
        eta, _ = check_weight_or_limit(self.eta, self.unfairness)
        rows = self._exact_rows
        fit = rows.solve(
            check_alpha(self.alpha)["phi"], eta, eps=self.eps, penalty=self.penalty,
            fit_intercept=self.fit_intercept,
        )  # fmt: skip
        self.dual_coef_, self.eta_ = fit.dual_coef, eta
        intercept = np.zeros(self._n_targets) + fit.intercept
        self.intercept_ = float(intercept[0]) if self._one_target else intercept
        self.explained_share_ = rows.explained_share(fit.predict(rows.K))
        self.n_samples_seen_ = rows.n_rows
        self.diagnostics_ = rows.diagnostics(check_alpha(self.alpha)["phi"])
        warn_of_few_digits(self.diagnostics_, type(self).__name__)
        if self._one_target:
            self.dual_coef_ = fit.dual_coef[:, 0]

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        # What was fitted decides, not the parameters, which may have been set anew since.
        if not hasattr(self, "dual_coef_"):
            return super()._predictor()
        dual_coef = self.dual_coef_.reshape(len(self.dual_coef_), -1)
        rows, intercept = self._exact_rows, self.intercept_

        def predict(chunk: Chunk) -> Array:
            return rows.cross(chunk.x, chunk.s) @ dual_coef + intercept

        return lambda: predict
