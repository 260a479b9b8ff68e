"""Time of a fit against the number of rows and of features: slopes and a picture.

    python -m benchmarks.scaling [--quick]

Writes results/scaling.csv and, with matplotlib, results/scaling.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, save_lines
from benchmarks._problems import fourier_map, table
from scalefair import FairKernelRidge


def seconds(X: Any, y: Any, s: Any, features: int, rounds: int = 2) -> float:
    """Least time of a few fits."""
    model = FairKernelRidge(feature_map=fourier_map(X, features), sensitive_kernel="categorical", eta=1.0, alpha=1e-4)
    times = []
    for _ in range(rounds):
        start = perf_counter()
        model.fit(X, y, sensitive_features=s)
        times.append(perf_counter() - start)
    return min(times)


def slope(sizes: Iterable[int], times: Iterable[float]) -> float:
    """Least-squares slope in log-log coordinates."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(times)), 1)[0])


def measure(quick: bool) -> list[dict[str, Any]]:
    n_rows = [2**k for k in (range(12, 14) if quick else range(18, 21))]
    n_features = [100, 200] if quick else [500, 1000, 2000, 4000]
    X, y, s = table(max(n_rows))
    lines = [
        {"axis": "n", "rows": n, "features": n_features[1], "seconds": seconds(X[:n], y[:n], s[:n], n_features[1])}
        for n in n_rows
    ]
    n = min(n_rows[0], 2**16)
    lines += [{"axis": "m", "rows": n, "features": m, "seconds": seconds(X[:n], y[:n], s[:n], m)} for m in n_features]
    return lines


def draw(lines: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axis, column, ax in zip("nm", ("rows", "features"), figure.subplots(1, 2), strict=True):
        points = [(line[column], line["seconds"]) for line in lines if line["axis"] == axis]
        sizes, times = zip(*points, strict=True)
        ax.loglog(sizes, times, "o-", color="#0072b2")
        ax.set(xlabel=column, ylabel="seconds", title=f"slope {slope(sizes, times):.2f}")
    figure.savefig(RESULTS / "scaling.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing kept")
    quick = parser.parse_args().quick
    lines = measure(quick)
    for line in lines:
        print(line)
    for axis, column in (("n", "rows"), ("m", "features")):
        points = [(line[column], line["seconds"]) for line in lines if line["axis"] == axis]
        print(f"slope in {axis}: {slope(*zip(*points, strict=True)):.3f}")
    if not quick:
        save_lines(RESULTS / "scaling.csv", lines)
        draw(lines)


if __name__ == "__main__":
    main()
