"""What a fitted process of classes says of new rows: scores, their variance, probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.solve.gp.averaged import averaged_probability
from scalefair.statistics.rows import whitened


@dataclass(frozen=True, eq=False)
class LatentLaw:
    """f(x) = φ(x)ᵀβ, β ~ N(coef, FFᵀ) for each score, and what the features miss of the kernel.

    A Nyström map sees |φ(x)|² of the kernel's k(x, x). The rest of f is independent of β, has mean
    zero and the variance a²(k(x, x) − |φ(x)|²), which is added, as in `FairGPRegressor`.

    Parameters
    ----------
    phi : FeatureMap
    coef : array of shape (m, k)
    factors : array of shape (k, m, m)
    missing : float
        a² for a Nyström map; 0 for the others.
    """

    phi: FeatureMap
    coef: Array
    factors: Array
    missing: float

    def mean(self, x: Array) -> Array:
        """Return E f, shape (rows, k)."""
        return np.asarray(whitened(self.phi, _wide(x)) @ self.coef)

    def both(self, x: Array) -> tuple[Array, Array]:
        """Return E f and var f, shape (rows, k) each."""
        x = _wide(x)
        Phi = whitened(self.phi, x)
        variance = np.stack([np.sum((Phi @ F) ** 2, axis=1) for F in self.factors], axis=1)
        if self.missing:
            diagonal = self.phi.kernel_.diag(x)  # type: ignore[attr-defined]
            residual = np.maximum(diagonal - np.sum(Phi**2, axis=1), 0.0)
            variance += self.missing * residual[:, None]
        return Phi @ self.coef, variance

    def probabilities(self, x: Array) -> Array:
        """Return the probabilities of the classes, averaged over f; shape (rows, classes)."""
        mean, variance = self.both(x)
        if mean.shape[1] == 1:
            # Each by itself: 1 − p would lose the digits of a small probability.
            return averaged_probability(np.hstack([-mean, mean]), np.hstack([variance] * 2))
        p = np.maximum(averaged_probability(mean, variance), np.finfo(float).tiny)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def codes(self, x: Array) -> Array:
        """Return the position of the most likely class, shape (rows,)."""
        if self.coef.shape[1] == 1:
            # Averaging moves a probability towards ½, but never across.
            return np.asarray(self.mean(x)[:, 0] > 0, dtype=np.float64)
        return np.asarray(np.argmax(self.probabilities(x), axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LatentPredictor:
    """Makes the function of chunks that predictions run, for ``source.map``.

    Parameters
    ----------
    law : LatentLaw
    what : {"mean", "both", "probabilities", "codes"}
        "both" joins the variances to the means, as more columns.
    """

    law: LatentLaw
    what: str

    def __call__(self) -> Callable[[Chunk], Array]:
        """Return the function."""
        return self.predict

    def predict(self, chunk: Chunk) -> Array:
        """Return what was asked for of the rows of a chunk."""
        found = getattr(self.law, self.what)(chunk.x)
        return np.hstack(found) if self.what == "both" else np.asarray(found)


def _wide(x: Array) -> Array:
    return np.asarray(x, dtype=np.float64)
