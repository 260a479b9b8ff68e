"""The evidence of a feature map as the search sees it: a function of log θ, by passes over rows.

    L(θ) = max over σ², a of log N(y − ȳ | 0, ΦK*Φᵀ + σ²I),    Φ = φ_θ(x),  K* = a²(I + (nη/τ)RRᵀ)⁻¹

Noise and amplitude are at their best for each set of length scales, from the moments alone, so
that an evaluation costs two passes: one for the moments, one for the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalefair._typing import Array, FeatureMap
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design, chunk_rows
from scalefair.features.nystroem import MovingNystroem
from scalefair.kernels import Kernel
from scalefair.moments import accumulate
from scalefair.moments.gradient import length_scale_gradient
from scalefair.solve.gp.adjoint import row_adjoint
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.limit import largest_eta, limited, limiting_eta
from scalefair.solve.gp.profile import Profile, profile_noise
from scalefair.solve.gp.search import Box
from scalefair.solve.gp.spec import Bounds, Progress, Spec
from scalefair.solve.gp.system import GaussianSystem


def kernel_of(phi: Any) -> Kernel | None:
    """Return the kernel that a map approximates; None where it names none."""
    return getattr(phi, "kernel_", None)


def hyper_of(phi: Any) -> Array:
    """Return what the search may change: log θ, and landmarks in units of their spread."""
    if isinstance(phi, MovingNystroem):
        return phi.place
    kernel = kernel_of(phi)
    if kernel is None or not hasattr(phi, "with_length_scale"):
        return np.zeros(0)
    return np.asarray(np.log(kernel.theta))


def map_at(phi: Any, hyper: Array) -> Any:
    """Return φ at other hyperparameters."""
    if hyper.size == 0:
        return phi
    if isinstance(phi, MovingNystroem):
        return phi.moved(hyper)
    return phi.with_length_scale(np.exp(hyper))


def map_bounds(phi: Any, spec: Spec) -> Box:
    """Return the bounds of `hyper_of` a map: those of length scales; landmarks have none."""
    start, kernel = hyper_of(phi), kernel_of(phi)
    scales = kernel.theta.size if kernel is not None and len(start) else 0
    landmarks = [(None, None) if spec.learn_scales else (at, at) for at in start[scales:]]
    return [*(spec.scale_bounds(at) for at in start[:scales]), *landmarks]


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """The evidence of an explicit feature map.

    Parameters
    ----------
    spec : Spec
    source : ChunkSource
        Of numeric chunks.
    design : Design
        The maps where the search starts.
    progress : Progress
        Hears of every chunk.
    """

    spec: Spec
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
        return self._with(map_at(self.design.phi, hyper))

    def _with(self, phi: FeatureMap) -> Design:
        return replace(self.design, phi=phi)

    def system(self, design: Design) -> GaussianSystem:
        """Return the decomposed statistics, by one pass."""
        rows = self.spec.chunk_rows or chunk_rows(design.blocks["phi"], np.float64)
        with self.progress.watched(self.source, rows) as source:
            (moments,) = accumulate(source, design, rows=rows)
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
        design = self._with(phi if len(theta) == 2 else phi.with_length_scale(np.exp(theta[:-2])))
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
            noise_bounds=_pinned(noise, self.spec.noise_bounds),
            amplitude_bounds=_pinned(amplitude, self.spec.amplitude_bounds),
            warn=False,
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
        return limited(
            lambda eta: self.profile(system, eta), spec.eps, spec.penalty, spec.unfairness
        )


def _pinned(value: float | None, bounds: Bounds | None) -> Bounds | None:
    return bounds if value is None else (value, value)
