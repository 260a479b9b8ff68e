"""Exact fair kernel ridge regression, length scale and ridge by cross-validation, for every η.

With K̃ = HKH = QΛQᵀ, A = K̃ + nαI, the penalty M = VVᵀ and W = VᵀK̃A⁻¹V = BΓBᵀ the dual
(K̃ + nαI + ηMK̃)c = Hy has the solution

    c = A⁻¹(Hy − Vd),    d = B (I/η + Γ)⁻¹ Bᵀ VᵀK̃A⁻¹y,

so that one decomposition of K̃ serves all ridges, weights and penalties; V has few columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.data import gram
from scalefair._linalg import positive_eigh
from scalefair._typing import Array
from scalefair.solve.dense.ridge import penalty_spectrum, weighted_rows

Factors = Mapping[str, Array]
"""V of every penalty, each of shape (n, r)."""

UNFELT = 1e-4
"""A penalty ηs below it shrinks its direction of f by less than that share, and is left out."""

CHOICES = ("anew", "once")
"""Length scale and ridge are chosen anew for each η, or once at η = 0."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Length scales, ridges α and weights η, the first of which is 0."""

    length_scales: Array
    alphas: Array
    etas: Array


def factors(L: Array, penalties: tuple[str, ...], etas: Array, eps: float = 1e-6) -> Factors:
    """Return V of every penalty, without the directions that no weight of the grid can punish."""
    found = {}
    for penalty in penalties:
        s, U = penalty_spectrum(weighted_rows(len(L)), L, eps=eps, penalty=penalty)
        kept = s * np.max(etas, initial=1.0) > UNFELT
        found[penalty] = U[:, kept] * np.sqrt(s[kept])
    return found


class Decomposed:
    """Training rows with K̃ = QΛQᵀ.

    Parameters
    ----------
    K : array of shape (n, n)
    y : array of shape (n,)
    """

    def __init__(self, K: Array, y: Array) -> None:
        self.rows = weighted_rows(len(y))
        self.mean_row, self.mean_y = K.mean(axis=0), float(y.mean())
        self.lam, self.Q = positive_eigh(self.rows.centre_gram(K))
        self.target = self.Q.T @ self.rows.centre(y)

    def dual(self, V: Array, alphas: Array, etas: Array) -> Array:
        """Dual coefficients of all ridges and weights, shape (n, len(alphas), len(etas))."""
        V_q = self.Q.T @ V
        found = np.empty((len(self.lam), len(alphas), len(etas)))
        for place, alpha in enumerate(alphas):
            inverse = 1.0 / (self.lam + len(self.lam) * alpha)
            damped = (self.lam * inverse)[:, None] * V_q
            gamma, B = positive_eigh(V_q.T @ damped)
            w = B.T @ (damped.T @ self.target)
            d = B @ (w[:, None] * etas / (1.0 + etas * gamma[:, None]))
            found[:, place] = inverse[:, None] * (self.target[:, None] - V_q @ d)
        flat = self.rows.centre(self.Q @ found.reshape(len(self.lam), -1))
        return np.asarray(flat.reshape(found.shape))

    def predict(self, K_new: Array, dual: Array) -> Array:
        """Predictions for rows k(x, X), shape (p, ...) for coefficients of shape (n, ...)."""
        centred = K_new - self.mean_row
        return np.asarray(self.mean_y + np.tensordot(centred, dual, axes=1))


def validation_errors(
    X: Array, y: Array, L: Array, grid: Grid, *, penalties: tuple[str, ...], folds: int
) -> dict[str, Array]:
    """Held-out mean squared errors, shape (length scales, ridges, weights) for every penalty."""
    shape = tuple(len(axis) for axis in (grid.length_scales, grid.alphas, grid.etas))
    errors = {penalty: np.zeros(shape) for penalty in penalties}
    for fold in range(folds):
        out = np.arange(len(y)) % folds == fold
        V = factors(L[np.ix_(~out, ~out)], penalties, grid.etas)
        for place, length_scale in enumerate(grid.length_scales):
            train = Decomposed(gram(X[~out], X[~out], length_scale), y[~out])
            cross = gram(X[out], X[~out], length_scale)
            for penalty in penalties:
                f = train.predict(cross, train.dual(V[penalty], grid.alphas, grid.etas))
                errors[penalty][place] += np.sum((f - y[out, None, None]) ** 2, axis=0) / len(y)
    return errors


def chosen(errors: Array, choice: str) -> list[tuple[int, int]]:
    """Return the place of length scale and ridge for every weight."""
    shape = errors.shape[:2]
    least = errors.reshape(-1, errors.shape[2]).argmin(axis=0)
    if choice == "once":
        least[:] = least[0]
    return [(int(i), int(j)) for i, j in zip(*np.unravel_index(least, shape), strict=True)]


def cross_validated(
    X: Array,
    y: Array,
    L: Array,
    X_new: Array,
    grid: Grid,
    *,
    penalties: tuple[str, ...] = ("hsic",),
    choices: tuple[str, ...] = ("anew",),
    folds: int = 5,
) -> dict[tuple[str, str], Array]:
    """Predictions for new rows at every weight, shape (p, len(etas)) by penalty and choice."""
    errors = validation_errors(X, y, L, grid, penalties=penalties, folds=folds)
    places = {(p, c): chosen(errors[p], c) for p in penalties for c in choices}
    found = {key: np.empty((len(X_new), len(grid.etas))) for key in places}
    V = factors(L, penalties, grid.etas)
    for i in sorted({i for pairs in places.values() for i, _ in pairs}):
        length_scale = grid.length_scales[i]
        model, cross = Decomposed(gram(X, X, length_scale), y), gram(X_new, X, length_scale)
        for (penalty, choice), pairs in places.items():
            at = [e for e, (here, _) in enumerate(pairs) if here == i]
            for e in at:
                alpha, eta = grid.alphas[[pairs[e][1]]], grid.etas[[e]]
                dual = model.dual(V[penalty], alpha, eta)[:, 0, 0]
                found[penalty, choice][:, e] = model.predict(cross, dual)
    return found
