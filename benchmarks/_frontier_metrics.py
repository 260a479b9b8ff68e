"""Metrics of the frontier benchmark, on test rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import pairwise_distances, roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks._frontier_data import Split

FOLDS = KFold(5, shuffle=True, random_state=0)


def share(split: Split, f: Any) -> float:
    """R² of the best g(s) predicting f: between groups for categories, else out of fold."""
    s = split.s_test
    text = [c for c in s.columns if s[c].dtype.kind not in "biuf"]
    names = [s[column].astype(str) for column in text]
    groups = names[0].str.cat(names[1:], sep="×") if text else None
    if groups is not None and len(text) == s.shape[1]:
        return float(groups.map(_means(groups, f)).var(ddof=0) / np.var(f))
    numbers = s.drop(columns=text).to_numpy(float)
    codes = np.empty((len(s), 0)) if groups is None else groups.astype("category").cat.codes
    S = np.column_stack([codes, numbers])
    found = [_r2(HistGradientBoostingRegressor(max_iter=100), S, f)]
    if split.name == "B":
        Z = (S - S.mean(axis=0)) / S.std(axis=0)
        distances = pairwise_distances(Z)
        gamma = 0.5 / np.median(distances[distances > 0]) ** 2
        found += [_r2(KernelRidge(kernel="rbf", gamma=gamma, alpha=a), Z, f) for a in (0.3, 3.0)]
    return max(0.0, *found)


def _means(groups: Any, f: Any) -> Any:
    import pandas as pd

    return pd.Series(f, index=groups.index).groupby(groups).mean()


def _r2(model: Any, S: Any, f: Any) -> float:
    around = f - f.mean()
    return float(1 - np.mean((around - cross_val_predict(model, S, around, cv=FOLDS)) ** 2) / np.var(f))


def scores(split: Split, f: Any, threshold: float = 0.5) -> dict[str, float]:
    """Share, and RMSE or AUC, accuracy and gap between the sexes."""
    found = {"share": share(split, f)}
    if not split.decides:
        return found | {"rmse": float(np.sqrt(np.mean((f - split.y_test) ** 2)))}
    chosen = f >= threshold
    women = split.group
    return found | {
        "auc": float(roc_auc_score(split.y_test, f)),
        "accuracy": float(np.mean(chosen == split.y_test)),
        "gap": float(abs(chosen[women].mean() - chosen[~women].mean())),
    }


def at_share(shares: Any, values: Any, share: float) -> float:
    """Linear interpolation along a curve, in the order of its limits; NaN where it is not met.

    Measured shares of neighbours may be out of order by chance: the last crossing counts.
    """
    steps = list(zip(zip(shares, values, strict=True), zip(shares[1:], values[1:], strict=True), strict=False))
    for (low, start), (high, end) in reversed(steps):
        if low <= share < high:
            return float(start + (end - start) * (share - low) / (high - low))
    return float("nan")
