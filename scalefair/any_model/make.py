"""One call that makes a model fair and says what that changed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length

from scalefair._checks import check_number
from scalefair._hash import hash_uniform
from scalefair._typing import Array, Chunk
from scalefair.auditing import Audit, audit
from scalefair.data import MAX_LEVELS_OF_NUMBERS, frames, is_stream, open_rows
from scalefair.data.encoding import asked_before
from scalefair.estimators import FairKernelClassifier, FairKernelRidgeCV
from scalefair.features._base import seed_of
from scalefair.features.base_model import is_fitted, name_of, predictions
from scalefair.measures import explained_share

if TYPE_CHECKING:
    import pandas as pd

TEST_SIZE = 0.25


@dataclass(frozen=True, eq=False)
class FairModel:
    """What :func:`scalefair.make_fair` returns.

    Parameters
    ----------
    estimator : FairKernelRidgeCV or FairKernelClassifier
        Fitted on the rows that were not held out; its `predict` needs no sensitive attributes apart
        from the columns it was given.
    path : FairPath or LossPath
        The accuracy–fairness frontier; also called `frontier`.
    before, after : Audit
        Of the given model and of the fair one, on the rows held out.
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
    table: pd.DataFrame
    held_out: NDArray[np.int64]
    summary: str

    @property
    def frontier(self) -> Any:
        """The path."""
        return self.path

    def predict(self, X: Any) -> Any:
        """Return the predictions of the fair estimator."""
        return self.estimator.predict(X)

    def __str__(self) -> str:
        return self.summary


def make_fair(
    model: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    unfairness: float = 0.05,
    *,
    hide_sensitive: bool = False,
    test_size: float = TEST_SIZE,
    random_state: Any = None,
    **parameters: Any,
) -> FairModel:
    """Make a model fair in one call, and audit it before and after on rows held out.

    The cross-fitted prediction of the model joins the features of a :class:`FairKernelRidgeCV`, or
    of a :class:`FairKernelClassifier` if it is a classifier, under a limit on the explained share.

    Parameters
    ----------
    model : estimator
        Any scikit-learn regressor, classifier or pipeline. One that is fitted already is used as it
        is, with a warning.
    X : array or frame of shape (n, d)
        Inputs as the model takes them, in memory.
    y : array-like of shape (n,)
        Targets, or labels of two classes.
    sensitive_features : names or positions of columns of X, or array, Series or frame of n rows
        Where they are columns of X, the fair model may use them, which costs least accuracy.
    unfairness : float, default=0.05
        Largest share of the variance of the predictions that the sensitive attributes may explain.
    hide_sensitive : bool, default=False
        Whether neither model may use those columns.
    test_size : float, default=0.25
        Share of the rows that are held out for the audits.
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
    _check_arguments(X, test_size, unfairness)
    X = X if hasattr(X, "shape") else np.asarray(X)
    columns = _named_columns(X, sensitive_features)
    seed = seed_of(random_state)
    tested = hash_uniform(seed, np.arange(frames.n_rows(X))) < test_size
    train, test = np.flatnonzero(~tested), np.flatnonzero(tested)
    y = np.asarray(y)
    options = {
        "base_estimator": model, "unfairness": unfairness, "random_state": seed,
        "sensitive_columns": columns, "hide_sensitive": hide_sensitive and columns is not None,
    }  # fmt: skip
    kind = FairKernelClassifier if is_classifier(model) else FairKernelRidgeCV
    estimator = kind(**(options | parameters))
    apart = sensitive_features if columns is None else None
    if apart is not None:
        open_rows(X, apart)  # compares their lengths
    check_consistent_length(X, y)
    estimator.fit(frames.take_rows(X, train), y[train], **_rows_of(apart, train))
    rows = UnseenRows.of(estimator, X, y, apart, test)
    alone = _alone(rows.split().s)
    if alone.any():
        warnings.warn(
            f"{alone.sum()} of {len(test)} rows held out are the only ones of their group there "
            "and are left out of the audits; a larger test_size, or merged levels, would keep them",
            stacklevel=2,
        )
        test = test[~alone]
        rows = UnseenRows.of(estimator, X, y, apart, test)
    with asked_before():
        return _compare(model, rows, unfairness, test)


def _check_arguments(X: Any, test_size: Any, unfairness: Any) -> None:
    check_number("unfairness", unfairness, 0.0, 1.0)
    if not 0 < check_number("test_size", test_size, 0.0, 1.0) < 1:
        raise ValueError(f"test_size={test_size!r} must be between 0 and 1; give for instance 0.25")
    if is_stream(X):
        raise TypeError(
            f"make_fair needs rows in memory, and X is a {type(X).__name__}; fit a "
            "FairKernelRidgeCV with base_estimator=model, and audit its predictions with "
            "scalefair.audit"
        )


def _named_columns(X: Any, sensitive: Any) -> Any:
    """Return the columns of X that `sensitive` names; None where it holds the attributes."""
    if isinstance(sensitive, str | int):
        return [sensitive]
    if not isinstance(sensitive, list | tuple) or not sensitive:
        return None
    named = all(isinstance(name, str | int | np.integer) for name in sensitive)
    return list(sensitive) if named and len(sensitive) < frames.n_rows(X) else None


def _alone(s: Any) -> NDArray[np.bool_]:
    """Rows that are the only ones of a level of an attribute, which no audit can judge."""
    columns = frames.columns(frames.as_table(s, one_column=True), "s")
    alone = np.zeros(frames.n_rows(s), dtype=bool)
    for column in columns:
        codes, levels = column.codes()
        if column.kind in ("categorical", "boolean") or len(levels) <= MAX_LEVELS_OF_NUMBERS:
            # Code −1, of what is missing, counts as the last level.
            alone |= np.bincount(codes % (len(levels) + 1))[codes] == 1
    return alone


def _rows_of(s: Any, rows: NDArray[np.int64]) -> dict[str, Any]:
    return {} if s is None else {"sensitive_features": frames.take_rows(s, rows)}


@dataclass(frozen=True, eq=False)
class UnseenRows:
    """A fitted estimator and rows that it has not seen."""

    estimator: Any
    X: Any
    y: Any
    apart: dict[str, Any]

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any, apart: Any, rows: NDArray[np.int64]) -> UnseenRows:
        """Take some rows of the data."""
        return cls(estimator, frames.take_rows(X, rows), y[rows], _rows_of(apart, rows))

    def split(self) -> Chunk:
        """The rows as the base model sees them, and the sensitive attributes."""
        s = self.apart.get("sensitive_features")
        return self.estimator._design.preparation.split(Chunk(self.X, s))  # type: ignore[no-any-return]

    @property
    def labelled(self) -> bool:
        """Whether y are labels of classes."""
        return bool(is_classifier(self.estimator))

    @property
    def target(self) -> Array:
        """y as numbers; of two classes the second is 1."""
        if not self.labelled:
            return np.asarray(self.y, dtype=np.float64)
        return np.asarray(self.y == self.estimator.classes_[1], dtype=np.float64)

    def after(self) -> Array:
        """Predictions of the fair estimator: probabilities of a classifier."""
        if not self.labelled:
            return np.asarray(self.estimator.predict(self.X))
        return np.asarray(self.estimator.predict_proba(self.X)[:, 1])

    def path(self) -> Any:
        """The frontier; that of a classifier needs rows, which the base model has not seen."""
        if not self.labelled:
            return self.estimator.path_
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the base model was fitted")
            return self.estimator.path(self.X, self.y, **self.apart)


def _compare(model: Any, rows: UnseenRows, unfairness: float, test: NDArray[np.int64]) -> FairModel:
    estimator, chunk, target = rows.estimator, rows.split(), rows.target
    if rows.labelled and len(estimator.classes_) > 2:
        raise ValueError(
            f"y has {len(estimator.classes_)} classes, and make_fair audits two; use "
            "FairKernelClassifier with base_estimator=model"
        )
    before = predictions(estimator.base_estimator_, chunk.x, "probability")[:, 0]
    outputs = {"before": before, "after": rows.after()}
    options: dict[str, Any] = {"threshold": 0.5} if rows.labelled else {}
    options |= {"sensitive_features": chunk.s, "y_true": target}
    audits = {name: audit(f, **options) for name, f in outputs.items()}
    table = frames.make_frame(
        {
            "model": list(outputs),
            "explained_share": [explained_share(f, chunk.s) for f in outputs.values()],
            **_errors(list(outputs.values()), target, labelled=rows.labelled),
        }
    ).set_index("model")
    words = _words(model, table, unfairness, rows)
    return FairModel(estimator, rows.path(), audits["before"], audits["after"], table, test, words)


def _errors(outputs: list[Array], target: Array, *, labelled: bool) -> dict[str, list[float]]:
    if labelled:
        return {"accuracy": [float(np.mean((f > 0.5) == target)) for f in outputs]}
    return {"rmse": [float(np.sqrt(np.mean((f - target) ** 2))) for f in outputs]}


def _words(model: Any, table: pd.DataFrame, unfairness: float, rows: UnseenRows) -> str:
    share = table["explained_share"]
    error, name = ("accuracy", "accuracy") if rows.labelled else ("rmse", "root mean squared error")
    was = "was fitted before" if is_fitted(model) else "was fitted on the other rows"
    sees = rows.estimator.sensitive_columns is not None and not rows.estimator.hide_sensitive
    return (
        f"On {len(rows.y):,} rows held out, the sensitive attributes explain "
        f"{share['before']:.1%} of the variance of the predictions of {name_of(model)}, which "
        f"{was}, and {share['after']:.1%} of those of the fair model (limit {unfairness:.1%}). "
        f"The {name} went from {table[error]['before']:.4g} to {table[error]['after']:.4g}. "
        f"The fair model {'uses' if sees else 'does not use'} the sensitive attributes to predict."
    )
