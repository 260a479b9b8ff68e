"""The fair kernel k* as a kernel of its own, for any code that takes a kernel or a Gram matrix.

    k*(x, z) = k(x, z) − k_X(x)ᵀ N k_X(z),    N = (MK + (σ²/η) I)⁻¹ M

X, K = k(X, X) and the penalty M are of the training rows: new ones need no sensitive attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel

from scalefair._typing import Array, Rows
from scalefair.errors import check_number
from scalefair.features.base import Stores
from scalefair.kernels import Kernel
from scalefair.kernels.base import KernelOf, as_adjoint, as_output, as_rows
from scalefair.solve.dense import ridge
from scalefair.solve.dense.gp import FairPrior, prior_of, widened


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
    rows: ridge.WeightedRows
    spectrum: ridge.Spectrum

    @classmethod
    def of(cls, X: Any, L: Any, *, penalty: str = "normalized", eps: float = 1e-6, weight: Any = None) -> SensitiveRows:
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
        rows = ridge.weighted_rows(len(inputs), weight)
        spectrum = ridge.penalty_spectrum(rows, L, eps=eps, penalty=penalty)
        return cls(widened(inputs[rows.index]), rows, spectrum)

    def __deepcopy__(self, memo: Any) -> SensitiveRows:
        # Nothing in it changes, and scikit-learn copies a kernel at every evaluation.
        return self

    def prior(self, gram: Array, *, eta: float, noise: float) -> FairPrior:
        """Return G with N = GGᵀ, rows scaled by v, and KG, from K = k(X, X)."""
        root = self.rows.root[:, None]
        prior = prior_of(root * gram * root.T, self.spectrum, eta=eta, noise=noise)
        return FairPrior(root * prior.factor, prior.train / root)


@dataclass(frozen=True, eq=False)
class FairKernel(KernelOf):
    """The kernel k* of the fair Gaussian process, k*(x, z) = k(x, z) − k_X(x)ᵀ N k_X(z).

    An ordinary Gaussian process with this kernel and noise σ² is the fair one: its mean is the fair kernel ridge
    regression at α = σ²/n. Kernels of this kind add, multiply and have gradients like every other.

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
        check_number("eta", self.eta, 0.0)
        ridge.check_positive("noise", self.noise)

    @cached_property
    def prior(self) -> FairPrior:
        """G with N = GGᵀ."""
        gram = np.asarray(self.kernel(self.sensitive.X), dtype=np.float64)
        return self.sensitive.prior(gram, eta=float(self.eta), noise=float(self.noise))

    def __call__(self, X: Any, Z: Any = None, out: Rows | None = None) -> Rows:
        """Return the matrix k*(x_i, z_j); see `Kernel.__call__`."""
        plain = self.kernel(X, Z)
        out = plain if out is None else as_output(out, plain.shape, (plain.dtype,))
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

        With A = k(·, X_train)N, −GA_zᵀ, −A_xᵀG and A_xᵀGA_z are the other adjoints of k.
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


class SklearnFairKernel(Stores, SklearnKernel):  # type: ignore[misc] # scikit-learn is untyped
    """The fair kernel k* of any scikit-learn kernel k, for its GaussianProcessRegressor.

    k*(x, z) = k(x, z) − k_X(x)ᵀ (MK + (σ²/η) I)⁻¹ M k_X(z), X the rows of `sensitive`, on which
    the regressor is to be fitted. η is fixed while the hyperparameters of k are learnt.

    Parameters
    ----------
    kernel : scikit-learn kernel
        k, without white noise.
    sensitive : SensitiveRows
        Training rows and penalty: ``SensitiveRows.of(X, L)``.
    eta : float, default=1.0
        Weight of the penalty, 0 ≤ η ≤ ∞.
    noise : float, default=1.0
        Noise variance σ². Without `add_noise` give the regressor the same number as ``alpha``.
    add_noise : bool, default=False
        Whether σ² is added to the diagonal of k*(X, X), as a `WhiteKernel` would. Then `noise` is
        a hyperparameter and is learnt, in the prior and in the noise alike, and the deviations
        that the regressor predicts are those of y; give it ``alpha=0``.
    noise_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Where σ² is looked for if it is learnt.

    Notes
    -----
    scikit-learn asks for the n×n×p tensor of derivatives. `FairGPRegressor` does not need it and
    is many times faster.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import SensitiveRows, SklearnFairKernel
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = X[:, 0] + np.sin(X[:, 1])
    >>> sensitive = SensitiveRows.of(X, RBF(0.5)(X[:, :1]))
    >>> fair = SklearnFairKernel(RBF(1.0), sensitive, eta=100.0, noise=0.1)
    >>> model = GaussianProcessRegressor(fair, alpha=0.1, optimizer=None).fit(X, y)
    >>> plain = GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None).fit(X, y)
    >>> correlations = [np.corrcoef(m.predict(X), X[:, 0])[0, 1] for m in (model, plain)]
    >>> bool(abs(correlations[0]) < 0.2 < 0.8 < correlations[1])
    True
    """

    sensitive: SensitiveRows

    def __init__(
        self, kernel: Any, sensitive: SensitiveRows, eta: float = 1.0, noise: float = 1.0, *,
        add_noise: bool = False, noise_bounds: Any = (1e-5, 1e5),
    ) -> None:  # fmt: skip
        self._store(locals())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of the kernel inside if `deep`."""
        params: dict[str, Any] = super().get_params()
        if deep:
            inside = self.kernel.get_params().items()
            params.update((f"kernel__{name}", value) for name, value in inside)
        return params

    @property
    def hyperparameter_noise(self) -> Hyperparameter:
        """σ², learnt only where the kernel adds it itself."""
        bounds = self.noise_bounds if self.add_noise else "fixed"
        return Hyperparameter("noise", "numeric", bounds)

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """Those of the kernel inside, then the noise."""
        inside = [
            Hyperparameter(f"kernel__{h.name}", h.value_type, h.bounds, h.n_elements)
            for h in self.kernel.hyperparameters
        ]
        return [*inside, self.hyperparameter_noise]

    @property
    def theta(self) -> Array:
        """Logarithms of the hyperparameters that are not fixed."""
        own = [] if self.hyperparameter_noise.fixed else [np.log(self.noise)]
        return np.append(self.kernel.theta, own)

    @theta.setter
    def theta(self, theta: Array) -> None:
        if not self.hyperparameter_noise.fixed:
            theta, self.noise = theta[:-1], float(np.exp(theta[-1]))
        self.kernel.theta = theta

    @property
    def bounds(self) -> Array:
        """Logarithms of the bounds of `theta`, shape (p, 2)."""
        own = [] if self.hyperparameter_noise.fixed else [np.log(self.hyperparameter_noise.bounds)]
        inside = np.reshape(self.kernel.bounds, (-1, 2))
        return np.vstack([inside, *own])

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        # Rows and penalty are compared by identity.
        same = self.kernel == other.kernel and self.sensitive is other.sensitive
        own, others = ((k.eta, k.noise, k.add_noise) for k in (self, other))
        return bool(same and own == others)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SklearnFairKernel({self.kernel!r}, eta={self.eta:.3g}, noise={self.noise:.3g})"

    def is_stationary(self) -> bool:
        """k* depends on where the training rows are."""
        return False

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Return k*(X, Y), and with `eval_gradient` its derivatives in `theta`, (n, n, p)."""
        rows = np.atleast_2d(X)
        if eval_gradient and Y is not None:
            raise ValueError("Gradient can only be evaluated when Y is None; leave Y out")
        prior = self._prior()
        g = self.kernel(rows, self.sensitive.X) @ prior.factor
        if Y is not None:
            others = self.kernel(np.atleast_2d(Y), self.sensitive.X) @ prior.factor
            return self.kernel(rows, Y) - g @ others.T
        fair = self.kernel(rows) - g @ g.T
        slopes = self._slopes(rows, fair, g @ prior.factor.T) if eval_gradient else None
        if self.add_noise:
            fair[np.diag_indices_from(fair)] += self.noise
        return (fair, slopes) if eval_gradient else fair

    def diag(self, X: Any) -> Array:
        """Return the diagonal of k*(X, X), shape (n,)."""
        g = self.kernel(np.atleast_2d(X), self.sensitive.X) @ self._prior().factor
        fair = np.maximum(self.kernel.diag(X) - np.sum(g**2, axis=1), 0.0)
        return np.asarray(fair + self.noise if self.add_noise else fair)

    def _prior(self) -> FairPrior:
        check_number("eta", self.eta, 0.0)
        ridge.check_positive("noise", self.noise)
        gram = self.kernel(self.sensitive.X)
        return self.sensitive.prior(gram, eta=float(self.eta), noise=float(self.noise))

    def _slopes(self, rows: Array, fair: Array, gain: Array) -> Array:
        """Return ∂k*(X, X) in theta: dk* = P dk Pᵀ, P = [I, −k_X N], dk at X and the training rows.

        k*/σ² depends on k/σ² alone, so ∂k*/∂log σ² = k* − P k Pᵀ.
        """
        train, eye = self.sensitive.X, np.eye(len(rows))
        same = np.array_equal(rows, train)
        P = eye - gain if same else np.hstack([eye, -gain])
        both = rows if same else np.vstack([rows, train])
        K, dK = self.kernel(both, eval_gradient=True)
        slopes = [P @ dK[:, :, j] @ P.T for j in range(dK.shape[2])]
        if not self.hyperparameter_noise.fixed:
            slopes.append(fair - P @ K @ P.T + self.noise * eye)
        return np.stack(slopes, axis=2) if slopes else np.empty((*fair.shape, 0))
