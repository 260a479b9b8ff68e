"""Fair Gaussian process regression."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._typing import Array, Chunk
from scalefair.estimators.gp_base import Process
from scalefair.estimators.parameters import described
from scalefair.features.design import Design
from scalefair.features.exact import Identity
from scalefair.features.nystroem import MovingNystroem, Nystroem
from scalefair.features.rows import open_predict_rows
from scalefair.features.training import Training
from scalefair.moments.accumulate import Rows
from scalefair.solve.dense.process import ExactDistribution, exact_rows, fit_dense
from scalefair.solve.fit import GPFit, ProcessSpec
from scalefair.solve.gp.distribution import Distribution, FeatureDistribution, covariance_of, draw, mean_and_deviation
from scalefair.solve.gp.evidence import MomentEvidence, at_weight, fit_features, held_out_scores
from scalefair.solve.gp.system import GaussianPoint, GaussianSystem
from scalefair.solve.ridge.path import choose, default_etas
from scalefair.solve.ridge.search import between
from scalefair.solve.ridge.system import System

N_ETAS = 41  # weights that are tried on folds, from 0 to ∞; more beside the best
ROWS_IN_MEMORY = 65536  # rows per chunk where all are read at once


@described
class FairGPRegressor(MultiOutputMixin, RegressorMixin, Process):
    """Gaussian process regression whose predictions do not depend on sensitive attributes.

    y = ȳ + f(x) + N(0, σ²), where f is a Gaussian process of kernel a²k(x, x') that is conditioned on being fair:
    functions that depend on s on the training rows, as the penalty measures it, are less likely by exp(−(nη/2σ²) ·
    penalty). The mean of f given y is the fair ridge fit without intercept on centred y, at alpha = σ²/(na²) and the
    same eta. Noise, amplitude and length scales maximise the evidence. Only sums over the rows are needed, so their
    number does not matter. Each set of length scales takes two passes.

    Parameters
    ----------
    @ *
    learn_landmarks : bool, default=False
        Whether Nyström landmarks move in the search, too.
    noise : float or "optimize", default="optimize"
        Noise variance σ².
    noise_bounds, amplitude_bounds : (float, float) or None, default=None
        None: 1e-8 to 1e2 times the variance of y, 1e-3 to 1e3 times its standard deviation.
    eta : float or None, default=None
        Weight of the penalty against the squared error, as in :class:`FairKernelRidge`; fixed while
        the evidence is maximised. With ``inf`` length scales are learnt at a large finite weight.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share of the mean. Length scales are learnt at the weight that meets
        it at their start; weight, noise and amplitude are then optimised again at the learnt ones.

    Attributes
    ----------
    @ kernel_
    noise_, amplitude_, eta_ : float
        σ², a and η, as learnt or given.
    theta_ : array of shape (n_hyper + 2,)
        log length scales, log a and log σ².
    @ log_marginal_likelihood_value_ converged_ at_bounds_ explained_share_
    coef_ : array of shape (m,) or (t, m)
        Mean of β, amplitude included. With ``feature_map="exact"`` there is `dual_coef_` instead, and no `moments_`.
    @ phi_ moments_ n_samples_seen_ diagnostics_

    Notes
    -----
    As a function of the length scales the evidence has several maxima and, where the best noise jumps, kinks. If a
    line search fails at a kink, the search continues from there; `n_restarts` searches for other maxima.

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
    _distribution: FeatureDistribution | ExactDistribution
    _evidence: MomentEvidence | None = None
    _setting: dict[str, Any]
    _others = ("log amplitude", "log noise")

    def __init__(
        self, *, feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any = "median",
        n_components: int = 500, learn_landmarks: bool = False, sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median", n_sensitive_components: int = 100,
        noise: Any = "optimize", amplitude: Any = "optimize", optimizer: str | None = "l-bfgs-b",
        n_restarts: int = 0, max_iter: int = 100, tol: float = 1e-5,
        length_scale_bounds: Any = None, noise_bounds: Any = None, amplitude_bounds: Any = None,
        eta: float | None = None, unfairness: float | None = None, cv: Any = None,
        penalty: str = "normalized", eps: float | None = None, sensitive_columns: Any = None,
        hide_sensitive: bool = False, n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def _learn(self, checked: Self, given_rows: Chunk) -> dict[str, Any]:
        training = self._train(checked, given_rows, "float64")
        inputs = training.preparation.input_names(list(_check_feature_names_in(checked)))
        spec, one = self._gp_spec(training, inputs), training.one_target
        held_out: dict[str, Any] = {}
        if training.spec.is_exact and self.unfairness is None:
            exact = exact_rows(training, 0.0)
            fit = fit_dense(exact, spec, self._progress)
            phi: Any = Identity().fit(training.sample.x)
            design = Design(phi, exact.psi, training.n_targets, preparation=training.preparation)
            coef = {"dual_coef_": fit.coef[:, 0] if one else fit.coef}
        else:
            rows = self._start(training, MovingNystroem if self.learn_landmarks else Nystroem)
            fit = fit_features(spec, rows, training.sample)
            if self.cv is not None and self.unfairness is not None:
                fit, held_out = self._held_out(spec, rows, fit, training)
            design = replace(rows.design, phi=fit.phi or rows.design.phi)
            coef = {"coef_": fit.coef[:, 0] if one else fit.coef.T}
        return (
            self._process(fit, training, inputs, design)
            | coef
            | held_out
            | {"noise_": fit.noise, "_evidence": fit.evidence, "_setting": {"penalty": self.penalty, "eps": self.eps}}
        )

    def _held_out(self, spec: ProcessSpec, start: Rows, fit: GPFit, training: Training) -> tuple[GPFit, dict[str, Any]]:
        """Return the process at the weight that meets the limit on folds, and its scores."""
        rows = replace(start, design=replace(start.design, phi=fit.phi or start.design.phi))
        _, moments = self._fold_moments(rows, training)
        system = System.build(moments.total, penalty=self.penalty, eps=self.eps)
        alpha = fit.noise / fit.amplitude**2 / moments.total.weight
        etas = np.array([np.inf]) if self.unfairness == 0 else default_etas(system, alpha, N_ETAS)
        score = partial(held_out_scores, moments, fit, spec)
        scores = score(etas)
        choice = choose(scores, etas, self.unfairness)
        if self.unfairness and choice is not None and choice.eta > 0:
            etas = np.union1d(etas, between(etas, choice.eta))
            scores = score(etas)
        eta, held_out = self._on_folds(scores, etas, "mse")
        return at_weight(spec, rows, fit, eta, training.sample), held_out

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = False) -> Any:
        """Return the mean of f and, if requested, its standard deviation or covariance.

        Parameters
        ----------
        @ X
        return_std : bool
            Also return the standard deviation of f.
        return_cov : bool
            Also return the covariance of f between the rows, which must fit in memory.
        include_noise : bool
            The same for new observations y instead of f.

        Returns
        -------
        mean : array of shape (k,) or (k, t)
            A lazy dask array for a dask collection; so is the standard deviation.
        std : array of shape (k,) or (k, t), with `return_std`
        cov : array of shape (k, k) or (k, k, t), with `return_cov`
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        distribution, t = self._distribution, self._design.n_targets
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

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False) -> Array:
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
        return self._draws(self._distribution, X, n_samples, random_state, include_noise)

    def sample_prior(self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False) -> Array:
        """Draw functions from the fair prior, at the learnt hyperparameters; as `sample_y`.

        The fair prior depends on the training rows, on which f is fair, but not on their targets
        (except for the mean of y, which is its mean).
        """
        check_is_fitted(self)
        return self._draws(self._prior(), X, n_samples, random_state, include_noise)

    def _evidence_at(self, theta: Array, gradient: bool) -> tuple[float, Array | None]:
        if isinstance(self._distribution, ExactDistribution):
            process = self._distribution.at(theta)
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
        # What was fitted decides, not the parameters, which may have been changed since.
        system = GaussianSystem.build(self.moments_, **self._setting)
        return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=self.eta_)

    def _prior(self) -> Distribution:
        if isinstance(self._distribution, ExactDistribution):
            return replace(self._distribution, prior=True)
        prior = self._point(self.noise_, self.amplitude_).prior()
        return replace(self._distribution, weights=prior)

    def _draws(self, of: Distribution, X: Any, size: int, seed: Any, include_noise: bool) -> Array:
        draws = draw(of, self._in_memory(X), size, seed, include_noise=include_noise)
        return draws[:, 0] if self._one_target else draws

    def _in_memory(self, X: Any) -> Array:
        source = self._design.numbers(open_predict_rows(self, X, self._design))
        chunks = source.chunks(ROWS_IN_MEMORY)
        return np.concatenate([np.asarray(chunk.x, dtype=np.float64) for chunk in chunks])

    def _feature_coef(self) -> Array:
        return self._distribution.weights.coef  # type: ignore[union-attr]

    def _without_penalty(self) -> Any:
        return self._at(0.0)

    def _at(self, eta: float) -> Any:
        """Return a copy at another weight and the same hyperparameters, without the rows."""
        other, distribution = copy(self), self._distribution
        other.eta_, other.eta, other.unfairness = eta, eta, None
        if isinstance(distribution, ExactDistribution):
            other._distribution = replace(distribution, eta=eta)
        else:
            point = other._point(self.noise_, self.amplitude_)
            other._distribution = replace(distribution, weights=point.posterior())
        return other
