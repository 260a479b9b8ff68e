"""The command: run what is not there yet, then the tables and the pictures.

python -m benchmarks.peers [--data crime adult acs acsincome] [--rows N] [--quick]
                           [--only WORD ...] [--limit SECONDS] [--jobs 2] [--tables]
python -m benchmarks.peers --data FILE --target COLUMN --sensitive COLUMN ... [--out FOLDER]

Everybody gets 20,000 training rows first, of crime all; then all rows who would need no more than
ten minutes for them. `--rows` names other numbers of rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._frontier_data import Split, available, from_table
from benchmarks._measure import read_table
from benchmarks.peers import METHODS
from benchmarks.peers._run import ALL_ROWS, DATA, POINTS, Job, key_of, run
from benchmarks.peers._tables import OURS, report

ROWS = 20_000
PATIENCE = 600.0
"""Seconds within which a method has to be done with all rows to get them."""
SEEDS = {"crime": 5}


def jobs(options: argparse.Namespace, rows: int | None) -> Iterator[Job]:
    """All that can run on so many rows, or on all; variants of ours on validation rows first."""
    for data in options.data:
        if not options.target and not available(DATA[data]):
            print(f"{data}: its table is not there; set SCALEFAIR_DATA", flush=True)
            continue
        most = ALL_ROWS.get(data, 10**9)
        asked = {"quick": options.quick, "target": options.target, "sensitive": tuple(options.sensitive)}
        for name, s in methods(options, kind_of(options, data)):
            for seed in range(1 if options.quick else min(options.seeds, SEEDS.get(data, 1))):
                job = Job(data, s, name, most if rows is None else min(rows, most), seed, **asked)
                if name.startswith(OURS):
                    yield replace(job, part="validation")
                yield job


def methods(options: argparse.Namespace, decides: bool) -> Iterator[tuple[str, str]]:
    """Names of the methods that can run, with s visible and hidden."""
    for name, method in METHODS.items():
        wanted = method.goal == "parity" and any(word in name for word in options.only)
        ways = [s for s in options.s if wanted and method.can(decides, s == "hidden")]
        if ways and not method.installed():
            print(f"{name}: {method.needs} is not at hand", flush=True)
        elif ways:
            yield from ((name, s) for s in ways)


def kind_of(options: argparse.Namespace, data: str) -> bool:
    """Whether the target is a rate."""
    if not options.target:
        return DATA[data] in Split.DECISIONS
    return from_table(data, options.target, options.sensitive, 0, 1000).decides


def patient(job: Job, path: Path) -> bool:
    """Whether a job on all rows would be done in time, as its time on fewer rows says."""
    few = replace(job, rows=min(ROWS, job.rows)).key
    times = [float(line["total_cpu"]) for line in read_table(path) if key_of(line) == few and line["total_cpu"]]
    return bool(times) and max(times) * job.rows / ROWS <= PATIENCE


def run_all(options: argparse.Namespace, path: Path) -> None:
    """First on few rows, then on all; `--jobs` side by side."""
    for rows in (options.rows,) if options.rows else (ROWS, None):
        wanted = [job for job in jobs(options, rows) if rows is not None or (job.rows > ROWS and patient(job, path))]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda job: run(job, options.limit, path), wanted))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA), help="names, or one file")
    parser.add_argument("--target", default="", help="column of the file")
    parser.add_argument("--sensitive", nargs="+", default=[], help="columns of the file")
    parser.add_argument("--out", type=Path, default=Path("peers"), help="folder, for a file")
    parser.add_argument("--s", nargs="+", choices=("visible", "hidden"), default=["visible", "hidden"])
    parser.add_argument("--rows", type=int, help="training rows at most")
    parser.add_argument("--seeds", type=int, default=5, help="splits of crime at most")
    parser.add_argument("--only", nargs="+", default=[""], help="words of methods' names")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of one method")
    parser.add_argument("--jobs", type=int, default=1, help="methods side by side")
    parser.add_argument("--quick", action="store_true", help="few rows, nothing kept")
    parser.add_argument("--tables", action="store_true", help="only the tables and pictures")
    options = parser.parse_args()
    if options.target and not options.sensitive:
        parser.error("--target needs --sensitive, columns of the same file")
    unknown = [data for data in options.data if data not in DATA and not options.target]
    if unknown:
        parser.error(f"--data {unknown[0]}: neither one of {', '.join(DATA)} nor a file with --target")
    return options


def main() -> None:
    options = parsed()
    if options.quick:
        options.rows = options.rows or 1000
        with TemporaryDirectory() as folder:
            run_all(options, Path(folder) / POINTS.name)
            report(Path(folder) / POINTS.name)
        return
    path = options.out / POINTS.name if options.target else POINTS
    if not options.tables:
        run_all(options, path)
    report(path)


if __name__ == "__main__":
    main()
