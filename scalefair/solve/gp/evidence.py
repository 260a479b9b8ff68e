"""The evidence of a feature map as the search sees it, a function of log θ, and the fit there.

    L(θ) = max over σ², a of log N(y − ȳ | 0, ΦK*Φᵀ + σ²I),    Φ = φ_θ(x),  K* = a²(I + (nη/τ)RRᵀ)⁻¹
    β | y ~ N(A⁻¹Φᵀ(y − ȳ), σ²A⁻¹),    A = ΦᵀΦ + τI + nηRRᵀ,  τ = σ²/a²

Noise and amplitude are at their best for each set of length scales, from the moments alone, so
that an evaluation costs two passes: one for the moments, one for the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from scalefair._typing import Array, Chunk
from scalefair.data.progress import Progress
from scalefair.data.sources import ChunkSource
from scalefair.features.base import LengthScaleMap, whitened
from scalefair.features.design import Design, chunk_rows
from scalefair.features.nystroem import MovingNystroem
from scalefair.kernels import Kernel, Scaled
from scalefair.moments import Moments, accumulate
from scalefair.moments.gradient import RowAdjoint, length_scale_gradient
from scalefair.penalties import held_out_shares, variance_of, worst_of
from scalefair.solve.diagnostics import of_eigenvalues
from scalefair.solve.fit import GPFit, ProcessFit
from scalefair.solve.gp.distribution import FeatureDistribution, missing_variance, residual
from scalefair.solve.gp.profile import (
    Profile,
    largest_eta,
    limiting_eta,
    profile_noise,
    profile_within,
    share_of,
)
from scalefair.solve.gp.search import Box, scale_sentences, search
from scalefair.solve.gp.system import GaussianPoint, GaussianSlice, GaussianSystem
from scalefair.solve.ridge.path import GridScores, errors_on
from scalefair.solve.ridge.search import FoldedMoments
from scalefair.solve.spec import ProcessSpec

CONSTANT = (
    "the mean of f is constant: y shows no signal, or the penalty leaves nothing of it; use a "
    "smaller eta, or give the model more or other inputs"
)

USUAL_SHARE = 0.95
"""Share of the weight of the rows whose residual counts as usual."""


class StatisticsAdjoint(NamedTuple):
    """∂ log evidence in the statistics of features without amplitude, at fixed σ², a and η.

    - In ΦᵀΦ: `gram` = −½(tA⁻¹ + ββᵀ/σ²), symmetric, shape (m, m).
    - In Φᵀ(y − ȳ): `target` = β/σ², shape (m, t).
    - In C_φψ: `cross` = R̄Tᵀ, shape (m, q), with R = C_φψT and R̄ = −nη(t(A⁻¹ − P⁻¹) + ββᵀ/σ²)R.
    """

    gram: Array
    target: Array
    cross: Array


def statistics_adjoint(point: GaussianPoint) -> StatisticsAdjoint:
    """Differentiate the log evidence in ΦᵀΦ, Φᵀ(y − ȳ) and C_φψ."""
    at, system = point.slice, point.slice.system
    basis, coordinates, t = system.basis, at.coordinates, system.outputs
    inverse = (basis * at.scale**2) @ basis.T
    half = basis @ (at.scale[:, None] * at.upper)
    coef = basis @ coordinates
    gram = -0.5 * (t * (inverse - half @ half.T) + coef @ (coef.T / point.noise))
    of_factor = -(t * volume_slope(at) + coordinates @ (pull(at).T / point.noise))
    return StatisticsAdjoint(gram, coef / point.noise, basis @ of_factor @ system.right.T)


def volume_slope(at: GaussianSlice) -> Array:
    """Return Vᵀ nη(A⁻¹ − P⁻¹)R W, shape (m, r): no η is left in it that could be large."""
    lifted = solve_triangular(at.triangle, np.diag(at.lift), trans="T", check_finite=False)
    fitted = np.sqrt(at.ratio) * at.scale[:, None] * (at.upper @ lifted)
    return np.asarray(fitted - at.system.directions * (at.root * at.lift))


def pull(at: GaussianSlice) -> Array:
    """Return nη WᵀRᵀβ, shape (r, t)."""
    solved = solve_triangular(at.triangle, at.along, check_finite=False)
    return np.asarray(np.sqrt(at.ratio) * at.lift[:, None] * solved)


def row_adjoint(point: GaussianPoint) -> RowAdjoint:
    """Return ∂ log evidence/∂Φ of any rows, at fixed noise, amplitude and η.

    Where noise and amplitude maximise the evidence, this is also the derivative of that maximum.
    """
    adjoint, moments = statistics_adjoint(point), point.slice.system.moments
    n, mean = moments.weight, moments.mean("phi")
    G1, g2, G3 = 2.0 * adjoint.gram, adjoint.target, adjoint.cross.T / n
    gram = moments.covariance("phi", "phi") + np.outer(mean, mean)
    product = n * (gram @ G1 + moments.covariance("phi", "y") @ g2.T)
    mean_psi = np.zeros(0)
    if "psi" in moments.blocks:
        product += n * (moments.covariance("phi", "psi") @ G3)
        mean_psi = moments.mean("psi")
    return RowAdjoint(G1, g2, G3, moments.mean("y"), mean_psi, product)


def kernel_of(phi: Any) -> Kernel | None:
    """Return the kernel that a map approximates; None where it names none."""
    return phi.kernel_ if isinstance(phi, LengthScaleMap) else None


def hyper_of(phi: Any) -> Array:
    """Return what the search may change: log θ, and landmarks in units of their spread."""
    if isinstance(phi, MovingNystroem):
        return phi.hyperparameters
    kernel = kernel_of(phi)
    if kernel is None:
        return np.zeros(0)
    return np.asarray(np.log(kernel.theta))


def map_at(phi: Any, hyper: Array) -> Any:
    """Return φ at other hyperparameters."""
    if hyper.size == 0:
        return phi
    if isinstance(phi, MovingNystroem):
        return phi.with_hyperparameters(hyper)
    return phi.with_length_scale(np.exp(hyper))


def map_bounds(phi: Any, spec: ProcessSpec) -> Box:
    """Return the bounds of `hyper_of` a map: those of length scales; landmarks have none."""
    start, kernel = hyper_of(phi), kernel_of(phi)
    scales = kernel.theta.size if kernel is not None and len(start) else 0
    landmarks = [(None, None) if spec.learn_scales else (at, at) for at in start[scales:]]
    return [*(spec.scale_bounds(at) for at in start[:scales]), *landmarks]


def moments_of(
    source: ChunkSource, design: Design, spec: ProcessSpec, progress: Progress
) -> Moments:
    """Return the moments of [φ, ψ, y], by one pass."""
    rows = spec.chunk_rows or chunk_rows(design.blocks["phi"], np.float64)
    with progress.watched(source, rows) as watched:
        (moments,) = accumulate(watched, design, rows=rows)
    return moments


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """The evidence of an explicit feature map; `design` is where the search starts."""

    spec: ProcessSpec
    source: ChunkSource
    design: Design
    progress: Progress = field(default_factory=Progress)

    @property
    def start(self) -> Array:
        """Where the search starts: log θ, and landmarks if they are learnt."""
        return hyper_of(self.design.phi)

    @property
    def bounds(self) -> Box:
        """Bounds of the search."""
        return map_bounds(self.design.phi, self.spec)

    def at(self, hyper: Array) -> Design:
        """Return the maps at other hyperparameters."""
        return replace(self.design, phi=map_at(self.design.phi, hyper))

    def system(self, design: Design) -> GaussianSystem:
        """Return the decomposed statistics, by one pass."""
        moments = moments_of(self.source, design, self.spec, self.progress)
        return GaussianSystem.build(moments, penalty=self.spec.penalty, eps=self.spec.eps)

    def gradient(self, design: Design, point: GaussianPoint) -> Array:
        """Return ∂ log evidence/∂hyper at fixed noise and amplitude, by one pass."""
        rows = self.spec.chunk_rows
        size = rows or chunk_rows(4 * design.phi.n_raw_, np.float64)
        with self.progress.watched(self.source, size) as source:
            return length_scale_gradient(source, design, row_adjoint(point), rows=rows)

    def __call__(self, hyper: Array, eta: float) -> tuple[float, Array, float]:
        """Return the log evidence at the best noise and amplitude, its gradient, and n·t."""
        design = self.at(hyper)
        system = self.system(design)
        point = self.profile(system, eta).point
        return point.log_evidence, self.gradient(design, point), system.n * system.outputs

    def fixed(
        self, phi: Any, theta: Array, eta: float, *, gradient: bool
    ) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a, log σ²] and its gradient, or None."""
        phi = phi if len(theta) == 2 else phi.with_length_scale(np.exp(theta[:-2]))
        design = replace(self.design, phi=phi)
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
        return profile_noise(
            system,
            eta,
            noise_bounds=self.spec.noise_bounds if noise is None else (noise, noise),
            amplitude_bounds=(
                self.spec.amplitude_bounds if amplitude is None else (amplitude, amplitude)
            ),
        )

    def learning_eta(self) -> float:
        """Return the finite η that length scales are learnt with."""
        spec = self.spec
        if spec.unfairness is None and np.isfinite(spec.eta):
            return spec.eta
        system = self.system(self.at(self.start))
        most = largest_eta(spec.penalty, system.moments)
        if spec.unfairness is None:
            return most
        point = self.profile(system, 0.0).point
        return min(limiting_eta(point, spec.eps, spec.penalty, spec.unfairness), most)

    def settle(self, system: GaussianSystem) -> tuple[Profile, float]:
        """Return noise and amplitude for these statistics, and η: as set, or for the limit."""
        spec = self.spec
        if spec.unfairness is None:
            return self.profile(system, spec.eta), spec.eta
        return profile_within(
            lambda eta: self.profile(system, eta), spec.eps, spec.penalty, spec.unfairness
        )

    def at_weight(self, fit: GPFit, eta: float, sample: Chunk) -> GPFit:
        """Return a fit at another weight, with all that was learnt, by one pass."""
        spec = replace(fixed(self.spec, fit, eta), noise=fit.noise)
        other = replace(
            self, spec=spec, design=replace(self.design, phi=fit.phi or self.design.phi)
        )
        again = fit_features(other, sample)
        return replace(again, search=fit.search, at_bounds=fit.at_bounds, evidence=fit.evidence)


def fit_features(evidence: MomentEvidence, sample: Chunk) -> GPFit:
    """Learn the hyperparameters, and return the process there.

    - `sample`: Rows that show how much of the kernel a Nyström map usually misses.
    """
    spec, result = evidence.spec, search(evidence)
    design = evidence.at(result.hyper)
    profile, eta = evidence.settle(evidence.system(design))
    point, phi = profile.point, design.phi
    if isinstance(phi, MovingNystroem):
        phi = phi.fixed()
    system, amplitude = point.slice.system, point.amplitude
    missing = missing_variance(phi, amplitude)
    contained = missing * _usual_residual(phi, sample) if missing and spec.noise is None else 0.0
    distribution = FeatureDistribution(phi, point.posterior(), missing, contained)
    scales = hyper_of(phi)
    fit = GPFit(
        distribution=distribution, psi=design.psi, kernel=scaled(kernel_of(phi), amplitude),
        theta=np.append(scales, np.log([amplitude, point.noise])), amplitude=amplitude, eta=eta,
        log_evidence=point.log_evidence, share=share_of(point), n_rows=system.moments.n_rows,
        diagnostics=of_eigenvalues(system.values, point.slice.ratio), search=result,
        at_bounds=profile.at_bounds, phi=phi, moments=system.moments, noise=point.noise,
        coef=distribution.weights.coef, evidence=replace(evidence, progress=Progress()),
    )  # fmt: skip
    return checked(fit, scale_sentences(result, evidence.bounds, len(scales), spec.inputs))


def held_out_scores(
    moments: FoldedMoments, fit: GPFit, spec: ProcessSpec, etas: Array
) -> GridScores:
    """Score the mean at each η on rows left out, at the noise and amplitude of a fit; (K, 1, E)."""
    errors, shares = [], []
    for k, fold in enumerate(moments.folds):
        rest = moments.outside(k)
        system = GaussianSystem.build(rest, penalty=spec.penalty, eps=spec.eps)
        ratio, t = fit.noise / fit.amplitude**2, system.outputs
        at = np.stack([system.slice(ratio, float(eta)).coordinates for eta in etas], axis=1)
        B = system.basis @ at.reshape(len(at), -1)
        variance = variance_of(fold, ("phi",), B).reshape(-1, t)
        errors.append(errors_on(fold, ("phi",), B, rest.mean("y"), variance).mean(axis=1))
        shares.append(held_out_shares(fold, ("phi",), B, t))
    return GridScores(np.stack(errors)[:, None], worst_of(shares)[:, None])


def fixed(spec: ProcessSpec, fit: ProcessFit, eta: float) -> ProcessSpec:
    """Return the specification of the same process at another weight."""
    return replace(
        spec, eta=eta, unfairness=None, amplitude=fit.amplitude, learn_scales=False, n_restarts=0
    )


def checked(fit: GPFit, sentences: list[str]) -> GPFit:
    """Return the fit with all that is to be said of it; raise ValueError without an evidence."""
    if not np.isfinite(fit.log_evidence):
        raise ValueError(
            f"the log evidence is {fit.log_evidence} at the noise and length scales found; look "
            "for huge values among the inputs and targets, or fix them"
        )
    constant = [CONSTANT] if fit.psi is not None and np.isnan(fit.share) else []
    return replace(fit, at_bounds=(*fit.at_bounds, *constant, *sentences))


def scaled(kernel: Kernel | None, amplitude: float) -> Kernel | None:
    """Return a²k."""
    return None if kernel is None else Scaled(kernel, amplitude)


def _usual_residual(phi: Any, sample: Chunk) -> float:
    """Return what k(x, x) − |φ(x)|² exceeds on 5 % of the weight of the sample."""
    x = np.asarray(sample.x, dtype=np.float64)
    missed = residual(phi, x, whitened(phi, x))
    order = np.argsort(missed)
    weight = np.ones(len(x)) if sample.weight is None else sample.weight
    below = np.cumsum(weight[order])
    return float(missed[order][np.searchsorted(below, USUAL_SHARE * below[-1])])
