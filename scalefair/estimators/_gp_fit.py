"""What `FairGPRegressor.fit` learns: length scales by a search, the rest in closed form."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scalefair import _frames
from scalefair._checks import MISSING_SENSITIVE, check_weight_or_limit
from scalefair._typing import Array
from scalefair.estimators._data import TrainingData
from scalefair.estimators._gp_evidence import MomentEvidence, Settled, moment_evidence
from scalefair.estimators._gp_exact import ExactEvidence, exact_evidence
from scalefair.estimators._gp_law import ExactLaw, FeatureLaw
from scalefair.estimators._progress import steps
from scalefair.kernels import Scaled
from scalefair.maps import Nystroem
from scalefair.maps._base import standard_deviation
from scalefair.maps._moving import MovingNystroem
from scalefair.solve.diagnostics import Diagnostics, of_eigenvalues, warn_of_few_digits
from scalefair.solve.gp.limit import share_of
from scalefair.solve.gp.search import (
    Bounds,
    Search,
    maximise,
    warn_of_bounds,
    warn_of_end,
)
from scalefair.statistics.rows import whitened

ELSEWHERE = np.log([0.3, 0.1, 3.0])
"""Length scales, relative to the start, to look at where the evidence shows no signal there."""

CONSTANT = (
    "the mean of f is constant: y shows no signal, or the penalty leaves nothing of it; use a "
    "smaller eta, or give the model more or other inputs"
)

SPAN = 1e3
"""Default bounds of a length scale: so much below and above its start."""


def learn(estimator: Any, data: TrainingData) -> None:
    """Set all that a fit learns from valid rows."""
    estimator._preparation = data.preparation
    estimator._n_targets, estimator._one_target = data.n_targets, data.one_target
    estimator._input_names = input_names(estimator)
    exact = estimator._is_dual()
    evidence = exact_evidence(estimator, data) if exact else moment_evidence(estimator, data)
    psi = evidence.rows.psi if isinstance(evidence, ExactEvidence) else evidence.row_map.psi
    if psi is None and not estimator._is_ordinary():
        raise ValueError(MISSING_SENSITIVE)
    estimator.psi_ = psi
    weight = np.ones(data.sample.n_rows) if data.sample.weight is None else data.sample.weight
    estimator._input_scale = standard_deviation(np.asarray(data.sample.x), weight)
    eta, unfairness = check_weight_or_limit(estimator.eta, estimator.unfairness)
    bounds = search_bounds(estimator, evidence)
    search = run_search(estimator, evidence, bounds, data)
    if isinstance(evidence, ExactEvidence):
        at_bounds = settle_exact(estimator, evidence, search.place, eta)
    else:
        settled = evidence.settle(search.place, eta, unfairness)
        settle_features(estimator, settled, data)
        at_bounds = settled.at_bounds
    estimator._setting = {"penalty": estimator.penalty, "eps": estimator.eps}
    if isinstance(evidence, MomentEvidence):
        # Its own copy of what it needs: parameters may change, callbacks belong to the fit.
        kept = SimpleNamespace(**estimator.get_params(deep=False))
        estimator._evidence = replace(evidence, estimator=kept)
    if not np.isfinite(estimator.log_marginal_likelihood_value_):
        raise ValueError(
            f"the log evidence is {estimator.log_marginal_likelihood_value_} at the noise and "
            "length scales found; look for huge values among the inputs and targets, or fix them"
        )
    if psi is not None and np.isnan(estimator.explained_share_):
        at_bounds = (*at_bounds, CONSTANT)
    report(estimator, search, bounds, at_bounds)


def search_bounds(estimator: Any, evidence: MomentEvidence | ExactEvidence) -> Bounds:
    """Return the bounds of the place: length scales, then what else is searched for."""
    start = evidence.start
    more: list[tuple[float | None, float | None]] = []
    if isinstance(evidence, ExactEvidence):
        scales, more = len(start) - 2, [*evidence.pairs()]
    else:
        phi: Any = evidence.row_map.phi
        scales = phi.kernel_.theta.size if len(start) else 0
        more = [(None, None)] * (len(start) - scales)
    return [*(scale_bounds(estimator, value) for value in start[:scales]), *more]


def scale_bounds(estimator: Any, start: float) -> tuple[float, float]:
    """Return the bounds of a log length scale."""
    if estimator.optimizer is None:
        return start, start
    if estimator.length_scale_bounds is None:
        return start - np.log(SPAN), start + np.log(SPAN)
    low, high = np.log(estimator.length_scale_bounds)
    return float(low), float(high)


def run_search(
    estimator: Any, evidence: MomentEvidence | ExactEvidence, bounds: Bounds, data: TrainingData
) -> Search:
    """Search the evidence from the start and from random ones, as far as something is free."""
    start = evidence.start
    free = np.array([low is None or low != high for low, high in bounds], dtype=bool)
    # Without an optimizer a map's landmarks stay, and noise and amplitude need no search.
    if not free.any() or (estimator.optimizer is None and isinstance(evidence, MomentEvidence)):
        return Search(start, np.nan)
    eta = evidence.held_eta(*check_weight_or_limit(estimator.eta, estimator.unfairness))
    with steps(estimator, "evaluations", None) as tell:

        def value(place: Array) -> tuple[float, Array, float]:
            found = evidence(place, eta)
            tell()
            return found

        starts, spare = starts_of(start, bounds, estimator.n_restarts, data.seed)
        return maximise(
            value, starts, bounds, tol=estimator.tol, max_iter=estimator.max_iter, spare=spare
        )


def starts_of(
    start: Array, bounds: Bounds, restarts: int, seed: int
) -> tuple[list[Array], list[Array]]:
    """Return the start and random ones about it; and shorter and longer length scales.

    All are within bounds. Landmarks, which have none, stay where they are.
    """
    low = np.array([-np.inf if pair[0] is None else pair[0] for pair in bounds])
    high = np.array([np.inf if pair[1] is None else pair[1] for pair in bounds])
    bounded = np.isfinite(low)
    rng = np.random.default_rng(seed)
    random = [bounded * rng.normal(size=len(start)) for _ in range(restarts)]
    near, spare = [np.zeros(len(start)), *random], [bounded * step for step in ELSEWHERE]
    return (
        [np.clip(start + step, low, high) for step in near],
        [np.clip(start + step, low, high) for step in spare],
    )


def settle_features(estimator: Any, settled: Settled, data: TrainingData) -> None:
    """Set what the process of a feature map is."""
    point, phi = settled.point, settled.phi
    if isinstance(phi, MovingNystroem):
        phi = phi.settled()
    estimator.phi_, estimator.moments_ = phi, point.slice.system.moments
    amplitude = point.amplitude
    missing = amplitude**2 if isinstance(phi, Nystroem) else 0.0
    contained = 0.0
    if missing and isinstance(estimator.noise, str):
        contained = missing * _usual_residual(phi, data)
    estimator._law = FeatureLaw(phi, point.posterior(), missing, contained)
    coef = estimator._law.law.coef
    estimator.coef_ = coef[:, 0] if estimator._one_target else coef.T
    estimator.explained_share_ = share_of(point)
    estimator.n_samples_seen_ = estimator.moments_.n_rows
    values = point.slice.system.values
    _judge(estimator, of_eigenvalues(values, point.slice.ratio))
    _set_hyper(estimator, getattr(phi, "kernel_", None), point.noise, amplitude, settled.eta)
    estimator.log_marginal_likelihood_value_ = point.log_evidence


def _usual_residual(phi: Any, data: TrainingData) -> float:
    """Return what k(x, x) − |φ(x)|² exceeds on 5 % of the weight of the sample."""
    x = np.asarray(data.sample.x, dtype=np.float64)
    residual = np.maximum(phi.kernel_.diag(x) - np.sum(whitened(phi, x) ** 2, axis=1), 0.0)
    order = np.argsort(residual)
    weight = np.ones(len(x)) if data.sample.weight is None else data.sample.weight
    below = np.cumsum(weight[order])
    return float(residual[order][np.searchsorted(below, 0.95 * below[-1])])


def settle_exact(
    estimator: Any, evidence: ExactEvidence, place: Array, eta: float
) -> tuple[str, ...]:
    """Set what the exact process is; return what ran to a bound."""
    process, kernel = evidence.process(place, eta), evidence.kernel(place)
    estimator._law = ExactLaw(
        evidence.rows, kernel, process.noise, process.amplitude, eta, estimator.eps,
        estimator.penalty,
    )  # fmt: skip
    dual = process.dual_coef
    estimator.dual_coef_ = dual[:, 0] if estimator._one_target else dual
    estimator.explained_share_ = evidence.share(process)
    estimator.n_samples_seen_ = evidence.rows.n_rows
    ratio = process.noise / process.amplitude**2
    _judge(
        estimator, replace(evidence.rows, kernel=kernel).diagnostics(ratio / evidence.rows.total)
    )
    _set_hyper(estimator, kernel, process.noise, process.amplitude, eta)
    estimator.log_marginal_likelihood_value_ = process.log_evidence
    return evidence.at_bounds(place)


def _judge(estimator: Any, found: Diagnostics) -> None:
    estimator.diagnostics_ = found
    warn_of_few_digits(found, type(estimator).__name__)


def _set_hyper(estimator: Any, kernel: Any, noise: float, amplitude: float, eta: float) -> None:
    estimator.noise_, estimator.amplitude_, estimator.eta_ = noise, amplitude, eta
    estimator.kernel_ = None if kernel is None else Scaled(kernel, amplitude)
    scales = np.zeros(0) if kernel is None else np.log(kernel.theta)
    estimator.theta_ = np.concatenate([scales, np.log([amplitude, noise])])


def report(
    estimator: Any, search: Search, bounds: Bounds, at_bounds: tuple[str, ...], others: int = 2
) -> None:
    """Set how the search went, and warn of what is wrong with its end.

    The last `others` hyperparameters of `theta_` are no length scales.
    """
    estimator.converged_, estimator.n_iter_ = search.converged, search.n_iter
    estimator.n_evaluations_, estimator.optimizer_message_ = search.n_evaluations, search.message
    estimator.evidence_history_ = np.array(search.history)
    for sentence in at_bounds:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    scales = len(estimator.theta_) - others
    names = estimator._input_names if scales == len(estimator._input_names) else None
    if scales == 1:
        names = ["all inputs"]
    elif names is None:
        names = [f"theta[{i}]" for i in range(scales)]
    more = warn_of_bounds(search.place[:scales], bounds[:scales], names)
    estimator.at_bounds_ = (*at_bounds, *more)
    warn_of_end(search, estimator.max_iter)


def input_names(estimator: Any) -> list[str]:
    """Return the names of the inputs as the kernel sees them: encoded, without hidden columns."""
    preparation = estimator._preparation
    if preparation.encoder is not None:
        return [str(name) for name in preparation.encoder.get_feature_names_out()]
    width = estimator.n_features_in_
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    names = names or [f"x{i}" for i in range(width)]
    hidden = set(preparation.sensitive_columns or []) if preparation.hide_sensitive else set()
    return [name for i, name in enumerate(names) if i not in hidden]


def relevance_table(estimator: Any, others: int = 2) -> Any:
    """Return inputs, length scales and relevance as a data frame.

    The last `others` hyperparameters of `theta_` are no length scales.
    """
    names, spread = estimator._input_names, estimator._input_scale
    theta = np.exp(estimator.theta_[:-others])
    if theta.size not in (1, len(names)):
        raise ValueError(
            f"relevance needs one length scale per input or one for all; this kernel has "
            f"{theta.size} for {len(names)} inputs"
        )
    scales = np.broadcast_to(theta, len(names))
    return _frames.make_frame(
        {"input": names, "length_scale": scales, "relevance": (spread / scales) ** 2}
    )
