"""Which (α, η) of a cross-validated grid to take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalefair._typing import Array
from scalefair.solve.validation import GridScores, mean_and_error


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


def best_within_limit(scores: GridScores, in_sample: Array, unfairness: float) -> Choice | None:
    """Return the best error whose share is within the limit, held out and in sample; or None.

    Parameters
    ----------
    scores : GridScores
        Of the folds.
    in_sample : array of shape (A, E)
        Explained share of the fits on all rows.
    unfairness : float
        The limit.
    """
    mean = scores.mse.mean(axis=0)
    share = np.maximum(scores.share.mean(axis=0), 0.0)
    outside = (share > unfairness) | (in_sample > unfairness + 1e-9)
    # The share of a constant prediction is undefined: it is no answer unless all are constant.
    undefined = np.isnan(share) | np.isnan(in_sample)
    if not undefined.all():
        outside |= undefined
    if outside.all():
        return None
    position = np.unravel_index(np.argmin(np.where(outside, np.inf, mean)), mean.shape)
    return Choice(int(position[0]), int(position[1]))
