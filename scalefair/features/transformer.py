"""Any scikit-learn transformer as a feature map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from scalefair._hash import digest
from scalefair._typing import Array, Rows
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
        self.transformer_ = (
            self.transformer if fitted else clone(self.transformer).fit(X[weight > 0])
        )
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
