"""Make an existing model fair, and compare it with the known optimum.

`make_fair` is here; `limit_gap`, the distance to the known limit, in limit.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length

from scalefair._hash import distinct, hash_uniform
from scalefair._typing import Chunk, DataFrame, Shaped
from scalefair.any_model.limit import LimitGap, limit_gap
from scalefair.auditing import Audit, audit
from scalefair.data import MAX_LEVELS_OF_NUMBERS, frames, is_stream, open_rows
from scalefair.data.encoding import asked_before
from scalefair.errors import check_flag, check_number, located
from scalefair.estimators import FairKernelClassifierCV, FairKernelRidgeCV
from scalefair.features.base import seed_of
from scalefair.features.base_model import is_fitted, name_of, predictions
from scalefair.measures import explained_share
from scalefair.measures.scorers import predicted
from scalefair.persistence import save

__all__ = ["FairModel", "LimitGap", "limit_gap", "make_fair"]

TEST_SIZE = 0.25


@dataclass(frozen=True, eq=False)
class FairModel:
    """Result of :func:`scalefair.make_fair`.

    Parameters
    ----------
    estimator : FairKernelRidgeCV or FairKernelClassifierCV
        Fitted on the rows that were not held out, or with `refit` on all; its `predict` needs no
        sensitive attributes apart from the columns it was given.
    path : FairPath or LossPathCV
        The accuracy–fairness frontier.
    before, after : Audit
        Audits of the given model and of the fair one, on the held-out rows.
    table : DataFrame
        Share and error of both models on those rows.
    held_out : array of int
        Their numbers.
    summary : str
        The same in plain words.
    """

    estimator: Any
    path: Any
    before: Audit
    after: Audit
    table: DataFrame
    held_out: NDArray[np.int64]
    summary: str

    def predict(self, X: Any) -> Any:
        """Return the predictions of the fair estimator."""
        return self.estimator.predict(X)

    @available_if(lambda made: is_classifier(made.estimator))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes, where it is a classifier."""
        return self.estimator.predict_proba(X)

    def save(self, path: Any) -> None:
        """Write the fair estimator to one file; :func:`scalefair.load` reads it."""
        save(self.estimator, path)

    def __str__(self) -> str:
        return self.summary


def make_fair(
    model: Any, X: Any, y: Any, sensitive_features: Any, unfairness: float = 0.05, *,
    hide_sensitive: bool = False, test_size: float = TEST_SIZE, refit: bool = False,
    random_state: Any = None, **parameters: Any,
) -> FairModel:  # fmt: skip
    """Make a model fair in one call, and audit it before and after on held-out rows.

    The cross-fitted prediction of the model becomes a feature of a :class:`FairKernelRidgeCV`, or
    :class:`FairKernelClassifierCV` if it is a classifier, under a limit on the explained share.

    Parameters
    ----------
    model : estimator or "trees"
        Any scikit-learn regressor, classifier or pipeline, or boosted trees. A fitted model is used
        as it is, with a warning.
    X : array or frame of shape (n, d)
        Inputs as the model takes them, in memory.
    y : array-like of shape (n,)
        Targets, or labels of two classes.
    sensitive_features : names or positions of columns of X, or array, Series or frame of n rows
        If they are columns of X, the fair model may use them, which costs the least accuracy.
    unfairness : float, default=0.05
        Largest share of the variance of the predictions that the sensitive attributes may explain.
    hide_sensitive : bool, default=False
        If True, neither model uses those columns to predict.
    test_size : float, default=0.25
        Fraction of the rows of each group, and of each class in it, held out for the audits;
        none of a group that is too small for two such rows.
    refit : bool, default=False
        Whether to fit the final model on all rows after the audits.
    random_state : int, RandomState or None, default=None
        Seed.
    **parameters
        Further parameters of the estimator, such as ``n_components=100``.

    Returns
    -------
    FairModel

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from scalefair import make_fair
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(800, random_state=0)
    >>> trees = ExtraTreesRegressor(20, min_samples_leaf=5, random_state=0)
    >>> fair = make_fair(trees, toy.data, toy.target, toy.sensitive_features, random_state=0)
    >>> shares = fair.table["explained_share"]
    >>> bool(shares["after"] < shares["before"])
    True
    """
    check_flag("refit", refit)
    _check_arguments(model, X, y, test_size, unfairness)
    X, y = X if isinstance(X, Shaped) else np.asarray(X), np.asarray(y)
    columns = _named_columns(X, sensitive_features)
    apart = sensitive_features if columns is None else None
    check_consistent_length(X, y)
    seed, classes = seed_of(random_state), _has_classes(model, y)
    with located(f"sensitive_columns={columns!r}"):
        s = frames.take_columns(X, columns) if apart is None else apart
    open_rows(X, s)  # compares their lengths
    tested = hold_out(_groups(s), y if classes else np.zeros(len(y)), test_size, seed)
    test = np.flatnonzero(tested)
    options = {
        "base_estimator": model,
        "unfairness": unfairness,
        "random_state": seed,
        "sensitive_columns": columns,
        "hide_sensitive": hide_sensitive and columns is not None,
    }
    make = partial(FairKernelClassifierCV if classes else FairKernelRidgeCV, **(options | parameters))
    train, own = _take(X, apart, np.flatnonzero(~tested))
    estimator = make().fit(train, y[~tested], **own)
    with asked_before():
        made = _compare(model, estimator, *_take(X, apart, test), y[test], test)
        if not refit:
            return made
        whole, own = _take(X, apart, np.arange(len(y)))
        final = make().fit(whole, y, **own)
    words = f"{made.summary} The final model was then fitted on all {len(y):,} rows."
    return replace(made, estimator=final, summary=words)


def _has_classes(model: Any, y: Any) -> bool:
    """Return True if a classifier is requested; trees are one where y holds no numbers."""
    if isinstance(model, str):
        return np.asarray(y).dtype.kind not in "fiu"
    return bool(is_classifier(model))


def _check_arguments(model: Any, X: Any, y: Any, test_size: Any, unfairness: Any) -> None:
    check_number("unfairness", unfairness, 0.0, 1.0)
    if not 0 < check_number("test_size", test_size, 0.0, 1.0) < 1:
        raise ValueError(f"test_size={test_size!r} must be between 0 and 1; give for instance 0.25")
    if is_stream(X):
        raise TypeError(
            f"make_fair needs rows in memory, and X is a {type(X).__name__}; fit a "
            "FairKernelRidgeCV with base_estimator=model, and audit its predictions with "
            "scalefair.audit"
        )
    if _has_classes(model, y) and (count := len(np.unique(np.asarray(y)))) > 2:
        raise ValueError(
            f"y has {count} classes, and make_fair supports two; use FairKernelClassifier with base_estimator=model"
        )


def _named_columns(X: Any, sensitive: Any) -> Any:
    """Return the columns of X that `sensitive` names; None where it holds the attributes."""
    if isinstance(sensitive, str | int):
        return [sensitive]
    if not isinstance(sensitive, list | tuple) or not sensitive:
        return None
    named = all(isinstance(name, str | int | np.integer) for name in sensitive)
    return list(sensitive) if named and len(sensitive) < frames.n_rows(X) else None


def _groups(s: Any) -> NDArray[np.int64]:
    """Number the combinations of levels, by row; numbers of many values are no levels."""
    columns = frames.columns(frames.as_table(s, one_column=True), "s")
    coded = [(c.kind in ("categorical", "boolean"), *c.codes()) for c in columns]
    codes = [codes for text, codes, levels in coded if text or len(levels) <= MAX_LEVELS_OF_NUMBERS]
    return distinct(np.array(codes).reshape(len(codes), frames.n_rows(s)).T).number


def hold_out(groups: Any, classes: Any, part: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows are held out: this part of each group, of each class in it alike; never one or all."""
    chance = hash_uniform(seed, np.arange(len(groups)))
    numbers = np.unique(classes, return_inverse=True)[1]
    tested = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        # In each class by chance, classes one after the other: every prefix step takes its part.
        order = rows[np.lexsort([chance[rows], numbers[rows]])]
        steps = np.floor(np.arange(len(rows) + 1) * part + 0.5)
        chosen = order[np.diff(steps) > 0]
        if 2 <= len(chosen) < len(rows):
            tested[chosen] = True
    if not tested.any():
        raise ValueError(
            f"test_size={part!r} of {len(groups)} rows leaves fewer than two rows of every group "
            "for the audit; give a larger test_size, more rows, or merged levels"
        )
    return tested


def _take(X: Any, apart: Any, rows: NDArray[np.int64]) -> tuple[Any, dict[str, Any]]:
    """Return some rows of X, and of separate sensitive attributes, as keywords of `fit`."""
    own = {} if apart is None else {"sensitive_features": frames.take_rows(apart, rows)}
    return frames.take_rows(X, rows), own


def _compare(  # noqa: PLR0917
    model: Any, estimator: Any, X: Any, own: dict[str, Any], y: Any, test: NDArray[np.int64]
) -> FairModel:
    """Audit both models on rows that they have not seen; a classifier by its probabilities."""
    # As the base model sees them, beside the sensitive attributes.
    chunk = estimator._design.preparation.split(Chunk(X, own.get("sensitive_features")))
    classes = is_classifier(estimator)
    target = np.asarray(y == estimator.classes_[1] if classes else y, dtype=np.float64)
    before = predictions(estimator.base_estimator_, chunk.x, "probability")[:, 0]
    outputs = {"before": before, "after": predicted(estimator, X)}
    options: dict[str, Any] = {"threshold": 0.5} if classes else {}
    options |= {"sensitive_features": chunk.s, "y_true": target}
    audits = {name: audit(f, **options) for name, f in outputs.items()}
    columns: dict[str, Any] = {
        "model": list(outputs),
        "explained_share": [explained_share(f, chunk.s) for f in outputs.values()],
    }
    for f in outputs.values():
        error = np.mean((f > 0.5) == target) if classes else np.sqrt(np.mean((f - target) ** 2))
        columns.setdefault("accuracy" if classes else "rmse", []).append(float(error))
    table = frames.make_frame(columns).set_index("model")
    words = _words(model, estimator, table, len(y))
    return FairModel(estimator, estimator.path_, audits["before"], audits["after"], table, test, words)


def _words(model: Any, estimator: Any, table: DataFrame, n_rows: int) -> str:
    share = table["explained_share"]
    error = "accuracy" if "accuracy" in table else "rmse"
    name = {"rmse": "root mean squared error"}.get(error, error)
    was = "was fitted before" if is_fitted(model) else "was fitted on the other rows"
    sees = estimator.sensitive_columns is not None and not estimator.hide_sensitive
    return (
        f"On {n_rows:,} held-out rows, the sensitive attributes explain {share['before']:.1%} of "
        f"the variance of the predictions of {name_of(model)}, which {was}, and "
        f"{share['after']:.1%} of those of the fair model (limit {estimator.unfairness:.1%}). "
        f"The {name} went from {table[error]['before']:.4g} to {table[error]['after']:.4g}. "
        f"The fair model {'uses' if sees else 'does not use'} the sensitive attributes to predict."
    )
