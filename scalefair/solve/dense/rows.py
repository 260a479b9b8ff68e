"""The exact mode: dense n×n Gram matrices, no feature map. For validation and small n."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalefair._typing import Array, FeatureMap
from scalefair.features import ConcatMap, Identity, OneHot, ProductMap
from scalefair.features.base import whitened as features
from scalefair.features.mixed import units_of
from scalefair.features.training import Training, input_kernel, sensitive_map
from scalefair.kernels import Kernel
from scalefair.moments import Moments
from scalefair.penalties import DEFAULT_EPS, attribute_root, share_of_block
from scalefair.solve.dense.ridge import DualFit, fair_dual
from scalefair.solve.diagnostics import Diagnostics, of_eigenvalues


def gram(feature_map: Any, S: Array, T: Array) -> Array:
    """Return the kernel that a map approximates, k(S, T)."""
    if isinstance(feature_map, ProductMap | ConcatMap):
        parts = [gram(part, S[:, at], T[:, at]) for part, at in feature_map.parts_]
        combine = np.multiply if isinstance(feature_map, ProductMap) else np.add
        return np.asarray(combine.reduce(parts))
    if isinstance(feature_map, Identity):
        return S @ T.T
    if isinstance(feature_map, OneHot) and feature_map.unknown == "levels":
        return feature_map.raw(S) @ feature_map.raw(T).T
    return np.asarray(feature_map.kernel_(S, T))


class Attributes(NamedTuple):
    """Gram matrix of the sensitive attributes, and the ε and the penalty to use it with."""

    gram: Array
    eps: float
    penalty: str


@dataclass(frozen=True, eq=False)
class ExactRows:
    """All training rows, with the kernel k of the inputs and ψ, the map whose kernel is l."""

    kernel: Kernel
    psi: FeatureMap | None
    x: Array
    s: Array | None
    y: Array
    weight: Array | None
    joined: float  # weight of l in the kernel of f: one over the ridge of ψ; 0 where s is not seen

    def __getstate__(self) -> dict[str, Any]:
        # The n×n matrix comes back by itself.
        return {name: value for name, value in vars(self).items() if name != "K"}

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

    def attributes(self, penalty: str, eps: float | None) -> Attributes:
        """Return the Gram matrix of s and its ε: by default ψ is scaled to have no units."""
        if self.psi is None or self.s is None:
            return Attributes(np.zeros((len(self.x), len(self.x))), 0.0, penalty)
        kinds = {kind for kind, _ in units_of(self.psi)}
        plain = {"kernel"} if eps is None else {"kernel", "groups", "cell"}
        if penalty == "hsic" or kinds <= plain:
            L = gram(self.psi, self.s, self.s)
            return Attributes(L, DEFAULT_EPS if eps is None else eps, penalty)
        # P itself, from features that are whitened with their ridge: L/n of the penalty `hsic`.
        moments = self._moments(np.zeros((len(self.x), 1)))
        _, root = attribute_root(moments, eps)
        G = (features(self.psi, self.s) - moments.mean("psi")) @ root
        return Attributes(G @ G.T, 0.0, "hsic")

    def solve(
        self, alpha: float, eta: float, *, penalty: str, eps: float | None, fit_intercept: bool
    ) -> DualFit:
        """Return the dual fit."""
        L, ridge, kind = self.attributes(penalty, eps)
        return fair_dual(
            self.K, L, self.y, alpha=alpha, eta=eta, weight=self.weight, eps=ridge, penalty=kind,
            fit_intercept=fit_intercept,
        )  # fmt: skip

    def _moments(self, f: Array) -> Moments:
        """Moments of predictions and attributes; rows of weight zero need not be known to ψ."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        at = np.flatnonzero(weight)
        s = np.asarray(self.s)[at]
        blocks = {"phi": f[at], "psi": features(self.psi, s), "y": f[at]}  # type: ignore[arg-type]
        return Moments.of_rows(blocks, weight[at], {"psi": units_of(self.psi)})

    def diagnostics(self, alpha: float) -> Diagnostics:
        """Return what rounding has left of the solution of K + nαI."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        at = np.flatnonzero(weight)
        root = np.sqrt(weight[at])
        values = np.linalg.eigvalsh(root[:, None] * self.K[np.ix_(at, at)] * root)
        return of_eigenvalues(np.maximum(values, 0.0), alpha * self.total)

    def explained_share(self, f: Array) -> float:
        """Explained share of predictions on these rows; NaN without sensitive attributes."""
        if self.psi is None:
            return float("nan")
        return share_of_block(self._moments(f.reshape(len(f), -1)))


def exact_rows(training: Training, joined: float) -> ExactRows:
    """Learn the kernels of the exact mode and hold the rows; `joined` is the weight of l."""
    psi, rows = sensitive_map(training), training.sample
    kernel = input_kernel(training)
    joined = 0.0 if psi is None else joined
    return ExactRows(kernel, psi, rows.x, rows.s, rows.y, rows.weight, joined)
