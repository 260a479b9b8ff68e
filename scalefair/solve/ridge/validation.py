"""Cross-validation of a whole (α, η) grid from the moments of the folds, without the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.moments import Moments
from scalefair.penalties import attribute
from scalefair.penalties.share import held_out_shares, variance_of, worst_of
from scalefair.solve.ridge.path import Spectrum, grid
from scalefair.solve.ridge.system import System, best_scale


@dataclass(frozen=True, eq=False)
class GridScores:
    """Held-out scores of every (α, η), one row per fold; arrays of shape (K, A, E).

    Parameters
    ----------
    mse : array
        Mean squared error on the held-out fold, averaged over the targets.
    share : array
        Held-out share, corrected for chance and not yet floored at 0.
    """

    mse: Array
    share: Array

    def __getitem__(self, index: Any) -> GridScores:
        """Return the scores of some alphas or etas, folds kept."""
        return GridScores(self.mse[(slice(None), *index)], self.share[(slice(None), *index)])


class FoldFits:
    """The training systems of K folds, decomposed once, ready for any grid.

    Parameters
    ----------
    folds : sequence of K moments
        Each is left out once.
    always : Moments or None
        Rows that no fold holds; they always train.
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
        rescaled: bool = False,
        **system: Any,
    ) -> None:
        self._folds, self._rescaled = folds, rescaled
        # The training moments are added up, never subtracted from the total: that would cancel.
        rest = [] if always is None else [always]
        self._systems = [
            System.build(reduce(add, [*folds[:k], *folds[k + 1 :], *rest]), **system)
            for k in range(len(folds))
        ]
        self._spectra = [Spectrum.of(system) for system in self._systems]

    def score(self, alphas: Array, etas: Array) -> GridScores:
        """Fit on the other folds, score on the one left out, for the whole grid."""
        errors, shares = [], []
        for fold, system, spectrum in zip(self._folds, self._systems, self._spectra, strict=True):
            coef = grid(spectrum, alphas, etas)
            if self._rescaled:
                # Without penalty the limit is not active, and the ridge fit stays as it is.
                scale = np.where(etas > 0, best_scale(system, coef), 1.0)
                coef = coef * scale[..., None, None]
            t, B = coef.shape[3], _side_by_side(coef)
            variance = variance_of(fold, system.features, B).reshape(-1, t)
            errors.append(squared_errors(system, B, variance, fold).mean(axis=1))
            if attribute(fold) is not None:
                shares.append(held_out_shares(fold, system.features, B, t))
        shape = (len(self._folds), len(alphas), len(etas))
        worst = worst_of(shares) if shares else np.full(shape, np.nan)
        return GridScores(np.reshape(errors, shape), worst.reshape(shape))

    def constant_errors(self) -> Array:
        """Held-out error of the best constant of the other folds, shape (K,)."""
        errors = []
        for fold, system in zip(self._folds, self._systems, strict=True):
            none = np.zeros((len(system.gram), system.target.shape[1]))
            variance = np.zeros((1, none.shape[1]))
            errors.append(squared_errors(system, none, variance, fold).mean())
        return np.array(errors)


def _side_by_side(coef: Array) -> Array:
    """Coefficients (A, E, m, t) as the columns of one matrix (m, A·E·t)."""
    m, t = coef.shape[2:]
    return np.moveaxis(coef.reshape(-1, m, t), 0, 1).reshape(m, -1)


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
