"""The problem of the speed table, and the bare BLAS calls of the same work."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk

from benchmarks._measure import size
from scalefair.maps import Identity, Nystroem, OneHot, RandomFourier

N_ROWS = size(200_000, 4_000)
N_INPUTS = 50
N_FEATURES = size(1_000, 100)
LENGTH_SCALE = 7.0


def table(n_rows: int = N_ROWS, seed: int = 0) -> tuple[Any, Any, Any]:
    """X, y and a sensitive attribute of four groups that X stands in for."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, N_INPUTS))
    s = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 1)
    y = np.sin(X[:, 2]) + X[:, 3] * X[:, 4] + 0.5 * s + 0.1 * rng.standard_normal(n_rows)
    return X, y, s


def bare_calls(X: Any, y: Any, features: int, psi: int = 4, rows: int = 2_000) -> Any:
    """Return a function that runs only the BLAS calls of one fit: projection, rank-k, cross.

    On preallocated arrays, no cosine or exponential, BLAS threads as they are by default.
    """
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((X.shape[1], features))
    rest = rng.standard_normal((rows, psi + 2))
    Phi = np.empty((rows, features))
    gram = np.zeros((features, features), order="F")
    cross = np.empty((features, psi + 2))

    def run() -> None:
        for start in range(0, len(X) - rows + 1, rows):
            np.matmul(X[start : start + rows], frequencies, out=Phi)
            dsyrk(1.0, Phi.T, beta=1.0, c=gram, overwrite_c=1, lower=1)
            np.matmul(Phi.T, rest, out=cross)

    return run


def fourier_map(X: Any, features: int = N_FEATURES) -> Any:
    """Random phase: as many frequencies as features, which is what `bare_calls` projects on."""
    return RandomFourier(
        length_scale=LENGTH_SCALE, n_components=features, pairs=False, random_state=0
    ).fit(X[:1000])


def nystroem_map(X: Any, features: int = N_FEATURES) -> Any:
    return Nystroem(length_scale=LENGTH_SCALE, n_components=features, random_state=0).fit(X[:4000])


def linear_map(X: Any) -> Any:
    return Identity().fit(X[:10])


def groups_map(s: Any) -> Any:
    return OneHot().fit(s[:, None])
