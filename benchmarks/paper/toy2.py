"""Toy 2 of the paper: error against dependence for KRR, FKL (`hsic`) and NFKL (`normalized`).

50 trials, 700 training and 700 test rows, 25 weights in [1e-7, 1e3], ε = 1e-6; 10 length scales in
[1e-4, 1e3] and 10 ridges λ in [1e-4, 1e4] by 5-fold cross-validation, λ = nα. Inputs are (s, x),
inputs and target standardised, the kernel on s has length scale 0.5. The paper does not say whether
length scale and ridge are chosen anew for every weight or once, without one: both are here.
Dependence on held-out rows: HSIC as FKL punishes it, with a linear kernel on the prediction; the
explained variance that NFKL punishes, fᵀPf/n with P = L̃(L̃ + nεI)⁻¹; HSIC with Gaussian kernels on
both sides, which no shrinking of the prediction lowers; mutual information, which neither punishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.paper.curves import area, hsic, is_flat, rmse
from benchmarks.paper.data import gram
from benchmarks.paper.drawing import Curve, Panel
from benchmarks.paper.experiment import Experiment, judged, mean_and_error
from benchmarks.paper.ridge import CHOICES, Grid, cross_validated, factors
from scalefair._typing import Array
from scalefair.datasets import make_toy2
from scalefair.measures import hsic as gaussian_hsic
from scalefair.measures import mutual_information

LENGTH_SCALES = np.geomspace(1e-4, 1e3, 10)
RIDGES = np.geomspace(1e-4, 1e4, 10)
METHODS = {"FKL": "hsic", "NFKL": "normalized"}
DEPENDENCE = {
    "hsic": "HSIC",
    "explained": "explained variance",
    "gaussian_hsic": "HSIC, Gaussian kernels",
    "mi": "mutual information",
}
LOGARITHMIC = {"hsic": True, "explained": True, "gaussian_hsic": True, "mi": False}
DRAWN = ("hsic", "explained", "mi")


@dataclass(frozen=True)
class Setting:
    """Training rows, as many test rows, and the number of weights."""

    seeds: int = 50
    rows: int = 700
    etas: int = 25


def grid(setting: Setting) -> Grid:
    """The grids as printed, with η = 0 (KRR) before the others."""
    etas = np.concatenate([[0.0], np.geomspace(1e-7, 1e3, setting.etas)])
    return Grid(LENGTH_SCALES, RIDGES / setting.rows, etas)


def standardised_pair(seed: int, rows: int) -> tuple[Any, Any]:
    """Training and test rows, both in units of the training rows."""
    train, test = (make_toy2(rows, random_state=2 * seed + part) for part in (0, 1))
    for name in ("data", "target", "sensitive_features"):
        mean, spread = train[name].mean(axis=0), train[name].std(axis=0)
        for part in (test, train):
            part[name] = (part[name] - mean) / spread
    return train, test


def measure(f: Array, test: Any, V: Array) -> dict[str, float]:
    """Error and dependence on test rows, P = VVᵀ there; a constant depends on nothing."""
    s = test.sensitive_features
    flat = is_flat(f)
    return {
        "rmse": rmse(f, test.target),
        "hsic": hsic(f, gram(s)),
        "explained": float(np.sum((f @ V) ** 2)) / len(f),
        "gaussian_hsic": 0.0 if flat else gaussian_hsic(f, s),
        "mi": 0.0 if flat else mutual_information(f, s),
    }


def trial(seed: int, setting: Setting) -> pd.DataFrame:
    """One line per choice, method and weight."""
    train, test = standardised_pair(seed, setting.rows)
    used = grid(setting)
    found = cross_validated(
        train.data, train.target, gram(train.sensitive_features), test.data, used,
        penalties=tuple(METHODS.values()), choices=CHOICES,
    )  # fmt: skip
    V = factors(gram(test.sensitive_features), ("normalized",), used.etas)["normalized"]
    lines = []
    for choice in CHOICES:
        plain = found["hsic", choice][:, 0]
        lines.append({"choice": choice, "method": "KRR", "eta": 0.0, **measure(plain, test, V)})
        for method, penalty in METHODS.items():
            curve = zip(used.etas[1:], found[penalty, choice].T[1:], strict=True)
            lines += [
                {"choice": choice, "method": method, "eta": eta, **measure(f, test, V)}
                for eta, f in curve
            ]
    return pd.DataFrame(lines).assign(seed=seed)[["seed", *lines[0]]]


def table(values: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the trials, a line per point of the curves."""
    lines = []
    for (choice, method, eta), rows in values.groupby(["choice", "method", "eta"], sort=False):
        line: dict[str, object] = {"choice": choice, "method": method, "eta": eta}
        for name in ("rmse", *DEPENDENCE):
            line[name], line[f"{name}_error"] = mean_and_error(rows[name])
        lines.append(line)
    return pd.DataFrame(lines)


def gains(values: pd.DataFrame) -> dict[str, Any]:
    """The claims as gains of every trial."""
    found: dict[str, Any] = {}
    for choice, part in values.groupby("choice", sort=False):
        by_seed = [trial for _, trial in part.groupby("seed")]
        where = {"anew": "chosen at every η", "once": "chosen at η = 0"}[str(choice)]
        for name, title in DEPENDENCE.items():
            claim = f"NFKL's curve lies below FKL's: RMSE over {title}, {where}"
            found[claim] = [_area(one, name) for one in by_seed]
        if choice == "anew":
            found |= _extremes(by_seed)
    return found


def _area(values: pd.DataFrame, name: str) -> float:
    """Area between the curves of one trial, over their common range."""
    curves = []
    for method in METHODS:
        rows = values[values["method"].isin(["KRR", method])]
        curves.append((rows[name].to_numpy(), rows["rmse"].to_numpy()))
    return area(curves[0], curves[1], log=LOGARITHMIC[name])


def _extremes(by_seed: list[pd.DataFrame]) -> dict[str, list[float]]:
    """KRR against the strongest weight of either method."""
    found: dict[str, list[float]] = {}
    for method in METHODS:
        plain = [one[one["method"] == "KRR"].iloc[0] for one in by_seed]
        fair = [one[one["method"] == method].sort_values("eta").iloc[-1] for one in by_seed]
        pairs = list(zip(plain, fair, strict=True))
        found[f"KRR has a lower RMSE than {method} at the largest η"] = [
            b["rmse"] - a["rmse"] for a, b in pairs
        ]
        for name, title in DEPENDENCE.items():
            found[f"KRR is less fair than {method} at the largest η: {title}"] = [
                a[name] - b[name] for a, b in pairs
            ]
    return found


def claims(values: pd.DataFrame) -> pd.DataFrame:
    """Judge them."""
    return judged(gains(values))


def panels(found: pd.DataFrame) -> list[Panel]:
    """RMSE against each measure, length scale and ridge chosen at every weight."""
    rows = found[found["choice"] == "anew"]
    drawn = []
    for name in DRAWN:
        title, curves = DEPENDENCE[name], []
        for colour, (method, part) in enumerate(rows.groupby("method", sort=False)):
            points = (part[name], part["rmse"], part["rmse_error"], part[f"{name}_error"])
            curves.append(Curve(str(method), *points, colour=colour, marker="Dos"[colour]))
        log = "x" if LOGARITHMIC[name] else ""
        drawn.append(Panel(curves, f"{title} of prediction and s", "RMSE", log=log))
    return drawn


EXPERIMENT = Experiment(
    name="toy2",
    title="Toy 2: what normalising the penalty is worth",
    full=Setting(),
    quick=Setting(seeds=8, rows=250, etas=13),
    trial=trial,
    table=table,
    claims=claims,
    panels=panels,
)
