"""Cross-validation of a whole (α, η) grid from the moments of the folds, without the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.penalties import (
    CONTROL_EPS,
    CUTOFF,
    Features,
    attribute,
    control_factor,
    normalized,
    partial_covariance,
)
from scalefair.solve.path import Spectrum, grid
from scalefair.solve.system import System, best_scale, shares
from scalefair.statistics import Moments


@dataclass(frozen=True, eq=False)
class GridScores:
    """Held-out scores of every (α, η), one row per fold; arrays of shape (K, A, E).

    Parameters
    ----------
    mse : array
        Mean squared error on the held-out fold, averaged over the targets.
    share : array
        Held-out share, corrected for the degrees of freedom of g and not yet floored at 0.
    """

    mse: Array
    share: Array

    def __getitem__(self, index: Any) -> GridScores:
        """Return the scores of some alphas or etas, folds kept."""
        return GridScores(self.mse[(slice(None), *index)], self.share[(slice(None), *index)])


def mean_and_error(folds: Array) -> tuple[Array, Array]:
    """Mean over the folds (axis 0) and its standard error."""
    return folds.mean(axis=0), folds.std(axis=0, ddof=1) / np.sqrt(len(folds))


class FoldFits:
    """The training systems of K folds, decomposed once, ready for any grid.

    Parameters
    ----------
    folds : sequence of K moments
        Each is left out once.
    always : Moments or None
        Rows that no fold holds; they always train.
    share_eps : float
        ε of the held-out share.
    rescaled : bool
        Score β ← aβ with the a of least training error, as a fit under a limit is.
    **system
        As for `System.build`.
    """

    def __init__(
        self,
        folds: Sequence[Moments],
        always: Moments | None = None,
        *,
        share_eps: float,
        rescaled: bool = False,
        **system: Any,
    ) -> None:
        self._folds, self._rescaled = folds, rescaled
        self._eps = share_eps
        # The training moments are added up, never subtracted from the total: that would cancel.
        rest = [] if always is None else [always]
        self._systems = [
            System.build(reduce(add, [*folds[:k], *folds[k + 1 :], *rest]), **system)
            for k in range(len(folds))
        ]
        self._spectra = [Spectrum.of(system) for system in self._systems]

    def score(self, alphas: Array, etas: Array) -> GridScores:
        """Fit on the other folds, score on the one left out, for the whole grid."""
        scores = []
        for fold, system, spectrum in zip(self._folds, self._systems, self._spectra, strict=True):
            coef = grid(spectrum, alphas, etas)
            if self._rescaled:
                # Without penalty the limit is not active, and the ridge fit stays as it is.
                scale = np.where(etas > 0, best_scale(system, coef), 1.0)
                coef = coef * scale[..., None, None]
            scores.append(held_out(system, coef, fold, self._eps))
        return GridScores(*(np.stack(part) for part in zip(*scores, strict=True)))


def held_out(fitted: System, coef: Array, fold: Moments, eps: float) -> tuple[Array, Array]:
    """MSE and share on a fold of predictors fitted elsewhere; coef has shape (A, E, m, t)."""
    shape, (m, t) = coef.shape[:2], coef.shape[2:]
    B = np.moveaxis(coef.reshape(-1, m, t), 0, 1).reshape(m, -1)  # (m, A·E·t)
    covariance = fold.covariance(fitted.features, fitted.features)
    variance = np.sum(B * (covariance @ B), axis=0).reshape(-1, t)
    mse = squared_errors(fitted, B, variance, fold).mean(axis=1)
    explained = np.sum((_share_factor(fold, eps, fitted.features).T @ B) ** 2, axis=0)
    raw = shares(explained.reshape(-1, t).sum(axis=1), variance.sum(axis=1), fold)
    controlled = np.sum((control_factor(fold, fitted.features).T @ B) ** 2, axis=0)
    left = 1 - shares(controlled.reshape(-1, t).sum(axis=1), variance.sum(axis=1), fold)
    return mse.reshape(shape), corrected_share(raw, fold, eps, left).reshape(shape)


def squared_errors(fitted: System, B: Array, variance: Array, on: Moments) -> Array:
    """Var(y) − 2βᵀC_φy + βᵀC_φβ plus the squared mean error, shape (G, t).

    Parameters
    ----------
    fitted : System
        Where the predictors come from; it knows their intercepts.
    B : array of shape (m, G·t)
        Coefficients of G predictors.
    variance : array of shape (G, t)
        βᵀC_φβ on the rows judged.
    on : Moments
        The rows judged.
    """
    t = variance.shape[1]
    cross = on.covariance(fitted.features, "y")
    linear = np.einsum("mgt,mt->gt", B.reshape(len(B), -1, t), cross)
    spread = np.diagonal(on.covariance("y", "y")) - 2 * linear + variance
    gap = on.mean("y") - (on.mean(*fitted.features) @ B).reshape(-1, t)
    if fitted.fit_intercept:
        gap = gap - fitted.moments.mean("y") + (fitted.mean @ B).reshape(-1, t)
    return np.asarray(np.maximum(spread, 0.0) + gap**2)


def _share_factor(fold: Moments, eps: float, features: Features) -> Array:
    if "psi" in fold.blocks:
        return normalized(fold, eps, features)
    return np.zeros((sum(fold.blocks[name] for name in features), 0))


def corrected_share(raw: Array, fold: Moments, eps: float, left: Array | float = 1.0) -> Array:
    """(r − t)/(1 − t) with t = tr[C_ψ(C_ψ + εI)⁻¹]/(n − 1), what chance alone explains.

    Under control, t is a share of the variance that the control has left of f.

    The best g(s) is learnt on the fold itself, so that it fits some of the noise: without the
    correction a share of 0 is reported as t. NaN where the fold has no more rows than g has
    degrees of freedom, and nothing can be said.
    """
    name = attribute(fold)
    if name is None:
        return np.full_like(raw, np.nan)
    rows = fold.weight - 1
    if name == "xi":
        rows -= _freedom(fold.covariance("upsilon", "upsilon"), CONTROL_EPS)
    freedom = _freedom(partial_covariance(fold, name, name), eps, CUTOFF[name])
    if freedom >= rows:
        return np.full_like(raw, np.nan)
    chance = freedom / rows
    return np.asarray((raw - chance * left) / (1 - chance))


def _freedom(covariance: Array, eps: float, cutoff: float = 1e-14) -> float:
    """tr[C(C + εI)⁻¹] on the range of C."""
    values, _ = positive_eigh(covariance)
    real = values[values > cutoff * values.max(initial=0.0)]
    return float(np.sum(real / (real + eps)))
