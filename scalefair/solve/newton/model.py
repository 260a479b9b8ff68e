"""The objective of a general loss, its quadratic model at a point, and the model's fits for all η.

J(θ) = 1/n ΣV(zθ, y) + α βᵀDβ + η|Rᵀβ|², z = [Φ − mean, 1], θ = [β, b]: b is not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalefair._linalg import add_outer, solve_spd
from scalefair._typing import Array, Source
from scalefair.features.design import Design
from scalefair.moments.accumulate import FeatureCache
from scalefair.moments.curvature import Along, RowFrame, loss_sums
from scalefair.solve.diagnostics import Diagnostics, diagnose, rounding_of
from scalefair.solve.fit import LossFit, Spec
from scalefair.solve.ridge.system import Solution, System


@dataclass(frozen=True, eq=False)
class Local:
    """The data term 1/n ΣV near θ.

    Parameters
    ----------
    theta, gradient : arrays of shape (p, k)
        Where, and the gradient there.
    hessian : array of shape (kp, kp)
        Second derivative, score by score.
    value : float
        NaN where it is not known.
    exact : bool
        Whether the gradient is that of the data term, and not a guess to start from.
    """

    theta: Array
    gradient: Array
    hessian: Array
    value: float = float("nan")
    exact: bool = True


class Weight(NamedTuple):
    """The weight η of the penalty; with a `limit` u, μ of the excess |Rᵀβ|² − uβᵀCβ over it."""

    eta: float
    limit: float | None = None

    @property
    def reported(self) -> float:
        """η: ∞ where no η of the path meets the limit."""
        return self.eta if self.limit is None else np.inf


@dataclass(frozen=True, eq=False)
class Problem:
    """All but α and η: the rows, how they are mapped, the loss, and the penalty's factor.

    Parameters
    ----------
    source : Source
        Numeric rows, y as the loss wants it.
    design : Design
        The maps, which made the moments too.
    loss : Loss
        V.
    system : System
        Of the moments: mean and covariance of Φ, R, the relative ridges D.
    rows : int or None
        Rows per chunk.
    kept : FeatureCache or None
        Where features are kept between passes, that for the moments included.
    """

    source: Source
    design: Design
    loss: Any
    system: System
    rows: int | None = None
    kept: FeatureCache | None = None

    @property
    def intercept(self) -> bool:
        """Whether f has one."""
        return self.system.fit_intercept

    @cached_property
    def linear(self) -> Array | None:
        """The linear part of φ, where the rows go without."""
        return None if self.design.whiten_rows else self.design.phi.linear_

    @cached_property
    def frame(self) -> RowFrame:
        """How rows become z; the shift is the mean of Φ, taken back through the linear part."""
        mean = self.system.mean * self.intercept
        width = self.system.moments.blocks["phi"]
        phi = mean[:width]
        if self.linear is not None:
            # The least raw vector that the linear part maps to the mean.
            inner = self.linear.T @ self.linear
            phi = self.linear @ solve_spd((inner + inner.T) / 2, phi).solution
        shift = np.concatenate([phi, mean[width:]])
        return RowFrame(self.design, self.system.features[1:], self.intercept, shift)

    @cached_property
    def metric(self) -> Array:
        """Mean of zzᵀ: the second derivative of a loss of curvature 1."""
        return self._with_intercept(self.system.gram, 1.0)

    def _with_intercept(self, matrix: Array, corner: float) -> Array:
        if not self.intercept:
            return matrix
        m = len(matrix)
        whole = np.zeros((m + 1, m + 1))
        whole[:m, :m], whole[m, m] = matrix, corner
        return whole

    def beta(self, theta: Array) -> Array:
        """The coefficients within θ."""
        return theta[:-1] if self.intercept else theta

    def solution(self, theta: Array) -> Solution:
        """β and the intercept of uncentred features."""
        beta = self.beta(theta)
        intercept = theta[-1] - self.system.mean @ beta if self.intercept else np.zeros(len(beta.T))
        return Solution(beta, intercept)

    def share(self, theta: Array) -> float:
        """Explained share of the scores."""
        return self.system.explained_share(self.beta(theta))

    def diagnosed(self, local: Local, spec: Spec) -> Diagnostics:
        """Return what rounding has left of the solution of the last Newton step."""
        matrix = ridged_hessian(self, local.hessian, local.theta.shape, spec.alpha)
        rounding = rounding_of(spec.dtype, self.system.moments.n_rows)
        return diagnose(matrix, self.system.gram, rounding=rounding)

    def fit(self, result: Any, spec: Spec) -> LossFit:
        """Return the fit of a `NewtonFit`."""
        coef, intercept = self.solution(result.theta)
        return LossFit(
            coef, intercept, result.eta, self.share(result.theta),
            self.diagnosed(result.local, spec), mean_loss=result.local.value,
            n_iter=result.n_iter, n_passes=result.n_passes,
        )  # fmt: skip

    def penalty(self, theta: Array, alpha: float, weight: Weight) -> float:
        """α βᵀDβ + η|Rᵀβ|²; with η = ∞ the last part is held.

        Along a limit it is twice |μ · excess|, as an exact penalty: no step that leaves the limit
        further than it lowers J is taken.
        """
        beta = self.beta(theta)
        ridge = alpha * float(self.system.ridge @ np.sum(beta**2, axis=1))
        punished = self.punished(beta, weight)
        return ridge + (punished if weight.limit is None else 2 * abs(punished))

    def punished(self, beta: Array, weight: Weight) -> float:
        """η|Rᵀβ|², or μ times the excess |Rᵀβ|² − uβᵀCβ over a limit u."""
        if weight.eta == 0 or np.isinf(weight.eta):
            return 0.0
        if weight.limit is None:
            return weight.eta * float(np.sum((self.system.factor.T @ beta) ** 2))
        explained = float(np.sum((self.system.share_factor.T @ beta) ** 2))
        return weight.eta * (explained - weight.limit * self.system.variance(beta))

    def is_within(self, theta: Array, weight: Weight) -> bool:
        """Return True if θ obeys Rᵀβ = 0 where η = ∞ asks for it."""
        beta = self.beta(theta)
        factor = self.system.factor if weight.limit is None else self.system.share_factor
        explained = np.sum((factor.T @ beta) ** 2)
        size = np.sum(factor**2) * np.sum(beta**2)
        return bool(np.isfinite(weight.eta) or explained <= 1e-18 * size)

    def mean_curvature(self, local: Local) -> float:
        """The curvature of a loss that is as curved as the model everywhere."""
        found = float(np.trace(local.hessian) / (self.loss.n_scores * np.trace(self.metric)))
        return found if found > 0 else 1.0

    def unit(self, local: Local) -> float:
        """The natural size of J: half the mean curvature times the square of the unit of f."""
        return self.mean_curvature(local) / 2 * self.scale**2

    @property
    def scale(self) -> float:
        """The unit of f."""
        return float(self.loss.scale(self.system.moments.mean("y"), spread(self.system)))

    def start(self) -> Local | None:
        """The data term near its best constant, from the moments; None where a pass must tell.

        Where all scores are equal every row has the same curvature, so that the first Newton step
        needs nothing but C_φ and C_φy.
        """
        found = self.loss.start(self.system.moments.mean("y")) if self.intercept else None
        if found is None:
            return None
        theta = np.zeros((len(self.metric), self.loss.n_scores))
        theta[-1] = found.intercept
        gradient = np.zeros_like(theta)
        gradient[:-1] = self.system.target @ found.slope
        D = self.loss.directions
        hessian = np.kron((D.T * found.curvature) @ D, self.metric)
        return Local(theta, gradient, hessian, exact=found.exact)

    def evaluate(
        self, theta: Array, before: Local, steps: tuple[float, ...] = (), *, light: bool = False
    ) -> tuple[Local, Array]:
        """Make one pass; return the data term near θ, and its value on the steps to it.

        A light pass sums no ΦᵀWΦ: the second derivative is that of `before`, corrected along the
        way to θ by what the gradients tell (BFGS).
        """
        along = Along(self._raw(theta), self._raw(before.theta), steps, not light)
        sums = loss_sums(self.source, self.frame, self.loss, along, rows=self.rows, kept=self.kept)
        sums = sums.transform(self.linear, self.frame.width)
        n = self.system.moments.weight
        values, gradient = sums.values / n, sums.gradient / n
        if light:
            hessian = _corrected(before, theta, gradient)
        else:
            hessian = _assembled(sums.hessian / n, self.loss.directions)
        return Local(theta, gradient, hessian, float(values[0])), values[1:]

    def _raw(self, theta: Array) -> Array:
        if self.linear is None:
            return theta
        m = self.linear.shape[1]
        return np.concatenate([self.linear @ theta[:m], theta[m:]])


def spread(system: System) -> float:
    """Standard deviation of y, or its root mean square without intercept; 1 where y is 0.

    It is no less than the rounding error of y.
    """
    mean_counts = 1e-24 if system.fit_intercept else 1.0
    variance, mean = np.diagonal(system.moments.covariance("y", "y")), system.moments.mean("y")
    return float(np.sqrt(np.sum(variance + mean_counts * mean**2))) or 1.0


def _assembled(parts: Array, directions: Array) -> Array:
    """Σⱼ dⱼdⱼᵀ ⊗ Sⱼ."""
    k, p = directions.shape[1], parts.shape[1]
    outer = np.einsum("ja,jb->jab", directions, directions)
    whole = np.tensordot(outer, parts, axes=(0, 0))
    return np.ascontiguousarray(whole.transpose(0, 2, 1, 3)).reshape(k * p, k * p)


def _corrected(before: Local, theta: Array, gradient: Array) -> Array:
    """The second derivative of `before`, made to map the way to θ to the change of gradient."""
    way, change = flat(theta - before.theta), flat(gradient - before.gradient)
    image = before.hessian @ way
    curved, expected = float(way @ change), float(way @ image)
    if not curved > 1e-8 * expected > 0:  # NaN and rounding error teach nothing
        return before.hessian
    hessian = before.hessian.copy()
    add_outer(hessian, change, change / curved)
    add_outer(hessian, image, -image / expected)
    return hessian


def ridged_hessian(problem: Problem, hessian: Array, shape: tuple[int, ...], alpha: float) -> Array:
    """Second derivative of the data term and the ridge, for θ of this shape (p, k)."""
    p, k = shape
    ridge = np.zeros(p)
    ridge[: len(problem.system.ridge)] = 2.0 * alpha * problem.system.ridge
    matrix = hessian.copy()
    matrix[np.diag_indices(k * p)] += np.tile(ridge, k)
    return matrix


def flat(theta: Array) -> Array:
    """Return all scores of θ, shape (p, k), in one vector."""
    return np.asarray(theta.T.ravel())
