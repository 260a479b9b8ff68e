"""Accuracy of decisions at a gap between the sexes, beside other packages on the same trees.

    python -m benchmarks.decisions [--data adult acsincome] [--rows 20000] [--jobs 2] [--quick]

The adapters are those of benchmarks.peers, here with one attribute, sex, visible or hidden from
predictions. equipy, centring, ThresholdOptimizer and OxonFair stand on out-of-fold predictions of
the same trees, as ours does; ExponentiatedGradient refits default trees. Randomised decisions count
by their expectation. Points go to results/decisions_points.csv as they come, so that a run that was
stopped goes on; results/decisions.csv has the accuracy on test rows at a gap of .01, .02, .05 and
.10, read between a method's points, its standard error, and CPU seconds: the median over bounds.
Of odds likewise: the gap is then the larger one of true and of false positive rates.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._frontier_data import Split, available
from benchmarks._measure import RESULTS, save_table, stamps
from benchmarks.peers import METHODS
from benchmarks.peers._run import ALL_ROWS, DATA, Job, run
from benchmarks.peers._tables import cost, curves, rows_of

PROBLEMS = ("adult", "acsincome")
WORDS = (
    "scalefair, trees",
    "scalefair, logistic",
    "scalefair, decisions",
    "odds",
    "centring",
    "equipy",
    "ThresholdOptimizer",
    "OxonFair",
    "ExponentiatedGradient, trees",
)
GAPS = (0.01, 0.02, 0.05, 0.10)
HEADER = (
    "data",
    "rows",
    "s",
    "limited",
    "method",
    *(f"accuracy at {gap:g}" for gap in GAPS),
    "least gap",
    "standard error",
    "CPU s a model",
)


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    for data in options.data:
        if not available(DATA[data]):
            print(f"{data}: its table is not there; set SCALEFAIR_DATA", flush=True)
            continue
        column, _ = Split.DECISIONS[DATA[data]]
        rows = 1000 if options.quick else min(options.rows, ALL_ROWS[data])
        for name, method in METHODS.items():
            wanted = any(word in name for word in WORDS) and any(w in name for w in options.only)
            if wanted and not method.installed():
                print(f"{name}: {method.needs} is not at hand", flush=True)
            elif wanted:
                ways = [s for s in ("visible", "hidden") if method.can(True, s == "hidden")]
                asked: Any = {"quick": options.quick, "sensitive": (column,)}
                yield from (Job(data, s, name, rows, **asked) for s in ways)


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


def table(path: Path) -> Iterator[list[Any]]:
    """One line a method."""
    for place, methods in sorted(curves(path).items()):
        for goal in ("parity", "odds"):
            for name, curve in methods.items():
                if METHODS[name].goal != goal:
                    continue
                gaps = [point["odds" if goal == "odds" else "gap"] for point in curve]
                accuracies = [point["accuracy"] for point in curve]
                at = [at_gap(gaps, accuracies, gap) for gap in GAPS]
                error = median(point["accuracy_error"] for point in curve)
                limited = "odds" if goal == "odds" else "decisions"
                yield [
                    place.data,
                    rows_of(curve),
                    place.s,
                    limited,
                    name,
                    *("–" if np.isnan(value) else f"{value:.4f}" for value in at),
                    f"{min(gaps):.4f}",
                    f"{error:.4f}",
                    f"{cost(curve, METHODS[name].refits):.3g}",
                ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--rows", type=int, default=20_000, help="training rows at most")
    parser.add_argument("--only", nargs="+", default=[""], help="words of methods")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of one method")
    parser.add_argument("--jobs", type=int, default=1, help="methods side by side")
    parser.add_argument("--quick", action="store_true", help="few rows and bounds")
    parser.add_argument("--tables", action="store_true", help="only the table")
    options = parser.parse_args()
    path = RESULTS / "decisions_points.csv"
    if options.quick:
        path = path.with_name("decisions_quick.csv")
        path.unlink(missing_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        wanted = () if options.tables else jobs(options)
        list(pool.map(lambda job: run(job, options.limit, path), wanted))
    lines = list(table(path))
    for line in lines:
        print(*line, sep="  ", flush=True)
    if options.quick:
        path.unlink(missing_ok=True)
        return
    save_table(RESULTS / "decisions.csv", [HEADER, *lines], *stamps(path))


if __name__ == "__main__":
    main()
