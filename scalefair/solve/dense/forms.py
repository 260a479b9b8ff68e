"""Two forms of the dense fair Gaussian process at fixed hyperparameters: a quick and a robust one.

In weighted coordinates (`scalefair.solve.dense.ridge`), K with its amplitude, M = U diag(s) Uᵀ. The
posterior precision of f is K⁻¹ + (I + ηM)/σ²: an ordinary process with targets Ty and noise
covariance σ²T, T = (I + ηM)⁻¹. With S = (K + σ²T)⁻¹ and F, FFᵀ = (MK + (σ²/η)I)⁻¹M, of the prior
k* = k − k_XᵀFFᵀk_X,

    mean k_Xᵀc, c = STy        covariance k − k_XᵀSk_X        log|K* + σ²I| = log|K + σ²T| − log|T|
                                                                             − log|I + (η/σ²)MK|
    ∂ log evidence/∂K = −½(t(S − FFᵀ) − ccᵀ)

and nothing is left of the prior but F. `QuickForm` is that, by Cholesky factors, with an error of
the order of the condition number |K|(1 + ηs)/σ² times the machine precision. `RobustForm` goes
through the prior of `scalefair.solve.dense.prior` and has all its digits for every η, infinity too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotri, dpotrs

from scalefair._typing import Array
from scalefair.solve.dense.prior import (
    LARGEST_CONDITION,
    FairPrior,
    cholesky_of_noisy,
    cholesky_prior,
    condition_bound,
    spectral_prior,
)
from scalefair.solve.dense.ridge import Spectrum, WeightedRows


@dataclass(frozen=True, eq=False)
class Setting:
    """What both forms start from, in weighted coordinates.

    Parameters
    ----------
    rows : WeightedRows
    gram : array of shape (k, k)
        K, amplitude included.
    target : array of shape (k, t)
        y.
    spectrum : Spectrum
        Of the penalty M.
    noise, eta : float
        σ² > 0 and 0 ≤ η ≤ ∞.
    """

    rows: WeightedRows
    gram: Array
    target: Array
    spectrum: Spectrum
    noise: float
    eta: float

    @property
    def outputs(self) -> int:
        """Number of outputs t."""
        return int(self.target.shape[1])

    @property
    def condition(self) -> float:
        """A bound of the condition number of K + σ²T; 0 for η = 0, where nothing cancels."""
        return condition_bound(self.gram, self.spectrum, eta=self.eta, noise=self.noise)

    def log_evidence(self, log_det: float, misfit: float) -> float:
        """log evidence from log|K* + σ²I| and yᵀ(K* + σ²I)⁻¹y; n is the sum of the weights."""
        n, k = self.rows.total, len(self.gram)
        volume = n * np.log(2 * np.pi) + (n - k) * np.log(self.noise) + log_det
        return float(-0.5 * (self.outputs * volume + misfit))


class Form(Protocol):
    """The fair Gaussian process at fixed hyperparameters."""

    @property
    def coef(self) -> Array:
        """c of the mean k_Xᵀc, shape (k, t)."""
        ...

    @property
    def misfit(self) -> float:
        """yᵀ(K* + σ²I)⁻¹y, summed over the outputs."""
        ...

    @property
    def log_evidence(self) -> float:
        """log N(y | 0, K* + σ²I), summed over the outputs."""
        ...

    @property
    def prior(self) -> FairPrior:
        """The fair prior k*."""
        ...

    def adjoint(self) -> Array:
        """G with d log evidence = Σ_ij G_ij dK_ij for symmetric dK, shape (k, k), C-ordered."""
        ...

    def spread(self, K_new: Array) -> Array:
        """V of shape (p, r), such that the posterior covariance is k − VVᵀ."""
        ...


def solve_form(setting: Setting) -> Form:
    """Return the quick form where it keeps its digits, else the robust one."""
    if setting.condition <= LARGEST_CONDITION:
        return QuickForm.of(setting)
    return RobustForm.of(setting)


@dataclass(frozen=True, eq=False)
class QuickForm:
    """The process through K + σ²T = LLᵀ.

    Parameters
    ----------
    setting : Setting
    cholesky : array of shape (k, k)
        L, lower.
    coef : array of shape (k, t)
        c.
    """

    setting: Setting
    cholesky: Array
    coef: Array

    @classmethod
    def of(cls, setting: Setting) -> QuickForm:
        """Factorise K + σ²T."""
        U, kept = setting.spectrum.vectors, _kept(setting)
        shifted, target = setting.gram, setting.target
        if setting.eta > 0:
            shifted = shifted - (U * (setting.noise * (1.0 - kept))) @ U.T
            target = target - (U * (1.0 - kept)) @ (U.T @ target)
        factor = cholesky_of_noisy(shifted, setting.noise)
        return cls(setting, factor, _solve(factor, target))

    @cached_property
    def misfit(self) -> float:
        """yᵀ(K* + σ²I)⁻¹y = |y − f|²/σ² + cᵀKc + (η/σ²)fᵀMf with f = Kc = T(y − σ²c)."""
        at = self.setting
        if at.eta == 0:
            return float(np.sum(at.target * self.coef))
        fitted, kept = at.gram @ self.coef, _kept(at)
        residual = at.target - fitted
        along = at.spectrum.vectors.T @ (at.target - at.noise * self.coef)
        punished = np.sum((kept * (1.0 - kept))[:, None] * along**2)
        return float((np.sum(residual**2) + punished) / at.noise + np.sum(self.coef * fitted))

    @cached_property
    def log_evidence(self) -> float:
        """log N(y | 0, K* + σ²I), summed over the outputs."""
        log_det = 2.0 * float(np.sum(np.log(np.diag(self.cholesky))))
        if self.setting.eta > 0:
            log_det -= float(np.sum(np.log(_kept(self.setting)))) + self._prior_factor[1]
        return self.setting.log_evidence(log_det, self.misfit)

    @cached_property
    def prior(self) -> FairPrior:
        """The fair prior k*."""
        at = self.setting
        factor = self._prior_factor[0] if at.eta > 0 else np.zeros((len(at.gram), 0))
        return FairPrior(factor, at.gram @ factor)

    def adjoint(self) -> Array:
        """−½(t(S − FFᵀ) − ccᵀ)."""
        t, update = self.setting.outputs, self.coef
        if self.setting.eta > 0:
            update = np.hstack([update, np.sqrt(t) * self._prior_factor[0]])
        inverse = dpotri(self.cholesky, lower=1)[0]
        # One triangle, off the diagonal doubled: a contraction needs no more.
        result = dsyrk(1.0, update, beta=-float(t), c=inverse, lower=1, overwrite_c=1).T
        result.ravel()[:: len(result) + 1] *= 0.5
        return np.asarray(result)

    def spread(self, K_new: Array) -> Array:
        """k_X(·)ᵀL⁻ᵀ, shape (p, k)."""
        return solve_triangular(self.cholesky, K_new.T, lower=True, check_finite=False).T

    @cached_property
    def _prior_factor(self) -> tuple[Array, float]:
        at = self.setting
        return cholesky_prior(at.gram, at.spectrum, eta=at.eta, noise=at.noise)


@dataclass(frozen=True, eq=False)
class RobustForm:
    """The process through K* + σ²I = LLᵀ, K* = K − gᵀg from singular values.

    Parameters
    ----------
    setting : Setting
    prior : FairPrior
    cholesky : array of shape (k, k)
        L, lower.
    target_coef : array of shape (k, t)
        a = (K* + σ²I)⁻¹y.
    """

    setting: Setting
    prior: FairPrior
    cholesky: Array
    target_coef: Array

    @classmethod
    def of(cls, setting: Setting) -> RobustForm:
        """Factorise K* + σ²I."""
        prior = spectral_prior(setting.gram, setting.spectrum, eta=setting.eta, noise=setting.noise)
        factor = cholesky_of_noisy(prior.gram(setting.gram), setting.noise)
        return cls(setting, prior, factor, _solve(factor, setting.target))

    @cached_property
    def coef(self) -> Array:
        """k*_X(x)ᵀa = k_X(x)ᵀc with c = a − Fgᵀa: the mean needs the plain kernel only."""
        a = self.target_coef
        return a - self.prior.factor @ (self.prior.train.T @ a)

    @cached_property
    def misfit(self) -> float:
        """yᵀ(K* + σ²I)⁻¹y."""
        return float(np.sum(self.setting.target * self.target_coef))

    @cached_property
    def log_evidence(self) -> float:
        """log N(y | 0, K* + σ²I), summed over the outputs."""
        log_det = 2.0 * float(np.sum(np.log(np.diag(self.cholesky))))
        return self.setting.log_evidence(log_det, self.misfit)

    def adjoint(self) -> Array:
        """B W Bᵀ, W = −½(t(K* + σ²I)⁻¹ − aaᵀ): as dK* = BᵀdKB with B = I − Fgᵀ."""
        inverse = dpotri(self.cholesky, lower=1)[0]
        inverse += np.tril(inverse, -1).T
        W = 0.5 * (self.target_coef @ self.target_coef.T - self.setting.outputs * inverse)
        half = W - self.prior.factor @ (self.prior.train.T @ W)
        return np.asarray(half - (half @ self.prior.train) @ self.prior.factor.T)

    def spread(self, K_new: Array) -> Array:
        """g(·) and k*_X(·)ᵀL⁻ᵀ side by side, shape (p, r + k)."""
        g = K_new @ self.prior.factor
        fair = K_new - g @ self.prior.train.T
        solved = solve_triangular(self.cholesky, fair.T, lower=True, check_finite=False).T
        return np.hstack([g, solved])


def _solve(cholesky: Array, right: Array) -> Array:
    """Return (LLᵀ)⁻¹ right; SciPy's own wrapper would copy L first."""
    return np.asarray(dpotrs(cholesky, right, lower=1)[0])


def _kept(setting: Setting) -> Array:
    """1/(1 + ηs): the eigenvalues of T on the range of M."""
    return np.asarray(1.0 / (1.0 + setting.eta * setting.spectrum.values))
