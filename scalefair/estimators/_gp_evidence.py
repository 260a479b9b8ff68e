"""The evidence as the search sees it: a function of the length scales, by passes over the rows.

Noise and amplitude are at their best for each set of length scales, from the moments alone, so
that a place costs two passes: one for the moments, one for the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalefair._typing import Array, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.estimators._gp_maps import moved, place_of, process_map
from scalefair.estimators._maps import sensitive_map
from scalefair.estimators._progress import watched
from scalefair.solve.gp.adjoint import row_adjoint
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.limit import FIRM, limited, limiting_eta
from scalefair.solve.gp.profile import Profile, profile_noise
from scalefair.solve.gp.system import GaussianSystem
from scalefair.statistics import Moments, RowMap, accumulate, chunk_rows
from scalefair.statistics.gradient import length_scale_gradient
from scalefair.stream import ChunkSource


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """The evidence of an explicit feature map.

    Parameters
    ----------
    estimator : FairGPRegressor
        Its parameters and callbacks.
    source : ChunkSource
        Of numeric chunks.
    n_rows : int or None
    row_map : RowMap
        The maps where the search starts.
    """

    estimator: Any
    source: ChunkSource
    n_rows: int | None
    row_map: RowMap

    @property
    def start(self) -> Array:
        """Where the search starts: log θ, and landmarks if they are learnt."""
        return place_of(self.row_map.phi)

    def at(self, place: Array) -> RowMap:
        """Return the maps at a place."""
        return self._with(moved(self.row_map.phi, place))

    def _with(self, phi: FeatureMap) -> RowMap:
        return replace(self.row_map, phi=phi)

    def moments(self, row_map: RowMap) -> Moments:
        """Return the moments, by one pass."""
        rows = self.estimator.chunk_rows or chunk_rows(row_map.blocks["phi"], np.float64)
        with watched(self.estimator, self.source, rows, self.n_rows) as told:
            (moments,) = accumulate(told, row_map, rows=rows)
        return moments

    def gradient(self, row_map: RowMap, point: GaussianPoint) -> Array:
        """Return ∂ log evidence/∂place at fixed noise and amplitude, by one pass."""
        rows = self.estimator.chunk_rows
        size = rows or chunk_rows(4 * row_map.phi.n_raw_, np.float64)
        with watched(self.estimator, self.source, size, self.n_rows) as told:
            return length_scale_gradient(told, row_map, row_adjoint(point), rows=rows)

    def __call__(self, place: Array, eta: float) -> tuple[float, Array, float]:
        """Return the log evidence at the best noise and amplitude, its gradient, and n·t."""
        row_map = self.at(place)
        system = system_of(self.estimator, self.moments(row_map))
        point = self.profile(system, eta).point
        return point.log_evidence, self.gradient(row_map, point), system.n * system.outputs

    def fixed(
        self, phi: Any, theta: Array, eta: float, *, gradient: bool
    ) -> tuple[float, Array | None]:
        """Return the log evidence at [log θ, log a, log σ²] and its gradient, or None."""
        row_map = self._with(phi if len(theta) == 2 else phi.with_length_scale(np.exp(theta[:-2])))
        system = system_of(self.estimator, self.moments(row_map))
        amplitude, noise = np.exp(theta[-2:])
        point = GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta)
        if not gradient:
            return point.log_evidence, None
        in_scale = self.gradient(row_map, point) if len(theta) > 2 else np.zeros(0)
        return point.log_evidence, np.concatenate([in_scale, point.gradient[[1, 0]]])

    def profile(self, system: GaussianSystem, eta: float) -> Profile:
        """Return the best noise and amplitude, or those that were given."""
        return profile_of(self.estimator, system, eta)

    def held_eta(self, eta: float, unfairness: float | None) -> float:
        """Return the finite η that length scales are learnt with."""
        if unfairness is None and np.isfinite(eta):
            return eta
        system = system_of(self.estimator, self.moments(self.at(self.start)))
        most = FIRM / penalty_size(self.estimator.penalty, system.moments)
        if unfairness is None:
            return most
        point = self.profile(system, 0.0).point
        return min(
            limiting_eta(point, self.estimator.eps, self.estimator.penalty, unfairness), most
        )

    def settle(self, place: Array, eta: float, unfairness: float | None) -> Settled:
        """Return the process at the length scales found; η as set, or solved for the limit."""
        row_map = self.at(place)
        system = system_of(self.estimator, self.moments(row_map))
        if unfairness is None:
            profile = self.profile(system, eta)
            return Settled(row_map.phi, profile.point, eta, profile.at_bounds)
        estimator = self.estimator
        profile, found = limited(
            lambda at: profile_of(estimator, system, at), estimator.eps, estimator.penalty,
            unfairness,
        )  # fmt: skip
        return Settled(row_map.phi, profile.point, found, profile.at_bounds)


@dataclass(frozen=True, eq=False)
class Settled:
    """The process at the hyperparameters found.

    Parameters
    ----------
    phi : FeatureMap
    point : GaussianPoint
    eta : float
    at_bounds : tuple of str
        What ran to a bound.
    """

    phi: FeatureMap
    point: GaussianPoint
    eta: float
    at_bounds: tuple[str, ...]


def moment_evidence(estimator: Any, data: TrainingData) -> MomentEvidence:
    """Learn the maps on the sample; return the evidence of the training rows."""
    phi, psi = process_map(estimator, data), sensitive_map(estimator, data)
    row_map = RowMap(phi, psi, data.n_targets, whiten_rows=True, preparation=data.preparation.key)
    return MomentEvidence(estimator, data.source, data.n_rows, row_map)


def system_of(estimator: Any, moments: Moments) -> GaussianSystem:
    """Return the decomposed statistics, with the penalty of the estimator."""
    return GaussianSystem.build(moments, penalty=estimator.penalty, eps=estimator.eps)


def profile_of(estimator: Any, system: GaussianSystem, eta: float) -> Profile:
    """Maximise over what is to be optimised of noise and amplitude."""
    noise, amplitude = estimator.noise, estimator.amplitude
    if not (isinstance(noise, str) or isinstance(amplitude, str)):
        return Profile(GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=eta), ())
    return profile_noise(
        system,
        eta,
        noise_bounds=estimator.noise_bounds if isinstance(noise, str) else (noise, noise),
        amplitude_bounds=(
            estimator.amplitude_bounds if isinstance(amplitude, str) else (amplitude, amplitude)
        ),
        warn=False,
    )


def penalty_size(penalty: str, moments: Moments) -> float:
    """Return what η is large against: 1 (`normalized`), or the largest variance of ψ (`hsic`)."""
    if penalty == "normalized" or "psi" not in moments.blocks:
        return 1.0
    largest = np.linalg.norm(moments.covariance("psi", "psi"), 2)
    return float(largest) or 1.0
