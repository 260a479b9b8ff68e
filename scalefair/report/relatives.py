"""Models that differ from a fitted one in the weight of the penalty alone."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from scalefair._typing import Array
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.estimators.classifier import Classification, probabilities
from scalefair.estimators.loss import LossRegression
from scalefair.estimators.ridge import RidgeBase
from scalefair.measures.group_metrics import Mask
from scalefair.measures.scorers import predicted
from scalefair.moments.products import CrossMoments
from scalefair.report.judge import Outputs
from scalefair.report.problem import ReportRows

STEPS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # Weights about the one that a model has
DECISION_LIMITS = (0.01, 0.02, 0.05, 0.1, 0.2)  # Limits on the rates of decisions, as positions of the slider


def outputs(model: Any, X: Any) -> Outputs:
    """Return what a fitted model says of rows."""
    if isinstance(model, Classification):
        f = model._scores(X)  # both by one pass
        odds = f[:, 0] if f.shape[1] == 1 else f[:, 1] - f[:, 0]
        return Outputs(probabilities(vars(model).get("loss_"), f)[:, 1], odds, decisions(model, X))
    return Outputs(predicted(model, X), scores(model, X), decisions(model, X))


def decisions(model: Any, X: Any) -> Mask | None:
    """Return the decisions of shape (n,) that a model with a limit on decisions makes, or None."""
    if "decisions_" not in vars(model):
        return None
    if is_classifier(model):
        return np.asarray(model.predict(X) == model.classes_[1])
    return np.asarray(model.decide(X), dtype=bool).reshape(-1)


def scores(model: Any, X: Any) -> Array | None:
    """Return the f(x) whose dependence is limited, of shape (n,); None where that is predicted."""
    if is_classifier(model):
        return np.asarray(model.decision_function(X), dtype=np.float64).reshape(-1)
    if isinstance(model, LossRegression):
        return np.asarray(model.predict_scores(X), dtype=np.float64).reshape(-1)
    return None


def weights_around(eta: float) -> Array:
    """Return 0, weights about `eta`, and ∞."""
    unit = eta if 0 < eta < np.inf else 1.0
    return np.array([0.0, *(unit * step for step in STEPS), np.inf])


def relatives(estimator: Any, train: ReportRows) -> dict[float, Any]:
    """Return models by eta that differ from a fitted one in it alone, itself too; from its moments if possible."""
    etas = [float(eta) for eta in weights_around(float(estimator.eta_)) if eta != estimator.eta_]
    if _output_kernel(estimator) is not None:  # it has no limit of η → ∞
        etas = [eta for eta in etas if eta < np.inf]
    models = _at_weights(estimator, train, etas)
    if isinstance(estimator, FairGPRegressor | FairGPClassifier) and estimator.eta_ != 0:
        models[0.0] = _refitted(estimator, train, 0.0)  # it learns hyperparameters of its own
    return dict(sorted({**models, float(estimator.eta_): estimator}.items()))


def at_limits(estimator: Any, train: ReportRows) -> dict[float, Any]:
    """Return fitted models by their limit on decisions, ∞ for none; itself among them."""
    models = {float(estimator.unfairness): estimator}
    for limit in DECISION_LIMITS:
        if limit not in models:
            models[limit] = train.fit(clone(estimator).set_params(unfairness=limit))
    free = copy(estimator).set_params(unfairness=None, limit_on="scores")
    del free.decisions_
    return dict(sorted({**models, np.inf: free}.items()))


def _at_weights(estimator: Any, train: ReportRows, etas: list[float]) -> dict[float, Any]:
    if isinstance(estimator, FairGPRegressor):
        return {eta: estimator._at(eta) for eta in etas}
    if has_closed_form_path(estimator):
        path = estimator.path(etas=etas)
        return {eta: path.at(eta=eta) for eta in etas}
    return {eta: _refitted(_settled(estimator), train, eta) for eta in etas}


def has_closed_form_path(estimator: Any) -> bool:
    """Return True if the stored moments give every other weight: not for a penalty that is no square of β."""
    if not isinstance(estimator, RidgeBase) or "moments_" not in vars(estimator):
        return False
    quadratic = estimator.penalty != "nocco_output" and _output_kernel(estimator) is None
    return quadratic and not isinstance(estimator.moments_, CrossMoments)


def _output_kernel(estimator: Any) -> Any:
    return estimator.get_params(deep=False).get("output_kernel")


def _settled(estimator: Any) -> Any:
    """Return an unfitted copy that keeps what a Gaussian process of classes has learnt."""
    copied = clone(estimator)
    if isinstance(estimator, FairGPClassifier) and isinstance(estimator.feature_map, str):
        kernel, amplitude = estimator.kernel_.kernel, estimator.amplitude_
        copied.set_params(kernel=kernel, amplitude=amplitude, optimizer=None)
    return copied


def _refitted(estimator: Any, train: ReportRows, eta: float) -> Any:
    return train.fit(clone(estimator).set_params(eta=eta, unfairness=None))
