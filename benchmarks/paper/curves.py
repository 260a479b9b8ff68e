"""Dependence of predictions, and curves of error against it."""

from __future__ import annotations

import numpy as np

from scalefair._typing import Array

GRID = 200


def hsic(f: Array, L: Array) -> float:
    """HSIC with a linear kernel on f, fᵀHLHf/n²: what the paper punishes and reports."""
    centred = f - f.mean()
    return float(centred @ L @ centred / len(f) ** 2)


def hsic_of_groups(f: Array, group: Array) -> float:
    """The same with the kernel 1[s = s'] on groups: the sum of (share × gap of the mean)²."""
    codes = np.unique(group, return_inverse=True)[1]
    return float(np.sum((np.bincount(codes, f - f.mean()) / len(f)) ** 2))


def rmse(f: Array, y: Array) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((f - y) ** 2)))


def is_flat(f: Array) -> bool:
    """Tell whether predictions are one number up to rounding."""
    return bool(f.std() <= 1e-12 * np.abs(f).max(initial=1.0))


def front(dependence: Array, error: Array) -> tuple[Array, Array]:
    """Sort a curve by its dependence; each error is the least with no more dependence."""
    order = np.argsort(dependence, kind="stable")
    return dependence[order], np.minimum.accumulate(error[order])


def gaps(upper: tuple[Array, Array], lower: tuple[Array, Array], *, log: bool = False) -> Array:
    """Error of one curve minus that of another, at equal dependence.

    Parameters
    ----------
    upper, lower : pairs (dependence, error)
        Points of the curves, in any order.
    log : bool
        Whether dependence is on a logarithmic axis.

    Returns
    -------
    array of shape (200,)
        At equidistant values of the dependence that both curves reach; empty where they share
        none. Its mean is the area between the curves over the width of that range.
    """
    fronts = [front(np.asarray(x, dtype=float), np.asarray(e)) for x, e in (upper, lower)]
    if log:
        fronts = [(np.log(x[x > 0]), e[x > 0]) for x, e in fronts]
    if min(len(x) for x, _ in fronts) == 0:
        return np.zeros(0)
    low, high = max(x[0] for x, _ in fronts), min(x[-1] for x, _ in fronts)
    if low >= high:
        return np.zeros(0)
    at = np.linspace(low, high, GRID)
    above, below = (np.interp(at, x, e) for x, e in fronts)
    return np.asarray(above - below)


def area(upper: tuple[Array, Array], lower: tuple[Array, Array], *, log: bool = False) -> float:
    """Mean of `gaps`; NaN where the curves share no dependence."""
    found = gaps(upper, lower, log=log)
    return float(found.mean()) if found.size else float("nan")
