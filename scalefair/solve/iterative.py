"""The fair ridge where m×m is out of reach: conjugate gradients over the same stream of rows.

With A = C + αD, one block of right-hand sides [c, R] gives every η at this α by Woodbury's identity,
as the direct solvers do:

    β(η) = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c

An iteration is one pass, O(nmk) for k columns. The preconditioner is a randomised Nyström
approximation UΛUᵀ of D^(−1/2) C D^(−1/2), of rank r and from one pass of its own. With

    T = U (Λ + α)^(−1/2) Uᵀ + (λ_r + α)^(−1/2) (I − UUᵀ)

the system M = T (D^(−1/2) C D^(−1/2) + α) T is near I, and its condition number about (λ_r + α)/α.
All the work is done in these coordinates: there the norm of a residual is the error it leaves in
J, and the directions of R, however weak, are all solved for equally well.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular, svd
from sklearn.exceptions import ConvergenceWarning

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.penalties import PENALTIES, Features, normalized
from scalefair.solve.path import AlphaSlice, Spectrum
from scalefair.solve.system import System
from scalefair.statistics.products import CrossMoments, StreamedGram

Progress = Callable[[int, float], Any]
"""Called after every iteration with its number and the largest relative residual."""

Operator = Callable[[Array], Array]

RANK = 512
"""Default rank of the preconditioner."""

SAMPLE_ROWS = 4
"""Rows of the sample that aims the preconditioner, for each of its ranks."""


@dataclass(frozen=True, eq=False)
class FeatureGram:
    """C of the features [φ, further blocks] as a product; `gram @ V` is one pass over the rows.

    Only C_φ needs the pass: the moments know all other blocks.

    Parameters
    ----------
    phi : StreamedGram
        C_φ.
    moments : CrossMoments
        All other moments.
    features : tuple of str
        The blocks that make up Φ; "phi" is the first.
    centred : bool
        False: the uncentred ΦᵀΦ/n.
    """

    phi: StreamedGram
    moments: CrossMoments
    features: Features
    centred: bool = True

    def __len__(self) -> int:
        return sum(self.moments.blocks[name] for name in self.features)

    def __matmul__(self, V: Array) -> Array:
        width, others = self.moments.blocks["phi"], self.features[1:]
        product = self.phi @ V[:width]
        if others:
            sides = self.moments.covariance(self.features, others)
            product = np.concatenate([product, sides[:width].T @ V[:width]]) + sides @ V[width:]
        if not self.centred:
            mean = self.moments.mean(*self.features)
            product = product + np.outer(mean, mean @ V)
        return product


@dataclass(frozen=True, eq=False)
class StreamedSystem(System):
    """A system whose Gram matrix is never formed: `gram @ V` is one pass over the rows."""

    moments: CrossMoments
    gram: FeatureGram  # type: ignore[assignment]  # all that it shares with an array is @

    @classmethod
    def stream(
        cls,
        moments: CrossMoments,
        phi: StreamedGram,
        *,
        penalty: str = "normalized",
        eps: float = 1e-6,
        fit_intercept: bool = True,
        features: Features = ("phi",),
        ridge: Array | None = None,
    ) -> StreamedSystem:
        """Read the system off what `stream_moments` returned; options as in `System.build`."""
        if features[0] != "phi":
            raise ValueError(f"features={features!r} must begin with 'phi'")
        gram = FeatureGram(phi, moments, features, fit_intercept)
        target = moments.covariance(features, "y")
        if not fit_intercept:
            target = target + np.outer(moments.mean(*features), moments.mean("y"))
        factor = share_factor = np.zeros((len(gram), 0))
        if "psi" in moments.blocks:
            share_factor = normalized(moments, eps, features)
            plain = penalty == "normalized"
            factor = share_factor if plain else PENALTIES[penalty](moments, eps, features)
        ridge = np.ones(len(gram)) if ridge is None else ridge
        return cls(moments, gram, target, factor, share_factor, ridge, fit_intercept, features)

    def sampled(self, size: int, seed: int) -> StreamedSystem:
        """Return the system with the C_φ of a sample of the rows."""
        phi = self.gram.phi.sampled(size, seed)
        return replace(self, gram=replace(self.gram, phi=phi))

    def scaled_gram(self, V: Array) -> Array:
        """D^(−1/2) C D^(−1/2) V, one pass."""
        scale = 1.0 / np.sqrt(self.ridge)[:, None]
        return scale * (self.gram @ (scale * V))


@dataclass(frozen=True, eq=False)
class Sketch:
    """UΛUᵀ ≈ D^(−1/2) C D^(−1/2), good for every α.

    Parameters
    ----------
    values : array of shape (r,)
        Λ, descending.
    vectors : array of shape (m, r)
        U, orthonormal.
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, system: StreamedSystem, rank: int | None = None, seed: int = 0) -> Sketch:
        """Draw the sketch in one pass of `rank` columns.

        They are random, but first multiplied by the Gram matrix of a sample of the rows: as good
        as a second pass, and next to free.
        """
        m = len(system.gram)
        size = min(m, RANK if rank is None else rank)
        if size == 0:
            return cls(np.zeros(0), np.zeros((m, 0)))
        sample = system.sampled(SAMPLE_ROWS * size, seed)
        probe = np.random.default_rng(seed).standard_normal((m, size))
        probe = np.linalg.qr(sample.scaled_gram(probe))[0]
        return cls.from_product(probe, system.scaled_gram(probe))

    @classmethod
    def from_product(cls, probe: Array, product: Array) -> Sketch:
        """Nyström's approximation Y(ΩᵀY)⁻¹Yᵀ from an orthonormal Ω and Y = CΩ.

        A shift ν in the last digits of Y keeps ΩᵀY positive definite, and is taken off Λ again.
        """
        shift = np.finfo(float).eps * np.sqrt(len(probe)) * np.linalg.norm(product, 2)
        while True:
            shifted = product + shift * probe
            core = probe.T @ shifted
            try:
                lower = np.linalg.cholesky((core + core.T) / 2)
                break
            except LinAlgError:
                shift *= 10
        half = solve_triangular(lower, shifted.T, lower=True, check_finite=False).T
        vectors, roots, _ = svd(half, full_matrices=False, check_finite=False)
        return cls(np.maximum(roots**2 - shift, 0.0), vectors)

    def whiten(self, alpha: float) -> Operator:
        """T at this α, as a function."""
        rest = 1.0 / np.sqrt((self.values[-1] if len(self.values) else 1.0) + alpha)
        change = (1.0 / np.sqrt(self.values + alpha) - rest)[:, None]

        def apply(V: Array) -> Array:
            return np.asarray(rest * V + self.vectors @ (change * (self.vectors.T @ V)))

        return apply


class CgResult(NamedTuple):
    """Solution of a block of systems, residual of each column as it was updated, iterations."""

    solution: Array
    residual: Array
    n_iter: int


def block_cg(
    operator: Operator, right: Array, tol: float, max_iter: int, progress: Progress | None = None
) -> CgResult:
    """Solve M Z = B by conjugate gradients on all columns of B at once.

    The residual is kept as QG with orthonormal Q, which stands columns that are equal, zero or
    converged before the others. Step i, S the search directions:

        W = (SᵀMS)⁻¹,   Z += SWG,   Q'ρ = Q − MSW,   G' = ρG,   S' = Q' + Sρᵀ

    Parameters
    ----------
    operator : callable
        V ↦ MV with M symmetric positive definite.
    right : array of shape (m, k)
        B.
    tol : float
        Least absolute residual to reach, in every column.
    max_iter : int
        Most products with M.
    progress : callable or None
        Called with the number of the iteration and the largest residual.
    """
    Q, G = np.linalg.qr(right)
    S, Z = Q, np.zeros_like(right)
    done = 0
    while done < max_iter and _largest(G) > tol:
        MS = operator(S)
        inner = S.T @ MS
        step = cho_factor((inner + inner.T) / 2, check_finite=False)
        Z += S @ cho_solve(step, G, check_finite=False)
        Q, turn = np.linalg.qr(Q - cho_solve(step, MS.T, check_finite=False).T)
        G, S = turn @ G, Q + S @ turn.T
        done += 1
        if progress is not None:
            progress(done, _largest(G))
    return CgResult(Z, np.linalg.norm(G, axis=0), done)


def _largest(columns: Array) -> float:
    return float(np.linalg.norm(columns, axis=0).max(initial=0.0))


class IterativeFit(NamedTuple):
    """Solutions at one α, and what they took.

    Parameters
    ----------
    slice : AlphaSlice
        Every η at this α, as `Spectrum.at` gives it; its spectrum is that of the subspace
        which all of these solutions lie in, so it is good for this α only.
    n_iter : int
        Passes over the rows, without those for the sketch and the moments.
    residual : float
        Largest relative residual, of all right-hand sides.
    """

    slice: AlphaSlice
    n_iter: int
    residual: float


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
    """Solve (C + αD + ηRRᵀ) β = c for one α and every η, without forming C.

    Parameters
    ----------
    system : StreamedSystem
        The system.
    alpha : float
        α > 0.
    sketch : Sketch or None
        The preconditioner, which is the same for every α; None draws one.
    tol : float
        Relative residual of each right-hand side, in the norm of the preconditioner.
    max_iter : int
        Most passes; a ConvergenceWarning says so if they are not enough.
    seed : int
        Seed of the sketch.
    progress : callable or None
        Called with the number of each iteration and the largest relative residual.
    """
    sketch = Sketch.of(system, seed=seed) if sketch is None else sketch
    T = sketch.whiten(alpha)
    scale = 1.0 / np.sqrt(system.ridge)[:, None]
    target = T(scale * system.target)
    size = np.linalg.norm(target, axis=0)
    U, s, _ = svd(T(scale * system.factor), full_matrices=False, check_finite=False)
    U, s = U[:, s > 1e-15 * s.max(initial=0)], s[s > 1e-15 * s.max(initial=0)]
    right = np.concatenate([target / np.where(size > 0, size, 1.0), U], axis=1)

    def operator(V):
        W = T(V)
        return T(system.scaled_gram(W) + alpha * W)

    found = block_cg(operator, right, tol, max_iter, progress)
    Z = found.solution
    Y = T(Z)
    CY = system.scaled_gram(Y)
    H = right - T(CY + alpha * Y)
    t = target.shape[1]
    K = U.T @ Z[:, t:] + Z[:, t:].T @ H[:, t:]
    rhs = U.T @ Z[:, :t] + Z[:, t:].T @ H[:, :t]
    strength, turn = positive_eigh(s[:, None] * (K + K.T) / 2 * s)
    along = turn.T @ (s[:, None] * rhs * size)
    YCY = Y.T @ CY
    values, E = positive_eigh((YCY + YCY.T) / 2)
    basis = scale * (Y @ E)
    mean = basis.T @ system.mean * (not system.fit_intercept)
    spectrum = Spectrum(
        values,
        basis,
        basis.T @ system.target,
        basis.T @ system.factor,
        basis.T @ system.share_factor,
        mean,
    )
    slice_ = AlphaSlice(
        spectrum, alpha, E.T[:, :t] * size, E.T[:, t:] @ (s[:, None] * turn), strength, along
    )
    return IterativeFit(slice_, found.n_iter, float(np.linalg.norm(H, axis=0).max(initial=0)))
