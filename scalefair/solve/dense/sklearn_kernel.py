"""The fair kernel inside scikit-learn's GaussianProcessRegressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel

from scalefair._typing import Array
from scalefair.solve.dense.fair_kernel import SensitiveRows
from scalefair.solve.dense.prior import FairPrior
from scalefair.solve.dense.ridge import check_number


class SklearnFairKernel(SklearnKernel):  # type: ignore[misc] # scikit-learn is untyped
    """The fair kernel k* of any scikit-learn kernel k, for its GaussianProcessRegressor.

    k*(x, z) = k(x, z) − k_X(x)ᵀ (MK + (σ²/η) I)⁻¹ M k_X(z), X the rows of `sensitive`, on which
    the regressor is to be fitted. η is held while the hyperparameters of k are learnt.

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

    def __init__(
        self,
        kernel: Any,
        sensitive: SensitiveRows,
        eta: float = 1.0,
        noise: float = 1.0,
        *,
        add_noise: bool = False,
        noise_bounds: Any = (1e-5, 1e5),
    ) -> None:
        self.kernel = kernel
        self.sensitive = sensitive
        self.eta = eta
        self.noise = noise
        self.add_noise = add_noise
        self.noise_bounds = noise_bounds

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of the kernel inside if `deep`."""
        params = {name: getattr(self, name) for name in _PARAMETERS}
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
        return self._key() == other._key()

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
        check_number("eta", self.eta, positive=False, finite=False)
        check_number("noise", self.noise)
        gram = self.kernel(self.sensitive.X)
        return self.sensitive.prior(gram, eta=float(self.eta), noise=float(self.noise))

    def _slopes(self, rows: Array, fair: Array, gain: Array) -> Array:
        """Return ∂k*(X, X) in theta: dk* = P dk Pᵀ, dk at X and the training rows together.

        P = [I, −k_X N], or I − k_X N where X are the training rows. k*/σ² depends on k/σ² alone,
        so ∂k*/∂log σ² = k* − P k Pᵀ.
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

    def _key(self) -> tuple[Any, ...]:
        """What makes two kernels equal; rows and penalty are compared by identity."""
        return (self.kernel, id(self.sensitive), self.eta, self.noise, self.add_noise)


_PARAMETERS = ("kernel", "sensitive", "eta", "noise", "add_noise", "noise_bounds")
