"""The accuracy–fairness frontier of a fitted estimator, from its stored moments."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair import _frames
from scalefair._checks import MISSING_SENSITIVE, check_number
from scalefair._typing import Array
from scalefair.estimators._notebook import path_html
from scalefair.penalties import hsic
from scalefair.penalties.share import (
    ShareEstimate,
    mean_and_error,
    share_of_variance,
    size_of_block,
    variance_of,
)
from scalefair.solve.ridge.path import Spectrum, grid
from scalefair.solve.ridge.system import System
from scalefair.solve.ridge.validation import GridScores, squared_errors

if TYPE_CHECKING:
    import pandas as pd


class FairPath:
    """Every (alpha, eta) of a grid, solved and judged without looking at the data again.

    Parameters
    ----------
    estimator : fitted estimator
        Whose moments to solve for.
    alphas, etas : arrays of shape (A,) and (E,)
        The grid.
    scores : GridScores or None
        Held-out scores of the same grid, if it was cross-validated.

    Attributes
    ----------
    table : DataFrame
        One row per (alpha, eta) with mse, r2, explained_share and hsic on the training rows, and
        with cross-validation mse_cv, mse_cv_error, explained_share_cv, explained_share_cv_error:
        means over the folds and their standard errors.
    """

    def __init__(
        self, estimator: Any, alphas: Array, etas: Array, scores: GridScores | None = None
    ) -> None:
        # A copy, which shares the arrays: the path stays what it is when the estimator is refitted.
        self._estimator = copy(estimator)
        self.alphas, self.etas = np.asarray(alphas, float), np.asarray(etas, float)
        self._scores = scores

    @cached_property
    def table(self) -> pd.DataFrame:
        """The grid as a data frame."""
        system = self._estimator._system()
        columns = {
            "alpha": np.repeat(self.alphas, len(self.etas)),
            "eta": np.tile(self.etas, len(self.alphas)),
            **training_columns(system, self.alphas, self.etas),
        }
        if self._scores is not None:
            columns |= held_out_columns(self._scores)
        return _frames.make_frame(columns)

    def front(self) -> pd.DataFrame:
        """Return the rows that no other row beats in both error and share, by increasing share.

        Held-out numbers are compared where there are any.
        """
        share, error = self._criteria()
        rows = self.table.sort_values([share, error], kind="stable")
        best = rows[error].cummin().shift(fill_value=np.inf)
        return rows[rows[error] < best].reset_index(drop=True)

    def select(self, unfairness: float) -> pd.Series:
        """Return the row of least error whose share is at most `unfairness`."""
        check_number("unfairness", unfairness, 0.0, 1.0)
        if self._estimator.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        share, error = self._criteria()
        allowed = self.table[self.table[share] <= unfairness]
        if allowed.empty:
            raise ValueError(
                f"unfairness={unfairness!r}: no point of the path has a share that small, the "
                f"least is {self.table[share].min():.4g}; use a finer or longer grid of etas"
            )
        return allowed.iloc[int(np.argmin(allowed[error]))]

    def estimator(self, alpha: float, eta: float) -> Any:
        """Return a fitted estimator at (alpha, eta), from the same moments."""
        return self._estimator._at(alpha=alpha, eta=eta)

    def limited(self, unfairness: float, alpha: float | None = None) -> Any:
        """Return a fitted estimator under a limit on the share, from the same moments.

        Parameters
        ----------
        unfairness : float in [0, 1]
            The limit; eta is found, and the scale of the predictions is the best one.
        alpha : float, optional
            Ridge; by default the one of least error at that share, along the path of each.
        """
        check_number("unfairness", unfairness, 0.0, 1.0)
        if self._estimator.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        if alpha is None:
            alpha = self._best_alpha(unfairness)
        return self._estimator._at(alpha=alpha, eta=0.0)._limited(unfairness)

    def _best_alpha(self, unfairness: float) -> float:
        """α of least error at a share, along the curve of each: their etas meet other shares."""
        shape = len(self.alphas), len(self.etas)
        shares, errors = (self.table[name].to_numpy().reshape(shape) for name in self._criteria())
        found = [_error_at(*curve, unfairness) for curve in zip(shares, errors, strict=True)]
        if not np.isfinite(found).any():
            return float(self.alphas[int(np.argmin(np.nanmin(shares, axis=1)))])
        return float(self.alphas[int(np.nanargmin(found))])

    def plot(self, ax: Any = None) -> Any:
        """Draw the path; return its display."""
        from scalefair.plots import FairPathDisplay

        return FairPathDisplay(self.table, self.front()).plot(ax=ax)

    def _criteria(self) -> tuple[str, str]:
        held_out = self._scores is not None
        return ("explained_share_cv", "mse_cv") if held_out else ("explained_share", "mse")

    def __repr__(self) -> str:
        return f"<FairPath: {len(self.alphas)} alphas × {len(self.etas)} etas>"

    def _repr_html_(self) -> str:
        return path_html(self)


def _error_at(shares: Array, errors: Array, limit: float) -> float:
    """Error where a curve meets the limit; ∞ where it stays above, its least where it is below."""
    order = np.argsort(shares)
    order = order[np.isfinite(shares[order])]
    if not len(order) or shares[order[0]] > limit:
        return float("inf")
    least = np.minimum.accumulate(errors[order])
    return float(np.interp(limit, shares[order], least))


def training_columns(system: System, alphas: Array, etas: Array) -> dict[str, Array]:
    """Error and dependence on the training rows, for each point of the grid."""
    coef = grid(Spectrum.of(system), alphas, etas)
    m, t = coef.shape[2:]
    B = np.moveaxis(coef.reshape(-1, m, t), 0, 1).reshape(m, -1)
    moments = system.moments
    variance = variance_of(moments, system.features, B).reshape(-1, t)
    errors = squared_errors(system, B, variance, moments)
    spread = np.diagonal(moments.covariance("y", "y"))
    explained = np.sum((system.share_factor.T @ B) ** 2, axis=0).reshape(-1, t).sum(axis=1)
    if "psi" not in moments.blocks:
        explained = np.full_like(explained, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = (1 - errors / spread).mean(axis=1)
    return {
        "mse": errors.mean(axis=1),
        "r2": r2,
        "explained_share": share_of_variance(
            explained, variance.sum(axis=1), size_of_block(moments, "y")
        ),
        "hsic": _hsic(system, B).reshape(-1, t).sum(axis=1),
    }


def _hsic(system: System, B: Array) -> Array:
    """|C_ψf|²: HSIC with a linear kernel on f."""
    if "psi" not in system.moments.blocks:
        return np.full(B.shape[1], np.nan)
    return np.asarray(np.sum((hsic(system.moments, 0.0, system.features).T @ B) ** 2, axis=0))


def held_out_columns(scores: GridScores) -> dict[str, Array]:
    """Means over the folds and their standard errors; the share is floored at 0."""
    mse, mse_error = mean_and_error(scores.mse)
    share = ShareEstimate.of(scores.share)
    return {
        "mse_cv": mse.ravel(),
        "mse_cv_error": mse_error.ravel(),
        "explained_share_cv": share.value.ravel(),
        "explained_share_cv_error": share.error.ravel(),
    }


def default_etas(system: System, alpha: float, count: int = 25) -> Array:
    """0, a log grid around the strength of the penalty, and ∞."""
    strength = Spectrum.of(system).at(alpha).strength.max(initial=0.0)
    unit = 1.0 / strength if strength > 0 else 1.0
    return np.concatenate([[0.0], unit * np.logspace(-2, 6, count - 2), [np.inf]])


def default_alphas(system: System, count: int = 10) -> Array:
    """A log grid relative to the total variance of the features, base predictions left out."""
    width = sum(system.moments.blocks[name] for name in system.features if name != "base")
    scale = float(np.trace(system.gram[:width, :width]))
    return (scale if scale > 0 else 1.0) * np.logspace(-7, 0, count)
