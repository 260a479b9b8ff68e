"""The map ψ of mixed attributes, the map of pairs (s, c), and the units of their columns."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from scalefair._hash import distinct
from scalefair._linalg import inverse_root
from scalefair._typing import Array, FeatureMap
from scalefair.features.base import BaseMap, LengthScaleMap, is_fitted_map, n_features, whitened
from scalefair.features.exact import ExpectedGroups, Identity, OneHot
from scalefair.features.landmarks import choose_landmarks, distinct_rows, fitted_kernel, standard_deviation
from scalefair.features.nystroem import Nystroem
from scalefair.features.product import ConcatMap, ProductMap
from scalefair.kernels import Kernel
from scalefair.kernels.stationary import Stationary, plain_name

SAMPLE_ROWS = 2000  # least number of rows that length scales and landmarks are chosen from
EXACT_CUTOFF = 1e-13  # rank cut-off where every row is a landmark
CROSSED = 4  # columns of a product of maps at most, in units of the landmarks asked for
LEAST_DIRECTIONS = 5  # of the numbers within each group, however many groups there are
KINDS = ("groups", "expected", "kernel", "cell", "columns", "map")
Unit = tuple[str, NDArray[np.int64]]  # A kind, and the columns of that kind that share a unit
Units = tuple[Unit, ...]


def mixed_map(
    kernel: Any, length_scale: Any, n_components: int, *, rows: Array, weight: Array | None,
    categorical: NDArray[np.bool_], seed: int, groups: Array | None = None,
    scale_at: NDArray[np.int64] | None = None, exact: bool = False, name: str = "sensitive_kernel",
) -> FeatureMap:  # fmt: skip
    """Return the map of a kernel of attributes of any kind, fitted on a sample and on every group.

    "auto": categories are crossed into one (one-hot), numbers are standardised and get a Gaussian kernel (Nyström), and
    where both occur the map is the product of the two. A fitted map is returned as it is. `groups` has one row of each
    combination of categories; length scales are learnt from the rows `scale_at` (None: all).
    """
    kernel = plain_name(kernel)
    if not isinstance(kernel, str | Kernel) and is_fitted_map(kernel):
        return kernel  # type: ignore[no-any-return]
    at = np.arange(len(rows)) if scale_at is None else scale_at
    if groups is not None:
        # "categorical" reads numbers as codes, too.
        coded = categorical | (kernel == "categorical")
        rows, weight = with_rare_groups(rows, weight, groups, coded)
    if isinstance(kernel, str | Kernel):
        w = np.ones(len(rows)) if weight is None else weight
        most = None if exact else CROSSED * n_components
        unfitted = _Attributes(rows, w, categorical, at, most).unfitted(
            kernel,
            length_scale,
            name,
            n_components=len(rows) if exact else n_components,
            cutoff=EXACT_CUTOFF if exact else 1e-8,
            random_state=seed,
        )
        return unfitted.fit_rows(rows, weight)
    return clone(kernel).fit(rows, sample_weight=weight)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class _Attributes:
    """The rows that a map is fitted on, and which of them length scales are learnt from."""

    rows: Array
    weight: Array
    categorical: NDArray[np.bool_]
    scale_at: NDArray[np.int64]
    most: int | None  # columns of a product of maps; None: any number

    def unfitted(self, kernel: Any, length_scale: Any, name: str, **options: Any) -> BaseMap:
        """Return the map that a kernel needs; `options` are those of `Nystroem`."""
        coded, mixes = self.categorical, kernel in ("auto", "linear")
        if kernel == "categorical" or (mixes and coded.all()):
            return OneHot()
        if coded.any() and not mixes:
            raise ValueError(
                f"{name}={kernel!r} needs numbers, but columns {np.flatnonzero(coded)} "
                f"of the sensitive attributes are categories; use {name}='auto' for mixed "
                "attributes, or 'categorical'"
            )
        linear = kernel == "linear"
        smooth = Identity() if linear else self._nystroem(kernel, length_scale, options)
        if not coded.any():
            return smooth
        columns = [np.flatnonzero(coded), np.flatnonzero(~coded)]
        if linear:
            return ConcatMap([*zip((OneHot(), smooth), columns, strict=True)])
        if self.most is not None:
            smooth = self._narrow(smooth, self.most)
        # A product of whitened parts is narrower than a whitened product of raw ones.
        return ProductMap([*zip((OneHot(), smooth), columns, strict=True)], whiten="rows")

    def _nystroem(self, kernel: Any, length_scale: Any, options: dict[str, Any]) -> Nystroem:
        at, seed = self.scale_at, options["random_state"]
        rows, weight = self.rows[at][:, ~self.categorical], self.weight[at]
        if kernel == "auto":
            kernel, given = "rbf", length_scale
            if not isinstance(given, str):
                length_scale = np.asarray(given, float) * standard_deviation(rows, weight)
            elif given == "median":
                length_scale = "standardized"
        return Nystroem(fitted_kernel(kernel, length_scale, rows, weight, seed), **options)

    def _narrow(self, smooth: Nystroem, most: int) -> Nystroem:
        """Raise the cut-off until a product with the groups has at most `most` columns."""
        coded = self.categorical
        groups = OneHot().fit(self.rows[:, coded], sample_weight=self.weight).n_raw_
        fitted = clone(smooth).fit(self.rows[:, ~coded], sample_weight=self.weight)
        size, values = max(LEAST_DIRECTIONS, most // groups), fitted.eigenvalues_
        if fitted.rank_ <= size:
            return smooth
        # Between two eigenvalues, so that rounding does not change the rank.
        cutoff = float(np.sqrt(values[size - 1] * values[size]) / values[0])
        return clone(smooth).set_params(cutoff=cutoff)  # type: ignore[no-any-return]


def with_rare_groups(
    rows: Array, weight: Array | None, groups: Array, coded: NDArray[np.bool_]
) -> tuple[Array, Array | None]:
    """Join one row of each group that the sample lacks: none is left without a feature."""
    all_rows = np.concatenate([rows, groups])
    first = distinct(all_rows[:, coded]).first
    chosen = np.concatenate([np.arange(len(rows)), np.sort(first[first >= len(rows)])])
    # They weigh as an ordinary row does: a weight of 1 would depend on the unit of the weights.
    joined = None
    if weight is not None:
        joined = np.concatenate([weight, np.full(len(chosen) - len(rows), np.mean(weight))])
    return all_rows[chosen], joined


@dataclass(frozen=True, eq=False)
class Crossed:
    """ξ(s, c) = ψ(s) ⊗ υ(c), or the Nyström map k_Z K_ZZ^(−1/2) of its kernel if it is too wide."""

    psi: FeatureMap
    upsilon: FeatureMap
    landmarks: tuple[Array, Array] | None = None  # ψ and υ of Z; None: the full product
    linear: Array | None = None  # K_ZZ^(−1/2) on its range

    @classmethod
    def fit(
        cls, psi: FeatureMap, upsilon: FeatureMap, s: Array, c: Array, weight: Array | None, *, most: int, seed: int
    ) -> Self:
        """Return the map with at most `most` columns; landmarks are drawn from the rows given."""
        full = cls(psi, upsilon)
        if full.width <= most:
            return full
        rows, weight = distinct_rows(np.hstack([s, c]), np.ones(len(s)) if weight is None else weight)
        rows = rows[choose_landmarks("uniform", None, rows, weight, size=most, seed=seed)]
        at = whitened(psi, rows[:, : s.shape[1]]), whitened(upsilon, rows[:, s.shape[1] :])
        K = (at[0] @ at[0].T) * (at[1] @ at[1].T)
        return cls(psi, upsilon, at, inverse_root(K, 0.0, cutoff=1e-8))

    @property
    def width(self) -> int:
        """Number of columns."""
        if self.linear is not None:
            return int(self.linear.shape[1])
        return n_features(self.psi) * n_features(self.upsilon)

    def rows(self, s: Array, c: Array) -> Array:
        """Return ξ of pairs, of shape (k, width)."""
        Psi, Upsilon = whitened(self.psi, s), whitened(self.upsilon, c)
        if self.landmarks is None or self.linear is None:
            width = Psi.shape[1] * Upsilon.shape[1]
            return (Psi[:, :, None] * Upsilon[:, None, :]).reshape(len(Psi), width)
        kernel = (Psi @ self.landmarks[0].T) * (Upsilon @ self.landmarks[1].T)
        return np.asarray(kernel @ self.linear)


def for_new_rows(psi: Any, encoder: Any, columns: Any = None) -> Any:
    """Return ψ that treats unseen groups by their levels: for new rows only, in training none would be penalised."""
    made = copy(psi)
    if isinstance(psi, OneHot):
        made.unknown = "levels"
        at = range(len(psi.categories_)) if columns is None else columns
        made.name_of = lambda row: str(encoder.group_names([row], at)[0])
    elif isinstance(psi, ProductMap | ConcatMap):
        made.parts_ = [(for_new_rows(part, encoder, at), at) for part, at in psi.parts_]
    return made


def units_of(feature_map: Any) -> Units:
    """Return what the columns of ψ(s) are, so that a ridge on functions of s has no units.

    The best function of s in the span of ψ is a ridge fit with εκ_j on the coefficient of column j.
    What κ_j must be for the fit not to depend on the units of s follows from what the column is:

    | kind      | columns                                      | κ_j                               |
    | --------- | -------------------------------------------- | --------------------------------- |
    | "groups"  | indicators of groups                         | needs no ridge                    |
    | "kernel"  | features of a kernel with k(s, s) = 1        | 1                                 |
    | "cell"    | such features within one group of categories | E|ψ_cell|²: the group's frequency |
    | "columns" | numbers as given                             | their own variance                |
    | "map"     | anything else                                | the variance of all of them       |
    """
    if isinstance(feature_map, ConcatMap):
        units, start = list[Unit](), 0
        for part, _ in feature_map.parts_:
            units += [(kind, columns + start) for kind, columns in units_of(part)]
            start += n_features(part)
        return tuple(units)
    if isinstance(feature_map, Crossed | ProductMap):
        return _product_units(feature_map)
    kind = "map"
    if isinstance(feature_map, OneHot | ExpectedGroups):
        kind = "groups" if isinstance(feature_map, OneHot) else "expected"
    elif isinstance(feature_map, Identity):
        kind = "columns"
    elif isinstance(feature_map, LengthScaleMap) and isinstance(feature_map.kernel_, Stationary):
        kind = "kernel"
    return ((kind, np.arange(n_features(feature_map))),)


def all_columns(kind: str, width: int) -> Units:
    """Return one unit of so many columns."""
    return ((kind, np.arange(width)),)


def _product_units(product: Crossed | ProductMap) -> Units:
    """Units of the row-wise Kronecker product: one cell for each combination of groups."""
    if isinstance(product, ProductMap):
        maps = [part for part, _ in product.parts_]
        if product.linear_ is not None:
            return all_columns("map", n_features(product))
    else:
        maps = [product.psi, product.upsilon]
        if product.linear is not None:  # a Nyström map of the product of two kernels
            kinds = {kind for part in maps for kind, _ in units_of(part)}
            return all_columns("kernel" if kinds <= {"groups", "kernel"} else "map", product.width)
    of_maps = [{kind for kind, _ in units_of(part)} for part in maps]
    if all(kinds == {"groups"} for kinds in of_maps):
        return all_columns("groups", int(np.prod([n_features(part) for part in maps])))
    cell = np.zeros(1, dtype=np.int64)
    for part, kinds in zip(maps, of_maps, strict=True):
        width = n_features(part)
        own = np.arange(width) if kinds == {"groups"} else np.zeros(width, dtype=np.int64)
        cell = (cell[:, None] * width + own).ravel()
    if len(np.unique(cell)) == 1:
        plain = all(kinds == {"kernel"} for kinds in of_maps)
        return all_columns("kernel" if plain else "map", len(cell))
    return tuple(("cell", np.flatnonzero(cell == number)) for number in np.unique(cell))


def check_units(units: Units, width: int) -> None:
    """Raise ValueError unless every one of `width` columns is in exactly one unit of known kind."""
    columns = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for _, columns in units)])
    known = all(kind in KINDS for kind, _ in units)
    if not known or not np.array_equal(np.sort(columns), np.arange(width)):
        raise ValueError(f"units do not describe the {width} columns of their block")
