"""The common part of all explicit feature maps: φ(x) = raw(x) @ linear_."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from scalefair._typing import LARGEST, LARGEST_SINGLE, Array, FeatureMap, Rows
from scalefair.errors import check_finite
from scalefair.kernels import Kernel

Filler = Callable[[Any, Rows], None]  # writes raw(x) of rows, its first argument, into the second


class Stores:
    """An object with parameters, as scikit-learn understands them."""

    def _store(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of `__init__` as they are, which is all that scikit-learn allows."""
        self.__dict__.update({n: v for n, v in arguments.items() if n not in ("self", "__class__")})


class BaseMap(Stores, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer φ(x) = raw(x) @ linear_ from inputs to features.

    `transform` validates its input. `raw` and `filler` do not: they are what runs on every chunk
    of a big data set, from several threads at once, so they never change the map.

    Attributes
    ----------
    n_raw_ : int
        Number of columns of `raw`.
    linear_ : array of shape (n_raw_, n_features_out) or None
        The linear part, always float64; None means the identity.
    """

    n_raw_: int
    linear_: Array | None

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:  # noqa: ARG002
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs, or a sample of them.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Weight 0 leaves a row out, weight 2 is the row twice.

        Returns
        -------
        self
        """
        X = self._validated(X, reset=True)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_finite("sample_weight", weight)
        self._learn(X, weight)
        return self

    def fit_rows(self, X: Rows, weight: Array | None) -> Self:
        """Learn the map of rows of numbers that have been checked."""
        self.n_features_in_ = X.shape[1]
        self._learn(X, np.ones(len(X)) if weight is None else weight)
        return self

    def transform(self, X: Any) -> Any:
        """Return the features φ(x).

        Parameters
        ----------
        X : array-like of shape (k, d)

        Returns
        -------
        array of shape (k, n_features_out), float32 for float32 input, else float64
        """
        check_is_fitted(self)
        raw = self.raw(self._validated(X, reset=False))
        return raw if self.linear_ is None else raw @ self.linear_.astype(raw.dtype, copy=False)

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return the rows before the linear part, without validation.

        Parameters
        ----------
        X : array of shape (k, d), C-ordered, float32 or float64
        out : array of shape (k, n_raw_), C-ordered, optional
            Where to write. Its dtype is the dtype of the computation; without it that of X is.

        Returns
        -------
        array of shape (k, n_raw_)
            `out` if given.
        """
        if out is None:
            dtype = np.float32 if X.dtype == np.float32 else np.float64
            out = np.empty((X.shape[0], self.n_raw_), dtype)
        self.filler(out.dtype)(X, out)
        return out

    @abstractmethod
    def filler(self, dtype: DTypeLike) -> Filler:
        """Return what fills rows of that dtype with `raw`, for one pass of one thread."""

    @abstractmethod
    def _learn(self, X: Any, weight: Array) -> None:
        """Set the fitted attributes from valid rows and weights."""

    @property
    def n_features_out(self) -> int:
        """Number of features φ(x) has."""
        return n_features(self)

    _n_features_out = n_features_out  # what scikit-learn calls it

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Return rows of floats, or of anything where the map takes categories."""
        categories = get_tags(self).input_tags.categorical
        dtype = None if categories else [np.float64, np.float32]
        X = validate_data(self, X, dtype=dtype, order="C", reset=reset)
        check_finite("X", X, LARGEST_SINGLE if X.dtype == np.float32 else LARGEST)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LengthScaleMap(BaseMap):
    """A feature map of a kernel, `kernel_`, with length scales θ, one or one per input.

    Σ_ij ∂L/∂Φ_ij · ∂φ_ij/∂log θ_l is a sum over rows, `raw_gradient`, and one term for all
    together, `linear_gradient`; both have shape (n_hyper,), in the order of `kernel_.theta`.
    """

    kernel_: Kernel

    @abstractmethod
    def with_length_scale(self, theta: Any) -> Self:
        """Return a fitted copy with other length scales: the same landmarks, or the same draw."""

    @abstractmethod
    def raw_gradient(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Return Σ_ij dRaw_ij ∂raw_ij/∂log θ_l of some rows, whose `raw(X)` is given."""

    @abstractmethod
    def linear_gradient(self, product: Array) -> Array:
        """Return what the linear part's dependence on θ adds; product = Φᵀ(∂L/∂Φ)."""


def row_filler(feature_map: FeatureMap, dtype: DTypeLike, *, whiten: bool) -> Filler:
    """Return what fills rows, raw or whitened: all that a pass needs once is made here."""
    linear = feature_map.linear_
    if isinstance(feature_map, BaseMap):
        raw = feature_map.filler(dtype)
    else:

        def raw(X: Any, out: Rows) -> None:
            feature_map.raw(X, out=out)

    if not whiten or linear is None:
        return raw
    matrix = linear.astype(dtype)
    buffer: Rows = np.empty((0, feature_map.n_raw_), dtype)

    def fill(X: Any, out: Rows) -> None:
        nonlocal buffer
        if len(buffer) < len(X):  # once: new memory costs a page fault every 4 kB
            buffer = np.empty((len(X), feature_map.n_raw_), dtype)
        raw(X, buffer[: len(X)])
        np.matmul(buffer[: len(X)], matrix, out=out)

    return fill


def is_map(value: Any) -> bool:
    """Return True if an object is a feature map: one of ours, or of the user's own."""
    return hasattr(value, "raw")


def is_fitted_map(value: Any) -> bool:
    """Return True if an object is a feature map that is used as it is."""
    return hasattr(value, "n_raw_")


def n_features(feature_map: FeatureMap) -> int:
    """Columns of φ(x)."""
    linear = feature_map.linear_
    return int(feature_map.n_raw_ if linear is None else linear.shape[1])


def whitened(feature_map: FeatureMap, values: Any, dtype: Any = np.float64) -> Array:
    """φ(x) = raw(x) @ linear_, without validation."""
    rows: Any = feature_map.raw(values, out=np.empty((len(values), feature_map.n_raw_), dtype))
    linear = feature_map.linear_
    return np.asarray(rows if linear is None else rows @ linear.astype(dtype, copy=False))


def seed_of(random_state: Any) -> int:
    """Return an int as it is; draw a seed from a RandomState, or from numpy's global one (None)."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**63:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**63 - 1, dtype=np.int64))
