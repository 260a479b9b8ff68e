"""A fair Gaussian process of classes: length scales and amplitude maximise the evidence.

That is Laplace's approximation, with P = I/a² + 2nηRRᵀ and at the mode β,

    L(θ, a) = −ΣV(y, Φβ) − ½βᵀPβ − ½(log|ΦᵀWΦ + P| − log|P|).

An evaluation costs one pass for the moments where length scales moved, a few for the mode, one to
see how the mode answers, and one for the gradient in the length scales.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scalefair._typing import Array
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design, chunk_rows
from scalefair.losses import Logistic, OneVsRest
from scalefair.moments import accumulate
from scalefair.moments.gradient import laplace_scale_gradient
from scalefair.solve.diagnostics import Diagnostics, of_eigenvalues
from scalefair.solve.gp.distribution import LatentLaw, missing_variance
from scalefair.solve.gp.evidence import hyper_of, kernel_of, map_at, map_bounds
from scalefair.solve.gp.fit import ProcessFit, scaled
from scalefair.solve.gp.laplace import LaplacePoint, find_mode
from scalefair.solve.gp.limit import largest_eta
from scalefair.solve.gp.profile import AMPLITUDE_BOUNDS, at_log_bounds, log_bounds
from scalefair.solve.gp.search import Box, Search, maximise, scale_sentences, search
from scalefair.solve.gp.spec import Bounds, Progress, Spec
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import System

SIGNAL = (
    "the classes show no signal that these features follow; probabilities are nearly constant",
    "the features separate the classes, or vary too little for too large length scales",
)
"""What an amplitude at its lower, and at its upper bound says of the classes."""


class LaplaceEvidence:
    """The evidence of a feature map; hyperparameters are those of φ, then log a.

    It remembers the last problem and its mode, where the next one starts.

    Parameters
    ----------
    spec : Spec
    source : ChunkSource
        Of numeric chunks, y as the loss wants it.
    design : Design
        The maps where the search starts.
    progress : Progress
        Hears of every chunk.

    Attributes
    ----------
    n_passes : int
        Passes over the rows so far.
    """

    def __init__(self, spec: Spec, source: ChunkSource, design: Design, progress: Progress) -> None:
        self.spec, self.source, self.design, self.progress = spec, source, design, progress
        k = design.n_targets
        self.loss = Logistic() if k == 1 else OneVsRest(k)
        self.n_passes = 0
        self._last: tuple[Array, Problem] | None = None
        self._mode: Array | None = None

    def silent(self) -> LaplaceEvidence:
        """Return a copy that tells nobody of its steps."""
        other = copy(self)
        other.progress = Progress()
        return other

    @property
    def start(self) -> Array:
        """log θ and log a where the search starts."""
        return np.append(hyper_of(self.design.phi), np.clip(0.0, *self.amplitude_bounds))

    @property
    def bounds(self) -> Box:
        """Bounds of the search."""
        return [*map_bounds(self.design.phi, self.spec), self.amplitude_bounds]

    @property
    def amplitude_bounds(self) -> Bounds:
        """Bounds of log a; equal where it is given."""
        # Scores are log odds, so that the unit is 1.
        return log_bounds(self.spec.amplitude, self.spec.amplitude_bounds, AMPLITUDE_BOUNDS)

    def problem(self, hyper: Array) -> Problem:
        """Return rows, loss and penalty; one pass, unless the last ones had the same φ."""
        scales = hyper[:-1]
        if self._last is not None and np.array_equal(self._last[0], scales):
            return self._last[1]
        spec, design = self.spec, replace(self.design, phi=map_at(self.design.phi, scales))
        rows = spec.chunk_rows or chunk_rows(design.blocks["phi"], np.float64)
        with self.progress.watched(self.source, rows) as source:
            (moments,) = accumulate(source, design, rows=rows)
        self.n_passes += 1
        system = System.build(moments, fit_intercept=False, penalty=spec.penalty, eps=spec.eps)
        problem = Problem(self.source, design, self.loss, system, rows)
        self._last = scales.copy(), problem
        return problem

    def point(self, hyper: Array, eta: float, unfairness: float | None = None) -> LaplacePoint:
        """Return the approximation at some hyperparameters; a limit finds η."""
        problem = self.problem(hyper)
        shape = (len(problem.metric), self.loss.n_scores)
        start = self._mode if self._mode is not None and self._mode.shape == shape else None
        with self.progress.watched(self.source, problem.rows or 1) as source:
            point = find_mode(
                replace(problem, source=source), amplitude=float(np.exp(hyper[-1])), eta=eta,
                unfairness=unfairness, penalty=self.spec.penalty, eps=self.spec.eps, start=start,
            )  # fmt: skip
        self.n_passes += point.n_passes
        self._mode = point.coef
        return replace(point, problem=problem)

    def gradient(self, point: LaplacePoint, *, scales: bool = True) -> Array:
        """Return ∂ log evidence/∂hyper; 0 in the length scales where they are not to move."""
        slopes = point.slopes()
        self.n_passes += 1
        in_scale: Array = np.zeros(len(self.start) - 1)
        if scales and len(in_scale):
            adjoint, rows = slopes.adjoint(), self.spec.chunk_rows
            in_scale = laplace_scale_gradient(self.source, adjoint, rows=rows)
            self.n_passes += 1
        return np.append(in_scale, slopes.in_log_amplitude)

    def __call__(
        self, hyper: Array, eta: float, *, scales: bool = True
    ) -> tuple[float, Array, float]:
        """Return the log evidence, its gradient, and n times the number of scores."""
        point = self.point(hyper, eta)
        gradient = self.gradient(point, scales=scales)
        return point.log_evidence, gradient, point.n * self.loss.n_scores

    def fixed(self, theta: Array, eta: float, *, gradient: bool) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a] and its gradient, or None."""
        point = self.point(theta, eta)
        return point.log_evidence, self.gradient(point) if gradient else None

    def learning_eta(self) -> float:
        """Return the finite η that hyperparameters are learnt with."""
        spec = self.spec
        if spec.unfairness is None and np.isfinite(spec.eta):
            return spec.eta
        most = largest_eta(spec.penalty, self.problem(self.start).system.moments)
        if spec.unfairness is None:
            return most
        return min(self.point(self.start, np.inf, spec.unfairness).eta, most)


@dataclass(frozen=True, eq=False)
class GPClassifierFit(ProcessFit):
    """A classification.

    Parameters
    ----------
    n_passes : int
        Passes over the rows.
    evidence : LaplaceEvidence
        For other hyperparameters; it knows where the training rows are.
    """

    n_passes: int
    evidence: LaplaceEvidence


def fit_classes(evidence: LaplaceEvidence) -> GPClassifierFit:
    """Learn the hyperparameters, and return the process there."""
    spec, result = evidence.spec, search(evidence)
    point = evidence.point(result.hyper, spec.eta, spec.unfairness)
    free = evidence.amplitude_bounds[0] < evidence.amplitude_bounds[1]
    if spec.unfairness is not None and free and 0 < point.eta < np.inf:
        point = _amplitude_again(evidence, result, point)
    moments, design = point.problem.system.moments, point.problem.design
    phi, amplitude = design.phi, point.amplitude
    scales = hyper_of(phi)
    sentences = [
        *at_log_bounds("amplitude", np.log(amplitude), evidence.amplitude_bounds, SIGNAL),
        *scale_sentences(result, evidence.bounds, len(scales), spec.inputs),
    ]
    return GPClassifierFit(
        distribution=LatentLaw(phi, point.coef, point.factors, missing_variance(phi, amplitude)),
        psi=design.psi, kernel=scaled(kernel_of(phi), amplitude),
        theta=np.append(scales, np.log(amplitude)), amplitude=amplitude, eta=point.eta,
        log_evidence=point.log_evidence, share=point.problem.share(point.coef),
        n_rows=moments.n_rows, diagnostics=_diagnostics(point), search=result,
        at_bounds=tuple(sentences),
        phi=phi, moments=moments, n_passes=evidence.n_passes, evidence=evidence.silent(),
    )  # fmt: skip


def _diagnostics(point: LaplacePoint) -> Diagnostics:
    """Return the worst of all scores."""
    scores = (of_eigenvalues(at.system.values, at.ratio) for at in point.slices)
    return min(scores, key=lambda score: score.digits)


def _amplitude_again(
    evidence: LaplaceEvidence, result: Search, point: LaplacePoint
) -> LaplacePoint:
    """Find amplitude and weight once more for each other; the weight last: the limit holds."""
    spec, scales = evidence.spec, result.hyper[:-1]
    again = maximise(
        partial(evidence, eta=point.eta, scales=False), [result.hyper],
        [*((at, at) for at in scales), evidence.amplitude_bounds],
        tol=spec.tol, max_iter=spec.max_iter,
    )  # fmt: skip
    return evidence.point(again.hyper, np.inf, spec.unfairness)
