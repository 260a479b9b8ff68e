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

from benchmarks.paper.curves import area, by_seed, error_and_dependence, is_flat
from benchmarks.paper.data import gram
from benchmarks.paper.drawing import Panel, front_panel
from benchmarks.paper.experiment import Experiment, means, verdicts
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
    return error_and_dependence(f, test.target, s) | {
        "explained": float(np.sum((f @ V) ** 2)) / len(f),
        "gaussian_hsic": 0.0 if flat else gaussian_hsic(f, s),
        "mi": 0.0 if flat else mutual_information(f, s),
    }


def trial(seed: int, setting: Setting) -> pd.DataFrame:
    """One line per choice, method and weight."""
    train, test = standardised_pair(seed, setting.rows)
    used = grid(setting)
    found = cross_validated(
        train.data,
        train.target,
        gram(train.sensitive_features),
        test.data,
        used,
        penalties=tuple(METHODS.values()),
        choices=CHOICES,
    )
    V = factors(gram(test.sensitive_features), ("normalized",), used.etas)["normalized"]
    lines = []
    for choice in CHOICES:
        plain = found["hsic", choice][:, 0]
        lines.append({"choice": choice, "method": "KRR", "eta": 0.0, **measure(plain, test, V)})
        for method, penalty in METHODS.items():
            curve = zip(used.etas[1:], found[penalty, choice].T[1:], strict=True)
            lines += [{"choice": choice, "method": method, "eta": eta, **measure(f, test, V)} for eta, f in curve]
    return pd.DataFrame(lines).assign(seed=seed)[["seed", *lines[0]]]


def table(values: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the trials, a line per point of the curves."""
    return means(values, ["choice", "method", "eta"], ["rmse", *DEPENDENCE])


def claims(values: pd.DataFrame) -> pd.DataFrame:
    """The claims as gains of every trial."""
    gains: dict[str, Any] = {}
    for choice, where in (("anew", "chosen at every η"), ("once", "chosen at η = 0")):
        part = values[values["choice"] == choice]
        for name, title in DEPENDENCE.items():
            claim = f"NFKL's curve lies below FKL's: RMSE over {title}, {where}"
            gains[claim] = _areas(part, name)
        if choice == "anew":
            gains |= _extremes(part)
    return verdicts(gains)


def _areas(values: pd.DataFrame, name: str) -> list[float]:
    """Area between the curves of every trial, over their common range."""
    fkl, nfkl = (by_seed(values[values["method"].isin(["KRR", method])], name) for method in METHODS)
    return [area(*pair, log=LOGARITHMIC[name]) for pair in zip(fkl, nfkl, strict=True)]


def _extremes(values: pd.DataFrame) -> dict[str, Any]:
    """KRR against the strongest weight of either method."""
    strongest = values.sort_values("eta").groupby(["method", "seed"]).last()
    plain, gains = strongest.loc["KRR"], {}
    for method in METHODS:
        fair = strongest.loc[method]
        gains[f"KRR has a lower RMSE than {method} at the largest η"] = fair["rmse"] - plain["rmse"]
        for name, title in DEPENDENCE.items():
            claim = f"KRR is less fair than {method} at the largest η: {title}"
            gains[claim] = plain[name] - fair[name]
    return gains


def panels(table: pd.DataFrame) -> list[Panel]:
    """RMSE against each measure, length scale and ridge chosen at every weight."""
    rows = table[table["choice"] == "anew"]
    return [
        front_panel(
            rows,
            "method",
            name,
            f"{DEPENDENCE[name]} of prediction and s",
            log="x" if LOGARITHMIC[name] else "",
            markers="Dos",
        )
        for name in DRAWN
    ]


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
