"""Centring: f = a(h − c(E[h|s] − E h)), h the same trees that ours has inside.

With s visible this is the optimum for the best h: *the* rival, in three lines. It
needs s at prediction. c = 1 takes out all that s explains, c = 0 nothing; a is the scale with the
least squared error. E[h|s]: means of the cells of categories, else boosted trees of s, learnt on
out-of-fold predictions, as everything that stands on trees here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge

from benchmarks.peers._task import Method, Points, Task
from benchmarks.peers.barycentre import KEPT, predictions

SMALL = 3000
"""Rows up to which kernel ridge of s is affordable, and better than trees of s."""


def explained(task: Task, h: Any) -> tuple[Any, Any]:
    """g(s) ≈ E[h|s] on training and test rows."""
    split = task.split
    frames = split.X[split.sensitive], split.X_test[split.sensitive]
    if all(kind.kind not in "biuf" for kind in frames[0].dtypes):
        cells = [frame.astype(str).agg("_".join, axis=1) for frame in frames]
        means = pd.Series(h).groupby(cells[0].to_numpy()).mean()
        train, test = (cell.map(means).fillna(h.mean()).to_numpy() for cell in cells)
        return train, test
    s, s_test = task.sensitive
    small = len(s) <= SMALL
    model = KernelRidge(kernel="rbf", alpha=1.0) if small else HistGradientBoostingRegressor()
    model.fit(s, h - h.mean())
    return model.predict(s) + h.mean(), model.predict(s_test) + h.mean()


def centred(task: Task, odds: bool) -> Points:
    held, h = predictions(task)
    if odds:
        held, h = (np.log(p / (1 - p)) for p in (held, h))
    (g, g_test), middle = explained(task, held), held.mean()
    for kept in KEPT[:2] if task.quick else KEPT:
        f, f_test = held - (1 - kept) * (g - middle), h - (1 - kept) * (g_test - middle)
        if odds:
            yield kept, f_test
            continue
        scale = np.cov(task.y, f)[0, 1] / f.var(ddof=1)
        yield kept, task.y.mean() + scale * (f_test - f.mean())


METHODS = (
    Method("centring", lambda task: centred(task, odds=False), hidden=False),
    Method("centring of log odds", lambda task: centred(task, odds=True), hidden=False, kinds=("rate",), threshold=0.0),
)
