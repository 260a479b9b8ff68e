"""The fair ridge where m×m is out of reach: conjugate gradients over the same stream of rows.

With A = C + αD, one block of right-hand sides [c, R] gives every η at this α by Woodbury's
identity, as in the direct solvers:

    β(η) = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c

An iteration is one pass, O(nmk) for k columns. All the work is done in the coordinates z of a
preconditioner T of D^(−1/2) C D^(−1/2) + αI, β = D^(−1/2) T z, in which the system M is near I:
there the norm of a residual is the error that it leaves in J, and the directions of R, however
weak, are all solved for equally well.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, svd
from sklearn.exceptions import ConvergenceWarning

from scalefair._linalg import positive_eigh, thin_root
from scalefair._typing import Array
from scalefair.solve.limit import Quadratic
from scalefair.solve.ridge.conjugate import Progress, Sketch, block_cg, largest_norm
from scalefair.solve.ridge.path import AlphaSlice, Spectrum
from scalefair.solve.ridge.streamed import StreamedSystem


class IterativeFit(NamedTuple):
    """Solutions at one α, and what they took.

    Parameters
    ----------
    slice : AlphaSlice
        Every η at this α. Its spectrum is that of the subspace in which all of these solutions
        lie: it is good for this α only.
    n_iter : int
        Iterations, each one pass over the rows.
    residual : float
        Largest relative residual of all right-hand sides, from a last pass.
    largest : float
        Largest eigenvalue of the scaled Gram matrix, as far as the preconditioner knows.
    """

    slice: AlphaSlice
    n_iter: int
    residual: float
    largest: float = 0.0


def solve_iterative(
    system: StreamedSystem,
    alpha: float,
    *,
    sketch: Sketch | None = None,
    tol: float = 1e-9,
    max_iter: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> IterativeFit:
    """Solve (C + αD + ηRRᵀ) β = c at one α and for every η, without forming C.

    Parameters
    ----------
    system : StreamedSystem
        The system.
    alpha : float
        α > 0.
    sketch : Sketch or None
        The preconditioner, which does not depend on α; None draws one.
    tol : float
        Relative residual to reach for each right-hand side, in the norm of the preconditioner.
        Less than the rounding error of a product, machine precision times λ_max/α, may be out of
        reach: the solver then stops where another pass does not help.
    max_iter : int
        Most iterations. A ConvergenceWarning says so if they are not enough.
    seed : int
        Seed of the sketch.
    progress : callable or None
        Called with the number of each iteration and the largest relative residual.
    """
    if not alpha > 0:
        raise ValueError(
            f"alpha={alpha!r} must be positive for the iterative solver; give a ridge, or use "
            "solver='direct'"
        )
    sketch = system.sketch(seed=seed) if sketch is None else sketch
    whitened = _Whitened(system, sketch, alpha)
    solved = _solve(whitened, tol, max_iter, progress)
    residual = largest_norm(solved.residual)
    rounding = np.finfo(float).eps * (1 + sketch.largest / alpha)
    if residual > tol and (solved.n_iter >= max_iter or residual > rounding):
        warnings.warn(_not_converged(solved.n_iter, residual, tol), ConvergenceWarning, 2)
    return IterativeFit(_slice(whitened, solved), solved.n_iter, residual, sketch.largest)


class _Whitened:
    """M z = right, the system at one α in the coordinates of the preconditioner.

    The right-hand sides are c, at unit length, and an orthonormal basis U of the columns of R:
    T D^(−1/2) R = U diag(roots) Vᵀ.
    """

    def __init__(self, system: StreamedSystem, sketch: Sketch, alpha: float) -> None:
        self.system, self.alpha = system, alpha
        self.T = sketch.whiten(alpha)
        target = self.T(system.scale * system.target)
        factor = self.T(system.scale * system.factor)
        basis, roots, _ = svd(factor, full_matrices=False, check_finite=False)
        keep = roots > 1e-15 * roots.max(initial=0.0)
        self.basis, self.roots = basis[:, keep], roots[keep]
        self.length = np.linalg.norm(target, axis=0)
        unit = target / np.where(self.length > 0, self.length, 1.0)
        self.right = np.concatenate([unit, self.basis], axis=1)

    def times(self, Z: Array) -> Array:
        """M Z, one pass."""
        Y = self.T(Z)
        return self.T(self.system.scaled_gram(Y) + self.alpha * Y)


class _Solved(NamedTuple):
    """Z, Y = TZ, product = D^(−1/2) C D^(−1/2) Y, residual = right − MZ: of shape (m, k)."""

    Z: Array
    Y: Array
    product: Array
    residual: Array
    n_iter: int


def _solve(whitened: _Whitened, tol: float, max_iter: int, progress: Progress | None) -> _Solved:
    """Solve, look at the true residual, and go on from there while that helps.

    Raise LinAlgError if the residual is no number.
    """
    Z, residual, n_iter = np.zeros_like(whitened.right), whitened.right, 0
    while True:
        before, first = largest_norm(residual), n_iter

        def report(i: int, size: float, first: int = first) -> None:
            if progress is not None:
                progress(first + i, size)

        step = block_cg(whitened.times, residual, tol / 2, max_iter - n_iter, report)
        Z, n_iter = Z + step.solution, n_iter + step.n_iter
        Y = whitened.T(Z)
        product = whitened.system.scaled_gram(Y)
        residual = whitened.right - whitened.T(product + whitened.alpha * Y)
        after = largest_norm(residual)
        if not np.isfinite(after):
            raise LinAlgError(
                f"the residual of the iterative solver is {after} after {n_iter} iterations; look "
                "for huge or missing values among features and targets"
            )
        if after <= tol or n_iter >= max_iter or after > before / 2:
            return _Solved(Z, Y, product, residual, n_iter)


def _slice(whitened: _Whitened, solved: _Solved) -> AlphaSlice:
    """Every η at this α, in coordinates of the space that the solutions span.

    UᵀM⁻¹U is taken as UᵀZ + Zᵀ(U − MZ), whose error is the square of that of Z.
    """
    system, roots, t = whitened.system, whitened.roots[:, None], len(whitened.length)
    Z = solved.Z[:, t:]
    inner = whitened.basis.T @ solved.Z + Z.T @ solved.residual
    strength, turn = positive_eigh(roots * _symmetric(inner[:, t:]) * roots.T)
    along = turn.T @ (roots * inner[:, :t] * whitened.length)
    values, vectors = positive_eigh(_symmetric(solved.Y.T @ solved.product))
    basis = system.scale * (solved.Y @ vectors)
    deviation = np.sqrt(values)
    if not system.fit_intercept:
        mean = basis.T @ system.mean
        deviation = thin_root(np.diag(values) - np.outer(mean, mean))
    spectrum = Spectrum(
        values,
        basis,
        basis.T @ system.target,
        basis.T @ system.factor,
        basis.T @ system.share_factor,
        deviation,
    )
    ridge, directions = vectors[:t].T * whitened.length, vectors[t:].T @ (roots * turn)
    size = solved.Y @ vectors
    metric, width = size.T @ size, len(system.scale)
    return SubspaceSlice(
        spectrum, whitened.alpha, ridge, directions, strength, along, metric, width
    )


@dataclass(frozen=True, eq=False)
class SubspaceSlice(AlphaSlice):
    """Solutions at one α in the subspace that they span.

    Parameters
    ----------
    metric : array of shape (r, r)
        |β|² of the coordinates, which are not orthonormal.
    width : int
        Number of features.
    """

    metric: Array
    width: int

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach, of one output."""
        return self.width

    def quadratic(self) -> Quadratic:
        """Return what the solutions minimise; coordinates that do not move f are set apart."""
        spectrum = self.spectrum
        live = spectrum.values > 1e-12 * spectrum.values.max(initial=0.0)
        keep = live.astype(float)
        hessian = np.diag(spectrum.values) + self.alpha * self.metric
        both = np.outer(keep, keep)
        return Quadratic(
            both * hessian + np.diag(1 - keep),
            keep[:, None] * spectrum.target,
            keep[:, None] * spectrum.share_factor,
            both * spectrum.covariance,
        )


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2


def _not_converged(n_iter: int, residual: float, tol: float) -> str:
    return (
        f"the iterative solver stopped after {n_iter} iterations at a relative residual of "
        f"{residual:.2g}, above {tol:.2g}; raise max_iter, use a larger alpha, or solver='direct'"
    )
