"""The whole (α, η) grid from one eigendecomposition of the moments, on all rows or fold by fold.

C = QΛQᵀ once, O(m³). Per α one q×q eigenproblem of R'ᵀ(Λ + α)⁻¹R' with R' = QᵀR, O(mq² + q³).
Then O(mq) per η. Held-out errors and shares come from the moments of the folds, without the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.linalg import LinAlgError, lapack

from scalefair import held_out, penalties
from scalefair._linalg import positive_eigh, thin_root, times_each
from scalefair._typing import Array
from scalefair.data.sources.threads import SMALL, run_each
from scalefair.moments import Moments
from scalefair.moments.partial import Calibration
from scalefair.solve.limit import Quadratic, path_shares
from scalefair.solve.ridge.system import Directions, System, best_scale, gain, largest_strength


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A system in the eigenbasis of D^(−1/2) C D^(−1/2), D the relative ridges: β = basis · β'."""

    values: Array
    basis: Array
    target: Array
    factor: Array
    share_factor: Array
    deviation: Array

    @classmethod
    def of(cls, system: System, *, shares: bool = True) -> Spectrum:
        """Decompose the system's Gram matrix; without `shares` it has coefficients only."""
        scale = 1.0 / np.sqrt(system.ridge)
        values, vectors = positive_eigh(scale[:, None] * system.gram * scale)
        basis = scale[:, None] * vectors
        factor = basis.T @ system.factor
        share_factor = factor if system.share_factor is system.factor else basis.T @ system.share_factor
        # Without intercept the Gram matrix is not centred, but the variance of f is; and the share
        # is measured on rows with s.
        deviation = np.sqrt(values)
        if shares and system.covariance is not system.gram:
            deviation = thin_root(system.covariance) @ basis
        return cls(values, basis, basis.T @ system.target, factor, share_factor, deviation)

    def explained(self, alphas: Array) -> Array:
        """Return cᵀ(C + 2α)(C + α)⁻²c of each α, summed over the targets."""
        shrunk = self.values + alphas[:, None]
        return np.asarray((shrunk + alphas[:, None]) / shrunk**2 @ np.sum(self.target**2, axis=1))

    @property
    def covariance(self) -> Array:
        """C_φ in the eigenbasis."""
        D = self.deviation
        return np.diag(D**2) if D.ndim == 1 else D.T @ D

    def at(self, alpha: float) -> AlphaSlice:
        """Return everything that the solutions at this α have in common."""
        shrunk = self.values + alpha
        if shrunk.min(initial=np.inf) <= 1e-15 * shrunk.max(initial=0.0):
            raise LinAlgError(
                f"the {len(shrunk)}×{len(shrunk)} system is singular at alpha={alpha:g} (least "
                f"eigenvalue {shrunk.min():.2g}, largest {shrunk.max():.2g}); use a larger alpha "
                "or fewer features"
            )
        ridge = self.target / shrunk[:, None]
        directions = Directions.of(self.factor, self.factor / shrunk[:, None], ridge)
        return AlphaSlice(self, alpha, ridge, directions)


class Tridiagonal(NamedTuple):
    """QᵀCQ and Qᵀc: all that one number of each α needs, without eigenvectors."""

    diagonal: Array
    beside: Array
    target: Array

    @classmethod
    def of(cls, system: System) -> Tridiagonal:
        """Reduce a system of two features at least, in units of its ridge."""
        scale = 1.0 / np.sqrt(system.ridge)
        gram, target = scale[:, None] * system.gram * scale, scale[:, None] * system.target
        work = int(lapack.dsytrd_lwork(len(gram), lower=1)[0])
        vectors, diagonal, beside, tau, _ = lapack.dsytrd(gram.T, lower=1, lwork=work, overwrite_a=1)
        # Q = diag(1, Q'), and Q' is stored as that of a QR decomposition is.
        target[1:] = lapack.dormqr("L", "T", vectors[1:, :-1], tau, target[1:], max(64, len(gram)))[0]
        return cls(diagonal, beside, target)

    @property
    def values(self) -> Array:
        """Eigenvalues of C."""
        return np.asarray(np.maximum(lapack.dsterf(self.diagonal, self.beside)[0], 0.0))

    def explained(self, alphas: Array) -> Array:
        """Return what `Spectrum.explained` does: c·x + α|x|², x = (C + α)⁻¹c."""
        solved = [lapack.dptsv(self.diagonal + alpha, self.beside, self.target)[2] for alpha in alphas]
        return np.array([np.sum((self.target + a * x) * x) for a, x in zip(alphas, solved, strict=True)])


@dataclass(frozen=True, eq=False)
class AlphaSlice:
    """Solutions at one α: β'(η) = ridge − vectors · gain(η, strength) · along."""

    spectrum: Spectrum
    alpha: float
    ridge: Array
    directions: Directions

    @property
    def strength(self) -> Array:
        """RᵀA⁻¹R in its eigenbasis."""
        return self.directions.strength

    @property
    def n_penalized(self) -> int:
        """Number of coefficients that the penalty may reach, of one output."""
        return len(self.ridge)

    def coordinates(self, etas: Array) -> Array:
        """β' for each η, shape (E, m, t)."""
        vectors, strength, along = self.directions
        weighted = gain(np.atleast_1d(etas), strength)[:, :, None] * along
        return np.asarray(self.ridge - times_each(vectors, weighted))

    def coef(self, etas: Array) -> Array:
        """β for each η, shape (E, m, t)."""
        return times_each(self.spectrum.basis, self.coordinates(etas))

    def shares(self, etas: Array) -> Array:
        """Explained share for each η, shape (E,); NaN where f is constant."""
        at = np.concatenate([self.ridge[None], self.coordinates(etas)])
        return path_shares(self.spectrum.share_factor, self.spectrum.deviation, at)

    def quadratic(self) -> Quadratic:
        """Return what the solutions minimise before the penalty, in the eigenbasis."""
        spectrum = self.spectrum
        hessian = np.diag(spectrum.values + self.alpha)
        return Quadratic(hessian, spectrum.target, spectrum.share_factor, spectrum.covariance)


def grid(spectrum: Spectrum, alphas: Array, etas: Array, size: float | None = None) -> Array:
    """β for every α and η, side by side: (m, A·E·t); of the best scale where the `size` of y is given."""
    at = np.stack([spectrum.at(alpha).coordinates(etas) for alpha in alphas])
    if size is not None:
        scale = best_scale(at, spectrum.values[:, None] * at, spectrum.target, size)
        # Without penalty the limit is not active, and the ridge fit stays as it is.
        at *= np.where(etas > 0, scale, 1.0)[..., None, None]
    return np.asarray(spectrum.basis @ np.moveaxis(at, 2, 0).reshape(at.shape[2], -1))


@dataclass(frozen=True, eq=False)
class GridScores:
    """Held-out scores of every (α, η) in each fold, of shape (K, A, E); NaN where not tried."""

    mse: Array  # mean squared error, averaged over the targets; or the mean of another loss
    share: Array  # corrected for chance, not yet floored at 0
    rows: float = np.inf  # Kish's count of those that shares are measured on
    constant: Array | None = None  # error of the best constant (K,); None: no candidate

    @property
    def estimate(self) -> held_out.ShareEstimate:
        """The held-out share of every (α, η), shape (A, E)."""
        return held_out.ShareEstimate.of(self.share, self.rows)

    def bounds(self, etas: Array, limit: float) -> Array:
        """Return what must be within a limit, of shape (A, E): shares with a margin, and without one at η = ∞."""
        return np.where(np.isinf(etas), self.estimate.value, self.estimate.bound(limit))

    def __getitem__(self, index: Any) -> GridScores:
        """Return the scores of some alphas or etas, of all folds."""
        at = (slice(None), *index)
        return replace(self, mse=self.mse[at], share=self.share[at])

    def beside(self, more: GridScores, order: NDArray[np.int64]) -> GridScores:
        """Return the scores of these and more etas, in this order."""
        mse, share = (
            np.concatenate(both, axis=2)[:, :, order] for both in ((self.mse, more.mse), (self.share, more.share))
        )
        return replace(self, mse=mse, share=share)

    def finer(self, etas: Array, step: float = 1.1) -> tuple[GridScores, Array]:
        """Return scores at more etas, by monotone cubics in log η, and these etas, one of them just inside a limit."""
        at = np.flatnonzero((etas > 0) & np.isfinite(etas))
        logs = np.log(etas[at])
        steps = np.ceil(np.diff(logs) / np.log(step) - 1e-9).astype(int)
        between = [np.linspace(low, high, n + 1)[1:-1] for low, high, n in zip(logs, logs[1:], steps, strict=False)]
        more = np.concatenate([np.empty(0), *between])
        if not len(more):
            return self, etas
        missing = np.isnan(self.share[:, :, at]).any(axis=(0, 2))
        parts = (np.nan_to_num(part[:, :, at]) for part in (self.mse, self.share))
        mse, share = (PchipInterpolator(logs, part, axis=2)(more) for part in parts)
        share[:, missing] = np.nan
        all_etas, order = np.unique(np.concatenate([etas, np.exp(more)]), return_index=True)
        return self.beside(replace(self, mse=mse, share=share), order), all_etas


@dataclass(frozen=True, eq=False)
class FoldedMoments:
    """Moments of each fold, of the rows that always train, and of all rows."""

    folds: Sequence[Moments]
    always: Moments | None
    total: Moments
    ratios: Sequence[held_out.ChanceRatio] = ()  # of each fold; none: f varies alike at every s

    def ratio(self, k: int) -> held_out.ChanceRatio | None:
        """Return how much more chance explains of a fold than where f varies alike at every s."""
        return self.ratios[k] if self.ratios else None

    def outside(self, k: int) -> Moments:
        """Moments of the rows outside a fold: added up, as subtracting from the total cancels."""
        rest = [] if self.always is None else [self.always]
        return reduce(add, [*self.folds[:k], *self.folds[k + 1 :], *rest])


class FoldFits:
    """The systems without each fold, decomposed once; `rescaled`: β ← aβ, as under a limit."""

    def __init__(self, moments: FoldedMoments, *, rescaled: bool = False, **system: Any) -> None:
        self._folds, self._rescaled, self._ratio = moments.folds, rescaled, moments.ratio

        def decompose(k: int) -> tuple[System, Spectrum]:
            built = System.build(moments.outside(k), **system)
            return built, Spectrum.of(built, shares=False)

        self._systems, self._spectra = zip(*self._each(decompose), strict=True)

    def calibrated(self, calibration: Calibration, penalty: str, eps: float | None) -> FoldFits:
        """Return the fits with another λ and τ for rows that lack s: only the factors differ."""

        def turned(k: int) -> tuple[System, Spectrum]:
            system, spectrum = self._systems[k], self._spectra[k]
            moments = system.moments.calibrated(calibration)
            factor = penalties.PENALTIES[penalty](moments, eps, system.features)
            own = replace(system, moments=moments, factor=factor)
            return own, replace(spectrum, factor=spectrum.basis.T @ factor)

        other = copy(self)
        other._systems, other._spectra = zip(*self._each(turned), strict=True)
        return other

    def _each(self, work: Callable[[int], Any]) -> list[Any]:
        """Return work(k) of each fold k: side by side where matrices are small."""
        return run_each(work, len(self._folds), None if len(self._folds[0].shift) <= SMALL else 1)

    def score(self, alphas: Array, etas: Array) -> GridScores:
        """Fit on the other folds, score on the one left out, for the whole grid."""

        def score(k: int) -> tuple[Array, held_out.HeldOut | None]:
            fold, system, B = self._folds[k], self._systems[k], self._coef(k, alphas, etas)
            t, scored = system.target.shape[1], fold.scored
            variance = penalties.variance_of(scored, system.features, B).reshape(-1, t)
            errors = squared_errors(system, B, variance, scored).mean(axis=1)
            if penalties.attribute(fold) is None:
                return errors, None
            how = system.features, B, t, self._ratio(k)
            known = variance if scored is fold.judged else None
            judges = [held_out.held_out_shares(on, *how, var_f=known) for on in fold.judges]
            return errors, held_out.HeldOut.joined(judges)

        errors, shares = zip(*self._each(score), strict=True)
        shape = (len(self._folds), len(alphas), len(etas))
        worst = np.full(shape, np.nan) if None in shares else held_out.worst_of(shares)
        rows = sum(fold.judged.effective_rows for fold in self._folds)
        return GridScores(np.reshape(errors, shape), worst.reshape(shape), rows)

    def coefs(self, alphas: Array, etas: Array) -> list[Array]:
        """β of every (α, η) without each fold, side by side: of shape (m, A·E·t)."""
        return self._each(lambda k: self._coef(k, alphas, etas))

    def _coef(self, k: int, alphas: Array, etas: Array) -> Array:
        size = penalties.size_of_block(self._systems[k].moments, "y") if self._rescaled else None
        return grid(self._spectra[k], alphas, etas, size)

    def constant_errors(self) -> Array:
        """Held-out error of the best constant of the other folds, shape (K,)."""
        errors = []
        for fold, system in zip(self._folds, self._systems, strict=True):
            none = np.zeros((len(system.gram), system.target.shape[1]))
            errors.append(squared_errors(system, none, none[:1], fold).mean())
        return np.array(errors)


def squared_errors(fitted: System, B: Array, variance: Array, on: Moments) -> Array:
    """Var(y) − 2βᵀC_φy + βᵀC_φβ and the squared mean error, shape (G, t), of fits of `fitted`."""
    t = variance.shape[1]
    intercept: Any = 0.0
    if fitted.fit_intercept:
        intercept = fitted.moments.mean("y") - (fitted.mean @ B).reshape(-1, t)
    return errors_on(on, fitted.features, B, intercept, variance)


def errors_on(on: Moments, features: penalties.Features, B: Array, intercept: Any, variance: Array) -> Array:
    """The same of predictors whose intercepts are given, one number or shape (G, t)."""
    t = variance.shape[1]
    linear = np.einsum("mgt,mt->gt", B.reshape(len(B), -1, t), on.covariance(features, "y"))
    spread = np.diagonal(on.covariance("y", "y")) - 2 * linear + variance
    gap = on.mean("y") - (on.mean(*features) @ B).reshape(-1, t) - intercept
    return np.asarray(np.maximum(spread, 0.0) + gap**2)


class Choice(NamedTuple):
    """Position of the chosen (α, η) in the grid."""

    alpha: int
    eta: int


def choose(scores: GridScores, etas: Array, unfairness: float | None) -> Choice | None:
    """Return the fairest of the points as good as the best or, under a limit, the best within; None: a constant."""
    if unfairness is None:
        return largest_eta_within_one_error(scores, etas)
    if unfairness == 0:
        # η = ∞ leaves no share, and the corrected share of none is below 0 as often as above.
        allowed = ~np.isnan(scores.share.mean(axis=0)) & np.isinf(etas)
    else:
        allowed = scores.bounds(etas, unfairness) <= unfairness
    if not allowed.any():
        return None
    mean = np.where(allowed, scores.mse.mean(axis=0), np.inf)
    alpha, eta = (int(at) for at in np.unravel_index(np.argmin(mean), mean.shape))
    if scores.constant is None or (scores.mse[:, alpha, eta] - scores.constant).mean() <= 0:
        return Choice(alpha, eta)
    return None


def largest_eta_within_one_error(scores: GridScores, etas: Array) -> Choice:
    """Return the largest η whose error, at its own best α, is within one error of the best."""
    mean, error = held_out.mean_and_error(scores.mse)
    mean = np.where(np.isnan(mean), np.inf, mean)
    alpha = np.argmin(mean, axis=0)
    best = np.min(mean, axis=0)
    winner = int(np.argmin(best))
    bound = best[winner] + error[alpha[winner], winner]
    allowed = np.flatnonzero(best <= bound)
    eta = int(allowed[np.argmax(etas[allowed])])
    return Choice(int(alpha[eta]), eta)


def best_alpha(system: System, spectrum: Spectrum | Tridiagonal) -> float:
    """Return the α of least |y − f|²/n / (1 − 1.4 d/n)² without penalty; d = tr C(C + α)⁻¹.

    Generalised cross-validation of all α by one decomposition: where C = diag(λ),
    |y − f|²/n = |y|²/n − Σ c²(λ + 2α)/(λ + α)². The 1.4 is customary: it undersmooths less where
    rows are few. Exact fits are compared by d, not by rounding errors.
    """
    alphas, values = default_alphas(system, 57, -8.0)[::-1], spectrum.values
    moments = system.moments.scored
    spread = float(np.trace(moments.covariance("y", "y")))  # not |y|²/n − ȳ², which cancels
    size = spread if system.fit_intercept else penalties.size_of_block(moments, "y")
    errors = np.maximum(size - spectrum.explained(alphas), 1e-10 * size)
    freedom = np.sum(values / (values + alphas[:, None]), axis=1) + system.fit_intercept
    left = 1 - 1.4 * freedom / moments.effective_rows
    return float(alphas[np.argmin(np.where(left > 0, errors / left**2, np.inf))])


def default_etas(system: System, alpha: float, count: int = 25) -> Array:
    """0, a log grid around the strength of the penalty, and ∞."""
    strength = largest_strength(system, alpha)
    unit = 1.0 / strength if strength > 0 else 1.0
    return np.concatenate([[0.0], unit * np.logspace(-2, 6, count - 2), [np.inf]])


def default_alphas(system: System, count: int = 10, least: float = -7.0) -> Array:
    """A log grid relative to the total variance of the features, base predictions left out."""
    width = sum(system.moments.blocks[name] for name in system.features if name != "base")
    scale = float(np.trace(system.gram[:width, :width]))
    return (scale if scale > 0 else 1.0) * np.logspace(least, 0, count)
