"""The explained share where groups are known by their probabilities: a bound, or corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.data.probabilities import group_probabilities
from scalefair.data.sources.base import finite_columns, weights
from scalefair.errors import InputError
from scalefair.penalties import share_of_variance


@dataclass(frozen=True)
class ProbableShare:
    """Shares with their standard errors, unbiased, so that small ones may come out below 0.

    Attributes
    ----------
    lower_bound, lower_bound_error : float
        What the probabilities alone tell.
    share, share_error : float
        Corrected by the rows that know their group; NaN without any.
    n_rows, n_known : int
        Rows, and how many of them know their group.
    """

    lower_bound: float
    lower_bound_error: float
    share: float
    share_error: float
    n_rows: int
    n_known: int

    def __str__(self) -> str:
        bound = f"{self.lower_bound:.3g} ± {self.lower_bound_error:.2g}"
        if not self.n_known:
            return f"explained share: lower bound {bound}, from probabilities of groups"
        return (
            f"explained share: {self.share:.3g} ± {self.share_error:.2g}, corrected by "
            f"{self.n_known:,} of {self.n_rows:,} rows that know their group; lower bound {bound}"
        )


def probable_share(
    f: Any, probabilities: Any, *, known: Any = None, sample_weight: Any = None
) -> ProbableShare:
    """Return the share of the variance of f that groups explain, known by probabilities.

    Parameters
    ----------
    f : array-like of shape (n,)
        Predictions.
    probabilities, known
        As in :func:`scalefair.group_probabilities`, which says when the bound is one.
    sample_weight : array-like of shape (n,), optional
        Relative.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.measures import probable_share
    >>> rng = np.random.default_rng(0)
    >>> p, f = rng.uniform(size=2000), rng.normal(size=2000)
    >>> probable_share(f, np.column_stack([p, 1 - p])).lower_bound < 0.01
    True
    """
    P = group_probabilities(probabilities)
    values = finite_columns(f, "f", "f", 0)[:, 0]
    w = weights(sample_weight, "in memory", 0)
    w = np.ones(len(P)) if w is None else w
    if not len(values) == len(P) == len(w):
        raise InputError(
            f"f has {len(values)} rows, the probabilities {len(P)}", "give one row each"
        )
    bound, corrected = _share(values, np.asarray(P), w), (np.nan, np.nan)
    n_known = 0
    if known is not None:
        rows = group_probabilities(probabilities, known)
        corrected, n_known = _share(values, np.asarray(rows), w), rows.n_known
    return ProbableShare(*bound, *corrected, len(P), n_known)


def _share(f: Array, rows: Array, weight: Array) -> tuple[float, float]:
    """Σ_k c_k²/(π_k Var f) less what chance explains, and its standard error.

    Influence of a row: [Σ_k 2c_k f̃ψ̃_k/π_k − c_k²ψ_k/π_k² − θf̃²]/Var f.
    """
    w, n = weight / weight.sum(), weight.sum() ** 2 / (weight @ weight)
    pi, mean = w @ rows, w @ f
    f = f - mean
    variance = w @ f**2
    if np.isnan(share_of_variance(0.0, variance, w @ (f + mean) ** 2)):
        raise InputError("f is constant, and has no share", "give predictions that differ")
    products = f[:, None] * (rows - pi)
    c = w @ products
    share = np.sum((c**2 - w @ (products - c) ** 2 / n) / pi) / variance
    influence = (products @ (2 * c / pi) - rows @ (c / pi) ** 2 - share * f**2) / variance
    error = np.sqrt(w @ (influence - w @ influence) ** 2 / n)
    return float(share), float(error)
