"""Laplace's evidence as the search sees it: a function of length scales and amplitude, by passes.

A place costs one pass for the moments where length scales moved, a few for the mode, one to see
how the mode answers, and one for the gradient in the length scales.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.estimators._data import TrainingData
from scalefair.estimators._gp_evidence import penalty_size
from scalefair.estimators._gp_maps import moved, place_of, process_map
from scalefair.estimators._maps import sensitive_map
from scalefair.estimators._progress import watched
from scalefair.losses import Logistic, OneVsRest
from scalefair.solve.gp.laplace import LaplacePoint, find_mode
from scalefair.solve.gp.limit import FIRM
from scalefair.solve.newton_model import Problem
from scalefair.solve.system import System
from scalefair.statistics import RowMap, accumulate, chunk_rows
from scalefair.statistics.laplace import laplace_scale_gradient
from scalefair.stream import ChunkSource

BOUNDS = (1e-3, 1e3)
"""Default bounds of the amplitude: scores are log odds, whose scale is known."""


class LaplaceEvidence:
    """The evidence of a feature map; the place is [place of φ, log a].

    Parameters
    ----------
    estimator : FairGPClassifier
        Its parameters and callbacks.
    source : ChunkSource
        Of numeric chunks, y as the loss wants it.
    n_rows : int or None
    row_map : RowMap
        The maps where the search starts.

    Attributes
    ----------
    n_passes : int
        Passes over the rows so far.
    """

    def __init__(
        self, estimator: Any, source: ChunkSource, n_rows: int | None, row_map: RowMap
    ) -> None:
        self.estimator, self.source, self.n_rows, self.row_map = estimator, source, n_rows, row_map
        k = row_map.n_targets
        self.loss = Logistic() if k == 1 else OneVsRest(k)
        self.n_passes = 0
        self._known: tuple[Array, Problem] | None = None
        self._near: Array | None = None

    @property
    def start(self) -> Array:
        """log θ and log a where the search starts."""
        low, high = self.bounds
        return np.append(place_of(self.row_map.phi), np.clip(0.0, low, high))

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of log a; equal where it is given."""
        given, bounds = self.estimator.amplitude, self.estimator.amplitude_bounds
        low, high = (bounds or BOUNDS) if isinstance(given, str) else (given, given)
        return float(np.log(low)), float(np.log(high))

    def problem(self, place: Array) -> Problem:
        """Return rows, loss and penalty at a place; one pass unless the last one was there."""
        scales = place[:-1]
        if self._known is not None and np.array_equal(self._known[0], scales):
            return self._known[1]
        row_map = replace(self.row_map, phi=moved(self.row_map.phi, scales))
        rows = self.estimator.chunk_rows or chunk_rows(row_map.blocks["phi"], np.float64)
        with watched(self.estimator, self.source, rows, self.n_rows) as told:
            (moments,) = accumulate(told, row_map, rows=rows)
        self.n_passes += 1
        options = {"penalty": self.estimator.penalty, "eps": self.estimator.eps}
        system = System.build(moments, fit_intercept=False, **options)
        problem = Problem(self.source, row_map, self.loss, system, rows)
        self._known = scales.copy(), problem
        return problem

    def point(self, place: Array, eta: float, unfairness: float | None = None) -> LaplacePoint:
        """Return the approximation at a place; under a limit η is found."""
        problem = self.problem(place)
        shape = (len(problem.metric), self.loss.n_scores)
        start = self._near if self._near is not None and self._near.shape == shape else None
        with watched(self.estimator, self.source, problem.rows or 1, self.n_rows) as told:
            found = find_mode(
                replace(problem, source=told), amplitude=float(np.exp(place[-1])), eta=eta,
                unfairness=unfairness, penalty=self.estimator.penalty, eps=self.estimator.eps,
                start=start,
            )  # fmt: skip
        self.n_passes += found.n_passes
        self._near = found.coef
        return replace(found, problem=problem)

    def gradient(self, point: LaplacePoint, *, scales: bool = True) -> Array:
        """Return ∂ log evidence/∂place; 0 in the length scales where they are not to move."""
        slopes = point.slopes()
        self.n_passes += 1
        in_scale: Array = np.zeros(len(self.start) - 1)
        if scales and len(in_scale):
            rows = self.estimator.chunk_rows
            in_scale = laplace_scale_gradient(self.source, slopes.adjoint(), rows=rows)
            self.n_passes += 1
        return np.append(in_scale, slopes.in_log_amplitude)

    def __call__(
        self, place: Array, eta: float, *, scales: bool = True
    ) -> tuple[float, Array, float]:
        """Return the log evidence, its gradient, and n times the number of scores."""
        point = self.point(place, eta)
        gradient = self.gradient(point, scales=scales)
        return point.log_evidence, gradient, point.n * self.loss.n_scores

    def fixed(self, theta: Array, eta: float, *, gradient: bool) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a] and its gradient, or None."""
        point = self.point(theta, eta)
        return point.log_evidence, self.gradient(point) if gradient else None

    def held_eta(self, eta: float, unfairness: float | None) -> float:
        """Return the finite η that hyperparameters are learnt with."""
        if unfairness is None and np.isfinite(eta):
            return eta
        moments = self.problem(self.start).system.moments
        most = FIRM / penalty_size(self.estimator.penalty, moments)
        if unfairness is None:
            return most
        return min(self.point(self.start, np.inf, unfairness).eta, most)


def laplace_evidence(estimator: Any, data: TrainingData) -> LaplaceEvidence:
    """Learn the maps on the sample; return the evidence of the training rows."""
    phi, psi = process_map(estimator, data), sensitive_map(estimator, data)
    row_map = RowMap(phi, psi, data.n_targets, whiten_rows=True, preparation=data.preparation.key)
    return LaplaceEvidence(estimator, data.source, data.n_rows, row_map)
