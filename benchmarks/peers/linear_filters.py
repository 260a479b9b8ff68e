"""fairlearn's CorrelationRemover and scikit-lego's InformationFilter, before any learner.

Both take the linear trace of s out of each input and need s at prediction. Their alpha is the
share that is taken out (1) or left alone (0): the limit η → ∞ and η = 0 of a linear ψ on the
inputs, not on f. A learner that is not linear finds s again in what remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from benchmarks.peers._task import Method, Points, Task
from benchmarks.peers.scikit import ALPHAS

SHARES = (1.0, 0.9, 0.7, 0.4)


def learnt(model: Any, Z: Any, Z_test: Any, y: Any) -> Any:
    model.fit(Z, y)
    rate = hasattr(model, "predict_proba")
    return model.predict_proba(Z_test)[:, 1] if rate else model.predict(Z_test)


def independent(s: Any) -> list[int]:
    """Columns none of which follows from those before: one level of each category goes."""
    centred, kept = s - s.mean(axis=0), list[int]()
    for column in range(s.shape[1]):
        if np.linalg.matrix_rank(centred[:, [*kept, column]]) > len(kept):
            kept.append(column)
    return kept


def joined(task: Task) -> tuple[list[int], Any, Any]:
    """The inputs with s as numbers in the first columns."""
    (x, x_test), (s, s_test) = Task(task.split, hidden=True).arrays, task.sensitive
    kept = independent(s)
    s, s_test = s[:, kept], s_test[:, kept]
    return list(range(s.shape[1])), np.hstack([s, x]), np.hstack([s_test, x_test])


def remover(task: Task, model: Any) -> Points:
    from fairlearn.preprocessing import CorrelationRemover

    columns, Z, Z_test = joined(task)
    for alpha in SHARES[:2] if task.quick else SHARES:
        removing = CorrelationRemover(sensitive_feature_ids=columns, alpha=alpha)
        train = removing.fit_transform(Z)
        yield alpha, learnt(model(task), train, removing.transform(Z_test), task.y)


def filtering(task: Task, model: Any) -> Points:
    from sklego.preprocessing import InformationFilter

    columns, Z, Z_test = joined(task)
    for alpha in SHARES[:2] if task.quick else SHARES:
        # Their alpha is what is left in: 1 − ours above.
        removing = InformationFilter(columns, alpha=1 - alpha).fit(Z)
        yield alpha, learnt(model(task), removing.transform(Z), removing.transform(Z_test), task.y)


def linear(task: Task) -> Any:
    return RidgeCV(len(task.y) * ALPHAS)  # a = nα


def trees(task: Task) -> Any:
    model = task.trees()
    if "categorical_features" in model.get_params():
        model.set_params(categorical_features=None)
    return model


METHODS = (
    Method("fairlearn CorrelationRemover + Ridge", lambda task: remover(task, linear), hidden=False, needs="fairlearn"),
    Method("fairlearn CorrelationRemover + trees", lambda task: remover(task, trees), hidden=False, needs="fairlearn"),
    Method("scikit-lego InformationFilter + Ridge", lambda task: filtering(task, linear), hidden=False, needs="sklego"),
)
