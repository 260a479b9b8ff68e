"""Blocks of a row beside φ and ψ: the control features υ(c), ξ(s, c), and curves of ĥ(x)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from scalefair._hash import digest
from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.features.base import n_features, whitened
from scalefair.features.design import Block, counted_rows
from scalefair.features.landmarks import standard_deviation
from scalefair.features.mixed import CROSSED, Crossed, Units, for_new_rows, mixed_map, units_of
from scalefair.features.nystroem import Nystroem

CURVE_LANDMARKS = 16
MAX_CURVE_COLUMNS = 400  # columns of κ ⊗ ψ at most


@dataclass(frozen=True, eq=False)
class Control(Block):
    """υ(c), which the conditional penalties take out."""

    upsilon: FeatureMap
    name: ClassVar[str] = "upsilon"

    @property
    def width(self) -> int:
        """Number of columns."""
        return n_features(self.upsilon)

    @property
    def key(self) -> str:
        """Fingerprint of υ."""
        return digest(self.upsilon)

    def rows(self, chunk: Chunk) -> Rows:
        """Return υ(c); zero for rows of weight zero."""
        return counted_rows(partial(whitened, self.upsilon), chunk, chunk.c)


@dataclass(frozen=True, eq=False)
class CrossedControl(Block):
    """ξ(s, c) = ψ(s) ⊗ υ(c), whose part not explained by υ(c) is penalised."""

    xi: Crossed
    name: ClassVar[str] = "xi"

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.xi.width

    @property
    def key(self) -> str:
        """Fingerprint of ξ."""
        return digest(self.xi)

    @property
    def units(self) -> Units:  # type: ignore[override]
        """What the columns are."""
        return units_of(self.xi)

    def rows(self, chunk: Chunk) -> Rows:
        """Return ξ(s, c); zero for rows of weight zero."""
        return counted_rows(lambda at: self.xi.rows(chunk.s[at], chunk.c[at]), chunk, np.arange(chunk.n_rows))


@dataclass(frozen=True, eq=False)
class Curve(Block):
    """Smooth functions of a base model's prediction, one for each group: κ(ĥ) ⊗ [1, ψ(s)]."""

    kappa: FeatureMap
    crossed: Crossed | None  # None where the model may not see s
    name: ClassVar[str] = "curve"
    is_feature: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Number of columns."""
        return n_features(self.kappa) + (0 if self.crossed is None else self.crossed.width)

    def rows(self, chunk: Chunk) -> Array:
        """Return the columns of a chunk; zero for rows of weight zero."""

        def of(at: Any) -> Array:
            own = whitened(self.kappa, np.ascontiguousarray(chunk.h[at]))
            if self.crossed is None:
                return own
            return np.hstack([own, self.crossed.rows(chunk.s[at], chunk.h[at])])

        return np.asarray(counted_rows(of, chunk, np.arange(chunk.n_rows)), dtype=np.float64)

    def for_new_rows(self, encoder: Any) -> Curve:
        """Return the block for predictions; see `mixed.for_new_rows`."""
        if self.crossed is None:
            return self
        psi = for_new_rows(self.crossed.psi, encoder)
        return replace(self, crossed=replace(self.crossed, psi=psi))

    @classmethod
    def learn(cls, h: Array, sample: Chunk, psi: FeatureMap | None, seed: int) -> Curve:
        """Fit κ on predictions of a sample; `psi` is None where the model may not see s."""
        kappa = _curve_map(h, sample.weights, seed)
        if psi is None:
            return cls(kappa, None)
        options = {"most": MAX_CURVE_COLUMNS, "seed": seed}
        return cls(kappa, Crossed.fit(psi, kappa, sample.s, h, sample.weights, **options))


@dataclass(frozen=True, eq=False)
class RidgeCurve(Block):
    """Smooth functions κ(z) of ridge regressions of y and of ψ(s) on the features, z = φ(x)W."""

    phi: FeatureMap
    raw_weights: Array  # W, of the raw rows of φ
    kappa: FeatureMap
    name: ClassVar[str] = "ridge_curve"
    is_feature: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Number of columns."""
        return n_features(self.kappa)

    def rows(self, chunk: Chunk) -> Array:
        """Return κ(φ(x)W) of a chunk."""
        z = self.phi.raw(chunk.x) @ self.raw_weights
        return whitened(self.kappa, np.ascontiguousarray(z))

    @classmethod
    def learn(cls, phi: FeatureMap, weights: Array, sample: Chunk, seed: int) -> RidgeCurve:
        """Fit κ on z of a sample."""
        raw = weights if phi.linear_ is None else phi.linear_ @ weights
        return cls(phi, raw, _curve_map(phi.raw(sample.x) @ raw, sample.weights, seed))


def _curve_map(z: Array, weight: Array, seed: int) -> Nystroem:
    """Return κ: a Gaussian kernel in units of the standard deviation of each column."""
    scale = standard_deviation(z, weight)
    kappa = Nystroem(length_scale=scale, n_components=CURVE_LANDMARKS, random_state=seed)
    return kappa.fit(np.ascontiguousarray(z), sample_weight=weight)


def learn_control(
    psi: FeatureMap, sample: Chunk, size: int, *, seed: int, **columns: Any
) -> tuple[Control, CrossedControl]:
    """Return υ and ξ, fitted on a sample; `columns` as in `mixed_map`."""
    upsilon = mixed_map("auto", "median", size, rows=sample.c, weight=sample.weight, seed=seed, **columns)
    xi = Crossed.fit(psi, upsilon, sample.s, sample.c, sample.weights, most=CROSSED * size, seed=seed)
    return Control(upsilon), CrossedControl(xi)
