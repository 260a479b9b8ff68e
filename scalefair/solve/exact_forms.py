"""Two forms of the dense fair Gaussian process at fixed hyperparameters: a quick and a robust one.

In weighted coordinates (`scalefair.solve.exact`), K with its amplitude, M = U diag(s) Uᵀ. The
posterior precision of f is K⁻¹ + (I + ηM)/σ²: an ordinary process with targets Ty and noise
covariance σ²T, T = (I + ηM)⁻¹. With S = (K + σ²T)⁻¹ and F, FFᵀ = (MK + (σ²/η)I)⁻¹M, of the prior
k* = k − k_XᵀFFᵀk_X,

    mean k_Xᵀc, c = STy        covariance k − k_XᵀSk_X        log|K* + σ²I| = log|K + σ²T| − log|T|
                                                                             − log|I + (η/σ²)MK|
    ∂ log evidence/∂K = −½(t(S − FFᵀ) − ccᵀ)

and nothing is left of the prior but F. `QuickForm` is that, by Cholesky factors, with an error of
the order of the condition number |K|(1 + ηs)/σ² times the machine precision. `RobustForm` goes
through the prior of `scalefair.solve.exact_gp` and has all its digits for every η, infinity too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotri

from scalefair._typing import Array
from scalefair.solve.exact import Spectrum, WeightedRows, shrinkage
from scalefair.solve.exact_gp import FairPrior, cholesky_of_noisy, spectral_prior

LARGEST_CONDITION = 1e8
"""Above it `QuickForm` may lose more than half of the digits."""


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
    def size(self) -> float:
        """A bound of |K|: its largest row sum."""
        return float(np.abs(self.gram).sum(axis=0).max(initial=0.0)) or 1.0

    @property
    def condition(self) -> float:
        """A bound of the condition number of K + σ²T; 0 for η = 0, where nothing cancels."""
        if self.eta == 0 or not len(self.spectrum.values):
            return 0.0
        return self.size * (1.0 + self.eta * float(self.spectrum.values.max())) / self.noise

    def log_evidence(self, log_det: float, misfit: float) -> float:
        """log evidence from log|K* + σ²I| and yᵀ(K* + σ²I)⁻¹y; n is the sum of the weights."""
        n, k = self.rows.total, len(self.gram)
        volume = n * np.log(2 * np.pi) + (n - k) * np.log(self.noise) + log_det
        return float(-0.5 * (self.outputs * volume + misfit))


class Form(Protocol):
    """The fair Gaussian process at fixed hyperparameters."""

    coef: Array
    misfit: float
    log_evidence: float
    prior: FairPrior

    def adjoint(self) -> Array:
        """∂ log evidence/∂K, shape (k, k), symmetric."""
        ...

    def spread(self, K_new: Array) -> Array:
        """V of shape (p, r), such that the posterior covariance is k − VVᵀ."""
        ...


def solve_form(setting: Setting) -> Form:
    """Return the quick form where it keeps its digits, else the robust one."""
    build: Callable[[Setting], Form]
    build = QuickForm.of if setting.condition <= LARGEST_CONDITION else RobustForm.of
    return build(setting)


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
        shifted = setting.gram.copy()
        target = setting.target
        if setting.eta > 0:
            shifted -= (U * (setting.noise * (1.0 - kept))) @ U.T
            target = target - (U * (1.0 - kept)) @ (U.T @ target)
        factor = cholesky_of_noisy(shifted, setting.noise)
        return cls(setting, factor, cho_solve((factor, True), target, check_finite=False))

    @cached_property
    def misfit(self) -> float:
        """yᵀ(K* + σ²I)⁻¹y = |y − f|²/σ² + cᵀKc + (η/σ²)fᵀMf with f = Kc = T(y − σ²c)."""
        at = self.setting
        fitted = at.gram @ self.coef
        residual = at.target - fitted
        total = np.sum(residual**2) / at.noise + np.sum(self.coef * fitted)
        if at.eta > 0:
            along = at.spectrum.vectors.T @ (at.target - at.noise * self.coef)
            kept = _kept(at)
            total += np.sum((kept * (1.0 - kept))[:, None] * along**2) / at.noise
        return float(total)

    @cached_property
    def log_evidence(self) -> float:
        """log N(y | 0, K* + σ²I), summed over the outputs."""
        log_det = 2.0 * float(np.sum(np.log(np.diag(self.cholesky))))
        if self.setting.eta > 0:
            triangle, _, rest = self._prior_root
            log_det -= float(np.sum(np.log(_kept(self.setting))))
            log_det -= 2.0 * float(np.sum(np.log(np.diag(triangle))) - np.sum(np.log(rest)))
        return self.setting.log_evidence(log_det, self.misfit)

    @cached_property
    def prior(self) -> FairPrior:
        """The fair prior k*."""
        k = len(self.setting.gram)
        factor = self._prior_factor if self.setting.eta > 0 else np.zeros((k, 0))
        return FairPrior(factor, self.setting.gram @ factor)

    def adjoint(self) -> Array:
        """−½(t(S − FFᵀ) − ccᵀ)."""
        inverse, _ = dpotri(self.cholesky, lower=1)
        result = np.tril(inverse) + np.tril(inverse, -1).T
        if self.setting.eta > 0:
            result -= self._prior_factor @ self._prior_factor.T
        result *= -0.5 * self.setting.outputs
        result += 0.5 * self.coef @ self.coef.T
        return np.asarray(result)

    def spread(self, K_new: Array) -> Array:
        """k_X(·)ᵀL⁻ᵀ, shape (p, k)."""
        return solve_triangular(self.cholesky, K_new.T, lower=True, check_finite=False).T

    @cached_property
    def _prior_root(self) -> tuple[Array, Array, Array]:
        """Lower root of 1 − τ + √τUᵀK₁U√τ, and √τ, √(1 − τ), τ = ηas/(σ² + ηas), K₁ = K/a."""
        at, scale = self.setting, self.setting.size
        weight, rest = shrinkage(at.eta * scale / at.noise, at.spectrum.values)
        weighted = at.spectrum.vectors * weight
        inner = weighted.T @ (at.gram @ weighted) / scale
        inner[np.diag_indices_from(inner)] += rest**2
        return cholesky(inner, lower=True, check_finite=False), weight, rest

    @cached_property
    def _prior_factor(self) -> Array:
        triangle, weight, _ = self._prior_root
        weighted = self.setting.spectrum.vectors * (weight / np.sqrt(self.setting.size))
        return solve_triangular(triangle, weighted.T, lower=True, check_finite=False).T


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
        solved = cho_solve((factor, True), setting.target, check_finite=False)
        return cls(setting, prior, factor, solved)

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
        inverse, _ = dpotri(self.cholesky, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        W = -0.5 * (self.setting.outputs * inverse - self.target_coef @ self.target_coef.T)
        half = W - self.prior.factor @ (self.prior.train.T @ W)
        result = half - (half @ self.prior.train) @ self.prior.factor.T
        return np.asarray(0.5 * (result + result.T))

    def spread(self, K_new: Array) -> Array:
        """g(·) and k*_X(·)ᵀL⁻ᵀ side by side, shape (p, r + k)."""
        g = K_new @ self.prior.factor
        fair = K_new - g @ self.prior.train.T
        solved = solve_triangular(self.cholesky, fair.T, lower=True, check_finite=False).T
        return np.hstack([g, solved])


def _kept(setting: Setting) -> Array:
    """1/(1 + ηs): the eigenvalues of T on the range of M."""
    return np.asarray(1.0 / (1.0 + setting.eta * setting.spectrum.values))
