"""Cross-validation of a general loss: the fits of all folds share their passes over the rows.

One pass at a common θ sums ΦᵀWΦ of each fold, and the second derivative of the rows outside a fold
is the sum of the others'. From there every fit of a grid takes Newton steps with that second
derivative and gradients of its own, all of them in the same passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.data.folds import Folds
from scalefair.data.sources.threads import one_blas_thread
from scalefair.held_out import ChanceRatio, held_out_shares, worst_of
from scalefair.moments import Moments
from scalefair.moments.curvature import FoldScores, LossSums, loss_sums
from scalefair.penalties import attribute
from scalefair.solve.limit import least_eta
from scalefair.solve.newton.model import Local, Problem, Slice, Weight
from scalefair.solve.ridge.path import Choice, FoldedMoments, GridScores, choose
from scalefair.solve.ridge.search import GridChoice, between
from scalefair.solve.ridge.system import System

# Decrease of J, in its natural size, that is not worth a pass for the fit of a fold: it moves the
# scores by less than a hundredth of their unit
TOLERANCE = 1e-5
MAX_PASSES = 15  # for the fits of one model, converged or not
MEMORY = 6  # changes of the gradient that correct a second derivative
SHORTER = 0.25  # what is left of a step that J does not fall along
NEAR = 1.5  # decades between the ridges of two fits that start from one model
# Weights to try, relative to the one that meets the limit on the training rows
AROUND_LIMIT = 10.0 ** np.array([-0.5, 0.0, 0.5, 1.0, 1.5, 2.5])
REFINED = 6  # how many more etas are tried beside the best one under a limit
CONSTANT = 1e12  # A ridge, in units of the largest one tried, that leaves only the constant


class Point(NamedTuple):
    """A ridge and a weight of the penalty."""

    alpha: float
    eta: float


@dataclass(frozen=True, eq=False)
class FoldProblem:
    """The objective of the rows outside each of K folds; the last part is that of all rows."""

    whole: Problem
    parts: tuple[Problem, ...]
    tested: Sequence[Moments]
    folds: Folds
    ratio: Callable[[int], ChanceRatio | None]

    @classmethod
    def build(
        cls, whole: Problem, folds: Folds, moments: FoldedMoments, system: Callable[[Moments], System]
    ) -> FoldProblem:
        """Return the objective; `system` reads R and the ridges off moments."""
        tested = moments.folds
        parts = [replace(whole, system=system(moments.outside(k))) for k in range(len(tested))]
        return cls(whole, (*parts, whole), tested, folds, moments.ratio)

    @property
    def left_out(self) -> NDArray[np.int64]:
        """The fold that each part leaves out; −1: none."""
        return np.array([*range(len(self.tested)), -1])

    @property
    def _weights(self) -> tuple[Array, Array]:
        """Weights of the folds and of the rows outside them; of all rows last."""
        outside = [part.system.moments.weight for part in self.parts]
        return np.array([*(fold.weight for fold in self.tested), np.nan]), np.array(outside)

    def evaluate(self, scores: FoldScores) -> LossSums:
        """Make one pass; return means of the values and gradients, sums of the curvatures."""
        whole, linear, theta = self.whole, self.whole.linear, scores.theta
        if linear is not None:  # f = zθ, of raw rows
            m = linear.shape[1]
            theta = np.concatenate([linear @ theta[:, :m], theta[:, m:]], axis=1)
        sums = loss_sums(
            whole.source, whole.frame, whole.loss, replace(scores, theta=theta), whole.rows, whole.cache, self.folds
        )
        sums = sums if linear is None else sums.transform(linear)
        inside, outside = (weights[scores.left_out] for weights in self._weights)
        gradient = sums.gradient / outside[:, None, None]
        return LossSums(sums.values / outside, gradient, sums.hessian, sums.held_out / inside)

    def models(self, theta: Array) -> FoldModels:
        """Return the data terms of all parts near one θ, by one pass."""
        left_out = self.left_out
        theta_of_all = np.repeat(theta[None], len(left_out), axis=0)
        sums, parts = self.evaluate(FoldScores(theta_of_all, left_out, curved=True)), []
        for k, gradient, value in zip(left_out, sums.gradient, sums.values, strict=True):
            # Added up, never subtracted from the total: that would cancel.
            hessian = sum(part for j, part in enumerate(sums.hessian) if j != k)
            mean = self.whole.of_scores(hessian / self._weights[1][k])
            parts.append(Local(theta, gradient, mean, float(value)))
        return FoldModels(self, tuple(parts), sums.held_out)

    @one_blas_thread()
    def shares(self, fits: Sequence[PointFit]) -> Array:
        """Held-out share of each fit in each fold, shape (K, G); NaN without attributes."""
        if attribute(self.tested[0]) is None:
            return np.full((len(self.tested), len(fits)), np.nan)
        t, system, folds = self.whole.loss.n_scores, self.whole.system, []
        m = len(system.ridge)
        for k, fold in enumerate(self.tested):
            coef = np.hstack([fit.theta[k][:m] for fit in fits])
            folds.append(held_out_shares(fold, system.features, coef, t, self.ratio(k)))
        return worst_of(folds)


class PointFit(NamedTuple):
    """The fits at one point: θ of each part (K + 1, p, k), held-out losses (K,), loss of all."""

    theta: Array
    losses: Array
    loss: float


@dataclass(frozen=True, eq=False)
class FoldModels:
    """Quadratic models of the data terms of all parts near one θ, and the held-out losses there."""

    problem: FoldProblem
    parts: tuple[Local, ...]
    held_out: Array

    def fit(self, points: Sequence[Point]) -> dict[Point, PointFit]:
        """Return the fits of all parts at some points, by a few passes."""
        problem, size = self.problem, self.parts[-1].theta.size
        tol = TOLERANCE * problem.whole.units(self.parts[-1])[1]
        with one_blas_thread(size):
            slices = {
                alpha: [Slice(*both, alpha) for both in zip(problem.parts, self.parts, strict=True)]
                for alpha in dict.fromkeys(point.alpha for point in points)
            }
            fits = [
                _Fit(problem.parts[k], self.parts[k], slice_, point, k, float(self.held_out[k]))
                for point in points
                for k, slice_ in enumerate(slices[point.alpha])
            ]
            for _ in range(MAX_PASSES):
                open_ = [fit for fit in fits if not fit.is_near(tol)]
                if not open_:
                    break
                theta = np.stack([fit.trial for fit in open_])
                left_out = problem.left_out[[fit.part for fit in open_]]
                sums = problem.evaluate(FoldScores(theta, left_out))
                for fit, *seen in zip(open_, sums.values, sums.gradient, sums.held_out, strict=True):
                    fit.see(*seen)
        K = len(problem.tested)
        by_point = {point: [fit for fit in fits if fit.point == point] for point in points}
        return {
            point: PointFit(np.stack([fit.theta for fit in of]), np.array([fit.loss for fit in of[:K]]), of[-1].value)
            for point, of in by_point.items()
        }


class _Fit:
    """The state of one minimisation: L-BFGS that starts from the second derivative of the model."""

    def __init__(  # noqa: PLR0917
        self, problem: Problem, local: Local, slice_: Slice, point: Point, part: int, loss: float
    ) -> None:
        self.point, self.part, self.loss, self.value = point, part, loss, local.value
        self.theta, self._problem, self._slice = local.theta, problem, slice_
        self._pairs: list[tuple[Array, Array]] = []
        # With η = ∞ there is nothing to compare with until Rᵀβ is 0.
        self._within = np.isfinite(point.eta) or problem.is_within(local.theta, Weight(point.eta))
        penalty = problem.penalty(local.theta, point.alpha, Weight(point.eta))
        self._objective = local.value + penalty if self._within else np.inf
        self._gradient = self._slope(local.theta, local.gradient)
        self.trial = slice_.about(local.theta, local.gradient, point.eta)

    def _slope(self, theta: Array, gradient: Array) -> Array:
        return (gradient + self._problem.slope(theta, *self.point)).ravel("F")

    def see(self, value: float, gradient: Array, held_out: float) -> None:
        """Move to what was tried if J is less there, else try less of the step."""
        penalty = self._problem.penalty(self.trial, self.point.alpha, Weight(self.point.eta))
        slack = 1e-12 * abs(self._objective) if self._within else 0.0
        if not value + penalty <= self._objective + slack:
            self.trial = self.theta + SHORTER * (self.trial - self.theta)
            return
        slope, step = self._slope(self.trial, gradient), (self.trial - self.theta).ravel("F")
        change = slope - self._gradient
        if self._within and step @ change > 0:
            self._pairs = [*self._pairs, (step, change)][-MEMORY:]
        self.theta, self._objective, self._gradient = self.trial, value + penalty, slope
        self._within, self.loss, self.value = True, float(held_out), float(value)
        self.trial = self.theta - self._slice.unflat(self._newton(slope))

    def _newton(self, slope: Array) -> Array:
        """Return the second derivative, corrected by the changes seen, inverse times a slope."""
        weights = []
        for step, change in reversed(self._pairs):
            weights.append(step @ slope / (step @ change))
            slope = slope - weights[-1] * change
        solved = self._slice.solve(slope, self.point.eta)
        for (step, change), weight in zip(self._pairs, reversed(weights), strict=True):
            solved = solved + (weight - change @ solved / (step @ change)) * step
        return solved

    def is_near(self, tol: float) -> bool:
        """Return True if the next step is not worth a pass."""
        step = (self.trial - self.theta).ravel("F")
        return self._within and bool(-self._gradient @ step <= 2 * tol)


@dataclass(frozen=True, eq=False)
class LossSearch(GridChoice):
    """The fits of a search; scores are NaN where a pair was not tried."""

    tried: dict[Point, PointFit]
    constant: PointFit | None  # there under a limit
    warm: Local  # a model near the fit of all rows that was chosen

    def listed(self) -> GridScores:
        """Return the scores of the fits in their order, of shape (K, 1, G)."""
        scores = self.scores[_positions(self.alphas, self.etas, self.tried)]
        return replace(scores, mse=scores.mse[:, None], share=scores.share[:, None])


def _positions(alphas: Array, etas: Array, points: Iterable[Point]) -> tuple[Any, Any]:
    alpha, eta = (np.array(column) for column in zip(*points, strict=True))
    return np.searchsorted(alphas, alpha), np.searchsorted(etas, eta)


class Trials:
    """What has been tried so far."""

    def __init__(self, problem: FoldProblem, unfairness: float | None) -> None:
        self.problem, self.unfairness = problem, unfairness
        self.fits: dict[Point, PointFit] = {}
        self.constant: PointFit | None = None

    def try_points(self, models: FoldModels, points: Sequence[Point]) -> None:
        """Fit the points that have not been tried."""
        new = [point for point in dict.fromkeys(points) if point not in self.fits]
        if new:
            self.fits |= models.fit(new)

    def table(self) -> tuple[Array, Array, GridScores]:
        """Return the ridges, the weights and the scores of all pairs, NaN where not tried."""
        alphas, etas = (np.unique(column) for column in zip(*self.fits, strict=True))
        losses, shares = np.full((2, len(self.problem.tested), len(alphas), len(etas)), np.nan)
        at = _positions(alphas, etas, self.fits)
        fits = list(self.fits.values())
        losses[:, *at] = np.stack([fit.losses for fit in fits], axis=1)
        shares[:, *at] = self.problem.shares(fits)
        constant = None if self.constant is None else self.constant.losses
        rows = sum(fold.effective_rows for fold in self.problem.tested)
        return alphas, etas, GridScores(losses, shares, rows, constant)

    def best(self) -> Point:
        """Return the best point so far, constants apart; the fairest where none is in the limit."""
        alphas, etas, scores = self.table()
        choice = choose(replace(scores, constant=None), etas, self.unfairness)
        if choice is None:
            sums = np.nan_to_num(scores.bounds(etas, self.unfairness or 0.0), nan=np.inf)
            alpha, eta = np.unravel_index(np.argmin(sums), sums.shape)
            choice = Choice(int(alpha), int(eta))
        return Point(float(alphas[choice.alpha]), float(etas[choice.eta]))

    def least_loss(self, eta: float) -> Point:
        """Return the ridge of least held-out loss at a weight."""
        tried = [point for point in self.fits if point.eta == eta]
        return min(tried, key=lambda point: float(self.fits[point].losses.mean()))


def search_loss(
    problem: FoldProblem, alphas: Array, etas: Array | None, unfairness: float | None, *, finer: bool
) -> LossSearch:
    """Return the best point: ridges at the least weight, then weights around the best ridge."""
    search, alphas = Trials(problem, unfairness), np.sort(alphas)
    start = np.inf if unfairness == 0 else 0.0 if etas is None else float(etas.min())
    models = _try_ridges(search, alphas, start)
    best = search.least_loss(start)
    slice_ = Slice(problem.whole, models.parts[-1], best.alpha)
    if unfairness == 0:
        etas = np.array([np.inf])
    elif etas is None:
        etas = _etas_around(slice_, unfairness)
    if unfairness is not None:
        constant = Point(CONSTANT * alphas.max(), 0.0)
        search.constant = models.fit([constant])[constant]
    if len(etas) > 1:
        inner = etas[(etas > 0) & np.isfinite(etas)]
        middle = float(inner[len(inner) // 2]) if len(inner) else start
        models = problem.models(slice_.thetas(middle)[0])
        search.try_points(models, [Point(best.alpha, eta) for eta in etas])
        models = _try_neighbours(search, models, alphas)
    if finer or unfairness:
        models = _refine(search, unfairness, finer=finer)
    alphas, etas, scores = search.table()
    choice = choose(scores, etas, unfairness)
    warm = models.parts[-1]
    return LossSearch(alphas, etas, scores, choice, search.fits, search.constant, warm)


def _try_ridges(search: Trials, alphas: Array, eta: float) -> FoldModels:
    """Try ridges from the largest on, until the held-out loss has clearly risen; two a model."""
    problem, left = search.problem, list(alphas[::-1])
    local = problem.whole.start()
    while True:
        near = [alpha for alpha in left[:2] if alpha * 10**NEAR >= left[0]]
        models = problem.models(Slice(problem.whole, local, near[-1]).thetas(eta)[0])
        search.try_points(models, [Point(alpha, eta) for alpha in near])
        local, left = models.parts[-1], left[len(near) :]
        best, last = search.least_loss(eta), Point(near[-1], eta)
        rise = search.fits[last].losses - search.fits[best].losses
        risen = rise.mean() > rise.std(ddof=1) / np.sqrt(len(rise))
        if not left or (last.alpha < best.alpha and risen):
            return models


@one_blas_thread()
def _etas_around(slice_: Slice, unfairness: float | None) -> Array:
    """0, weights about the one that meets the limit on the training rows, and ∞."""
    unit = 1.0 / max(slice_.strength.max(initial=0.0), np.finfo(float).tiny)
    met = None if unfairness is None else least_eta(slice_, unfairness)
    around = unit * np.logspace(-2, 4, 7) if not met or np.isinf(met) else met * AROUND_LIMIT
    return np.concatenate([[0.0], around, [np.inf]])


def _try_neighbours(search: Trials, models: FoldModels, alphas: Array) -> FoldModels:
    """Try the ridges beside the best one, at its weight and those beside it, while that pays."""
    problem = search.problem
    while True:
        point, etas = search.best(), np.unique([eta for _, eta in search.fits])
        at, of = (int(np.searchsorted(*both)) for both in ((alphas, point.alpha), (etas, point.eta)))
        beside = [alphas[i] for i in (at - 1, at + 1) if 0 <= i < len(alphas)]
        new = [alpha for alpha in beside if Point(alpha, point.eta) not in search.fits]
        if not new:
            return models
        for alpha in new:
            slice_ = Slice(problem.whole, models.parts[-1], alpha)
            models = problem.models(slice_.thetas(point.eta)[0])
            near = etas[max(of - 1, 0) : of + 2]
            search.try_points(models, [Point(alpha, eta) for eta in near])


def _refine(search: Trials, unfairness: float | None, *, finer: bool) -> FoldModels:
    """Try more about the best point: weights below it under a limit, then ridges beside it."""
    point = search.best()
    models = search.problem.models(search.fits[point].theta[-1])
    etas = np.unique([eta for _, eta in search.fits])
    if unfairness and point.eta > 0:
        more = between(etas, int(np.searchsorted(etas, point.eta)), REFINED)
        etas = np.union1d(etas, more)
        search.try_points(models, [Point(point.alpha, eta) for eta in etas[etas <= point.eta]])
        point = search.best()
    if finer:
        at = int(np.searchsorted(etas, point.eta))
        near = etas[max(at - 1, 0) : at + 2] if unfairness else etas[at : at + 1]
        alphas = point.alpha * 10.0 ** np.array([-0.5, 0.5])
        search.try_points(models, [Point(alpha, eta) for alpha in alphas for eta in near])
    return models
