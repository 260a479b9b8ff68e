"""The exact (n×n) fair Gaussian process of a kernel: evidence, its ARD gradient, and predictions.

y = f + N(0, σ²/w), f ~ GP(0, k*) with the fair kernel k* of `scalefair.solve.dense.prior`, made of
a²k. The adjoint G = ∂ log evidence/∂K (`scalefair.solve.dense.forms`) gives every derivative:

    ∂/∂log θ_l = Σ_ij G_ij ∂K_ij/∂log θ_l      ∂/∂log a = 2 Σ_ij G_ij K_ij
    ∂/∂log σ² = −½(tn − yᵀ(K* + σ²I)⁻¹y) − Σ_ij G_ij K_ij

The last, because K*/σ² depends on K/σ² and η alone: noise acts through the prior, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.kernels import RBF, Kernel
from scalefair.solve.dense.forms import Form, Setting, solve_form
from scalefair.solve.dense.ridge import (
    Spectrum,
    WeightedRows,
    check_number,
    penalty_spectrum,
    weighted_rows,
)
from scalefair.stream._threads import one_blas_thread

FEW_ROWS = 1500
"""Up to here one thread of BLAS is quicker than two that share two cores with another BLAS."""


@dataclass(frozen=True, eq=False)
class ExactProblem:
    """What the evidence of an exact fair process does not change: rows, targets and penalty.

    Parameters
    ----------
    X : array of shape (k, d)
        Inputs of the rows of positive weight.
    rows : WeightedRows
        Which rows these are.
    target : array of shape (k, t)
        y in weighted coordinates.
    spectrum : Spectrum or None
        Of the penalty M; None without sensitive attributes.
    single : bool
        Whether y was one-dimensional.
    """

    X: Any
    rows: WeightedRows
    target: Array
    spectrum: Spectrum | None
    single: bool

    @classmethod
    def build(
        cls,
        X: Any,
        L: Any,
        y: Any,
        *,
        penalty: str = "normalized",
        eps: float = 1e-6,
        weight: Any = None,
    ) -> ExactProblem:
        """Decompose the penalty once; parameters as in `ExactGP.fit`."""
        inputs = np.asarray(X)
        if inputs.ndim != 2:
            raise ValueError(
                f"X has shape {inputs.shape}, expected (rows, columns); "
                "reshape one column with X.reshape(-1, 1)"
            )
        rows = weighted_rows(len(inputs), weight)
        target = rows.values("y", y)
        spectrum = None if L is None else penalty_spectrum(rows, L, eps=eps, penalty=penalty)
        kept = _checked(inputs[rows.index])
        return cls(kept, rows, target.reshape(len(target), -1), spectrum, target.ndim == 1)

    def at(
        self, kernel: Kernel, *, noise: float, amplitude: float = 1.0, eta: float = 0.0
    ) -> ExactGP:
        """Return the process at these hyperparameters; as in `ExactGP.fit`."""
        check_number("noise", noise)
        check_number("amplitude", amplitude)
        check_number("eta", eta, positive=False, finite=False)
        if self.spectrum is None and eta != 0:
            raise ValueError(
                f"eta={eta} needs the Gram matrix L of the sensitive attributes, got None; "
                "pass L, or eta=0 for an ordinary Gaussian process"
            )
        with self.products():
            gram = self.weighted(np.asarray(kernel(self.X), dtype=np.float64))
        gram *= float(amplitude) ** 2
        none = Spectrum(np.zeros(0), np.zeros((len(gram), 0)))
        spectrum = none if self.spectrum is None else self.spectrum
        # A constant s has no direction to punish: then the ordinary process, whatever eta.
        eta = float(eta) if len(spectrum.values) else 0.0
        setting = Setting(self.rows, gram, self.target, spectrum, float(noise), eta)
        with self.products(eta):
            form = solve_form(setting)
        return ExactGP(self, kernel, float(amplitude), form, setting)

    def products(self, eta: float = 1.0) -> AbstractContextManager[None]:
        """Hold BLAS to one thread for NumPy's products where the matrices are small.

        The wheels of NumPy and SciPy each bring a BLAS with threads of its own, which wait for the
        next call by spinning: products of the one and factorisations of the other by turns would
        fight for the cores. With η = 0 the process itself takes factorisations only.
        """
        return one_blas_thread() if len(self.X) <= FEW_ROWS and eta > 0 else nullcontext()

    def weighted(self, matrix: Array) -> Array:
        """vGv, in place: of the kernel matrix, and of its adjoint."""
        if self.rows.weighs:
            matrix *= self.rows.root[:, None]
            matrix *= self.rows.root
        return matrix


@dataclass(frozen=True, eq=False)
class ExactGP:
    """Posterior of f ~ GP(0, k*) given y = f(X) + N(0, σ²).

    Made by `ExactGP.fit`, or by `ExactProblem.at` where many hyperparameters are tried.

    Parameters
    ----------
    problem : ExactProblem
    kernel : Kernel
        k, without the amplitude.
    amplitude : float
        a; the kernel of f before fairness is a²k.
    form : Form
        The factorisations.
    setting : Setting
        What they factorise.
    """

    problem: ExactProblem
    kernel: Kernel
    amplitude: float
    form: Form
    setting: Setting

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        X: Any,
        L: Any,
        y: Any,
        *,
        noise: float,
        amplitude: float = 1.0,
        eta: float = 0.0,
        penalty: str = "normalized",
        eps: float = 1e-6,
        weight: Any = None,
    ) -> ExactGP:
        """Condition the fair process on y.

        Parameters
        ----------
        kernel : Kernel
            k; one length scale, or one per input (ARD).
        X : array of shape (n, d)
            Inputs.
        L : array of shape (n, n) or None
            Gram matrix of the sensitive attributes; None only with ``eta=0``.
        y : array of shape (n,) or (n, t)
            Targets, centred by the caller; outputs are independent and share the covariance.
        noise, amplitude : float
            σ² and a, both positive.
        eta : float
            Weight of the penalty, 0 ≤ η ≤ ∞.
        penalty : {"normalized", "hsic"}
        eps : float
            ε of `normalized`.
        weight : array of shape (n,) or None
            Row weights: the noise variance of a row is σ²/w, and weight 2 counts as the row twice.
        """
        problem = ExactProblem.build(X, L, y, penalty=penalty, eps=eps, weight=weight)
        return problem.at(kernel, noise=noise, amplitude=amplitude, eta=eta)

    @property
    def noise(self) -> float:
        """σ²."""
        return self.setting.noise

    @property
    def gram(self) -> Array:
        """K, amplitude included, in weighted coordinates."""
        return self.setting.gram

    @property
    def eta(self) -> float:
        """η; 0 where the sensitive attributes are constant."""
        return self.setting.eta

    @property
    def log_evidence(self) -> float:
        """log N(y | 0, k*(X, X) + σ²I), summed over the outputs."""
        return self.form.log_evidence

    @cached_property
    def gradient(self) -> Array:
        """∂ log evidence/∂(log θ, log a, log σ²), shape (n_hyper + 2,), at fixed η."""
        with self.problem.products(self.eta):
            adjoint = self.form.adjoint()
        with self.problem.products():
            in_scale, volume = self._contractions(adjoint)
        spent = self.setting.outputs * self.problem.rows.total - self.form.misfit
        return np.concatenate([in_scale, [2.0 * volume, -0.5 * spent - volume]])

    def _contractions(self, adjoint: Array) -> tuple[Array, float]:
        """Σ_ij G_ij ∂K_ij/∂log θ and Σ_ij G_ij K_ij; G is overwritten."""
        volume = float(np.vdot(adjoint, self.setting.gram))
        if isinstance(self.kernel, RBF):
            adjoint *= self.setting.gram
            return self.kernel.log_gradient(self.problem.X, None, adjoint), volume
        adjoint = self.problem.weighted(adjoint)
        inner = self.kernel.gradient(self.problem.X, None, adjoint)
        return self.amplitude**2 * inner, volume

    @cached_property
    def dual_coef(self) -> Array:
        """c of the mean k(x, X) c, a² included; shape (n,) or (n, t), zero at weight zero."""
        full = self.problem.rows.scatter(self.amplitude**2 * self.form.coef)
        return np.asarray(full[:, 0] if self.problem.single else full)

    def mean(self, X_new: Any) -> Array:
        """Return E f at new points, shape (p,) or (p, t)."""
        return np.asarray(self._plain(X_new, self.problem.X) @ self.dual_coef[self._index])

    def variance(self, X_new: Any) -> Array:
        """Return var f at new points without noise, the same for every output, shape (p,)."""
        spread = self.form.spread(self._cross(X_new))
        prior = self.amplitude**2 * np.asarray(self.kernel.diag(_wide(X_new)), dtype=np.float64)
        return np.asarray(np.maximum(prior - np.sum(spread**2, axis=1), 0.0))

    def covariance(self, X_new: Any) -> Array:
        """Return cov f at new points without noise, shape (p, p)."""
        spread = self.form.spread(self._cross(X_new))
        return self.amplitude**2 * self._plain(X_new) - spread @ spread.T

    def prior_covariance(self, X_new: Any) -> Array:
        """Return the fair prior k* at any points, before y is seen, shape (p, p)."""
        g = self._cross(X_new) @ self.form.prior.factor
        return self.amplitude**2 * self._plain(X_new) - g @ g.T

    def sample(
        self, X_new: Any, size: int, rng: np.random.Generator, *, prior: bool = False
    ) -> Array:
        """Return joint draws of f, shape (size, p) or (size, p, t), of posterior or prior."""
        covariance = self.prior_covariance(X_new) if prior else self.covariance(X_new)
        values, vectors = positive_eigh(covariance)
        root = vectors * np.sqrt(values)
        white = rng.standard_normal((size, len(values), self.setting.outputs))
        draws = np.matmul(root, white)
        mean = 0.0 if prior else self.mean(X_new)
        return np.asarray(mean + (draws[:, :, 0] if self.problem.single else draws))

    @property
    def _index(self) -> Any:
        return self.problem.rows.index

    def _plain(self, A: Any, B: Any = None) -> Array:
        return np.asarray(self.kernel(_wide(A), B), dtype=np.float64)

    def _cross(self, X_new: Any) -> Array:
        """a²k(x, X)v, shape (p, k)."""
        return self._plain(X_new, self.problem.X) * (self.amplitude**2 * self.problem.rows.root)


def _wide(X: Any) -> Any:
    """Return X with float32 widened: an evidence needs all digits of its kernel."""
    array = np.asarray(X)
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _checked(X: Any) -> Any:
    if X.dtype.kind in "fc" and not np.all(np.isfinite(X)):
        raise ValueError("X contains NaN or infinity; give those rows weight 0 or remove them")
    return _wide(X)
