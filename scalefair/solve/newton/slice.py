"""The fits of a quadratic model for every weight of the penalty, and along a limit."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, null_space

from scalefair._linalg import cholesky, positive_eigh
from scalefair._typing import Array
from scalefair.solve.limit import Quadratic, path_shares
from scalefair.solve.newton.model import Local, Problem, Weight, flat, ridged_hessian
from scalefair.solve.ridge.primal import gain


class Slice:
    """Minimisers of the quadratic model plus penalties at one α, for every η.

    θ(η) = ridge − directions · gain(2η, strength) · along, by Woodbury's identity: ηRRᵀ is never
    formed, and η = ∞ is allowed.

    Parameters
    ----------
    problem : Problem
        The objective.
    local : Local
        The model of its data term.
    alpha : float
        α.
    damping : float
        Multiple of the metric that is added to the second derivative.
    """

    def __init__(self, problem: Problem, local: Local, alpha: float, damping: float = 0.0) -> None:
        self._problem, self._shape = problem, local.theta.shape
        k = self._shape[1]
        curved = local.hessian
        if damping > 0:
            curved = curved + np.kron(np.eye(k), damping * problem.metric)
        self._local = local
        self._matrix = ridged_hessian(problem, curved, self._shape, alpha)
        self._factor, self.jitter = cholesky(self._matrix)
        target = curved @ flat(local.theta) - flat(local.gradient)
        self.ridge = cho_solve(self._factor, target, check_finite=False)

    @cached_property
    def _penalty(self) -> tuple[Array, Array, Array]:
        """Directions, their strength, and how far the ridge fit goes along each."""
        p, k = self._shape
        factor = np.zeros((p, self._problem.system.factor.shape[1]))
        factor[: len(self._problem.system.factor)] = self._problem.system.factor
        every = np.asarray(np.kron(np.eye(k), factor), dtype=np.float64)
        solved = cho_solve(self._factor, every, check_finite=False)
        inner = every.T @ solved
        strength, turn = positive_eigh((inner + inner.T) / 2)
        return solved @ turn, strength, turn.T @ (every.T @ self.ridge)

    @property
    def strength(self) -> Array:
        """RᵀA⁻¹R in its eigenbasis."""
        return self._penalty[1]

    def theta(self, eta: float) -> Array:
        """θ of shape (p, k) at one η."""
        return np.asarray(self._thetas(np.array([eta]))[0])

    def _thetas(self, etas: Array) -> Array:
        p, k = self._shape
        if not np.any(etas) or self._problem.system.factor.shape[1] == 0:
            vectors = np.tile(self.ridge, (len(etas), 1))
        else:
            directions, strength, along = self._penalty
            vectors = self.ridge - (gain(2.0 * etas, strength) * along) @ directions.T
        return np.asarray(vectors.reshape(-1, k, p).transpose(0, 2, 1))

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach: the intercepts are none of them."""
        return int(len(self._problem.system.factor) * self._shape[1])

    def shares(self, etas: Array) -> Array:
        """Explained share of the scores for each η; NaN where f is constant."""
        system = self._problem.system
        at = np.concatenate([self._thetas(np.zeros(1)), self._thetas(np.atleast_1d(etas))])
        return path_shares(system.share_factor, system.deviation, at[:, : len(system.factor)])

    def quadratic(self) -> Quadratic:
        """Return the model with its ridge, all scores in one vector."""
        p, k = self._shape
        system = self._problem.system
        m = len(system.factor)
        factor = np.zeros((p, system.share_factor.shape[1]))
        factor[:m] = system.share_factor
        covariance = np.zeros((p, p))
        covariance[:m, :m] = system.covariance
        target = (self._matrix @ self.ridge)[:, None]
        both = (np.asarray(np.kron(np.eye(k), part), float) for part in (factor, covariance))
        return Quadratic(self._matrix, target, *both)

    def along_limit(self, weight: Weight) -> tuple[Array, Weight]:
        """Return Newton's step to the optimum on the limit e(θ) = θᵀMθ = 0, and its multiplier.

            [A + 2μM  a] [d ]     [∇J]
            [aᵀ       0] [μ'] = − [e ],   a = ∇e = 2Mθ

        d = −ea/|a|² + Zz with Z a basis of the directions along the limit. Where ZᵀBZ has negative
        eigenvalues, their absolute values take their place: J falls along such a step, too.
        """
        model, theta = self.quadratic(), flat(self._local.theta)
        M = model.share_factor @ model.share_factor.T - (weight.limit or 0.0) * model.covariance
        slope, a = self._matrix @ theta - model.target[:, 0], 2 * M @ theta
        B = self._matrix + 2 * weight.eta * M
        d = -(theta @ M @ theta) / (a @ a) * a
        Z = null_space(a[None])
        values, turn = np.linalg.eigh(Z.T @ B @ Z)
        turn, values = Z @ turn, np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
        d = d - turn @ ((turn.T @ (slope + B @ d)) / values)
        multiplier = float(-(a @ (slope + B @ d)) / (a @ a))
        return self.unflat(_onto_cone(M, theta + d, a)), Weight(abs(multiplier), weight.limit)

    def unflat(self, vector: Array) -> Array:
        """θ of shape (p, k) from all scores in one vector."""
        return np.asarray(vector.reshape(self._shape[::-1]).T)

    def decrement(self, theta: Array, weight: Weight) -> float:
        """stepᵀ(A + 2ηRRᵀ)step: twice the decrease of J that the model promises.

        With η = ∞ no step goes along the penalty. Along a limit, how far it is left counts too.
        """
        problem, step = self._problem, theta - self._local.theta
        vector = flat(step)
        curved = float(vector @ self._matrix @ vector) + 2.0 * problem.punished(
            problem.beta(step), weight
        )
        if weight.limit is None:
            return curved
        return abs(curved) + 2.0 * abs(problem.punished(problem.beta(self._local.theta), weight))


def _onto_cone(M: Array, theta: Array, a: Array) -> Array:
    """Move θ along a, as little as possible, to where θᵀMθ = 0; leave it where that is nowhere."""
    roots = np.roots([a @ M @ a, 2 * (a @ M @ theta), theta @ M @ theta])
    real = roots[np.isreal(roots)].real
    return theta + real[np.argmin(np.abs(real))] * a if len(real) else theta
