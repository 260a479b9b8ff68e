"""A cost model of a fit: constants from short runs, predictions beside long ones.

    python -m benchmarks.cost_model [--rows 2000000] [--folder DIR]

A fit of n rows with m features on W threads takes

    T = f(m) + n/W · g · (a + b·m + c·m²) + k·τ + ceil(log₈ K) · 8 · 8z² / B

f: landmarks, eigenvalues, solution, in the client. a, b, c: reading and encoding, mapping, and
adding up one row. On a cluster: g, what a row costs more on a worker than in this process; τ, the
scheduler's time for one task, of which there are k; K results of z×z numbers, z = m + q + t, are
added up by a tree of fan-in 8 over links of B bytes per second. Constants come from runs of at most
400,000 rows, g from 1,000,000; the long runs are predicted, not fitted. Where fresh memory is slow,
as on some virtual machines, `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184` keeps it out of
the constants. Writes results/cost_model.csv.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, save_table
from benchmarks.streams import PART, fit_scan, on_workers, seconds, write_table

SHORT = (100_000, 200_000, 400_000)
WORKER = (PART, 4 * PART)
WIDTHS = (100, 300, 600)
TASKS_PER_PARTITION = 12
"""Reads of X, y and s and the block made of them, in each of three passes: counted in a graph."""


@dataclass(frozen=True)
class Costs:
    """Constants of the model; times in seconds."""

    fixed: Any
    row: Any
    worker: float
    task: float
    bandwidth: float

    def in_process(self, n: int, m: int, threads: int = 2) -> float:
        """Seconds of a fit in one process."""
        return float(np.polyval(self.fixed, m) + n / threads * np.polyval(self.row, m))

    def on_cluster(self, n: int, m: int, workers: int, width: int) -> float:
        """Seconds of a fit on workers of one thread, with results of width × width."""
        results = 3 * workers
        levels = ceil(log(results, 8)) if results > 1 else 0
        tasks = TASKS_PER_PARTITION * ceil(n / PART) + 2 * results
        compute = np.polyval(self.fixed, m) + n / workers * self.worker * np.polyval(self.row, m)
        return float(compute + tasks * self.task + levels * 8 * 8 * width**2 / self.bandwidth)


def measured(folder: Path, rows: int, m: int) -> float:
    return seconds(lambda: fit_scan(folder / str(rows), m), rounds=3)


def calibrate(folder: Path) -> Costs:
    """Measure the constants on short tables."""
    for rows in (*SHORT, *WORKER):
        write_table(folder / str(rows), rows)
    lines = []
    for m in WIDTHS:
        times = [measured(folder, rows, m) for rows in SHORT]
        slope, fixed = np.polyfit(SHORT, times, 1)
        lines.append((m, 2 * slope, max(fixed, 0.0)))
        print(f"m={m}: {1e6 * 2 * slope:.2f} µs a row and thread, {fixed:.2f} s besides", flush=True)
    widths, slopes, fixed = np.array(lines).T
    row, besides = np.polyfit(widths, slopes, 2), np.polyfit(widths, fixed, 1)
    alone = [on_workers(folder / str(rows), 300, 1) for rows in WORKER]
    worker = (alone[1] - alone[0]) / (WORKER[1] - WORKER[0]) / np.polyval(row, 300)
    task, bandwidth = scheduler_costs()
    print(
        f"a row on a worker costs {worker:.3f} of one in process; {1e3 * task:.2f} ms a task, "
        f"{bandwidth / 1e6:.0f} MB/s",
        flush=True,
    )
    return Costs(besides, row, float(worker), task, bandwidth)


def scheduler_costs() -> tuple[float, float]:
    """Seconds that a task costs by being one, and bytes per second between two workers."""
    import dask
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        one, two = client.scheduler_info()["workers"]
        times, moves = [], []
        for round_ in range(3):
            tasks = [dask.delayed(abs)(-i - 10_000 * round_) for i in range(2000)]
            start = perf_counter()
            dask.compute(*tasks)
            times.append((perf_counter() - start) / len(tasks))
            block = client.submit(np.ones, 4_000_000 + round_, workers=[one], pure=False)
            client.gather(client.submit(len, block, workers=[one], pure=False))
            start = perf_counter()
            client.submit(len, block, workers=[two], pure=False).result()
            moves.append(perf_counter() - start)
    return median(times), 32e6 / median(moves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    lines: list[tuple[str, float, float | str]] = []

    def keep(name: str, predicted: float, found: float | None = None) -> None:
        ratio = "" if found is None else f"measured {found:.1f} s, {predicted / found:.2f}"
        print(f"{name}: predicted {predicted:.1f} s {ratio}", flush=True)
        lines.append((name, round(predicted, 2), "" if found is None else round(found, 2)))

    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        costs = calibrate(folder)
        table, n = write_table(folder / "long", options.rows), options.rows
        width = 500 + fit_scan(folder / str(SHORT[0]), 500).moments_.blocks["psi"] + 1
        for m in (200, 500):
            found = seconds(lambda m=m: fit_scan(table, m), rounds=1)
            keep(f"in process, {n} rows, m={m}", costs.in_process(n, m), found)
        for workers in (1, 2):
            found = on_workers(table, 500, workers)
            keep(f"{workers} workers, {n} rows, m=500", costs.on_cluster(n, 500, workers, width), found)
    for workers in (10, 100, 1000):
        keep(f"extrapolated: {workers} workers, 1000000000 rows, m=500", costs.on_cluster(10**9, 500, workers, width))
    save_table(RESULTS / "cost_model.csv", [("what", "predicted seconds", "measured seconds"), *lines])


if __name__ == "__main__":
    main()
