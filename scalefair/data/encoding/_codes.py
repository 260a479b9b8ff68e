"""How one column is written as numbers, and what every encoder refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from scalefair._typing import Rows
from scalefair.data.encoding._statistics import TableStatistics
from scalefair.data.frames import Column, Kind

MissingRule = Literal["column", "default", "error"]
"""A missing value is marked in a column of its own, becomes the mean or an unknown level, or is
refused."""


@dataclass(frozen=True, slots=True)
class NumberCode:
    """(x − center) / scale; a missing x becomes `fill`, and `missing="column"` marks it too."""

    name: str
    kind: Kind
    center: float
    scale: float
    fill: float
    missing: MissingRule

    def outputs(self, name: str) -> list[str]:
        """Return the names of the columns written."""
        return [name, f"{name}_missing"] if self.missing == "column" else [name]

    def write(self, column: Column, out: Rows) -> None:
        """Write a column of n rows into `out` of shape (n, 1 or 2)."""
        x = column.finite()
        absent = np.isnan(x)
        x = (x - self.center) / self.scale
        if self.missing == "error":
            refuse_missing(self.name, int(absent.sum()))
        x[absent] = self.fill
        out[:, 0] = x
        if self.missing == "column":
            out[:, 1] = absent


@dataclass(frozen=True, slots=True)
class LevelCode:
    """One-hot of `levels`, then the pooled level if any, then "missing" if it has a column."""

    name: str
    levels: tuple[str, ...]
    pooled: tuple[str, ...]
    missing: MissingRule
    unknown: Literal["infrequent", "error"]
    drop_binary: bool
    kind: Kind = "categorical"

    def outputs(self, name: str) -> list[str]:
        """Return the names of the columns written; a binary column keeps its second level."""
        slots = [f"{name}_{slot}" for slot in self._slots()]
        return slots[1:] if self._is_binary() else slots

    def write(self, column: Column, out: Rows) -> None:
        """Write a column of n rows into `out`, zeros of shape (n, number of outputs)."""
        codes, found = column.codes()
        n_missing = int((codes < 0).sum())
        if self.missing == "error":
            refuse_missing(self.name, n_missing)
        slot = self._lookup(found, n_missing > 0)[codes]
        if self._is_binary():
            out[:, 0] = slot == 1
        else:
            rows = np.flatnonzero(slot >= 0)
            out[rows, slot[rows]] = 1.0

    def _slots(self) -> list[str]:
        pooled, missing = bool(self.pooled), self.missing == "column"
        return [*self.levels, *["infrequent"] * pooled, *["missing"] * missing]

    def _is_binary(self) -> bool:
        return self.drop_binary and len(self._slots()) == 2

    def _lookup(self, found: list[str], any_missing: bool) -> NDArray[np.int64]:
        """Return the slot of each level found; the last entry, where code -1 points, is missing."""
        known = {level: i for i, level in enumerate(self.levels)}
        known |= dict.fromkeys(self.pooled, len(self.levels))
        other = len(self.levels) if self.pooled else -1
        missing = len(self._slots()) - 1 if self.missing == "column" else other
        strange = [level for level in found if level not in known]
        strange += ["missing value"] * (any_missing and self.missing == "default")
        if strange and self.unknown == "error":
            raise ValueError(unknown_level(self.name, strange[0], self.levels))
        return np.array([*(known.get(level, other) for level in found), missing])


def refuse_missing(name: str, count: int) -> None:
    """Raise the ValueError of missing="error" where values are missing."""
    if count:
        raise ValueError(
            f"column {name!r} has {count} missing value(s) (NaN or null) and missing='error': "
            "fill them in, or use missing='indicator'"
        )


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """An encoder, which remembers the columns that it was fitted with."""

    def _set_columns(self, statistics: TableStatistics) -> None:
        """Set `n_features_in_` and `feature_names_in_`; refuse a table without columns or rows."""
        names = statistics.names
        if not names:
            raise ValueError(
                f"0 feature(s) (shape=({statistics.n_rows}, 0)) while a minimum of 1 is required."
            )
        if not statistics.weight:
            raise ValueError(
                f"none of {statistics.n_rows} rows has a positive weight: pass rows, or a "
                "sample_weight that is not zero everywhere"
            )
        self.n_features_in_ = len(names)
        self.__dict__.pop("feature_names_in_", None)
        if statistics.named:
            self.feature_names_in_ = np.array(names, dtype=object)


def unknown_level(name: str, level: str, levels: Iterable[str]) -> str:
    """Return the error message for a level that fit did not see."""
    listed = list(levels)
    shown = ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
    return (
        f"column {name!r} has the value {level!r}, which was not seen in fit; expected one of "
        f"{shown}: correct it, or fit on rows that have it"
    )
