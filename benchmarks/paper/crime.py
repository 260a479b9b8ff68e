"""Communities and Crime: kernel ridge against the Gaussian process, exact and of low rank.

1,594 communities train, 399 test, five random splits. Inputs and target are standardised, the four
shares of race are sensitive with a Gaussian kernel of length scale 0.5, the penalty is HSIC. Kernel
ridge chooses among the median heuristic, ten draws around it and 15 ridges by 5-fold
cross-validation, the process by its evidence, both anew for each of seven weights in [0, 10].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from benchmarks.paper import models, real
from benchmarks.paper.data import crime, crime_split
from benchmarks.paper.experiment import Experiment, verdicts

NEAR = 0.02


@dataclass(frozen=True)
class Setting:
    """Training rows, weights, and the ranks m of φ with those of ψ."""

    seeds: int = 5
    rows: int = 1594
    etas: tuple[float, ...] = tuple(real.ETAS)
    ranks: tuple[tuple[int, int], ...] = ((100, 100), (500, 250))


def trial(seed: int, setting: Setting) -> pd.DataFrame:
    """All models on one split."""
    train, test = crime_split(crime(), seed, setting.rows)
    etas = np.array(setting.etas)
    fitted: dict[str, real.Fitted] = {
        "KRR": partial(models.exact_ridge, train, test, etas, seed),
        "GP": partial(models.exact_process, train, test, etas),
    }
    for rank, sensitive_rank in setting.ranks:
        sizes = {"n_components": rank, "n_sensitive_components": sensitive_rank}
        fitted[f"KRR of rank {rank}"] = partial(models.low_rank_ridge, train, test, etas, seed, **sizes)
        fitted[f"GP of rank {rank}"] = partial(models.low_rank_process, train, test, etas, seed, **sizes)
    return real.lines_of(seed, fitted, test, etas)


def claims(values: pd.DataFrame) -> pd.DataFrame:
    """The paper's sentence about the two curves, and how near low rank comes."""
    found = real.process_against_ridge(values, "GP", "KRR")
    found |= real.process_against_ridge(values, "GP", f"KRR{models.ONCE}")
    names = [name for name in values["model"].unique() if " of rank " in name]
    for name in names:
        if name.endswith(models.EVEN):
            process = name.removesuffix(models.EVEN).replace("KRR", "GP")
            found |= real.process_against_ridge(values, process, name)
    found |= real.fairness_costs(values, ("KRR", "GP"))
    for name in names:
        if "," not in name:
            found |= real.near(values, name, name.split(" of ")[0], NEAR)
    return verdicts(found)


EXPERIMENT = Experiment(
    name="crime",
    title="Communities and Crime: fair KRR against the fair GP, exact and of low rank",
    full=Setting(),
    quick=Setting(seeds=3, rows=300, etas=(0.0, 0.5, 10.0), ranks=((100, 100),)),
    trial=trial,
    table=real.table,
    claims=claims,
    panels=real.panels,
)
