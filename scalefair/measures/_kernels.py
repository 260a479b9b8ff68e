"""Kernels of variables of any kind: exact blocks of their Gram matrices, and their feature maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, FeatureMap
from scalefair.kernels import Categorical, Kernel
from scalefair.kernels.named import NAMES, plain_name
from scalefair.maps._base import check_choice, fitted_kernel
from scalefair.maps.landmarks import distinct_rows
from scalefair.maps.mixed import coded_columns, mixed_map, with_rare_groups
from scalefair.measures._pair import Variable
from scalefair.measures._pivots import pivot_map


@dataclass(frozen=True, eq=False)
class Gram:
    """A kernel of mixed columns: the product (or sum) of kernels of some columns each.

    Parameters
    ----------
    parts : tuple of (Kernel, columns)
    product : bool
        Else the sum.
    """

    parts: tuple[tuple[Kernel, NDArray[np.intp]], ...]
    product: bool = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Return the block k(x_i, z_j), of shape (n, p)."""
        return self._joined([kernel(_at(X, where), _at(Z, where)) for kernel, where in self.parts])

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), of shape (n,)."""
        return self._joined([kernel.diag(_at(X, where)) for kernel, where in self.parts])

    def _joined(self, values: list[Any]) -> Array:
        return np.asarray(reduce(np.multiply if self.product else np.add, values))


def _at(X: Array, where: NDArray[np.intp]) -> Array:
    return X if len(where) == X.shape[1] else np.ascontiguousarray(X[:, where])


def check_kernel(name: str, kernel: Any) -> Any:
    """Return "auto" for None, names for kernels without parameters, others as they are."""
    if kernel is None:
        return "auto"
    if isinstance(kernel, str):
        check_choice(name, kernel, ("auto", *NAMES))
        return kernel
    if isinstance(kernel, Kernel) or hasattr(kernel, "raw"):
        return plain_name(kernel)
    raise TypeError(
        f"{name}={kernel!r} is a {type(kernel).__name__}; give None, one of {', '.join(NAMES)}, or "
        "a kernel of scalefair.kernels"
    )


def gram_of(name: str, kernel: Any, variable: Variable, rows: Array, weight: Array | None) -> Gram:
    """Return the exact kernel, its length scale found from the rows where none is given.

    Parameters
    ----------
    name : str
        Of the argument `kernel`, for errors.
    kernel : None, str or Kernel
        None: categories are crossed (equality), numbers standardised with a Gaussian kernel whose
        length scale is their median distance, and where both occur the product of the two.
    variable : Variable
    rows, weight : arrays of shape (n, p) and (n,)
        Weight None: one each.
    """
    kernel = check_kernel(name, kernel)
    codes, numbers = np.flatnonzero(variable.categorical), np.flatnonzero(~variable.categorical)
    everything = np.arange(rows.shape[1])
    if hasattr(kernel, "raw"):
        raise TypeError(f"{name}={kernel!r} is a feature map; give method='features' or a kernel")
    if isinstance(kernel, str) and kernel == "categorical":
        return Gram(((Categorical(), everything),))
    mixes = isinstance(kernel, str) and kernel in ("auto", "linear")
    if len(codes) and not mixes:
        raise ValueError(
            f"{name}={kernel!r} needs numbers, but {variable.name} has categories in columns "
            f"{codes}; use {name}=None for mixed columns, or 'categorical'"
        )
    smooth, scale = ("rbf", "standardized") if kernel == "auto" else (kernel, "median")
    parts: list[tuple[Kernel, NDArray[np.intp]]] = [(Categorical(), codes)] if len(codes) else []
    if len(numbers):
        w = _ones(rows) if weight is None else weight
        parts.append((fitted_kernel(smooth, scale, rows[:, numbers], w, 0), numbers))
    return Gram(tuple(parts), product=not (isinstance(kernel, str) and kernel == "linear"))


def sampled_map(
    name: str, kernel: Any, variable: Variable, values: Array, weight: Array | None, *, size: int
) -> FeatureMap:
    """Return the feature map of a kernel, learnt on a sample of the variable's rows.

    It is exact for categories and for "linear"; else landmarks are chosen until what the features
    miss is negligible, or there are `size` of them. Other arguments as in `gram_of`.
    """
    kernel = check_kernel(name, kernel)
    plain = isinstance(kernel, str) and kernel in ("linear", "categorical")
    if plain or hasattr(kernel, "raw") or (kernel == "auto" and variable.categorical.all()):
        return model_map(name, kernel, variable, values, weight, size=size)
    values, weight = _with_all_groups(kernel, variable, values, weight)
    gram = gram_of(name, kernel, variable, values, weight)
    distinct, _ = distinct_rows(values, _ones(values) if weight is None else weight)
    return pivot_map(gram, distinct, size)


def model_map(
    name: str, kernel: Any, variable: Variable, values: Array, weight: Array | None, *,
    size: int, seed: int = 0, length_scale: Any = "median",
) -> FeatureMap:  # fmt: skip
    """Return the map that an estimator would make of the same sample: Nyström, `size` landmarks."""
    kernel = check_kernel(name, kernel)
    return mixed_map(
        kernel, length_scale, size, rows=values, weight=weight, categorical=variable.categorical,
        groups=variable.groups, seed=seed, name=name,
    )  # fmt: skip


def _with_all_groups(
    kernel: Any, variable: Variable, values: Array, weight: Array | None
) -> tuple[Array, Array | None]:
    if variable.groups is None:
        return values, weight
    coded = coded_columns(kernel, variable.categorical)
    return with_rare_groups(values, weight, variable.groups, coded)


def _ones(rows: Array) -> Array:
    return np.ones(len(rows))
