"""Explained share: how much of the variance of predictions the sensitive attributes explain."""

from __future__ import annotations

from functools import partial, reduce
from numbers import Integral
from operator import add
from typing import Any

import numpy as np

from scalefair._hash import balanced_fold
from scalefair._linalg import inverse_root
from scalefair._typing import Array, Chunk
from scalefair.maps import Identity
from scalefair.maps._base import check_count, seed_of
from scalefair.maps.mixed import SAMPLE_ROWS
from scalefair.measures._features import FeaturePair
from scalefair.measures._kernels import map_of
from scalefair.measures._rows import Pair, open_pair
from scalefair.statistics import Folds, Moments


def explained_share(
    f: Any,
    s: Any,
    *,
    kernel: Any = "auto",
    length_scale: Any = "median",
    n_components: int = 100,
    eps: float = 1e-6,
    cv: int | None = 5,
    clip: bool = True,
    sample_weight: Any = None,
    random_state: Any = 0,
) -> float:
    """Share of the variance of f that the best function of s explains."""
    seed = seed_of(random_state)
    every = (False, isinstance(kernel, str) and kernel == "categorical")
    pair = open_pair(f, s, sample_weight, names=("f", "s"), seed=seed, least=2, every=every)
    pair.a.check_numeric()
    size = check_count("n_components", n_components)
    sample = pair.rows(max(SAMPLE_ROWS, 4 * size))
    phi = Identity().fit(sample.x)
    psi = map_of("kernel", kernel, pair.b, sample, sample.s, size, seed, length_scale)
    features = FeaturePair(pair, phi, psi)
    if cv is None:
        share = in_sample(features.moments(), eps)
    else:
        share = _cross_fitted(features, _folds(cv, pair), eps)
    return float(np.clip(share, 0.0, 1.0)) if clip else float(share)


def in_sample(moments: Moments, eps: float) -> float:
    """|Rᵀβ|²/Var f of rows whose φ is f itself, summed over the columns of f."""
    root = inverse_root(moments.covariance("psi", "psi"), eps)
    explained = np.sum((moments.covariance("phi", "psi") @ root) ** 2)
    return float(explained / np.trace(moments.covariance("phi", "phi")))


def _folds(cv: Any, pair: Pair) -> Folds:
    if isinstance(cv, bool) or not isinstance(cv, Integral):
        raise TypeError(f"cv={cv!r} is a {type(cv).__name__}; give a number of folds, or None")
    if not 2 <= cv <= pair.n_rows // 2:
        raise ValueError(
            f"cv={cv!r} must be between 2 and half the number of rows ({pair.n_rows}); give fewer "
            "folds or more rows, or None for the share in the sample, which is biased upwards"
        )
    return Folds(int(cv), partial(balanced_fold, int(cv), pair.seed))


def _cross_fitted(features: FeaturePair, folds: Folds, eps: float) -> float:
    parts = features.moments_with(_no_columns, 0, folds)
    top = bottom = 0.0
    for k, held in enumerate(parts):
        rest = reduce(add, [part for i, part in enumerate(parts) if i != k])
        top += held.weight * float(np.sum(held.covariance("psi", "phi") * _regression(rest, eps)))
        bottom += held.weight * float(np.trace(held.covariance("phi", "phi")))
    return top / bottom


def _regression(moments: Moments, eps: float) -> Array:
    """γ of ĝ(s) = ψ(s)ᵀγ, of shape (q, t)."""
    root = inverse_root(moments.covariance("psi", "psi"), eps)
    return np.asarray(root @ (root.T @ moments.covariance("psi", "phi")))


def _no_columns(chunk: Chunk) -> Array:
    return np.empty((chunk.n_rows, 0))
