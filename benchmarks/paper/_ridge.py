"""Exact fair kernel ridge regression with length scale and ridge by cross-validation.

For one length scale and η every ridge comes from one eigendecomposition: with T = (I + ηM)⁻¹ and
K̃ = HKH the dual (HK + nαI + ηMK)c = Hy reads (T^−½K̃T^−½ + nαI) T^½c = T^½Hy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.kernels import RBF, median_length_scale
from scalefair.solve.exact import fair_dual, penalty_spectrum, weighted_rows

ALPHAS = np.geomspace(1e-6, 1.0, 13)
SPREAD = np.geomspace(0.125, 4.0, 8)
"""Length scales, in units of the median heuristic."""


@dataclass(frozen=True)
class Penalised:
    """Training rows of one fold: T^½ and T^−½ of the penalty, none without one."""

    size: int
    root: Array | None
    inverse_root: Array | None

    @classmethod
    def of(cls, L: Array, eta: float, penalty: str) -> Penalised:
        if eta == 0:
            return cls(len(L), None, None)
        s, U = penalty_spectrum(weighted_rows(len(L)), L, penalty=penalty)
        scale = np.sqrt(1.0 + eta * s)
        eye = np.eye(len(L))
        return cls(len(L), eye - (U * (1 - 1 / scale)) @ U.T, eye + (U * (scale - 1)) @ U.T)

    def path(self, K: Array, y: Array, alphas: Array) -> Array:
        """Dual coefficients for every ridge, shape (n, len(alphas))."""
        rows = weighted_rows(self.size)
        gram, target = rows.centre_gram(K), rows.centre(y)
        if self.root is not None and self.inverse_root is not None:
            gram = self.inverse_root @ gram @ self.inverse_root
            target = self.root @ target
        lam, Q = positive_eigh(gram)
        solved = Q @ ((Q.T @ target)[:, None] / (lam[:, None] + self.size * alphas))
        dual = solved if self.inverse_root is None else self.inverse_root @ solved
        return rows.centre(dual)


def cross_validated(
    X: Array, y: Array, L: Array, eta: float, *, penalty: str = "hsic", folds: int = 5
) -> Callable[[Any], Array]:
    """Return the predictor at the length scale and ridge of least held-out error."""
    length_scales = median_length_scale(X) * SPREAD
    errors = np.zeros((len(SPREAD), len(ALPHAS)))
    for fold in range(folds):
        out = np.arange(len(y)) % folds == fold
        train = Penalised.of(L[np.ix_(~out, ~out)], eta, penalty)
        for i, length_scale in enumerate(length_scales):
            kernel = RBF(length_scale)
            K = kernel(X[~out])
            dual = train.path(K, y[~out], ALPHAS)
            intercept = y[~out].mean() - (K @ dual).mean(axis=0)
            predicted = kernel(X[out], X[~out]) @ dual + intercept
            errors[i] += np.sum((y[out, None] - predicted) ** 2, axis=0)
    i, j = np.unravel_index(np.argmin(errors), errors.shape)
    kernel = RBF(length_scales[i])
    fit = fair_dual(kernel(X), L, y, alpha=ALPHAS[j], eta=eta, penalty=penalty)
    return lambda Z: fit.predict(kernel(Z, X))
