"""Names that every package shares: array aliases, the chunk of rows, and the protocols."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    DataFrame = pd.DataFrame
    Series = pd.Series
else:  # `import scalefair` must not wait for pandas
    DataFrame = Series = Any

Array = NDArray[np.float64]
Rows = NDArray[np.floating[Any]]
"""Feature rows, float32 or float64."""

LARGEST = 1e75  # Numbers beyond this are refused: products of four of them must not overflow
LARGEST_SINGLE = 1e15  # The same where feature rows are float32: sums of their squares must not overflow


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a data set, as arrays or (x, s, c) frames with one row each.

    `row` is the global number of the first: samples and folds depend on it, never on the chunking.
    """

    x: Any  # inputs
    s: Any = None  # sensitive attributes
    y: Any = None  # targets, of shape (k, t)
    weight: Any = None  # None means one each
    row: int = 0
    where: str = ""  # the file or partition the rows come from, for error messages
    c: Any = None  # control features: at each level of them parity is requested
    h: Any = None  # predictions of another model, which join the features

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    @property
    def weights(self) -> Array:
        """Weights of the rows: 1 each where none are given."""
        return np.ones(self.n_rows) if self.weight is None else np.asarray(self.weight, np.float64)

    @property
    def parts(self) -> dict[str, Any]:
        """What the chunk has of its rows, by name; None for what it lacks."""
        x, s, y, weight = self.x, self.s, self.y, self.weight
        return {"x": x, "s": s, "y": y, "weight": weight, "c": self.c, "h": self.h}

    def take(self, at: NDArray[np.int64]) -> Chunk:
        """Return some rows of a chunk of arrays, in that order; `row` stays as it is."""
        parts: dict[str, Any] = {
            name: np.ascontiguousarray(np.asarray(part)[at]) for name, part in self.parts.items() if part is not None
        }
        return replace(self, **parts)


class Accumulator(Protocol):
    """A mutable sum over chunks, one per thread, frozen into a statistic at the end."""

    def add(self, chunk: Chunk) -> None:
        """Add the rows of one chunk."""
        ...

    def result(self) -> Any:
        """Return the statistic of all rows seen."""
        ...


class FeatureMap(Protocol):
    """An explicit map φ(x) = raw(x) @ linear_ from inputs to features.

    `raw` is the part that must be evaluated on every row. `linear_` (None: identity) is a matrix
    that can be applied to the rows or, much cheaper, once to their moments.
    """

    n_raw_: int
    linear_: Array | None

    def raw(self, X: Any, out: Rows | None = None) -> Rows:
        """Return the rows before the linear part, written into `out` if given."""
        ...

    def transform(self, X: Any) -> Any:
        """Return the features φ(x), one row each."""
        ...


@runtime_checkable
class Shaped(Protocol):
    """Rows with a known shape: arrays, frames, dask collections, not lists."""

    shape: Any


@runtime_checkable
class WithColumns(Protocol):
    """A table whose columns have names: a frame, a scan or a dask frame."""

    columns: Any

    def __getitem__(self, key: Any, /) -> Any: ...


@runtime_checkable
class WithPath(Protocol):
    """A fitted model that was cross-validated: it has a path with held-out scores."""

    path_: Any
    alpha_: Any
    eta_: Any


@runtime_checkable
class Fittable(Protocol):
    """A model that can be copied and fitted, as scikit-learn's."""

    def fit(self, X: Any, y: Any, /) -> Any: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
