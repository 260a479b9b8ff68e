"""The command: run what is not there yet, then the tables and the pictures.

python -m benchmarks.peers [--data crime adult acs acsincome] [--rows N] [--quick]
                           [--only WORD ...] [--limit SECONDS] [--tables]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks._frontier_data import Split, available
from benchmarks.peers import METHODS
from benchmarks.peers._run import DATA, POINTS, Job, apart, append, finished, read
from benchmarks.peers._tables import report

SEEDS = {"crime": 5}


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    for data in options.data:
        if not available(DATA[data]):
            print(f"{data}: its table is not there; set SCALEFAIR_DATA", flush=True)
            continue
        decides = DATA[data] in Split.DECISIONS
        for name, method in METHODS.items():
            if options.only and not any(word in name for word in options.only):
                continue
            if not method.installed():
                print(f"{name}: {method.needs} is not installed", flush=True)
                continue
            seeds = 1 if options.quick else min(options.seeds or 99, SEEDS.get(data, 1))
            yield from (
                Job(data, s, name, options.rows, seed, options.quick)
                for s in options.s
                if method.can(decides, s == "hidden")
                for seed in range(seeds)
            )


def run(options: argparse.Namespace, path: Path) -> None:
    for job in jobs(options):
        if finished(job, read(path), options.limit) and not options.again:
            continue
        start = perf_counter()
        found = []
        for point in apart(job, options.limit):
            append(job, point, path)
            found.append(point)
        note = f"{len(found) - 1} points, {found[-1]['note']}"
        print(f"{job.data}, {job.s}, seed {job.seed}, {job.method}: {note}, "
              f"{perf_counter() - start:.0f} s", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--s", nargs="+", choices=("visible", "hidden"),
                        default=["visible", "hidden"])  # fmt: skip
    parser.add_argument("--rows", type=int, help="training rows; by default all")
    parser.add_argument("--only", nargs="+", help="methods whose name has one of these words")
    parser.add_argument("--seeds", type=int, help="splits of crime; by default 5")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of one method")
    parser.add_argument("--quick", action="store_true", help="few rows, nothing kept")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument("--tables", action="store_true", help="only the tables and pictures")
    options = parser.parse_args()
    if options.quick:
        options.rows = options.rows or 1000
        with TemporaryDirectory() as folder:
            run(options, Path(folder) / POINTS.name)
            report(Path(folder) / POINTS.name)
        return
    if not options.tables:
        run(options, POINTS)
    report(POINTS)


if __name__ == "__main__":
    main()
