"""What an experiment is, and what is said of a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t

from benchmarks.paper.drawing import Panel

HOLDS, OPEN, FAILS = "holds", "undecided", "fails"
FEWEST = 3
"""Two seeds may agree by chance, and decide nothing."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    Parameters
    ----------
    name, title : str
        How it is called on the command line and in a heading.
    full, quick : setting
        Sizes and grids; `seeds` is how often it is repeated. The quick one takes less than a
        minute.
    trial : callable (seed, setting) -> table
        The values of one seed; the first column is "seed".
    table : callable (values) -> table
        Means and standard errors, beside what the paper prints.
    claims : callable (values) -> table
        See `verdicts`.
    panels : callable (table) -> list of Panel
        The figure, drawn from what `table` returns.
    """

    name: str
    title: str
    full: Any
    quick: Any
    trial: Callable[[int, Any], pd.DataFrame]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    claims: Callable[[pd.DataFrame], pd.DataFrame]
    panels: Callable[[pd.DataFrame], Sequence[Panel]]


def verdicts(gains: Mapping[str, Any], margin: float = 0.0) -> pd.DataFrame:
    """Judge claims, each given as the gains of all seeds that it says are positive.

    Parameters
    ----------
    gains : {claim: values of shape (seeds,)}
        NaN where a seed cannot say.
    margin : float
        A loss up to this is none: what the paper's digits do not tell apart.

    Returns
    -------
    table with the columns claim, gain, error, seeds and verdict
        Mean gain and its standard error. The claim holds where the 95 % interval of the gain is
        above 0, fails where it is below 0 and the margin, and is undecided between the two.
    """
    lines = []
    for claim, values in gains.items():
        finite = np.asarray(values, dtype=np.float64)
        finite = finite[np.isfinite(finite)]
        gain, error = mean_and_error(finite)
        # Few seeds make the error itself uncertain, which Student's t allows for.
        doubt = error * float(t.ppf(0.975, len(finite) - 1)) if len(finite) >= FEWEST else np.inf
        lines.append((claim, gain, error, len(finite), verdict(gain, doubt, margin)))
    return pd.DataFrame(lines, columns=["claim", "gain", "error", "seeds", "verdict"])


def verdict(gain: float, doubt: float, margin: float = 0.0) -> str:
    """Say whether gain ± doubt is above 0, below −margin, or neither."""
    if gain > doubt:
        return HOLDS
    return FAILS if gain < -doubt - margin else OPEN


def mean_and_error(values: Any) -> tuple[float, float]:
    """Mean and standard error; NaN for what too few values do not tell."""
    series = pd.Series(np.asarray(values, dtype=np.float64))
    return series.mean(), float(series.std() / np.sqrt(len(series)))


def means(values: pd.DataFrame, by: list[str], measures: Sequence[str]) -> pd.DataFrame:
    """Mean of each measure in a column of its name, and standard error in ``NAME_error``."""
    table = values.groupby(by, sort=False)[list(measures)].agg(["mean", "sem"])
    table.columns = with_errors(measures)
    return table.reset_index()


def with_errors(measures: Sequence[str]) -> pd.Index[str]:
    """Names of the columns of `means`."""
    return pd.Index([f"{name}{end}" for name in measures for end in ("", "_error")])
