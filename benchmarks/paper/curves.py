"""Dependence of predictions, and curves of error against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error

from benchmarks.paper.data import sensitive_kernel
from scalefair import measures
from scalefair._typing import Array
from scalefair.kernels import Linear

GRID = 200


def hsic(f: Array, s: Any) -> float:
    """HSIC with a linear kernel on f, fᵀHLHf/n², which the paper punishes and reports."""
    return 0.0 if is_flat(f) else measures.hsic(f, s, Linear(), sensitive_kernel(s))


def is_flat(f: Array) -> bool:
    """Return True if predictions are one number up to rounding."""
    return bool(f.std() <= 1e-12 * np.abs(f).max(initial=1.0))


def error_and_dependence(f: Array, y: Array, s: Any) -> dict[str, float]:
    """RMSE and HSIC of predictions."""
    return {"rmse": float(root_mean_squared_error(y, f)), "hsic": hsic(f, s)}


def by_seed(values: pd.DataFrame, dependence: str) -> list[tuple[Array, Array]]:
    """Dependence and RMSE of every seed: the curves that `gaps` compares."""
    return [(one[dependence].to_numpy(), one["rmse"].to_numpy()) for _, one in values.groupby("seed")]


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
    between = gaps(upper, lower, log=log)
    return float(between.mean()) if between.size else float("nan")
