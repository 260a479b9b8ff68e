"""What `FairGPClassifier.fit` learns: hyperparameters by a search, then the law of f."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from scalefair._checks import MISSING_SENSITIVE, check_weight_or_limit
from scalefair._typing import Array
from scalefair.estimators._data import TrainingData
from scalefair.estimators._gp_fit import input_names, report, scale_bounds, starts_of
from scalefair.estimators._gpc_evidence import LaplaceEvidence, laplace_evidence
from scalefair.estimators._gpc_law import LatentLaw
from scalefair.estimators._labels import OneHotLabels
from scalefair.estimators._progress import steps
from scalefair.kernels import Scaled
from scalefair.maps import Nystroem
from scalefair.maps._base import standard_deviation
from scalefair.solve.diagnostics import of_eigenvalues, warn_of_few_digits
from scalefair.solve.gp.laplace import LaplacePoint
from scalefair.solve.gp.search import Bounds, Search, maximise

MEANING = (
    "the classes show no signal that these features follow; probabilities are nearly constant",
    "the features separate the classes, or vary too little for too large length scales",
)

NEAR = (np.log(10.0), 1e-6)
"""How near a bound counts: an amplitude that small changes nothing, so that the search stops."""


def with_targets(data: TrainingData, numbers: Array) -> TrainingData:
    """Return the rows with y as 0 and 1, or as one-hots for more than two classes."""
    k = len(numbers)
    change = OneHotLabels(numbers, one_hot=k > 2)
    source, sample = data.source.then(change), change(data.sample)
    return replace(data, source=source, sample=sample, n_targets=1 if k == 2 else k)


def learn_classes(estimator: Any, data: TrainingData) -> None:
    """Set all that a fit learns from valid rows."""
    estimator._preparation = data.preparation
    estimator._input_names = input_names(estimator)
    evidence = laplace_evidence(estimator, data)
    if evidence.row_map.psi is None and not estimator._is_ordinary():
        raise ValueError(MISSING_SENSITIVE)
    weight = np.ones(data.sample.n_rows) if data.sample.weight is None else data.sample.weight
    estimator._input_scale = standard_deviation(np.asarray(data.sample.x), weight)
    eta, unfairness = check_weight_or_limit(estimator.eta, estimator.unfairness)
    start = evidence.start
    bounds: Bounds = [*(scale_bounds(estimator, at) for at in start[:-1]), evidence.bounds]
    held = evidence.held_eta(eta, unfairness) if _is_free(bounds) else eta
    search = _search(estimator, evidence, bounds, held, data.seed)
    point = evidence.point(search.place, eta, unfairness)
    if unfairness is not None and _is_free(bounds[-1:]) and 0 < point.eta < np.inf:
        point = _amplitude_again(estimator, evidence, search, bounds, point)
    _settle(estimator, evidence, point)
    place = np.append(search.place[:-1], np.log(point.amplitude))
    report(estimator, search, bounds, _at_bounds(place, evidence.bounds), others=1)


def _is_free(bounds: Bounds) -> bool:
    return any(low != high for low, high in bounds)


def _search(
    estimator: Any, evidence: LaplaceEvidence, bounds: Bounds, eta: float, seed: int
) -> Search:
    """Search the evidence from the start and from random ones, as far as something is free."""
    start = evidence.start
    if not _is_free(bounds):
        return Search(start, np.nan)
    with steps(estimator, "evaluations", None) as tell:

        def value(place: Array) -> tuple[float, Array, float]:
            found = evidence(place, eta)
            tell()
            return found

        starts, spare = starts_of(start, bounds, estimator.n_restarts, seed)
        options = {"tol": estimator.tol, "max_iter": estimator.max_iter}
        return maximise(value, starts, bounds, spare=spare, **options)


def _amplitude_again(
    estimator: Any, evidence: LaplaceEvidence, search: Search, bounds: Bounds, point: LaplacePoint
) -> LaplacePoint:
    """Find amplitude and weight once more for each other; the weight last: the limit holds."""
    held = [*((at, at) for at in search.place[:-1]), bounds[-1]]
    found = maximise(
        partial(evidence, eta=point.eta, scales=False), [search.place], held,
        tol=estimator.tol, max_iter=estimator.max_iter,
    )  # fmt: skip
    return evidence.point(found.place, np.inf, estimator.unfairness)


def _settle(estimator: Any, evidence: LaplaceEvidence, point: LaplacePoint) -> None:
    """Set what the process is."""
    row_map = point.problem.row_map
    phi, amplitude = row_map.phi, point.amplitude
    missing = amplitude**2 if isinstance(phi, Nystroem) else 0.0
    estimator.phi_, estimator.psi_ = phi, row_map.psi
    estimator.moments_ = point.problem.system.moments
    estimator.n_samples_seen_ = estimator.moments_.n_rows
    estimator._law = LatentLaw(phi, point.coef, point.factors, missing)
    estimator.coef_ = point.coef.T
    kernel = getattr(phi, "kernel_", None)
    estimator.kernel_ = None if kernel is None else Scaled(kernel, amplitude)
    scales = np.log(kernel.theta) if len(evidence.start) > 1 and kernel is not None else []
    estimator.theta_ = np.append(scales, np.log(amplitude))
    estimator.amplitude_, estimator.eta_ = amplitude, point.eta
    estimator.log_marginal_likelihood_value_ = point.log_evidence
    estimator.explained_share_ = point.problem.share(point.coef)
    estimator.n_passes_ = evidence.n_passes
    estimator._evidence = evidence
    estimator.diagnostics_ = min(
        (of_eigenvalues(at.system.values, at.ratio) for at in point.slices),
        key=lambda found: found.digits,
    )
    warn_of_few_digits(estimator.diagnostics_, type(estimator).__name__)


def _at_bounds(place: Array, bounds: tuple[float, float]) -> tuple[str, ...]:
    """Return a sentence where the amplitude ran to a bound."""
    return tuple(
        f"amplitude={np.exp(place[-1]):.3g} ran to its {('lower', 'upper')[end]} bound: "
        f"{MEANING[end]}; widen amplitude_bounds, fix it, or look at the data"
        for end in (0, 1)
        if bounds[0] < bounds[1] and abs(place[-1] - bounds[end]) < NEAR[end]
    )
