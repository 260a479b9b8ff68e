"""Time and memory of explaining the share of a fitted model, over those of the fit.

    python -m benchmarks.explain [--rows 10000000] [--features 500]

The rows are a parquet file of synthetic pay, written first, to a temporary folder; each step runs
in a process of its own. Appends to results/explain.csv from a million rows on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, add_lines, memory_peak

BATCH = 500_000
SENSITIVE = ["sex", "ethnicity"]


def write(path: Path, rows: int) -> None:
    """Write the table, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from scalefair.datasets import make_biased_income

    lazy = make_biased_income(rows, chunks=min(rows, BATCH), random_state=0)
    table = lazy.data.assign(pay=lazy.target)
    with pq.ParquetWriter(path, pa.Table.from_pandas(table.partitions[0].compute()).schema) as out:
        for part in table.partitions:
            out.write_table(pa.Table.from_pandas(part.compute()))


def work(step: str, folder: Path, features: int) -> None:
    """Run one step; print its seconds and the peak memory in megabytes."""
    from scalefair import FairKernelRidge, explain_share, load, proxies, save, scan_parquet

    scan = scan_parquet(folder / "pay.parquet")
    X, s = scan[[n for n in scan.columns if n not in ("pay", *SENSITIVE)]], scan[SENSITIVE]
    start = perf_counter()
    if step == "fit":
        model = FairKernelRidge(unfairness=0.02, n_components=features, random_state=0)
        save(model.fit(X, scan["pay"], sensitive_features=s), folder / "model")
    elif step == "explain":
        table = explain_share(load(folder / "model"), X, sensitive_features=s)
        assert np.isfinite(table["after_error"]).all()
    else:
        proxies(X, sensitive_features=s)
    print(perf_counter() - start, memory_peak())


def measure(rows: int, features: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "pay.parquet", rows)
        for step in ("fit", "explain", "proxies"):
            command = [sys.executable, "-m", "benchmarks.explain", "--step", step, "--folder", name]
            out = subprocess.run([*command, "--features", str(features)], check=True, capture_output=True, text=True)
            seconds, peak = map(float, out.stdout.split())
            fit = lines[0]["seconds"] if lines else seconds
            lines.append(
                {
                    "step": step,
                    "rows": rows,
                    "features": features,
                    "seconds": round(seconds, 3),
                    "over_fit": round(seconds / fit, 3),
                    "peak_megabytes": round(peak),
                }
            )
            print(lines[-1])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        work(options.step, options.folder, options.features)
        return
    lines = measure(options.rows, options.features)
    if options.rows >= 1_000_000:
        add_lines(RESULTS / "explain.csv", lines, list(lines[0]))


if __name__ == "__main__":
    main()
