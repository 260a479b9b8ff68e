"""scikit-learn scorers of dependence, with metadata routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.metrics import make_scorer

from scalefair._typing import Array
from scalefair.measures.distances import distance_correlation, mutual_information
from scalefair.measures.group_metrics import METRIC_NAMES
from scalefair.measures.groups import group_gaps
from scalefair.measures.independence import hsic, nocco, normalized_hsic
from scalefair.measures.share import explained_share

MEASURES: dict[str, Callable[..., float]] = {
    "explained_share": explained_share,
    "hsic": hsic,
    "normalized_hsic": normalized_hsic,
    "nocco": nocco,
    "distance_correlation": distance_correlation,
    "mutual_information": mutual_information,
}
GAPS = {f"{name}_difference": name for name in METRIC_NAMES}


def predicted(estimator: Any, X: Any) -> Array:
    """Predictions of shape (n,): probabilities of the second class of two, or predicted numbers."""
    if not hasattr(estimator, "classes_"):
        f, count, what = np.asarray(estimator.predict(X), dtype=np.float64), 1, "targets"
        f = f.reshape(len(f), -1)
    else:
        f, count, what = np.asarray(estimator.predict_proba(X), dtype=np.float64), 2, "classes"
    if f.shape[1] != count:
        raise ValueError(f"estimator has {f.shape[1]} {what}; expected {count}: fit one at a time")
    return f[:, -1]


@dataclass(frozen=True)
class DependenceScore:
    """What a scorer calls: a measure, by name or as a function, and further arguments of it."""

    measure: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def __name__(self) -> str:
        """Its name, which scikit-learn shows."""
        return str(getattr(self.measure, "__name__", self.measure))

    def __call__(self, y_true: Any, y_pred: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> float:
        """Return the dependence of the predictions on the attributes."""
        if sensitive_features is None:
            raise ValueError(
                "sensitive_features did not reach the scorer; enable metadata routing and pass "
                "params={'sensitive_features': s} to cross_validate"
            )
        options = dict(self.options)
        if sample_weight is not None:
            options["sample_weight"] = sample_weight
        if self.measure in GAPS:
            name = GAPS[self.measure]
            options |= {"sensitive_features": sensitive_features, "metrics": name}
            return float(group_gaps(y_pred, y_true=y_true, **options).difference()[name])
        function = MEASURES[self.measure] if isinstance(self.measure, str) else self.measure
        return float(function(y_pred, sensitive_features, **options))


def make_dependence_scorer(
    measure: str | Callable[..., float] = "explained_share", *, response_method: Any = None, **options: Any
) -> Any:
    """Return a scorer that reports how far predictions depend on sensitive attributes, negated.

    It needs ``sensitive_features``, which ``cross_validate`` and ``GridSearchCV`` pass on when
    metadata routing is enabled. For weights also call
    ``scorer.set_score_request(sensitive_features=True, sample_weight=True)``.

    Parameters
    ----------
    measure : str or callable
        explained_share, hsic, normalized_hsic, nocco, distance_correlation, mutual_information; the gap between groups
        of a metric of `group_gaps`, such as selection_rate_difference; or a function of (predictions, attributes).
    response_method : str or sequence of str, optional
        What is measured; by default probabilities or the decision function where the model has
        them, else predictions; for gaps always predictions.
    **options
        Further arguments of the measure.

    Returns
    -------
    scorer
        Callable (estimator, X, y, sensitive_features=s); greater, that is nearer to 0, is fairer.

    Examples
    --------
    >>> import numpy as np, sklearn
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import cross_validate
    >>> from scalefair.measures import make_dependence_scorer
    >>> rng = np.random.default_rng(0)
    >>> s = rng.choice(["f", "m"], 500)
    >>> X = rng.normal(size=(500, 3)) + (s == "m")[:, None]
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     scores = cross_validate(
    ...         Ridge(), X, X.sum(axis=1), scoring=make_dependence_scorer(),
    ...         params={"sensitive_features": s},
    ...     )
    >>> bool(scores["test_score"].mean() < -0.2)
    True
    """
    if isinstance(measure, str) and measure not in (*MEASURES, *GAPS):
        raise ValueError(
            f"measure={measure!r} is unknown; choose among {', '.join((*MEASURES, *GAPS))}, or "
            "give a function of predictions and attributes"
        )
    if not isinstance(measure, str) and not callable(measure):
        raise TypeError(f"measure={measure!r}; expected a name or a function")
    scores = ("predict_proba", "decision_function", "predict")
    default = "predict" if measure in GAPS else scores
    scorer = make_scorer(
        DependenceScore(measure, options), response_method=response_method or default, greater_is_better=False
    )
    # A request can be made only while routing is on; it is remembered when it is off.
    with config_context(enable_metadata_routing=True):
        return scorer.set_score_request(sensitive_features=True)
