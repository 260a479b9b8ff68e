"""The search of `FairKernelRidgeCV`: (α, η) on the grid, ε and the ridge ratio around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair import penalties
from scalefair._typing import Array, Chunk
from scalefair.data.folds import Folds
from scalefair.data.sources import ArraySource
from scalefair.data.sources.threads import run_each
from scalefair.features.design import Design
from scalefair.features.training import Training
from scalefair.held_out import MARGIN, NO_SHARE, ChanceRatio, ShareEstimate
from scalefair.moments import Moments
from scalefair.moments.partial import CALIBRATIONS, DEFAULT, Calibration
from scalefair.penalties import attribute, chance_of, group_counts
from scalefair.solve.ridge import path
from scalefair.solve.ridge.path import Choice, FoldedMoments, FoldFits, GridScores, Spectrum, choose
from scalefair.solve.ridge.system import System

REFINE = 16  # how many more etas are tried beside the best one under a limit
ROUGH_STEP = 1.5  # ratio of the etas among which that one is guessed
# Arguments of `System.build` for a ridge ratio and an ε
NOT_SCORED = GridScores(np.empty(0), np.empty(0))
Options = Callable[[float, float | None], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class GridChoice:
    """A cross-validated grid, and the point chosen on it; no `choice`: a constant prediction."""

    alphas: Array
    etas: Array
    scores: GridScores
    choice: Choice | None

    @property
    def alpha(self) -> float:
        """The chosen α; the largest for a constant."""
        return float(self.alphas.max() if self.choice is None else self.alphas[self.choice.alpha])

    @property
    def eta(self) -> float:
        """The chosen η; ∞ for a constant."""
        return np.inf if self.choice is None else float(self.etas[self.choice.eta])

    @property
    def mse(self) -> float:
        """Held-out error of the choice; ∞ where there is none."""
        if self.choice is None:
            return np.inf
        return float(self.scores.mse[:, self.choice.alpha, self.choice.eta].mean())

    @property
    def share(self) -> ShareEstimate:
        """Held-out share of the choice; NaN for a constant, which has none."""
        if self.choice is None:
            return NO_SHARE
        return self.scores.estimate[self.choice]


@dataclass(frozen=True, eq=False)
class SearchResult(GridChoice):
    """The grid at one ε and one ridge ratio of ψ(s) to α, with the fits of the folds."""

    eps: float | None
    ratio: float
    fits: FoldFits
    calibration: Calibration = DEFAULT  # where rows lack s


def search(
    moments: FoldedMoments, options: Options, *, alphas: Array, etas: Array,
    epses: Sequence[float | None], ratios: Sequence[float], unfairness: float | None,
) -> SearchResult:  # fmt: skip
    """Return the best point by held-out error; without a limit, the ε with the least held-out share is taken."""
    if unfairness == 0:
        # η = ∞ leaves the same predictors whatever ε, and whatever the penalty but `nocco`.
        etas, epses = np.union1d(etas, [np.inf]), epses[:1]
    results = []
    for eps in epses:
        tried = []
        for ratio in ratios:
            own = options(ratio, eps)
            fits = FoldFits(moments, rescaled=unfairness is not None, **own)
            result = SearchResult(alphas, etas, NOT_SCORED, None, own["eps"], ratio, fits)
            tried.append(_chosen(result, unfairness))
        results.append(min(tried, key=lambda result: result.mse))
    if unfairness is None:
        return min(results, key=lambda result: float(np.nan_to_num(result.share.value, nan=np.inf)))
    best = min(results, key=lambda result: result.mse)
    return _search_calibrations(best, moments, options, unfairness)


def _search_calibrations(
    best: SearchResult, moments: FoldedMoments, options: Options, unfairness: float
) -> SearchResult:
    """Return the best point over λ and τ, searched along η at the best α, ε and ratio so far."""
    if moments.total.judged is moments.total or best.choice is None:
        return best
    penalty = options(best.ratio, best.eps)["penalty"]

    def at(calibration: Calibration, alphas: Array) -> SearchResult:
        fits = best.fits.calibrated(calibration, penalty, best.eps)
        result = replace(best, fits=fits, alphas=alphas, calibration=calibration)
        return _chosen(result, unfairness, refine=False)

    tried = [at(calibration, np.array([best.alpha])) for calibration in CALIBRATIONS]
    winner = min(tried, key=lambda result: result.mse)
    return best if winner.mse >= best.mse else at(winner.calibration, best.alphas)


def _chosen(result: SearchResult, unfairness: float | None, *, refine: bool = True) -> SearchResult:
    """Return the result with the scores of its grid, and the best point on it."""
    alphas, etas, fits = result.alphas, result.etas, result.fits
    scores = fits.score(alphas, etas)
    if unfairness and refine:
        rough, rough_etas = scores.finer(etas, ROUGH_STEP)
        guess = choose(rough, rough_etas, unfairness)
        if guess is not None and guess.eta > 0:
            more = between(etas, int(np.searchsorted(etas, rough_etas[guess.eta])))
            # Points that are there already keep their scores.
            etas, order = np.unique(np.concatenate([etas, more]), return_index=True)
            scores = scores.beside(fits.score(alphas, more), order)
    scores = replace(scores, constant=fits.constant_errors())
    choice = choose(scores, etas, unfairness)
    return replace(result, etas=etas, scores=scores, choice=choice)


def between(etas: Array, chosen: int, count: int = REFINE) -> Array:
    """More etas, between the chosen one and the next smaller of those, which are sorted."""
    low, high = etas[chosen - 1], etas[chosen]
    if np.isinf(high):
        high = 1e4 * low if low > 0 else 1e4
    low = low if low > 0 else 1e-3 * high
    return np.geomspace(low, high, count + 2)[1:-1]


def check_folds(folds: Sequence[Moments], names: Sequence[str]) -> None:
    """Raise ValueError if a fold is too small; warn of groups with under two rows in a fold."""
    counts = np.array([group_counts(fold) for fold in folds])
    total = counts.sum(axis=0)
    small = np.flatnonzero((total > 0.5) & (counts.min(axis=0, initial=np.inf) < 1.5))
    if max(chance_of(fold) for fold in folds) >= 1:
        fold = int(np.argmax([chance_of(fold) for fold in folds]))
        raise ValueError(
            f"fold {fold} of cv is too small to measure the held-out share on: its "
            f"{folds[fold].n_rows} rows are no more than the degrees of freedom of the best "
            f"function of the sensitive attributes{_named(small, names, total)}; use fewer folds, "
            "merge rare groups, use fewer n_sensitive_components, or give more rows"
        )
    if len(small):
        absent = " (in some fold there is none)" if counts[:, small].min() < 0.5 else ""
        warnings.warn(
            "groups too small to measure the share of in every fold"
            f"{_named(small, names, total)}{absent}; merge them with others, use fewer folds, or "
            "give more rows",
            UserWarning,
            stacklevel=2,
        )


def _named(groups: Any, names: Sequence[str], counts: Array, most: int = 8) -> str:
    """The smallest groups with the rows they have."""
    if not len(groups):
        return ""
    order = groups[np.argsort(counts[groups], kind="stable")]
    parts = [f"{names[g]} ({counts[g]:.0f} rows)" for g in order[:most]]
    more = f" and {len(order) - most} more" if len(order) > most else ""
    return ": " + ", ".join(parts) + more


def warn_of_constant(scores: GridScores, etas: Array, unfairness: float) -> None:
    """Warn that the prediction is a constant, and why."""
    least = float(np.nanmin(scores.bounds(etas, unfairness), initial=np.inf))
    reason = (
        "every fit does, for example because y is constant"
        if np.isinf(least)
        else "no fit within the limit has less held-out error than a constant"
        if least <= unfairness or unfairness == 0
        else f"the least held-out share, plus {MARGIN:g} standard errors, is {least:.3g}"
    )
    warnings.warn(
        f"unfairness={unfairness:g}: the model predicts a constant, since {reason}; raise the "
        "limit, or give more rows, or more or other features",
        UserWarning,
        stacklevel=2,
    )


def training_columns(system: System, alphas: Array, etas: Array) -> dict[str, Array]:
    """Error and dependence on the training rows, for each point of the grid."""
    B, t = path.grid(Spectrum.of(system), alphas, etas), system.target.shape[1]
    moments = system.moments
    variance = penalties.variance_of(moments, system.features, B).reshape(-1, t)
    errors = path.squared_errors(system, B, variance, moments)
    spread = np.diagonal(moments.covariance("y", "y"))
    explained = np.sum((system.share_factor.T @ B) ** 2, axis=0).reshape(-1, t).sum(axis=1)
    if "psi" in moments.blocks:  # |C_ψf|²: HSIC with a linear kernel on f
        hsic = np.sum((penalties.hsic(moments, 0.0, system.features).T @ B) ** 2, axis=0)
    else:
        explained, hsic = np.full_like(explained, np.nan), np.full(B.shape[1], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = (1 - errors / spread).mean(axis=1)
    return {
        "mse": errors.mean(axis=1),
        "r2": r2,
        "explained_share": penalties.share_of_variance(
            explained,
            penalties.variance_of(moments.judged, system.features, B).reshape(-1, t).sum(axis=1),
            penalties.size_of_block(moments, "y"),
        ),
        "hsic": hsic.reshape(-1, t).sum(axis=1),
    }


def chance_ratios(training: Training, design: Design, folds: Folds, tested: Sequence[Moments]) -> list[ChanceRatio]:
    """Return how chance depends on where f varies, from a sample of the rows that have s."""
    if attribute(tested[0]) is None or tested[0].is_expected:
        return []
    sample, base = training.sample, training.base
    if base is not None and isinstance(training.given, ArraySource):  # ĥ of rows not seen
        sample = training.source.sample(sample.n_rows, training.seed)
    elif base is not None:
        sample = replace(sample, h=base.join(training.split_sample).h)
    return ratios_of(design, sample, folds.of_rows(training.sample_rows), tested)


def ratios_of(design: Design, sample: Chunk, fold: NDArray[np.int64], tested: Sequence[Moments]) -> list[ChanceRatio]:
    """Return the ratio of each fold from a sample of the rows, and the fold of each."""
    rows = design.block_rows(sample)

    def of_fold(k: int) -> ChanceRatio:
        at = np.flatnonzero((fold == k) & ~np.isnan(rows["psi"]).any(axis=1))
        own = {name: part[at] for name, part in rows.items()}
        return ChanceRatio.of(tested[k].judged, design.features, own, sample.weights[at])

    return run_each(of_fold, len(tested))
