"""What is measured on test rows: dependence of scores, gaps of decisions, error."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from benchmarks._frontier_data import Split
from benchmarks._frontier_metrics import share
from benchmarks.output import hsic

LEAST = 0.05
"""Part of the rows below which a group's distribution is mostly noise."""
QUARTERS = (0.25, 0.5, 0.75)


def judged(split: Split, f: Any, chance: Any) -> dict[str, float]:
    """Of scores f, if there are any, and of decisions, as the chance of a positive one."""
    found = {} if f is None else of_scores(split, np.asarray(f, dtype=float))
    if split.decides:
        found |= of_decisions(split, np.asarray(chance, dtype=float))
    return found


def of_scores(split: Split, f: Any) -> dict[str, float]:
    """Share, HSIC and KS, and RMSE or AUC with its standard error."""
    found = {"share": share(split, f), "hsic": hsic(f, split.s_test), "ks": distance(split, f)}
    y = split.y_test
    if split.decides:
        return found | {"auc": float(roc_auc_score(y, f)), "score_error": auc_error(f, y > 0)}
    square = (f - y) ** 2
    rmse = float(np.sqrt(square.mean()))
    return found | {"rmse": rmse, "score_error": float(square.std() / (2 * rmse * len(y) ** 0.5))}


def of_decisions(split: Split, chance: Any) -> dict[str, float]:
    """Expected accuracy, gap of rates, and the larger gap of true and false positive rates."""
    y, group = np.asarray(split.y_test) > 0, split.group

    def gap(among: Any) -> float:
        return float(abs(chance[group & among].mean() - chance[~group & among].mean()))

    right = np.where(y, chance, 1 - chance)
    return {
        "accuracy": float(right.mean()),
        "accuracy_error": float(right.std() / len(y) ** 0.5),
        "gap": gap(y | ~y),
        "odds": max(gap(y), gap(~y)),
    }


def distance(split: Split, f: Any) -> float:
    """KS = max |F_group − F_all|: groups are levels of one attribute, numbers in quarters."""
    order, everyone = np.argsort(f, kind="stable"), np.arange(1, len(f) + 1) / len(f)
    last = np.append(np.diff(f[order]) > 0, True)  # steps of ties are taken at once
    found = [0.0]
    for name in split.sensitive:
        values = split.s_test[name]
        if values.dtype.kind in "biuf":
            groups = np.digitize(values, np.quantile(values, QUARTERS))
        else:
            groups = values.astype(str).to_numpy()
        for group in np.unique(groups):
            inside = groups[order] == group
            if inside.mean() >= LEAST:
                apart = np.abs(inside.cumsum() / inside.sum() - everyone)
                found.append(float(apart[last].max()))
    return max(found)


def auc_error(f: Any, y: Any) -> float:
    """Standard error of an AUC, from the placements of both classes."""
    ranks = rankdata(f)
    above = (ranks[y] - rankdata(f[y])) / (~y).sum()
    below = (ranks[~y] - rankdata(f[~y])) / y.sum()
    return float(np.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below)))
