"""What a fitted fair Gaussian process says of new rows: mean, deviation, covariance, draws.

A Nyström map φ of m landmarks sees the prior variance |φ(x)|² of the kernel's k(x, x). What is
missing, r(x) = a²(k(x, x) − |φ(x)|²), is the variance of f given its values at the landmarks, and
it goes to all of a²k(x, x) far from them. It is added to the variance of f, and the covariance
a²(k − φᵀφ) to that of several rows, as in the deterministic training conditional and FITC. Under
the fair prior nothing changes: the penalty looks at f on the training rows, where the model takes
φ(x)ᵀβ for f; the rest of f is independent of β and has mean zero, so that the mean stays as fair
as it is, and the exact fair process, whose rest is punished, too, has no more variance.

A noise variance σ² that was learnt fits y about φ(x)ᵀβ on the training rows, and so contains what
is missing there; adding both would count it twice. With c, which r exceeds on 5 % of the training
rows, and κ = min(1, σ²/c), the rest of f that is told of has the variance κ min(r, c) + (r − c)₊:
no more than the data left room for on rows like those fitted, and all the excess elsewhere. New y
has the variance of φᵀβ plus σ² + (r − c)₊. A noise that was given is taken at its word: c = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.estimators._exact import ExactRows
from scalefair.kernels import Kernel
from scalefair.solve.dense.gp import ExactGP
from scalefair.solve.gp.gaussian import GaussianFunction
from scalefair.statistics.rows import whitened


class Law(Protocol):
    """The law of f, prior or posterior; rows x are arrays of shape (k, d)."""

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""
        ...

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and what the noise adds to it, both of shape (k,)."""
        ...

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k), the same for every output."""
        ...


@dataclass(frozen=True, eq=False)
class FeatureLaw:
    """f(x) = ȳ + φ(x)ᵀβ, and what the features miss of the kernel.

    Parameters
    ----------
    phi : FeatureMap
    law : GaussianFunction
        Of β.
    missing : float
        a² for a Nyström map, whose residual k(x, x) − |φ(x)|² it multiplies; 0 for the others.
    contained : float
        c, up to which the noise contains the residual.
    """

    phi: FeatureMap
    law: GaussianFunction
    missing: float
    contained: float

    def with_weights(self, law: GaussianFunction) -> FeatureLaw:
        """Return the same with another law of β."""
        return replace(self, law=law)

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""
        return np.asarray(self.law.offset + self.phi.raw(_wide(x)) @ self._raw_coef)

    @cached_property
    def _raw_coef(self) -> Array:
        """Coefficients of the raw rows, which saves the linear part."""
        linear, coef = self.phi.linear_, self.law.coef
        return coef if linear is None else linear @ coef

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and what the noise adds to it, both of shape (k,)."""
        x = _wide(x)
        Phi = whitened(self.phi, x)
        residual, noise = self._residual(x, Phi), self.law.noise
        inside = self._share * np.minimum(residual, self.contained)
        excess = np.maximum(residual - self.contained, 0.0)
        return self.law.variance(Phi) + inside + excess, noise - inside

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k)."""
        x = _wide(x)
        Phi = whitened(self.phi, x)
        covariance = self.law.covariance(Phi)
        if self.missing:
            kernel: Any = self.phi.kernel_  # type: ignore[attr-defined]
            residual = self._residual(x, Phi)
            told = self._share * np.minimum(residual, self.contained)
            told += np.maximum(residual - self.contained, 0.0)
            # Correlated as the kernel says, with the variances that are told of.
            root = np.sqrt(self.missing * told / np.where(residual > 0, residual, 1.0))
            rest = _positive(kernel(x) - Phi @ Phi.T)
            covariance = covariance + root[:, None] * rest * root
        return covariance

    @property
    def _share(self) -> float:
        """κ."""
        return min(1.0, self.law.noise / self.contained) if self.contained else 1.0

    def _residual(self, x: Array, Phi: Rows) -> Array:
        if not self.missing:
            return np.zeros(len(x))
        diagonal = self.phi.kernel_.diag(x)  # type: ignore[attr-defined]
        return np.asarray(self.missing * np.maximum(diagonal - np.sum(Phi**2, axis=1), 0.0))


@dataclass(frozen=True, eq=False)
class ExactLaw:
    """The same of the exact process, which is made again from the rows where it is needed first.

    Parameters
    ----------
    rows : ExactRows
        The training rows.
    kernel : Kernel
    noise, amplitude, eta, eps : float
    penalty : str
    prior : bool
        Whether y is not looked at.
    """

    rows: ExactRows
    kernel: Kernel
    noise: float
    amplitude: float
    eta: float
    eps: float | None
    penalty: str
    prior: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "process"}

    def before_data(self) -> ExactLaw:
        """Return the prior."""
        return replace(self, prior=True)

    @cached_property
    def process(self) -> ExactGP:
        """The posterior of f − ȳ."""
        rows = self.rows
        L, eps, penalty = rows.attributes(self.penalty, self.eps)
        return ExactGP.fit(
            self.kernel, rows.x, None if rows.psi is None else L, rows.y - self.offset,
            noise=self.noise, amplitude=self.amplitude, eta=self.eta, penalty=penalty, eps=eps,
            weight=rows.weight,
        )  # fmt: skip

    def at(self, theta: Array) -> ExactGP:
        """Return the posterior at [log θ, log a, log σ²]."""
        amplitude, noise = np.exp(theta[-2:])
        kernel = (
            self.kernel if len(theta) == 2 else self.kernel.with_length_scale(np.exp(theta[:-2]))
        )
        return self.process.problem.at(
            kernel, noise=float(noise), amplitude=float(amplitude), eta=self.eta
        )

    @property
    def offset(self) -> Array:
        """ȳ, shape (t,)."""
        return np.asarray(np.average(self.rows.y, axis=0, weights=self.rows.weight))

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""
        if self.prior:
            return np.tile(self.offset, (len(x), 1))
        return self.offset + self.process.mean(x)

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and the noise, both of shape (k,)."""
        variance = np.diagonal(self.covariance(x)) if self.prior else self.process.variance(x)
        return variance, np.full(len(x), self.noise)

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k)."""
        of = self.process.prior_covariance if self.prior else self.process.covariance
        return _positive(of(x))


def covariance_of(law: Law, x: Array, *, include_noise: bool) -> Array:
    """Return the covariance of f, or of new y, at rows x; shape (k, k)."""
    covariance = law.covariance(x)
    if include_noise:
        covariance = covariance + np.diag(law.variances(x)[1])
    return covariance


def draw(law: Law, x: Array, size: int, seed: Any, *, include_noise: bool) -> Array:
    """Return joint draws of f, or of new y, at rows x; shape (k, t, size)."""
    values, vectors = positive_eigh(covariance_of(law, x, include_noise=include_noise))
    mean = law.mean(x)
    white = np.random.default_rng(seed).standard_normal((mean.shape[1], len(x), size))
    draws = np.matmul(vectors * np.sqrt(values), white)
    return np.asarray(mean[:, :, None] + np.swapaxes(draws, 0, 1))


@dataclass(frozen=True, eq=False)
class Predictor:
    """Makes the function of chunks that `predict` runs, for ``source.map``.

    Parameters
    ----------
    law : Law
    std : bool
        Join the standard deviation as a last column.
    include_noise : bool
        That of new y instead of f.
    """

    law: Law
    std: bool
    include_noise: bool

    def __call__(self) -> Callable[[Chunk], Array]:
        """Return the function."""
        return self.predict

    def predict(self, chunk: Chunk) -> Array:
        """Return E f and, if so asked, the deviation; shape (k, t) or (k, t + 1)."""
        mean = self.law.mean(chunk.x)
        if not self.std:
            return mean
        variance, noise = self.law.variances(chunk.x)
        total = variance + noise if self.include_noise else variance
        return np.column_stack([mean, np.sqrt(total)])


def _positive(matrix: Array) -> Array:
    """Return the symmetric positive semi-definite matrix that rounding has moved it from."""
    values, vectors = positive_eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * values) @ vectors.T)


def _wide(x: Array) -> Array:
    return np.asarray(x, dtype=np.float64)
