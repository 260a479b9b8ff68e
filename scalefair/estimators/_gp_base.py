"""The inner life of a fitted Gaussian process: its evidence, its prior, and what it remembers."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.callback import CallbackSupportMixin

from scalefair._checks import check_weight_or_limit
from scalefair._typing import Array, FeatureMap
from scalefair.estimators import _gp_law
from scalefair.estimators._data import Preparation, open_inputs
from scalefair.estimators._gp_evidence import MomentEvidence
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.system import GaussianSystem
from scalefair.statistics import Moments

STATE = ("_law", "_evidence", "_setting", "_preparation", "_n_targets", "_one_target",
         "_input_names", "_input_scale")  # fmt: skip
"""What a fit learns beside what ends in an underscore."""


class Process(CallbackSupportMixin):
    """What both Gaussian processes are: how they treat s, and what they forget."""

    eta: float | None
    unfairness: float | None

    @property
    def _joins_sensitive(self) -> bool:
        """ψ(s) never joins φ(x): its prior would need an amplitude of its own."""
        return False

    def _is_ordinary(self) -> bool:
        return check_weight_or_limit(self.eta, self.unfairness)[0] == 0

    def _forget(self) -> None:
        """Drop what an earlier fit has learnt: one in another mode sets other attributes."""
        for name in [*vars(self)]:
            if name.endswith("_") or name in STATE:
                delattr(self, name)

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        # It holds the training rows, which may be anywhere.
        return {name: value for name, value in state.items() if name != "_evidence"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags


class ProcessBase(Process, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """What `FairGPRegressor` does behind its methods."""

    phi_: FeatureMap
    moments_: Moments
    theta_: Array
    noise_: float
    amplitude_: float
    eta_: float
    _law: _gp_law.FeatureLaw | _gp_law.ExactLaw
    _evidence: MomentEvidence
    _setting: dict[str, Any]
    _preparation: Preparation
    _one_target: bool

    def _evidence_at(self, theta: Array, gradient: bool) -> tuple[float, Array | None]:
        if isinstance(self._law, _gp_law.ExactLaw):
            process = self._law.at(theta)
            return process.log_evidence, process.gradient if gradient else None
        if not gradient and np.array_equal(theta[:-2], self.theta_[:-2]):
            amplitude, noise = np.exp(theta[-2:])
            return self._point(noise, amplitude).log_evidence, None
        if not hasattr(self, "_evidence"):
            raise ValueError(
                "other length scales and gradients need the training rows, which a saved model "
                "does not hold; fit it again, or change noise and amplitude only"
            )
        return self._evidence.fixed(self.phi_, theta, self.eta_, gradient=gradient)

    def _point(self, noise: float, amplitude: float) -> GaussianPoint:
        # What was fitted decides, not the parameters, which may have been set anew since.
        system = GaussianSystem.build(self.moments_, **self._setting)
        return GaussianPoint.of(system, noise=noise, amplitude=amplitude, eta=self.eta_)

    def _prior(self) -> _gp_law.Law:
        law = self._law
        if isinstance(law, _gp_law.ExactLaw):
            return law.before_data()
        return law.with_weights(self._point(self.noise_, self.amplitude_).prior())

    def _draws(self, law: Any, X: Any, size: int, seed: Any, include_noise: bool) -> Array:
        x = self._in_memory(X)
        draws = _gp_law.draw(law, x, size, seed, include_noise=include_noise)
        return draws[:, 0] if self._one_target else draws

    def _in_memory(self, X: Any) -> Array:
        source = open_inputs(self, X)
        rows = [np.asarray(chunk.x, dtype=np.float64) for chunk in source.chunks(65536)]
        return np.concatenate(rows)

    def _at(self, eta: float) -> Any:
        """Return a copy at another weight and the same hyperparameters, without the rows."""
        other, law = copy(self), self._law
        other.eta_, other.eta, other.unfairness = eta, eta, None
        if isinstance(law, _gp_law.ExactLaw):
            other._law = replace(law, eta=eta)
        else:
            point = other._point(self.noise_, self.amplitude_)
            other._law = law.with_weights(point.posterior())
        return other

    def _is_dual(self) -> bool:
        exact = isinstance(self.feature_map, str) and self.feature_map == "exact"
        return exact and self.unfairness is None
