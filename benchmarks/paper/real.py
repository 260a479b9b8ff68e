"""What crime and Adult share: the weights, the table, the claim that the GP's curve lies below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.paper.curves import by_seed, error_and_dependence, gaps
from benchmarks.paper.data import Sample
from benchmarks.paper.drawing import Panel, front_panel
from benchmarks.paper.experiment import means
from benchmarks.paper.models import EVEN, ONCE, Predictions
from scalefair._typing import Array

ETAS = np.concatenate([[0.0], np.geomspace(0.1, 10.0, 6)])
"""Seven weights in [0, 10]; the paper does not print which."""

MEASURES = ("rmse", "hsic")

Fitted = Callable[[], Predictions]


def lines_of(seed: int, models: Mapping[str, Fitted], test: Sample, etas: Array) -> pd.DataFrame:
    """One line per model and weight: RMSE and HSIC on the test rows."""
    return pd.DataFrame(
        {"seed": seed, "model": f"{model}{variant}", "eta": eta, **error_and_dependence(f, test.y, test.s)}
        for model, predictions in models.items()
        for variant, columns in predictions().items()
        for eta, f in zip(etas, columns.T, strict=True)
    )


def table(values: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the seeds; the paper shows a figure, and no numbers."""
    return means(values, ["model", "eta"], MEASURES)


def curves(values: pd.DataFrame, model: str) -> list[tuple[Array, Array]]:
    """HSIC and RMSE of one model by weight, for every seed."""
    return by_seed(values[values["model"] == model].sort_values("eta"), "hsic")


def process_against_ridge(values: pd.DataFrame, process: str, ridge: str) -> dict[str, Any]:
    """RMSE of KRR minus that of the GP at equal HSIC: its mean, and how often it is positive."""
    pairs = zip(curves(values, ridge), curves(values, process), strict=True)
    between = [gaps(*pair, log=True) for pair in pairs]
    return {
        f"{process} has no higher RMSE than {ridge} at equal HSIC (area between)": [
            gap.mean() if gap.size else np.nan for gap in between
        ],
        f"{process} is below {ridge} over more than half of the range (share beyond 0.5)": [
            (gap > 0).mean() - 0.5 if gap.size else np.nan for gap in between
        ],
    }


def fairness_costs(values: pd.DataFrame, models: tuple[str, ...]) -> dict[str, Any]:
    """From η = 0 to the largest: HSIC falls, RMSE rises."""
    gains: dict[str, list[float]] = {}
    for model in models:
        points = curves(values, model)
        gains[f"{model}: HSIC falls (log ratio)"] = [np.log(x[0] / x[-1]) for x, _ in points]
        gains[f"{model}: RMSE rises"] = [e[-1] - e[0] for _, e in points]
    return gains


def near(values: pd.DataFrame, model: str, other: str, limit: float) -> dict[str, Any]:
    """Mean over the weights of the difference of two RMSE, which should be below a limit."""
    pairs = zip(curves(values, model), curves(values, other), strict=True)
    gains = [limit - float(np.abs(a - b).mean()) for (_, a), (_, b) in pairs]
    return {f"{model} is within {limit:g} of {other} in RMSE, in the mean over η": gains}


def panels(table: pd.DataFrame) -> list[Panel]:
    """RMSE against HSIC: all models, then all ways to tune kernel ridge."""
    plain = table[~table["model"].str.endswith((ONCE, EVEN))]
    return [
        front_panel(rows, "model", "hsic", "HSIC of prediction and s")
        for rows in (plain, table[table["model"].str.startswith("KRR")])
    ]
