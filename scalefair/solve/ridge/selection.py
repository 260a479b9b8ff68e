"""Which (α, η) of a cross-validated grid to take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.penalties.share import ShareEstimate, mean_and_error
from scalefair.solve.ridge.validation import GridScores


class Choice(NamedTuple):
    """Position of the chosen (α, η) in the grid."""

    alpha: int
    eta: int


def largest_eta_within_one_error(scores: GridScores, etas: Array) -> Choice:
    """Return the largest η whose error, at its own best α, is within one error of the best.

    α is chosen anew for each η: one chosen at η = 0 ruins the fair end of the path.
    """
    mean, error = mean_and_error(scores.mse)
    alpha = np.argmin(mean, axis=0)
    best = np.min(mean, axis=0)
    winner = int(np.argmin(best))
    bound = best[winner] + error[alpha[winner], winner]
    allowed = np.flatnonzero(best <= bound)
    eta = int(allowed[np.argmax(etas[allowed])])
    return Choice(int(alpha[eta]), eta)


def best_within_limit(scores: GridScores, unfairness: float) -> Choice | None:
    """Return the least error whose held-out share is within the limit; None if there is none.

    The share is within it where its mean over the folds and half a standard error are. A constant
    prediction has no share, and is not on the grid: the caller compares with it.
    """
    return _least_error(scores, ShareEstimate.of(scores.share).is_within(unfairness))


def best_without_share(scores: GridScores, etas: Array) -> Choice | None:
    """Return the least error at η = ∞, where nothing is left to explain; its share is not tested.

    The corrected share of a predictor without any is below 0 as often as above.
    """
    defined = ~np.isnan(scores.share.mean(axis=0))
    return _least_error(scores, defined & np.isinf(etas))


def _least_error(scores: GridScores, allowed: NDArray[np.bool_]) -> Choice | None:
    if not allowed.any():
        return None
    mean = np.where(allowed, scores.mse.mean(axis=0), np.inf)
    position = np.unravel_index(np.argmin(mean), mean.shape)
    return Choice(int(position[0]), int(position[1]))
