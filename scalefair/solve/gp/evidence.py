"""The evidence of a feature map as the search sees it, a function of log θ, and the fit there.

    L(θ) = max over σ², a of log N(y − ȳ | 0, ΦK*Φᵀ + σ²I),    Φ = φ_θ(x),  K* = a²(I + (nη/τ)RRᵀ)⁻¹
    β | y ~ N(A⁻¹Φᵀ(y − ȳ), σ²A⁻¹),    A = ΦᵀΦ + τI + nηRRᵀ,  τ = σ²/a²

Noise and amplitude are at their best for each set of length scales, from the moments alone, so
that an evaluation costs two passes: one for the moments, one for the gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array, Chunk
from scalefair.data.progress import Progress
from scalefair.features.base import LengthScaleMap
from scalefair.features.design import Design
from scalefair.features.nystroem import MovingNystroem
from scalefair.held_out import held_out_shares, worst_of
from scalefair.kernels import Scaled
from scalefair.moments.accumulate import Rows
from scalefair.moments.gradient import RowAdjoint, length_scale_gradient
from scalefair.penalties import explained_share, variance_of
from scalefair.solve.fit import Bounds, GPFit, ProcessFit, ProcessSpec, Search, of_eigenvalues
from scalefair.solve.gp.distribution import FeatureDistribution
from scalefair.solve.gp.profile import Profile, largest_eta, limiting_eta, profile_noise, profile_within
from scalefair.solve.gp.system import GaussianPoint, GaussianSystem, penalty_slopes
from scalefair.solve.ridge.path import FoldedMoments, GridScores, errors_on

# Bounds of the variables; equal ones fix a variable
Box = Sequence[tuple[float | None, float | None]]
# Log evidence, its gradient, and the weight of all rows times the number of outputs
Objective = Callable[[Array], tuple[float, Array, float]]
ABNORMAL = 2  # status of L-BFGS-B where its line search fails, as it may at a kink
MAX_STRETCH = np.log(1e3)  # default bounds of a log length scale: so much below and above its start
# Slope per row, relative to the evidence per row, that rounding may hide from a line search
MAX_FLAT_SLOPE = 1e-5
# Times a search goes on from where its line search failed, with its memory of slopes wiped
MAX_CONTINUED = 3
MAX_NAMES = 8  # names that a sentence lists
# Other length scales to start from, relative to the first, where the evidence is flat there
SPARE_STARTS = np.log([0.3, 0.1, 3.0])
CONSTANT = (
    "the mean of f is constant: y shows no signal, or the penalty leaves nothing of it; use a "
    "smaller eta, or give the model more or other inputs"
)


def row_adjoint(point: GaussianPoint) -> RowAdjoint:
    """Return ∂L/∂Φ of any rows, L the log evidence, at fixed noise, amplitude and η.

    ∂L/∂ΦᵀΦ = −½(tA⁻¹ + ββᵀ/σ²),    ∂L/∂Φᵀ(y − ȳ) = β/σ²,
    ∂L/∂C_φψ = −nη(t(A⁻¹ − P⁻¹) + ββᵀ/σ²)RTᵀ  with R = C_φψT
    """
    at, system, moments = point.slice, point.slice.system, point.slice.system.moments
    n, mean, t = moments.weight, moments.mean("phi"), system.target.shape[1]
    half, coef = system.basis @ (at.scale[:, None] * at.upper), point.coef
    inverse = (system.basis * at.scale**2) @ system.basis.T - half @ half.T
    volume, pull = penalty_slopes(at)
    of_factor = -(t * volume + at.coordinates @ (pull.T / point.noise))
    G1, g2 = -(t * inverse + coef @ (coef.T / point.noise)), coef / point.noise
    G3 = system.right @ of_factor.T @ system.basis.T / n
    gram = moments.covariance("phi", "phi") + np.outer(mean, mean)
    product = n * (gram @ G1 + moments.covariance("phi", "y") @ g2.T)
    mean_psi = np.zeros(0)
    if "psi" in moments.blocks:
        product += n * (moments.covariance("phi", "psi") @ G3)
        mean_psi = moments.mean("psi")
    return RowAdjoint(G1, g2, G3, moments.mean("y"), mean_psi, product)


def map_start(phi: Any, spec: ProcessSpec) -> tuple[Array, Box]:
    """Return what the search may change of a map, and its bounds: log θ, and landmarks in units."""
    if not isinstance(phi, LengthScaleMap):
        return np.zeros(0), []
    scales = np.log(phi.kernel_.theta)
    bounds = scale_bounds(scales, spec)
    if not isinstance(phi, MovingNystroem):
        return scales, bounds
    start = phi.hyperparameters
    landmarks = [(None, None) if spec.learn_scales else (at, at) for at in start[len(scales) :]]
    return start, [*bounds, *landmarks]


def design_at(design: Design, hyper: Array) -> Design:
    """Return the maps at other hyperparameters of φ."""
    if hyper.size == 0:
        return design
    phi: Any = design.phi
    if isinstance(phi, MovingNystroem):
        return replace(design, phi=phi.with_hyperparameters(hyper))
    return replace(design, phi=phi.with_length_scale(np.exp(hyper)))


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """The evidence of an explicit feature map; the search starts at the design of the rows."""

    spec: ProcessSpec
    rows: Rows
    start: Array
    bounds: Box

    def system(self, design: Design) -> GaussianSystem:
        """Return the decomposed statistics, by one pass."""
        (moments,) = replace(self.rows, design=design).moments()
        return GaussianSystem.build(moments, penalty=self.spec.penalty, eps=self.spec.eps)

    def gradient(self, design: Design, point: GaussianPoint) -> Array:
        """Return ∂ log evidence/∂hyper at fixed noise and amplitude, by one pass."""
        rows = self.rows
        watched = rows.progress and rows.progress.watched(rows.source, rows.chunk_rows or 1)
        with watched or nullcontext(rows.source) as source:
            return length_scale_gradient(source, design, row_adjoint(point), rows=rows.chunk_rows)

    def __call__(self, hyper: Array, eta: float) -> tuple[float, Array, float]:
        """Return the log evidence at the best noise and amplitude, its gradient, and n·t."""
        design = design_at(self.rows.design, hyper)
        system = self.system(design)
        point = self.profile(system, eta).point
        return point.log_evidence, self.gradient(design, point), system.n * system.target.shape[1]

    def fixed(self, phi: Any, theta: Array, eta: float, *, gradient: bool) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a, log σ²] and its gradient, or None."""
        phi = phi if len(theta) == 2 else phi.with_length_scale(np.exp(theta[:-2]))
        design = replace(self.rows.design, phi=phi)
        amplitude, noise = np.exp(theta[-2:])
        point = GaussianPoint.of(self.system(design), noise=noise, amplitude=amplitude, eta=eta)
        if not gradient:
            return point.log_evidence, None
        in_scale = self.gradient(design, point) if len(theta) > 2 else np.zeros(0)
        return point.log_evidence, np.concatenate([in_scale, point.gradient[[1, 0]]])

    def profile(self, system: GaussianSystem, eta: float) -> Profile:
        """Return the best noise and amplitude, or those that were given."""
        noise, amplitude = self.spec.noise, self.spec.amplitude
        if noise is not None and amplitude is not None:
            return Profile(GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta), ())
        noises = self.spec.noise_bounds if noise is None else (noise, noise)
        amplitudes = self.spec.amplitude_bounds if amplitude is None else (amplitude, amplitude)
        return profile_noise(system, eta, noise_bounds=noises, amplitude_bounds=amplitudes)

    def learning_eta(self) -> float:
        """Return the finite η that length scales are learnt with, where ∞ or a limit is asked."""
        spec, system = self.spec, self.system(self.rows.design)
        most = largest_eta(spec.penalty, system.moments)
        if spec.unfairness is None:
            return most
        point = self.profile(system, 0.0).point
        return min(limiting_eta(point, spec.eps, spec.penalty, spec.unfairness), most)


def at_weight(spec: ProcessSpec, rows: Rows, fit: GPFit, eta: float, sample: Chunk) -> GPFit:
    """Return a fit at another weight, with all that was learnt, by one pass."""
    again = fit_features(spec.fixed(eta, fit.amplitude, fit.noise), rows, sample)
    return replace(again, search=fit.search, at_bounds=fit.at_bounds, evidence=fit.evidence)


def fit_features(spec: ProcessSpec, rows: Rows, sample: Chunk) -> GPFit:
    """Learn the hyperparameters, and return the process; features miss what `sample` shows."""
    evidence = MomentEvidence(spec, rows, *map_start(rows.design.phi, spec))
    result = search(evidence, rows.progress)
    design = design_at(rows.design, result.hyper)
    best, eta = partial(evidence.profile, evidence.system(design)), spec.eta
    if spec.unfairness is None:
        profile = best(eta)
    else:
        profile, eta = profile_within(best, spec.eps, spec.penalty, spec.unfairness)
    phi = design.phi.fixed() if isinstance(design.phi, MovingNystroem) else design.phi
    point, system, amplitude = profile.point, profile.point.slice.system, profile.point.amplitude
    distribution = FeatureDistribution.of(phi, point.posterior(), amplitude, sample if spec.noise is None else None)
    scales, _ = map_start(phi, spec)
    fit = GPFit(
        distribution=distribution, psi=design.psi,
        kernel=Scaled(phi.kernel_, amplitude) if isinstance(phi, LengthScaleMap) else None,
        theta=np.append(scales, np.log([amplitude, point.noise])), amplitude=amplitude, eta=eta,
        log_evidence=point.log_evidence, share=explained_share(system.moments, point.coef),
        n_rows=system.moments.n_rows, search=result, at_bounds=profile.at_bounds, phi=phi,
        diagnostics=of_eigenvalues(system.values, point.slice.ratio), moments=system.moments,
        noise=point.noise, coef=distribution.weights.coef,
        evidence=replace(evidence, rows=replace(rows, progress=None)),
    )  # fmt: skip
    return checked(fit, evidence.bounds, spec.inputs)  # type: ignore[no-any-return]


def held_out_scores(moments: FoldedMoments, fit: GPFit, spec: ProcessSpec, etas: Array) -> GridScores:
    """Score the mean at each η on rows left out, at the noise and amplitude of a fit; (K, 1, E)."""
    errors, shares = [], []
    for k, fold in enumerate(moments.folds):
        rest = moments.outside(k)
        system = GaussianSystem.build(rest, penalty=spec.penalty, eps=spec.eps)
        ratio, t = fit.noise / fit.amplitude**2, system.target.shape[1]
        at = np.stack([system.slice(ratio, float(eta)).coordinates for eta in etas], axis=1)
        B = system.basis @ at.reshape(len(at), -1)
        variance = variance_of(fold, ("phi",), B).reshape(-1, t)
        errors.append(errors_on(fold, ("phi",), B, rest.mean("y"), variance).mean(axis=1))
        shares.append(held_out_shares(fold, ("phi",), B, t, moments.ratio(k)))
    rows = sum(fold.effective_rows for fold in moments.folds)
    return GridScores(np.stack(errors)[:, None], worst_of(shares)[:, None], rows)


def checked(fit: ProcessFit, bounds: Box, names: Sequence[str]) -> Any:
    """Return the fit with its warnings: a constant mean, length scales at their bounds."""
    if not np.isfinite(fit.log_evidence):
        raise ValueError(
            f"the log evidence is {fit.log_evidence} at the noise and length scales found; look "
            "for huge values among the inputs and targets, or fix them"
        )
    constant = isinstance(fit, GPFit) and fit.psi is not None and np.isnan(fit.share)
    sentences = [CONSTANT] if constant else []
    hyper = fit.search.hyper[: 0 if fit.kernel is None else fit.kernel.theta.size]
    low, high = np.reshape(np.array(bounds[: len(hyper)], dtype=np.float64), (-1, 2)).T
    at_bound = (abs(hyper - high) < 1e-6).astype(int) - (abs(hyper - low) < 1e-6)
    if at_bound.any():  # where both are equal, the length scale is given
        sentences += scale_sentences(at_bound, names)
    return replace(fit, at_bounds=(*fit.at_bounds, *sentences))


@dataclass(eq=False)
class _Objective:
    """−log evidence per row; a large value where it is not finite, so that searches turn back."""

    evidence: Objective
    step: Callable[[], None] | None
    scale: float = 1.0
    history: list[float] = field(default_factory=list)
    failures: int = 0
    reason: str = ""

    def __call__(self, hyper: Array) -> tuple[float, Array]:
        try:
            value, gradient, self.scale = self.evidence(hyper)
            if self.step:
                self.step()
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise ValueError(f"the log evidence is {value}")
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            if not self.history:
                raise ValueError(f"no finite evidence to start from: {error}") from error
            self.failures, self.reason = self.failures + 1, str(error)
            return 1.0 - min(self.history) / self.scale, np.zeros_like(hyper)
        self.history.append(float(value))
        return -value / self.scale, -gradient / self.scale


class _Evidence(Protocol):
    """The log evidence as a function of hyperparameters, its gradient, and n·t."""

    @property
    def spec(self) -> ProcessSpec: ...
    @property
    def start(self) -> Array: ...
    @property
    def bounds(self) -> Box: ...
    def learning_eta(self) -> float: ...
    def __call__(self, hyper: Array, eta: float) -> tuple[float, Array, float]: ...


def search(evidence: _Evidence, progress: Progress | None) -> Search:
    """Search from the start and random ones about it, or else from other length scales."""
    start, bounds, spec = evidence.start, evidence.bounds, evidence.spec
    if all(low is not None and low == high for low, high in bounds):
        return Search(start, np.nan)
    eta = spec.eta
    if spec.unfairness is not None or not np.isfinite(eta):
        eta = evidence.learning_eta()
    low, high = np.array(bounds, dtype=np.float64).T  # None: NaN, which fmin, fmax pass over
    bounded, rng = np.isfinite(low), np.random.default_rng(spec.seed)
    moves = [np.zeros(len(start)), *(rng.normal(size=len(start)) for _ in range(spec.n_restarts))]
    near, spare = (
        [np.fmin(np.fmax(start + bounded * move, low), high) for move in some] for some in (moves, SPARE_STARTS)
    )
    with progress.steps("evaluations") if progress else nullcontext() as step:
        return maximise(
            partial(evidence, eta=eta), near, bounds, tol=spec.tol, max_iter=spec.max_iter, spare=spare, step=step
        )


def scale_bounds(scales: Array, spec: ProcessSpec) -> list[Bounds]:
    """Return the bounds of log length scales that start there; equal ones are not learnt."""
    if not spec.learn_scales:
        return [(at, at) for at in scales]
    if spec.length_scale_bounds is None:
        return [(at - MAX_STRETCH, at + MAX_STRETCH) for at in scales]
    low, high = np.log(spec.length_scale_bounds)
    return [(float(low), float(high))] * len(scales)


def maximise(
    evidence: Objective, starts: Sequence[Array], bounds: Box, *, tol: float, max_iter: int,
    spare: Sequence[Array] = (), step: Callable[[], None] | None = None,
) -> Search:  # fmt: skip
    """Return the largest log evidence from any start; `spare` ones are for a first on a plateau."""
    objective = _Objective(evidence, step)
    options: Any = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-3 * tol}
    best: Any = None
    iterations = 0
    for number, first in enumerate([*starts, *spare]):
        if number >= len(starts) and iterations > 0:
            break
        start, last = first, np.inf
        for _ in range(1 + MAX_CONTINUED):
            run = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            iterations += int(run.nit)
            # Where the line search fails but the run got somewhere, it goes on from there.
            if run.status != ABNORMAL or not run.fun < last - 1e-12 * (1 + abs(run.fun)):
                break
            start, last = run.x, float(run.fun)
        best = run if best is None or run.fun < best.fun else best
    if objective.failures:
        warnings.warn(
            f"the evidence was not finite at {objective.failures} points of the search "
            f"({objective.reason}); narrow length_scale_bounds if the result looks odd",
            ConvergenceWarning,
            stacklevel=2,
        )
    history, value = objective.history, -float(best.fun) * objective.scale
    state = best.status == 0, str(best.message)
    if best.status == ABNORMAL:
        state = _at_kink(best, bounds)
    return Search(best.x, value, *state, iterations, len(history), history)


def _at_kink(run: Any, bounds: Box) -> tuple[bool, str]:
    """Return whether a run whose line search failed is at a maximum, and a message."""
    low, high = np.array(bounds, dtype=np.float64).T  # None: NaN, which fmin, fmax pass over
    way = run.x - np.fmin(np.fmax(run.x - run.jac, low), high)
    slope = float(np.abs(way).max(initial=0.0))
    converged = slope <= MAX_FLAT_SLOPE * max(1.0, abs(run.fun))
    reason = "within rounding of the evidence" if converged else "too much to be at a maximum"
    return converged, f"the line search failed at a slope of {slope:.2g} per row, {reason}"


def scale_sentences(at_bound: Array, names: Sequence[str]) -> list[str]:
    """Describe the length scales at their lower (−1) or upper (1) bounds."""
    if len(at_bound) == 1:
        names = ["all inputs"]
    elif len(at_bound) != len(names):
        names = [f"theta[{i}]" for i in range(len(at_bound))]
    sentences = []
    for sign, end, meaning in (
        (-1, "lower", "the fit follows single rows, often for noise too small or repeated rows"),
        (1, "upper", "such inputs hardly matter for the fit, or the fit is linear in them"),
    ):
        hits = [name for name, at in zip(names, at_bound, strict=True) if at == sign]
        if hits:
            more = f" and {len(hits) - MAX_NAMES} more" if len(hits) > MAX_NAMES else ""
            sentences.append(
                f"length scale of {', '.join(hits[:MAX_NAMES])}{more} reached its {end} bound: "
                f"{meaning}; leave those inputs out, fix the length scale, or widen "
                "length_scale_bounds"
            )
    return sentences
