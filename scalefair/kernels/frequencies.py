"""Gaussian directions for spectral sampling, plain or orthogonal."""

from __future__ import annotations

import numpy as np

from scalefair._typing import Array


def _orthogonal_blocks(d: int, count: int, rng: np.random.Generator) -> Array:
    """Return `count` d×d matrices of orthogonal columns, each N(0, I): rotation × chi lengths."""
    Q, R = np.linalg.qr(rng.standard_normal((count, d, d)))
    # The signs of R's diagonal make Q uniform over all rotations and reflections.
    signs = np.where(np.diagonal(R, axis1=1, axis2=2) < 0, -1.0, 1.0)
    lengths = np.sqrt(rng.chisquare(d, size=(count, d)))
    return np.asarray(Q * (signs * lengths)[:, None, :])


def gaussian_frequencies(d: int, m: int, rng: np.random.Generator, orthogonal: bool) -> Array:
    """Return m columns, each N(0, I_d); orthogonal within consecutive blocks of d on request."""
    if not orthogonal:
        return rng.standard_normal((d, m))
    blocks = _orthogonal_blocks(d, -(-m // d), rng)
    return np.ascontiguousarray(np.concatenate(list(blocks), axis=1)[:, :m])
