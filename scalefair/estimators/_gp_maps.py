"""The feature map of a Gaussian process, and the place where the search for it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.estimators._maps import fitted_input_map, is_exact
from scalefair.maps import Nystroem
from scalefair.maps._moving import MovingNystroem

JITTER = 1e-8
"""Of K_ZZ, relative to its diagonal: fixed, so that the evidence is a smooth function of θ."""

FULL_JITTER = 1e-10
"""The same where every row is a landmark."""


def process_map(estimator: Any, data: TrainingData) -> FeatureMap:
    """Return φ at the length scales that the search starts from, fitted on the sample."""
    nystroem = MovingNystroem if getattr(estimator, "learn_landmarks", False) else Nystroem
    jitter = FULL_JITTER if is_exact(estimator) else JITTER
    return fitted_input_map(estimator, data, nystroem, whitening="cholesky", cutoff=jitter)


def place_of(phi: Any) -> Array:
    """Return what the search may change: log θ, and landmarks in units of their spread."""
    if isinstance(phi, MovingNystroem):
        return phi.place
    kernel = getattr(phi, "kernel_", None)
    if kernel is None or not hasattr(phi, "with_length_scale"):
        return np.zeros(0)
    return np.asarray(np.log(kernel.theta))


def moved(phi: Any, place: Array) -> Any:
    """Return φ at another place."""
    if place.size == 0:
        return phi
    if isinstance(phi, MovingNystroem):
        return phi.moved(place)
    return phi.with_length_scale(np.exp(place))
