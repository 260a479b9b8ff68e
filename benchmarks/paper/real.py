"""What crime and Adult share: the weights, the table, the claim that the GP's curve lies below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.paper.curves import gaps, hsic, hsic_of_groups, rmse
from benchmarks.paper.data import Sample, gram
from benchmarks.paper.drawing import COLOURS, Curve, Panel
from benchmarks.paper.experiment import mean_and_error
from benchmarks.paper.models import EVEN, ONCE, Predictions
from scalefair._typing import Array

ETAS = np.concatenate([[0.0], np.geomspace(0.1, 10.0, 6)])
"""Seven weights in [0, 10]; the paper does not print which."""

MEASURES = ("rmse", "hsic")

Fitted = Callable[[], Predictions]


def lines_of(seed: int, models: Mapping[str, Fitted], test: Sample, etas: Array) -> pd.DataFrame:
    """One line per model and weight: RMSE and HSIC on the test rows."""
    lines = []
    for model, predictions in models.items():
        for variant, found in predictions().items():
            lines += [
                {"seed": seed, "model": f"{model}{variant}", "eta": eta, **measure(f, test)}
                for eta, f in zip(etas, found.T, strict=True)
            ]
    return pd.DataFrame(lines)


def measure(f: Array, test: Sample) -> dict[str, float]:
    """RMSE and HSIC, with a linear kernel on the prediction, of test rows."""
    groups = test.s.ndim == 1
    dependence = hsic_of_groups(f, test.s) if groups else hsic(f, gram(test.s))
    return {"rmse": rmse(f, test.y), "hsic": dependence}


def table(values: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the seeds; the paper shows a figure, and no numbers."""
    lines = []
    for (model, eta), rows in values.groupby(["model", "eta"], sort=False):
        line: dict[str, object] = {"model": model, "eta": eta}
        for name in MEASURES:
            line[name], line[f"{name}_error"] = mean_and_error(rows[name])
        lines.append(line)
    return pd.DataFrame(lines)


def curve(values: pd.DataFrame, model: str) -> tuple[Array, Array]:
    """HSIC and RMSE of one model on one seed, by weight."""
    rows = values[values["model"] == model].sort_values("eta")
    return rows["hsic"].to_numpy(), rows["rmse"].to_numpy()


def process_against_ridge(values: pd.DataFrame, process: str, ridge: str) -> dict[str, Any]:
    """RMSE of KRR minus that of the GP at equal HSIC: its mean, and how often it is positive."""
    found = []
    for _, one in values.groupby("seed"):
        found.append(gaps(curve(one, ridge), curve(one, process), log=True))
    return {
        f"{process} has no higher RMSE than {ridge} at equal HSIC (area between)": [
            gap.mean() if gap.size else np.nan for gap in found
        ],
        f"{process} is below {ridge} over more than half of the range (share beyond 0.5)": [
            (gap > 0).mean() - 0.5 if gap.size else np.nan for gap in found
        ],
    }


def fairness_costs(values: pd.DataFrame, models: tuple[str, ...]) -> dict[str, Any]:
    """From η = 0 to the largest: HSIC falls, RMSE rises."""
    found: dict[str, list[float]] = {}
    for model in models:
        curves = [curve(one, model) for _, one in values.groupby("seed")]
        found[f"{model}: HSIC falls (log ratio)"] = [np.log(x[0] / x[-1]) for x, _ in curves]
        found[f"{model}: RMSE rises"] = [e[-1] - e[0] for _, e in curves]
    return found


def near(values: pd.DataFrame, model: str, other: str, limit: float) -> dict[str, Any]:
    """Mean over the weights of the difference of two RMSE, which should be below a limit."""
    differences = []
    for _, one in values.groupby("seed"):
        (_, a), (_, b) = curve(one, model), curve(one, other)
        differences.append(limit - float(np.abs(a - b).mean()))
    return {f"{model} is within {limit:g} of {other} in RMSE, in the mean over η": differences}


def panels(found: pd.DataFrame) -> list[Panel]:
    """RMSE against HSIC: all models, then all ways to tune kernel ridge."""
    plain = found[~found["model"].str.endswith((ONCE, EVEN))]
    drawn = []
    for rows in (plain, found[found["model"].str.startswith("KRR")]):
        curves = []
        for colour, (model, part) in enumerate(rows.groupby("model", sort=False)):
            points = (part["hsic"], part["rmse"], part["rmse_error"], part["hsic_error"])
            line = "--" if "rank" in str(model) else "-"
            curves.append(Curve(str(model), *points, colour=colour % len(COLOURS), line=line))
        drawn.append(Panel(curves, "HSIC of prediction and s", "RMSE", log="x"))
    return drawn
