"""Propensities ê(x) = E[ψ(s)|x]: all that a model which may not see s needs to know about it.

Where s is hidden the best f depends on x through h(x) = E[y|x] and e(x) alone: the error sees x
through h, the penalty through e. For penalties on the mean it is linear, f = h − η Σ c_j e_j(x).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline

from scalefair._typing import Array, Chunk, FeatureMap, Fittable
from scalefair.features.base import whitened
from scalefair.features.base_model import container
from scalefair.features.exact import OneHot

MAX_GROUPS = 12
"""Groups that one classifier tells apart: boosted trees grow a tree for each in every round."""

MAX_DIRECTIONS = 4
"""Directions of ψ that are predicted where there are more groups, or numbers: a model for each."""

LINEAR_MODULE = "sklearn.linear_model"


@dataclass(frozen=True, eq=False)
class Propensity:
    """Fitted models of s: one classifier of the groups, or a regressor of each direction of ψ."""

    models: tuple[Any, ...]
    n_groups: int  # 0: directions

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.n_groups - 1 if self.n_groups else len(self.models)

    def columns(self, x: Any) -> Array:
        """Return ê(x): probabilities of all groups but the first, or directions of E[ψ(s)|x]."""
        x = container(x)
        if not self.n_groups:
            return np.column_stack([model.predict(x) for model in self.models])
        (model,) = self.models
        # A fold may lack a group: its probability is 0 there.
        probabilities = np.zeros((x.shape[0], self.n_groups))
        probabilities[:, np.asarray(model.classes_, dtype=np.intp)] = model.predict_proba(x)
        return probabilities[:, 1:]


@dataclass(frozen=True, eq=False)
class SensitiveTarget:
    """What the models of s learn: the group, or the leading directions of ψ(s)."""

    psi: FeatureMap
    directions: Array | None  # None: groups

    @classmethod
    def of(cls, psi: FeatureMap, sample: Chunk) -> SensitiveTarget:
        """Take the groups if they are few, else the directions in which ψ varies most."""
        if isinstance(psi, OneHot) and len(psi.combinations_) <= MAX_GROUPS:
            return cls(psi, None)
        weight = np.ones(sample.n_rows) if sample.weight is None else sample.weight
        at = np.flatnonzero(weight)
        rows = whitened(psi, np.asarray(sample.s)[at])
        covariance = np.cov(rows, rowvar=False, aweights=weight[at]).reshape(rows.shape[1], -1)
        return cls(psi, np.linalg.eigh(covariance)[1][:, ::-1][:, :MAX_DIRECTIONS])

    def values(self, s: Any) -> NDArray[Any]:
        """Return the number of the group of each row, or its coordinates, a column each."""
        rows = whitened(self.psi, s)
        return rows.argmax(axis=1) if self.directions is None else rows @ self.directions

    def fit(self, model: Any, fit: Callable[[Any, NDArray[Any]], Any], values: Any) -> Propensity:
        """Return the models, fitted by `fit(model, values)` on rows that have these values."""
        if self.directions is None:
            return Propensity((fit(model, values),), len(self.psi.combinations_))  # type: ignore[attr-defined]
        return Propensity(tuple(fit(model, column) for column in values.T), 0)


def sensitive_model(base: Any, *, of_groups: bool) -> Any:
    """Return an unfitted classifier of groups, or a regressor, of the same family as a base model.

    The same class if it is of that kind; its sibling by name (…Regressor, …Classifier), with the
    parameters that both have; for linear models logistic or ridge regression; else boosted trees.
    """
    if isinstance(base, Pipeline):
        *before, (name, last) = base.steps
        steps = [(n, step if isinstance(step, str) else clone(step)) for n, step in before]
        return Pipeline([*steps, (name, sensitive_model(last, of_groups=of_groups))])
    kind = type(base)
    if is_classifier(base) == of_groups:
        return clone(base)
    words = ("Regressor", "Classifier") if of_groups else ("Classifier", "Regressor")
    sibling = getattr(sys.modules[kind.__module__], kind.__name__.replace(*words), kind)
    if sibling is not kind:
        return _with_parameters_of(base, sibling())
    if kind.__module__.startswith(LINEAR_MODULE):
        return LogisticRegression(max_iter=1000) if of_groups else Ridge()
    return HistGradientBoostingClassifier() if of_groups else HistGradientBoostingRegressor()


def _with_parameters_of(base: Any, sibling: Any) -> Any:
    """Return the sibling with the parameters of the base that both have, by default the same."""
    own, defaults = base.get_params(deep=False), type(base)().get_params(deep=False)
    shared = sibling.get_params(deep=False)
    # A loss, or a criterion, is of one kind of target: their defaults differ.
    same = {name for name, value in shared.items() if name in defaults and defaults[name] == value}
    return sibling.set_params(**{name: own[name] for name in same})


def check_sensitive(model: Any) -> None:
    """Raise TypeError unless `sensitive_estimator` is "auto", None or an estimator."""
    if model is None or (isinstance(model, str) and model == "auto"):
        return
    if isinstance(model, str | type) or not isinstance(model, Fittable):
        raise TypeError(
            f"sensitive_estimator={model!r}: expected 'auto', None, or a classifier of groups (a "
            "regressor for numbers or many groups) that is not fitted yet"
        )
