"""Data and protocols of published tables on fair regression, read where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

FOLDER = Path(os.environ.get("SCALEFAIR_DATA", "data")) / "published_fair_regression"

RACES = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]

UNLABELED = {
    "crime": ([0.0212, 0.0218, 0.0267, 0.0339, 0.0403, 0.0421], [0.485, 0.469, 0.301, 0.146, 0.093, 0.083], 5.9),
    "law": ([0.0115, 0.0116, 0.0117, 0.0118, 0.0117], [0.149, 0.109, 0.070, 0.057, 0.045], 0.8),
    "adult": ([0.0163, 0.0165, 0.0170, 0.0176, 0.0179], [0.105, 0.097, 0.062, 0.027, 0.022], 3.7),
}
"""Risk, unfairness of s = 0 and seconds a model that Taturyan, Chzhen and Hebiri (2024) print."""


BARYCENTRE = (0.0322, 0.082)
"""Risk and KS of the barycentre of Chzhen et al. (2020), recomputed with their functions."""
BINNED = {"crime": (0.01849, 0.064), "law": (0.01044, 0.085)}
"""Risk and KS that the repository of Xian et al. (2024) prints, fair and not private."""


class Problem(NamedTuple):
    """Inputs without s, groups, targets in [0, 1]."""

    X: Any
    s: Any
    y: Any


class Split(NamedTuple):
    """Rows that train, rows without y, rows that test."""

    train: Problem
    unlabeled: Problem
    test: Problem


def problem(name: str) -> Problem:
    """Return the rows of one of the three tables, prepared as that paper's repository does."""
    return {"crime": _crime, "law": _law, "adult": _adult}[name]()


def splits(rows: Problem, count: int = 10) -> Iterator[Split]:
    """Yield its splits: 80 % train, half of the rest has no y, half of it tests."""
    for i in range(1, count + 1):
        train, rest = _cut(rows, i, test_size=0.2)
        unlabeled, test = _cut(rest, i, train_size=0.5)
        yield Split(train, unlabeled, test)


def unfairness(f: Any, s: Any) -> float:
    """Return max over t of |F_0(t) − F(t)|, F_0 of the group s = 0 and F of all."""
    t = np.sort(f)

    def cdf(values: Any) -> Any:
        return np.searchsorted(np.sort(values), t, side="right") / len(values)

    return float(np.abs(cdf(f[s == 0]) - cdf(f)).max())


def _cut(rows: Problem, seed: int, **sizes: float) -> tuple[Problem, Problem]:
    parts = train_test_split(*rows, stratify=rows.s, random_state=seed, **sizes)
    return Problem(*parts[::2]), Problem(*parts[1::2])


def _some(X: Any, s: Any, y: Any) -> Problem:
    size = 1 - 2000 / len(X)
    parts = train_test_split(X, s, y, test_size=size, random_state=42)
    return Problem(*(np.asarray(part) for part in parts[::2]))


def _crime() -> Problem:
    table = pd.read_csv(FOLDER / "communities.csv.gz").fillna(0)
    table = table[table["ViolentCrimesPerPop"] != 0]
    s = (table[RACES].idxmax(axis=1) == "racePctWhite").astype(int)
    X = table.drop(columns=[*RACES, "ViolentCrimesPerPop"])
    return Problem(X.to_numpy(float), s.to_numpy(), table["ViolentCrimesPerPop"].to_numpy())


def _law() -> Problem:
    table = pd.read_csv(FOLDER / "lawschool.csv.gz").dropna()
    y, s = table["ugpa"] / 4, (table["race"] == 7).astype(int)
    coded = {"gender": table["gender"] == "male", "bar1": table["bar1"] == "P"}
    return _some(table.assign(**coded).drop(columns=["ugpa", "race"]).astype(float), s, y)


def _adult() -> Problem:
    table = pd.read_csv(FOLDER / "adult.csv.gz")
    table = table[~(table == "?").any(axis=1)]
    y, s = table["age"] / 100, (table["sex"] == "Male").astype(int)
    X = table.drop(columns="age").select_dtypes("number").astype(float)
    many = [name for name in X if X[name].nunique() > 2]
    return _some(X.assign(**{name: np.log1p(X[name]) for name in many}), s, y)


def forest() -> tuple[Problem, Problem]:
    """Chzhen et al. 2020: forest predictions as the only input, on their training and test rows."""
    columns = {
        name: pd.read_csv(FOLDER / f"nips2020_{name}.csv", header=None)[0].to_numpy()
        for name in ("RF_YLF", "RF_YLT", "RF_YTF", "RF_YTT", "SL", "ST")
    }
    train = Problem(columns["RF_YLF"], columns["SL"], columns["RF_YLT"])
    return train, Problem(columns["RF_YTF"], columns["ST"], columns["RF_YTT"])


def targets(name: str, seeds: int) -> Iterator[tuple[Problem, Problem]]:
    """Xian et al. 2024: the targets themselves are what is made fair; 70/30, seeds from 33 on.

    Law school: their file has other rows (21,983 where this one has 22,402 of the four races).
    """
    if name == "crime":
        table = pd.read_csv(FOLDER / "communities.csv.gz")
        y, s = table["ViolentCrimesPerPop"], (table["racepctblack"] > 0.06).astype(int)
    else:
        table = pd.read_csv(FOLDER / "lawschool.csv.gz").dropna(subset=["lsat", "ugpa", "bar1"])
        races = table["race"].map({2: 0, 3: 1, 4: 2, 5: 2, 6: 2, 7: 3})
        y, s = table["ugpa"][races.notna()], races[races.notna()].astype(int)
    for seed in range(33, 33 + seeds):
        parts = train_test_split(y.to_numpy(), s.to_numpy(), test_size=0.3, random_state=seed)
        yield Problem(parts[0], parts[2], parts[0]), Problem(parts[1], parts[3], parts[1])


def convex(name: str, seeds: int) -> Iterator[tuple[Problem, Problem]]:
    """Do et al. 2022: crime with the largest race of four, law school (zgpa); 70/30, seeds 0–19."""
    if name == "crime":
        table = pd.read_csv(FOLDER / "communities.csv.gz")
        table = table[table.columns[table.isna().mean() < 0.1]].dropna()
        y, s = table["ViolentCrimesPerPop"], table[RACES].to_numpy().argmax(axis=1)
        X = table.drop(columns=[*RACES, "ViolentCrimesPerPop"])
        X = X[X.columns[X.var(ddof=0) > 0.01]]
    else:
        names = ["race", "gender", "age", "fam_inc", "fulltime", "zgpa", "ugpa", "lsat"]
        table = pd.read_csv(FOLDER / "lawschool.csv.gz")[names].dropna()
        races = {2: 0, 3: 1, 4: 2, 5: 2, 6: 2, 7: 4}
        y, s = table["zgpa"], table["race"].map(races).fillna(3).astype(int).to_numpy()
        X = pd.get_dummies(table.drop(columns=["race", "zgpa"]), columns=["gender", "fulltime"])
    values = X.to_numpy(float), s, y.to_numpy(float)
    for seed in range(seeds):
        parts = train_test_split(*values, test_size=0.3, random_state=seed)
        yield Problem(*parts[::2]), Problem(*parts[1::2])
