"""The dense n×n reference: fair ridge regression in its dual form.

K and L are the Gram matrices of inputs and sensitive attributes, H the centring matrix (never
formed), L̃ = HLH. A penalty is a positive semi-definite matrix M: L̃/n for `hsic`,
P = L̃(L̃ + nεI)⁻¹ for `normalized`. With β = Φᵀc and K = ΦΦᵀ the objective reads

    J(b, c) = 1/n |y − b − Kc|² + α cᵀKc + η/n cᵀKMKc.

Weighted rows: n is the sum of the weights w, v = √w, H = I − vvᵀ/n, and vKv, vLv, vy, c/v replace K, L, y, c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lstsq, svd

from scalefair._linalg import BLOCK_ROWS, EPS, add_outer, factorize, pivoted_root
from scalefair._typing import Array
from scalefair.errors import FINITE, check_number
from scalefair.solve.fit import Diagnostics, diagnose


@dataclass(frozen=True)
class DualFit:
    """A fitted predictor f(x) = k(x, X) c + b."""

    dual_coef: Array  # c (n,) or (n, t), zero for rows of weight zero
    intercept: Any  # b (t,), zero for a fit without intercept
    diagnostics: Diagnostics  # of the solution of A

    def predict(self, K_new: Array) -> Array:
        """Return f at new points from K_new = k(X_new, X), shape (p, n)."""
        return np.asarray(K_new @ self.dual_coef + self.intercept)


@dataclass(frozen=True)
class WeightedRows:
    """The rows that count: those of weight zero are left out, so that no NaN in them matters."""

    size: int
    index: Any
    root: Array  # v, the roots of their weights

    @property
    def total(self) -> float:
        """n, the sum of the weights."""
        return float(self.root @ self.root)

    def gram(self, name: str, G: Any) -> Array:
        """Return vGv for the Gram matrix G, shape (k, k)."""
        G = np.asarray(G, dtype=np.float64)
        if G.shape != (self.size, self.size):
            raise ValueError(
                f"{name} has shape {G.shape}, expected ({self.size}, {self.size}); "
                "pass the Gram matrix of the training rows"
            )
        counted = _finite(name, G if len(self.index) == self.size else G[np.ix_(self.index, self.index)])
        # Factors read one triangle only and would silently accept anything in the other.
        starts = range(0, len(counted), BLOCK_ROWS)
        gap = max(np.abs(counted[k : k + BLOCK_ROWS, k:] - counted[k:, k : k + BLOCK_ROWS].T).max() for k in starts)
        if gap > 1e-8 * np.abs(counted).max():
            raise ValueError(f"{name} is not symmetric; pass the kernel evaluated as k(X, X)")
        return counted if np.all(self.root == 1) else self.root[:, None] * counted * self.root

    def values(self, name: str, a: Any) -> Array:
        """Return va for one value or one row of values per row, shape (k,) or (k, t)."""
        a = np.asarray(a, dtype=np.float64)
        if a.ndim not in (1, 2) or len(a) != self.size:
            raise ValueError(
                f"{name} has shape {a.shape}, expected ({self.size},) or ({self.size}, t): "
                "one entry for each row of the Gram matrix"
            )
        return np.asarray((_finite(name, a[self.index]).T * self.root).T)

    def centre(self, a: Array) -> Array:
        """Return Ha = a − v (vᵀa)/n: subtract the weighted mean of the rows."""
        centred, mean = a.astype(np.float64), np.atleast_1d(self.root @ a / self.total)
        add_outer(centred.reshape(len(a), -1), -self.root, mean)
        return centred

    def centre_gram(self, G: Array) -> Array:
        """Return HGH."""
        return self.centre(self.centre(G).T)

    def scatter(self, a: Array) -> Array:
        """Return va at the given rows and zero at the rows left out: c from c̃."""
        full = np.zeros((self.size, *a.shape[1:]))
        full[self.index] = (a.T * self.root).T
        return full


def weighted_rows(size: int, weight: Any = None) -> WeightedRows:
    """Check the weights of `size` rows (None: one each) and leave out the rows of weight zero."""
    weight = np.ones(size) if weight is None else np.asarray(weight, dtype=np.float64)
    if weight.shape != (size,):
        raise ValueError(f"weight has shape {weight.shape}, expected ({size},): one for each row")
    if not np.all(np.isfinite(weight)) or weight.min(initial=0.0) < 0 or not weight.any():
        raise ValueError(
            "weight must be finite and non-negative with a positive sum, got values from "
            f"{weight.min(initial=0.0)} to {weight.max(initial=0.0)}; remove or repair those rows"
        )
    index = np.flatnonzero(weight)
    return WeightedRows(size, index, np.sqrt(weight[index]))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Positive eigenvalues s (r,) and eigenvectors U (k, r) of the penalty, M = U diag(s) Uᵀ."""

    values: Array
    vectors: Array

    def __iter__(self) -> Iterator[Array]:
        return iter((self.values, self.vectors))


def penalty_spectrum(rows: WeightedRows, L: Any, *, eps: float = 1e-6, penalty: str = "normalized") -> Spectrum:
    """Eigenvalues s (r,) > 0, beyond rounding, and vectors U (k, r) of M = U diag(s) Uᵀ."""
    check_number("eps", eps, 0.0, FINITE)
    if penalty not in ("hsic", "normalized"):
        raise ValueError(
            f"penalty={penalty!r} has no dual form, expected 'normalized' or 'hsic'; 'nocco' needs "
            "explicit features of the inputs"
        )
    gram, n = rows.gram("L", L), rows.total
    root = pivoted_root(gram, len(gram) * EPS)  # far fewer than n columns for most kernels
    U, sigma, _ = svd(rows.centre(root.T), full_matrices=False, check_finite=False)
    keep = sigma**2 > len(gram) * EPS * np.linalg.norm(gram)
    values, vectors = sigma[keep] ** 2, U[:, keep]
    return Spectrum(values / n if penalty == "hsic" else values / (values + n * eps), vectors)


def shrinkage(eta: float, s: Array) -> tuple[Array, Array]:
    """Return √τ and √(1 − τ), τ = ηs/(1 + ηs), for 0 ≤ η ≤ ∞ and s > 0."""
    rest = 1.0 / (1.0 + eta * s)
    return np.sqrt(1.0 - rest), np.sqrt(rest)


def fair_dual(
    K: Any, L: Any, y: Any, *, alpha: float, eta: float, eps: float = 1e-6,
    penalty: str = "normalized", fit_intercept: bool = True, weight: Any = None,
) -> DualFit:  # fmt: skip
    """Fair ridge regression in its dual form: (HK + nαI + ηMK) c = Hy, b = mean(y − Kc).

    Without intercept (K + nαI + ηMK) c = y. Any 0 ≤ η ≤ ∞. With K̃ = HKH, A = K̃ + nαI and
    M = U diag(s) Uᵀ, Woodbury's identity gives

        c = A⁻¹(y − Ud),    (UᵀK̃A⁻¹U + diag(1/ηs)) d = UᵀK̃A⁻¹y.

    In d = √τ g, τ = ηs/(1 + ηs), every quantity stays bounded by 1: η = 1e8 costs no digits.
    """
    check_positive("alpha", alpha)
    check_number("eta", eta, 0.0)
    rows = weighted_rows(len(np.atleast_1d(y)), weight)
    s, U = penalty_spectrum(rows, L, eps=eps, penalty=penalty)
    whole, values = gram, target = rows.gram("K", K), rows.values("y", y)
    if fit_intercept:
        gram, target = rows.centre_gram(whole), rows.centre(values)
    A = gram.copy()
    A[np.diag_indices_from(A)] += rows.total * alpha
    factor = factorize(A)
    c, solved = factor.solve(target), factor.solve(U)
    (root, rest), along = shrinkage(eta, s), U.T @ gram
    inner = root[:, None] * (along @ solved) * root + np.diag(rest**2)
    # Directions that K hardly reaches are left alone: they are known to rounding error only.
    g = lstsq(inner, (root * (along @ c).T).T, cond=len(gram) * EPS)[0] if len(s) else U.T @ c
    c = c - solved @ (root * g.T).T
    diagnostics = diagnose(A, gram, factor=factor)
    if not fit_intercept:
        return DualFit(rows.scatter(c), 0.0, diagnostics)
    # c = Hc holds up to rounding error over α², and K would magnify the rest by its mean.
    c = rows.centre(c)
    mean = rows.root @ (values - whole @ c) / rows.total
    return DualFit(rows.scatter(c), float(mean) if mean.ndim == 0 else mean, diagnostics)


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless value is a positive finite number."""
    if not 0 < value < np.inf:
        raise ValueError(f"{name}={value} must be a positive finite number; choose one")


def _finite(name: str, a: Array) -> Array:
    if not np.all(np.isfinite(a)):
        raise ValueError(f"{name} contains NaN or infinity; give those rows weight 0 or remove them")
    return a
