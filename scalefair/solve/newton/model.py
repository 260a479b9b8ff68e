"""The objective of a general loss, its quadratic model at a point, and the model's fits for all η.

J(θ) = 1/n ΣV(zθ, y) + α βᵀDβ + η|Rᵀβ|², z = [Φ − mean, 1], θ = [β, b]: b is not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag, null_space

from scalefair._linalg import add_outer, factorize
from scalefair._typing import Array
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design
from scalefair.moments import Moments
from scalefair.moments.accumulate import FeatureCache
from scalefair.moments.curvature import Along, RowFrame, loss_sums
from scalefair.solve.fit import LossFit, Spec, diagnose
from scalefair.solve.limit import Quadratic, path_shares
from scalefair.solve.ridge.system import Directions, Solution, System, gain, spread


@dataclass(frozen=True, eq=False)
class Local:
    """The data term 1/n ΣV near θ: its gradient (p, k) and second derivative (kp, kp) there."""

    theta: Array
    gradient: Array
    hessian: Array
    value: float = float("nan")  # NaN where no pass has evaluated it
    exact: bool = True  # False: an approximate gradient to start from


class Weight(NamedTuple):
    """The weight η of the penalty; with a `limit` u, μ of the excess |Rᵀβ|² − uβᵀCβ over it."""

    eta: float
    limit: float | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """All but α and η: the rows, y as the loss wants it, how they are mapped, and the loss V."""

    source: ChunkSource
    design: Design
    loss: Any
    system: System
    rows: int | None = None
    cache: FeatureCache | None = None  # of features between passes, that for the moments included
    linear: Array | None = field(init=False)  # the linear part of φ, where the rows go without
    frame: RowFrame = field(init=False)  # how rows become z, shifted by the mean of Φ
    metric: Array = field(init=False)  # the mean of zzᵀ
    scale: float = field(init=False)  # the unit of f
    factor: Array = field(init=False)  # R of one score's θ: zero for the intercept

    def __post_init__(self) -> None:
        system, design = self.system, self.design
        linear = None if design.whiten_rows else design.phi.linear_
        mean, width = system.mean * system.fit_intercept, system.moments.blocks["phi"]
        phi = mean[:width]
        if linear is not None:
            # The least raw vector that the linear part maps to the mean.
            inner = linear.T @ linear
            phi = linear @ factorize((inner + inner.T) / 2).solve(phi)
        shift = np.concatenate([phi, mean[width:]])
        frame = RowFrame(design, system.features[1:], system.fit_intercept, shift)
        metric = block_diag(system.gram, np.eye(1)) if system.fit_intercept else system.gram
        scale = float(self.loss.scale(system.moments.mean("y"), spread(system)))
        factor = np.pad(system.factor, ((0, int(system.fit_intercept)), (0, 0)))
        self.__dict__.update(linear=linear, frame=frame, metric=metric, scale=scale, factor=factor)

    def solution(self, theta: Array) -> Solution:
        """β and the intercept of uncentred features."""
        if not self.system.fit_intercept:
            return Solution(theta, np.zeros(theta.shape[1]))
        return Solution(theta[:-1], theta[-1] - self.system.mean @ theta[:-1])

    def share(self, theta: Array) -> float:
        """Explained share of the scores."""
        return self.system.explained_share(theta[: len(self.system.ridge)])

    def fit(self, result: Any, spec: Spec) -> LossFit:
        """Return the fit of a `NewtonFit`."""
        coef, intercept = self.solution(result.theta)
        matrix = self.ridged(result.local.hessian, spec.alpha)  # of the last Newton step
        return LossFit(
            coef, intercept, result.eta, self.system.explained_share(coef),
            diagnose(matrix, self.system.gram, rounding=spec.rounding),
            mean_loss=result.local.value, n_iter=result.n_iter, n_passes=result.n_passes,
        )  # fmt: skip

    def ridged(self, hessian: Array, alpha: float) -> Array:
        """Second derivative of the data term and the ridge."""
        p, k = len(self.metric), self.loss.n_scores
        ridge = np.zeros(p)
        ridge[: len(self.system.ridge)] = 2.0 * alpha * self.system.ridge
        matrix = hessian.copy()
        matrix[np.diag_indices(k * p)] += np.tile(ridge, k)
        return matrix

    def penalty(self, theta: Array, alpha: float, weight: Weight) -> float:
        """α βᵀDβ + η|Rᵀβ|², without the last part at η = ∞; along a limit 2|μ · excess|, exact."""
        beta = theta[: len(self.system.ridge)]
        ridge = alpha * float(self.system.ridge @ np.sum(beta**2, axis=1))
        punished = self.punished(beta, weight)
        return ridge + (punished if weight.limit is None else 2 * abs(punished))

    def punished(self, beta: Array, weight: Weight) -> float:
        """η|Rᵀβ|², or μ times the excess |Rᵀβ|² − uβᵀCβ over a limit u."""
        if weight.eta == 0 or np.isinf(weight.eta):
            return 0.0
        if weight.limit is None:
            return weight.eta * float(np.sum((self.system.factor.T @ beta) ** 2))
        explained = np.sum((self.system.share_factor.T @ beta) ** 2)
        variance = np.sum(beta * (self.system.covariance @ beta))
        return weight.eta * float(explained - weight.limit * variance)

    def slope(self, theta: Array, alpha: float, eta: float) -> Array:
        """Gradient of α βᵀDβ + η|Rᵀβ|², shape (p, k); with η = ∞ that of the ridge alone."""
        beta, factor = theta[: len(self.system.ridge)], self.system.factor
        slope = np.zeros_like(theta)
        slope[: len(beta)] = 2.0 * alpha * self.system.ridge[:, None] * beta
        if np.isfinite(eta):
            slope[: len(beta)] += 2.0 * eta * (factor @ (factor.T @ beta))
        return slope

    def is_within(self, theta: Array, weight: Weight) -> bool:
        """Return True if θ obeys Rᵀβ = 0, as η = ∞ requires."""
        beta = theta[: len(self.system.ridge)]
        factor = self.system.factor if weight.limit is None else self.system.share_factor
        size = np.sum(factor**2) * np.sum(beta**2)
        return bool(np.sum((factor.T @ beta) ** 2) <= 1e-18 * size)

    def units(self, local: Local) -> tuple[float, float]:
        """The mean curvature κ of the model, and the natural size of J: κ/2 (unit of f)²."""
        size = self.loss.n_scores * np.trace(self.metric)  # 0 where all inputs are 0
        mean = float(np.trace(local.hessian)) / size if size > 0 else 0.0
        curvature = float(mean) if mean > 0 else 1.0
        return curvature, curvature / 2 * self.scale**2

    def start(self) -> Local:
        """The data term near its best constant, from the moments; or near 0, by a pass."""
        theta = np.zeros((len(self.metric), self.loss.n_scores))
        start = None
        if self.system.fit_intercept:
            start = self.loss.start(self.system.moments.mean("y"))
        if start is None:
            return self.evaluate(theta)[0]
        theta[-1] = start.intercept
        gradient = np.zeros_like(theta)
        gradient[:-1] = self.system.target @ start.slope
        D = self.loss.directions
        hessian = np.kron((D.T * start.curvature) @ D, self.metric)
        return Local(theta, gradient, hessian, exact=start.exact)

    def evaluate(
        self, theta: Array, before: Local | None = None, steps: tuple[float, ...] = (), *, light: bool = False
    ) -> tuple[Local, Array]:
        """Make one pass; return the data term near θ, and its value on the steps to it.

        A light pass does not sum ΦᵀWΦ, but corrects that of `before` by the change of gradients.
        """
        end, start, linear = theta, theta if before is None else before.theta, self.linear
        if linear is not None:  # f = zθ, of raw rows
            m = linear.shape[1]
            end, start = (np.concatenate([linear @ at[:m], at[m:]]) for at in (end, start))
        along = Along(end, start, steps, not light)
        sums = loss_sums(self.source, self.frame, self.loss, along, self.rows, self.cache)
        if linear is not None:
            sums = sums.transform(linear)
        n = self.system.moments.weight
        values, gradient = sums.values / n, sums.gradient[0] / n
        if light and before is not None:
            hessian = _corrected(before, theta, gradient)
        else:
            hessian = self.of_scores(sums.hessian[0] / n)
        return Local(theta, gradient, hessian, float(values[0])), values[1:]

    def of_scores(self, parts: Array) -> Array:
        """Σⱼ dⱼdⱼᵀ ⊗ Sⱼ, the second derivative in all scores, of parts S of shape (j, p, p)."""
        D, (p, k) = self.loss.directions, (parts.shape[1], self.loss.n_scores)
        whole = np.tensordot(np.einsum("ja,jb->jab", D, D), parts, axes=(0, 0))
        return np.ascontiguousarray(whole.transpose(0, 2, 1, 3)).reshape(k * p, k * p)


def _corrected(before: Local, theta: Array, gradient: Array) -> Array:
    """BFGS: the second derivative of `before` that maps the way to θ to the change of gradient."""
    way, change = (theta - before.theta).ravel("F"), (gradient - before.gradient).ravel("F")
    image = before.hessian @ way
    curved, expected = float(way @ change), float(way @ image)
    if not curved > 1e-8 * expected > 0:  # NaN, or rounding error
        return before.hessian
    hessian = before.hessian.copy()
    add_outer(hessian, change, change / curved)
    add_outer(hessian, image, -image / expected)
    return hessian


def mean_curvature(loss: Any, moments: Moments, y: Array) -> float:
    """κ = tr V″ / k at the best constant, or at f = 0 on some y for a loss without a start."""
    start = loss.start(moments.mean("y"))
    if start is None:
        one = loss.n_scores == 1, loss.n_targets == 1
        f = np.zeros(len(y)) if one[0] else np.zeros((len(y), loss.n_scores))
        curved = loss.curvature(f, y[:, 0] if one[1] else y).reshape(len(y), -1).mean(axis=0)
    else:
        curved = start.curvature
    D = np.atleast_2d(loss.directions)
    kappa = float(curved @ (D**2).sum(axis=1)) / loss.n_scores
    return kappa if 0 < kappa < np.inf else 1.0


class Slice:
    """θ(η) = ridge − vectors · gain(2η, strength) · along: the model's minimisers at one α.

    `damping` times the metric is added to the second derivative. All scores of θ are one vector.
    """

    def __init__(self, problem: Problem, local: Local, alpha: float, damping: float = 0.0) -> None:
        self._problem, self._local, self._shape = problem, local, local.theta.shape
        curved = local.hessian
        if damping > 0:
            curved = curved + np.kron(np.eye(self._shape[1]), damping * problem.metric)
        self._matrix = problem.ridged(curved, alpha)
        self._factor = factorize(self._matrix)
        right = curved @ local.theta.ravel("F") - local.gradient.ravel("F")
        self.ridge = self._factor.solve(right)

    def _of_scores(self, part: Array, corner: Array) -> Array:
        """Return a matrix of one score's β as that of all scores, intercepts included."""
        whole = block_diag(part, corner) if self._problem.system.fit_intercept else part
        return np.asarray(np.kron(np.eye(self._shape[1]), whole), dtype=np.float64)

    @cached_property
    def _directions(self) -> Directions:
        factor = np.asarray(np.kron(np.eye(self._shape[1]), self._problem.factor), np.float64)
        return Directions.of(factor, self._factor.solve(factor), self.ridge)

    @property
    def strength(self) -> Array:
        """RᵀA⁻¹R in its eigenbasis."""
        return self._directions.strength

    def thetas(self, *etas: float) -> Array:
        """θ for each η, shape (E, p, k)."""
        p, k = self._shape
        if not any(etas) or self._problem.system.factor.shape[1] == 0:
            thetas = np.tile(self.ridge, (len(etas), 1))
        else:
            vectors, strength, along = self._directions
            thetas = self.ridge - (gain(2.0 * np.array(etas), strength) * along) @ vectors.T
        return np.asarray(thetas.reshape(-1, k, p).transpose(0, 2, 1))

    def about(self, theta: Array, gradient: Array, eta: float) -> Array:
        """θ at one η of the model with this second derivative, and a gradient seen at `theta`."""
        right = self._local.hessian @ theta.ravel("F") - gradient.ravel("F")
        return self.unflat(self.solve(right, eta))

    def solve(self, vector: Array, eta: float) -> Array:
        """(A + 2ηRRᵀ)⁻¹v; with η = ∞ nothing of it goes along the penalty."""
        solved = self._factor.solve(vector)
        if eta == 0 or self._problem.system.factor.shape[1] == 0:
            return solved
        vectors, strength, _ = self._directions  # A⁻¹R, so that RᵀA⁻¹v = (A⁻¹R)ᵀv
        return np.asarray(solved - vectors @ (gain(2.0 * eta, strength) * (vectors.T @ vector)))

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach: the intercepts are none of them."""
        return int(len(self._problem.system.factor) * self._shape[1])

    def shares(self, etas: Array) -> Array:
        """Explained share of the scores for each η; NaN where f is constant."""
        system = self._problem.system
        at = self.thetas(0.0, *np.atleast_1d(etas))
        return path_shares(system.share_factor, system.deviation, at[:, : len(system.factor)])

    def quadratic(self) -> Quadratic:
        """Return the model with its ridge, all scores in one vector."""
        system = self._problem.system
        factor = self._of_scores(system.share_factor, np.zeros((1, 0)))
        covariance = self._of_scores(system.covariance, np.zeros((1, 1)))
        return Quadratic(self._matrix, (self._matrix @ self.ridge)[:, None], factor, covariance)

    def along_limit(self, weight: Weight) -> tuple[Array, Weight]:
        """Return Newton's step to the optimum on the limit e(θ) = θᵀMθ = 0, and its multiplier.

            [A + 2μM  a] [d ]     [∇J]
            [aᵀ       0] [μ'] = − [e ],   a = ∇e = 2Mθ,   d = −ea/|a|² + Zz,   Zᵀa = 0

        ZᵀBZ gets the absolute values of its eigenvalues: J falls along such a step, too.
        """
        model, theta = self.quadratic(), self._local.theta.ravel("F")
        M = model.share_factor @ model.share_factor.T - (weight.limit or 0.0) * model.covariance
        slope, a = self._matrix @ theta - model.target[:, 0], 2 * M @ theta
        B = self._matrix + 2 * weight.eta * M
        d = -(theta @ M @ theta) / (a @ a) * a
        Z = null_space(a[None])
        values, turn = np.linalg.eigh(Z.T @ B @ Z)
        turn, values = Z @ turn, np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
        d = d - turn @ ((turn.T @ (slope + B @ d)) / values)
        multiplier = float(-(a @ (slope + B @ d)) / (a @ a))
        # Along a, as little as possible, to where θᵀMθ = 0, if that is anywhere.
        to = theta + d
        roots = np.roots([a @ M @ a, 2 * (a @ M @ to), to @ M @ to])
        real = roots[np.isreal(roots)].real
        to = to + real[np.argmin(np.abs(real))] * a if len(real) else to
        return self.unflat(to), Weight(abs(multiplier), weight.limit)

    def unflat(self, vector: Array) -> Array:
        """θ of shape (p, k) from all scores in one vector."""
        return vector.reshape(self._shape, order="F")

    def decrement(self, theta: Array, weight: Weight) -> float:
        """stepᵀ(A + 2ηRRᵀ)step: twice the decrease of J that the model promises."""
        problem, step = self._problem, theta - self._local.theta
        vector, m = step.ravel("F"), len(problem.system.ridge)
        curved = float(vector @ self._matrix @ vector)
        curved += 2.0 * problem.punished(step[:m], weight)
        if weight.limit is None:
            return curved
        return abs(curved) + 2.0 * abs(problem.punished(self._local.theta[:m], weight))
