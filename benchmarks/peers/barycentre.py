"""equipy and holisticai: Wasserstein barycentre of the groups' predictions.

Both stand on the trees that ours has inside, need s at prediction, in cells, and are fitted on
out-of-fold predictions, as ours is. equipy's epsilon is the share of the old prediction that is
kept: f = (1−ε)·fair + ε·h. The groups' means are then ε times as far apart, as in ours with
ε = 1/(1+η).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.peers._task import Method, Points, Task

KEPT = (0.0, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0)


def predictions(task: Task) -> tuple[Any, Any]:
    """Out-of-fold predictions of the training rows, and those of the test rows."""
    (X, X_test), model = task.frames, task.trees()
    how = "predict_proba" if task.decides else "predict"
    folds = KFold(5, shuffle=True, random_state=0)
    held = cross_val_predict(model, X, task.y, cv=folds, method=how)
    h = getattr(model.fit(X, task.y), how)(X_test)
    return (held[:, 1], h[:, 1]) if task.decides else (held, h)


def crossed(task: Task) -> Points:
    from equipy.fairness import FairWasserstein

    held, h = predictions(task)
    s, s_test = task.cells
    fair = FairWasserstein()
    fair.fit(held, s)
    for epsilon in KEPT[:2] if task.quick else KEPT:
        yield epsilon, np.asarray(fair.transform(h, s_test, epsilon=epsilon))


def two_sided(task: Task) -> Points:
    """holisticai knows two groups and no trade-off: one point, blind to all other attributes."""
    from holisticai.bias.mitigation import WassersteinBarycenter

    held, h = predictions(task)
    a, a_test = task.two_groups
    fair = WassersteinBarycenter().fit(held, a, ~a)
    yield 0.0, np.asarray(fair.transform(h, a_test, ~a_test)["y_pred"]).ravel()


METHODS = (
    Method("equipy on trees", crossed, hidden=False, needs="equipy"),
    Method("holisticai on trees, two groups", two_sided, hidden=False, needs="holisticai"),
)
