"""The fair Gaussian process of classes: Laplace's approximation at the mode, in weight space.

f = Φβ with the prior β ~ N(0, P⁻¹), P = I/a² + 2nηRRᵀ, and −log p(y|f) = ΣV. The mode minimises
J = 1/n ΣV + α|β|² + η|Rᵀβ|² with 2nα = 1/a². With A = ΦᵀWΦ + P, W = V'',

    β | y ≈ N(mode, A⁻¹),    log evidence ≈ −ΣV − ½βᵀPβ − ½(log|A| − log|P|)  at the mode.

Near the mode this is a regression with the Gram matrix ΦᵀWΦ, noise 1 and the penalty 2η: see
`GaussianSystem`. Several scores are independent, and their evidences add up.

Slopes (Rasmussen & Williams, section 5.5.1): with q = −½W'φᵀA⁻¹φ and s = A⁻¹Φᵀq, by which the mode answers to a change,

    ∂L/∂Φ = −WΦA⁻¹ + (g + q − WΦs)βᵀ + g sᵀ,  g = −V'
    ∂L/∂P = ½(P⁻¹ − A⁻¹ − ββᵀ − sβᵀ − βsᵀ).
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from scalefair._typing import Array
from scalefair.features.base import LengthScaleMap
from scalefair.features.nystroem import Nystroem
from scalefair.kernels import Scaled
from scalefair.losses import Logistic, OneVsRest
from scalefair.moments.accumulate import Rows
from scalefair.moments.gradient import LaplaceAdjoint, Mode, laplace_scale_gradient, skew_sums
from scalefair.solve.fit import GPClassifierFit, ProcessSpec, Search, of_eigenvalues
from scalefair.solve.gp.distribution import LatentDistribution
from scalefair.solve.gp.evidence import Box, checked, design_at, map_start, maximise, search
from scalefair.solve.gp.profile import AMPLITUDE_BOUNDS, at_log_bounds, largest_eta, log_bounds
from scalefair.solve.gp.system import GaussianPoint, GaussianSlice, GaussianSystem, penalty_slopes
from scalefair.solve.newton.descent import Goal, newton
from scalefair.solve.newton.model import Local, Problem, Weight
from scalefair.solve.ridge.system import System

TOL = 1e-13  # of Newton's method: the evidence feels an error of the mode in its first power
MAX_ITER = 200
# Meaning of an amplitude at its lower, and at its upper bound
SIGNAL = (
    "the classes show no signal that these features follow; probabilities are nearly constant",
    "the features separate the classes, or vary too little for too large length scales",
)


@dataclass(frozen=True, eq=False)
class LaplacePoint:
    """The approximation at one amplitude a > 0 and 0 ≤ η ≤ ∞; rows are whitened."""

    problem: Problem
    local: Local  # the data term at the mode, by a full pass
    amplitude: float
    eta: float
    penalty: str
    eps: float | None
    n_passes: int = 0  # that it took to find it

    @property
    def n(self) -> float:
        """Sum of the weights."""
        return self.problem.system.moments.weight

    @property
    def coef(self) -> Array:
        """The mode, shape (m, k)."""
        return self.local.theta

    @cached_property
    def slices(self) -> list[GaussianSlice]:
        """The regression that each score is near its mode."""
        m, k = self.coef.shape
        blocks = self.local.hessian.reshape(k, m, k, m)
        moments, slices = self.problem.system.moments, []
        for c in range(k):
            gram = self.n * blocks[c, :, c]
            target = gram @ self.coef[:, [c]] - self.n * self.local.gradient[:, [c]]
            system = GaussianSystem.build(moments, penalty=self.penalty, eps=self.eps, statistics=(gram, target))
            slices.append(system.slice(self.amplitude**-2, 2.0 * self.eta))
        return slices

    @cached_property
    def log_evidence(self) -> float:
        """Laplace's approximation to log p(y), summed over the scores."""
        alpha = ridge_of(self.amplitude, self.n)
        fit = self.local.value + self.problem.penalty(self.coef, alpha, Weight(self.eta))
        return float(-self.n * fit - 0.5 * sum(at.log_det for at in self.slices))

    @cached_property
    def factors(self) -> Array:
        """F of each score with FFᵀ = A⁻¹, shape (k, m, m)."""
        return np.stack([GaussianPoint(at, 1.0).posterior().factor for at in self.slices])

    @property
    def mode(self) -> Mode:
        """The arguments of passes over the rows."""
        problem = self.problem
        return Mode(problem.design, problem.loss, self.coef, self.factors)

    def slopes(self) -> LaplaceSlopes:
        """Return how the mode answers to changes, by one pass."""
        problem = self.problem
        skew = skew_sums(problem.source, self.mode, rows=problem.rows)
        moved = []
        for c, at in enumerate(self.slices):
            both = np.column_stack([at.system.target, at.system.basis.T @ skew[:, c]])
            system = replace(at.system, target=both)
            moved.append(system.slice(at.ratio, 2.0 * self.eta))
        return LaplaceSlopes(self, skew, moved)


@dataclass(frozen=True, eq=False)
class LaplaceSlopes:
    """Derivatives of the log evidence."""

    point: LaplacePoint
    skew: Array  # Φᵀq (m, k)
    slices: list[GaussianSlice]  # of the point, with two targets, whose solutions are β and s

    @property
    def in_log_amplitude(self) -> float:
        """∂ log evidence/∂ log a."""
        total = 0.0
        for at in self.slices:
            beta, drift = at.coordinates.T
            total += at.log_det_slopes[0] + at.ratio * float(beta @ (beta + 2.0 * drift))
        return total

    def adjoint(self) -> LaplaceAdjoint:
        """Return ∂ log evidence/∂Φ of any rows, at fixed amplitude and η."""
        point, moments = self.point, self.point.problem.system.moments
        inverses = point.factors @ point.factors.transpose(0, 2, 1)
        drift = np.column_stack([at.system.basis @ at.coordinates[:, 1] for at in self.slices])
        cross = sum(self._cross(at) for at in self.slices)
        G3 = np.asarray(cross).T / point.n
        product = self._product(inverses, drift)
        mean_psi = np.zeros(0)
        if "psi" in moments.blocks:
            product = product + point.n * (moments.covariance("phi", "psi") @ G3)
            mean_psi = moments.mean("psi")
        return LaplaceAdjoint(point.mode, inverses, drift, G3, mean_psi, product)

    @staticmethod
    def _cross(at: GaussianSlice) -> Array:
        """∂L/∂C_φψ of one score."""
        beta, drift = at.coordinates.T
        volume, pull = penalty_slopes(at)
        along_beta, along_drift = pull.T
        of_factor = -volume - np.outer(beta + drift, along_beta)
        of_factor -= np.outer(beta, along_drift)
        return np.asarray(at.system.basis @ of_factor @ at.system.right.T)

    def _product(self, inverses: Array, drift: Array) -> Array:
        """Φᵀ(∂L/∂Φ) but for the part of ψ: sums that are known already."""
        point = self.point
        m, k = point.coef.shape
        blocks = point.n * point.local.hessian.reshape(k, m, k, m)
        slope = -point.n * point.local.gradient
        total = np.zeros((m, m))
        for c in range(k):
            H = blocks[c, :, c]
            v = slope[:, c] + self.skew[:, c] - H @ drift[:, c]
            total += np.outer(v, point.coef[:, c]) + np.outer(slope[:, c], drift[:, c])
            total -= H @ inverses[c]
        return total


def ridge_of(amplitude: float, n: float) -> float:
    """α = 1/(2na²)."""
    return 1.0 / (2.0 * n * amplitude**2)


def find_mode(
    problem: Problem, *, amplitude: float, eta: float = 0.0, unfairness: float | None = None,
    penalty: str = "normalized", eps: float | None = None, start: Array | None = None,
) -> LaplacePoint:  # fmt: skip
    """Return the approximation at the mode, by Newton's method from `start` (m, k)."""
    n, warm, passes = problem.system.moments.weight, None, 1
    if start is not None:
        warm, passes = problem.evaluate(start)[0], 2
    goal = Goal(ridge_of(amplitude, n), eta, unfairness, on_path=True)
    fit = newton(problem, goal, warm=warm, tol=TOL, max_iter=MAX_ITER)
    local, _ = problem.evaluate(fit.theta)
    passes += fit.n_passes
    return LaplacePoint(problem, local, float(amplitude), fit.eta, penalty, eps, passes)


class LaplaceEvidence:
    """The evidence as a function of [φ's, log a]; each search starts at the last mode."""

    def __init__(self, spec: ProcessSpec, rows: Rows) -> None:
        self.spec, self.rows = spec, rows
        k = rows.design.n_targets
        self.loss = Logistic() if k == 1 else OneVsRest(k)
        # Scores are log odds, so that the unit of the amplitude is 1.
        self.amplitude_bounds = log_bounds(spec.amplitude, spec.amplitude_bounds, AMPLITUDE_BOUNDS)
        start, bounds = map_start(rows.design.phi, spec)
        self.start = np.append(start, np.clip(0.0, *self.amplitude_bounds))
        self.bounds: Box = [*bounds, self.amplitude_bounds]
        self.n_passes = 0
        self._last: tuple[Array, Problem] | None = None
        self._mode: Array | None = None

    def problem(self, hyper: Array) -> Problem:
        """Return rows, loss and penalty; one pass, unless the last ones had the same φ."""
        scales = hyper[:-1]
        if self._last is not None and np.array_equal(self._last[0], scales):
            return self._last[1]
        spec, design = self.spec, design_at(self.rows.design, scales)
        (moments,) = replace(self.rows, design=design).moments()
        self.n_passes += 1
        system = System.build(moments, fit_intercept=False, penalty=spec.penalty, eps=spec.eps)
        size = self.rows.chunk_rows or design.chunk_rows()
        problem = Problem(self.rows.source, design, self.loss, system, size)
        self._last = scales.copy(), problem
        return problem

    def point(self, hyper: Array, eta: float, unfairness: float | None = None) -> LaplacePoint:
        """Return the approximation at some hyperparameters; a limit finds η."""
        problem = self.problem(hyper)
        shape = (len(problem.metric), self.loss.n_scores)
        start = self._mode if self._mode is not None and self._mode.shape == shape else None
        rows = self.rows
        watched = rows.progress and rows.progress.watched(rows.source, problem.rows or 1)
        with watched or nullcontext(rows.source) as source:
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
            adjoint, rows = slopes.adjoint(), self.rows.chunk_rows
            in_scale = laplace_scale_gradient(self.rows.source, adjoint, rows=rows)
            self.n_passes += 1
        return np.append(in_scale, slopes.in_log_amplitude)

    def __call__(self, hyper: Array, eta: float, *, scales: bool = True) -> tuple[float, Array, float]:
        """Return the log evidence, its gradient, and n times the number of scores."""
        point = self.point(hyper, eta)
        gradient = self.gradient(point, scales=scales)
        return point.log_evidence, gradient, point.n * self.loss.n_scores

    def fixed(self, theta: Array, eta: float, *, gradient: bool) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a] and its gradient, or None."""
        point = self.point(theta, eta)
        return point.log_evidence, self.gradient(point) if gradient else None

    def learning_eta(self) -> float:
        """Return the finite η to learn with, where ∞ or a limit is requested."""
        spec = self.spec
        most = largest_eta(spec.penalty, self.problem(self.start).system.moments)
        if spec.unfairness is None:
            return most
        return min(self.point(self.start, np.inf, spec.unfairness).eta, most)


def at_weight(spec: ProcessSpec, rows: Rows, fit: GPClassifierFit, eta: float) -> GPClassifierFit:
    """Return a fit at another weight, with all that was learnt."""
    again = fit_classes(spec.fixed(eta, fit.amplitude), rows)
    passes = fit.n_passes + again.n_passes
    return replace(again, search=fit.search, at_bounds=fit.at_bounds, evidence=fit.evidence, n_passes=passes)


def fit_classes(spec: ProcessSpec, rows: Rows) -> GPClassifierFit:
    """Learn the hyperparameters, from the design of the rows on, and return the process there."""
    evidence = LaplaceEvidence(spec, rows)
    result = search(evidence, rows.progress)
    point = evidence.point(result.hyper, spec.eta, spec.unfairness)
    free = evidence.amplitude_bounds[0] < evidence.amplitude_bounds[1]
    if spec.unfairness is not None and free and 0 < point.eta < np.inf:
        point = _amplitude_again(evidence, result, point)
    moments, design = point.problem.system.moments, point.problem.design
    phi, amplitude = design.phi, point.amplitude
    scales, _ = map_start(phi, spec)
    missing = amplitude**2 if isinstance(phi, Nystroem) else 0.0
    at_bounds = at_log_bounds("amplitude", np.log(amplitude), evidence.amplitude_bounds, SIGNAL)
    silent = copy(evidence)
    silent.rows = replace(rows, progress=None)
    diagnostics = (of_eigenvalues(at.system.values, at.ratio) for at in point.slices)
    fit = GPClassifierFit(
        distribution=LatentDistribution(phi, point.coef, point.factors, missing), psi=design.psi,
        kernel=Scaled(phi.kernel_, amplitude) if isinstance(phi, LengthScaleMap) else None,
        theta=np.append(scales, np.log(amplitude)), amplitude=amplitude, eta=point.eta,
        log_evidence=point.log_evidence, share=point.problem.share(point.coef),
        n_rows=moments.n_rows, diagnostics=min(diagnostics, key=lambda score: score.digits),
        search=result, at_bounds=tuple(at_bounds),
        phi=phi, moments=moments, n_passes=evidence.n_passes, evidence=silent,
    )  # fmt: skip
    return checked(fit, evidence.bounds, spec.inputs)  # type: ignore[no-any-return]


def _amplitude_again(evidence: LaplaceEvidence, result: Search, point: LaplacePoint) -> LaplacePoint:
    """Find amplitude and weight once more for each other; the weight last: the limit holds."""
    spec, scales = evidence.spec, result.hyper[:-1]
    again = maximise(
        partial(evidence, eta=point.eta, scales=False),
        [result.hyper],
        [*((at, at) for at in scales), evidence.amplitude_bounds],
        tol=spec.tol,
        max_iter=spec.max_iter,
    )
    return evidence.point(again.hyper, np.inf, spec.unfairness)
