"""The linear system of the fair ridge with a Gram matrix that is a product, never an array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.moments.products import CrossMoments, StreamedGram
from scalefair.penalties import Features
from scalefair.solve.ridge.conjugate import Sketch
from scalefair.solve.ridge.system import System, both_factors

RANK = 512
"""Default rank of the preconditioner."""

SAMPLE_ROWS = 4
"""Rows of the sample that aims the preconditioner, per rank."""


@dataclass(frozen=True, eq=False)
class FeatureGram:
    """C of the features [φ, further blocks] as a product; `gram @ V` is one pass over the rows.

    Only C_φ needs the pass: the moments know all other blocks.

    Parameters
    ----------
    phi : StreamedGram
        C_φ.
    moments : CrossMoments
        All other moments.
    features : tuple of str
        The blocks that make up Φ; "phi" is the first.
    centred : bool
        False: the uncentred ΦᵀΦ/n.
    """

    phi: StreamedGram
    moments: CrossMoments
    features: Features
    centred: bool = True

    def __len__(self) -> int:
        return sum(self.moments.blocks[name] for name in self.features)

    def __matmul__(self, V: Array) -> Array:
        width, others = self.moments.blocks["phi"], self.features[1:]
        product = self.phi @ V[:width]
        if others:
            sides = self.moments.covariance(self.features, others)
            product = np.concatenate([product, sides[:width].T @ V[:width]]) + sides @ V[width:]
        if not self.centred:
            mean = self.moments.mean(*self.features)
            product = product + np.outer(mean, mean @ V)
        return product


@dataclass(frozen=True, eq=False)
class StreamedSystem(System):
    """A system whose Gram matrix is never formed: `gram @ V` is one pass over the rows."""

    gram: FeatureGram  # type: ignore[assignment]  # all that it shares with an array is @

    @classmethod
    def stream(
        cls,
        moments: CrossMoments,
        phi: StreamedGram,
        *,
        penalty: str = "normalized",
        eps: float | None = None,
        fit_intercept: bool = True,
        features: Features = ("phi",),
        ridge: Array | None = None,
    ) -> StreamedSystem:
        """Read the system off what `stream_moments` returned; options as in `System.build`."""
        if features[0] != "phi":
            raise ValueError(f"features={features!r} must begin with 'phi', the block that streams")
        gram = FeatureGram(phi, moments, features, fit_intercept)
        target = moments.covariance(features, "y")
        if not fit_intercept:
            target = target + np.outer(moments.mean(*features), moments.mean("y"))
        factor, share_factor = both_factors(moments, penalty, eps, features)
        ridge = np.ones(len(gram)) if ridge is None else ridge
        return cls(moments, gram, target, factor, share_factor, ridge, fit_intercept, features)

    @cached_property
    def covariance(self) -> Any:
        """C_φ, centred; a product with it is one pass."""
        return replace(self.gram, centred=True)

    @property
    def scale(self) -> Array:
        """Diagonal of D^(−1/2), a column."""
        return np.asarray(1.0 / np.sqrt(self.ridge)[:, None])

    def scaled_gram(self, V: Array) -> Array:
        """D^(−1/2) C D^(−1/2) V, one pass."""
        return np.asarray(self.scale * (self.gram @ (self.scale * V)))

    def sampled(self, size: int, seed: int) -> StreamedSystem:
        """Return the system with the C_φ of a sample of the rows."""
        phi = self.gram.phi.sampled(size, seed)
        return replace(self, gram=replace(self.gram, phi=phi))

    def sketch(self, rank: int | None = None, seed: int = 0) -> Sketch:
        """Return a preconditioner, good for every α, from one pass of `rank` columns.

        They are random, but first multiplied by the Gram matrix of a sample of the rows: that is
        nearly as good as a second pass, and nearly free.
        """
        m = len(self.gram)
        size = min(m, RANK if rank is None else rank)
        if size == 0:
            return Sketch(np.zeros(0), np.zeros((m, 0)))
        probe = np.random.default_rng(seed).standard_normal((m, size))
        aimed = self.sampled(SAMPLE_ROWS * size, seed).scaled_gram(probe)
        probe = np.linalg.qr(aimed)[0]
        return Sketch.from_product(probe, self.scaled_gram(probe))
