"""The feature map of a Gaussian process, and the place where the search for it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from scalefair._typing import Array, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.maps import Identity, Nystroem, RandomFourier
from scalefair.maps._moving import MovingNystroem

JITTER = 1e-8
"""Of K_ZZ, relative to its diagonal: fixed, so that the evidence is a smooth function of θ."""

FULL_JITTER = 1e-10
"""The same where every row is a landmark."""


def process_map(estimator: Any, data: TrainingData) -> FeatureMap:
    """Return φ at the length scales that the search starts from, fitted on the sample."""
    phi = _unfitted(estimator, data)
    if hasattr(phi, "n_raw_"):
        return phi  # type: ignore[no-any-return]
    weight = data.sample.weight
    return clone(phi).fit(data.sample.x, sample_weight=weight)  # type: ignore[no-any-return]


def _unfitted(estimator: Any, data: TrainingData) -> Any:
    kind, seed = estimator.feature_map, data.seed
    if not isinstance(kind, str):
        return kind
    if kind == "linear":
        return Identity()
    kernel = {"kernel": estimator.kernel, "length_scale": estimator.length_scale}
    if kind == "fourier":
        size = estimator.n_components
        return RandomFourier(**kernel, n_components=size, pairs=size % 2 == 0, random_state=seed)
    exact = kind == "exact"
    map_of = MovingNystroem if getattr(estimator, "learn_landmarks", False) else Nystroem
    return map_of(
        **kernel,
        n_components=data.sample.n_rows if exact else estimator.n_components,
        whitening="cholesky",
        cutoff=FULL_JITTER if exact else JITTER,
        random_state=seed,
    )


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
