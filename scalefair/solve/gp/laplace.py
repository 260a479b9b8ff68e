"""The fair Gaussian process of classes: Laplace's approximation at the mode, in weight space.

f = Φβ with the prior β ~ N(0, P⁻¹), P = I/a² + 2nηRRᵀ, and −log p(y|f) = ΣV.
The mode minimises J = 1/n ΣV + α|β|² + η|Rᵀβ|² with 2nα = 1/a²: η is held in the units of J, as a
Gaussian process with noise has it, whose V is the squared error. With A = ΦᵀWΦ + P, W = V'',

    β | y ≈ N(mode, A⁻¹),    log evidence ≈ −ΣV − ½βᵀPβ − ½(log|A| − log|P|)  at the mode.

Near the mode this is a regression with the Gram matrix ΦᵀWΦ, noise 1 and the penalty 2η, so that
`GaussianSystem` has the determinants and A⁻¹, in which no η is large. Several scores are
independent, and their evidences add up.

Slopes (Rasmussen & Williams, section 5.5.1, here in weight space): with q = −½W'φᵀA⁻¹φ of each row
and s = A⁻¹Φᵀq, by which the mode answers to a change of it,

    ∂L/∂Φ = −WΦA⁻¹ + (g + q − WΦs)βᵀ + g sᵀ,  g = −V'
    ∂L/∂P = ½(P⁻¹ − A⁻¹ − ββᵀ − sβᵀ − βsᵀ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.moments.gradient import LaplaceAdjoint, Mode, skew_sums
from scalefair.solve.gp.adjoint import pull, volume_slope
from scalefair.solve.gp.gaussian import GaussianPoint
from scalefair.solve.gp.system import GaussianSlice, GaussianSystem, sensitive_root
from scalefair.solve.newton.descent import Goal, newton
from scalefair.solve.newton.model import Local, Problem, Weight

TOL = 1e-13
"""Of Newton's method: the evidence feels an error of the mode in its first power."""

MAX_ITER = 200


@dataclass(frozen=True, eq=False)
class LaplacePoint:
    """The approximation at one amplitude and η.

    Parameters
    ----------
    problem : Problem
        Rows, loss and penalty; rows are whitened, without intercept.
    local : Local
        The data term at the mode, by a full pass.
    amplitude, eta : float
        a > 0 and 0 ≤ η ≤ ∞.
    penalty, eps : str and float
        What R is: "normalized" or "hsic".
    n_passes : int
        Passes that it took to find it.
    """

    problem: Problem
    local: Local
    amplitude: float
    eta: float
    penalty: str
    eps: float | None
    n_passes: int = 0

    @property
    def n(self) -> float:
        """Sum of the weights."""
        return self.problem.system.moments.weight

    @property
    def coef(self) -> Array:
        """The mode, shape (m, k)."""
        return self.local.theta

    @cached_property
    def slices(self) -> list[GaussianSlice]:
        """The regression that each score is near its mode."""
        m, k = self.coef.shape
        blocks = self.local.hessian.reshape(k, m, k, m)
        return [self._slice(c, self.n * blocks[c, :, c]) for c in range(k)]

    def _slice(self, score: int, gram: Array) -> GaussianSlice:
        moments = self.problem.system.moments
        values, basis = positive_eigh(gram)
        beta, slope = self.coef[:, [score]], self.n * self.local.gradient[:, [score]]
        root = sensitive_root(moments, self.penalty, self.eps)
        crossed = np.zeros((len(gram), 0))
        if "psi" in moments.blocks:
            crossed = basis.T @ moments.covariance("phi", "psi") @ root
        directions, strength, right = np.linalg.svd(crossed, full_matrices=False)
        target = basis.T @ (gram @ beta - slope)
        system = GaussianSystem(
            moments, values, basis, target, strength, directions, root @ right.T
        )
        return system.slice(self.amplitude**-2, 2.0 * self.eta)

    @cached_property
    def log_evidence(self) -> float:
        """Laplace's approximation to log p(y), summed over the scores."""
        fit = self.local.value + self.problem.penalty(self.coef, self._alpha, Weight(self.eta))
        return float(-self.n * fit - 0.5 * sum(at.log_det for at in self.slices))

    @property
    def _alpha(self) -> float:
        return ridge_of(self.amplitude, self.n)

    @cached_property
    def factors(self) -> Array:
        """F of each score with FFᵀ = A⁻¹, shape (k, m, m)."""
        return np.stack([GaussianPoint(at, 1.0).posterior().factor for at in self.slices])

    @property
    def mode(self) -> Mode:
        """What passes over the rows must know."""
        problem = self.problem
        return Mode(problem.design, problem.loss, self.coef, self.factors)

    def slopes(self) -> LaplaceSlopes:
        """Make the pass that tells how the mode answers."""
        problem = self.problem
        skew = skew_sums(problem.source, self.mode, rows=problem.rows)
        moved = []
        for c, at in enumerate(self.slices):
            both = np.column_stack([at.system.target, at.system.basis.T @ skew[:, c]])
            system = replace(at.system, target=both)
            moved.append(system.slice(at.ratio, 2.0 * self.eta))
        return LaplaceSlopes(self, skew, moved)


@dataclass(frozen=True, eq=False)
class LaplaceSlopes:
    """Derivatives of the log evidence.

    Parameters
    ----------
    point : LaplacePoint
    skew : array of shape (m, k)
        Φᵀq.
    slices : list of GaussianSlice
        Those of the point with two targets, whose solutions are β and s.
    """

    point: LaplacePoint
    skew: Array
    slices: list[GaussianSlice]

    @property
    def in_log_amplitude(self) -> float:
        """∂ log evidence/∂ log a."""
        total = 0.0
        for at in self.slices:
            beta, drift = at.coordinates.T
            total += at.log_det_slopes[0] + at.ratio * float(beta @ (beta + 2.0 * drift))
        return total

    def adjoint(self) -> LaplaceAdjoint:
        """Return ∂ log evidence/∂Φ of any rows, at fixed amplitude and η."""
        point, moments = self.point, self.point.problem.system.moments
        inverses = point.factors @ point.factors.transpose(0, 2, 1)
        drift = np.column_stack([at.system.basis @ at.coordinates[:, 1] for at in self.slices])
        cross = sum(self._cross(at) for at in self.slices)
        G3 = np.asarray(cross).T / point.n
        product = self._product(inverses, drift)
        mean_psi = np.zeros(0)
        if "psi" in moments.blocks:
            product = product + point.n * (moments.covariance("phi", "psi") @ G3)
            mean_psi = moments.mean("psi")
        return LaplaceAdjoint(point.mode, inverses, drift, G3, mean_psi, product)

    @staticmethod
    def _cross(at: GaussianSlice) -> Array:
        """∂L/∂C_φψ of one score."""
        beta, drift = at.coordinates.T
        along_beta, along_drift = pull(at).T
        of_factor = -volume_slope(at) - np.outer(beta + drift, along_beta)
        of_factor -= np.outer(beta, along_drift)
        return np.asarray(at.system.basis @ of_factor @ at.system.right.T)

    def _product(self, inverses: Array, drift: Array) -> Array:
        """Φᵀ(∂L/∂Φ) but for the part of ψ: sums that are known already."""
        point = self.point
        m, k = point.coef.shape
        blocks = point.n * point.local.hessian.reshape(k, m, k, m)
        slope = -point.n * point.local.gradient
        total = np.zeros((m, m))
        for c in range(k):
            H = blocks[c, :, c]
            v = slope[:, c] + self.skew[:, c] - H @ drift[:, c]
            total += np.outer(v, point.coef[:, c]) + np.outer(slope[:, c], drift[:, c])
            total -= H @ inverses[c]
        return total


def ridge_of(amplitude: float, n: float) -> float:
    """α = 1/(2na²)."""
    return 1.0 / (2.0 * n * amplitude**2)


def find_mode(
    problem: Problem,
    *,
    amplitude: float,
    eta: float = 0.0,
    unfairness: float | None = None,
    penalty: str = "normalized",
    eps: float | None = None,
    start: Array | None = None,
) -> LaplacePoint:
    """Find the mode by Newton's method, each step one pass, and look at it by one more.

    Parameters
    ----------
    problem : Problem
        Without intercept, with rows whitened.
    amplitude, eta : float
        a > 0 and 0 ≤ η ≤ ∞.
    unfairness : float or None
        A limit on the explained share of the mode, which finds η.
    penalty, eps : str and float
        Those of the problem.
    start : array of shape (m, k) or None
        Where to start; None: at zero.
    """
    n, warm, looked = problem.system.moments.weight, None, 0
    if start is not None:
        empty = Local(start, np.zeros_like(start), np.empty((0, 0)))
        warm, looked = problem.evaluate(start, empty)[0], 1
    goal = Goal(ridge_of(amplitude, n), eta, unfairness, on_path=True)
    fit = newton(problem, goal, warm=warm, tol=TOL, max_iter=MAX_ITER)
    local, _ = problem.evaluate(fit.theta, fit.local)
    passes = fit.n_passes + looked + 1
    return LaplacePoint(problem, local, float(amplitude), fit.eta, penalty, eps, passes)
