"""Time and memory against rows, up to 10 million, and against features, beside what others need.

    python -m benchmarks.scaling_peers [--quick] [--only WORD ...] [--most-gb 10]

Each measurement is a process of its own. Rows come in batches for those who take batches, and are
made in memory for the others; the time to make them does not count. A method is not run where it
would need more memory than `--most-gb` (its arrays are counted beforehand, and the line says so),
nor beyond `--limit` seconds: that is its wall. Results are appended to results/scaling_peers.csv
as they come, and drawn.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, add_lines, memory_peak, read_table, threads

INPUTS = 20
BATCH = 20_000
ALPHA = 1e-5
LENGTH_SCALE = 4.0
ROWS = (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
FEATURES = (100, 300, 1000, 3000)
AT_FEATURES, AT_ROWS = 300, 100_000
FIELDS = ("method", "axis", "rows", "features", "seconds", "peak_mb", "threads", "note")
Arrays = tuple[Any, Any, Any]


def batch(number: int, count: int) -> Arrays:
    rng = np.random.default_rng(number)
    X = rng.standard_normal((count, INPUTS))
    s = (X[:, 0] + 0.5 * rng.standard_normal(count) > 0).astype(int)
    return X, np.sin(X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * s + 0.3 * rng.standard_normal(count), s


def table(n: int) -> Arrays:
    X, y, s = np.empty((n, INPUTS)), np.empty(n), np.empty(n, dtype=int)
    for number, start in enumerate(range(0, n, BATCH)):
        rows = slice(start, min(start + BATCH, n))
        X[rows], y[rows], s[rows] = batch(number, rows.stop - rows.start)
    return X, y, s


def our_model(m: int, feature_map: str) -> Any:
    from scalefair import FairKernelRidge

    return FairKernelRidge(
        feature_map=feature_map, n_components=m, length_scale=LENGTH_SCALE, eta=1.0, alpha=ALPHA,
        sensitive_kernel="categorical", random_state=0,
    )  # fmt: skip


def streamed(n: int, m: int) -> Callable[[], Any]:
    from scalefair import BatchSource

    def batches() -> Any:
        for number, start in enumerate(range(0, n, BATCH)):
            X, y, s = batch(number, min(BATCH, n - start))
            yield X, y, s, None

    model = our_model(m, "fourier")
    return lambda: model.fit(BatchSource(batches), None)


def ours(n: int, m: int, feature_map: str = "nystroem") -> Callable[[], Any]:
    X, y, s = table(n)
    model = our_model(m, feature_map)
    return lambda: model.fit(X, y, sensitive_features=s)


def exact(n: int, m: int) -> Callable[[], Any]:
    return ours(n, m, "exact")


def nystroem(n: int, m: int) -> Callable[[], Any]:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    X, y, _ = table(n)
    phi = Nystroem(gamma=0.5 / LENGTH_SCALE**2, n_components=m, random_state=0)
    return lambda: make_pipeline(phi, Ridge(n * ALPHA)).fit(X, y)  # a = nα


def kernel_ridge(n: int, m: int) -> Callable[[], Any]:  # noqa: ARG001
    from sklearn.kernel_ridge import KernelRidge

    X, y, _ = table(n)
    model = KernelRidge(alpha=n * ALPHA, kernel="rbf", gamma=0.5 / LENGTH_SCALE**2)  # a = nα
    return lambda: model.fit(X, y)


def boosting(n: int, m: int) -> Callable[[], Any]:  # noqa: ARG001
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, y, _ = table(n)
    return lambda: HistGradientBoostingRegressor(early_stopping=False).fit(X, y)


def reduction(n: int, m: int) -> Callable[[], Any]:  # noqa: ARG001
    """ExponentiatedGradient with the cheapest learner there is."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    X, y, s = table(n)
    model = ExponentiatedGradient(LogisticRegression(C=1 / (2 * n * ALPHA)), DemographicParity(difference_bound=0.02))
    return lambda: model.fit(X, (y > y.mean()).astype(int), sensitive_features=s)


METHODS: dict[str, tuple[Callable[[int, int], Callable[[], Any]], Callable[[int, int], float]]] = {
    # What is run, and how many numbers it must hold.
    "scalefair, batches": (streamed, lambda _, m: 3 * m * m),
    "scalefair, in memory": (ours, lambda n, m: n * INPUTS + 3 * m * m),
    "scalefair, exact": (exact, lambda n, _: 4 * n * n),
    "scikit-learn Nystroem + Ridge": (nystroem, lambda n, m: n * (INPUTS + 3 * m)),
    "scikit-learn KernelRidge": (kernel_ridge, lambda n, _: 2 * n * n),
    "scikit-learn HistGradientBoosting": (boosting, lambda n, _: 2 * n * INPUTS),
    "fairlearn ExponentiatedGradient, linear": (reduction, lambda n, _: n * (3 * INPUTS + 60)),
}
FEATURED = ("scalefair, batches", "scalefair, in memory", "scikit-learn Nystroem + Ridge")


def here(method: str, n: int, m: int) -> None:
    """Measure in this process, which is for nothing else; print seconds and peak megabytes."""
    METHODS[method][0](500, 20)()  # load and compile
    run = METHODS[method][0](n, m)
    start = perf_counter()
    run()
    print(f"{perf_counter() - start} {memory_peak()}")


def measured(method: str, n: int, m: int, most: float, limit: float) -> dict[str, Any]:
    """Return the columns of one measurement."""
    need = 8e-9 * METHODS[method][1](n, m)
    if need > most:
        return {"note": f"would hold {need:.0f} GB"}
    command = [sys.executable, "-m", "benchmarks.scaling_peers", "--here", method, str(n), str(m)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"note": f"stopped after {limit:g} s"}
    if done.returncode:
        return {"note": (done.stderr.strip().splitlines() or ["failed"])[-1][:100]}
    seconds, peak = map(float, done.stdout.split()[-2:])
    return {"seconds": f"{seconds:.3g}", "peak_mb": f"{peak:.0f}"}


def points(quick: bool) -> list[tuple[str, str, int, int]]:
    rows, features = ((1000,), (20,)) if quick else (ROWS, FEATURES)
    found = [(name, "n", n, 20 if quick else AT_FEATURES) for n in rows for name in METHODS]
    return found + [(name, "m", 2000 if quick else AT_ROWS, m) for m in features for name in FEATURED]


def run(path: Path, options: argparse.Namespace) -> None:
    walls: set[str] = set()
    for method, axis, n, m in points(options.quick):
        if options.only and not any(word in method for word in options.only):
            continue
        if any(_key(line) == (method, axis, str(n), str(m)) for line in read_table(path)):
            continue
        found = (
            {"note": "beyond its wall"}
            if axis == "n" and method in walls
            else measured(method, n, m, options.most_gb, options.limit)
        )
        if "note" in found and axis == "n":
            walls.add(method)
        line = {"method": method, "axis": axis, "rows": n, "features": m, "threads": threads()}
        add_lines(path, [line | found], FIELDS)
        print(line | found, flush=True)


def _key(line: dict[str, str]) -> tuple[str, ...]:
    return line["method"], line["axis"], line["rows"], line["features"]


def draw(path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 6.4), layout="constrained")
    axes = figure.subplots(2, 2)
    lines = [line for line in read_table(path) if line["seconds"]]
    for axis, column, pair in zip("nm", ("rows", "features"), axes.T, strict=True):
        for ax, value, label in zip(pair, ("seconds", "peak_mb"), ("seconds", "peak MB"), strict=True):
            for name, mark in zip(METHODS, "osv^D<>", strict=True):
                some = sorted(
                    (int(line[column]), float(line[value]))
                    for line in lines
                    if (line["method"], line["axis"]) == (name, axis)
                )
                if some:
                    ax.loglog(*zip(*some, strict=True), marker=mark, label=name, markersize=4)
            ax.set(xlabel=column, ylabel=label)
    axes[0, 0].legend(fontsize=7)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing kept")
    parser.add_argument("--only", nargs="+", help="methods whose name has one of these words")
    parser.add_argument("--most-gb", type=float, default=10.0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one fit")
    parser.add_argument("--here", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        method, n, m = options.here
        here(method, int(n), int(m))
        return
    with TemporaryDirectory() as folder:
        path = (Path(folder) if options.quick else RESULTS) / "scaling_peers.csv"
        run(path, options)
        draw(path)


if __name__ == "__main__":
    main()
