"""The search of `FairKernelRidgeCV`: (α, η) on the grid, ε and the ridge ratio around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.estimators.fair_path import training_columns
from scalefair.solve.selection import Choice, best_within_limit, largest_eta_within_one_error
from scalefair.solve.system import System
from scalefair.solve.validation import FoldFits, GridScores
from scalefair.statistics import Moments

REFINE = 16
"""How many more etas are tried beside the best one under a limit."""


class LimitNotReachedError(ValueError):
    """No point of the grid has a held-out share within the limit."""


@dataclass(frozen=True, eq=False)
class FoldedMoments:
    """Moments of each fold, of the rows that always train, and of all rows."""

    folds: Sequence[Moments]
    always: Moments | None
    total: Moments


@dataclass(frozen=True, eq=False)
class Grid:
    """What is tried, the ε that shares are measured with, and the limit on them, if any."""

    alphas: Array
    etas: Array
    share_eps: float
    unfairness: float | None


@dataclass(frozen=True, eq=False)
class Found:
    """A cross-validated grid at one ε and one ridge ratio, and the point chosen on it."""

    eps: float
    ratio: float
    alphas: Array
    etas: Array
    scores: GridScores
    choice: Choice

    @property
    def alpha(self) -> float:
        """The chosen α."""
        return float(self.alphas[self.choice.alpha])

    @property
    def eta(self) -> float:
        """The chosen η."""
        return float(self.etas[self.choice.eta])

    @property
    def mse(self) -> float:
        """Held-out error of the choice."""
        return float(self.scores.mse[:, self.choice.alpha, self.choice.eta].mean())

    @property
    def shares(self) -> Array:
        """Held-out share of the choice on each fold."""
        return np.asarray(self.scores.share[:, self.choice.alpha, self.choice.eta])


def search(
    moments: FoldedMoments,
    options: Callable[[float, float], dict[str, Any]],
    *,
    alphas: Array,
    etas: Array,
    epses: Sequence[float],
    ratios: Sequence[float],
    unfairness: float | None,
) -> Found:
    """Return the best point over all ε and ridge ratios.

    The ridge ratio is chosen by the held-out error. So is ε under a limit; without one, the ε of
    least held-out share is taken, every candidate being as good as the best anyway. All shares are
    measured with the largest ε tried, so that they compare.
    """
    grid = Grid(alphas, etas, max(epses), unfairness)
    found = []
    for eps in epses:
        tried = [_search_grid(moments, options(ratio, eps), grid, ratio) for ratio in ratios]
        reached = [candidate for candidate in tried if candidate is not None]
        if reached:
            found.append(min(reached, key=lambda candidate: candidate.mse))
    if not found:
        raise LimitNotReachedError(
            f"unfairness={unfairness!r} is not reached on held-out rows by any alpha and eta "
            f"tried, the least held-out share is {_least_share(moments, options, grid):.3g}; ask "
            "for more than that, give more rows or features, or use eps='auto'"
        )
    if unfairness is not None:
        return min(found, key=lambda grid: grid.mse)
    return min(found, key=lambda grid: float(np.nan_to_num(grid.shares.mean(), nan=np.inf)))


def _search_grid(
    moments: FoldedMoments, options: dict[str, Any], grid: Grid, ratio: float
) -> Found | None:
    limit = grid.unfairness
    fits = FoldFits(
        moments.folds,
        moments.always,
        share_eps=grid.share_eps,
        rescaled=limit is not None,
        **options,
    )
    alphas, etas = grid.alphas, grid.etas
    scores = fits.score(alphas, etas)
    choice: Choice | None
    if limit is None:
        choice = largest_eta_within_one_error(scores, etas)
    else:
        _check_judged(scores)
        system = System.build(moments.total, **options)
        choice = _choose(system, scores, alphas, etas, limit)
        if choice is not None and choice.eta > 0:
            etas = _refined(etas, choice.eta)
            scores = fits.score(alphas, etas)
            choice = _choose(system, scores, alphas, etas, limit)
    if choice is None:
        return None
    return Found(options["eps"], ratio, alphas, etas, scores, choice)


def _least_share(
    moments: FoldedMoments, options: Callable[[float, float], dict[str, Any]], grid: Grid
) -> float:
    fits = FoldFits(
        moments.folds, moments.always, share_eps=grid.share_eps, **options(1.0, grid.share_eps)
    )
    mean = fits.score(grid.alphas, grid.etas).share.mean(axis=0)
    return float(np.nanmin(mean, initial=np.inf))


def _choose(
    system: System, scores: GridScores, alphas: Array, etas: Array, unfairness: float
) -> Choice | None:
    share = training_columns(system, alphas, etas)["explained_share"]
    return best_within_limit(scores, share.reshape(len(alphas), -1), unfairness)


def _refined(etas: Array, chosen: int) -> Array:
    """Sorted etas with more of them between the chosen one and the next smaller."""
    etas = np.sort(etas)
    low, high = etas[chosen - 1], etas[chosen]
    if np.isinf(high):
        high = 1e4 * low if low > 0 else 1e4
    low = low if low > 0 else 1e-3 * high
    return np.unique(np.concatenate([etas, np.geomspace(low, high, REFINE + 2)[1:-1]]))


def _check_judged(scores: GridScores) -> None:
    # NaN at some points is a constant prediction; in a whole fold nothing can be said.
    if np.isnan(scores.share).all(axis=(1, 2)).any():
        raise ValueError(
            "a fold of cv is too small to judge the held-out share: it has no more rows than g(s) "
            "has degrees of freedom; use fewer folds, a larger eps, fewer "
            "n_sensitive_components or more rows"
        )
