"""The common part of both Gaussian processes: parameters to a specification, a fit to attributes."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from scalefair._config import current_config
from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.data import frames
from scalefair.errors import FINITE, TINY, check_grid, check_weight_or_limit
from scalefair.estimators.base import OnFolds
from scalefair.features.design import Design
from scalefair.features.landmarks import standard_deviation
from scalefair.features.nystroem import Nystroem
from scalefair.features.rows import open_predict_rows
from scalefair.features.training import Training, input_map, sensitive_map
from scalefair.held_out import MARGIN
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.solve.fit import Diagnostics, ProcessFit, ProcessSpec
from scalefair.solve.limit import NotAttainableError
from scalefair.solve.ridge.path import GridScores, choose

# Of K_ZZ, relative to its diagonal: fixed, so that the evidence is a smooth function of θ
JITTER = 1e-8
FULL_JITTER = 1e-10  # the same where every row is a landmark
LEAST_WEIGHT = 0.1  # mean weight of a row below which weights were probably not meant as counts


class Process(OnFolds):
    """A fair Gaussian process: `fit` learns the `_distribution` of f, which predicts."""

    learn_landmarks: bool = False
    psi_: FeatureMap | None
    phi_: FeatureMap
    moments_: Moments
    kernel_: Any
    theta_: Array
    amplitude_: float
    eta_: float
    diagnostics_: Diagnostics
    n_features_in_: int
    _input_names: list[str]
    _input_scale: Array
    _own_constraints: ClassVar[dict[str, Any]] = {
        "penalty": [StrOptions({"normalized", "hsic"})],
        "tol": [Interval(Real, 0, 1, closed="right")],
    }
    # Evidence of the training rows; None in a model that was saved, which leaves them behind
    _evidence: Any = None
    # Hyperparameters in `theta_` after the log length scales
    _others: tuple[str, ...] = ("log amplitude",)

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and the distribution of f given y.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (n, d)
            Inputs. Numbers are used as given; a frame with text, categories or missing values is
            encoded. Rows that are not in memory (dask, :func:`scalefair.scan_parquet`,
            :class:`scalefair.BatchSource`) are read chunk by chunk in every pass.
        y : array-like of shape (n,) or, for a regression, (n, t)
            Targets, several of which share the hyperparameters, or class labels of any kind;
            columns of the same scan if X is one.
        sensitive_features : array, Series or frame of shape (n,) or (n, p), optional
            Sensitive attributes: numbers, categories or both. Needed unless `sensitive_columns`
            names them or `eta` is 0. Predictions do not need them.
        sample_weight : array-like of shape (n,), optional
            Weight 2 equals the row twice, in the evidence and in the penalty.

        Returns
        -------
        self
        """
        return self._fit(Chunk(X, sensitive_features, y, sample_weight))

    def _check_parameters(self) -> None:
        """Raise ValueError or TypeError if a parameter is out of range."""
        super()._check_parameters()
        check_weight_or_limit(self.eta, self.unfairness)
        for name, value in self.get_params(deep=False).items():
            if name.endswith("_bounds") and value is not None:
                check_bounds(name, value)
        kind = self.feature_map
        if self.learn_landmarks and isinstance(kind, str) and kind not in ("nystroem", "linear"):
            raise ValueError(
                f"learn_landmarks=True needs feature_map='nystroem', which has landmarks; got feature_map={kind!r}"
            )

    def _gp_spec(self, training: Training, inputs: list[str]) -> ProcessSpec:
        """Return the specification; most fields have the names of parameters."""
        eta, unfairness = check_weight_or_limit(self.eta, self.unfairness)
        fields, parameters = ProcessSpec.__dataclass_fields__, self.get_params(deep=False)
        own = {name: value for name, value in parameters.items() if name in fields}
        for name in {"amplitude", "noise"} & own.keys():  # "optimize" is None
            own[name] = None if isinstance(own[name], str) else float(own[name])
        return ProcessSpec(**own | {
            "eta": eta, "unfairness": unfairness, "learn_scales": self.optimizer is not None,
            "seed": training.seed, "inputs": tuple(inputs),
        })  # fmt: skip

    def _start(self, training: Training, nystroem: type[Nystroem] = Nystroem) -> Rows:
        """Return the rows with the maps where the search starts, learnt on the sample."""
        if (mean := float(np.mean(training.sample.weights))) < LEAST_WEIGHT:
            what = f"weights count as observations of a Gaussian process, and their mean is {mean:.3g}"
            warnings.warn(f"sample_weight: {what}; multiply them by {1 / mean:.3g} for one a row", stacklevel=6)
        jitter = FULL_JITTER if training.spec.is_exact else JITTER
        phi = input_map(training, nystroem, whitening="cholesky", cutoff=jitter)
        psi = sensitive_map(training)
        design = Design(phi, psi, training.n_targets, whiten_rows=True, preparation=training.preparation)
        size = current_config().chunk_rows
        return Rows(training.source, design, chunk_rows=size, progress=self._progress)

    def _process(self, fit: ProcessFit, training: Training, inputs: list[str], design: Design) -> dict[str, Any]:
        """Return the attributes of a fit, and warn of what is wrong with it."""
        sample, search = training.sample, fit.search
        sentences = [*fit.at_bounds]
        if not search.converged:
            sentences.append(
                f"the search for length scales stopped after {search.n_iter} iterations before it "
                f"converged ({search.message}); raise max_iter={self.max_iter}, or tol"
            )
        for sentence in sentences:
            warnings.warn(sentence, ConvergenceWarning, stacklevel=6)  # the caller of `fit`
        maps = {} if fit.phi is None else {"phi_": fit.phi, "moments_": fit.moments}
        return {
            "_design": design, "_one_target": training.one_target, "_input_names": inputs,
            "_input_scale": standard_deviation(np.asarray(sample.x), sample.weights),
            "_distribution": fit.distribution, "psi_": fit.psi, "kernel_": fit.kernel, **maps,
            "theta_": fit.theta, "amplitude_": fit.amplitude, "eta_": fit.eta,
            "log_marginal_likelihood_value_": fit.log_evidence, "explained_share_": fit.share,
            "n_samples_seen_": fit.n_rows, "diagnostics_": fit.diagnostics,
            "at_bounds_": fit.at_bounds, "converged_": search.converged, "n_iter_": search.n_iter,
            "n_evaluations_": search.n_evaluations, "optimizer_message_": search.message,
            "evidence_history_": np.array(search.history),
        }  # fmt: skip

    def _on_folds(self, scores: GridScores, etas: Array, error: str) -> tuple[float, dict[str, Any]]:
        """Return the weight that meets the limit on the folds, and the held-out attributes."""
        choice = choose(replace(scores, constant=None), etas, self.unfairness)
        if choice is None:
            limit = self.unfairness or 0.0
            least = float(np.nanmin(scores.bounds(etas, limit), initial=np.inf))
            raise NotAttainableError(
                f"unfairness={self.unfairness!r} is not met on the folds of cv at any eta: the "
                f"least held-out share, plus {MARGIN:g} standard errors, is {least:.4g}; raise "
                "the limit, or give more rows, or more or other inputs"
            )
        share = scores.estimate[choice]
        results = {"etas": etas, error: scores.mse[:, 0], "explained_share": scores.share[:, 0]}
        return float(etas[choice.eta]), {
            "explained_share_cv_": float(share.value),
            "explained_share_cv_error_": float(share.error),
            "cv_results_": results,
        }

    def relevance(self) -> Any:
        """Return the length scale and the relevance of each input.

        Returns
        -------
        data frame
            Columns *input*: its name, of the encoded columns where X was encoded; *length_scale*: θ_j; *relevance*:
            (sd_j/θ_j)², the squared spread of the input in units of its length scale.
        """
        check_is_fitted(self)
        names, theta = self._input_names, np.exp(self.theta_[: -len(self._others)])
        if theta.size not in (1, len(names)):
            raise ValueError(
                f"relevance needs one length scale per input or one for all; this kernel has "
                f"{theta.size} for {len(names)} inputs"
            )
        scales = np.broadcast_to(theta, len(names))
        relevance = (self._input_scale / scales) ** 2
        return frames.make_frame({"input": names, "length_scale": scales, "relevance": relevance})

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """Return the log evidence of the training rows, summed over outputs or classes.

        That of classes is Laplace's approximation, of one class against the rest where there are more than two.

        Parameters
        ----------
        theta : array of the shape of `theta_`, optional
            Hyperparameters in the order of `theta_`, which is the default. `eta_` stays as it is.
        eval_gradient : bool
            Return the gradient in theta, too.

        Returns
        -------
        float, or (float, array of the shape of `theta_`)

        Notes
        -----
        Other hyperparameters than `theta_` and gradients read the training rows again, except for
        noise and amplitude of a regression. A model that was saved or pickled has left the rows
        behind, unless ``feature_map="exact"`` is a regression's.
        """
        check_is_fitted(self)
        at = self._checked_theta(theta)
        if not eval_gradient and np.array_equal(at, self.theta_):
            return self.log_marginal_likelihood_value_
        value, gradient = self._evidence_at(at, bool(eval_gradient))
        return (value, gradient) if eval_gradient else value

    @abstractmethod
    def _evidence_at(self, theta: Array, gradient: bool) -> tuple[float, Array | None]:
        """Return the log evidence and, with `gradient`, its gradient; else None."""

    def _predicted(self, X: Any, function: Callable[[Array], Array]) -> Any:
        """Return a function of the rows of X; a dask array for a dask collection."""
        rows = open_predict_rows(self, X, self._design)
        return self._design.predict(rows, lambda: lambda chunk: function(chunk.x))

    def _checked_theta(self, theta: Any) -> Array:
        """Return hyperparameters as in `theta_`, which are the default."""
        if theta is None:
            return self.theta_
        try:
            at = np.asarray(theta, dtype=np.float64)
        except (TypeError, ValueError):
            at = np.array(np.nan)
        size = len(self.theta_)
        if at.shape != (size,) or not np.isfinite(at).all():
            raise ValueError(
                f"theta={theta!r} must be {size} finite numbers: {size - len(self._others)} log "
                f"length scales, then {' and '.join(self._others)}, as in theta_"
            )
        return at

    def __getstate__(self) -> Any:
        # The evidence holds the training rows, which may be anywhere.
        return {key: value for key, value in super().__getstate__().items() if key != "_evidence"}


def check_bounds(name: str, value: Any) -> None:
    """Raise ValueError unless a value is two positive numbers, the smaller first."""
    ends = check_grid(name, value, TINY, FINITE)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise ValueError(f"{name}={value!r} must be two positive numbers, the smaller first, or None")
