"""A problem as a peer sees it: frames for trees, numbers, cells for methods that know groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from benchmarks._frontier_data import Split
from benchmarks.frontier import base_model

BINS = {"Age": 8, "racepctblack": 4}
"""Cells of equal size that a continuous attribute is cut into; 2 where nothing is said."""
LEAST_CELL = 30


@dataclass(frozen=True)
class Task:
    """One split, with the sensitive attributes visible to the model or hidden from it."""

    split: Split
    hidden: bool = False
    quick: bool = False

    @property
    def y(self) -> Any:
        return self.split.y

    @property
    def decides(self) -> bool:
        return self.split.decides

    @property
    def settings(self) -> str:
        """The problem whose settings all have: other tables get those of ACS income and Adult."""
        return {"I": "E", "rate": "E", "number": "A"}.get(self.split.name, self.split.name)

    @property
    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Training and test inputs as a model may see them."""
        away = self.split.sensitive if self.hidden else []
        return self.split.X.drop(columns=away), self.split.X_test.drop(columns=away)

    @cached_property
    def arrays(self) -> tuple[Any, Any]:
        """The same as numbers: standardised on the training rows, one-hot."""
        return encoded(*self.frames)

    @cached_property
    def codes(self) -> tuple[Any, Any]:
        """The inputs with a code for each category, which trees split faster than one-hot ones."""
        train, test = self.frames
        columns = [
            [part[name] for part in (train, test)] if number else _codes(train[name], test[name])
            for name, number in zip(train, ~self.categories, strict=True)
        ]
        first, second = (np.column_stack([np.asarray(pair[part], dtype=float) for pair in columns]) for part in (0, 1))
        return first, second

    @property
    def categories(self) -> Any:
        """Which columns of the inputs are categories."""
        return np.array([kind.kind not in "biuf" for kind in self.frames[0].dtypes])

    @cached_property
    def sensitive(self) -> tuple[Any, Any]:
        """The sensitive attributes as numbers."""
        split = self.split
        return encoded(split.X[split.sensitive], split.X_test[split.sensitive])

    @cached_property
    def cells(self) -> tuple[Any, Any]:
        """One group a row: categories crossed with bins of the numbers, small cells in one."""
        split, parts = self.split, []
        edges = {
            name: np.quantile(split.X[name], np.linspace(0, 1, BINS.get(name, 2) + 1)[1:-1])
            for name in split.sensitive
            if split.X[name].dtype.kind in "biuf"
        }
        for X in (split.X, split.X_test):
            columns = [
                pd.Series(np.digitize(X[name], edges[name]).astype(str))
                if name in edges
                else X[name].astype(str).reset_index(drop=True)
                for name in split.sensitive
            ]
            parts.append(pd.concat(columns, axis=1).agg("_".join, axis=1))
        count = parts[0].value_counts()
        known = count.index[count >= LEAST_CELL]
        train, test = (part.where(part.isin(known), "other").to_numpy() for part in parts)
        if "other" not in train:  # new in the test rows: they join the largest cell
            test[test == "other"] = count.index[0]
        return train, test

    @property
    def two_groups(self) -> tuple[Any, Any]:
        """The two levels that a gap is measured for, or the halves of the first attribute."""
        return replace(self.split, X_test=self.split.X).group, self.split.group

    def trees(self) -> Any:
        """The model that ours has inside: the same for every peer that takes one.

        For crime it is the mean of boosted trees, extra trees, ridge and kernel ridge.
        """
        return base_model(self.settings, self.quick)

    def default_trees(self, categories: Any = "from_dtype") -> Any:
        """Smaller trees, as scikit-learn makes them by default: for who fits them a hundred times.

        `categories` is a mask of columns where the inputs are codes.
        """
        kind = HistGradientBoostingClassifier if self.decides else HistGradientBoostingRegressor
        return kind(
            max_iter=3 if self.quick else 100, early_stopping=False, random_state=0, categorical_features=categories
        )


def _codes(*parts: pd.Series) -> list[Any]:
    """Codes of the first part's categories; NaN for what it does not know."""
    known = parts[0].astype("category").cat.categories
    found = [known.get_indexer(np.asarray(part)) for part in parts]
    return [np.where(codes < 0, np.nan, codes) for codes in found]


def encoded(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any]:
    """Standardise the numbers on the training rows; categories as one-hot columns."""
    made = [pd.get_dummies(frame, dtype=float) for frame in (train, test)]
    numbers = [name for name in train.columns if train[name].dtype.kind in "biuf"]
    mean, deviation = made[0][numbers].mean(), made[0][numbers].std().replace(0.0, 1.0)
    for frame in made:
        frame[numbers] = (frame[numbers] - mean) / deviation
    varies = made[0].columns[made[0].std() > 0]
    first, second = (frame[varies].to_numpy() for frame in made)
    return first, second


Points = Iterator[tuple[Any, ...]]
"""(setting, scores) or (setting, scores or None, chance of a positive decision)."""


@dataclass(frozen=True)
class Method:
    """A peer: its generator of points, and where it can run.

    `hidden`: it can predict without s. `most`: more training rows than these it cannot take; it
    gets the first ones. `kinds`: "rate" for targets in {0, 1}, "number" for others. `goal`: parity,
    or the odds of decisions. `refits`: every point costs a fit. `needs`: a module, or a "command".
    """

    name: str
    run: Callable[[Task], Points]
    hidden: bool = True
    most: int | None = None
    kinds: tuple[str, ...] = ("number", "rate")
    needs: str = "sklearn"
    threshold: float = 0.5
    goal: str = "parity"
    refits: bool = False
    visible: bool = True

    def can(self, decides: bool, hidden: bool) -> bool:
        kind = "rate" if decides else "number"
        return kind in self.kinds and (self.hidden if hidden else self.visible)

    def installed(self) -> bool:
        kind, _, command = self.needs.partition("command ")
        return bool(which(command) if command else find_spec(kind))
