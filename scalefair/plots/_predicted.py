"""What a model predicts, as one number a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array


def predicted(estimator: Any, X: Any) -> Array:
    """Predictions of shape (n,): probabilities of the second class of two, or predicted numbers."""
    if not hasattr(estimator, "classes_"):
        found = np.asarray(estimator.predict(X), dtype=np.float64)
        if found.ndim > 1 and found.shape[1] > 1:
            raise ValueError(
                f"estimator predicts {found.shape[1]} targets; expected one: fit one model for each"
            )
        return found.reshape(-1)
    if len(estimator.classes_) != 2:
        raise ValueError(
            f"estimator has {len(estimator.classes_)} classes; expected two: fit one against the "
            "rest"
        )
    return np.asarray(estimator.predict_proba(X), dtype=np.float64)[:, 1]


def scores(estimator: Any, X: Any) -> Array:
    """Return the f(x) whose dependence is limited, of shape (n,): before any link function."""
    for name in ("predict_scores", "decision_function"):
        if hasattr(estimator, name):
            return np.asarray(getattr(estimator, name)(X), dtype=np.float64).reshape(-1)
    return predicted(estimator, X)
