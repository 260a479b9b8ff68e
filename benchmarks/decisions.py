"""Accuracy of decisions at a gap between groups, beside other packages on the same trees.

    python -m benchmarks.decisions [--data adult acsincome] [--rows 100000] [--minutes 30]

Every method gets the boosted trees of the frontier benchmark, the attribute sex, visible or hidden
from predictions, and the limits below; equipy and ThresholdOptimizer stand on out-of-fold
predictions, as ours does, ExponentiatedGradient refits the trees. Randomised decisions count by
their expectation. Writes results/decisions.csv: for each method the accuracy on test rows at a gap
of .01, .02, .05 and .10, interpolated between its points, its standard error and its seconds; of
odds likewise, the gap then being the larger one of true and of false positive rates.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from benchmarks._frontier_data import Split, available, load
from benchmarks._measure import RESULTS
from benchmarks.peers._task import Task
from benchmarks.peers.barycentre import predictions
from scalefair import Decisions, FairKernelClassifierCV

PROBLEMS = {"adult": "E", "acsincome": "I"}
GAPS = (0.01, 0.02, 0.05, 0.10)
LIMITS = (0.0, 0.012, 0.03, 0.06, 0.11)
MIXED = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0)
BOUNDS = (0.001, 0.005, 0.015, 0.03, 0.06)
"""ExponentiatedGradient bounds differences from the mean of all: gaps are up to twice as large."""
FEATURES = 100

Chances = Iterator[Any]
"""For each limit, the probability of a positive decision for each test row."""


class Point(NamedTuple):
    """Accuracy and gaps of one model on test rows."""

    accuracy: float
    gap: float
    odds: float


def split_of(name: str, rows: int | None) -> Split:
    split = load(PROBLEMS[name], 0, rows)
    column, _ = Split.DECISIONS[split.name]
    return replace(split, sensitive=[column])


def point(split: Split, chance: Any) -> Point:
    column, level = Split.DECISIONS[split.name]
    chance, y = np.asarray(chance, dtype=float), np.asarray(split.y_test) > 0
    group = (split.X_test[column].astype(str) == level).to_numpy()

    def gap(among: Any) -> float:
        return abs(chance[group & among].mean() - chance[~group & among].mean())

    accuracy = float(np.where(y, chance, 1 - chance).mean())
    return Point(accuracy, gap(y | ~y), max(gap(y), gap(~y)))


def ours(limit_on: Any) -> Callable[[Task], Chances]:
    def run(task: Task) -> Chances:
        split = task.split
        for limit in LIMITS[2:3] if task.quick else LIMITS:
            model = FairKernelClassifierCV(
                base_estimator=task.trees(), sensitive_columns=split.sensitive, cv=5,
                hide_sensitive=task.hidden, unfairness=limit, limit_on=limit_on,
                n_components=FEATURES, random_state=0,
            ).fit(split.X, split.y.astype(int))  # fmt: skip
            yield model.predict(split.X_test)

    return run


def equipy(task: Task) -> Chances:
    from equipy.fairness import FairWasserstein

    held, h = predictions(task)
    fair = FairWasserstein()
    fair.fit(held, task.cells[0])
    for epsilon in MIXED[:2] if task.quick else MIXED:
        yield np.asarray(fair.transform(h, task.cells[1], epsilon=epsilon)) > 0.5


def centring(task: Task) -> Chances:
    """The log odds less a part of what the group explains of them."""
    held, h = (np.log(p / (1 - p)) for p in predictions(task))
    cells, cells_test = task.cells
    means = {cell: held[cells == cell].mean() for cell in np.unique(cells)}
    shift, middle = np.array([means[cell] for cell in cells_test]), held.mean()
    for kept in MIXED[:2] if task.quick else MIXED:
        yield h - (1 - kept) * (shift - middle) > 0


class Held(ClassifierMixin, BaseEstimator):
    """Predictions that are known, as a fitted classifier of their own column."""

    classes_ = np.array([0, 1])

    def fit(self, *_: Any) -> Held:
        return self

    def predict_proba(self, X: Any) -> Any:
        p = np.asarray(X)[:, 0]
        return np.column_stack([1 - p, p])


def optimizer(constraint: str) -> Callable[[Task], Chances]:
    def run(task: Task) -> Chances:
        from fairlearn.postprocessing import ThresholdOptimizer

        held, h = predictions(task)
        model = ThresholdOptimizer(
            estimator=Held(), constraints=constraint, prefit=True, grid_size=2000,
            predict_method="predict_proba",
        )  # fmt: skip
        y = task.y.astype(int)
        model.fit(held[:, None], y, sensitive_features=task.cells[0])
        yield model._pmf_predict(h[:, None], sensitive_features=task.cells[1])[:, 1]

    return run


def gradient(constraint: str) -> Callable[[Task], Chances]:
    def run(task: Task) -> Chances:
        from fairlearn import reductions

        (Z, Z_test), bounds = task.codes, BOUNDS[2:3] if task.quick else BOUNDS
        trees = task.trees().set_params(categorical_features=task.categories)
        for bound in bounds:
            limit = getattr(reductions, constraint)(difference_bound=bound)
            model = reductions.ExponentiatedGradient(trees, limit, max_iter=3 if task.quick else 50)
            model.fit(Z, task.y.astype(int), sensitive_features=task.cells[0])
            yield model._pmf_predict(Z_test)[:, 1]

    return run


METHODS: dict[str, tuple[str, Callable[[Task], Chances], tuple[bool, ...], str]] = {
    "scalefair": ("decisions", ours("decisions"), (False, True), "sklearn"),
    "equipy": ("decisions", equipy, (False,), "equipy"),
    "centring": ("decisions", centring, (False,), "sklearn"),
    "ThresholdOptimizer": ("decisions", optimizer("demographic_parity"), (False,), "fairlearn"),
    "ExponentiatedGradient": (
        "decisions", gradient("DemographicParity"), (False, True), "fairlearn",
    ),
    "scalefair, odds": ("odds", ours("odds"), (False, True), "sklearn"),
    "scalefair, odds, randomised": (
        "odds", ours(Decisions("odds", randomized=True)), (False, True), "sklearn",
    ),
    "ThresholdOptimizer, odds": ("odds", optimizer("equalized_odds"), (False,), "fairlearn"),
    "ExponentiatedGradient, odds": ("odds", gradient("EqualizedOdds"), (False, True), "fairlearn"),
}  # fmt: skip
"""What is limited, how, with s visible (False) or hidden (True), and what that needs."""


def at_gap(gaps: Any, accuracies: Any, gap: float) -> float:
    """Best accuracy of the points and of what lies between two of them, at a gap of at most this.

    Choosing between two models by chance is a model, too, for everybody alike.
    """
    best = max((a for g, a in zip(gaps, accuracies, strict=True) if g <= gap), default=np.nan)
    for low, first in zip(gaps, accuracies, strict=True):
        for high, second in zip(gaps, accuracies, strict=True):
            if low <= gap < high:
                between = first + (second - first) * (gap - low) / (high - low)
                best = max(best, between) if np.isfinite(best) else between
    return float(best)


def run(name: str, rows: int | None, hidden: bool, method: str, quick: bool) -> list[Any]:
    """Return the line of one method."""
    limited, make, _, _ = METHODS[method]
    split = split_of(name, rows)
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points = [point(split, chance) for chance in make(Task(split, hidden, quick))]
    seconds = (perf_counter() - start) / len(points)
    gaps = [p.odds if limited == "odds" else p.gap for p in points]
    accuracies = [p.accuracy for p in points]
    at = [at_gap(gaps, accuracies, gap) for gap in GAPS]
    mean = np.mean(accuracies)
    error = np.sqrt(mean * (1 - mean) / len(split.y_test))
    how = "hidden" if hidden else "visible"
    line = [name, len(split.y), how, limited, method, *np.round(at, 4), round(min(gaps), 4)]
    return [*line, round(float(error), 4), round(seconds, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--rows", type=int, default=100_000, help="of ACSIncome, at most")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", default=[""], help="words of methods")
    parser.add_argument("--quick", action="store_true", help="a smoke run that keeps nothing")
    options = parser.parse_args()
    end = perf_counter() + 60 * options.minutes
    lines: list[list[Any]] = []
    for name in options.data:
        if not available(PROBLEMS[name]):
            print(f"{name}: its table is not there; set SCALEFAIR_DATA", flush=True)
            continue
        for method, (_, _, ways, needs) in METHODS.items():
            wanted = find_spec(needs) and any(word in method for word in options.only)
            for hidden in ways if wanted else ():
                if perf_counter() > end:
                    break
                rows = 3000 if options.quick else None if name == "adult" else options.rows
                lines.append(run(name, rows, hidden, method, options.quick))
                print(*lines[-1], sep="  ", flush=True)
                if not options.quick:
                    write(lines)


HEADER = [
    "data", "rows", "s", "limited", "method", *(f"accuracy at {gap}" for gap in GAPS), "least gap",
    "standard error", "seconds a model",
]  # fmt: skip


def write(lines: list[list[Any]]) -> None:
    """Write the lines; those of runs before that were not made again stay."""
    path, key = RESULTS / "decisions.csv", slice(0, 5)
    new = {tuple(map(str, line[key])): line for line in lines}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            new = {tuple(line[key]): line for line in list(csv.reader(file))[1:]} | new
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *(new[k] for k in sorted(new))])


if __name__ == "__main__":
    main()
