"""Adult: kernel ridge against the Gaussian process on all rows, which needs low rank.

32,561 rows train and 16,281 test: those of the data for seed 0, as many drawn anew for the others.
123 bits (a9a) and the target are standardised; groups of sex and race are sensitive. 500 Nyström
features; the searches are those of the crime data. The exact method would hold and decompose Gram
matrices of 8.5 GB, one for each length scale and fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.paper import models, real
from benchmarks.paper.data import ADULT_TRAINING_ROWS, adult, adult_split
from benchmarks.paper.experiment import Experiment, verdicts


@dataclass(frozen=True)
class Setting:
    """Training rows, weights and rank."""

    seeds: int = 5
    rows: int = ADULT_TRAINING_ROWS
    etas: tuple[float, ...] = tuple(real.ETAS)
    rank: int = 500


def trial(seed: int, setting: Setting) -> pd.DataFrame:
    """Both models on one split."""
    train, test = adult_split(adult(), seed, setting.rows)
    etas = np.array(setting.etas)
    fitted: dict[str, real.Fitted] = {
        "KRR": partial(models.low_rank_ridge, train, test, etas, seed, n_components=setting.rank),
        "GP": partial(models.low_rank_process, train, test, etas, seed, n_components=setting.rank),
    }
    return real.lines_of(seed, fitted, test, etas)


def claims(values: pd.DataFrame) -> pd.DataFrame:
    """The paper's sentence about the two curves."""
    found: dict[str, Any] = {}
    for variant in ("", models.ONCE, models.EVEN):
        found |= real.process_against_ridge(values, "GP", f"KRR{variant}")
    return verdicts(found | real.fairness_costs(values, ("KRR", "GP")))


EXPERIMENT = Experiment(
    name="adult",
    title="Adult, all rows: fair KRR against the fair GP",
    full=Setting(),
    quick=Setting(seeds=3, rows=2000, etas=(0.0, 0.5, 10.0), rank=100),
    trial=trial,
    table=real.table,
    claims=claims,
    panels=real.panels,
)
