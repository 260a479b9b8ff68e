"""The fair kernel k* as a kernel of its own, for any code that takes a kernel or a Gram matrix.

    k*(x, z) = k(x, z) − k_X(x)ᵀ N k_X(z),    N = (MK + (σ²/η) I)⁻¹ M

with X the training rows, K = k(X, X) and M the penalty of their sensitive attributes
(`scalefair.solve.dense.prior`). It is defined for every x and z: the sensitive attributes are
needed at the training rows only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.kernels import Kernel
from scalefair.kernels.base import LengthScale, as_adjoint, as_output, as_rows
from scalefair.solve.dense.prior import FairPrior, prior_of
from scalefair.solve.dense.ridge import (
    Spectrum,
    WeightedRows,
    check_number,
    penalty_spectrum,
    weighted_rows,
)


@dataclass(frozen=True, eq=False)
class SensitiveRows:
    """Training rows and the penalty of their sensitive attributes, decomposed once.

    Parameters
    ----------
    X : array of shape (k, d)
        Inputs of the training rows of positive weight.
    rows : WeightedRows
        Which rows these are.
    spectrum : Spectrum
        Of the penalty M in weighted coordinates.
    """

    X: Any
    rows: WeightedRows
    spectrum: Spectrum

    @classmethod
    def of(
        cls,
        X: Any,
        L: Any,
        *,
        penalty: str = "normalized",
        eps: float = 1e-6,
        weight: Any = None,
    ) -> SensitiveRows:
        """Decompose the penalty.

        Parameters
        ----------
        X : array of shape (n, d)
            Inputs of the training rows.
        L : array of shape (n, n)
            Gram matrix of their sensitive attributes: a kernel evaluated as ``l(s)``, or
            ``Psi @ Psi.T`` of explicit features.
        penalty : {"normalized", "hsic"}
        eps : float
            ε of `normalized`.
        weight : array of shape (n,) or None
            Row weights.
        """
        inputs = as_rows(X, "X")
        rows = weighted_rows(len(inputs), weight)
        spectrum = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
        counted = inputs[rows.index]
        if counted.dtype == np.float32:
            counted = counted.astype(np.float64)
        return cls(counted, rows, spectrum)

    def __deepcopy__(self, memo: Any) -> SensitiveRows:
        # Nothing in it changes, and scikit-learn copies a kernel at every evaluation.
        return self

    def weighted(self, gram: Array) -> Array:
        """Return vGv of a Gram matrix of the rows, shape (k, k)."""
        root = self.rows.root
        return np.asarray(root[:, None] * gram * root)

    def prior(self, gram: Array, *, eta: float, noise: float) -> FairPrior:
        """Return G with N = GGᵀ, rows scaled by v, and KG, from K = k(X, X)."""
        root = self.rows.root[:, None]
        prior = prior_of(self.weighted(gram), self.spectrum, eta=eta, noise=noise)
        return FairPrior(root * prior.factor, prior.train / root)


@dataclass(frozen=True, eq=False)
class FairKernel(Kernel):
    """The kernel k* of the fair Gaussian process, k*(x, z) = k(x, z) − k_X(x)ᵀ N k_X(z).

    An ordinary Gaussian process with this kernel and noise σ² is the fair one: its mean is the
    fair kernel ridge regression at α = σ²/n. Kernels of this kind add, multiply and have
    gradients like every other.

    Parameters
    ----------
    kernel : Kernel
        k, amplitude included (`Scaled`).
    sensitive : SensitiveRows
        Training rows and penalty: ``SensitiveRows.of(X, L)``.
    eta : float
        Weight of the penalty, 0 ≤ η ≤ ∞.
    noise : float
        σ² > 0, the noise variance that the process will be used with: the prior knows η/σ² only.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import FairKernel, SensitiveRows
    >>> from scalefair.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> s = X[:, :1]
    >>> k = FairKernel(RBF(1.0), SensitiveRows.of(X, RBF(0.5)(s)), eta=1.0, noise=0.1)
    >>> k(X).shape, bool(np.linalg.eigvalsh(k(X)).min() > -1e-12)
    ((50, 50), True)
    """

    kernel: Kernel
    sensitive: SensitiveRows
    eta: float = 1.0
    noise: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(f"kernel={self.kernel!r} must be a Kernel, such as RBF(1.0)")
        if not isinstance(self.sensitive, SensitiveRows):
            raise TypeError(
                f"sensitive is a {type(self.sensitive).__name__}, expected SensitiveRows; "
                "make it with SensitiveRows.of(X, L)"
            )
        check_number("eta", self.eta, positive=False, finite=False)
        check_number("noise", self.noise)

    @property
    def metric(self) -> str:  # type: ignore[override]
        """The metric of the kernel inside."""
        return self.kernel.metric

    @property
    def length_scale(self) -> LengthScale:
        """The length scale of the kernel inside."""
        return self.kernel.length_scale

    def with_length_scale(self, theta: Any) -> Self:
        """Return the fair kernel of the kernel with another length scale."""
        return replace(self, kernel=self.kernel.with_length_scale(theta))

    @cached_property
    def prior(self) -> FairPrior:
        """G with N = GGᵀ."""
        gram = np.asarray(self.kernel(self.sensitive.X), dtype=np.float64)
        return self.sensitive.prior(gram, eta=float(self.eta), noise=float(self.noise))

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return the matrix k*(x_i, z_j); see `Kernel.__call__`."""
        plain = self.kernel(X, Z)
        out = as_output(out, plain.shape, (plain.dtype,))
        g_x = self._shadow(X)
        g_z = g_x if Z is None else self._shadow(Z)
        np.subtract(plain, g_x @ g_z.T, out=out, casting="same_kind")
        return out

    def diag(self, X: Any) -> Rows:
        """Return k*(x_i, x_i), shape (n,)."""
        plain = self.kernel.diag(X)
        value = plain - np.sum(self._shadow(X) ** 2, axis=1)
        return np.asarray(np.maximum(value, 0.0), dtype=plain.dtype)

    def gradient(self, X: Any, Z: Any, G: Any, K: Any = None) -> Array:  # noqa: ARG002
        """Return Σ_ij G_ij ∂k*(x_i, z_j)/∂log θ, through K too; see `Kernel.gradient`.

        The adjoint G of k*(X, Z) is that of k(X, Z); −GA_zᵀ, −A_xᵀG and A_xᵀGA_z are those of
        k at X, Z and the training rows, with A = k(·, X_train)N.
        """
        rows, others = as_rows(X, "X"), as_rows(X if Z is None else Z, "Z")
        G = as_adjoint(G, (len(rows), len(others)))
        A_x, A_z, train = self._gain(rows), self._gain(others), self.sensitive.X
        inner = self.kernel.gradient(train, None, A_x.T @ G @ A_z)
        cross = self.kernel.gradient(rows, train, G @ A_z)
        cross = cross + self.kernel.gradient(train, others, A_x.T @ G)
        return self.kernel.gradient(rows, others, G) - cross + inner

    def _cross(self, X: Any) -> Array:
        return np.asarray(self.kernel(X, self.sensitive.X), dtype=np.float64)

    def _shadow(self, X: Any) -> Array:
        """Return g(x) = Gᵀk_X(x), the part of the kernel that fairness takes away, (n, r)."""
        return self._cross(X) @ self.prior.factor

    def _gain(self, X: Any) -> Array:
        return self._shadow(X) @ self.prior.factor.T
