"""Splits of the frontier benchmark: same rows for every method, so that numbers compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SCALEFAIR_DATA", ROOT.parent / "shared" / "data"))

ACS = "acs_income_2018_regression/acs-income-2018-holdout.parquet"
CRIME = "communities_crime/communities.data"
INCOME = "folktables_2018"
RACE_SHARES = [f"race{name}" for name in ("pctblack", "PctWhite", "PctAsian", "PctHisp")]
RARE = 0.002
"""Levels below this share of the training rows are pooled, except in s."""


@dataclass(frozen=True)
class Split:
    """Training and test rows; targets of A and B are standardised on the training rows."""

    DECISIONS = {"E": ("sex", "Female"), "I": ("SEX", "2")}  # noqa: RUF012
    """Problems with a target in {0, 1}, and the column and level that a gap is measured for."""

    name: str
    X: pd.DataFrame
    y: Any
    X_test: pd.DataFrame
    y_test: Any
    sensitive: list[str]

    @property
    def s_test(self) -> pd.DataFrame:
        return self.X_test[self.sensitive]

    @property
    def decides(self) -> bool:
        return self.name in self.DECISIONS or self.name == "rate"

    @property
    def group(self) -> Any:
        """Which test rows are the group that a gap is measured for: a level, or an upper half."""
        column, level = self.DECISIONS.get(self.name, (self.sensitive[0], ""))
        values = self.X_test[column]
        if not level and values.dtype.kind in "biuf":
            return (values > self.X[column].median()).to_numpy()
        level = level or self.X[column].astype(str).mode()[0]
        return (values.astype(str) == level).to_numpy()


def available(name: str) -> bool:
    files = {"A": DATA / ACS, "B": DATA / CRIME, "E": ROOT, "I": DATA / INCOME}
    return files[name].exists()


def load(name: str, seed: int = 0, rows: int | None = None) -> Split:
    """Return split A (ACS income), B (crime), E (Adult) or I (ACSIncome).

    `rows` is the number of training rows. A has 100,000 by default and up to 245,243: those behind
    its test rows then join, so that the test rows stay the same. I has 100,000 test rows.
    """
    return {"A": _acs, "B": _crime, "E": _adult, "I": _income}[name](seed, rows)


def from_table(path: str, target: str, sensitive: list[str], seed: int, rows: int | None) -> Split:
    """Return a split of any table: 70 % of its rows train; text of two levels is a rate."""
    frame = pd.read_parquet(path) if path.endswith(".parquet") else pd.read_csv(path)
    frame = frame.dropna(subset=[target, *sensitive]).reset_index(drop=True)
    target_values = frame.pop(target)
    rate = target_values.nunique() == 2
    y = (target_values == target_values.max()).to_numpy(float) if rate else target_values.to_numpy()
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = int(0.7 * len(frame))
    train, test = order[:cut][:rows], order[cut:]
    numeric = frame.select_dtypes("number").columns
    frame[numeric] = frame[numeric].fillna(frame.iloc[train][numeric].median()).astype(float)
    if not rate:
        return _split("number", frame, y.astype(float), train, test, sensitive)
    parts = [frame.iloc[part].reset_index(drop=True) for part in (train, test)]
    X, X_test = _pooled(*parts, sensitive)
    return Split("rate", X, y[train], X_test, y[test], sensitive)


def _acs(seed: int, rows: int | None) -> Split:
    frame = pd.read_parquet(DATA / ACS)
    y = np.log(frame.pop("Income").to_numpy(float))
    frame = frame.drop(columns=["Region", "Division", "Nativity"])
    for column in frame.columns:
        if column.startswith("Time of"):
            frame[column] = _hours(frame[column])
    numeric = frame.select_dtypes("number").columns
    frame[numeric] = frame[numeric].fillna(0.0)
    order = np.random.default_rng(seed).permutation(len(frame))
    test = order[100_000:150_000]
    train = np.concatenate([order[:100_000], order[150_000:]])[: rows or 100_000]
    return _split("A", frame, y, train, test, ["Gender", "Race", "Age"])


def _income(seed: int, rows: int | None) -> Split:
    paths = sorted((DATA / INCOME).glob("ACSIncome*.parquet"))
    frame = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
    y = frame.pop("PINCP").to_numpy(float)
    for column in ("RAC1P", "SEX", "OCCP", "POBP", "RELP", "COW", "MAR"):
        frame[column] = frame[column].astype(int).astype(str)
    order = np.random.default_rng(seed).permutation(len(frame))
    test, train = order[:100_000], order[100_000:][:rows]
    take = [frame.iloc[part].reset_index(drop=True) for part in (train, test)]
    X, X_test = _pooled(*take, ["RAC1P", "SEX"])
    return Split("I", X, y[train], X_test, y[test], ["RAC1P", "SEX"])


def _hours(times: pd.Series) -> pd.Series:
    """Hour at which an interval such as "7:30 a.m. to 7:34 a.m." starts; 0 where missing."""
    parts = times.astype("string").str.extract(r"^\s*(\d+):(\d+)\s*([ap])")
    hour = parts[0].astype(float) % 12 + 12 * (parts[2] == "p").astype(float)
    return (hour + parts[1].astype(float) / 60).fillna(0.0)


def _crime(seed: int, rows: int | None) -> Split:
    names = [
        line.split()[1]
        for line in (DATA / "communities_crime/communities.names").read_text("latin-1").splitlines()
        if line.lower().startswith("@attribute")
    ]
    frame = pd.read_csv(DATA / CRIME, header=None, names=names, na_values="?")
    frame = frame.iloc[:, 5:].dropna(axis=1)
    y = frame.pop("ViolentCrimesPerPop").to_numpy(float)
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = int(0.7 * len(frame))
    return _split("B", frame, y, order[: rows or cut], order[cut:], RACE_SHARES)


def _adult(seed: int, rows: int | None) -> Split:  # noqa: ARG001 - the split is given
    from scalefair.datasets import load_adult

    train, test = (load_adult(subset=part) for part in ("train", "test"))
    frames = []
    for part in (train, test):
        frame = part.data.drop(columns=["fnlwgt", "education"])
        for column in ("capital-gain", "capital-loss"):
            frame[column] = np.log1p(frame[column].astype(float))
        frames.append(frame)
    X, X_test = _pooled(*frames, ["race", "sex"])
    rows = len(X) if rows is None else rows
    y, y_test = (np.asarray(part.target, dtype=float) for part in (train, test))
    return Split("E", X[:rows], y[:rows], X_test, y_test, ["race", "sex"])


def _split(name: str, frame: pd.DataFrame, y: Any, train: Any, test: Any, sensitive: list[str]) -> Split:
    mean, deviation = y[train].mean(), y[train].std()
    z = (y - mean) / deviation
    take = [frame.iloc[rows].reset_index(drop=True) for rows in (train, test)]
    X, X_test = _pooled(*take, sensitive)
    return Split(name, X, z[train], X_test, z[test], sensitive)


def _pooled(train: pd.DataFrame, test: pd.DataFrame, sensitive: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make text columns categories, with the rare levels of the training rows as one."""
    train, test = train.copy(), test.copy()
    for column in train.columns:
        if train[column].dtype.kind in "biuf":
            continue
        share = train[column].astype(str).value_counts(normalize=True)
        kept = sorted(share.index if column in sensitive else share.index[share >= RARE])
        for part in (train, test):
            text = part[column].astype(str)
            levels = [*kept, "other"] if "other" not in kept else kept
            part[column] = pd.Categorical(text.where(text.isin(kept), "other"), categories=levels)
    return train, test
