"""Propensities ê(x): all that a model which may not see s needs to know about it.

Where s is hidden the best f depends on x through h(x) = E[y|x] and e(x) = E[ψ(s)|x] alone: the
error sees x through h, the penalty through e. For penalties on the mean

    f = h − η Σ_j c_j e_j(x),   (I + ηM) c = Cov(h, ψ̃),   M = Cov(e, ψ̃),

so that c is in the span of Cov(h, ψ̃), M Cov(h, ψ̃), …: of many functions of s those count that
explain h best, then those that explain what x tells about these, and so on. Each is one model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline

from scalefair._typing import Array, FeatureMap, Fittable
from scalefair.features.base import n_features, whitened
from scalefair.features.base_model import container
from scalefair.features.exact import OneHot
from scalefair.features.mixed import units_of
from scalefair.features.trees import Trees

MAX_GROUPS = 4  # groups that one classifier tells apart; of more, functions of s are predicted
MAX_DIRECTIONS = 4  # functions of s at most, a model for each
ROUNDS = 3  # terms of the series of functions of s
LEAST_NEW = 1e-2  # share of the variance of a function of s that is new, or it is left out
EPS = 1e-3  # ridge of functions of s, in units of k(s, s), or of the variance of numbers as given
ROWS = 8192  # rows of ψ at once
LINEAR_MODULE = "sklearn.linear_model"


@dataclass(frozen=True, eq=False)
class SensitiveModels:
    """Fitted models of s: a classifier of the groups, or a regressor for each function of s."""

    models: tuple[Any, ...]
    n_groups: int = 0  # 0: functions of s

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.n_groups - 1 if self.n_groups else len(self.models)

    def columns(self, x: Any) -> Array:
        """Return ê(x): probabilities of all groups but the first, or predicted functions of s."""
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
    """Sensitive attributes of the rows that models of s learn from."""

    psi: FeatureMap
    s: Any  # numeric, of rows that count
    weight: Array
    at: NDArray[np.int64]  # which rows these are

    @property
    def n_groups(self) -> int:
        """Number of groups, where they are few; else 0."""
        psi = self.psi
        count = len(psi.combinations_) if isinstance(psi, OneHot) else 0
        return count if count <= MAX_GROUPS else 0

    def groups(self) -> NDArray[np.int64]:
        """Return the number of the group of each row."""
        return np.concatenate([rows.argmax(axis=1) for rows, _ in self._chunks()])

    def explaining(self, h: Array, before: Array) -> Array:
        """Return the functions of s that explain h best and are new, of variance 1."""
        p = (self.weight / self.weight.sum())[:, None]
        width, h = n_features(self.psi), h - np.sum(p * h, axis=0)
        mean, scatter, cross = np.zeros(width), np.zeros((width, width)), 0.0
        for rows, at in self._chunks():
            weighed = rows * p[at]
            mean, scatter = mean + weighed.sum(axis=0), scatter + weighed.T @ rows
            cross = cross + weighed.T @ h[at]
        covariance = scatter - np.outer(mean, mean)
        coef = np.linalg.solve(covariance + np.diag(self._ridge(covariance)), cross)
        leading = np.linalg.svd(coef, full_matrices=False)[2][:MAX_DIRECTIONS]
        g = np.concatenate([rows @ (coef @ leading.T) for rows, _ in self._chunks()])
        g = g - np.sum(p * g, axis=0)
        new = g - before @ (before.T @ (p * g)) if before.shape[1] else g
        size, left = (np.sum(p * part**2, axis=0) for part in (g, new))
        counts = left > LEAST_NEW * np.maximum(size, np.finfo(float).tiny)
        return np.asarray(new[:, counts] / np.sqrt(left[counts]))

    def _ridge(self, covariance: Array) -> Array:
        """Return ε for each column of ψ: of numbers as given in units of their variance."""
        ridge = np.full(len(covariance), EPS)
        for kind, columns in units_of(self.psi):
            if kind in ("columns", "map"):
                ridge[columns] *= np.diagonal(covariance)[columns]
        return np.asarray(np.maximum(ridge, np.finfo(float).tiny))

    def _chunks(self) -> Iterator[tuple[Array, slice]]:
        for start in range(0, len(self.s), ROWS):
            at = slice(start, start + ROWS)
            yield whitened(self.psi, self.s[at]), at


def learn_propensities(
    target: SensitiveTarget, fit: Callable[..., tuple[list[Any], Array]], h: Array
) -> tuple[list[SensitiveModels], Array]:
    """Return the models of s of each fold and of all rows, and ê of rows that they have not seen.

    `fit(values, predict)` returns such models of values, and what they say of unseen rows.
    """
    if target.n_groups:
        models, e = fit(target.groups(), partial(_said, n_groups=target.n_groups))
        return [SensitiveModels((model,), target.n_groups) for model in models], e
    functions, said, columns, of_folds = np.empty((len(target.at), 0)), h, [h[:, :0]], []
    for _ in range(ROUNDS):
        new = target.explaining(said[target.at], functions)
        if not new.shape[1]:
            break
        found = [fit(g, _said) for g in new.T]
        of_folds += [models for models, _ in found]
        said = np.hstack([column for _, column in found])
        columns.append(said)
        functions = np.hstack([functions, new])
    return [SensitiveModels(models) for models in zip(*of_folds, strict=True)], np.hstack(columns)


def _said(model: Any, x: Any, n_groups: int = 0) -> Array:
    return SensitiveModels((model,), n_groups).columns(x)


def sensitive_model(base: Any, *, of_groups: bool) -> Any:
    """Return an unfitted classifier of groups, or a regressor, of the same family as a base model.

    Its class, or its sibling by name; for linear models logistic or ridge regression; else trees.
    """
    if isinstance(base, Pipeline):
        *before, (name, last) = base.steps
        steps = [(n, step if isinstance(step, str) else clone(step)) for n, step in before]
        return Pipeline([*steps, (name, sensitive_model(last, of_groups=of_groups))])
    kind = type(base)
    if isinstance(base, Trees):
        return Trees("log_loss" if of_groups else "squared_error")
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
