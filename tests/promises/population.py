"""Populations in which the inputs carry s, and the share of f that s explains in them.

Nothing here imports scalefair.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd

KINDS = ("categories", "numbers", "mixed", "rare")


def draw(kind, n, seed, classes=False):
    """Return inputs (n, 4), target (n,) and attributes (a frame with columns g and a)."""
    rng = np.random.default_rng(seed)
    odds = {"rare": [0.49, 0.49, 0.02]}.get(kind, [0.8, 0.05, 0.05, 0.05, 0.05])
    g = rng.choice(len(odds), size=n, p=odds)
    a = rng.normal(size=n)
    effect = np.array([0.0, 1.2, -1.2, 0.8, -0.8]) if kind != "rare" else np.array([0.3, -0.3, 6.0])
    centre = np.zeros(n)
    if kind != "numbers":
        centre += effect[g]
    if kind in ("numbers", "mixed"):
        centre += np.where(g % 2 == 0, 1.0, -1.0) * a if kind == "mixed" else a + 0.5 * (a**2 - 1)
    X = rng.normal(size=(n, 4)) + 0.3
    X[:, 0] += centre
    X[:, 1] += 0.5 * centre
    y = 2.0 + X[:, 0] + np.sin(X[:, 1]) + 0.7 * X[:, 2] + 0.5 * rng.normal(size=n)
    if classes:
        y = (y > np.median(y)).astype(int)
    columns = {"categories": ["g"], "rare": ["g"], "numbers": ["a"], "mixed": ["g", "a"]}[kind]
    return X, y, pd.DataFrame({"g": np.array(list("abcde"))[g], "a": a})[columns]


def share(f, s, weight=None):
    """Share of the variance of f between cells of s, less what chance explains of so many rows.

    Cells are groups, fiftieths of a number, or both crossed.
    """
    cell = np.zeros(len(f), dtype=int)
    for _, column in s.items():
        if column.dtype.kind == "f":
            code = np.digitize(column, np.quantile(column, np.linspace(0, 1, 51)[1:-1]))
        else:
            code = np.unique(column, return_inverse=True)[1]
        cell = cell * 64 + code
    cell = np.unique(cell, return_inverse=True)[1]
    w = np.ones(len(f)) if weight is None else weight
    n = w.sum() ** 2 / np.sum(w**2)
    count = np.bincount(cell, w)
    centred = f - np.average(f, weights=w)
    mean = np.bincount(cell, w * centred) / count
    raw = count @ mean**2 / (w @ centred**2)
    chance = (len(count) - 1) / (n - 1)
    return (raw - chance) / (1 - chance)


def chance_ratio(f, Psi, weight=None):
    """Mean square of f − E[f|s] with weights p²h, h = ψᵀC⁻¹ψ, relative to that with weights p."""
    w = np.ones(len(f)) if weight is None else weight
    p = w / w.sum()
    f, Psi = np.ravel(f) - p @ np.ravel(f), Psi - p @ Psi
    inverse = np.linalg.pinv(Psi.T @ (p[:, None] * Psi), rcond=1e-12, hermitian=True)
    h = np.sum(Psi @ inverse * Psi, axis=1)
    left = 1 - p * (1 + h)
    square = (f - Psi @ (inverse @ (Psi.T @ (p * f)))) ** 2 / left
    known = left > 0.25
    return np.average(square[known], weights=(p**2 * h)[known]) / np.average(square[known], weights=p[known])


def every_pair(settings, seed=0):
    """Return few combinations that hold every pair of values of every two settings."""
    rng = np.random.default_rng(seed)
    names = list(settings)
    left = {
        ((a, i), (b, j))
        for a, b in combinations(names, 2)
        for i, j in product(range(len(settings[a])), range(len(settings[b])))
    }
    chosen = []
    while left:
        tries = [{a: int(rng.integers(len(settings[a]))) for a in names} for _ in range(60)]
        best = max(tries, key=lambda at: len(left & pairs_of(at, names)))
        if not left & pairs_of(best, names):
            continue
        left -= pairs_of(best, names)
        chosen.append({a: settings[a][i] for a, i in best.items()})
    return chosen


def pairs_of(at, names):
    """The pairs of values that a combination holds."""
    return {((a, at[a]), (b, at[b])) for a, b in combinations(names, 2)}
