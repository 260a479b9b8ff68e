"""Certificates on populations whose every number is known: violations, error, cost.

    python -m benchmarks.certificates [--draws 1000] [--minutes 60] [--laws two,rare] [--cost]

A population has 200,000 rows; draws are rows of it with replacement, so that the share and the
error of every model on the population are exact. One path serves all limits and levels. Methods:

- "split", "cross": `FairKernelRidgeCV(confidence=…)`, a linear map and one ridge.
- "student": 40 % of the rows to fit, 60 % for a safety test with Student's bound; the candidate
  has the least error among those whose predicted bound, of twice the width, is within the limit.
- "hard": a fixed model whose share is 1.02 times the limit, judged on all rows of the draw.

A violation is a certified model beyond the limit; excess is the squared error over that of the best
model within the limit, in units of Var y, a constant where nothing is certified. Totals are kept in
results/certificates.csv, to which later runs add draws.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from benchmarks._frontier_data import ACS, DATA
from benchmarks._measure import RESULTS, read_table, save_table
from scalefair import FairKernelRidgeCV
from scalefair._hash import balanced_fold
from scalefair.auditing.certificate import Claim, check_calibration
from scalefair.errors import InputError
from scalefair.features import OneHot
from scalefair.features.base import whitened
from scalefair.features.mixed import mixed_map, units_of
from scalefair.measures.bounds import share_distributions
from scalefair.moments import Moments
from scalefair.penalties import normalized, size_of_block, variance_of
from scalefair.solve.fit import Spec
from scalefair.solve.limit import path_etas
from scalefair.solve.ridge.direct import fit_ridge
from scalefair.solve.ridge.path import Spectrum, grid
from scalefair.solve.ridge.system import System

ROWS, SIZES = 200_000, (500, 2000, 8000)
LIMITS, LEVELS = (0.01, 0.02, 0.05, 0.1), (0.1, 0.05)
ALPHA = 1e-5
BEYOND = 1.02
KEYS = ("law", "rows", "limit", "delta", "method")
SUMS = ("draws", "certified", "refused", "violations", "excess", "excess_certified", "share")
OUT = "certificates.csv"


@dataclass(frozen=True, eq=False)
class Population:
    """Inputs, attributes as numbers, target, and the map ψ that every draw uses."""

    X: Any
    s: Any
    y: Any
    psi: Any
    moments: Moments
    factor: Any

    @classmethod
    def of(cls, X: Any, s: Any, y: Any, categorical: Any) -> Population:
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        y = (y - y.mean()) / y.std()
        s = s.reshape(len(s), -1).astype(float)
        if all(categorical):
            psi = OneHot().fit(s)
        else:
            codes = np.flatnonzero(categorical)
            groups = s[np.unique(s[:, codes], axis=0, return_index=True)[1]] if len(codes) else None
            psi = mixed_map(
                "auto",
                "median",
                20,
                rows=s[:2000],
                weight=None,
                groups=groups,
                seed=0,
                categorical=np.asarray(categorical),
            )
        rows = {"phi": X, "psi": np.asarray(whitened(psi, s)), "y": y[:, None]}
        moments = Moments.of_rows(rows, np.ones(len(X)), {"psi": units_of(psi)})
        return cls(X, s, y, psi, moments, normalized(moments, None))

    def judge(self, coef: Any) -> tuple[Any, Any]:
        """Share and squared error of models on the population."""
        variance = variance_of(self.moments, ("phi",), coef)
        share = np.sum((self.factor.T @ coef) ** 2, axis=0) / variance
        target = self.moments.covariance("phi", "y")[:, 0]
        return share, 1 - 2 * target @ coef + variance

    @cache  # noqa: B019 (as many as there are limits)
    def best(self, limit: float) -> Any:
        """Coefficients of the least error within the limit."""
        system = System.build(self.moments)
        return fit_ridge(system, Spec(1e-9, np.inf, limit)).solution.coef


def _effects(s: Any, d: int, rng: Any, strength: float = 0.35) -> Any:
    return strength * rng.normal(size=(int(s.max()) + 1, d))[s]


def _grouped(p: Any, rng: Any, *, heavy: bool = False, spread: bool = False) -> Population:
    p = np.asarray(p) / np.sum(p)
    s = rng.choice(len(p), ROWS, p=p)
    noise = rng.standard_t(4, size=(ROWS, 6)) / np.sqrt(2) if heavy else rng.normal(size=(ROWS, 6))
    if heavy:
        noise[:, 0] = (np.exp(rng.normal(size=ROWS)) - np.exp(0.5)) / 2.16
    scale = np.exp(0.4 * rng.normal(size=len(p)))[s, None] if spread else 1.0
    x = scale * noise + _effects(s, 6, rng)
    rare = (s == len(p) - 1)[:, None] * (2.0 if p[-1] < 0.01 else 0.0)
    x = x + rare
    y = x @ [1.0, 0.8, 0.6, 0.4, 0.2, 0.0] + _effects(s, 1, rng)[:, 0] + rng.normal(size=ROWS)
    return Population.of(np.hstack([x, np.eye(len(p))[s][:, 1:]]), s, y, [True])


def _numeric(rng: Any, *, mixed: bool) -> Population:
    a, g = rng.normal(size=ROWS), rng.choice(3, ROWS, p=[0.6, 0.3, 0.1])
    slope = np.where(g == 0, 1.0, np.where(g == 1, -0.5, 0.3)) if mixed else 1.0
    curve = slope * np.sin(1.2 * a) + 0.3 * a
    x = rng.normal(size=(ROWS, 6)) + curve[:, None] * [0.5, -0.3, 0.2, 0.0, 0.4, 0.1]
    y = x @ [1.0, 0.8, 0.6, 0.4, 0.2, 0.0] + curve + rng.normal(size=ROWS)
    powers = [np.sin(1.2 * a), a, a**2, np.cos(2 * a)]
    seen = powers + [part * (g == k) for k in (1, 2) for part in powers] * mixed
    s = np.column_stack([a, g]) if mixed else a
    return Population.of(np.column_stack([x, *seen]), s, y, [False, True][: 1 + mixed])


def _acs(rng: Any) -> Population:
    """Log income by gender × race (three groups of it); age and four categories as inputs."""
    table = pd.read_parquet(DATA / ACS)
    table = table.iloc[rng.permutation(len(table))[:ROWS]]
    race = table["Race"].astype(str)
    race = race.where(race.str.startswith(("White", "Black")), "other")
    s = pd.factorize(table["Gender"].astype(str) + race)[0]
    names = ["Education", "Workclass", "Marital Status", "Citizenship status"]
    codes = pd.get_dummies(table[names].astype(str)).to_numpy(float)
    age = table["Age"].to_numpy(float)[:, None]
    x = np.hstack([age, age**2, codes[:, codes.mean(axis=0) > 0.002]])
    y = np.log(table["Income"].to_numpy(float))
    return Population.of(np.hstack([x, np.eye(s.max() + 1)[s][:, 1:]]), s, y, [True])


LAWS = {
    "two groups": lambda rng: _grouped([0.7, 0.3], rng),
    "twelve groups": lambda rng: _grouped(1 / np.arange(1, 13) ** 1.5, rng, spread=True),
    "heavy tails": lambda rng: _grouped([0.7, 0.3], rng, heavy=True),
    "rare group": lambda rng: _grouped([0.6, 0.3925, 0.0075], rng),
    "number": lambda rng: _numeric(rng, mixed=False),
    "mixed": lambda rng: _numeric(rng, mixed=True),
    "ACS income": _acs,
}


class JudgedError(Exception):
    """Carries the path out of a fit, before a limit is chosen."""


class Paths(FairKernelRidgeCV):
    """Stops at the judged path, which serves all limits and levels."""

    def _certified(self, result: Any, judge: Any) -> Any:  # noqa: ARG002
        raise JudgedError(judge(self.unfairness))


def path_of(population: Population, at: Any, guarantee: str, seed: int) -> Any:
    model = Paths(
        alphas=[ALPHA],
        cv=5,
        feature_map="linear",
        sensitive_kernel=population.psi,
        n_jobs=1,
        unfairness=max(LIMITS),
        confidence=0.9,
        guarantee=guarantee,
        random_state=seed,
    )
    try:
        model.fit(population.X[at], population.y[at], sensitive_features=population.s[at])
    except JudgedError as stop:
        return stop.args[0]
    raise AssertionError("a fit without a path")


def certified(population: Population, at: Any, seed: int) -> Any:
    """Yield method, limit, δ and coefficients of every choice; None: not certified."""
    for guarantee in ("split", "cross"):
        try:
            path = path_of(population, at, guarantee, seed)
        except InputError:
            yield from ((guarantee, u, d, "refused") for u in LIMITS for d in LEVELS)
            continue
        for u, d in product(LIMITS, LEVELS):
            passed = path.passed(Claim(u, 1 - d))
            best = passed[np.argmin(path.errors[passed])] if len(passed) else None
            yield guarantee, u, d, None if best is None else path.coef[:, [best]]


def student(population: Population, at: Any, seed: int) -> Any:
    """The same for a split with Student's bound."""
    safety = balanced_fold(10, seed + 2, np.arange(len(at))) < 6
    parts = []
    for chosen in (at[~safety], at[safety]):
        Psi = np.asarray(whitened(population.psi, population.s[chosen]))
        parts.append({"phi": population.X[chosen], "psi": Psi, "y": population.y[chosen, None]})
    units, n = {"psi": units_of(population.psi)}, float(safety.sum())
    fit = Moments.of_rows(parts[0], np.ones(len(parts[0]["y"])), units)
    system = System.build(fit)
    spectrum = Spectrum.of(system)
    etas = path_etas(spectrum.at(ALPHA), max(LIMITS))
    B = grid(spectrum, np.array([ALPHA]), etas, size_of_block(fit, "y"))
    error = np.mean((parts[0]["y"] - fit.mean("y") - (parts[0]["phi"] - fit.mean("phi")) @ B) ** 2, axis=0)
    found = []
    for part in parts:
        rows = {"phi": part["phi"] @ B, "psi": part["psi"]}
        weight = np.ones(len(rows["psi"]))
        found.append(share_distributions(Moments.of_rows(rows, weight, units), rows, weight, epses=(1e-6,))[0])
    train, test = found
    for u in LIMITS:
        for d in LEVELS:
            t = stdtrit(n - 1, 1 - d)
            predicted = np.maximum(train.share, 0) + 2 * t * train.error * np.sqrt(train.rows / n)
            j = int(np.argmin(np.where(predicted <= u, error, np.inf)))
            if not (predicted <= u).any():
                j = int(np.nanargmin(predicted))
            passed = test.share[j] + t * test.error[j] <= u
            yield "student", u, d, B[:, [j]] if passed else None


def hard(population: Population, at: Any) -> Any:
    """The same for fixed models just beyond the limits."""
    coef = np.column_stack([population.best(BEYOND * u)[:, 0] for u in LIMITS])
    rows = {"phi": population.X[at] @ coef, "psi": whitened(population.psi, population.s[at])}
    weight, units = np.ones(len(at)), {"psi": units_of(population.psi)}
    moments = Moments.of_rows(rows, weight, units)
    try:
        check_calibration(moments)
    except InputError:
        yield from (("hard", u, d, "refused") for u in LIMITS for d in LEVELS)
        return
    found = share_distributions(moments, rows, weight)
    for j, u in enumerate(LIMITS):
        p = max(one.probability(u)[j] for one in found)
        yield from (("hard", u, d, coef[:, [j]] if p <= d else None) for d in LEVELS)


def one_draw(population: Population, law: str, n: int, seed: int, totals: Any) -> None:
    rng = np.random.default_rng([seed, n, sorted(LAWS).index(law)])
    at = rng.integers(0, len(population.X), n)
    answers = [*certified(population, at, seed), *student(population, at, seed), *hard(population, at)]
    for method, u, d, coef in answers:
        sums = totals.setdefault((law, n, u, d, method), dict.fromkeys(SUMS, 0.0))
        sums["draws"] += 1
        best = population.judge(population.best(u))[1][0]
        if coef is None or isinstance(coef, str):
            sums["refused"] += isinstance(coef, str)
            sums["excess"] += 1 - best
            continue
        share, error = (float(part[0]) for part in population.judge(coef))
        sums["certified"] += 1
        sums["violations"] += share > u
        sums["share"] += share
        sums["excess"] += error - best
        sums["excess_certified"] += error - best


def read() -> dict[Any, Any]:
    return {
        (row["law"], int(row["rows"]), float(row["limit"]), float(row["delta"]), row["method"]): {
            name: float(row[name]) for name in SUMS
        }
        for row in read_table(RESULTS / OUT)
    }


def write(totals: dict[Any, Any]) -> None:
    found = [[*key, *(f"{sums[name]:.10g}" for name in SUMS)] for key, sums in sorted(totals.items())]
    save_table(RESULTS / OUT, [[*KEYS, *SUMS], *found])


def run(laws: list[str], draws: int, minutes: float) -> None:
    totals, stop = read(), time.monotonic() + 60 * minutes
    populations = {law: LAWS[law](np.random.default_rng(7)) for law in laws}
    done = {
        (law, n): int(totals.get((law, n, LIMITS[0], LEVELS[0], "hard"), {"draws": 0})["draws"])
        for law in laws
        for n in SIZES
    }
    written = time.monotonic()
    while any(count < draws for count in done.values()) and time.monotonic() < stop:
        law, n = min(done, key=lambda key: (done[key], key[1]))
        one_draw(populations[law], law, n, done[law, n], totals)
        done[law, n] += 1
        if time.monotonic() - written > 20:
            write(totals)
            written = time.monotonic()
    write(totals)


def show(totals: dict[Any, Any]) -> None:
    """Print, for each law and size: worst violations over the limits, and excess at 0.05."""
    table = pd.DataFrame([dict(zip(KEYS, key, strict=True)) | sums for key, sums in totals.items()])
    table["rate"] = table["violations"] / table["draws"]
    table["allowed"] = table["delta"] + 3 * np.sqrt(table["delta"] * (1 - table["delta"]) / table["draws"])
    table["certified"] /= table["draws"]
    table["excess"] /= table["draws"]
    # Of the draws in which something was certified, which are not the same for all methods.
    table["excess of the certified"] = table["excess_certified"] / np.maximum(table["certified"] * table["draws"], 1)
    worst = table.groupby(["method", "delta", "rows", "law"])["rate"].max().unstack("law")
    print("Largest violation rate over the limits\n", worst.round(3).to_string())
    over = table[table["rate"] > table["allowed"]]
    print(f"\nBeyond delta + 3 s.e.: {len(over)} of {len(table)}")
    print(over[[*KEYS, "draws", "rate", "allowed"]].round(4).to_string(index=False))
    at = table[(table["limit"] == 0.05) & (table["delta"] == 0.05)]
    for name in ("certified", "excess", "excess of the certified"):
        shown = at.pivot_table(index=["rows", "law"], columns="method", values=name)
        print(f"\n{name}, limit 0.05, delta 0.05\n", shown.round(4).to_string())


def cost(rows: int = 20_000, width: int = 500) -> None:
    """Print the time of certified fits over that of the cross-validated fit."""
    population = LAWS["twelve groups"](np.random.default_rng(7))
    X, y, s = (part[:rows] for part in (population.X[:, :6], population.y, population.s))
    names = np.array([f"group {k}" for k in range(12)])[s[:, 0].astype(int)]
    seconds = {}
    for guarantee in (None, "split", "cross", None, "split", "cross"):
        options = {} if guarantee is None else {"confidence": 0.95, "guarantee": guarantee}
        model = FairKernelRidgeCV(n_components=width, unfairness=0.1, random_state=0, **options)
        start = time.perf_counter()
        model.fit(X, y, sensitive_features=names)
        seconds[guarantee] = min(seconds.get(guarantee, np.inf), time.perf_counter() - start)
    for guarantee, value in seconds.items():
        print(f"{guarantee or 'cross-validated'}: {value:.2f} s, {value / seconds[None]:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--cost", action="store_true", help="only the cost of a certificate")
    options = parser.parse_args()
    if options.cost:
        cost()
        return
    warnings.simplefilter("ignore")
    laws = [law for law in options.laws.split(",") if law != "ACS income" or (DATA / ACS).exists()]
    run(laws, options.draws, options.minutes)
    show(read())


if __name__ == "__main__":
    main()
