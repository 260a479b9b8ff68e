"""Explained share: how much of the variance of predictions the sensitive attributes explain."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from numbers import Integral
from operator import add
from typing import Any, NamedTuple

import numpy as np

from scalefair._hash import balanced_fold
from scalefair._typing import Array
from scalefair.data.probabilities import GroupProbabilities
from scalefair.errors import check_count
from scalefair.features import Identity, OneHot
from scalefair.features.base import seed_of, whitened
from scalefair.features.exact import ExpectedGroups
from scalefair.features.mixed import mixed_map
from scalefair.measures._features import ColumnsBeside, FeaturePair
from scalefair.measures._pair import TooFineError, UndefinedError, check_kernel, open_pair
from scalefair.measures.bounds import ERROR_ROWS, ShareDistribution, share_distributions
from scalefair.moments import ALL_ROWS, FoldMoments, Folds, Moments
from scalefair.penalties import FunctionSpace, share_of_block, share_of_variance, size_of_block

SHARE_RIDGES = np.logspace(-9, -1, 17)
"""What eps="auto" chooses from."""

STEPS_BELOW = 2
"""Steps of the grid by which eps="auto" stays below the ridge of least error: a tenth of it.

The error of ĝ is of second order in what the ridge takes from it, that of the share of first.
"""

MAX_ALONE = 0.5  # Share of rows that may be alone in their group


def explained_share(
    f: Any, s: Any, *, kernel: Any = "auto", length_scale: Any = "median",
    n_components: int = 100, eps: float | str = "auto", cv: int | None = 5, clip: bool = True,
    sample_weight: Any = None, random_state: Any = 0,
) -> float:  # fmt: skip
    """Share of the variance of f that the best function of s explains, Var E[f|s] / Var f.

    Parameters
    ----------
    f : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, t)
        Predictions, as numbers; of several columns the explained variances are added up.
    s : the same, of shape (n,) or (n, p)
        Sensitive attributes: one or many columns, numbers, categories or both; or
        :func:`scalefair.group_probabilities`, with which the share is a lower bound or corrected.
    kernel : str, Kernel or feature map, default="auto"
        Which functions g(s) are tried; "auto", as in the estimators: all functions of the intersections of categories,
        smooth ones of numbers (Gaussian kernel of standardised columns), and their products.
    length_scale : float, array or "median"
        Of the numbers.
    n_components : int
        Most landmarks of a smooth kernel.
    eps : float or "auto"
        Ridge of g. "auto": a tenth of that of least out-of-fold error, and the estimators' own,
        1e-6, with cv=None. It is not used for categories.
    cv : int or None, default=5
        Number of folds of the cross-fitting. None: the share in the sample, which is what a fit
        reports of its training rows, and biased upwards by about (features of g)/n.
    clip : bool
        Whether an estimate below 0, which noise makes of a small share, is returned as 0.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing. In the sample (cv=None) weight 2 is the row
        twice; the correction for chance counts rows by Kish's (Σw)²/Σw².
    random_state : int, RandomState or None
        Of landmarks and folds.

    Returns
    -------
    float
        In [0, 1]: 0 where the mean of f is the same for every s; 1 where s determines f.

    Notes
    -----
    Cross-fitting: with ĝ₋ₖ learnt on the rows outside fold k, the share is Σₖ nₖ Covₖ(f, ĝ₋ₖ(s)) / Σₖ nₖ Varₖ(f),
    Covₖ being that of the rows of fold k. The noise in ĝ₋ₖ is independent of theirs and so, unlike in the sample,
    explains nothing. As eps → 0 the estimate is unbiased but wild (standard deviation 0.15 with 400 rows and one
    number as attribute, where eps="auto" has 0.03); eps="auto" shrinks, and so is biased downwards where rows are
    too few to learn g (0.39 instead of 0.43 with 100 rows and three numbers, 0.42 with 400; where g has products
    of four numbers, 0.33 and 0.41).

    For categories the limit of as many folds as rows has a closed form, which is used whatever
    `cv` says: with group means f̄_g and variances s_g²,
    [Σ_g p_g (f̄_g² − s_g²/n_g) − (f̄² − s²/n)] / s², n_g and n being Kish's counts of the rows. It is
    unbiased, needs no folds, and does not depend on the order of the rows. Groups of one explain
    nothing; where more than half of the rows are alone in their group, it is a ValueError.

    :func:`scalefair.audit` gives the share with an interval.

    f must not have been fitted to these very rows: a fair fit has removed the dependence from
    them, and will look fairer than it is. Use held-out rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(0, 2, 1000)
    >>> round(explained_share(s + rng.standard_normal(1000), s.astype(str)), 2)
    0.25
    """
    features = open_share(
        f, s, sample_weight, kernel=kernel, length_scale=length_scale, size=n_components, random_state=random_state
    )
    if cv is None:
        share = share_of_block(features.moments()[0], _checked_eps(eps, cv))
    else:
        parts = features.moments(*share_columns(features, cv))
        share = share_of_folds(features, parts, _checked_eps(eps, cv)).share
    if np.isnan(share):  # f is not constant, or it would have been refused
        raise UndefinedError(
            f"f is constant within each of the cv={cv!r} folds, so the share cannot be estimated; "
            "give more rows or fewer folds, or cv=None for the share in the sample"
        )
    return float(np.clip(share, 0.0, 1.0)) if clip else float(share)


class CrossFittedShare(NamedTuple):
    """A cross-fitted share, not clipped, with the moments and the ridge that it comes from."""

    share: float
    moments: Moments
    eps: float


def open_share(
    f: Any, s: Any, weight: Any, *, kernel: Any, length_scale: Any, size: int, random_state: Any
) -> FeaturePair:
    """Open predictions and attributes, and fit the map of the attributes."""
    if isinstance(s, GroupProbabilities):
        kernel, s = ExpectedGroups(s.groups, s.n_known).fit(s), np.asarray(s)
    seed, kernel = seed_of(random_state), check_kernel("kernel", kernel)
    pair = open_pair(f, s, weight, names=("f", "s"), random_state=seed, least=4, kernels=(None, kernel), numeric=True)
    size = check_count("n_components", size)
    sample = pair.landmark_rows(size)
    # The map that an estimator would make of the same sample.
    psi = mixed_map(
        kernel, length_scale, size, rows=sample.s, weight=sample.weight,
        categorical=pair.b.categorical, groups=pair.b.groups, seed=seed, name="kernel",
    )  # fmt: skip
    return FeaturePair(pair, Identity().fit_rows(sample.x, None), psi, sample.x.mean(axis=0))


def share_columns(features: FeaturePair, cv: Any) -> tuple[Folds, ColumnsBeside | None, int]:
    """Return the folds, and the columns beside φ and ψ, that a cross-fitted share takes."""
    if isinstance(cv, bool) or not isinstance(cv, Integral):
        raise TypeError(f"cv={cv!r} is a {type(cv).__name__}; give a number of folds, or None")
    count, n_rows = int(cv), features.pair.n_rows
    if not 2 <= count <= n_rows // 2:
        raise ValueError(
            f"cv={cv!r} must be between 2 and half the number of rows ({n_rows}); give fewer "
            "folds or more rows, or None for the share in the sample, which is biased upwards"
        )
    if isinstance(features.psi, OneHot):
        centre = features.centre
        return ALL_ROWS, lambda Phi, _, w: np.column_stack([(Phi - centre) ** 2, w]), len(centre) + 1
    return Folds(count, partial(balanced_fold, count, features.pair.seed)), None, 0


def share_of_folds(features: FeaturePair, parts: FoldMoments, eps: Any = "auto") -> CrossFittedShare:
    """Return the cross-fitted share from the moments of each fold."""
    if isinstance(features.psi, OneHot):
        return _leave_one_out(parts[0], features.centre)
    grid = SHARE_RIDGES if isinstance(eps, str) else np.array([eps])
    explained, error, whole = np.zeros(len(grid)), np.zeros(len(grid)), 0.0
    for k, held_out in enumerate(parts):
        rest = reduce(add, [part for i, part in enumerate(parts) if i != k])
        first, second = _held_out(held_out, rest, grid)
        explained += held_out.weight * first
        error += held_out.weight * second
        whole += held_out.weight * float(np.trace(held_out.covariance("phi", "phi")))
    best = max(int(np.argmin(error)) - STEPS_BELOW, 0)
    moments = reduce(add, parts)
    share = share_of_variance(explained[best], whole, moments.weight * size_of_block(moments))
    return CrossFittedShare(float(share), moments, float(grid[best]))


def _checked_eps(eps: Any, cv: int | None) -> Any:
    if isinstance(eps, str) and eps == "auto":
        return None if cv is None else eps
    if isinstance(eps, bool | str) or not 0 <= eps < np.inf:
        raise ValueError(f"eps={eps!r} must be a number of at least 0, or 'auto'")
    return float(eps)


def _held_out(held_out: Moments, rest: Moments, grid: Array) -> tuple[Array, Array]:
    """Cov(f, ĝ), and Var ĝ − 2 Cov(f, ĝ), the squared error up to a constant, for every ε."""
    space = FunctionSpace.of(rest)
    known, own = (space.basis.T @ part.covariance("psi", "phi") for part in (rest, held_out))
    spread = space.basis.T @ held_out.covariance("psi", "psi") @ space.basis
    gammas = np.stack([known / space.ridge(eps)[:, None] for eps in grid])  # (number of ε, q, t)
    covariance = np.einsum("eqt,qt->e", gammas, own)
    variance = np.einsum("eqt,qr,ert->e", gammas, spread, gammas)
    return covariance, variance - 2 * covariance


def _leave_one_out(m: Moments, centre: Array) -> CrossFittedShare:
    """Leave-one-out cross-fitting of group means, from sums per group about `centre`."""
    n, p = m.effective_rows, m.mean("psi")
    sums, others = (
        m.covariance("psi", name) + np.outer(p, mean)
        for name, mean in (("phi", m.mean("phi") - centre), ("y", m.mean("y")))
    )  # of f − centre, of its square and of w, in each group, divided by Σw
    squares, weights = others[:, :-1], others[:, -1]
    rows = m.weight * p**2 / weights
    whole = _pair_mean(sums.sum(axis=0), squares.sum(axis=0), 1.0, n)
    groups = _pair_mean(sums, squares, p[:, None], rows[:, None])
    single = rows <= 1 + 1e-9
    if (alone := float(p[single].sum())) > MAX_ALONE:
        raise TooFineError(
            f"s: {alone:.0%} of the rows are alone in their group, so their group mean is not known",
            "merge rare levels, or leave identifiers out",
        )
    groups[single] = whole
    variance = (squares.sum(axis=0) - sums.sum(axis=0) ** 2) * n / (n - 1)
    share = share_of_variance(np.sum(p @ groups - whole), np.sum(variance), size_of_block(m))
    return CrossFittedShare(float(share), m, 0.0)


def _pair_mean(sums: Array, squares: Array, p: Any, rows: Any) -> Array:
    """Mean of f_i f_j over pairs i ≠ j of a group of so many rows, a share p of the weight."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((rows * sums**2 / p - squares) / (p * (rows - 1)))


def distributions_of_rows(features: FeaturePair, moments: Moments, **options: Any) -> list[ShareDistribution]:
    """Return the sampling distributions of the share, from the moments and some of the rows."""
    pair = features.pair
    chunk = pair.rows(ERROR_ROWS)
    rows = {"phi": whitened(features.phi, chunk.x), "psi": whitened(features.psi, chunk.s)}
    return share_distributions(moments, rows, chunk.weights, outputs=rows["phi"].shape[1], **options)


def share_interval(features: FeaturePair, estimate: CrossFittedShare, confidence: float) -> list[float]:
    """Return the share and the ends of its interval, in [0, 1]."""
    level, share = 0.5 + confidence / 2, float(np.clip(estimate.share, 0.0, 1.0))
    (found,) = distributions_of_rows(features, estimate.moments, epses=(estimate.eps,))
    found = replace(found, share=np.array([estimate.share]))
    low, high = float(found.lower(level)[0]), float(found.upper(level)[0])
    return [share, min(share, low), max(share, high)]
