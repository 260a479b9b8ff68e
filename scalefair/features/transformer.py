"""Other people's models as feature maps: any scikit-learn transformer, and the leaves of trees."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from scalefair._hash import digest
from scalefair._typing import Array, Rows
from scalefair.data import frames
from scalefair.features.base import BaseMap, Filler


class TransformerMap(BaseMap):
    """φ(x) = transformer.transform(x), for any scikit-learn transformer or pipeline of them.

    Parameters
    ----------
    transformer : transformer
        A fitted one is used as it is, also in copies; another is fitted on the sample of rows that
        estimators learn their maps on (at least 2,000 rows, without targets).

    Attributes
    ----------
    transformer_ : fitted transformer
    n_raw_ : int
        Number of its columns.
    linear_ : None
    fingerprint_ : str
        Of the features of the rows of `fit`.

    Notes
    -----
    It sees what every feature map sees: numbers, with text columns already encoded.

    Examples
    --------
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> from scalefair.features import TransformerMap
    >>> TransformerMap(PolynomialFeatures(2)).fit_transform([[1.0, 2.0]])
    array([[1., 1., 2., 1., 2., 4.]])
    """

    block = 8192  # rows at a time: a call of a transformer costs more than the cache saves

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def __sklearn_clone__(self) -> TransformerMap:
        fitted = _is_fitted(self.transformer)
        return TransformerMap(self.transformer if fitted else clone(self.transformer))

    def _learn(self, X: Rows, weight: Array) -> None:
        if not hasattr(self.transformer, "transform"):
            raise TypeError(
                f"transformer={self.transformer!r} has no transform; give a scikit-learn "
                "transformer, or a pipeline of them"
            )
        fitted = _is_fitted(self.transformer)
        self.transformer_ = self.transformer if fitted else clone(self.transformer).fit(X[weight > 0])
        rows = self._features(X)
        if not np.isfinite(rows).all():
            raise ValueError(
                f"transformer ({type(self.transformer).__name__}) makes NaN or infinity; fill in "
                "missing values, or scale, before it"
            )
        self.n_raw_, self.linear_ = int(rows.shape[1]), None
        self.fingerprint_ = digest(rows)

    def filler(self, dtype: DTypeLike) -> Filler:  # noqa: ARG002 - assignment converts
        """Return the function that writes the features; see `BaseMap.filler`."""
        return lambda X, out: np.copyto(out, self._features(X), casting="unsafe")

    def _features(self, X: Rows) -> Rows:
        rows: Any = self.transformer_.transform(X)
        dense: Any = rows.toarray() if issparse(rows) else rows  # type: ignore[attr-defined]
        return np.asarray(dense).reshape(dense.shape[0], -1)


def _is_fitted(transformer: Any) -> bool:
    try:
        check_is_fitted(transformer)
    except (NotFittedError, TypeError):
        return False
    # Transformers without a state of their own count as fitted, but must learn their columns.
    return hasattr(transformer, "n_features_in_") or not hasattr(transformer, "fit")


class LeafMap(BaseMap):
    """One indicator per leaf of a fitted tree ensemble.

    φ(x)ᵀφ(z) counts the trees in which x and z fall into the same leaf.

    Parameters
    ----------
    ensemble : fitted ensemble
        Random forest, extra trees, gradient boosting or `RandomTreesEmbedding` of scikit-learn,
        XGBoost or LightGBM through their scikit-learn classes: what has `apply` or predicts leaves.
        It is used as it is, also in copies. Fit it on rows that the estimator does not see, or let
        its leaves be small in number: leaves that were grown on the same targets know them.

    Attributes
    ----------
    leaves_ : list of arrays
        Numbers of the leaves of each tree that have a feature: all of them for trees of
        scikit-learn, else those that rows of `fit` fall into.
    n_raw_ : int
        Their total number m.
    linear_ : None
    fingerprint_ : str
        Of the leaves that the rows of `fit` fall into.

    Notes
    -----
    A row has a single 1 for each tree, so that its moments are sums over pairs of leaves: t² / 2
    additions for t trees instead of m², and no row is ever written out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from scalefair.features import LeafMap
    >>> X = np.arange(8.0)[:, None]
    >>> forest = ExtraTreesRegressor(n_estimators=3, max_depth=1, random_state=0).fit(X, X[:, 0])
    >>> LeafMap(forest).fit(X).transform(X).sum(axis=1)
    array([3., 3., 3., 3., 3., 3., 3., 3.])
    """

    def __init__(self, ensemble: Any) -> None:
        self.ensemble = ensemble

    def __sklearn_clone__(self) -> LeafMap:
        # A copy of the ensemble would not be fitted, and there would be no leaves.
        return LeafMap(self.ensemble)

    def _learn(self, X: Rows, weight: Array) -> None:
        check_ensemble(self.ensemble, X.shape[1])
        numbers = self._leaf_numbers(X)
        grown = _grown_leaves(self.ensemble)
        seen = numbers[weight > 0]
        self.leaves_ = grown or [np.unique(seen[:, tree]) for tree in range(seen.shape[1])]
        ends = np.cumsum([0, *(len(leaves) for leaves in self.leaves_)])
        sizes = [int(leaves[-1]) + 1 for leaves in self.leaves_]
        self._starts = np.cumsum([0, *sizes])
        # Column of every leaf number, tree after tree; −1 where it has none.
        self._columns = np.full(self._starts[-1], -1, np.int32)
        for leaves, start, first in zip(self.leaves_, self._starts, ends, strict=False):
            self._columns[start + leaves] = first + np.arange(len(leaves))
        self.n_raw_, self.linear_ = int(ends[-1]), None
        self.fingerprint_ = digest(self.codes(X))

    def codes(self, X: Rows) -> NDArray[np.int32]:
        """Return the columns that are 1, shape (trees, k), ascending down; −1: it has none."""
        leaves = self._leaf_numbers(X).T
        starts, stops = self._starts[:-1, None], self._starts[1:, None]
        at = starts + leaves
        known = (leaves >= 0) & (at < stops)
        return np.where(known, self._columns[np.where(known, at, 0)], np.int32(-1))

    def filler(self, dtype: DTypeLike) -> Filler:  # noqa: ARG002 - zeros and ones are of any
        """Return the function that writes the indicators; see `BaseMap.filler`."""

        def fill(X: Rows, out: Rows) -> None:
            codes = self.codes(X)
            tree, row = np.nonzero(codes >= 0)
            out[...] = 0
            out[row, codes[tree, row]] = 1

        return fill

    def _leaf_numbers(self, X: Rows) -> NDArray[np.int64]:
        """Leaf of each row in each tree, shape (k, trees)."""
        names = getattr(self.ensemble, "feature_names_in_", None)
        rows: Any = X
        if names is not None:
            columns = zip(names, np.asarray(X).T, strict=True)
            rows = frames.make_frame({str(name): column for name, column in columns})
        if isinstance(self.ensemble, WithLeaves):
            leaves = self.ensemble.apply(rows)
        else:
            leaves = self.ensemble.predict(rows, pred_leaf=True)
        return np.asarray(leaves).reshape(len(X), -1).astype(np.int64)


@runtime_checkable
class WithLeaves(Protocol):
    """An ensemble of trees, as scikit-learn's and XGBoost's."""

    def apply(self, X: Any, /) -> Any:
        """Return the leaf of each row in each tree."""


def check_ensemble(ensemble: Any, width: int) -> None:
    """Raise ValueError if an ensemble has no leaves, is not fitted, or has other columns."""
    name = type(ensemble).__name__
    # Of the class: LightGBM's own `booster_` is not there before it is fitted.
    if not isinstance(ensemble, WithLeaves) and not hasattr(type(ensemble), "booster_"):
        raise TypeError(
            f"ensemble ({name}) does not give the leaves of a row; give a random forest, extra "
            "trees or gradient boosting of scikit-learn (those based on histograms do not give "
            "them), XGBoost or LightGBM; or give the model as base_estimator"
        )
    check_is_fitted(ensemble, msg=f"ensemble ({name}) is not fitted; fit it on X and y first")
    expected = getattr(ensemble, "n_features_in_", width)
    if expected != width:
        raise ValueError(
            f"ensemble ({name}) was fitted on {expected} columns, but X has {width}; fit it on the "
            "numbers that the map sees (text columns are encoded before)"
        )


def _grown_leaves(ensemble: Any) -> list[NDArray[np.int64]]:
    """Leaves of the trees of scikit-learn's ensembles; none where the trees are not open."""
    trees = np.ravel(np.asarray(getattr(ensemble, "estimators_", []), dtype=object))
    if not all(hasattr(tree, "tree_") for tree in trees):
        return []
    return [np.flatnonzero(tree.tree_.children_left < 0) for tree in trees]
