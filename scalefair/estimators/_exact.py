"""The exact mode: dense n×n Gram matrices, no feature map. For validation and small n."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalefair._checks import check_alpha
from scalefair._linalg import positive_eigh
from scalefair._typing import Array, FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.estimators._maps import input_kernel, sensitive_map
from scalefair.kernels import Kernel
from scalefair.maps import ConcatMap, Identity, ProductMap
from scalefair.solve.diagnostics import Diagnostics, of_eigenvalues
from scalefair.solve.exact import DualFit, explained_share, fair_dual


def gram(feature_map: Any, S: Array, T: Array) -> Array:
    """Return the kernel that a map approximates, k(S, T)."""
    if isinstance(feature_map, ProductMap | ConcatMap):
        parts = [gram(part, S[:, at], T[:, at]) for part, at in feature_map.parts_]
        combine = np.multiply if isinstance(feature_map, ProductMap) else np.add
        return np.asarray(combine.reduce(parts))
    if isinstance(feature_map, Identity):
        return S @ T.T
    return np.asarray(feature_map.kernel_(S, T))


@dataclass(frozen=True, eq=False)
class ExactRows:
    """All training rows, with their kernels.

    Parameters
    ----------
    kernel : Kernel
        k on the inputs.
    psi : FeatureMap or None
        The map whose kernel is l on the sensitive attributes.
    x, s, y, weight : arrays
        The rows.
    joined : float
        Weight of l in the kernel of the predictor: 0 where s is not seen, else one over the
        relative ridge of the block ψ.
    """

    kernel: Kernel
    psi: FeatureMap | None
    x: Array
    s: Array | None
    y: Array
    weight: Array | None
    joined: float

    def __getstate__(self) -> dict[str, Any]:
        # n×n matrices come back by themselves.
        return {name: value for name, value in vars(self).items() if name not in ("K", "L")}

    @property
    def n_rows(self) -> int:
        """Rows of positive weight."""
        return len(self.x) if self.weight is None else int(np.count_nonzero(self.weight))

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(len(self.x) if self.weight is None else self.weight.sum())

    def cross(self, x: Array, s: Array | None) -> Array:
        """Gram matrix of the predictor's kernel between new rows and these."""
        K: Array = np.asarray(self.kernel(x, self.x), dtype=np.float64)
        if self.joined and s is not None and self.s is not None:
            K = K + self.joined * gram(self.psi, s, self.s)
        return K

    @cached_property
    def K(self) -> Array:
        """Gram matrix of the predictor's kernel."""
        return self.cross(self.x, self.s)

    @cached_property
    def L(self) -> Array:
        """Gram matrix of the sensitive attributes; zero where there are none."""
        if self.psi is None or self.s is None:
            return np.zeros((len(self.x), len(self.x)))
        return gram(self.psi, self.s, self.s)

    def solve(self, alpha: float, eta: float, **penalty: Any) -> DualFit:
        """Return the dual fit."""
        return fair_dual(
            self.K, self.L, self.y, alpha=alpha, eta=eta, weight=self.weight, **penalty
        )

    def diagnostics(self, alpha: float) -> Diagnostics:
        """Say what rounding has left of the solution of K + nαI."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        at = np.flatnonzero(weight)
        root = np.sqrt(weight[at])
        values, _ = positive_eigh(root[:, None] * self.K[np.ix_(at, at)] * root)
        return of_eigenvalues(values, alpha * self.total)

    def explained_share(self, fit: DualFit, eps: float) -> float:
        """Explained share of the predictions on these rows; NaN without sensitive attributes."""
        if self.psi is None:
            return float("nan")
        # With the intercept, next to which rounding error is seen to be none of the variance.
        return explained_share(fit.predict(self.K), self.L, eps=eps, weight=self.weight)


def exact_rows(estimator: Any, data: TrainingData) -> ExactRows:
    """Learn the kernels of an estimator in exact mode, and keep the rows."""
    rows = data.sample
    psi = sensitive_map(estimator, data)
    seen = psi is not None and estimator._joins_sensitive
    joined = 1.0 / check_alpha(estimator.alpha)["psi"] if seen else 0.0
    kernel = input_kernel(estimator, data)
    return ExactRows(kernel, psi, rows.x, rows.s, rows.y, rows.weight, joined)
