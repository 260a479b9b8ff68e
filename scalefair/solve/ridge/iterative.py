"""The fair ridge where m×m is out of reach: conjugate gradients over the same stream of rows.

    β(η) = A⁻¹c − A⁻¹R (1/η + RᵀA⁻¹R)⁻¹ RᵀA⁻¹c,    A = C + αD

One block of right-hand sides [c, R] gives every η at this α; an iteration is one pass. The work is
done in the coordinates of a preconditioner, β = D^(−1/2) T z, in which the system M is near I: a
residual is there the error that it leaves in J, and weak directions of R are solved equally well.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular, svd
from sklearn.exceptions import ConvergenceWarning

from scalefair._linalg import positive_eigh, thin_root
from scalefair._typing import Array
from scalefair.moments.products import CrossMoments, StreamedGram
from scalefair.penalties import Features
from scalefair.solve.limit import Quadratic
from scalefair.solve.ridge.path import AlphaSlice, Spectrum
from scalefair.solve.ridge.system import Directions, System

RANK = 512  # default rank of the preconditioner
SAMPLE_ROWS = 4  # rows of the sample that aims the preconditioner, per rank


@dataclass(frozen=True, eq=False)
class FeatureGram:
    """C of [φ, other blocks], or ΦᵀΦ/n where not `centred`; `gram @ V` is a pass, for C_φ alone."""

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


Operator = Callable[[Array], Array]  # V ↦ MV for V of shape (m, k)


@dataclass(frozen=True, eq=False)
class Sketch:
    """UΛUᵀ ≈ C, of rank r; a preconditioner of C + αI for every α. r = 0 is none."""

    values: Array  # Λ (r,), descending
    vectors: Array  # U (m, r), orthonormal

    @classmethod
    def from_product(cls, probe: Array, product: Array) -> Sketch:
        """Nyström's Y(ΩᵀY)⁻¹Yᵀ from an orthonormal Ω and Y = CΩ, both (m, r)."""
        shift, shifted, lower = _shifted(probe, product)
        half = solve_triangular(lower, shifted.T, lower=True, check_finite=False).T
        vectors, roots, _ = svd(half, full_matrices=False, check_finite=False)
        return cls(np.maximum(roots**2 - shift, 0.0), vectors)

    def whiten(self, alpha: float) -> Operator:
        """T = U (Λ + α)^(−1/2) Uᵀ + (λ_r + α)^(−1/2) (I − UUᵀ); T(C + αI)T is near I."""
        rest = 1.0 / np.sqrt(self.values.min(initial=self.largest) + alpha)
        change = (1.0 / np.sqrt(self.values + alpha) - rest)[:, None]

        def apply(V: Array) -> Array:
            return np.asarray(rest * V + self.vectors @ (change * (self.vectors.T @ V)))

        return apply

    @property
    def largest(self) -> float:
        """Largest eigenvalue, 0 if there is none."""
        return float(self.values.max(initial=0.0))


def _shifted(probe: Array, product: Array) -> tuple[float, Array, Array]:
    """Return the least shift σ that does, Y + σΩ, and the lower factor of Ωᵀ(Y + σΩ)."""
    size = max(float(np.linalg.norm(product)), np.finfo(float).tiny)
    # A shift beyond |Y| does for any Y. NaN would do too, as a factor of NaN.
    for power in range(18) if np.isfinite(size) else ():
        shift = float(np.finfo(float).eps) * size * 10.0**power
        shifted = product + shift * probe
        core = probe.T @ shifted
        try:
            return shift, shifted, np.asarray(np.linalg.cholesky((core + core.T) / 2), np.float64)
        except LinAlgError:
            continue
    raise LinAlgError(
        f"a product with the Gram matrix of the features has the norm {size}, and no shift makes "
        "it positive definite; look for huge or missing values among the features"
    )


class Solved(NamedTuple):
    """Solution of a block of systems, and the iterations it took."""

    solution: Array
    n_iter: int


def block_cg(
    operator: Operator, right: Array, tol: float, max_iter: int, progress: Callable[[], Any] | None = None
) -> Solved:
    """Solve M Z = B by conjugate gradients that share one Krylov space over all columns of B.

    The residual is QG, Q orthonormal: columns may be equal, zero or converged. With W = (SᵀMS)⁻¹

        Z ← Z + SWG,  Qρ ← Q − MSW (by QR),  G ← ρG,  S ← Q + Sρᵀ
    """
    Q, G = np.linalg.qr(right)
    S, Z = Q, np.zeros_like(right)
    n_iter = 0
    while n_iter < max_iter and largest_norm(G) > tol:
        MS = operator(S)
        inner = S.T @ MS
        try:
            step = cho_factor((inner + inner.T) / 2, check_finite=False)
        except LinAlgError:  # rounding error is all that is left of M along some direction
            break
        Z += S @ cho_solve(step, G, check_finite=False)
        Q, turn = np.linalg.qr(Q - cho_solve(step, MS.T, check_finite=False).T)
        G, S = turn @ G, Q + S @ turn.T
        n_iter += 1
        if progress:
            progress()
    return Solved(Z, n_iter)


def largest_norm(columns: Array) -> float:
    """Largest Euclidean norm of a column."""
    return float(np.linalg.norm(columns, axis=0).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class StreamedSystem(System):
    """A system whose Gram matrix is never formed: `gram @ V` is one pass over the rows."""

    gram: FeatureGram  # all that it shares with an array is @

    @classmethod
    def stream(cls, moments: CrossMoments, phi: StreamedGram, **options: Any) -> StreamedSystem:
        """Read the system off what `stream_moments` returned; options as in `System.build`."""
        features = options.get("features", ("phi",))
        if features[0] != "phi":
            raise ValueError(f"features={features!r} must begin with 'phi', the block that streams")
        gram = FeatureGram(phi, moments, features, options.get("fit_intercept", True))
        return cls.build(moments, covariance=replace(gram, centred=True), gram=gram, **options)

    @property
    def scale(self) -> Array:
        """Diagonal of D^(−1/2), a column."""
        return np.asarray(1.0 / np.sqrt(self.ridge)[:, None])

    def scaled_gram(self, V: Array) -> Array:
        """D^(−1/2) C D^(−1/2) V, one pass."""
        return np.asarray(self.scale * (self.gram @ (self.scale * V)))

    def sketch(self, rank: int | None = None, seed: int = 0) -> Sketch:
        """Return a preconditioner by one pass of `rank` columns, aimed by a sample of the rows."""
        m = len(self.gram)
        size = min(m, RANK if rank is None else rank)
        if size == 0:
            return Sketch(np.zeros(0), np.zeros((m, 0)))
        probe = np.random.default_rng(seed).standard_normal((m, size))
        sample = replace(self.gram, phi=self.gram.phi.sampled(SAMPLE_ROWS * size, seed))
        probe = np.linalg.qr(replace(self, gram=sample).scaled_gram(probe))[0]
        return Sketch.from_product(probe, self.scaled_gram(probe))


class IterativeFit(NamedTuple):
    """Solutions at one α, in the subspace that those of all η span, and what they took."""

    slice: AlphaSlice
    n_iter: int  # passes over the rows
    residual: float  # largest relative one of all right-hand sides
    largest: float = 0.0  # eigenvalue of the scaled Gram matrix, by the sketch


def solve_iterative(
    system: StreamedSystem, alpha: float, *, sketch: Sketch | None = None, tol: float = 1e-9,
    max_iter: int = 200, seed: int = 0, progress: Callable[[], Any] | None = None,
) -> IterativeFit:  # fmt: skip
    """Solve (C + αD + ηRRᵀ) β = c at one α > 0 and for every η, without forming C.

    `tol` is the relative residual to reach, in the norm of the preconditioner; it stops where
    another pass does not help, with a ConvergenceWarning if `max_iter` is not enough.
    """
    if not alpha > 0:
        raise ValueError(
            f"alpha={alpha!r} must be positive for the iterative solver; give a ridge, or use solver='direct'"
        )
    sketch = system.sketch(seed=seed) if sketch is None else sketch
    whitened = _Whitened(system, sketch, alpha)
    solved = _solve(whitened, tol, max_iter, progress)
    residual = largest_norm(solved.residual)
    rounding = np.finfo(float).eps * (1 + sketch.largest / alpha)
    if residual > tol and (solved.n_iter >= max_iter or residual > rounding):
        warnings.warn(
            f"the iterative solver stopped after {solved.n_iter} iterations at a relative residual "
            f"of {residual:.2g}, above {tol:.2g}; raise max_iter, use a larger alpha, or "
            "solver='direct'",
            ConvergenceWarning,
            stacklevel=2,
        )
    return IterativeFit(_slice(whitened, solved), solved.n_iter, residual, sketch.largest)


class _Whitened:
    """M z = right at one α: of c/|c|, and of the U of T D^(−1/2) R = U diag(roots) Vᵀ."""

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


def _solve(whitened: _Whitened, tol: float, max_iter: int, progress: Callable[[], Any] | None) -> _Solved:
    """Solve, compute the true residual, and solve for that again while it falls."""
    Z, residual, n_iter = np.zeros_like(whitened.right), whitened.right, 0
    while True:
        before = largest_norm(residual)
        step = block_cg(whitened.times, residual, tol / 2, max_iter - n_iter, progress)
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
    """Every η at this α. UᵀM⁻¹U = UᵀZ + Zᵀ(U − MZ), whose error is the square of that of Z."""
    system, roots, t = whitened.system, whitened.roots[:, None], len(whitened.length)
    inner = whitened.basis.T @ solved.Z + solved.Z[:, t:].T @ solved.residual
    strength, turn = positive_eigh(roots * _symmetric(inner[:, t:]) * roots.T)
    along = turn.T @ (roots * inner[:, :t] * whitened.length)
    values, vectors = positive_eigh(_symmetric(solved.Y.T @ solved.product))
    coordinates = solved.Y @ vectors
    basis = system.scale * coordinates
    deviation = np.sqrt(values)
    if not system.fit_intercept:
        mean = basis.T @ system.mean
        deviation = thin_root(np.diag(values) - np.outer(mean, mean))
    target, factor = basis.T @ system.target, basis.T @ system.factor
    share_factor = basis.T @ system.share_factor
    return SubspaceSlice(
        Spectrum(values, basis, target, factor, share_factor, deviation),
        whitened.alpha,
        vectors[:t].T * whitened.length,
        Directions(vectors[t:].T @ (roots * turn), strength, along),
        metric=coordinates.T @ coordinates,
        width=len(system.scale),
    )


@dataclass(frozen=True, eq=False)
class SubspaceSlice(AlphaSlice):
    """Solutions at one α in the subspace that they span, whose coordinates are not orthonormal."""

    metric: Array  # (r, r): |β|² of the coordinates
    width: int  # number of features

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
