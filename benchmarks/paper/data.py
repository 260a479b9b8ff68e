"""The two real tables as the paper has them: inputs and target standardised."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scalefair._typing import Array
from scalefair.datasets import load_adult, load_communities_crime
from scalefair.kernels import RBF, Categorical, Kernel

RACE = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
TEST_COMMUNITIES = 399
ADULT_TRAINING_ROWS = 32_561
SENSITIVE_LENGTH_SCALE = 0.5


class Sample(NamedTuple):
    """Standardised inputs and target, and the sensitive attributes."""

    X: pd.DataFrame
    s: Any
    y: Array

    def take(self, index: Any) -> Sample:
        """Return some of the rows."""
        return Sample(self.X.iloc[index], self.s[index], self.y[index])


def standardised(values: Any) -> Any:
    """Mean 0 and standard deviation 1 in every column; a constant column is 0."""
    spread = values.std(ddof=0) if isinstance(values, pd.DataFrame) else values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


@cache
def crime() -> Sample:
    """1,993 communities, 100 inputs; the shares of four races are sensitive, standardised, too."""
    found = load_communities_crime(missing="paper")
    X = standardised(found.data)
    return Sample(X, X[RACE].to_numpy(), standardised(found.target))


def crime_split(communities: Sample, seed: int, rows: int) -> tuple[Sample, Sample]:
    """Return `rows` communities to train with and 399 others."""
    order = np.random.default_rng(seed).permutation(len(communities.y))
    held_out = order[:TEST_COMMUNITIES]
    return communities.take(order[TEST_COMMUNITIES:][:rows]), communities.take(held_out)


@cache
def adult() -> Sample:
    """All 48,842 rows in their order, 123 bits; sensitive: the group of sex and race as a number.

    The bits of s, standardised, are so far apart that a Gaussian kernel of length scale 0.5 is
    below 1e-7 between two groups: it is 1[s = s'], which needs no approximation.
    """
    found = load_adult(subset="all", encoding="a9a")
    codes = found.sensitive_features.apply(lambda column: column.cat.codes)
    group = codes["sex"].to_numpy() * 5 + codes["race"].to_numpy()
    return Sample(standardised(found.data), group, standardised(found.target.astype(float)))


def adult_split(people: Sample, seed: int, rows: int) -> tuple[Sample, Sample]:
    """Seed 0: the given training and test rows. Others: as many of each, drawn anew."""
    order = np.arange(len(people.y))
    if seed:
        order = np.random.default_rng(seed).permutation(order)
    train = order[:ADULT_TRAINING_ROWS]
    if rows < len(train):
        train = np.random.default_rng(seed).permutation(train)[:rows]
    return people.take(train), people.take(order[ADULT_TRAINING_ROWS:])


def sensitive_kernel(s: Any) -> Kernel:
    """The paper's kernel on sensitive attributes: groups, in one dimension, are exact."""
    return Categorical() if s.ndim == 1 else RBF(SENSITIVE_LENGTH_SCALE)


def gram(X: Array, Z: Array | None = None, length_scale: float = SENSITIVE_LENGTH_SCALE) -> Array:
    """The Gaussian kernel of the rows of X and Z; of X and X with the length scale of s."""
    return np.asarray(RBF(float(length_scale))(X, Z), dtype=np.float64)
