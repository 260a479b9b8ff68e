"""Maps of several groups of columns: products and sums of kernels, for mixed attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from scalefair._linalg import check_finite
from scalefair._typing import LARGEST, LARGEST_SINGLE, Array, Rows
from scalefair.features._base import BaseMap, Buffer, check_choice, compute_dtype, start_raw
from scalefair.features._columns import Columns, column_numbers


class _PartsMap(BaseMap):
    """A map made of maps of some columns each."""

    parts: Sequence[tuple[Any, Columns]]

    def _learn(self, X: Any, weight: Array) -> None:
        _check_parts(self.parts)
        names = getattr(self, "feature_names_in_", None)
        self.parts_: list[tuple[Any, NDArray[np.intp]]] = []
        for part, columns in self.parts:
            where = column_numbers(columns, X.shape[1], names)
            fitted = clone(part).fit(X.take(where, axis=1), sample_weight=weight)
            self.parts_.append((fitted, where))
        self._compose([part for part, _ in self.parts_])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; `deep`: also the maps, as part0, and theirs, as part0__kernel."""
        params: dict[str, Any] = super().get_params(deep=False)
        for number, (part, _) in enumerate(_pairs(self.parts) if deep else ()):
            params[f"part{number}"] = part
            nested = part.get_params().items()
            params |= {f"part{number}__{name}": value for name, value in nested}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, maps (part0=OneHot()) or parameters of maps (part0__unknown="group")."""
        self.parts = params.pop("parts", self.parts)
        for number, (_, columns) in enumerate(_pairs(self.parts)):
            if f"part{number}" in params:
                changed = (params.pop(f"part{number}"), columns)
                self.parts = [*self.parts[:number], changed, *self.parts[number + 1 :]]
        super().set_params(**params)
        return self

    @abstractmethod
    def _compose(self, maps: list[Any]) -> None:
        """Set `n_raw_` and `linear_` from the fitted maps."""

    def _part_raw(self, X: Any, dtype: Any) -> list[Rows]:
        """Raw rows of each part, in arrays of their own, so that each is C-ordered."""
        blocks = []
        for part, where in self.parts_:
            out: Rows = np.empty((X.shape[0], part.n_raw_), dtype=dtype)
            blocks.append(part.raw(_plain(part, X.take(where, axis=1)), out=out))
        return blocks

    def _part_names(self, input_features: Any) -> list[Any]:
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        return [part.get_feature_names_out(columns[where]) for part, where in self.parts_]

    def _validated(self, X: Any, *, reset: bool) -> Any:
        _check_parts(self.parts)
        if not get_tags(self).input_tags.categorical:
            return super()._validated(X, reset=reset)
        X = validate_data(self, X, dtype=None, order="C", reset=reset)
        check_finite("X", X, LARGEST_SINGLE if X.dtype == np.float32 else LARGEST)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = any(_takes_categories(part) for part, _ in _pairs(self.parts))
        return tags


class ProductMap(_PartsMap):
    """The map of a product of kernels, each on its own columns: ψ(s) = ψ₁(s₁) ⊗ ψ₂(s₂).

    ψ(s)ᵀψ(t) = k₁(s₁, t₁)·k₂(s₂, t₂)·…; with the categories in a `OneHot` part, that is a smooth
    kernel within each group and 0 between groups.

    Parameters
    ----------
    parts : list of (map, columns)
        Columns are numbers, names (of a data frame), a slice or a mask.
    whiten : {"moments", "rows"}, default="moments"
        Where the linear parts are applied. "moments": raw is ⊗ of the parts' raw rows and linear_
        is ⊗ of their linear_. "rows": raw is ⊗ of the parts' features and linear_ is None; with a
        Nyström part of low rank that has far fewer columns.

    Attributes
    ----------
    parts_ : list of (fitted map, column numbers)
    n_raw_ : int
        Product of the parts' numbers.
    linear_ : array of shape (n_raw_, n_features_out) or None
        None where no part has a linear part.

    Notes
    -----
    Numeric columns need no scaling step: `Nystroem(length_scale="standardized")` is the kernel of
    standardised columns.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.features import Nystroem, OneHot, ProductMap
    >>> S = np.array([[0, 30.0], [1, 40.0], [0, 50.0], [1, 30.0]])
    >>> psi = ProductMap([(OneHot(), [0]), (Nystroem(length_scale="standardized"), [1])])
    >>> psi.fit_transform(S).shape
    (4, 6)
    """

    def __init__(self, parts: Sequence[tuple[Any, Columns]], whiten: str = "moments") -> None:
        self.parts = parts
        self.whiten = whiten

    def _compose(self, maps: list[Any]) -> None:
        check_choice("whiten", self.whiten, ("moments", "rows"))
        self.linear_ = None
        if self.whiten == "rows":
            self.n_raw_ = prod(part.n_features_out for part in maps)
            return
        self.n_raw_ = prod(part.n_raw_ for part in maps)
        if any(part.linear_ is not None for part in maps):
            self.linear_ = reduce(_kron, map(_linear_matrix, maps))

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return the row-wise Kronecker product of the parts' rows; see `BaseMap.raw`."""
        dtype = compute_dtype(X, out)
        blocks = self._part_raw(X, dtype)
        if self.whiten == "rows":
            maps = (part for part, _ in self.parts_)
            blocks = [_apply_linear(*pair) for pair in zip(maps, blocks, strict=True)]
        if out is None:
            out = np.empty((X.shape[0], self.n_raw_), dtype=dtype)
        left = reduce(_rowwise_kron, blocks[:-1], np.ones((X.shape[0], 1), dtype=dtype))
        return _rowwise_kron(left, blocks[-1], out)

    def started(self, dtype: DTypeLike) -> Callable[[Any, Rows], None]:
        """Return the function that fills rows with the product; see `BaseMap.started`."""
        parts = [_StartedPart(*pair, dtype, whiten=self.whiten == "rows") for pair in self.parts_]

        def fill(X: Any, out: Rows) -> None:
            blocks = [part.rows(X) for part in parts]
            left = reduce(_rowwise_kron, blocks[1:-1], blocks[0])
            if len(blocks) == 1:
                out[...] = left
            else:
                _rowwise_kron(left, blocks[-1], out)

        return fill

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the parts' features, joined by " * "."""
        names = product(*self._part_names(input_features))
        return np.asarray([" * ".join(combination) for combination in names], dtype=object)


class ConcatMap(_PartsMap):
    """The map of a sum of kernels, each on its own columns: φ(x) = [φ₁(x₁), φ₂(x₂), …].

    φ(x)ᵀφ(z) = k₁(x₁, z₁) + k₂(x₂, z₂) + …

    Parameters
    ----------
    parts : list of (map, columns)
        Columns are numbers, names (of a data frame), a slice or a mask.

    Attributes
    ----------
    parts_ : list of (fitted map, column numbers)
    n_raw_ : int
        Sum of the parts' numbers.
    linear_ : array of shape (n_raw_, n_features_out) or None
        Block diagonal; None where no part has a linear part.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.features import ConcatMap, Identity, OneHot
    >>> X = np.array([[0, 30.0], [1, 40.0]])
    >>> ConcatMap([(OneHot(), [0]), (Identity(), [1])]).fit_transform(X)
    array([[ 1.,  0., 30.],
           [ 0.,  1., 40.]])
    """

    def __init__(self, parts: Sequence[tuple[Any, Columns]]) -> None:
        self.parts = parts

    def _compose(self, maps: list[Any]) -> None:
        self.n_raw_ = sum(part.n_raw_ for part in maps)
        self.linear_ = None
        if any(part.linear_ is not None for part in maps):
            self.linear_ = block_diag(*map(_linear_matrix, maps))

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return the parts' rows side by side; see `BaseMap.raw`."""
        return np.concatenate(self._part_raw(X, compute_dtype(X, out)), axis=1, out=out)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the parts' features, led by "part0__" and so on."""
        blocks = enumerate(self._part_names(input_features))
        names = [f"part{number}__{name}" for number, block in blocks for name in block]
        return np.asarray(names, dtype=object)


class _StartedPart:
    """The rows of one part of a product, in buffers of its own."""

    def __init__(self, part: Any, where: NDArray[np.intp], dtype: DTypeLike, *, whiten: bool):
        self._part, self._where = part, where
        self._raw, self._fill = Buffer(part.n_raw_, dtype), start_raw(part, dtype)
        self._linear = part.linear_.astype(dtype) if whiten and part.linear_ is not None else None
        width = part.n_raw_ if self._linear is None else self._linear.shape[1]
        self._features = Buffer(width, dtype)

    def rows(self, X: Any) -> Rows:
        """Return the rows, valid until the next call."""
        raw = self._raw.rows(len(X))
        self._fill(_plain(self._part, X.take(self._where, axis=1)), raw)
        if self._linear is None:
            return raw
        return np.matmul(raw, self._linear, out=self._features.rows(len(X)))


def _check_parts(parts: Any) -> None:
    if not isinstance(parts, Sequence) or len(parts) == 0:
        raise ValueError(f"parts={parts!r} must be a list of at least one pair (map, columns)")
    for pair in parts:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise ValueError(f"parts holds {pair!r}; each part must be a pair (map, columns)")
        if not hasattr(pair[0], "raw"):
            raise TypeError(
                f"parts holds the map {pair[0]!r} of type {type(pair[0]).__name__}, which has no "
                f"`raw` method; use a feature map of scalefair.maps"
            )


def _pairs(parts: Any) -> list[tuple[Any, Any]]:
    """Return the parts, none if they are invalid: tags are asked for before `fit` checks them."""
    try:
        _check_parts(parts)
    except (TypeError, ValueError):
        return []
    return list(parts)


def _takes_categories(part: Any) -> bool:
    return bool(get_tags(part).input_tags.categorical)


def _plain(part: Any, block: Any) -> Any:
    """Return the block as the part's `raw` wants it: floats, or anything where categories are."""
    if block.dtype.kind == "f" or _takes_categories(part):
        return block
    return block.astype(np.float64)


def _kron(left: Array, right: Array) -> Array:
    return np.asarray(np.kron(left, right))


def _linear_matrix(part: Any) -> Array:
    return np.eye(part.n_raw_) if part.linear_ is None else part.linear_


def _apply_linear(part: Any, block: Rows) -> Rows:
    return block if part.linear_ is None else block @ part.linear_.astype(block.dtype, copy=False)


def _rowwise_kron(left: Rows, right: Rows, out: Rows | None = None) -> Rows:
    """Return the rows left_i ⊗ right_i, of shape (k, a·b) for left (k, a) and right (k, b)."""
    shape = (left.shape[0], left.shape[1], right.shape[1])
    if out is None:
        out = np.empty((shape[0], shape[1] * shape[2]), dtype=left.dtype)
    np.multiply(left[:, :, None], right[:, None, :], out=out.reshape(shape))
    return out
