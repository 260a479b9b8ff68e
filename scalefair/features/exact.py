"""Maps that are exact: the linear kernel and the kernel 1[s = s'] of categories."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._typing import Array, Rows
from scalefair.errors import check_choice
from scalefair.features.base import BaseMap, Filler
from scalefair.kernels import Categorical, Linear

Codes = NDArray[np.int64]
_LARGEST_CODE = 2**62


class Identity(OneToOneFeatureMixin, BaseMap):
    """The map φ(x) = x of the linear kernel xᵀz.

    Attributes
    ----------
    kernel_ : Linear
    n_raw_ : int
    linear_ : None

    Examples
    --------
    >>> from scalefair.features import Identity
    >>> Identity().fit_transform([[1.0, 2.0]])
    array([[1., 2.]])
    """

    def _learn(self, X: Rows, weight: Array) -> None:  # noqa: ARG002 - nothing to weigh
        self.kernel_ = Linear()
        self.n_raw_ = int(X.shape[1])
        self.linear_ = None

    def filler(self, dtype: DTypeLike) -> Filler:  # noqa: ARG002 - assignment converts
        """Return the function that copies rows; see `BaseMap.filler`."""
        return lambda X, out: np.copyto(out, X, casting="unsafe")


class ExpectedGroups(Identity):
    """ψ = E[one-hot of the group | row], of rows of probabilities; see `group_probabilities`."""

    def __init__(self, groups: tuple[str, ...] = (), n_known: int = 0) -> None:
        self.groups, self.n_known = groups, n_known


class OneHot(BaseMap):
    """One indicator per intersection of categories: φ(s)ᵀφ(t) = 1[s = t] over all columns at once.

    The columns are crossed into one attribute. Its levels are the combinations that occur in `fit`
    with positive weight, sorted; each gets a feature that is 1 on its rows and 0 elsewhere.

    Parameters
    ----------
    unknown : {"error", "group", "levels"}, default="error"
        How a combination that did not occur in `fit` is treated: a ValueError names it; it becomes a member of
        one further group of all unseen combinations, the only group without an indicator: its
        rows are all zero; or what is known of its levels, with a warning: φ(s)ᵀβ is then the sum
        of one effect per level that is nearest to β, without their interaction.

    Attributes
    ----------
    categories_ : list of d arrays
        Sorted distinct values of each column.
    combinations_ : array of shape (q, d)
        The combinations that occur, lexicographically sorted, one per feature.
    codes_ : list of d + 1 int arrays
        The last: the combinations as integers, ascending. The others: what the integer of the
        columns so far is looked up in first, where it might outgrow 64 bits; empty elsewhere.
    group_weights_ : array of shape (q,)
        Their total weights.
    kernel_ : Categorical
    n_raw_ : int
        Number q of combinations.
    linear_ : None

    Notes
    -----
    Numbers, strings and other sortable values are accepted, each column of one kind. A row becomes
    one integer by mixed-radix arithmetic on the positions of its values in `categories_`.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.features import OneHot
    >>> S = np.array([["F", "old"], ["M", "old"], ["F", "young"], ["M", "old"]])
    >>> onehot = OneHot().fit(S)
    >>> onehot.get_feature_names_out()
    array(['x0=F & x1=old', 'x0=F & x1=young', 'x0=M & x1=old'], dtype=object)
    >>> onehot.transform(S)[1]
    array([0., 0., 1.])
    """

    name_of: Callable[[Any], str] | None = None
    """What names a row, for messages, where its values are codes."""

    def __init__(self, unknown: str = "error") -> None:
        self.unknown = unknown

    def _learn(self, X: Any, weight: Array) -> None:
        check_choice("unknown", self.unknown, ("error", "group", "levels"))
        rows = X[weight > 0]
        self.categories_, self.codes_ = [], list[Codes]()
        codes, largest = np.zeros(len(rows), dtype=np.int64), 1
        for column in range(rows.shape[1]):
            try:
                categories, digit = np.unique(rows[:, column], return_inverse=True)
            except TypeError as error:
                kinds = ", ".join(sorted({type(value).__name__ for value in rows[:, column]}))
                raise TypeError(
                    f"column {column} of X mixes values that cannot be sorted ({kinds}); a column of this "
                    "argument must be all strings or all numbers, missing values a category of their own"
                ) from error
            self.categories_.append(categories)
            seen = np.empty(0, dtype=np.int64)
            if largest > _LARGEST_CODE // len(categories):
                seen, codes = np.unique(codes, return_inverse=True)
                largest = len(seen)
            self.codes_.append(seen)
            codes = codes * len(categories) + digit
            largest *= len(categories)
        seen, first, number = np.unique(codes, return_index=True, return_inverse=True)
        self.codes_.append(seen)
        self.group_weights_ = np.bincount(number, weights=weight[weight > 0])
        self.combinations_ = rows[first]
        self.kernel_ = Categorical()
        self.n_raw_ = len(seen)
        self.linear_ = None

    def filler(self, dtype: DTypeLike) -> Filler:  # noqa: ARG002 - zeros and ones are of any
        """Return the function that writes the indicators; see `BaseMap.filler`."""
        return self._fill

    def _fill(self, X: Any, out: Rows) -> None:
        codes, known = np.zeros(X.shape[0], dtype=np.int64), np.ones(X.shape[0], dtype=bool)
        levels = known.copy()
        for column, categories in enumerate(self.categories_):
            if len(self.codes_[column]):
                codes, is_known = _find(self.codes_[column], codes)
                known &= is_known
            digit, is_known = _find(categories, X[:, column])
            codes = codes * len(categories) + digit
            levels &= is_known
        known &= levels
        feature, is_known = _find(self.codes_[-1], codes)
        known &= is_known
        required = {"error": known, "levels": levels, "group": levels | True}[self.unknown]
        if not required.all():
            row = int(np.argmin(required))
            raise ValueError(
                f"the combination {self._name(X[row])!r} in row {row} of X was not seen in fit; "
                "fit with rows that have it, or give them a combination that was seen"
            )
        out[...] = 0
        out[np.flatnonzero(known), feature[known]] = 1
        if self.unknown == "levels" and not known.all():
            unseen = np.flatnonzero(~known)
            warnings.warn(
                f"the combination {self._name(X[unseen[0]])!r} was not seen in fit; it is answered "
                "by what is known of its levels, without their interaction",
                stacklevel=2,
            )
            out[unseen] = self._levels(X[unseen]) @ self.from_levels()

    def _name(self, row: Any) -> str:
        if self.name_of is not None:
            return self.name_of(row)
        return _combination_name(_check_feature_names_in(self), row)

    def _levels(self, X: Any) -> Array:
        """Z: one indicator for each level of each column, of shape (k, Σ levels)."""
        pairs = enumerate(self.categories_)
        return np.hstack([np.equal(X[:, [j]], levels[None]) for j, levels in pairs]).astype(float)

    def from_levels(self) -> Array:
        """(ZᵀWZ)⁺ZᵀW, of shape (Σ levels, q): the effects of levels that are nearest to any β."""
        Z = self._levels(self.combinations_)
        W = vars(self).get("group_weights_", np.ones(len(Z)))[:, None]  # older files have none
        return np.asarray(np.linalg.pinv(Z.T @ (W * Z), hermitian=True) @ (W * Z).T)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names such as "sex=F & race=White", one per combination.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns; by default those seen in `fit`, else x0, x1, …
        """
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        names = [_combination_name(columns, values) for values in self.combinations_]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        return tags


def _find(table: Any, values: Any) -> tuple[Codes, NDArray[np.bool_]]:
    """Return the positions of `values` in the sorted `table`, and whether they are there at all."""
    if values.dtype == np.float32:
        # 0.1 in float32 is not 0.1 in float64, yet it is the same category.
        table = table.astype(np.float32)
    position = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return position, np.asarray(table[position] == values, dtype=bool)


def _combination_name(columns: Any, values: Any) -> str:
    parts = zip(columns, values, strict=True)
    return " & ".join(f"{column}={str(value).removesuffix('.0')}" for column, value in parts)
