"""Checked predictions ĥ(x) of another model as columns of Φ, and models of s given x."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe, is_pandas_dataframe, is_polars_dataframe
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from scalefair._typing import Array, Chunk, FeatureMap, Fittable, Rows
from scalefair.data.sources import ArraySource, ChunkSource
from scalefair.data.sources.threads import one_blas_thread
from scalefair.features.base import n_features, whitened
from scalefair.features.design import Block
from scalefair.features.exact import OneHot
from scalefair.features.mixed import units_of
from scalefair.features.trees import Trees

# Probabilities are clipped to this distance from 0 and 1, whose log-odds are infinite
LEAST_PROBABILITY = 1e-4
TREES = "trees"  # the word for boosted trees with settings for most tables
METHODS = ("predict", "predict_proba", "decision_function")


@dataclass(frozen=True, eq=False)
class BaseModel(Block):
    """A fitted model whose prediction ĥ(x) joins the features."""

    model: Any
    scale: str  # of ĥ: "probability", "log_odds" or "log"
    columns: int = 0  # of ĥ and ê
    digest: str = ""  # of its predictions
    sensitive: Any = None  # models of s, where s is hidden; ê(x) comes after ĥ(x)
    name: ClassVar[str] = "base"
    is_feature: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Columns of ĥ."""
        return self.columns

    @property
    def key(self) -> str:
        """Fingerprint of the predictions."""
        return self.digest

    def rows(self, chunk: Chunk) -> Rows:
        """Return ĥ(x), which the chunk carries."""
        return np.asarray(chunk.h)

    def join(self, chunk: Chunk) -> Chunk:
        """Return the chunk with ĥ(x) beside x."""
        if chunk.n_rows == 0:
            return replace(chunk, h=np.empty((0, self.columns)))
        return replace(chunk, h=self.predict(chunk.x))

    def predict(self, x: Any) -> Array:
        """Return [ĥ(x), ê(x)] of inputs as the user gave them."""
        h = predictions(self.model, x, self.scale)
        return h if self.sensitive is None else np.hstack([h, self.sensitive.columns(x)])

    def attach(self, source: ChunkSource) -> ChunkSource:
        """Attach ĥ(x) to chunks: for all rows at once where they are in memory."""
        if not isinstance(source, ArraySource):
            return source.then(self.join)
        (chunk,) = source.chunks(max(source.n_rows, 1))
        return source.then(FromArray(np.asarray(self.join(chunk).h)))


@dataclass(frozen=True, eq=False)
class FromArray:
    """Joins predictions that are in memory."""

    h: Array

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with its rows of ĥ."""
        return replace(chunk, h=self.h[chunk.row : chunk.row + chunk.n_rows])


def check_base(model: Any) -> None:
    """Raise TypeError unless an object can predict, or is the word for trees."""
    if isinstance(model, str) and model == TREES:
        return
    can = any(callable(getattr(model, name, None)) for name in METHODS)
    if isinstance(model, type) or not can:
        raise TypeError(
            f"base_estimator={model!r} cannot predict; give a scikit-learn regressor, classifier "
            "or pipeline, fitted or not (an object, not its class), 'trees' or None"
        )
    scores = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    if _is_classifier(model) and not scores:
        raise TypeError(
            f"base_estimator={model!r} is a classifier without probabilities, and classes are no "
            "numbers to learn from; give one with predict_proba or decision_function, or wrap it "
            "in scikit-learn's CalibratedClassifierCV"
        )


def is_fitted(model: Any) -> bool:
    """Return True if a model is used as it is: it is fitted, or cannot be copied and fitted."""
    if not isinstance(model, Fittable):
        return not isinstance(model, str)
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        return False
    return True


def name_of(model: Any) -> str:
    """Return the name of its class, for messages."""
    return model if isinstance(model, str) else type(model).__name__


def predictions(model: Any, x: Any, scale: str) -> Array:
    """Return ĥ(x) (k, l), finite: of C classes p_c or log(p_c/p_0), c > 0, or their scores."""
    try:
        h = np.asarray(_outputs(model, container(x), scale))
    except Exception as error:
        raise ValueError(
            f"base_estimator ({name_of(model)}) cannot predict the rows of X: {error}; give a "
            "model that was fitted on the same columns, or one that is not fitted yet"
        ) from error
    if h.dtype.kind in "OUS":
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts text or objects such as {h.flat[0]!r}, "
            "not numbers; give a regressor, or a classifier with predict_proba"
        )
    h = h.astype(np.float64, copy=False).reshape(len(h), -1)
    if len(h) != x.shape[0]:
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts {len(h)} values for {x.shape[0]} rows; "
            "give a model with one prediction, or one row of them, for each row of X"
        )
    bad = ~np.isfinite(h).all(axis=1)
    if bad.any():
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts NaN or infinity in {int(bad.sum())} of "
            f"{len(h)} rows (first in row {int(np.argmax(bad))}); fill in missing values in a "
            "pipeline before it, or use a model that takes them"
        )
    return h


def _outputs(model: Any, x: Any, scale: str) -> Any:
    if hasattr(model, "predict") and not _is_classifier(model):
        h = model.predict(x)
        return np.log1p(np.maximum(h, 0.0)) if scale == "log" else h
    if not hasattr(model, "predict_proba"):
        return model.decision_function(x)
    p = np.asarray(model.predict_proba(x))
    if scale != "log_odds":
        return p[:, 1:]
    log = np.log(np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    return log[:, 1:] - log[:, :1]


def _is_classifier(model: Any) -> bool:
    # Models that are not scikit-learn's have no tags to ask.
    tagged = hasattr(model, "__sklearn_tags__")
    return bool(is_classifier(model)) if tagged else hasattr(model, "predict_proba")


def container(x: Any) -> Any:
    """Return rows in a container of scikit-learn: arrays, pandas and polars frames as they are."""
    if not is_into_dataframe(x) or is_pandas_dataframe(x) or is_polars_dataframe(x):
        return x
    return nw.from_native(x, eager_only=True).to_pandas()


def check_varies(model: Any, folds: list[Array]) -> None:
    """Raise ValueError if a model predicts the same number for every row it has not seen."""
    compared = [h for h in folds if len(h) > 1]
    if compared and all(np.ptp(h, axis=0).max() == 0 for h in compared):
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts the same value ({compared[0][0]}) for "
            "every row, which adds nothing; give a model that learns from X, or base_estimator=None"
        )


def weight_name(model: Any) -> str | None:
    """Return the name of the argument of `fit` for weights of rows; None where it has none."""
    if has_fit_parameter(model, "sample_weight"):
        return "sample_weight"
    name, last = model.steps[-1] if isinstance(model, Pipeline) else ("", None)
    routed = get_config()["enable_metadata_routing"]
    if last is not None and not routed and has_fit_parameter(last, "sample_weight"):
        return f"{name}__sample_weight"
    return None


MAX_GROUPS = 4  # groups that one classifier predicts; of more, functions of s are predicted
MAX_DIRECTIONS = 4  # functions of s at most, a model for each
ROUNDS = 3  # terms of the series of functions of s
STANDARD_ERRORS = 2.0  # by which a function of s must explain more than chance does
LEAST_NEW = 1e-2  # share of the variance of a function of s that is new, or it is left out
EPS = 1e-3  # ridge of functions of s, in units of k(s, s), or of the variance of numbers as given
ROWS = 8192  # rows of ψ at once
LINEAR_MODULE = "sklearn.linear_model"


@dataclass(frozen=True, eq=False)
class SensitiveModels:
    """Fitted models of s: a classifier of the groups, or a regressor for each function of s."""

    models: tuple[Any, ...]
    n_groups: int = 0  # 0: functions of s

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

    @one_blas_thread()
    def explaining(self, h: Array, before: Array) -> Array:
        """Return the functions of s that explain h best, more than chance, and are new, of variance 1."""
        p = (self.weight / self.weight.sum())[:, None]
        width, h = n_features(self.psi), h - np.sum(p * h, axis=0)
        mean, scatter, cross = np.zeros(width), np.zeros((width, width)), 0.0
        for rows, at in self._chunks():
            weighed = rows * p[at]
            mean, scatter = mean + weighed.sum(axis=0), scatter + weighed.T @ rows
            cross = cross + weighed.T @ h[at]
        covariance = scatter - np.outer(mean, mean)
        solved = np.linalg.solve(covariance + np.diag(self._ridge(covariance)), np.hstack([cross, covariance]))
        coef, hat = solved[:, : h.shape[1]], solved[:, h.shape[1] :]
        leading = np.linalg.svd(coef, full_matrices=False)[2][:MAX_DIRECTIONS]
        g = np.concatenate([rows @ (coef @ leading.T) for rows, _ in self._chunks()])
        g, h = g - np.sum(p * g, axis=0), h @ leading.T
        new = g - before @ (before.T @ (p * g)) if before.shape[1] else g
        size, left = (np.sum(p * part**2, axis=0) for part in (g, new))
        # Mean and deviation of Cov(g, h) / Var h where h does not depend on s.
        chance = np.sum(p**2) * (np.trace(hat) + STANDARD_ERRORS * np.sqrt(2 * np.trace(hat @ hat)))
        counts = np.sum(p * g * h, axis=0) > chance * np.sum(p * h**2, axis=0)
        counts &= left > LEAST_NEW * np.maximum(size, np.finfo(float).tiny)
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
    """Return models of s of each fold and of all rows, and ê of unseen rows, as `fit(values, predict)` makes them."""
    if target.n_groups:
        models, e = fit(target.groups(), partial(_propensity_columns, n_groups=target.n_groups))
        return [SensitiveModels((model,), target.n_groups) for model in models], e
    functions, predicted, columns, of_folds = np.empty((len(target.at), 0)), h, [h[:, :0]], []
    for _ in range(ROUNDS):
        new = target.explaining(predicted[target.at], functions)
        if not new.shape[1]:
            break
        fits = [fit(g, _propensity_columns) for g in new.T]
        of_folds += [models for models, _ in fits]
        predicted = np.hstack([column for _, column in fits])
        columns.append(predicted)
        functions = np.hstack([functions, new])
    return [SensitiveModels(models) for models in zip(*of_folds, strict=True)], np.hstack(columns)


def _propensity_columns(model: Any, x: Any, n_groups: int = 0) -> Array:
    return SensitiveModels((model,), n_groups).columns(x)


def sensitive_model(base: Any, *, of_groups: bool) -> Any:
    """Return a classifier of groups or a regressor: a sibling of a base model, or logistic, ridge or trees."""
    if isinstance(base, Pipeline):
        *before, (name, last) = base.steps
        steps = [(n, step if isinstance(step, str) else clone(step)) for n, step in before]
        return Pipeline([*steps, (name, sensitive_model(last, of_groups=of_groups))])
    from sklearn import ensemble, linear_model  # a fifth of a second, for who has base models

    kind = type(base)
    if isinstance(base, Trees):
        return Trees("log_loss" if of_groups else "squared_error")
    if is_classifier(base) == of_groups:
        return clone(base)
    words = ("Regressor", "Classifier") if of_groups else ("Classifier", "Regressor")
    sibling = getattr(sys.modules[kind.__module__], kind.__name__.replace(*words), kind)
    if sibling is not kind and _has_defaults(kind) and _has_defaults(sibling):
        return _with_parameters_of(base, sibling())
    if kind.__module__.startswith(LINEAR_MODULE):
        logistic = linear_model.LogisticRegression(max_iter=1000)
        return logistic if of_groups else linear_model.Ridge()
    trees = (ensemble.HistGradientBoostingRegressor, ensemble.HistGradientBoostingClassifier)
    return trees[of_groups]()


def _has_defaults(kind: Any) -> bool:
    """Return True if instances can be made without arguments: of stacked models they cannot."""
    parameters = signature(kind).parameters.values()
    return all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in parameters)


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
