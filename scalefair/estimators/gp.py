"""Fair Gaussian process regression."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from scalefair._checks import check_flag
from scalefair._typing import Array
from scalefair.estimators._data import TrainingData, open_inputs, open_training
from scalefair.estimators._exact import exact_rows
from scalefair.estimators._maps import sample_size
from scalefair.estimators.gp_base import (
    Callbacks,
    Process,
    check_bounds,
    check_positive_or_optimize,
    given,
)
from scalefair.features import Nystroem
from scalefair.features._moving import MovingNystroem
from scalefair.solve.dense.process import ExactLaw, fit_dense
from scalefair.solve.gp.distribution import (
    Distribution,
    FeatureLaw,
    covariance_of,
    draw,
    mean_and_deviation,
)
from scalefair.solve.gp.evidence import MomentEvidence
from scalefair.solve.gp.fit import GPFit, fit_features
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.spec import Spec
from scalefair.solve.gp.system import GaussianSystem

ROWS_IN_MEMORY = 65536
"""Rows per chunk where all are wanted at once."""


class FairGPRegressor(Process, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Gaussian process regression whose predictions do not depend on sensitive attributes.

    y = ȳ + f(x) + N(0, σ²), where f is a Gaussian process of kernel a²k(x, x') that is conditioned
    on being fair: functions that depend on s on the training rows, as the penalty measures it, are
    less likely by exp(−(nη/2σ²) · penalty). The mean of f given y is the fair ridge fit without
    intercept on centred y, at alpha = σ²/(na²) and the same eta. Noise, amplitude and length scales
    maximise the evidence. Of the rows only sums are needed, so their number does not matter: two
    passes for each set of length scales that is tried.

    Parameters
    ----------
    feature_map : {"nystroem", "fourier", "exact", "linear"} or feature map, default="nystroem"
        φ. "exact" is the dense n×n process, for validation and small n. A `Nystroem` object needs
        ``whitening="cholesky"`` where length scales are learnt.
    kernel : str or kernel, default="rbf"
        "rbf", "laplace", "matern12", "matern32", "matern52", "linear", or a kernel object, which
        brings its own start.
    length_scale : float, array of shape (d,), "median" or "standardized", default="median"
        Where the search starts. One number stays one number. One per input is ARD; "standardized"
        starts it from the median heuristic for standardised inputs.
    n_components : int, default=500
        Number of features m.
    learn_landmarks : bool, default=False
        Whether Nyström landmarks move in the search, too.
    sensitive_kernel : str or kernel, default="auto"
        Kernel on the sensitive attributes; see :class:`FairKernelRidge`.
    sensitive_length_scale : float, array or "median", default="median"
        Its length scale.
    n_sensitive_components : int, default=100
        Nyström features for sensitive attributes that are not categories. Where these are crossed
        with groups, ψ has at most four times as many columns, but at least five for each group.
    noise : float or "optimize", default="optimize"
        Noise variance σ².
    amplitude : float or "optimize", default="optimize"
        Prior standard deviation a of f before fairness, for a kernel with k(x, x) = 1.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        How length scales are learnt; None keeps their start. Noise and amplitude cost no pass and
        are optimised in any case, unless they are given.
    n_restarts : int, default=0
        Further searches, from random starts.
    max_iter : int, default=100
        Iterations of each search.
    tol : float, default=1e-5
        A search has converged where no slope of the log evidence per row is above it.
    length_scale_bounds : (float, float) or None, default=None
        None: 1e-3 to 1e3 times the start.
    noise_bounds, amplitude_bounds : (float, float) or None, default=None
        None: 1e-8 to 1e2 times the variance of y, 1e-3 to 1e3 times its standard deviation.
    eta : float or None, default=None
        Weight of the penalty against the squared error, as in :class:`FairKernelRidge`; held while
        the evidence is maximised. With ``inf`` length scales are learnt at a large finite weight.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share of the mean. Length scales are learnt at the weight that meets
        it at their start; weight, noise and amplitude are found again at those learnt.
    penalty : {"normalized", "hsic"}, default="normalized"
        What is punished.
    eps : float or None, default=None
        Regularisation ε of the normalised penalty. None: none for groups, 1e-6 for numbers, in
        units of their kernel or variance. The explained share is measured without it.
    sensitive_columns : list of str or int, optional
        Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`.
        The kernel sees them as inputs.
    hide_sensitive : bool, default=False
        Whether the model may not use those columns.
    chunk_rows : int or None, default=None
        Rows per chunk; None chooses them.
    n_jobs : int or None, default=None
        Chunks in flight at once, each in a thread; None: one per core that BLAS may use.
    random_state : int, RandomState or None, default=None
        Seed for samples, landmarks, frequencies and restarts.

    Attributes
    ----------
    kernel_ : Kernel
        a²k with the length scales found, in ``kernel_.length_scale``.
    noise_, amplitude_, eta_ : float
        σ², a and η that were found or given.
    theta_ : array of shape (n_hyper + 2,)
        log length scales, log a and log σ².
    log_marginal_likelihood_value_ : float
        Log evidence there.
    converged_, n_iter_, n_evaluations_, optimizer_message_
        How the search ended; `evidence_history_` has the log evidence of each evaluation.
    at_bounds_ : tuple of str
        What ran to a bound, and what that means.
    explained_share_ : float
        Explained share of the mean on the training rows; NaN where there is none.
    coef_ : array of shape (m,) or (t, m)
        Mean of β, amplitude included. With ``feature_map="exact"`` there is `dual_coef_` instead.
    phi_, psi_ : feature maps
    moments_ : Moments
        Statistics of the training rows; not there with ``feature_map="exact"``.
    n_samples_seen_ : int
        Rows of positive weight.
    diagnostics_ : Diagnostics
        Condition number, jitter, rank of the features, and the digits that rounding has left;
        fewer than four are warned of.

    Notes
    -----
    The evidence of length scales has several maxima and, where the best noise jumps from one to
    another, kinks. A search whose line search fails there goes on from there; `n_restarts`
    looks for other maxima.

    Examples
    --------
    >>> from scalefair import FairGPRegressor
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(300, random_state=0)
    >>> model = FairGPRegressor(n_components=50, unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    >>> mean, std = model.predict(toy.data, return_std=True)
    >>> bool((std > 0).all())
    True
    """

    noise_: float
    _law: FeatureLaw | ExactLaw
    _evidence: MomentEvidence | None = None
    _setting: dict[str, Any]
    _others = ("log amplitude", "log noise")

    def __init__(
        self,
        *,
        feature_map: Any = "nystroem",
        kernel: Any = "rbf",
        length_scale: Any = "median",
        n_components: int = 500,
        learn_landmarks: bool = False,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        noise: Any = "optimize",
        amplitude: Any = "optimize",
        optimizer: str | None = "l-bfgs-b",
        n_restarts: int = 0,
        max_iter: int = 100,
        tol: float = 1e-5,
        length_scale_bounds: Any = None,
        noise_bounds: Any = None,
        amplitude_bounds: Any = None,
        eta: float | None = None,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        chunk_rows: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.feature_map = feature_map
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.learn_landmarks = learn_landmarks
        self.sensitive_kernel = sensitive_kernel
        self.sensitive_length_scale = sensitive_length_scale
        self.n_sensitive_components = n_sensitive_components
        self.noise = noise
        self.amplitude = amplitude
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.length_scale_bounds = length_scale_bounds
        self.noise_bounds = noise_bounds
        self.amplitude_bounds = amplitude_bounds
        self.eta = eta
        self.unfairness = unfairness
        self.penalty = penalty
        self.eps = eps
        self.sensitive_columns = sensitive_columns
        self.hide_sensitive = hide_sensitive
        self.chunk_rows = chunk_rows
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag("learn_landmarks", self.learn_landmarks)
        kind = self.feature_map
        if self.learn_landmarks and isinstance(kind, str) and kind not in ("nystroem", "linear"):
            raise ValueError(
                "learn_landmarks=True needs feature_map='nystroem', which has landmarks; got "
                f"feature_map={kind!r}"
            )
        check_positive_or_optimize("noise", self.noise)
        check_bounds("noise_bounds", self.noise_bounds)

    def _spec(self, data: TrainingData) -> Spec:
        noise = given(self.noise)
        return replace(super()._spec(data), noise=noise, noise_bounds=self.noise_bounds)

    def _learn(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> None:
        size = sample_size(self)
        data = open_training(self, X, y, sensitive_features, sample_weight, size)
        spec, progress = self._spec(data), Callbacks(self, data.n_rows)
        if self._is_dual():
            rows = exact_rows(self, data)
            self._checked_psi(rows.psi)
            fit = fit_dense(rows, spec, progress)
        else:
            design = self._row_map(data, MovingNystroem if self.learn_landmarks else Nystroem)
            evidence = MomentEvidence(spec, data.source, design, progress)
            fit = fit_features(evidence, data.sample)
        self._store_regression(fit, data)

    def _store_regression(self, fit: GPFit, data: TrainingData) -> None:
        self._store(fit, data)
        self.noise_, self._evidence = fit.noise, fit.evidence
        self._n_targets, self._one_target = data.n_targets, data.one_target
        self._setting = {"penalty": self.penalty, "eps": self.eps}
        if fit.phi is None:
            self.dual_coef_ = fit.coef[:, 0] if data.one_target else fit.coef
        else:
            self.coef_ = fit.coef[:, 0] if data.one_target else fit.coef.T

    def _is_dual(self) -> bool:
        exact = isinstance(self.feature_map, str) and self.feature_map == "exact"
        return exact and self.unfairness is None

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Return the mean of f, and the deviation or covariance if so asked.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`; the sensitive attributes are not needed.
        return_std : bool
            Join the standard deviation of f.
        return_cov : bool
            Join the covariance of f between the rows, which is then held in memory.
        include_noise : bool
            Of new observations y instead of f.

        Returns
        -------
        mean : array of shape (k,) or (k, t)
            A dask array, not yet computed, for a dask collection; so is the deviation.
        std : array of shape (k,) or (k, t), with `return_std`
        cov : array of shape (k, k) or (k, k, t), with `return_cov`
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        distribution, t = self._law, self._n_targets
        function = distribution.mean
        if return_std:
            function = partial(mean_and_deviation, distribution, include_noise=bool(include_noise))
        columns = self._predicted(X, function)
        mean = columns[:, 0] if self._one_target else columns[:, :t]
        if return_std:
            # Indexed, not broadcast, so that a dask array stays one.
            return mean, columns[:, t] if self._one_target else columns[:, [t] * t]
        if not return_cov:
            return mean
        cov = covariance_of(distribution, self._in_memory(X), include_noise=include_noise)
        return mean, cov if self._one_target else np.repeat(cov[:, :, None], t, axis=2)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False
    ) -> Array:
        """Draw functions from the distribution of f given y, jointly at all rows of X.

        Parameters
        ----------
        X : array, data frame, dask collection or scan of shape (k, d)
        n_samples : int
        random_state : int, numpy Generator or None
        include_noise : bool
            Draw new observations y instead of f.

        Returns
        -------
        array of shape (k, n_samples) or (k, t, n_samples)
        """
        check_is_fitted(self)
        return self._draws(self._law, X, n_samples, random_state, include_noise)

    def sample_prior(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False
    ) -> Array:
        """Draw functions from the fair prior, at the hyperparameters found; as `sample_y`.

        The fair prior knows the training rows, on which f is to be fair, but not their targets
        (only the mean of y, about which it varies).
        """
        check_is_fitted(self)
        return self._draws(self._prior(), X, n_samples, random_state, include_noise)

    def _evidence_at(self, theta: Array, gradient: bool) -> tuple[float, Array | None]:
        if isinstance(self._law, ExactLaw):
            process = self._law.at(theta)
            return process.log_evidence, process.gradient if gradient else None
        if not gradient and np.array_equal(theta[:-2], self.theta_[:-2]):
            amplitude, noise = np.exp(theta[-2:])
            return self._point(noise, amplitude).log_evidence, None
        if self._evidence is None:
            raise ValueError(
                "other length scales and gradients need the training rows, which a saved model "
                "does not hold; fit it again, or change noise and amplitude only"
            )
        return self._evidence.fixed(self.phi_, theta, self.eta_, gradient=gradient)

    def _point(self, noise: float, amplitude: float) -> GaussianPoint:
        # What was fitted decides, not the parameters, which may have been set anew since.
        system = GaussianSystem.build(self.moments_, **self._setting)
        return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=self.eta_)

    def _prior(self) -> Distribution:
        if isinstance(self._law, ExactLaw):
            return self._law.before_data()
        return self._law.with_weights(self._point(self.noise_, self.amplitude_).prior())

    def _draws(self, of: Distribution, X: Any, size: int, seed: Any, include_noise: bool) -> Array:
        draws = draw(of, self._in_memory(X), size, seed, include_noise=include_noise)
        return draws[:, 0] if self._one_target else draws

    def _in_memory(self, X: Any) -> Array:
        chunks = open_inputs(self, X).chunks(ROWS_IN_MEMORY)
        return np.concatenate([np.asarray(chunk.x, dtype=np.float64) for chunk in chunks])

    def _at(self, eta: float) -> Any:
        """Return a copy at another weight and the same hyperparameters, without the rows."""
        other, law = copy(self), self._law
        other.eta_, other.eta, other.unfairness = eta, eta, None
        if isinstance(law, ExactLaw):
            other._law = replace(law, eta=eta)
        else:
            point = other._point(self.noise_, self.amplitude_)
            other._law = law.with_weights(point.posterior())
        return other
