"""Logistic loss: passes and their cost, against scikit-learn's lbfgs and fairlearn's reductions.

    python -m benchmarks.losses [--parts passes lbfgs folds adult acs] [--features 1000]

The part `acs` needs the parquet files of ACSIncome (folktables 2018) below SCALEFAIR_DATA; `adult`
and `acs` need fairlearn. Writes results/losses.csv; parts that are not run keep their lines.
Where fresh memory is slow, as on some virtual machines, give `MALLOC_MMAP_MAX_=0
MALLOC_TRIM_THRESHOLD_=17179869184` to the part `lbfgs`, or its times are those of the allocations.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks._frontier_data import DATA
from benchmarks._measure import RESULTS, Numbers, peak_megabytes, read_table, save_table
from scalefair import FairKernelClassifier, FairKernelClassifierCV
from scalefair.data.encoding import TableEncoder
from scalefair.data.sources import ArraySource
from scalefair.datasets import load_adult
from scalefair.features.design import Design
from scalefair.losses import Logistic
from scalefair.maps import Nystroem, OneHot
from scalefair.moments import accumulate
from scalefair.solve.newton.descent import STEPS
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import System

ALPHAS = (1e-4, 1e-6)
PARTS = ("passes", "lbfgs", "folds", "adult", "acs")


class Split(NamedTuple):
    """A table in two halves, and the attribute that must not matter."""

    train: pd.DataFrame
    y_train: Any
    test: pd.DataFrame
    y_test: Any
    sensitive: str


def adult() -> Split:
    train, test = load_adult(subset="train"), load_adult(subset="test")
    return Split(train.data, train.target, test.data, test.target, "sex")


def acs(rows: int) -> Split:
    folder = DATA / "folktables_2018"
    table = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("ACSIncome*.parquet"))])
    table = table.sample(min(rows, len(table)), random_state=0).reset_index(drop=True)
    table["OCCP"], table["POBP"] = table["OCCP"] // 500, table["POBP"] < 60
    for name in ("RAC1P", "SEX", "OCCP", "POBP", "RELP", "COW", "MAR"):
        table[name] = table[name].astype(str)
    y, X = table.pop("PINCP").to_numpy(), table
    half = len(X) // 2
    return Split(X[:half], y[:half], X[half:], y[half:], "SEX")


def timed(run: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(rounds):
        start = perf_counter()
        result = run()
        times.append(perf_counter() - start)
    return median(times), result


def by_turns(runs: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, tuple[float, Any]]:
    """Median time and last result of each, the first round not counted."""
    times: dict[Any, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(rounds):
        for name, run in runs.items():
            cost, results[name] = timed(run, 1)
            times[name].append(cost)
    return {name: (median(found[1:]), results[name]) for name, found in times.items()}


def pass_costs(data: Split, features: int, keep: Callable[..., None]) -> None:
    """Time a full and a light pass against the pass for the moments, by turns."""
    x = np.asarray(TableEncoder().fit(data.train).transform(data.train))
    s = pd.factorize(data.train[data.sensitive])[0][:, None].astype(float)
    phi = Nystroem(n_components=features, random_state=0).fit(x[: 4 * features])
    source = ArraySource(x, s, np.asarray(data.y_train, dtype=float)[:, None])
    design = Design(phi, OneHot().fit(s))
    (moments,) = accumulate(source, design)
    problem = Problem(source, design, Logistic(), System.build(moments))
    start = problem.start()
    runs = {
        "moments": lambda: accumulate(source, design),
        "full": lambda: problem.evaluate(start.theta, start, STEPS),
        "light": lambda: problem.evaluate(start.theta, start, STEPS, light=True),
    }
    costs = {name: cost for name, (cost, _) in by_turns(runs, 6).items()}
    keep(f"moments pass on Adult, m={features}, seconds", costs["moments"])
    keep("full Newton pass / moments pass", costs["full"] / costs["moments"], "<= 1.4")
    keep("light Newton pass / moments pass", costs["light"] / costs["moments"])


def cross_validated(data: Split, features: int, keep: Callable[..., None]) -> None:
    """Time alpha and the limit by cross-validation against one fit under the limit, by turns."""
    own = {"sensitive_features": data.train[[data.sensitive]]}
    options: dict[str, Any] = {"n_components": features, "unfairness": 0.02, "random_state": 0}
    runs: dict[Any, Callable[[], Any]] = {
        kind: lambda kind=kind: kind(**options).fit(data.train, data.y_train, **own)
        for kind in (FairKernelClassifier, FairKernelClassifierCV)
    }
    (plain, _), (searched, fit) = by_turns(runs, 4).values()
    keep(f"classifier under a limit, m={features}, seconds", plain)
    keep("the same, cross-validated / one fit", searched / plain, "<= 5")
    keep("fits that the cross-validation tried, of 5 folds and all rows", len(fit.path_.table))


def model(features: int, **parameters: Any) -> FairKernelClassifier:
    return FairKernelClassifier(n_components=features, random_state=0, **parameters)


def against_lbfgs(data: Split, features: int, keep: Callable[..., None]) -> None:
    """The same features and penalty for both; lbfgs at its default tolerance and at a finer one."""
    x = np.asarray(TableEncoder().fit(data.train).transform(data.train))
    y, n = np.asarray(data.y_train, dtype=float), len(data.y_train)
    phi = Nystroem(n_components=features, random_state=0).fit(x[: 4 * features])
    for alpha in ALPHAS:
        runs: dict[tuple[str, float], Callable[[], Any]] = {}
        for tol in (1e-10, 1e-5):  # our default, and one that is worth what lbfgs finds by default
            fair = model(features, feature_map=phi, alpha=alpha, eta=0, tol=tol)
            runs["ours", tol] = lambda fair=fair: fair.fit(x, y)
        for tol in (1e-4, 1e-6):
            # Our 1/n ΣV + α|β|² is theirs, C ΣV + |β|²/2, with C = 1/(2nα).
            rival = LogisticRegression(C=1 / (2 * n * alpha), tol=tol, max_iter=10_000)
            runs["lbfgs", tol] = lambda rival=rival: rival.fit(phi.transform(x), y)
        found = by_turns(runs, 4)
        Phi = phi.transform(x)
        at = {key: objective(Phi, y, alpha, fit) for key, (_, fit) in found.items()}
        for tol in (1e-10, 1e-5):
            seconds, fit = found["ours", tol]
            name = f"ours, eta=0, alpha={alpha:g}, tol={tol:g}"
            keep(f"{name}, seconds", seconds)
            keep(f"{name}, passes with that for the moments", 1 + fit.n_passes_)
            keep(f"{name}, objective above the best", at["ours", tol] - min(at.values()))
        for tol in (1e-4, 1e-6):
            name = f"lbfgs, tol={tol:g}, alpha={alpha:g}"
            seconds = found["lbfgs", tol][0]
            keep(f"{name}, objective above ours", at["lbfgs", tol] - at["ours", 1e-10])
            keep(f"{name}, seconds / ours", seconds / found["ours", 1e-10][0], ">= 1")
            if tol == 1e-4:
                ratio = seconds / found["ours", 1e-5][0]
                keep(f"{name}, seconds / ours at tol=1e-05", ratio, ">= 1")


def objective(Phi: Any, y: Any, alpha: float, fit: Any) -> float:
    f = Phi @ fit.coef_[0] + fit.intercept_[0]
    return float(Logistic().value(f, y).mean() + alpha * np.sum(fit.coef_**2))


MEMORY = """
import sys
import numpy as np
from sklearn.linear_model import LogisticRegression
from benchmarks.losses import adult, model
from scalefair.data.encoding import TableEncoder
from scalefair.maps import Nystroem
features, ours = int(sys.argv[1]), sys.argv[2] == "ours"
data = adult()
x = np.asarray(TableEncoder().fit(data.train).transform(data.train))
phi = Nystroem(n_components=features, random_state=0).fit(x[: 4 * features])
if ours:
    model(features, feature_map=phi, alpha=1e-4, eta=0).fit(x, data.y_train)
else:
    LogisticRegression(C=1 / (2e-4 * len(x))).fit(phi.transform(x), data.y_train)
"""


def judged(data: Split, predicted: Any) -> tuple[float, float]:
    """Accuracy and demographic-parity gap of decisions on the test rows."""
    s = data.test[data.sensitive].to_numpy()
    rates = [np.mean(predicted[s == group]) for group in np.unique(s)]
    return float(np.mean(predicted == data.y_test)), float(max(rates) - min(rates))


def fair_fit(data: Split, features: int, unfairness: float) -> Any:
    fair = model(features, alpha=1e-5, unfairness=unfairness, sensitive_columns=[data.sensitive])
    return fair.fit(data.train, data.y_train)


def with_thresholds(data: Split, features: int) -> Callable[[pd.DataFrame], Any]:
    """Decisions at a gap of about 0: our scores, then a threshold per group."""
    from fairlearn.postprocessing import ThresholdOptimizer

    decide = ThresholdOptimizer(estimator=fair_fit(data, features, 0.0), prefit=True, predict_method="predict_proba")
    decide.fit(data.train, data.y_train, sensitive_features=data.train[data.sensitive])
    return lambda rows: decide.predict(rows, sensitive_features=rows[data.sensitive], random_state=0)


def against_fairlearn(name: str, data: Split, features: int, limits: list[float], keep: Callable[..., None]) -> None:
    """Ours at some limits; exponentiated gradient at the gap that ours has on the training rows."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    encoder = TableEncoder().fit(data.train)
    scaler = StandardScaler().fit(encoder.transform(data.train))
    x, x_test = (scaler.transform(encoder.transform(part)) for part in (data.train, data.test))
    s = data.train[data.sensitive]
    runs: dict[str, Callable[[], Any]] = {
        f"{name}, unfairness={limit:g}": lambda limit=limit: fair_fit(data, features, limit).predict for limit in limits
    }
    runs[f"{name}, thresholds on the fair score"] = lambda: with_thresholds(data, features)
    for at, run in runs.items():
        ours, predict = timed(run, 1)
        accuracy, gap = judged(data, predict(data.test))
        trained = data._replace(test=data.train, y_test=data.y_train)
        bound = max(judged(trained, predict(data.train))[1], 0.005)
        # Theirs bounds |E[h|s] − E[h]|, which is the gap times the share of the other group.
        other = 1 - s.value_counts(normalize=True).min()
        rival = ExponentiatedGradient(
            LogisticRegression(max_iter=1000), DemographicParity(difference_bound=bound * other)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            theirs, _ = timed(lambda: rival.fit(x, data.y_train, sensitive_features=s), 1)  # noqa: B023
        their_accuracy, their_gap = judged(data, rival.predict(x_test, random_state=0))
        keep(f"{at}: our seconds", ours)
        keep(f"{at}: fairlearn seconds / ours", theirs / ours, "> 1")
        keep(f"{at}: our gap", gap)
        keep(f"{at}: fairlearn gap", their_gap)
        keep(f"{at}: our accuracy", accuracy)
        keep(f"{at}: our accuracy - fairlearn's", accuracy - their_accuracy, ">= 0")


def passes(data: Split, features: int, keep: Callable[..., None]) -> None:
    pass_costs(data, features, keep)
    for alpha in ALPHAS:
        for limit in ({"eta": 1.0}, {"unfairness": 0.01}):
            fit = model(features, alpha=alpha, **limit)
            fit.fit(data.train, data.y_train, sensitive_features=data.train[data.sensitive])
            what = ", ".join(f"{name}={value}" for name, value in limit.items())
            keep(f"passes, alpha={alpha:g}, {what}", 1 + fit.n_passes_, "<= 10")


def save(part: str, lines: list[tuple[str, float, str]]) -> None:
    """Write the lines of one part in place of those that the file has of it."""
    path = RESULTS / "losses.csv"
    old = [list(line.values()) for line in read_table(path)]
    every = [line for line in old if line[0] != part] + [[part, *map(str, line)] for line in lines]
    every.sort(key=lambda line: PARTS.index(line[0]))
    save_table(path, [("part", "what", "value", "target"), *every])


def run(part: str, options: argparse.Namespace) -> None:
    keep = Numbers(".6g")

    data = acs(options.acs_rows) if part == "acs" else adult()
    if part == "passes":
        passes(data, options.features, keep)
    elif part == "lbfgs":
        against_lbfgs(data, options.features, keep)
        ours, theirs = (peak_megabytes(MEMORY, options.features, who) for who in ("ours", "lbfgs"))
        keep("peak MB, ours", ours)
        keep("peak MB, lbfgs / ours", theirs / ours, "> 1")
    elif part == "folds":
        cross_validated(data, options.fair_features, keep)
    else:
        against_fairlearn(part, data, options.fair_features, options.limits, keep)
    save(part, keep.lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--fair-features", type=int, default=300)
    parser.add_argument("--limits", nargs="+", type=float, default=[0.05, 0.01, 0.0])
    parser.add_argument("--acs-rows", type=int, default=665_800)
    options = parser.parse_args()
    for part in options.parts:
        run(part, options)


if __name__ == "__main__":
    main()
