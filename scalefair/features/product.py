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
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._typing import Array, Rows
from scalefair.errors import check_choice, resolve_columns
from scalefair.features.base import BaseMap, Filler, is_map, n_features, row_filler

Columns = int | str | slice | Sequence[int] | Sequence[str] | NDArray[Any]


class _PartsMap(BaseMap):
    """A map made of maps of some columns each."""

    parts: Sequence[tuple[Any, Columns]]

    def _learn(self, X: Any, weight: Array) -> None:
        _check_parts(self.parts)
        names = vars(self).get("feature_names_in_")
        self.parts_: list[tuple[Any, NDArray[np.intp]]] = []
        for part, columns in self.parts:
            where = column_numbers(columns, X.shape[1], names)
            fitted = clone(part).fit(X.take(where, axis=1), sample_weight=weight)
            self.parts_.append((fitted, where))
        self._compose([part for part, _ in self.parts_])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; `deep`: also the maps, as part0, and theirs, as part0__kernel."""
        params: dict[str, Any] = super().get_params(deep=False)
        for number, (part, _) in enumerate(_valid_parts(self.parts) if deep else ()):
            params[f"part{number}"] = part
            nested = part.get_params().items()
            params |= {f"part{number}__{name}": value for name, value in nested}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, maps (part0=OneHot()) or parameters of maps (part0__unknown="group")."""
        self.parts = params.pop("parts", self.parts)
        for number, (_, columns) in enumerate(_valid_parts(self.parts)):
            if f"part{number}" in params:
                changed = (params.pop(f"part{number}"), columns)
                self.parts = [*self.parts[:number], changed, *self.parts[number + 1 :]]
        super().set_params(**params)
        return self

    @abstractmethod
    def _compose(self, maps: list[Any]) -> None:
        """Set `n_raw_` and `linear_` from the fitted maps."""

    def _part_names(self, input_features: Any) -> list[Any]:
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        return [part.get_feature_names_out(columns[where]) for part, where in self.parts_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = any(_takes_categories(part) for part, _ in _valid_parts(self.parts))
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
        self._store(locals())

    def _compose(self, maps: list[Any]) -> None:
        check_choice("whiten", self.whiten, ("moments", "rows"))
        self.linear_ = None
        if self.whiten == "rows":
            self.n_raw_ = prod(part.n_features_out for part in maps)
            return
        self.n_raw_ = prod(part.n_raw_ for part in maps)
        if any(part.linear_ is not None for part in maps):
            linear = np.eye(1)
            for part in maps:
                linear = np.asarray(np.kron(linear, _linear_matrix(part)), dtype=np.float64)
            self.linear_ = linear

    def filler(self, dtype: DTypeLike) -> Filler:
        """Return what writes the row-wise Kronecker product of the parts; see `BaseMap.filler`."""
        whiten = self.whiten == "rows"
        parts = [_part_rows(*pair, dtype, whiten=whiten) for pair in self.parts_]

        def fill(X: Any, out: Rows) -> None:
            blocks = [rows(X) for rows in parts]
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

    def filler(self, dtype: DTypeLike) -> Filler:
        """Return what writes the parts' rows side by side; see `BaseMap.filler`."""
        parts = [_part_rows(*pair, dtype, whiten=False) for pair in self.parts_]

        def fill(X: Any, out: Rows) -> None:
            np.concatenate([rows(X) for rows in parts], axis=1, out=out)

        return fill

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the parts' features, led by "part0__" and so on."""
        blocks = enumerate(self._part_names(input_features))
        names = [f"part{number}__{name}" for number, block in blocks for name in block]
        return np.asarray(names, dtype=object)


def _part_rows(part: Any, where: NDArray[np.intp], dtype: DTypeLike, *, whiten: bool) -> Callable[[Any], Rows]:
    """Return what makes the rows of one part, C-ordered, valid until the next call."""
    fill = row_filler(part, dtype, whiten=whiten)
    buffer: Rows = np.empty((0, n_features(part) if whiten else part.n_raw_), dtype)
    # What takes categories takes anything, other maps floats.
    as_given = _takes_categories(part)

    def rows(X: Any) -> Rows:
        nonlocal buffer
        if len(buffer) < len(X):  # once: new memory costs a page fault every 4 kB
            buffer = np.empty((len(X), buffer.shape[1]), dtype)
        block = X.take(where, axis=1)
        if block.dtype.kind != "f" and not as_given:
            block = block.astype(np.float64)
        fill(block, buffer[: len(X)])
        return buffer[: len(X)]

    return rows


def _check_parts(parts: Any) -> None:
    if not isinstance(parts, Sequence) or len(parts) == 0:
        raise ValueError(f"parts={parts!r} must be a list of at least one pair (map, columns)")
    for pair in parts:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise ValueError(f"parts holds {pair!r}; each part must be a pair (map, columns)")
        if not is_map(pair[0]):
            raise TypeError(
                f"parts holds the map {pair[0]!r} of type {type(pair[0]).__name__}, which has no "
                f"`raw` method; use a feature map of scalefair.maps"
            )


def _valid_parts(parts: Any) -> list[tuple[Any, Any]]:
    """Return the parts, none if they are invalid: tags are read before `fit` checks them."""
    try:
        _check_parts(parts)
    except (TypeError, ValueError):
        return []
    return list(parts)


def _takes_categories(part: Any) -> bool:
    return bool(get_tags(part).input_tags.categorical)


def _linear_matrix(part: Any) -> Array:
    return np.eye(part.n_raw_) if part.linear_ is None else part.linear_


def _rowwise_kron(left: Rows, right: Rows, out: Rows | None = None) -> Rows:
    """Return the rows left_i ⊗ right_i, of shape (k, a·b) for left (k, a) and right (k, b)."""
    shape = (left.shape[0], left.shape[1], right.shape[1])
    if out is None:
        out = np.empty((shape[0], shape[1] * shape[2]), dtype=left.dtype)
    np.multiply(left[:, :, None], right[:, None, :], out=out.reshape(shape))
    return out


def column_numbers(columns: Columns, n_features: int, names: Any = None) -> NDArray[np.intp]:
    """Return the numbers of columns chosen by number, by name, or by one bool each."""
    wanted: Any = columns
    if not isinstance(columns, slice):
        wanted = np.atleast_1d(np.asarray(columns))
        if wanted.dtype.kind in "UO" and all(isinstance(name, str) for name in wanted):
            wanted = resolve_columns(wanted.tolist(), None if names is None else list(names), n_features)
        elif wanted.dtype.kind not in "biu":
            raise TypeError(f"columns={columns!r} must be column numbers, names, a slice or a mask")
    try:
        numbers = np.arange(n_features)[wanted]
    except IndexError:
        raise ValueError(
            f"columns={columns!r} do not fit the {n_features} features of X; give numbers from 0 "
            f"to {n_features - 1}, or one bool per feature"
        ) from None
    if len(numbers) == 0:
        raise ValueError(f"columns={columns!r} selects no column of X; name at least one")
    return np.asarray(numbers)
