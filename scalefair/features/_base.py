"""What all explicit feature maps share: φ(x) = raw(x) @ linear_."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from scalefair._hash import smallest_hash
from scalefair._linalg import check_finite
from scalefair._typing import LARGEST, LARGEST_SINGLE, Array, Rows
from scalefair.features.landmarks import distinct_rows
from scalefair.kernels import Kernel, make_kernel, median_length_scale

MEDIAN_ROWS = 1000
"""The median heuristic looks at the pairs of at most so many rows."""


class BaseMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer φ(x) = raw(x) @ linear_ from inputs to features.

    `transform` validates its input. `raw` does not: it is what runs on every chunk of a big data
    set, from several threads at once, so it never changes the map.

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

    def started(self, dtype: DTypeLike) -> Callable[[Any, Rows], None]:
        """Return the function that fills rows of that dtype with `raw`, for one pass.

        A map that can computes what does not depend on the rows beforehand. Not to be shared by
        threads, nor kept: it does not follow changes of the map.
        """
        del dtype

        def fill(X: Any, out: Rows) -> None:
            self.raw(X, out=out)

        return fill

    @abstractmethod
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

    @abstractmethod
    def _learn(self, X: Any, weight: Array) -> None:
        """Set the fitted attributes from valid rows and weights."""

    @property
    def n_features_out(self) -> int:
        """Number of features φ(x) has."""
        return self.n_raw_ if self.linear_ is None else int(self.linear_.shape[1])

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out

    def _validated(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=reset)
        check_finite("X", X, LARGEST if X.dtype == np.float64 else LARGEST_SINGLE)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Buffer:
    """Rows that are written again and again; new memory costs a page fault every 4 kB.

    Parameters
    ----------
    width : int
        Columns.
    dtype : numpy dtype
        Of the numbers.
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._rows: Rows = np.empty((0, width), dtype)

    def rows(self, count: int) -> Rows:
        """Return so many rows, valid until the next call."""
        if len(self._rows) < count:
            self._rows = np.empty((count, self._rows.shape[1]), self._rows.dtype)
        return self._rows[:count]


def start_raw(feature_map: Any, dtype: DTypeLike) -> Callable[[Any, Rows], None]:
    """Return what fills rows with `raw`, by `BaseMap.started` where the map has it."""
    if hasattr(feature_map, "started"):
        return feature_map.started(dtype)  # type: ignore[no-any-return]
    return lambda X, out: feature_map.raw(X, out=out)


def compute_dtype(X: Any, out: Rows | None) -> DTypeLike:
    """Return the dtype `raw` computes in: that of `out`, else of X, else float64."""
    if out is not None:
        return out.dtype
    return np.float32 if X.dtype == np.float32 else np.float64


def seed_of(random_state: Any) -> int:
    """Return an int as it is; draw a seed from a RandomState, or from numpy's global one (None)."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**63:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**63 - 1, dtype=np.int64))


def check_count(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1, or say what is wrong with the argument `name`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; give a positive integer")
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1; give a positive integer")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the `choices`."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")


def fitted_kernel(kernel: Any, length_scale: Any, rows: Rows, weight: Array, seed: int) -> Kernel:
    """Return the kernel with its length scale found from the rows where a heuristic was asked for.

    Parameters
    ----------
    kernel : str or Kernel
        A kernel object is used as it is, with its own length scale.
    length_scale : float, array of shape (d,), "median" or "standardized"
        "median": the weighted median of the non-zero distances (in the kernel's metric) of at most
        1000 distinct rows, chosen by the hash of their rank: the same for rows in any order, and
        for every map. "standardized": the same for columns divided by their standard
        deviations sd_j, as one length scale per input, θ_j = sd_j · median; k(x, z) with it is the
        kernel of standardised columns, without a separate scaling step.
    rows, weight : arrays of shape (n, d) and (n,)
    seed : int
    """
    unscaled = make_kernel(kernel)
    if isinstance(kernel, Kernel) or unscaled.length_scale == ():
        return unscaled
    if isinstance(length_scale, str):
        check_choice("length_scale", length_scale, ("median", "standardized"))
        rows, weight = distinct_rows(rows, weight)
        deviation = None
        if length_scale == "standardized":
            deviation = standard_deviation(rows, weight)
        length_scale = _median_scale(unscaled.metric, rows, weight, seed, deviation)
    return unscaled.with_length_scale(length_scale)


def _median_scale(
    metric: str, rows: Rows, weight: Array, seed: int, deviation: Array | None
) -> float | Array:
    if len(rows) < 2:
        raise ValueError(
            "the median heuristic looks at distances between rows, but all rows that count are "
            "equal, or there is only 1 sample; give rows that differ, or length_scale as a number"
        )
    sample = smallest_hash(seed, 0, len(rows), MEDIAN_ROWS)
    units = np.ones(rows.shape[1]) if deviation is None else deviation
    median = median_length_scale(rows[sample] / units, weight[sample], metric=metric)
    return median if deviation is None else median * deviation


def standard_deviation(rows: Rows, weight: Array) -> Array:
    """Return the weighted standard deviation of each column; 1 for a constant column."""
    rows = rows[weight > 0].astype(np.float64)
    share = weight[weight > 0] / weight.sum()
    deviation = np.sqrt(share @ (rows - share @ rows) ** 2)
    # The mean of equal numbers is rounded, so that their deviation need not be exactly 0.
    constant = (np.ptp(rows, axis=0) == 0) | (deviation == 0)
    return np.asarray(np.where(constant, 1.0, deviation))
