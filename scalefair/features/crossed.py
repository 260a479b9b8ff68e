"""The map of pairs (s, c): sensitive attributes crossed with what they are controlled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from scalefair._linalg import inverse_root
from scalefair._typing import Array, FeatureMap
from scalefair.features.landmarks import choose_landmarks, distinct_rows


@dataclass(frozen=True, eq=False)
class Crossed:
    """ξ(s, c) = ψ(s) ⊗ υ(c), or a Nyström map of its kernel where that is too wide.

    ξ(s, c)ᵀξ(t, d) = ψ(s)ᵀψ(t) · υ(c)ᵀυ(d). With two one-hot maps ξ is the one-hot of the pairs.
    From landmark pairs Z, with K_ZZ the kernel of them, it is k_Z(s, c) K_ZZ^(−1/2).

    Parameters
    ----------
    psi, upsilon : fitted feature maps
        Of s and of c.
    landmarks : pair of arrays of shape (p, q) and (p, r), or None
        ψ and υ of the landmarks; None: the full product.
    linear : array of shape (p, width) or None
        K_ZZ^(−1/2) on its range.
    """

    psi: FeatureMap
    upsilon: FeatureMap
    landmarks: tuple[Array, Array] | None = None
    linear: Array | None = None

    @classmethod
    def fit(
        cls,
        psi: FeatureMap,
        upsilon: FeatureMap,
        s: Array,
        c: Array,
        weight: Array | None,
        *,
        most: int,
        seed: int,
    ) -> Self:
        """Return the map with at most `most` columns; landmarks are drawn from the rows given."""
        full = cls(psi, upsilon)
        if full.width <= most:
            return full
        weight = np.ones(len(s)) if weight is None else weight
        rows, weight = distinct_rows(np.hstack([s, c]), weight)
        rows = rows[choose_landmarks("uniform", None, rows, weight, size=most, seed=seed)]
        at = features(psi, rows[:, : s.shape[1]]), features(upsilon, rows[:, s.shape[1] :])
        K = (at[0] @ at[0].T) * (at[1] @ at[1].T)
        return cls(psi, upsilon, at, inverse_root(K, 0.0, cutoff=1e-8))

    @property
    def width(self) -> int:
        """Number of columns."""
        if self.linear is not None:
            return int(self.linear.shape[1])
        return n_features(self.psi) * n_features(self.upsilon)

    def rows(self, s: Array, c: Array) -> Array:
        """Return ξ of pairs, of shape (k, width)."""
        Psi, Upsilon = features(self.psi, s), features(self.upsilon, c)
        if self.landmarks is None or self.linear is None:
            width = Psi.shape[1] * Upsilon.shape[1]
            return (Psi[:, :, None] * Upsilon[:, None, :]).reshape(len(Psi), width)
        kernel = (Psi @ self.landmarks[0].T) * (Upsilon @ self.landmarks[1].T)
        return np.asarray(kernel @ self.linear)


def n_features(feature_map: FeatureMap) -> int:
    """Columns of φ(x)."""
    linear = feature_map.linear_
    return int(feature_map.n_raw_ if linear is None else linear.shape[1])


def features(feature_map: FeatureMap, values: Any) -> Array:
    """φ(x) = raw(x) @ linear_ in float64, without validation."""
    raw = feature_map.raw(values, out=np.empty((len(values), feature_map.n_raw_)))
    return np.asarray(raw if feature_map.linear_ is None else raw @ feature_map.linear_)
